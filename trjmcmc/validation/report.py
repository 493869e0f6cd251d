"""What a validation has found, in words, tables and pictures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arviz_bridge import groups
from ..errors import ConfigurationError
from ..plot.validation import plot_validation
from . import bands
from .finding import Finding
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
        findings: Of every check.
        ranks: By quantity, ranks of the truth in (0, 1), one a repeat.
        calibration: Probabilities of models or items and truths; None without repeats.
        repeats: How many were finished.
        asked: How many were asked for.
        rows: Of each repeat, what it has found, as plain data.
    """

    findings: Sequence[Finding]
    ranks: Mapping[str, Sequence[float]]
    calibration: Calibration | None
    repeats: int
    asked: int
    rows: Sequence[Mapping[str, Any]] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.wrong

    @property
    def wrong(self) -> list[Finding]:
        """What is wrong."""
        return [f for f in self.findings if f.verdict == "wrong"]

    @property
    def doubtful(self) -> list[Finding]:
        """What may be wrong, or costs time."""
        return [f for f in self.findings if f.verdict == "doubtful"]

    def table(self) -> pd.DataFrame:
        """Findings: ``check``, ``verdict``, ``subject``, ``p_value``, ``words``."""
        import pandas as pd

        columns = ["check", "verdict", "subject", "p_value", "words"]
        rows = [[getattr(f, c) for c in columns] for f in self.findings]
        return pd.DataFrame(rows, columns=columns)

    def rank_table(self) -> pd.DataFrame:
        """Ranks by quantity: mean, spread, p-values, coverage of central intervals."""
        return rank_table(self.ranks)

    def model_table(self) -> pd.DataFrame:
        """By model or item how often it was true, how often that was expected, and p.

        Raises:
            ConfigurationError: There were no repeats, or there is one model.
        """
        return self._calibration().table()

    def reliability(self) -> pd.DataFrame:
        """Probabilities in bins, and how often what had them was true; see :meth:`model_table`."""
        return self._calibration().reliability()

    def _calibration(self) -> Calibration:
        if self.calibration is None:
            raise ConfigurationError("no repeats over several models were made; raise repeats=")
        return self.calibration

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        """The verdict, what is wrong first, then what was looked at."""
        wrong, doubtful = self.wrong, self.doubtful
        head = (
            f"Validation: {len(wrong)} thing{'s' * (len(wrong) != 1)} wrong"
            if wrong
            else "Validation: nothing wrong was found"
        )
        head += f", {len(doubtful)} doubtful" if doubtful else ""
        head += f"; {self.repeats} of {self.asked} repeats"
        lines = [head]
        lines += [f"  {finding}" for finding in [*wrong, *doubtful]]
        by = Counter((f.check, f.verdict) for f in self.findings)
        for check, about in CHECKS.items():
            verdicts = {v: n for (c, v), n in by.items() if c == check}
            if verdicts:
                said = ", ".join(f"{n} {v}" for v, n in verdicts.items())
                lines.append(f"  {about}: {said}")
        for finding in self.findings:
            if finding.verdict == "not checked":
                lines.append(f"  not checked ({finding.check}): {finding.words}")
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
