"""What a result knows of how to go on: in this process, and as data in its file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ..checkpoint.frozen import Roots, freeze, thaw
from ..errors import CheckpointError, ConfigurationError
from ..kernel.base import Kernel
from ..result.result import Result
from ..target.target import Target
from .knowledge import Knowledge
from .memories import Held
from .resumed import Resumed, new_rows, shard_data, with_rows
from .same import about, check_target
from .sampling import Shard
from .saving import roots_of
from .weighing import fingerprint

MOST_REMEMBERED = 2**22  # bytes of what maps remember that a file is given


class Onward:
    """A run that has ended, between two draws.

    Arguments:
        known, made: As of :func:`~trjmcmc.run.saving.roots_of`.
        resumed: The run.
        seed: The sampler's.

    Attributes:
        resumed: As above.
    """

    def __init__(self, known: Knowledge, made: Kernel, resumed: Resumed, seed: int) -> None:
        self.resumed, self._known, self._made, self._seed = resumed, known, made, seed
        self._map = fingerprint(known.transport)

    def is_of(self, known: Knowledge) -> bool:
        """Whether it is a run of this sampler."""
        return self._known is known

    def check(self, name: str) -> Resumed:
        """The run, refused where its moves are no longer what they were.

        Raises:
            ConfigurationError: The map was trained since.
        """
        if fingerprint(self._known.transport) != self._map:
            raise ConfigurationError(
                f"{name}: the map was trained since that run, so its moves are others by now; "
                "run(...) begins anew with what was learnt"
            )
        return self.resumed

    def data(self) -> Mapping[str, Any] | None:
        """Plain data, without the draws; None where the moves can't be saved, or are others."""
        before, known = self.resumed, self._known
        try:
            self.check("save")
            planned = freeze(before.planned, roots_of(known, self._made))
        except (CheckpointError, ConfigurationError):
            return None
        rows = new_rows(before.shard.remembered or (), None)
        return {
            "planned": planned,
            "shard": shard_data(before.shard),
            "remembered": rows if _bytes(rows) <= MOST_REMEMBERED else None,
            "thin": before.thin,
            "ancestor": before.ancestor,
            "seed": self._seed,
            **about(known.target),
        }


def check_belongs(result: Result, target: Target) -> Mapping[str, Any]:
    """What a result knows of how to go on, refused if it is of another target or version.

    Raises:
        CheckpointError: What differs is named.
    """
    held = result.onward
    found: Mapping[str, Any] | None = held.data() if isinstance(held, Onward) else held
    if found is None:
        raise CheckpointError(
            "start: the moves of that run can't be saved, so none goes on by them"
        )
    check_target("start", found, found["shard"], target)
    return found


def taken_on(held: Mapping[str, Any], result: Result, roots: Roots) -> Resumed:
    """The run that a result is of, between two draws.

    Arguments:
        held: Of :func:`check_belongs`.
        result: The result.
        roots: What the script makes again.

    Raises:
        CheckpointError: Its moves are not of what the script makes.
    """
    remembered: tuple[Held, ...] | None = None
    if held["remembered"] is not None:
        remembered = with_rows(None, held["remembered"])
    shard = Shard(**{**held["shard"], "remembered": remembered})
    raw = result.raw
    code, theta = raw.code.transpose(0, 1), raw.theta.transpose(0, 1)
    planned = thaw(held["planned"], roots)
    return Resumed(planned, shard, code, theta, raw.log_joint.T, held["thin"], held["ancestor"])


def _bytes(found: Any) -> int:
    if isinstance(found, Tensor):
        return found.numel() * found.element_size()
    if isinstance(found, Mapping):
        return sum(_bytes(x) for x in found.values())
    if isinstance(found, list | tuple):
        return sum(_bytes(x) for x in found)
    return 0
