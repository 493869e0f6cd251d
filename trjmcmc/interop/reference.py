"""Normalised densities that a joint is compared with: Student-t, or fitted to draws."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Chi2, Distribution, StudentT, constraints

from ..errors import TargetError
from ..target.prior import PriorSpec
from ..target.support import support_of

DEGREES = 4.0  # of freedom: tails heavier than posteriors have, and a variance

SCALE = 2.0  # of the default reference

Shapes = Mapping[str, tuple[int, ...]]


class VectorT(Distribution):
    r"""Multivariate Student-t distribution of an array of any shape.

    .. math:: x = \mu + s L z \sqrt{\nu / \chi^2_\nu}

    Arguments:
        df: Degrees of freedom nu, one number.
        loc: Location mu, shape (\*batch, d), d entries in all.
        tril: Lower factor L, shape (d, d).
        scale: Factor s, shape (\*batch,).
        shape: Of one value, with d entries.

    Example:
        >>> one = VectorT(4.0, torch.zeros(3), torch.eye(3), torch.ones(()), (3,))
        >>> one.event_shape, round(float(one.log_prob(torch.zeros(3))), 4)
        (torch.Size([3]), -2.5956)
    """

    arg_constraints: dict[str, Any] = {}  # noqa: RUF012 - torch's own convention

    def __init__(
        self, df: float, loc: Tensor, tril: Tensor, scale: Tensor, shape: tuple[int, ...]
    ) -> None:
        self.df, self.loc, self.tril, self.scale = df, loc, tril, scale
        super().__init__(loc.shape[:-1], torch.Size(shape), validate_args=False)

    @property
    def support(self) -> Any:
        n = len(self.event_shape)
        return constraints.independent(constraints.real, n) if n else constraints.real

    def expand(self, batch_shape: Any, _instance: Any = None) -> VectorT:
        batch = torch.Size(batch_shape)
        loc = self.loc.expand(*batch, self.loc.shape[-1])
        return VectorT(self.df, loc, self.tril, self.scale.expand(batch), self.event_shape)

    def sample(self, sample_shape: Any = torch.Size()) -> Tensor:  # noqa: B008
        shape = (*sample_shape, *self.loc.shape)
        z = torch.randn(shape, dtype=self.loc.dtype, device=self.loc.device)
        chi2 = Chi2(self.loc.new_tensor(self.df)).sample(shape[:-1])
        wide = self.scale * (self.df / chi2).sqrt()
        x = self.loc + wide[..., None] * (z @ self.tril.mT)
        return x.reshape(*shape[:-1], *self.event_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        d = self.loc.shape[-1]
        lead = value.shape[: value.dim() - len(self.event_shape)]
        z = whitened(value.reshape(*lead, d) - self.loc, self.tril) / self.scale[..., None]
        constant = (
            math.lgamma((self.df + d) / 2)
            - math.lgamma(self.df / 2)
            - d / 2 * math.log(self.df * math.pi)
        )
        wide = d * self.scale.log() + self.tril.diagonal().log().sum()
        return constant - wide - (self.df + d) / 2 * torch.log1p(z.square().sum(-1) / self.df)


def whitened(x: Tensor, tril: Tensor) -> Tensor:
    """Solutions of L z = x, (*batch, d)."""
    return torch.linalg.solve_triangular(tril, x[..., None], upper=False)[..., 0]


class FittedT:
    """A Student-t distribution fitted to draws of all parameters, and its conditionals.

    Its scale is the standard deviation of the draws: that of its own draws is 1.4 times as large.

    Arguments:
        draws: By parameter, in the order of ``shapes``, (n, *shape), on unconstrained coordinates.
        shapes: Of each parameter.

    Raises:
        TargetError: Too few draws, draws that are not finite or never change.
    """

    def __init__(self, draws: Mapping[str, Tensor], shapes: Shapes) -> None:
        x = torch.cat([draws[k].reshape(len(draws[k]), -1) for k in shapes], 1).double()
        n, d = x.shape
        if n < 2 + d:
            raise TargetError(
                f"reference: {n} draws of {d} coordinates are too few to fit to; give {2 + d} or "
                "more, or leave the reference out"
            )
        if not bool(x.isfinite().all()):
            raise TargetError("reference: some draws are NaN or infinite")
        self.loc = x.mean(0)
        covariance = torch.cov(x.T).reshape(d, d)
        if bool((covariance.diagonal() <= 0).any()):
            raise TargetError("reference: some coordinates never change among the draws")
        keep = n / (n + d)  # of the correlations: those of few draws are mostly noise
        covariance = keep * covariance + (1 - keep) * covariance.diagonal().diag()
        self.tril = torch.linalg.cholesky(covariance)
        self.shapes, self.places, start = dict(shapes), dict[str, slice](), 0
        for name, shape in shapes.items():
            self.places[name] = slice(start, start + math.prod(shape))
            start += math.prod(shape)

    def priors(self) -> dict[str, PriorSpec]:
        """The density of each parameter given those before it."""
        found: dict[str, PriorSpec] = {}
        for i, (name, shape) in enumerate(self.shapes.items()):
            if i:
                found[name] = self._given(name)
            else:
                own = self.places[name]
                one = torch.ones((), dtype=torch.float64)
                found[name] = VectorT(DEGREES, self.loc[own], self.tril[own, own], one, shape)
        return found

    def _given(self, name: str) -> Callable[[dict[str, Tensor]], Distribution]:
        own, shape = self.places[name], self.shapes[name]
        before = [k for k, place in self.places.items() if place.stop <= own.start]
        past = slice(0, own.start)

        def conditional(params: dict[str, Tensor]) -> Distribution:
            x = torch.cat([params[k].reshape(len(params[k]), -1) for k in before], 1)
            loc, tril = self.loc.to(x), self.tril.to(x)
            z = whitened(x - loc[past], tril[past, past])
            df = DEGREES + own.start
            scale = ((DEGREES + z.square().sum(-1)) / df).sqrt()
            return VectorT(df, loc[own] + z @ tril[own, past].mT, tril[own, own], scale, shape)

        return conditional


def reference_priors(shapes: Shapes, reference: Any) -> dict[str, PriorSpec]:
    """The densities of a reference by parameter, as :class:`Joint` takes it.

    Raises:
        TargetError: Other names or shapes, or a density that leaves a part of the line out.
    """
    names = list(shapes)
    if reference is None:
        t = StudentT(DEGREES, 0.0, SCALE)
        return {name: t.expand(shape) for name, shape in shapes.items()}
    if not isinstance(reference, Mapping):
        if len(names) != 1:
            raise TargetError(
                f"reference: expected a dict by parameter, {names}, of densities or of draws, got "
                f"{type(reference).__name__}"
            )
        reference = {names[0]: reference}
    if set(reference) != set(names):
        raise TargetError(f"reference: expected the parameters {names}, got {list(reference)}")
    if not names:
        return {}
    if all(isinstance(x, Distribution) or callable(x) for x in reference.values()):
        return {name: _density(name, reference[name], shapes[name]) for name in names}
    draws = {name: _draws(name, reference[name], shapes[name]) for name in names}
    if len({len(x) for x in draws.values()}) > 1:
        raise TargetError(
            f"reference: expected as many draws of each parameter, got "
            f"{ {name: len(x) for name, x in draws.items()} }"
        )
    return FittedT(draws, shapes).priors()


def _density(name: str, spec: Any, shape: tuple[int, ...]) -> PriorSpec:
    if not isinstance(spec, Distribution):
        return spec  # a function of the parameters before it
    support = support_of(spec)
    while isinstance(support, constraints.independent):
        support = support.base_constraint
    if support is not constraints.real and support is not constraints.real_vector:
        raise TargetError(
            f"reference of {name!r}: expected a density on the whole line, got "
            f"{type(spec).__name__}, whose support is {support}; a joint is a density on "
            "unconstrained coordinates (with the Jacobian inside), and what the reference leaves "
            "out would never be seen"
        )
    batch = shape[: len(shape) - len(spec.event_shape)]
    with suppress(RuntimeError, ValueError):
        spec = spec.expand(batch)
    got = tuple(spec.batch_shape + spec.event_shape)
    if got != shape:
        raise TargetError(f"reference of {name!r}: expected shape {shape}, got {got}")
    return spec


def _draws(name: str, values: Any, shape: tuple[int, ...]) -> Tensor:
    x = torch.as_tensor(np.asarray(values, dtype=float))
    lead = x.dim() - len(shape)
    if lead < 1 or tuple(x.shape[lead:]) != shape:
        raise TargetError(
            f"reference of {name!r}: expected a distribution, or draws of shape "
            f"{('n', *shape)} or {('chain', 'draw', *shape)}, got {tuple(x.shape)}"
        )
    return x.reshape(-1, *shape)
