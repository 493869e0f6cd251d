"""The parts of mixtures: maps, and normals evaluated at once."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from ..grouping import apply_by_group, on_host
from ..rng import seeded
from ..space.base import Space, check_enumerable
from .base import Bijection, Standardisable
from .reference import Gaussian, Reference

ASTRAY = 0.01  # largest error of pull after push, relative to 1 + |z|

SMALL = 40  # dimensions up to which a matrix a row may be copied: as fast as sorting by matrix

Way = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # of a bijection, either


class Parts(nn.Module, ABC):
    """Several maps to one reference, evaluated together."""

    def __init__(self, space: Space, reference: Reference, number: int) -> None:
        super().__init__()
        self.space, self.reference, self.number = space, reference, number

    @property
    def faithful(self) -> bool:
        """Whether no rounding hides where a pushed point is from."""
        return False

    @abstractmethod
    def log_prob(self, x: Tensor, code: Tensor) -> Tensor:
        """Log densities of points (C, D) under all maps, shape (C, K), nats."""

    @abstractmethod
    def pull(self, x: Tensor, pick: Tensor, code: Tensor) -> Tensor:
        """Points (C, D), each back through the map that ``pick`` (C,) names."""

    @abstractmethod
    def push(self, z: Tensor, pick: Tensor, code: Tensor) -> Tensor:
        """Reference points (C, D), each through the map that ``pick`` (C,) names."""


class Maps(Parts):
    """Any bijections that pass spare coordinates."""

    def __init__(self, maps: Sequence[Bijection]) -> None:
        super().__init__(maps[0].space, maps[0].reference, len(maps))
        self.maps = nn.ModuleList(maps)

    def _maps(self) -> list[Bijection]:
        return [m for m in self.maps if isinstance(m, Bijection)]

    def standardise(self, code: Tensor, loc: Tensor, scale: Tensor) -> None:
        for each in self._maps():
            if isinstance(each, Standardisable):
                each.standardise(code, loc, scale)

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
        rows = (v.index_select(0, order).split(sizes) for v in (x, code))
        parts = zip(ways, *rows, strict=True)
        found = [way(*rows)[0] for way, *rows in parts if len(rows[0])]
        return torch.cat(found).index_select(0, torch.argsort(order)) if found else x


class Gaussians(Parts):
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
        self.register_buffer("loc", torch.where(on, loc, 0.0))
        self.register_buffer("tril", tril)
        self.register_buffer("inverse", torch.linalg.solve_triangular(tril, eye, upper=False))
        log_det = tril.diagonal(dim1=2, dim2=3).abs().log().sum(-1)
        self.register_buffer(
            "log_norm", log_det + 0.5 * math.log(2 * math.pi) * on.sum(-1, dtype=tril.dtype)
        )

        self._made_of: tuple[Tensor, int, int] | None = None

    def _whiten(self) -> tuple[Tensor, Tensor, Tensor]:
        """All normals of each model by one product, in float64, where differences keep digits.

        Returns:
            Origins, shape (M, D), matrices, (M, D, K D), and what is added, (M, K D).
        """
        loc, tril, known = self.loc, self.tril, self._made_of
        now = loc, loc._version, tril._version
        if known is None or known[0] is not loc or known[1:] != now[1:]:
            inverse = torch.linalg.inv(tril.double())
            far = loc.norm(dim=-1) + tril.norm(dim=(-2, -1))
            lost = loc.shape[2] * inverse.norm(dim=(-2, -1)) * far  # digits, of a point once around
            self._condition = 4 * float(lost.max()) if lost.numel() else 0.0
            on = self.on[:, None]
            inverse = inverse * (on[..., None] & on[..., None, :])
            origin = loc[:, 0].double()
            shift = -(inverse @ (loc.double() - origin[:, None])[..., None])
            flat = inverse.permute(0, 3, 1, 2).flatten(2)
            self._made_of, self._tables = now, (origin, flat, shift.flatten(1))
        return self._tables

    @property
    def faithful(self) -> bool:
        if not on_host(self.loc):
            return False
        self._whiten()
        return self._condition * torch.finfo(self.loc.dtype).eps < ASTRAY

    def log_prob(self, x: Tensor, code: Tensor) -> Tensor:
        index = self.space.index(code)
        x = torch.where(self.on.index_select(0, index), x, 0.0)
        if on_host(x):  # a model at a time: no matrix is copied
            each = zip(*self._whiten(), strict=True)
            functions = [partial(self._squares, *tables) for tables in each]
            (squares,) = apply_by_group(index, functions, x, torch.zeros_like(self.loc[:, 0]))
        else:
            gap = x[:, None] - self.loc[index]
            squares = (self.inverse[index] @ gap[..., None])[..., 0].square().sum(-1)
        return -0.5 * squares - self.log_norm.index_select(0, index)

    def _squares(self, origin: Tensor, whiten: Tensor, shift: Tensor, x: Tensor) -> tuple[Tensor]:
        """Squared length under each map of a model, (n, D) -> (n, K)."""
        z = torch.addmm(shift, x.double() - origin, whiten)
        return (z.square().view(len(x), self.number, x.shape[1]).sum(-1).to(x.dtype),)

    def pull(self, x: Tensor, pick: Tensor, code: Tensor) -> Tensor:
        which = self._which(pick, code)
        return times_rows(self.inverse.flatten(0, 1), x - self._centre(which), which)

    def push(self, z: Tensor, pick: Tensor, code: Tensor) -> Tensor:
        which = self._which(pick, code)
        return self._centre(which) + times_rows(self.tril.flatten(0, 1), z, which)

    def _which(self, pick: Tensor, code: Tensor) -> Tensor:
        """Of all maps of all models, shape (C,)."""
        return self.space.index(code) * self.number + pick

    def _centre(self, which: Tensor) -> Tensor:
        return self.loc.flatten(0, 1).index_select(0, which)


class Diagonals(Parts):
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


def times_rows(table: Tensor, x: Tensor, which: Tensor) -> Tensor:
    """Each row (C, D) times its own matrix of a table (N, D, D), by ``which`` (C,)."""
    if len(table) == 1:
        return x @ table[0].mT
    if not on_host(x) or x.shape[1] <= SMALL:
        return (table.index_select(0, which) @ x[..., None])[..., 0]
    functions = [lambda rows, matrix=matrix: (rows @ matrix.mT,) for matrix in table]
    return apply_by_group(which, functions, x, torch.zeros_like(table[..., 0]))[0]


def _pick(x: Tensor, which: Tensor) -> Tensor:
    """Row by row one of K, (C, K, D) and (C,) -> (C, D)."""
    return x.gather(1, which[:, None, None].expand(-1, 1, x.shape[-1]))[:, 0]
