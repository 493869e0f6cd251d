"""How chains moved among models, whether they have mixed, and probabilities by them alone."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..doubts.convergence import Convergence
from ..doubts.doubt import widened
from ..doubts.doubted import Doubted
from ..errors import ConfigurationError, TRJError
from ..estimate.bartolucci import bartolucci, bartolucci_odds
from ..estimate.estimate import Estimate
from ..estimate.indicator import Mask
from ..estimate.mean import MANY_CHAINS
from ..estimate.visits import VisitShares, log_odds, visit_probabilities, visit_probability
from ..plot.evidences import plot_jumps
from ..plot.models import plot_running
from ..target.model import Truth

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


class Chains:
    """Chains of a run: which model each draw is in, how they mix, and probabilities by them alone.

    Arguments:
        convergence: R-hat of what chains pass, and which model each draw is in.
        doubted: What speaks against the draws.
        crossings: For a small space, sums of the acceptance probabilities of jumps from row to
            column, shape (batch, M, M), and the numbers of draws they were proposed from,
            shape (batch, M), in the order of ``space.enumerate()``.
        truth: Known answers, if any.

    Attributes:
        models: Labels of the models that tables show.
        inside: Whether each draw is in a model, by label, shape (chain, draw).
        items: Names of the items, and which are in the model, shape (chain, draw, items).
        between_runs: Whether the runs that were merged agree, in a table.
        mixing, autocorrelation_time: How fast the model indicator forgets.
    """

    def __init__(
        self,
        convergence: Convergence,
        doubted: Doubted,
        crossings: tuple[Tensor, Tensor] | None = None,
        truth: Truth | None = None,
    ) -> None:
        self.indicator = indicator = convergence.indicator
        self.doubted, self.crossings, self.truth = doubted, crossings, truth
        self.space, self.draws = indicator.space, indicator.draws
        self.models, self.inside, self.items = indicator.models, indicator.inside, indicator.items
        self.mixing, self.autocorrelation_time = indicator.mixing, indicator.autocorrelation_time
        self.between_runs = convergence.between_runs
        self._known = dict[str, Estimate]()

    @property
    def transitions(self) -> pd.DataFrame:
        """Chance of the next draw's model given this one's, by the draws; small spaces only.

        Raises:
            TRJError: There are more than 64 models.
        """
        return self.indicator.transitions

    # ---- probabilities by visits and jumps --------------------------------------------------

    def visits(self, label: str) -> Estimate:
        """Probability of a model by the share of the draws in it."""
        if label not in self._known:
            self._known[label] = self._visits(label)
        return self._known[label]

    def _visits(self, label: str) -> Estimate:
        if self.indicator.log_prior([label])[0] == -math.inf:
            return Estimate(0.0, 0.0, math.inf, "prior probability 0")
        if self._alone:
            return Estimate(1.0, 0.0, math.inf)
        found = self.share(self.inside(label))
        if found.value == 0 and self._unreached(label):
            words = f"{found.warning}: no jump to it was proposed that could be accepted"
            found = replace(found, warning=words)
        return found

    def _unreached(self, label: str) -> bool:
        """Whether jumps were recorded, and none of them could lead to a model."""
        if self.crossings is None or not bool(self.crossings[1].any()):
            return False
        place = int(self.space.index(self.space.code_of(label)[None])[0])
        return not bool(self.crossings[0][..., place].any())

    @cached_property
    def _alone(self) -> bool:
        """Whether only one model of a small space is possible."""
        possible = self.space.log_prior(self.space.enumerate()) if self.space.few else None
        return possible is not None and int((possible > -math.inf).sum()) == 1

    def share(self, inside: Mask) -> Estimate:
        """Share of the draws where some models are, with what is flagged in its error.

        Arguments:
            inside: Draws in them, shape (chain, draw).
        """
        return self.doubted.share(visit_probability(inside, self._others), inside)

    @property
    def _others(self) -> float:
        """Effective draws where an indicator never changes: those of others, or chains' starts."""
        return self.indicator.ess or self.draws.n_chains

    def shares(self, has: NDArray[np.bool_]) -> pd.DataFrame:
        """Posterior probabilities of anything that a draw has or has not.

        Arguments:
            has: Whether each draw has each of Q features, shape (chain, draw, Q).

        Returns:
            Q rows; ``probability``, ``se``, ``ess``, ``rhat`` and ``note`` as of
            :meth:`trjmcmc.Result.inclusion_probabilities`.

        Raises:
            ConfigurationError: Chains and draws are not those of the run.
        """
        shape = self.draws.n_chains, self.draws.n_draws
        if has.ndim != 3 or has.shape[:2] != shape:
            raise ConfigurationError(f"shares: expected shape {(*shape, 'Q')}, got {has.shape}")
        import pandas as pd

        found, rhat = self.shares_of(has)
        columns = {"probability": "value", "se": "std_error", "ess": "ess"}
        table = {name: [getattr(e, of) for e in found] for name, of in columns.items()}
        return pd.DataFrame({**table, "rhat": rhat, "note": [e.warning for e in found]})

    def shares_of(self, inside: Mask) -> VisitShares:
        """Shares of the draws in many sets of models, shape (chain, draw, Q)."""
        found = visit_probabilities(inside, self._others)
        each = [self.doubted.share(e, inside[..., q]) for q, e in enumerate(found.estimates)]
        return VisitShares(each, found.rhat)

    @cached_property
    def by_jumps(self) -> dict[str, Estimate]:
        """Probabilities by the acceptance probabilities of jumps, by label; empty without them."""
        if self.crossings is None:
            return {}
        labels = self.space.label(self.space.enumerate())
        stays = self.crossings[1]
        batches = (stays / stays.sum(1, keepdim=True)).numpy()
        found = {}
        for m, (label, e) in enumerate(zip(labels, bartolucci(*self.crossings), strict=True)):
            visits = self.visits(label)  # chains that have not mixed spoil both
            inside, memory = self.inside(label), 1.0
            if self.draws.n_chains < MANY_CHAINS and len(batches) > 1:
                # stretches of one chain need not be independent
                spread = float(batches[:, m].std(ddof=1)) / math.sqrt(len(batches))
                memory = max(1.0, visits.std_error / spread) if spread > 0 else 1.0
            warning = e.warning or visits.warning
            e = replace(e, std_error=e.std_error * memory, warning=warning)
            found[label] = self.doubted.share(e, inside)
        return found

    def log_odds(self, a: str, b: str) -> Estimate:
        """Log of the ratio of two models' probabilities by the draws, nats."""
        e = log_odds(self.inside(a), self.inside(b))
        return self._flagged_odds(e, a, b)

    def log_odds_by_jumps(self, a: str, b: str) -> Estimate:
        """The same by the jumps between the two models alone, nats."""
        assert self.crossings is not None
        order = self.space.label(self.space.enumerate())
        e = bartolucci_odds(*self.crossings, order.index(a), order.index(b))
        return self._flagged_odds(e, a, b)

    def _flagged_odds(self, e: Estimate, a: str, b: str) -> Estimate:
        """Log odds of two models whose error counts what is flagged about the chains."""
        warning = e.warning or self.visits(a).warning or self.visits(b).warning
        return reduce(widened, self.doubted.about(a, b), replace(e, warning=warning))

    def jumps(self) -> pd.DataFrame:
        """Mean acceptance probability times chance of proposal, from row to column, a jump.

        Raises:
            TRJError: There are more than 64 models, or only one.
        """
        import pandas as pd

        if self.crossings is None:
            raise TRJError("jumps: none were recorded; that is done for 2 to 64 models")
        crossed, stays = (t.sum(0).numpy() for t in self.crossings)
        labels = self.space.label(self.space.enumerate())
        with np.errstate(invalid="ignore"):
            rate = crossed / stays[:, None]
        np.fill_diagonal(rate, np.nan)
        return pd.DataFrame(
            rate, index=pd.Index(labels, name="from"), columns=pd.Index(labels, name="to")
        )

    # ---- pictures ---------------------------------------------------------------------------

    def plot_running(self, ax: Axes | None = None, *, chains: int = 0) -> Axes:
        """Running estimates of the model probabilities, of so many single chains too."""
        visited = {label: self.inside(label) for label in self.models}
        exact = self.truth.probabilities if self.truth else None
        return plot_running(visited, self.draws.thin, exact, ax, chains=chains)

    def plot_jumps(self, ax: Axes | None = None) -> Axes:
        """Heat map of accepted jumps between models."""
        rates = self.jumps()
        return plot_jumps(rates, {m: float(self.inside(m).mean()) for m in rates.index}, ax)
