"""Where a run in rounds is between two steps: plain data, of which its moves are made again."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from ..draws import Pool
from ..errors import CheckpointError
from ..kernel.base import Kernel, Memo, State
from ..space.base import Space
from ..target.target import Target
from .numbers import Unresolved
from .recipes.base import Known
from .tasks import moved

CPU = torch.device("cpu")

COMPARED = 5  # chains at which a target is asked whether it is the one that was sampled

ROUNDINGS = 64.0  # units of the last digit by which it may differ, of one nat and more


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
        unresolved: What numbers do not resolve.
    """

    known: Known
    state: State
    generator: Tensor
    steps: int
    seen: Pool | None = None
    learned: int = 0
    worth: Mapping[str, float] = field(default_factory=dict)
    unresolved: Unresolved = field(default_factory=Unresolved)

    def data(self) -> dict[str, Any]:
        """Plain data and tensors."""
        known = {**self.known._asdict(), "draws": _columns(self.known.draws)}
        seen = None if self.seen is None else _columns(self.seen)
        more: dict[str, Any] = {"known": known, "state": tuple(self.state[:3]), "seen": seen}
        more["unresolved"] = tuple(self.unresolved)
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
        there["unresolved"] = Unresolved(*there["unresolved"])
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


def inside(root: object) -> Iterator[object]:
    """Objects of the package that a kernel is made of, each once, always in the same order.

    A copy that was read from a file gives its objects in the same order, so that a place in it
    names one. Targets and spaces are left out, and what other packages made.
    """
    seen: set[int] = set()
    ahead = [root]
    while ahead:
        it = ahead.pop()
        if isinstance(it, Target | Space | Tensor | str | int | float) or id(it) in seen:
            continue
        seen.add(id(it))
        if isinstance(it, MethodType):
            ahead.append(it.__self__)
        elif isinstance(it, partial):
            ahead += [it.func, *it.args, *it.keywords.values()][::-1]
        elif isinstance(it, dict):
            ahead += list(it.values())[::-1]
        elif isinstance(it, list | tuple):
            ahead += list(it)[::-1]
        elif isinstance(it, Kernel | nn.Module) or type(it).__module__.startswith("trjmcmc."):
            yield it
            ahead += list(getattr(it, "__dict__", {}).values())[::-1]


def place_of(memo: Memo | None, kernel: Kernel, target: Target) -> int:
    """Which of the target and the parts of a kernel owns a memo; -1: none."""
    if memo is None:
        return -1
    owners = [target, *inside(kernel)]
    return next((i for i, x in enumerate(owners) if x is memo.owner), -1)


def memo_of(place: int, values: tuple[Tensor, ...], kernel: Kernel, target: Target) -> Memo | None:
    """The memo of one of these owners."""
    return None if place < 0 else Memo([target, *inside(kernel)][place], values)


def about(target: Target) -> dict[str, Any]:
    """What is compared of a target, and the versions, as plain data."""
    return {
        "space": target.space.spec(),
        "slot_names": list(target.slot_names),
        "turns": dict(target.turns),
        "versions": {"trjmcmc": version(), "torch": str(torch.__version__)},
        "dtype": str(target.dtype),
        "device": target.device.type,
    }


def check_target(
    where: object, saved: Mapping[str, Any], chains: Mapping[str, Any] | None, target: Target
) -> None:
    """Refuse another target, version or device.

    Arguments:
        where: Names what was saved in words.
        saved: What it says of itself, as of :func:`about`.
        chains: Where its chains were, by ``code``, ``theta`` and ``log_joint``, if they had begun.
        target: The target.

    Raises:
        CheckpointError: What differs is named.
    """
    now = about(target)
    pairs = {
        "device": (saved["device"], now["device"]),
        "dtype": (saved["dtype"], now["dtype"]),
        "space of models": (str(saved["space"]), str(now["space"])),
        "coordinates": (saved["slot_names"], now["slot_names"]),
        "version of trjmcmc": (saved["versions"]["trjmcmc"], now["versions"]["trjmcmc"]),
        "version of torch": (_major(saved["versions"]["torch"]), _major(now["versions"]["torch"])),
    }
    check_pairs(where, pairs)
    if chains is None:
        return
    code, theta = chains["code"][:COMPARED], chains["theta"][:COMPARED]
    with torch.no_grad():
        there = target.log_joint(code.to(target.device), theta.to(target.device)).cpu()
    here = chains["log_joint"][:COMPARED].cpu()
    gap = (there - here).abs() / (1 + here.abs())
    if not bool((gap <= ROUNDINGS * torch.finfo(here.dtype).eps).all()):
        worst = int(gap.argmax())
        raise CheckpointError(
            f"{where}: the run there has other priors, data or likelihoods: the log joint of "
            f"one of its chains was {float(here[worst]):.8g} and is {float(there[worst]):.8g}"
        )


def check_pairs(where: object, pairs: Mapping[str, tuple[Any, Any]]) -> None:
    """Refuse what differs, of pairs of what was and what is, by name.

    Raises:
        CheckpointError: Some do.
    """
    for what, (before, after) in pairs.items():
        if before != after:
            raise CheckpointError(
                f"{where}: the run there has another {what}: {_short(before)}, not "
                f"{_short(after)}. Ask for the same, or give this run a folder of its own."
            )


def version() -> str:
    """Of this package."""
    return str(sys.modules[__name__.partition(".")[0]].__version__)


def _major(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _short(x: object) -> str:
    words = str(x)
    return words if len(words) < 80 else words[:77] + "..."
