"""Where a run in rounds is between two steps: plain data, of which its moves are made again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor

from ..draws import Pool
from ..kernel.base import State
from .recipes.base import Known
from .shard_work import moved

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Lesson:
    """What moves are made of: the same steps from here make the same moves again.

    Attributes:
        known: What was known before.
        state: Where chains were.
        generator: State of the generator then.
        steps: Of the next round.
        seen: Draws to learn from; None where moves have not been measured.
        learned: Lessons before.
        worth: Of moves that were measured.
        unresolved: What numbers do not resolve, in words; empty if they will do.
    """

    known: Known
    state: State
    generator: Tensor
    steps: int
    seen: Pool | None = None
    learned: int = 0
    worth: Mapping[str, float] = field(default_factory=dict)
    unresolved: str = ""

    def data(self) -> dict[str, Any]:
        """Plain data and tensors."""
        known = {**self.known._asdict(), "draws": _columns(self.known.draws)}
        seen = None if self.seen is None else _columns(self.seen)
        more = {"known": known, "state": tuple(self.state[:3]), "seen": seen}
        found: dict[str, Any] = moved({**vars(self), **more, "worth": dict(self.worth)}, CPU)
        return found

    @classmethod
    def of(cls, data: Mapping[str, Any], device: torch.device) -> Lesson:
        """A lesson out of plain data."""
        there = moved({f.name: data[f.name] for f in fields(cls)}, device)
        known, seen = there["known"], there["seen"]
        known |= {name: tuple(known[name]) for name in ("families", "proposed", "climbs", "needed")}
        there["known"] = Known(**{**known, "draws": Pool(*known["draws"])})
        there["state"] = State(*there["state"])
        there["seen"] = None if seen is None else Pool(*seen)
        return cls(**{**there, "generator": data["generator"]})


@dataclass(frozen=True)
class Position:
    """A run between two steps: all that the next one depends on, but for the record.

    Attributes:
        lesson: What its moves are made of.
        climbs, needed, searched: What searches have done since, as of
            :class:`~trjmcmc.run.recipes.base.Known`.
        code, theta, log_joint: Where chains are, on the CPU.
        moves: Names of the parts of the kernel.
        memo, owner: What the last of them knew of that place, and which part of it.
        generator: State of the generator; in shards a row each, that of the run first.
        recorded, thin, steps: Draws of each chain since moves were learned, steps between them,
            and steps.
        overflows: Of these steps.
        ahead: Steps of this round that are left.
        evaluations, counted: Of the run until now, and until this round began.
        why: Why the target is in float64 though nobody asked for it, in words, or nothing.
    """

    lesson: Lesson
    climbs: tuple[int, ...]
    needed: tuple[int, ...]
    searched: int
    code: Tensor
    theta: Tensor
    log_joint: Tensor
    moves: tuple[str, ...]
    memo: tuple[Tensor, ...]
    owner: int
    generator: Tensor
    recorded: int
    thin: int
    steps: int
    overflows: int
    ahead: int
    evaluations: int
    counted: int
    why: str

    def data(self) -> dict[str, Any]:
        """Plain data and tensors, without the lesson."""
        found: dict[str, Any] = moved({**vars(self), "lesson": None}, CPU)
        del found["lesson"]
        return found

    @classmethod
    def of(
        cls, data: Mapping[str, Any], lesson: Mapping[str, Any], device: torch.device
    ) -> Position:
        """A position out of plain data."""
        words = {name: tuple(data[name]) for name in ("climbs", "needed", "moves", "memo")}
        return cls(**{**data, **words}, lesson=Lesson.of(lesson, device))


def _columns(draws: Pool) -> tuple[Tensor, ...]:
    return draws.code, draws.theta, draws.log_joint
