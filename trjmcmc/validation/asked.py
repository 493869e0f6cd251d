"""What the checks of a validation have found, and what they looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..doubts.doubt import EVERY, Doubt
from ..errors import TRJError

WRONG = 1e-3  # chance that any test of calibration at all speaks against a right model

DOUBTFUL = 0.02  # the same of a doubt


class Skipped(TRJError):
    """A check that can't be made, and why."""


@dataclass
class Asked:
    """What checks were made, and what they found.

    Attributes:
        doubts: What speaks against the model, each of the kind of its check; what is wrong is
            grave, what may be wrong, or costs time, is mild.
        made: Names of the checks, one each time that it was made.
        skipped: Names of those that could not be made, and why.
    """

    doubts: list[Doubt] = field(default_factory=list)
    made: list[str] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)

    def ask(
        self,
        check: str,
        function: Callable[..., Sequence[Doubt] | None],
        *given: Any,
        failing: str = "",
    ) -> None:
        """Make a check.

        Arguments:
            check: Its name.
            function: What it finds; None where there is nothing to look at.
            given: To the function.
            failing: What is wrong where the model fails meanwhile; if omitted, a check that can't
                be made.
        """
        try:
            found = function(*given)
        except TRJError as error:
            if isinstance(error, Skipped) or not failing:
                self.skipped.append((check, str(error)))
            else:
                self.doubts.append(Doubt(EVERY, f"{failing}: {error}", kind=check))
            return
        if found is not None:
            self.made.append(check)
            self.doubts += [replace(d, kind=check) for d in found]


def by_chance(subject: str, words: str, p_value: float, wrong: float = WRONG) -> list[Doubt]:
    """The doubt that a p-value raises, all tests of its kind counted in it already."""
    if not p_value < DOUBTFUL:
        return []
    return [Doubt(subject, f"{words} (p = {p_value:.1g})", grave=p_value < wrong)]
