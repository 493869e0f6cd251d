"""What a run is asked for, and what of that a look at its draws has missed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..checks import meant
from ..doubts.convergence import worst_rhat
from ..draws import Draws
from ..errors import ConfigurationError
from ..promises import DONE_ERROR, MODELS_ONE_BY_ONE
from ..space.base import Space
from .summary import Run

Rule = Callable[[Draws], bool]

COMMON = 0.01  # probability of models whose Bayes factors are asked for

LIMITS = {
    "probability": (0.0, 1.0),
    "log_bayes_factor": (0.0, math.inf),
    "rhat": (1.0, math.inf),
    "detection": (0.0, 1.0),
}  # between which each number is


@dataclass(frozen=True)
class Aims:
    """When a run has what it is for; infinite where that is not asked.

    Attributes:
        probability: Largest standard error of a probability; of a run that has mixed.
        log_bayes_factor: The same of log Bayes factors of common models to the best, nats.
        rhat: Largest rank-normalised split R-hat of what chains pass.
        detection: Share of climbs from a prior that lead to a mode, from which it is to be met.
        rule: Of the user: says of the kept draws whether they suffice; or None.
    """

    probability: float = math.inf
    log_bayes_factor: float = math.inf
    rhat: float = math.inf
    detection: float = math.inf
    rule: Rule | None = None

    @classmethod
    def of(cls, space: Space, until: Any) -> Aims:
        """What a user states as ``until`` of :meth:`trjmcmc.TRJSampler.run`.

        Raises:
            ConfigurationError: Something else is asked for, or not for this space.

        Example:
            >>> from trjmcmc import problems
            >>> Aims.of(problems.sinh_arcsinh().space, {"rhat": 1.1}).rhat
            1.1
        """
        if callable(until):
            return cls(rule=until)
        asked = {"probability": DONE_ERROR} if until is None else until
        odd = [x for x in asked if x not in LIMITS] if isinstance(asked, Mapping) else [""]
        if odd or not asked:
            raise ConfigurationError(
                'until: expected a dict such as {"probability": 0.01} or a function of the draws, '
                f"got {until!r}{meant(str(*odd[:1]), LIMITS)}"
            )
        for name, x in asked.items():
            low, high = LIMITS[name]
            if not (isinstance(x, int | float) and low < x < high):
                raise ConfigurationError(
                    f"until: expected {name} between {low:g} and {high:g}, got {x!r}"
                )
        listed = space.few and space.several and not space.graphs
        if "log_bayes_factor" in asked and (not listed or (space.counts and len(space.kinds) > 1)):
            raise ConfigurationError(
                f"until: log_bayes_factor is for 2 to {MODELS_ONE_BY_ONE} models that are no "
                "graphs, and of one kind of components; use probability"
            )
        return cls(**asked)

    def missed(self, run: Run) -> list[str]:
        """What is not reached, in words; empty if all is."""
        found, error = list[str](), float(run.error.max())
        if error > self.probability:
            found.append(f"standard error {error:.2g}, not {self.probability:g}")
        if self.log_bayes_factor < math.inf:
            error = self._of_bayes_factors(run)
            if not error <= self.log_bayes_factor:
                found.append(
                    f"log Bayes factors to {error:.2g} nats, not {self.log_bayes_factor:g}"
                )
        if self.rhat < math.inf:
            rhat = worst_rhat(run.recipe.host, run.draws, self.rhat)
            if not rhat <= self.rhat:
                found.append(f"R-hat {rhat:.3f}, not {self.rhat:g}")
        if run.detection > self.detection:
            found.append(f"detection limit {run.detection:.2g}, not {self.detection:g}")
        return found

    def reached(self, run: Run) -> bool:
        """Whether a run has what it is for."""
        if self.rule is not None:
            return bool(self.rule(run.draws))
        run.judge(math.inf if self.probability == math.inf else self.probability)
        return run.done and not self.missed(run)

    @staticmethod
    def _of_bayes_factors(run: Run) -> float:
        """Largest standard error of the log of a Bayes factor to the best model, nats."""
        models = int(run.recipe.host.size or 0)
        p, error = run.p[-models:], run.error[-models:]
        best, relative = int(p.argmax()), (error / p)[p > COMMON]
        rest = (error / p)[best]
        return float((relative.square() + rest.square()).sqrt().max())
