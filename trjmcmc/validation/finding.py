"""What one check of a model has found, in words."""

from __future__ import annotations

import math
from dataclasses import dataclass

VERDICTS = ("wrong", "doubtful", "fine", "not checked")

WRONG = 1e-3  # chance that any test of calibration at all speaks against a right model

DOUBTFUL = 0.02  # the same of a doubt


@dataclass(frozen=True)
class Finding:
    """What one check has found.

    Attributes:
        check: What was looked at: ``rows``, ``prior``, ``precision``, ``gradient``, ...
        verdict: ``wrong``, ``doubtful``, ``fine`` or ``not checked``.
        words: What is wrong, where, and what to do; or what was looked at.
        subject: Name of the parameter or model, where it is about one.
        p_value: Chance of as much under a right model, all tests of its kind together; NaN where
            it is no matter of chance.
    """

    check: str
    verdict: str
    words: str
    subject: str = ""
    p_value: float = math.nan

    def __str__(self) -> str:
        return f"{self.verdict.upper() if self.verdict == 'wrong' else self.verdict}: {self.words}"


def verdict_of(p_value: float) -> str:
    """What a p-value says, all tests of its kind counted in it already."""
    if not p_value < DOUBTFUL:
        return "fine"
    return "wrong" if p_value < WRONG else "doubtful"
