"""What a run goes on from: of an earlier call, or from a folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..draws import Recorder
from ..kernel.base import Kernel
from ..pilot.lost import Screening
from ..result.report import Plan
from .memories import Held
from .precision import Numbers
from .sampling import SamplingPlan, Shard, Walk
from .segment import Segment


@dataclass(frozen=True)
class Planned:
    """What is settled once a run samples.

    Attributes:
        kernel: Frozen.
        crosses, visits: As of :class:`~trjmcmc.run.sampling.SamplingPlan`.
        plan: What was measured and chosen, for the report.
        chosen: What was measured of the kernel, or None.
        numbers: What rounding does.
        said: What searches for lost modes have found.
        overflows: Overflows before sampling.
    """

    kernel: Kernel
    crosses: bool
    visits: bool
    plan: Plan
    chosen: Segment | None
    numbers: Numbers
    said: tuple[Screening, ...]
    overflows: int


@dataclass(frozen=True)
class Resumed:
    """A run between two draws.

    Attributes:
        planned: What is settled.
        shard: The chains, and all that the next draw depends on.
        code, theta, log_joint: Draws so far, shapes (draw, chain, ...).
        thin: Steps a kept draw.
        ancestor: The independent draw that each chain descends from by now, shape (chain,).
        stop: What the stopping rule knew; empty to look anew.
    """

    planned: Planned
    shard: Shard
    code: Tensor
    theta: Tensor
    log_joint: Tensor
    thin: int
    ancestor: Tensor | None
    stop: Mapping[str, Any] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, Any]:
        """Those of the run, as of :meth:`trjmcmc.TRJSampler.run`, without a warm-up."""
        fit = "auto" if self.planned.plan.automatic else False
        return {"chains": len(self.shard.code), "warmup": 0, "thin": self.thin, "fit": fit}

    def walk(self, plan: SamplingPlan, generator: Any) -> Walk:
        """The chains, with what was counted of them; the generator is set to where it was."""
        return Walk.of(plan, self.shard, generator)

    def recorder(self, draws: int | None) -> Recorder:
        """The record, with room for more draws."""
        most = None if draws is None else max(draws, len(self.code))
        first = self.shard
        found = Recorder(most, first.code, first.theta, self.thin, self.ancestor)
        found.take_up(self.code, self.theta, self.log_joint)
        return found


def shard_data(shard: Shard) -> Held:
    """A shard as plain data; what maps remember is left to :func:`new_rows`."""
    return shard._replace(remembered=None)._asdict()


def new_rows(now: tuple[Held, ...], before: tuple[Held, ...] | None) -> list[Held]:
    """What maps have found since, as plain data; all where they had forgotten what they knew.

    Arguments:
        now, before: What they remembered, as of :class:`~trjmcmc.run.memories.Memories`.
    """
    found: list[Held] = []
    for place, held in enumerate(now):
        if "keys" not in held:
            found.append(dict(held))
            continue
        old = None if before is None else before[place]
        same = old is not None and old["emptied"] == held["emptied"]
        first = len(old["keys"]) if same and old is not None else 0
        values = tuple(v[first:].clone() for v in held["values"])
        new = {"from": first, "keys": held["keys"][first:].clone(), "values": values}
        found.append({**new, "emptied": held["emptied"]})
    return found


def with_rows(before: tuple[Held, ...] | None, rows: list[Held]) -> tuple[Held, ...]:
    """What maps remember once rows have been added; see :func:`new_rows`."""
    found: list[Held] = []
    for place, new in enumerate(rows):
        if "keys" not in new:
            found.append(new)
        elif not new["from"] or before is None:
            found.append({k: new[k] for k in ("keys", "values", "emptied")})
        else:
            old = before[place]
            values = [torch.cat([v, w]) for v, w in zip(old["values"], new["values"], strict=True)]
            keys = torch.cat([old["keys"], new["keys"]])
            found.append({"keys": keys, "values": tuple(values), "emptied": new["emptied"]})
    return tuple(found)
