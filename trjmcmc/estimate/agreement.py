"""Do two independent routes to the same numbers agree?"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .estimate import Estimate

SIGMAS = 5.0  # disagreement in standard errors that two honest estimates never reach
FLOOR = 0.002  # differences of probability too small to matter


def disagreements(
    labels: Sequence[str], visits: Sequence[Estimate], importance: Sequence[Estimate]
) -> list[str]:
    """Models on which visits and importance sampling contradict each other, in words.

    Importance estimates share their normalisation: where any with a share that matters is
    flagged, none has an error to judge by, and nothing is said beyond the flags.
    """
    if any(i.warning and i.value > FLOOR for i in importance):
        return []
    found = []
    for label, v, i in zip(labels, visits, importance, strict=True):
        gap = abs(v.value - i.value)
        error = math.hypot(v.std_error, i.std_error)
        if math.isfinite(gap) and gap > max(SIGMAS * error, FLOOR):
            found.append(f"{label!r}: visits {v}, importance sampling {i}")
    return found
