"""What a pilot run and an audit found, model by model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor

from ..estimate.convergence import FEW_STARTS
from ..estimate.estimate import Estimate
from ..estimate.routes import MORE
from ..promises import LOG_EVIDENCES_AGREE, POSTERIOR_COVERED
from ..space.base import Space

if TYPE_CHECKING:
    import pandas as pd

COVERED_NATS = 5.0  # of log pi - log q up to which a draw counts as covered

LOST_SHARE = 0.01  # share of a posterior that a map may have lost

LOST_NATS = 10.0  # of log pi - log q beyond which no draw of the map would ever land there

MOST_MISSING = 0.999  # share of a posterior that a map may lack, of which a logarithm is taken

SIGMAS = 5.0  # standard errors between the log evidences of map and audit that contradict

FEWEST_ANCESTORS = FEW_STARTS  # effective prior draws behind an audited evidence: fewer are flagged

FEWEST_UNSCREENED_ANCESTORS = FEW_STARTS / 2  # the same of a model that no climbs have checked


def by_audit(space: Space, report: AuditReport) -> dict[str, Estimate]:
    """Log of p(model) times the evidence of each model that was audited, nats, by label.

    The error is at least the gap between the halves (``halves_differ`` in the audit's own table,
    whose error is that of the replicates alone): few replicates may agree by chance. Importance
    sampling seldom finds mass that is not there: where the map knows more than the pilot run, this
    has lost a part, and its error reaches as far.
    """
    found = {}
    for m in report.models:
        prior = float(space.log_prior(space.code_of(m.model)[None])[0])
        doubt = "" if abs(m.gap) <= LOG_EVIDENCES_AGREE else "rough"
        if m.ancestors < FEWEST_ANCESTORS:
            doubt = f"rests on {m.ancestors:.1f} draws of the {m.start}"
        error = max(m.std_error, abs(m.gap))
        if m.difference > MORE * m.difference_se:
            error = math.hypot(error, m.difference)
            doubt = doubt or f"{m.difference:.1f} nats below the map's"
        found[m.model] = Estimate(m.log_evidence + prior, error, warning=doubt)
    return found


@dataclass(frozen=True)
class ModelAudit:
    """What the audit says of one model.

    Attributes:
        model: Label.
        log_evidence: By tempered sequential Monte Carlo, nats.
        std_error: From independent replicates.
        gap: Log evidences of the two halves of the audit, difference.
        map_log_evidence: By importance sampling through the map.
        map_std_error: Of that.
        covered: Share of the posterior where the map's density is at least exp(-5) of it.
        lost: Share where it is less than exp(-10): a mode that the map lacks.
        modes: Number of separate modes among the draws.
        matters: Whether the model has a share of the posterior worth a warning.
        ancestors: Prior draws that its draws descend from, in effect: one over the sum of their
            squared shares.
        start: What these are draws of: ``prior``, or ``reference`` of a joint.
    """

    model: str
    log_evidence: float
    std_error: float
    gap: float
    map_log_evidence: float
    map_std_error: float
    covered: float
    lost: float
    modes: int
    matters: bool
    ancestors: float = math.inf
    start: str = "prior"

    @property
    def difference(self) -> float:
        """Log evidence through the map minus that of the audit, nats."""
        return self.map_log_evidence - self.log_evidence

    @property
    def difference_se(self) -> float:
        """Standard error of :attr:`difference`."""
        return math.hypot(self.std_error, self.map_std_error)

    @property
    def uncovered(self) -> bool:
        """Whether the map misses a part of the posterior."""
        return self.covered < POSTERIOR_COVERED or self.lost > LOST_SHARE

    @property
    def missing(self) -> float:
        """Nats that the evidence through the map may lack, by what it does not cover."""
        share = min(max(self.lost, 1 - self.covered), MOST_MISSING)
        return math.hypot(math.log1p(-share), self.difference)

    @property
    def verdict(self) -> str:
        """``covered``; ``uncovered``; ``evidences differ``; or ``rough``: the audit's own
        halves disagree, so that it can't judge the evidence."""
        if self.uncovered:
            return "uncovered"
        error = max(self.difference_se, abs(self.gap))  # four replicates may agree by chance
        if abs(self.difference) > max(LOG_EVIDENCES_AGREE, SIGMAS * error):
            return "evidences differ"
        return "covered" if abs(self.gap) <= LOG_EVIDENCES_AGREE else "rough"


@dataclass(frozen=True)
class AuditReport:
    """The audit of a map, model by model.

    Attributes:
        models: One entry a model.
        evaluations: Likelihood evaluations that the audit made.
        seconds: Wall time of the audit.
        rounds: How often it grew, the first included.
        mended: How often the map was trained again because of it.
    """

    models: tuple[ModelAudit, ...]
    evaluations: int = 0
    seconds: float = 0.0
    rounds: int = 1
    mended: int = 0

    @property
    def uncovered(self) -> list[str]:
        """Models that matter of which the map misses a part."""
        return [m.model for m in self.models if m.matters and m.uncovered]

    @property
    def differing(self) -> list[str]:
        """Models that matter whose evidences contradict each other."""
        return [m.model for m in self.models if m.matters and m.verdict == "evidences differ"]

    def table(self) -> pd.DataFrame:
        """Columns ``log_evidence``, ``se``, ``halves_differ``, ``ancestors``, ``map_log_evidence``,
        ``map_se``, ``difference``, ``difference_se``, ``covered``, ``lost``, ``modes``,
        ``verdict``; indexed by model."""
        import pandas as pd

        rows = {
            m.model: {
                "log_evidence": m.log_evidence,
                "se": m.std_error,
                "halves_differ": abs(m.gap),
                "ancestors": m.ancestors,
                "map_log_evidence": m.map_log_evidence,
                "map_se": m.map_std_error,
                "difference": m.difference,
                "difference_se": m.difference_se,
                "covered": m.covered,
                "lost": m.lost,
                "modes": m.modes,
                "verdict": m.verdict,
            }
            for m in self.models
        }
        table = pd.DataFrame.from_dict(rows, orient="index")
        table.index.name = "model"
        return table


class Score(NamedTuple):
    """Shares of each posterior, shape (M,): see :class:`ModelAudit`."""

    covered: Tensor
    lost: Tensor

    @property
    def short(self) -> Tensor:
        """Models of which the map misses a part, shape (M,), bool."""
        return (self.covered < POSTERIOR_COVERED) | (self.lost > LOST_SHARE)
