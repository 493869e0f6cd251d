"""The chains of several shards, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..kernel.base import State
from .memories import Held
from .resumed import shard_data
from .sampling import SamplingPlan, Shard, Walk


class Team(Walk):
    """Chains of several shards between two draws, and what was counted of all of them.

    Arguments:
        plan: What they are advanced by.
        parts: The shards.
        ancestor: The independent draw that each chain descends from, shape (C,), if known.

    Attributes:
        parts: The shards.
    """

    def __init__(self, plan: SamplingPlan, parts: Sequence[Shard], ancestor: Tensor | None) -> None:
        device = plan.target.device
        super().__init__(plan, _state(parts, device), torch.Generator(device))
        self.ancestor, self.parts = ancestor, tuple(parts)
        self._count()

    def go_to(self, parts: Sequence[Shard]) -> None:
        """Be where the shards are by now."""
        self.state, self.parts = _state(parts, self.plan.target.device), tuple(parts)
        self._count()

    def _count(self) -> None:
        """Take up what the shards have counted."""
        self.tally.take_up(_summed([p.tally for p in self.parts]))
        if self.crossings is not None:
            each = [held for p in self.parts if (held := p.crossings) is not None]
            first = {k: each[0][k] for k in ("span", "steps")}
            tables = {k: torch.cat([h[k] for h in each], 1) for k in ("crossed", "stays")}
            self.crossings.take_up({**first, **tables})
        if self.visits is not None:
            steps = [held["steps"] for p in self.parts if (held := p.visits) is not None]
            self.visits.take_up({"steps": torch.cat(steps)})

    def shard(self) -> Shard:
        """All that the next draws depend on."""
        code, theta, log_joint, _ = self.state
        alone: dict[str, Any] = dict.fromkeys(("crossings", "visits", "renewals"))
        return Shard(
            code,
            theta,
            log_joint,
            memo=(),
            owner=-1,
            generator=self.generator.get_state(),
            tally={},
            remembered=(),
            parts=tuple(shard_data(p) for p in self.parts),
            **alone,
        )


def _state(parts: Sequence[Shard], device: torch.device) -> State:
    columns = zip(*((p.code, p.theta, p.log_joint) for p in parts), strict=True)
    code, theta, log_joint = (torch.cat(x).to(device) for x in columns)
    return State(code, theta, log_joint)


def _summed(tallies: Sequence[Held]) -> Held:
    """Acceptance counts of several shards, of which none met an undefined density."""
    counts: dict[str, Tensor] = {}
    for held in tallies:
        for name, rows in held["counts"].items():
            counts[name] = counts.get(name, 0) + rows
    return {"counts": counts, "undefined": tallies[0]["undefined"], "bad": None}


def numbers_of(shards: int, chains: int) -> Tensor | None:
    """The shard that each of all chains belongs to, shape (chains,); None of one shard.

    Example:
        >>> numbers_of(2, 6).tolist()
        [0, 0, 0, 1, 1, 1]
    """
    return torch.arange(shards).repeat_interleave(chains // shards) if shards > 1 else None


def told_apart(ancestors: Sequence[Tensor], common: bool) -> Tensor:
    """Starts of the chains of all shards, as numbers, so that none has one of another's by chance.

    Arguments:
        ancestors: Of each shard, shape (C,): from 0 on positions in what all shards draw from,
            below 0 those that are a shard's own.
        common: Whether shards have branched off the same chains, and share all starts.

    Example:
        >>> told_apart([torch.tensor([3, -1]), torch.tensor([3, -1])], common=False).tolist()
        [3, -1, 3, -2]
    """
    if common:
        return torch.cat(list(ancestors))
    found, used = [], 0
    for mine in ancestors:
        own = mine < 0
        values, place = mine[own].unique(return_inverse=True)
        mine = mine.clone()
        mine[own] = -1 - used - place
        found.append(mine)
        used += len(values)
    return torch.cat(found)
