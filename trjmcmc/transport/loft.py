"""A bend of the coordinates that keeps far draws of a flow finite."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.distributions import Transform, constraints


class LogSoftExtension(Transform):
    r"""The identity up to a distance, the logarithm from there on, backwards.

    .. math:: x = \operatorname{sign}(y)\,(\min(|y|, \tau) + \log(1 + \max(|y| - \tau, 0)))

    carries what a flow makes, y, to parameters x, so that the product of many couplings' scales
    can't throw a draw, and its gradient, out of all bounds. As zuko's, this transform leads from
    parameters to the base, ``inv`` back; the density is exact either way, and zero from 88 beyond
    the distance on in float32 (709 in float64), where no draw comes.

    Arguments:
        beyond: The distance :math:`\tau`. In standardised units a posterior has nothing beyond 100.

    Source:
        Andrade (2024), "Stable training of normalizing flows for high-dimensional variational
        inference", https://arxiv.org/abs/2402.16408

    Example:
        >>> import torch
        >>> bend = LogSoftExtension(100.0)
        >>> x, ladj = bend.inv.call_and_ladj(torch.tensor([-3.0, 100 + 1e9]))
        >>> x.round().tolist(), ladj.round().tolist()
        ([-3.0, 121.0], [-0.0, -21.0])
    """

    domain, codomain, bijective = constraints.real, constraints.real, True

    def __init__(self, beyond: float = 100.0, **options: Any) -> None:
        super().__init__(**options)
        self.beyond = beyond

    def _call(self, x: Tensor) -> Tensor:
        out = (x.abs() - self.beyond).clamp(min=0)
        return x.sign() * (x.abs().clamp(max=self.beyond) + out.expm1())

    def _inverse(self, y: Tensor) -> Tensor:
        out = (y.abs() - self.beyond).clamp(min=0)
        return y.sign() * (y.abs().clamp(max=self.beyond) + out.log1p())

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return (x.abs() - self.beyond).clamp(min=0)
