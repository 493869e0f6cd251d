"""Split one entry of a model's vectors in two, or merge two neighbours."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ...errors import ConfigurationError
from ...target.target import Target
from ..base import Info, Kernel, State, accept

Layout = dict[str, tuple[slice, str, int]]


class _Vector(NamedTuple):
    """A parameter whose length differs from model to model."""

    slots: slice  # of the longest
    simplex: bool


class SplitMerge(Kernel):
    r"""Between models whose vectors differ by one entry: layers, segments, change points.

    A split draws a position j, a share u ~ U(0, 1) and for each vector of numbers a contrast
    delta from the logistic distribution. The entry s_j of a simplex becomes u s_j, (1 - u) s_j;
    the entry x_j of other vectors, in unconstrained coordinates, becomes x_j - (1 - u) delta,
    x_j + u delta, so that its mean weighted by the shares is kept. The other entries stay as
    they are. A merge is the way back. For a step function with Dirichlet spacings and positive
    heights these are Green's birth and death of a change point.

    Arguments:
        target: A list of models, some of which have the same parameters with all vectors that
            differ one entry longer; see :meth:`fits`.
        name: Shown in tables.

    Raises:
        ConfigurationError: No two models are related so.

    Source:
        Green (1995), https://doi.org/10.1093/biomet/82.4.711, section 4.3

    Example:
        >>> from trjmcmc import problems
        >>> from trjmcmc.kernel import start
        >>> target = problems.coal_mining(1, 3)
        >>> code = torch.tensor([[0], [1], [2]])
        >>> theta = target.sample_prior(code, torch.Generator().manual_seed(0))
        >>> state = start(target, code, theta)
        >>> state, (info,) = SplitMerge(target).step(state, torch.Generator().manual_seed(0))
        >>> info.kernel, SplitMerge.fits(problems.robust_regression())
        ('split-merge', False)
    """

    between = True

    def __init__(self, target: Target, *, name: str = "split-merge") -> None:
        pairs = _pairs(target)
        if not pairs:
            raise ConfigurationError(
                "SplitMerge: no model of this target has the vectors of another with one entry "
                "more; use BirthDeath"
            )
        self.target, self.name = target, name
        layouts, device = _layouts(target), target.device
        names = _grown(layouts, pairs[0])
        self._up = torch.full((len(layouts),), -1, device=device)
        self._down = torch.full((len(layouts),), -1, device=device)
        self._length = torch.ones(len(layouts), dtype=torch.long, device=device)
        for small, large in pairs:
            self._up[small], self._down[large] = large, small
            for model in (small, large):
                self._length[model] = layouts[model][names[0]][2]
        self._vectors = []
        for name in names:
            slots, kind, _ = max((layouts[large][name] for _, large in pairs), key=lambda p: p[2])
            self._vectors.append(_Vector(slots, kind == "simplex"))
        self._vectors.sort(key=lambda v: not v.simplex)

    @staticmethod
    def fits(target: Target) -> bool:
        """Whether some model has the vectors of another with one entry more."""
        return bool(_pairs(target))

    def step(self, state: State, generator: torch.Generator) -> tuple[State, list[Info]]:
        old = state.code[:, 0]
        c, device, dtype = len(old), state.theta.device, state.theta.dtype
        u = torch.rand(3 + len(self._vectors), c, generator=generator, device=device, dtype=dtype)
        tiny = torch.finfo(dtype).eps
        up = u[0] < 0.5
        to = torch.where(up, self._up[old], self._down[old])
        possible = to >= 0
        to = torch.where(possible, to, old)
        n = torch.where(up, self._length[old], self._length[to])  # entries of the smaller model
        j = (u[1] * n).long().minimum(n - 1)
        simplex = self._vectors[0].simplex
        share = u[2].clamp(tiny, 1 - tiny) if simplex else torch.full_like(u[2], 0.5)
        theta, log_ratio = state.theta.clone(), state.log_joint.new_zeros(c)
        for v, vector in enumerate(self._vectors):
            x = state.theta[:, vector.slots]
            if vector.simplex:
                s, log_det = _stick(x, self._length[old])
                split, merged = _insert(s, j), _remove(s, j)
                whole = _at(s, j)
                split = _put(_put(split, j, share * whole), j + 1, (1 - share) * whole)
                left, right = _at(s, j), _at(s, j + 1)
                share = torch.where(up, share, left / (left + right).clamp(min=tiny))
                merged = _put(merged, j, left + right)
                new, new_log_det = _unstick(
                    torch.where(up[:, None], split, merged), self._length[to]
                )
                log_ratio = log_ratio + log_det - new_log_det
                log_ratio = log_ratio + torch.where(up, whole.log(), -(left + right).log())
            else:
                p = u[3 + v].clamp(tiny, 1 - tiny)
                middle = _at(x, j)
                left, right = middle, _at(x, j + 1)
                contrast = torch.where(up, p.logit(), right - left)
                split = _put(_insert(x, j), j, middle - (1 - share) * contrast)
                split = _put(split, j + 1, middle + share * contrast)
                merged = _put(_remove(x, j), j, share * left + (1 - share) * right)
                new = torch.where(up[:, None], split, merged)
                log_density = -contrast.abs() - 2 * torch.log1p(torch.exp(-contrast.abs()))
                log_ratio = log_ratio + torch.where(up, -log_density, log_density)
            theta[:, vector.slots] = new
        usable = possible & theta.isfinite().all(-1)
        code = to[:, None]
        theta = torch.where(self.target.space.active(code) & usable[:, None], theta, 0.0)
        log_joint = self.target.log_joint(code, theta)
        ratio = torch.where(usable, log_ratio + log_joint - state.log_joint, -math.inf)
        return accept(self.name, state, State(code, theta, log_joint), ratio, generator)


def _layouts(target: Target) -> list[Layout]:
    return [target.layout(code) for code in target.space.enumerate()]


def _pairs(target: Target) -> list[tuple[int, int]]:
    """Models (small, large) of which the larger has each differing vector one entry longer.

    Each model has one larger and one smaller partner at most.
    """
    if target.space.has_items:
        return []
    layouts = _layouts(target)
    found: list[tuple[int, int]] = []
    for small, a in enumerate(layouts):
        for large, b in enumerate(layouts):
            if a.keys() != b.keys() or not a:
                continue
            differing = [name for name in a if a[name] != b[name]]
            lengths = {(a[name][2], b[name][2]) for name in differing}
            kinds = [(a[name][1], b[name][1]) for name in differing]
            if len(lengths) != 1 or any(k not in _SPLIT for k in kinds):
                continue
            (pair,) = lengths
            taken = any(small == s or large == t for s, t in found)
            if found:  # all pairs must grow the same vectors, of the same kinds
                first = _grown(layouts, found[0])
                taken |= differing != first or any(
                    a[name][1] != layouts[found[0][0]][name][1] for name in first
                )
            if pair[1] == pair[0] + 1 and not taken and kinds.count(_SPLIT[0]) <= 1:
                found.append((small, large))
    return found


_SPLIT = [("simplex", "simplex"), ("entries", "entries")]


def _grown(layouts: list[Layout], pair: tuple[int, int]) -> list[str]:
    """Parameters whose length differs between two models."""
    small, large = pair
    return [n for n in layouts[small] if layouts[small][n] != layouts[large][n]]


def _at(x: Tensor, j: Tensor) -> Tensor:
    return x.gather(1, j.clamp(max=x.shape[1] - 1)[:, None])[:, 0]


def _put(x: Tensor, j: Tensor, value: Tensor) -> Tensor:
    return x.scatter(1, j.clamp(max=x.shape[1] - 1)[:, None], value[:, None])


def _insert(x: Tensor, j: Tensor) -> Tensor:
    """Entries after j moved up by one."""
    i = torch.arange(x.shape[1], device=x.device)
    return x.gather(1, torch.where(i <= j[:, None], i, i - 1).clamp(min=0))


def _remove(x: Tensor, j: Tensor) -> Tensor:
    """Entries after j + 1 moved down by one."""
    i = torch.arange(x.shape[1], device=x.device)
    return x.gather(1, torch.where(i <= j[:, None], i, i + 1).clamp(max=x.shape[1] - 1))


def _stick(x: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
    """Simplex vectors of n entries by torch's stick-breaking, padded with zeros.

    Arguments:
        x: Unconstrained slots, shape (C, N - 1).
        n: Entries of each row's vector, shape (C,).

    Returns:
        Shape (C, N), and log|det ds/dx|, shape (C,).
    """
    i = torch.arange(x.shape[1], device=x.device)
    used = i < n[:, None] - 1
    shifted = x - (n[:, None] - 1.0 - i).clamp(min=1).log()
    log_z = torch.where(used, torch.nn.functional.logsigmoid(shifted), 0.0)
    log_rest = torch.where(used, torch.nn.functional.logsigmoid(-shifted), 0.0)
    before = torch.nn.functional.pad(log_rest.cumsum(1), (1, 0))
    s = torch.where(used, (log_z + before[:, :-1]).exp(), 0.0)
    s = torch.nn.functional.pad(s, (0, 1))
    s = _put(s, n - 1, before[:, -1].exp())
    log_det = torch.where(used, log_z + log_rest + before[:, :-1], 0.0).sum(1)
    return s, log_det


def _unstick(s: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
    """The inverse of :func:`_stick`, and the same log-determinant."""
    i = torch.arange(s.shape[1] - 1, device=s.device)
    used = i < n[:, None] - 1
    # what is left before each entry, summed from the far end so that nothing cancels
    live = torch.arange(s.shape[1], device=s.device) < n[:, None]
    left = torch.where(live, s, 0.0).flip(1).cumsum(1).flip(1)
    x = s[:, :-1].log() - left[:, 1:].log() + (n[:, None] - 1.0 - i).clamp(min=1).log()
    x = torch.where(used, x, 0.0)
    return x, _stick(x, n)[1]
