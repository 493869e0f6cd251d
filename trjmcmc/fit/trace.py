"""What a training run left behind: its objective by window, what it left out, its time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..plot.training import plot_fit

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class FitTrace:
    """What happened in a fit.

    Attributes:
        step: Last step of each window, counted from 1.
        objective: Mean objective over the window, nats: minus the tempered evidence lower
            bound averaged over models, or minus the mean log density of held-out draws.
        temper: Exponent of the likelihood at the end of the window.
        non_finite: Draws of the window that had no finite value or gradient; left out.
        draws: All draws, finite or not.
        skipped: Steps left out because their gradient was not finite.
        seconds: Wall time.
        best_step: The step whose map was kept.
        by: What the map was trained by: ``"pilot"``, draws of tempered runs; ``"vi"``, variational
            inference; ``"objective"`` or ``"draws"`` of the user; empty without a training.
        stopped: What ended it: ``"steps"``, all were made; ``"plateau"``, the objective did not
            improve any more; ``"budget"``, evaluations ran out; ``"out of time"``, the deadline
            passed; ``"interrupted"``, by Ctrl-C.
    """

    step: list[int] = field(default_factory=list)
    objective: list[float] = field(default_factory=list)
    temper: list[float] = field(default_factory=list)
    non_finite: list[int] = field(default_factory=list)
    draws: int = 0
    skipped: int = 0
    seconds: float = 0.0
    best_step: int = 0
    stopped: str = "steps"
    by: str = ""

    def plot(self, ax: Axes | None = None) -> Axes:
        """Objective against step; the part with a tempered likelihood is dashed."""
        return plot_fit(self.step, self.objective, self.temper, self.best_step, ax)
