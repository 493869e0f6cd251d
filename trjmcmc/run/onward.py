"""What a result knows of how to go on: in this process, and as data in its file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from ..checkpoint.frozen import freeze, thaw
from ..errors import CheckpointError, ConfigurationError
from ..kernel.base import Kernel
from ..result.result import Result
from .knowledge import Knowledge
from .memories import Held
from .resumed import Resumed, new_rows, shard_data, with_rows
from .same import about, check_pairs, check_target
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


def adopted(
    result: Result, known: Knowledge, made: Kernel, seed: int | None
) -> tuple[Resumed, int]:
    """The run of another sampler's result, or of one from a file, and its seed.

    Arguments:
        result: The result.
        known, made: As of :func:`~trjmcmc.run.saving.roots_of`; what is known grows by what the
            result says.
        seed: That was given to the sampler, or None.

    Raises:
        CheckpointError: It is of another target, version or seed, or its moves are not of what the
            script makes.
    """
    onward = result.onward
    held: Mapping[str, Any] | None = onward.data() if isinstance(onward, Onward) else onward
    if held is None:
        raise CheckpointError("start: the moves of that run can't be saved, so no other goes on")
    check_target("start", held, held["shard"], known.target)
    if seed is not None:
        check_pairs("start", {"seed": (held["seed"], seed)})
    remembered: tuple[Held, ...] | None = None
    if held["remembered"] is not None:
        remembered = with_rows(None, held["remembered"])
    shard = Shard(**{**held["shard"], "remembered": remembered})
    raw = result.raw
    draws = raw.code.transpose(0, 1), raw.theta.transpose(0, 1), raw.log_joint.T
    counted = int(known.spending.account.overflows) - result.report.overflows
    planned = replace(thaw(held["planned"], roots_of(known, made)), overflows=counted)
    known.hear(result.routes, result.report.audit)
    return Resumed(planned, shard, *draws, held["thin"], held["ancestor"]), held["seed"]


def check_asked(
    before: Resumed,
    result: Result,
    *,
    draws: int | None,
    chains: int | None,
    warmup: int | None,
    thin: int,
    fit: bool | str,
) -> None:
    """Refuse settings that a run which is gone on with can't have.

    Arguments:
        before: The run.
        result: Its result.
        draws, chains, warmup, thin, fit: As of :meth:`trjmcmc.TRJSampler.run`.

    Raises:
        ConfigurationError: One is not as the run has it; fewer draws than there are.
    """
    asked = {
        "chains": (chains, len(before.shard.code)),
        "warmup": (warmup or None, None),
        "thin": (None if thin == 1 else thin, before.thin),
        "fit": (True if fit is True else None, result.report.fit is not None),
    }
    for name, (now, then) in asked.items():
        if now not in (None, then):
            raise ConfigurationError(
                f"start: the result goes on with {name}={then}, not {now}: leave {name} out; "
                "start=result.raw.second_half(10_000, 'cpu') starts new chains at its points"
            )
    if draws is not None and draws <= len(before.code):
        raise ConfigurationError(
            f"start: the result has {len(before.code)} draws a chain, and draws={draws} counts "
            "these: ask for more"
        )


def _bytes(found: Any) -> int:
    if isinstance(found, Tensor):
        return found.numel() * found.element_size()
    if isinstance(found, Mapping):
        return sum(_bytes(x) for x in found.values())
    if isinstance(found, list | tuple):
        return sum(_bytes(x) for x in found)
    return 0
