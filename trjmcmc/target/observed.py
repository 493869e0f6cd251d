"""Likelihoods that are distributions over given data, so that data can be drawn, and exchanged."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from ..errors import ShapeError, TargetError

Predicts = Callable[..., Distribution]


class Observed:
    """A log-likelihood stated as the distribution of the data, and the data.

    It is called as any likelihood is. As it knows the distribution, data can be simulated from it,
    other data put in their place, and each datum has a log density of its own: :mod:`trj.simulate
    <trjmcmc.simulate>` and :func:`trj.validate <trjmcmc.validate>` need nothing else.

    Arguments:
        distribution: Function of the parameters, as a likelihood has them (and of what is active),
            that returns a distribution of ``torch.distributions``. Its batch shape and event shape
            together are (C, *data), C the points of the batch; of a model without parameters
            (*data,).
        data: Any array; numbers are cast to the precision of the parameters at each call.

    Raises:
        ShapeError: Where it is called: the distribution has another shape than the data.
        TargetError: The function returns no distribution, or the data hold NaN.

    Example:
        >>> from torch.distributions import Normal
        >>> seen = Observed(lambda p: Normal(p["mu"][:, None], 1.0), [0.1, 1.2, 0.4])
        >>> p = {"mu": torch.zeros(2)}
        >>> seen(p).shape, seen.pointwise(p).shape, seen.sample(p).shape
        (torch.Size([2]), torch.Size([2, 3]), torch.Size([2, 3]))
    """

    def __init__(self, distribution: Predicts, data: Any) -> None:
        self.distribution = distribution
        self.data = data.detach().clone() if isinstance(data, Tensor) else torch.tensor(data)
        if bool(self.data.isnan().any()):
            raise TargetError("Observed: data: some are NaN; leave them out of both sides")
        self._cast: dict[Any, Tensor] = {}

    def given(self, data: Any) -> Observed:
        """The same distribution over other data."""
        new = copy.copy(self)
        new.data = torch.as_tensor(data).detach()
        new._cast = {}
        return new

    def __call__(self, params: dict[str, Tensor], *active: Any) -> Tensor:
        """Log density of the data, shape (C,), nats; without parameters a number."""
        each = self.pointwise(params, *active)
        return each.reshape(len(each), -1).sum(-1) if params or active else each.sum()

    def pointwise(self, params: dict[str, Tensor], *active: Any) -> Tensor:
        """Log density of each observation, shape (C, *observations), nats.

        An observation is what the distribution has one density for: a datum, or an event.
        """
        found, n = self._at(params, *active)
        data = self._data(params)
        observations = data.shape[: data.dim() - len(found.event_shape)]
        try:
            each: Tensor = found.log_prob(data)
        except (ValueError, RuntimeError) as error:
            raise ShapeError(f"{self._shapes(found, n)}: {error}") from error
        if not params and not active:  # no parameters, no batch
            each = each.reshape(observations)[None]
        if each.shape != (n, *observations) or (n > 1 and len(found.batch_shape) < each.dim() > 1):
            raise ShapeError(self._shapes(found, n))
        return each

    def sample(self, params: dict[str, Tensor], *active: Any) -> Tensor:
        """Data drawn at each point from torch's global generator, shape (C, *data)."""
        found, n = self._at(params, *active)
        observations = self.data.shape[: self.data.dim() - len(found.event_shape)]
        with torch.no_grad():
            lead = () if not params and not active else (n,)
            drawn: Tensor = found.expand(torch.Size((*lead, *observations))).sample()
            return drawn if lead else drawn[None]

    def _at(self, params: dict[str, Tensor], *active: Any) -> tuple[Distribution, int]:
        found = self.distribution(params, *active)
        if not isinstance(found, Distribution):
            raise TargetError(
                "Observed: distribution: expected a function that returns a distribution of "
                f"torch.distributions, got {type(found).__name__}"
            )
        on = active[0] if active else None
        lead = next(iter(on.values())) if isinstance(on, dict) else on
        first = next(iter(params.values()), lead)
        return found, 1 if first is None else len(first)

    def _data(self, params: dict[str, Tensor]) -> Tensor:
        like = next((v for v in params.values() if v.is_floating_point()), None)
        if like is None or not self.data.is_floating_point():
            return self.data if like is None else self.data.to(like.device)
        key = (like.dtype, like.device)
        if key not in self._cast:
            self._cast[key] = self.data.to(like)
        return self._cast[key]

    def _shapes(self, found: Distribution, n: int) -> str:
        got = tuple(found.batch_shape) + tuple(found.event_shape)
        return (
            f"Observed: expected a distribution of shape {(n, *self.data.shape)} for {n} points "
            f"and data of shape {tuple(self.data.shape)}, got {got}; parameters hold a batch of "
            'points: write p["x"][:, None] beside data'
        )
