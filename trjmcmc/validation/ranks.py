"""Ranks of the truth among posterior draws: are they uniform, and if not, in which way?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..doubts.doubt import Doubt
from . import bands
from .asked import Skipped, by_chance

if TYPE_CHECKING:
    import pandas as pd

FEWEST = 20  # ranks from which they are judged

COVERAGES = (0.5, 0.8, 0.9, 0.95)

TESTS = 3  # of each quantity: bands, mean, spread


def rank_table(ranks: Mapping[str, Sequence[float]]) -> pd.DataFrame:
    """One row a quantity.

    Arguments:
        ranks: By quantity, ranks of the truth as shares in (0, 1), one a repeat that has it.

    Returns:
        ``n``; ``mean`` (one half), ``spread`` (standard deviation over that of a uniform one: 1);
        ``p_bands``, ``p_mean``, ``p_spread`` of the tests; ``p``, of all three together; and the
        share of truths within central intervals of 50, 80, 90 and 95 %.
    """
    import pandas as pd
    from scipy.stats import norm  # seconds to import

    rows = {}
    for name, values in ranks.items():
        u = np.asarray(values, dtype=float)
        n = len(u)
        row: dict[str, Any] = {"n": n, "mean": u.mean() if n else math.nan}
        away = np.abs(u - 0.5)
        row["spread"] = float(np.sqrt(12 * np.mean(away**2))) if n else math.nan
        if n >= FEWEST:
            row["p_bands"] = bands.p_value(u)
            row["p_mean"] = 2 * norm.sf(abs(u.mean() - 0.5) * math.sqrt(12 * n))
            z = (np.mean(away**2) - 1 / 12) / math.sqrt(1 / 180 / n)
            row["p_spread"] = 2 * norm.sf(abs(z))
            least = min(row["p_bands"], row["p_mean"], row["p_spread"])
            row["p"] = min(1.0, TESTS * least)
        for share in COVERAGES:
            row[f"in {share:.0%}"] = float(np.mean(away <= share / 2)) if n else math.nan
        rows[name] = row
    columns = ["n", "mean", "spread", "p_bands", "p_mean", "p_spread", "p"]
    columns += [f"in {share:.0%}" for share in COVERAGES]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns).rename_axis("quantity")


def judge_ranks(table: pd.DataFrame, tests: int) -> list[Doubt]:
    """What the ranks of each quantity say.

    Arguments:
        table: As of :func:`rank_table`.
        tests: Quantities and models that are judged in all, which p-values are multiplied by.

    Raises:
        Skipped: All are too few.
    """
    enough = table[table["n"] >= FEWEST]
    if not len(enough):
        raise Skipped(f"fewer than {FEWEST} ranks of each quantity are too few to judge")
    found: list[Doubt] = []
    for name, row in enough.iterrows():
        p = min(1.0, float(row["p"]) * tests)
        found += by_chance(str(name), in_words(str(name), row), p)
    return found


def in_words(name: str, row: pd.Series) -> str:
    """How ranks stray, and what does that."""
    shape = []
    if row["p_mean"] < 0.05:
        low = row["mean"] < 0.5
        shape.append(
            f"{name} is ranked too {'low' if low else 'high'} (mean rank {row['mean']:.2f}, not "
            f"0.50): its posterior lies too {'high' if low else 'low'}. Its prior is used twice, a "
            "Jacobian is missing, or likelihood and simulator mean different things by it"
        )
    if row["p_spread"] < 0.05:
        narrow = row["spread"] > 1
        shape.append(
            f"the posterior of {name} is too {'narrow' if narrow else 'wide'} (90 % intervals hold "
            f"{row['in 90%']:.0%} of the truths): "
            + (
                "data or prior count twice, or the noise is larger in the simulator"
                if narrow
                else "some data do not count, or the noise is smaller in the simulator"
            )
        )
    if not shape:
        shape.append(f"ranks of {name} leave the bands of uniform ones")
    return "; ".join(shape)
