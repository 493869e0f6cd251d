"""Whether what was saved is of the target that is there now."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import torch

from ..errors import CheckpointError
from ..target.target import Target

COMPARED = 5  # chains at which a target is asked whether it is the one that was sampled

ROUNDINGS = 64.0  # units of the last digit by which it may differ, of one nat and more


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
