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
        known = {
            k: v.cpu() if isinstance(v, Tensor) else v for k, v in self.known._asdict().items()
        }
        known["draws"] = _columns(self.known.draws)
        for name in ("families", "proposed"):
            known[name] = tuple(x.cpu() for x in known[name])
        seen = None if self.seen is None else _columns(self.seen)
        state = tuple(x.cpu() for x in self.state[:3])
        more = {"known": known, "state": state, "seen": seen, "worth": dict(self.worth)}
        return {**vars(self), **more}

    @classmethod
    def of(cls, data: Mapping[str, Any], device: torch.device) -> Lesson:
        """A lesson out of plain data."""
        known, seen = data["known"], data["seen"]
        there: dict[str, Any] = {
            k: v.to(device) if isinstance(v, Tensor) else v for k, v in known.items()
        }
        there["draws"] = Pool(*(x.to(device) for x in known["draws"]))
        for name in ("families", "proposed"):
            there[name] = tuple(x.to(device) for x in known[name])
        there |= {name: tuple(known[name]) for name in ("climbs", "needed")}
        more: dict[str, Any] = {
            "known": Known(**there),
            "state": State(*(x.to(device) for x in data["state"])),
            "seen": None if seen is None else Pool(*(x.to(device) for x in seen)),
        }
        own: dict[str, Any] = {f.name: {**data, **more}[f.name] for f in fields(cls)}
        return cls(**own)


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
        memo = tuple(x.cpu() for x in self.memo)
        found = {**vars(self), "memo": memo}
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
    return tuple(x.cpu() for x in (draws.code, draws.theta, draws.log_joint))
