"""Mixtures of maps: several components, one density, still one reference."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from ..errors import ConfigurationError
from ..grouping import apply_by_group, on_host
from ..rng import seeded
from ..space import Space, check_enumerable
from .base import Bijection, Gaussian, Reference, Transport
from .cosmic import CosmicFlow
from .standard import TABLE

SMALL = 40  # dimensions up to which a matrix a row may be copied: as fast as sorting by matrix
ASTRAY = 0.01  # of a reference coordinate, by which pull may miss what was pushed
COMPONENTS = 4  # of the default map: measured as good as 8, better than 1 on several modes

Way = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # of a bijection, either


class Components(nn.Module, ABC):
    """Several maps to one reference, evaluated together."""

    def __init__(self, space: Space, reference: Reference, number: int) -> None:
        super().__init__()
        self.space, self.reference, self.number = space, reference, number

    @abstractmethod
    def log_prob(self, x: Tensor, code: Tensor) -> Tensor:
        """Log densities of points (C, D) under all maps, shape (C, K), nats."""

    @abstractmethod
    def pull(self, x: Tensor, pick: Tensor, code: Tensor) -> Tensor:
        """Points (C, D), each back through the map that ``pick`` (C,) names."""

    @abstractmethod
    def push(self, z: Tensor, pick: Tensor, code: Tensor) -> Tensor:
        """Reference points (C, D), each through the map that ``pick`` (C,) names."""


class Maps(Components):
    """Any bijections that pass spare coordinates."""

    def __init__(self, maps: Sequence[Bijection]) -> None:
        super().__init__(maps[0].space, maps[0].reference, len(maps))
        self.maps = nn.ModuleList(maps)

    def _maps(self) -> list[Bijection]:
        return [m for m in self.maps if isinstance(m, Bijection)]

    def calibrate(self, code: Tensor, loc: Tensor, scale: Tensor) -> None:
        for each in self._maps():
            each.calibrate(code, loc, scale)

    def log_prob(self, x: Tensor, code: Tensor) -> Tensor:
        active, terms = self.space.active(code), []
        for each in self._maps():
            z, ladj = each.to_reference(x, code)
            terms.append(self.reference.log_density(z, active) + ladj)
        return torch.stack(terms, 1)

    def pull(self, x: Tensor, pick: Tensor, code: Tensor) -> Tensor:
        return self._picked([m.to_reference for m in self._maps()], x, pick, code)

    def push(self, z: Tensor, pick: Tensor, code: Tensor) -> Tensor:
        return self._picked([m.from_reference for m in self._maps()], z, pick, code)

    def _picked(self, ways: Sequence[Way], x: Tensor, pick: Tensor, code: Tensor) -> Tensor:
        if not on_host(x):  # to cut the batch up would copy sizes to the host
            return _pick(torch.stack([way(x, code)[0] for way in ways], 1), pick)
        order = torch.argsort(pick, stable=True)
        sizes = torch.bincount(pick, minlength=len(ways)).tolist()
        parts = zip(ways, x[order].split(sizes), code[order].split(sizes), strict=True)
        found = [way(*rows)[0] for way, *rows in parts if len(rows[0])]
        return torch.cat(found)[torch.argsort(order)] if found else x


class Gaussians(Components):
    """K affine maps a model from tables: the components of Gaussian mixtures.

    Arguments:
        space: A bound space of few models.
        loc: Shape (M, K, D), in the order of ``space.enumerate()``.
        scale_tril: Lower factors, shape (M, K, D, D); rows and columns of spare slots are
            ignored.
    """

    loc: Tensor
    tril: Tensor
    inverse: Tensor
    log_norm: Tensor
    on: Tensor

    def __init__(self, space: Space, loc: Tensor, scale_tril: Tensor) -> None:
        super().__init__(space, Gaussian(), loc.shape[1])
        check_enumerable(space)
        on = space.active(space.enumerate())[:, None]
        tril = torch.where(on[..., None] & on[..., None, :], scale_tril.tril(), 0.0)
        tril = tril + torch.diag_embed((~on).to(tril.dtype).expand(loc.shape))
        eye = torch.eye(loc.shape[2], dtype=tril.dtype, device=tril.device).expand_as(tril)
        self.register_buffer("on", on[:, 0])
        slots = torch.arange(1, on.shape[-1] + 1, device=on.device)
        self._ends = (slots * on[:, 0]).amax(-1).tolist() if len(slots) else [0] * len(on)
        self.register_buffer("loc", torch.where(on, loc, 0.0))
        self.register_buffer("tril", tril)
        self.register_buffer("inverse", torch.linalg.solve_triangular(tril, eye, upper=False))
        log_det = tril.diagonal(dim1=2, dim2=3).abs().log().sum(-1)
        self.register_buffer(
            "log_norm", log_det + 0.5 * math.log(2 * math.pi) * on.sum(-1, dtype=tril.dtype)
        )

    def log_prob(self, x: Tensor, code: Tensor) -> Tensor:
        index = self.space.index(code)
        x = torch.where(self.on[index], x, 0.0)
        if on_host(x):  # a model at a time: no matrix is copied
            functions = [partial(self._squares, m) for m in range(len(self.on))]
            (squares,) = apply_by_group(index, functions, x, torch.zeros_like(self.loc[:, 0]))
        else:
            gap = x[:, None] - self.loc[index]
            squares = (self.inverse[index] @ gap[..., None])[..., 0].square().sum(-1)
        return -0.5 * squares - self.log_norm[index]

    def _squares(self, m: int, x: Tensor) -> tuple[Tensor]:
        """Squared length under each map of a model, spare slots zero, (n, D) -> (n, K)."""
        some = slice(self._ends[m])
        z = (x[:, some] - self.loc[m][:, None, some]) @ self.inverse[m][:, some, some].mT
        return (z.square().sum(-1).T,)

    def pull(self, x: Tensor, pick: Tensor, code: Tensor) -> Tensor:
        index = self.space.index(code)
        return self._times(self.inverse, x - self.loc[index, pick], index, pick)

    def push(self, z: Tensor, pick: Tensor, code: Tensor) -> Tensor:
        index = self.space.index(code)
        return self.loc[index, pick] + self._times(self.tril, z, index, pick)

    def _times(self, table: Tensor, x: Tensor, index: Tensor, pick: Tensor) -> Tensor:
        """Each row (C, D) times its own matrix of a table (M, K, D, D)."""
        if not on_host(x) or x.shape[1] <= SMALL:
            return (table[index, pick] @ x[..., None])[..., 0]
        functions = [
            lambda rows, matrix=matrix: (rows @ matrix.mT,) for matrix in table.flatten(0, 1)
        ]
        which = index * self.number + pick
        return apply_by_group(which, functions, x, torch.zeros_like(table[..., 0].flatten(0, 1)))[0]


class Diagonals(Components):
    """Diagonal affine maps whose shifts and log-scales are linear in the model's context.

    Arguments:
        space: A bound model space.
        reference: The reference.
        number: K maps, spread at random to begin with, or they would never learn to differ.
        seed: Of that spread.
    """

    def __init__(self, space: Space, reference: Reference, number: int, seed: int = 0) -> None:
        super().__init__(space, reference, number)
        d = space.n_slots
        with seeded(seed):
            self.net = nn.Linear(space.context_width, number * 2 * d)
        generator = torch.Generator().manual_seed(seed)
        start = torch.zeros(number, 2, d)
        start[:, 0] = torch.randn(number, d, generator=generator)
        nn.init.zeros_(self.net.weight)
        with torch.no_grad():
            self.net.bias.copy_(start.flatten())

    def _parameters_of(self, code: Tensor) -> tuple[Tensor, Tensor]:
        """Shifts and log-scales, shape (C, K, D), zero in spare slots."""
        phi = self.net(self.space.context(code)).unflatten(-1, (self.number, 2, -1))
        phi = phi * self.space.active(code)[:, None, None]
        return phi[:, :, 0], phi[:, :, 1]

    def log_prob(self, x: Tensor, code: Tensor) -> Tensor:
        shift, log_scale = self._parameters_of(code)
        z = (x[:, None] - shift) * torch.exp(-log_scale)
        return self.reference.log_density(z, self.space.active(code)[:, None]) - log_scale.sum(-1)

    def pull(self, x: Tensor, pick: Tensor, code: Tensor) -> Tensor:
        shift, log_scale = (_pick(p, pick) for p in self._parameters_of(code))
        return (x - shift) * torch.exp(-log_scale)

    def push(self, z: Tensor, pick: Tensor, code: Tensor) -> Tensor:
        shift, log_scale = (_pick(p, pick) for p in self._parameters_of(code))
        return shift + torch.exp(log_scale) * z


class Mixture(Transport):
    r"""A weighted mixture of maps, optionally seen through one outer map.

    .. math:: q(\theta | m) = \sum_c w_c(m) \, q_c(T^{-1}(\theta) | m) \, |\det dT^{-1}/d\theta|

    One more reference coordinate chooses the component: the reference is cut into intervals of
    probability w_c. A point of theta is pulled back through a component drawn in proportion to
    w_c q_c, so that (theta, choice) is a point of an enlarged space on which moves through the
    reference stay exact. A move that keeps the reference point and changes the choice leads
    from one mode to another.

    Arguments:
        components: Bijections of one space that pass spare coordinates, with one reference; or
            a :class:`Components` that evaluates them together.
        outer: A bijection T that all components share; the identity if omitted.
        log_weights: Shape (M, K) by model, or (1, K); not normalised; equal if omitted.
        sticky: Whether small moves tend to keep the component; otherwise each proposal
            draws it afresh.

    Raises:
        ConfigurationError: No component, or a map that moves spare coordinates.

    Source:
        Mixture bases: Izmailov et al. (2020), https://arxiv.org/abs/1912.13025

    Example:
        >>> from trjmcmc import problems
        >>> space = problems.sinh_arcsinh().space
        >>> flow = Mixture([CosmicFlow(space, layers=2, hidden=(8,), seed=i) for i in range(2)])
        >>> z = flow.sample_reference(5, torch.Generator().manual_seed(0), torch.float32)
        >>> theta, log_q = flow.push(z, torch.tensor([[0], [1], [0], [1], [1]]))
        >>> z.shape, theta.shape, log_q.shape
        (torch.Size([5, 3]), torch.Size([5, 2]), torch.Size([5]))
    """

    auxiliary = 1

    def __init__(
        self,
        components: Components | Sequence[Bijection],
        outer: Bijection | None = None,
        *,
        log_weights: Tensor | None = None,
        sticky: bool = True,
    ) -> None:
        if not isinstance(components, Components):
            if not components or not all(c.spares_pass for c in components):
                raise ConfigurationError("Mixture: expected components that pass spare coordinates")
            components = Maps(components)
        if outer is not None and not outer.spares_pass:
            raise ConfigurationError("Mixture: expected an outer map that passes spare coordinates")
        super().__init__(components.space, components.reference)
        self.components, self.outer = components, outer
        self.sticky = sticky
        size = self.space.size
        tables = size if size is not None and size <= TABLE else 1
        k = components.number
        table = torch.zeros(tables, k) if log_weights is None else torch.as_tensor(log_weights)
        self.log_weights = nn.Parameter(table.expand(tables, k).clone())

    def _weights(self, code: Tensor) -> Tensor:
        """Log weights of the components, shape (C, K)."""
        if len(self.log_weights) == 1:
            return self.log_weights.log_softmax(-1).expand(len(code), -1)
        return self.log_weights.log_softmax(-1)[self.space.index(code)]

    def _choice(self, z: Tensor, log_w: Tensor) -> Tensor:
        """The component that each reference point stands for, shape (C,)."""
        return (torch.special.ndtr(z[:, -1:].double()) > _edges(log_w)[:, :-1]).sum(-1)

    def log_choice(self, z: Tensor, code: Tensor) -> Tensor:
        log_w = self._weights(code)
        return log_w.gather(1, self._choice(z, log_w)[:, None])[:, 0]

    def push(self, z: Tensor, code: Tensor) -> tuple[Tensor, Tensor]:
        log_w = self._weights(code)
        pick = self._choice(z.detach(), log_w.detach())
        x = self.components.push(z[:, :-1], pick, code)
        with torch.no_grad():  # rounding may hide where the point is from
            astray = (self.components.pull(x, pick, code) - z[:, :-1]).abs()
            lost = astray > ASTRAY * (1 + z[:, :-1].abs())
        lost = (lost & self.space.active(code)).any(-1)
        log_q = (self.components.log_prob(x, code) + log_w).logsumexp(-1)
        log_q = torch.where(lost, math.inf, log_q)
        if self.outer is None:
            return x, log_q
        theta, ladj = self.outer.from_reference(x, code)
        return theta, log_q - ladj

    def _inwards(self, theta: Tensor, code: Tensor) -> tuple[Tensor, Tensor | float]:
        return (theta, 0.0) if self.outer is None else self.outer.to_reference(theta, code)

    def pull(
        self, theta: Tensor, code: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        x, ladj = self._inwards(theta, code)
        log_w = self._weights(code)
        terms = self.components.log_prob(x, code) + log_w
        u, v = torch.rand(
            2, *terms.shape, generator=generator, device=theta.device, dtype=theta.dtype
        )
        pick = (terms - torch.log(-torch.log(u))).argmax(-1)
        edges = torch.nn.functional.pad(_edges(log_w), (1, 0))
        low, high = (edges.gather(1, pick[:, None] + i)[:, 0] for i in (0, 1))
        tiny = torch.finfo(edges.dtype).eps
        place = (high - (high - low) * v[:, 0]).clamp(tiny, 1 - tiny)
        chooser = torch.special.ndtri(place).to(theta.dtype)[:, None]
        z = self.components.pull(x, pick, code)
        return torch.cat([z, chooser], -1), terms.logsumexp(-1) + ladj

    def log_prob(self, theta: Tensor, code: Tensor) -> Tensor:
        x, ladj = self._inwards(theta, code)
        terms = self.components.log_prob(x, code) + self._weights(code)
        return terms.logsumexp(-1) + ladj

    def sample_reference(self, n: int, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
        z = super().sample_reference(n, generator, dtype)
        return torch.cat([z, Gaussian().sample((n, 1), generator, dtype)], -1)

    def refresh(self, z: Tensor, rho: Tensor | float, generator: torch.Generator) -> Tensor:
        inner = self.reference.refresh(z[:, :-1], rho, generator)
        chooser = Gaussian().refresh(z[:, -1:], rho if self.sticky else 0.0, generator)
        return torch.cat([inner, chooser], -1)

    def calibrate(self, code: Tensor, loc: Tensor, scale: Tensor) -> None:
        if self.outer is not None:
            self.outer.calibrate(code, loc, scale)
        elif isinstance(self.components, Maps):
            self.components.calibrate(code, loc, scale)


def mixture_flow(
    space: Space,
    *,
    components: int = COMPONENTS,
    reference: Reference | None = None,
    seed: int = 0,
    **options: object,
) -> Transport:
    """The default map: a :class:`CosmicFlow` on a base of several diagonal normals.

    Arguments:
        space: A bound model space.
        components: Normals in the base, spread at random to begin with; 1 is the plain flow.
        reference: Standard normal if omitted.
        seed: Seed of the initial weights.
        options: Further arguments of :class:`CosmicFlow`.

    Example:
        >>> from trjmcmc import problems
        >>> flow = mixture_flow(problems.sinh_arcsinh().space, layers=2, hidden=(8,))
        >>> flow.components.number
        4
    """
    if components < 1:
        raise ConfigurationError(f"components: expected 1 or more, got {components}")
    flow = CosmicFlow(space, reference=reference, seed=seed, **options)  # type: ignore[arg-type]
    if components == 1 or not space.n_slots:
        return flow
    return Mixture(Diagonals(space, flow.reference, components, seed), flow)


def _edges(log_w: Tensor) -> Tensor:
    """Upper ends of the intervals of the components, (C, K), in float64; the last is 1."""
    edges = log_w.double().exp().cumsum(-1)
    return edges / edges[:, -1:]


def _pick(x: Tensor, which: Tensor) -> Tensor:
    """Row by row one of K, (C, K, D) and (C,) -> (C, D)."""
    return x.gather(1, which[:, None, None].expand(-1, 1, x.shape[-1]))[:, 0]
