"""The affine-invariant stretch move between chains of one model."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from ...errors import ConfigurationError
from ...target.target import Target
from ...transport.base import Transport
from ..base import Info, Kernel, Memo, State, accept
from .frame import Frame


class Stretch(Kernel):
    """Affine-invariant moves along lines through other chains in the same model.

    Each chain of one half of the batch moves on the line through a random chain of the other
    half that is in the same model, then the halves change places. No gradient and no scale is
    needed; it wants more chains in a model than the model has parameters, since alone it never
    leaves the flat that they span. A chain without a fellow in its model stays.

    Arguments:
        target: The target.
        transport: The map in whose reference space it moves; None for plain coordinates.
        stretch: Largest factor a of the stretch, above 1.
        name: Shown in tables.

    Raises:
        ConfigurationError: ``stretch`` is not above 1; in a step, fewer than two chains.

    Source:
        Goodman & Weare (2010), https://doi.org/10.2140/camcos.2010.5.65; in halves:
        Foreman-Mackey et al. (2013), https://arxiv.org/abs/1202.3665

    Example:
        >>> from trjmcmc import problems
        >>> from trjmcmc.kernel import start
        >>> target = problems.robust_regression()
        >>> theta = torch.randn(8, 4, generator=torch.Generator().manual_seed(1))
        >>> state = start(target, torch.zeros(8, 2, dtype=torch.long), theta)
        >>> state, infos = Stretch(target).step(state, torch.Generator().manual_seed(0))
        >>> [len(info.accepted) for info in infos]
        [4, 4]
    """

    within = True

    def __init__(
        self,
        target: Target,
        transport: Transport | None = None,
        *,
        stretch: float = 2.0,
        name: str = "stretch",
    ) -> None:
        if not stretch > 1:
            raise ConfigurationError(f"stretch: expected a factor above 1, got {stretch}")
        self.frame, self.stretch, self.name = Frame(target, transport), stretch, name

    def step(self, state: State, generator: torch.Generator) -> tuple[State, list[Info]]:
        chains = len(state.code)
        if chains < 2:
            raise ConfigurationError("Stretch: it needs two chains at least; use RandomWalk")
        state, x, log_density = self.frame.here(state, generator)
        key, middle = _key(state.code), chains // 2
        halves = [slice(0, middle), slice(middle, chains)]
        parts = [(_rows(state, h), x[h], log_density[h], key[h]) for h in halves]
        infos: list[Info] = []
        for moving, resting in ((0, 1), (1, 0)):
            _, others, _, their_key = parts[resting]
            after, info, moved = self._move(*parts[moving], others, their_key, generator)
            parts[moving] = (after, moved, *parts[moving][2:])
            infos += info
        return _joined(parts[0][0], parts[1][0]), infos

    def _move(
        self,
        state: State,
        x: Tensor,
        log_density: Tensor,
        key: Tensor,
        others: Tensor,
        their_key: Tensor,
        generator: torch.Generator,
    ) -> tuple[State, list[Info], Tensor]:
        """Move one half along lines through chains of the other."""
        u, v = torch.rand(2, len(x), generator=generator, device=x.device, dtype=x.dtype)
        order = their_key.argsort()
        ranked = their_key[order]
        low = torch.searchsorted(ranked, key)
        fellows = torch.searchsorted(ranked, key, right=True) - low
        pick = low + (v * fellows).long().minimum(fellows - 1)
        anchor = others[order[pick.clamp(0, len(order) - 1)]]
        a = self.stretch
        factor = (1 + u * (a - 1)).square() / a  # density proportional to 1 / sqrt(factor)
        active = self.frame.active(state.code)
        to = torch.where(active, anchor + factor[:, None] * (x - anchor), 0.0)
        alone = fellows == 0
        to = torch.where(alone[:, None], x, to)
        proposed, there = self.frame.there(state, to)
        log_ratio = there - log_density + (active.sum(-1) - 1).clamp(min=0) * factor.log()
        log_ratio = torch.where(alone, -math.inf, log_ratio)
        after, info = accept(self.name, state, proposed, log_ratio, generator)
        return after, info, torch.where(info[0].accepted[:, None], to, x)


def _key(code: Tensor) -> Tensor:
    """A number for each model, (C, L) -> (C,). Two models with one number would do no harm."""
    return (code * _odd(code.shape[1], code.device)).sum(-1)


@lru_cache(maxsize=16)
def _odd(n: int, device: torch.device) -> Tensor:
    """Random odd numbers, (n,)."""
    generator = torch.Generator().manual_seed(0)
    return (2 * torch.randint(2**61, (n,), generator=generator) + 1).to(device)


def _rows(state: State, rows: slice) -> State:
    memo = None if state.memo is None else state.memo.rows(rows)
    return State(state.code[rows], state.theta[rows], state.log_joint[rows], memo)


def _joined(a: State, b: State) -> State:
    memo = None
    if a.memo is not None and b.memo is not None:
        values = zip(a.memo.values, b.memo.values, strict=True)
        memo = Memo(a.memo.owner, tuple(torch.cat(pair) for pair in values))
    code, theta, log_joint = (torch.cat([p, q]) for p, q in zip(a[:3], b[:3], strict=True))
    return State(code, theta, log_joint, memo)
