"""A fit between two steps of its training, which another process may go on with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..draws import Pool
from ..errors import ConvergenceWarning, warn_user
from ..pilot.audit import Audit
from .objective import Objective
from .train import Training


@dataclass
class UnderWay:
    """A fit whose pilot run is done.

    Attributes:
        audit: Of the fit, as far as it has grown.
        judges: Whether that audit scores the map.
        enlarges: Whether it grows before the map is trained again.
        extra: Draws beside those of the audit, or None.
        objective: What is trained on.
        settings: Of the training, as of :func:`~trjmcmc.fit.train.train`.
        by: What the map is trained by, as of :class:`FitTrace`.
        repairs: Whether a map that falls short may learn from the audit's draws.
        before: Seconds of short trainings before it, by which a start was chosen.
        mends: Whether the map has been trained once, and is being trained again.
        training: That was broken off, or None.
    """

    audit: Audit
    judges: bool
    enlarges: bool
    extra: Pool | None
    objective: Objective
    settings: dict[str, Any]
    by: str = ""
    repairs: bool = True
    before: float = 0.0
    mends: bool = False
    training: Training | None = None

    def within(self, deadline: float, progress: bool) -> dict[str, Any]:
        """Settings of the training in this process."""
        self.settings |= {"deadline": deadline, "progress": progress}
        return self.settings

    def at(self, training: Training | None) -> None:
        """Be between two steps of a training, or between two trainings."""
        self.training = training

    def trained(self) -> None:
        """The map has been trained once."""
        self.mends = True

    def again(self, objective: Objective) -> None:
        """Train it again, on another objective."""
        self.objective = objective


def unhurried(audit: Audit) -> bool:
    """Whether an audit can judge a map; where there was no time for it, a warning says so."""
    if audit.hurried:
        warn_user(
            "there was no time to audit the map: what it has lost would not be seen. Give the "
            "run more max_seconds, or fit() first",
            ConvergenceWarning,
        )
    return not audit.hurried
