"""What a validation has found, in words, tables and pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arviz_bridge import groups
from ..doubts.doubt import Doubt
from ..errors import ConfigurationError
from ..plot.validation import plot_validation
from . import bands
from .asked import Asked
from .models import Calibration
from .ranks import FEWEST, rank_table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

CHECKS = {
    "statement": "can the model be stated",
    "rows": "each row of a batch alone",
    "prior": "draws of priors against densities",
    "gradient": "gradients against differences",
    "precision": "float32 against float64",
    "components": "components trade places",
    "mask": "what is on is noticed",
    "ratios": "likelihood against simulator",
    "joint": "parameters and data in turn",
    "ranks": "ranks of the truth",
    "models": "probabilities of models",
    "runs": "the runs themselves",
}


@dataclass(frozen=True, repr=False)
class Validation:
    """What was found of a model.

    Attributes:
        asked: What checks were made, and what they found.
        ranks: By quantity, ranks of the truth in (0, 1), one a repeat.
        calibration: Probabilities of models or items and truths; None without repeats of several
            models. Its ``table()`` has how often each was true beside how often was expected.
        repeats: How many were finished.
        wanted: How many were asked for.
        rows: Of each repeat, what it has found, as plain data.
    """

    asked: Asked
    ranks: Mapping[str, Sequence[float]]
    calibration: Calibration | None
    repeats: int
    wanted: int
    rows: Sequence[Mapping[str, Any]] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.wrong

    @property
    def doubts(self) -> list[Doubt]:
        """What speaks against the model."""
        return self.asked.doubts

    @property
    def wrong(self) -> list[Doubt]:
        """What is wrong."""
        return [d for d in self.doubts if d.grave]

    @property
    def doubtful(self) -> list[Doubt]:
        """What may be wrong, or costs time."""
        return [d for d in self.doubts if not d.grave]

    def table(self) -> pd.DataFrame:
        """By check ``verdict`` (wrong, doubtful, fine, not checked), ``subject``, ``words``."""
        import pandas as pd

        rows = [
            (d.kind, "wrong" if d.grave else "doubtful", d.subject, d.words) for d in self.doubts
        ]
        bad = {d.kind for d in self.doubts}
        rows += [(c, "fine", "", CHECKS[c]) for c in dict.fromkeys(self.asked.made) if c not in bad]
        rows += [(check, "not checked", "", why) for check, why in self.asked.skipped]
        return pd.DataFrame(rows, columns=["check", "verdict", "subject", "words"])

    def rank_table(self) -> pd.DataFrame:
        """Ranks by quantity: mean, spread, p-values, coverage of central intervals."""
        return rank_table(self.ranks)

    def __repr__(self) -> str:
        """The verdict, what is wrong first, then what was looked at."""
        wrong, doubtful = self.wrong, self.doubtful
        head = (
            f"Validation: {len(wrong)} thing{'s' * (len(wrong) != 1)} wrong"
            if wrong
            else "Validation: nothing wrong was found"
        )
        head += f", {len(doubtful)} doubtful" if doubtful else ""
        head += f"; {self.repeats} of {self.wanted} repeats"
        lines = [head]
        for d in [*wrong, *doubtful]:
            what = "WRONG" if d.grave else "doubtful"
            lines.append(f"  {what}: {'. '.join(filter(None, [d.words, d.remedy]))}")
        for check, about in CHECKS.items():
            found = [d for d in self.doubts if d.kind == check]
            if found or check in self.asked.made:
                n = sum(d.grave for d in found)
                verdict = f"{n} wrong, {len(found) - n} doubtful" if found else "fine"
                lines.append(f"  {about}: {verdict}")
        lines += [f"  not checked ({check}): {why}" for check, why in self.asked.skipped]
        return "\n".join(lines)

    def to_arviz(self) -> Any:
        """Ranks and probabilities by repeat as InferenceData (0.2x) or DataTree (1.x).

        ``sample_stats`` holds the rank of every quantity, NaN where a repeat has none, the
        probability ``p`` of each model and the number ``true`` of the true one.
        """
        number = [row for row in self.rows if "error" not in row]
        found: dict[str, Any] = {
            name: np.array([row["u"].get(name, np.nan) for row in number]) for name in self.ranks
        }
        if self.calibration is not None:
            found["p"] = self.calibration.p
            found["true"] = self.calibration.true.astype(int)
        return groups({"sample_stats": found})

    def plot(self) -> Figure:
        """Ranks of every quantity within their bands, and the reliability of probabilities.

        Returns:
            A figure: the difference between the distribution function of the ranks and a uniform
            one, a panel a quantity, the 95 % simultaneous band in grey; a panel of probabilities.

        Raises:
            ConfigurationError: There are no repeats to draw.
        """
        judged = {k: np.asarray(v) for k, v in self.ranks.items() if len(v) >= FEWEST}
        if not judged and self.calibration is None:
            raise ConfigurationError(f"plot: fewer than {FEWEST} repeats; raise repeats=")
        lines = {name: (u, *bands.band(len(u))) for name, u in judged.items()}
        table = None if self.calibration is None else self.calibration.reliability()
        return plot_validation(lines, table)
