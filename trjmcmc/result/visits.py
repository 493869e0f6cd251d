"""Probabilities by the chains alone: shares of the draws, and acceptance of the jumps."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from ..doubts.doubt import widened
from ..doubts.doubted import Doubted
from ..errors import TRJError
from ..estimate.bartolucci import bartolucci, bartolucci_odds
from ..estimate.estimate import Estimate
from ..estimate.indicator import Mask, ModelIndicator
from ..estimate.mean import MANY_CHAINS
from ..estimate.visits import VisitShares, log_odds, visit_probabilities, visit_probability

if TYPE_CHECKING:
    import pandas as pd


@dataclass(eq=False, repr=False)
class Visits:
    """Probabilities of models by the chains.

    Arguments:
        indicator: Which model each draw is in.
        doubted: What speaks against the draws.
        crossings: For a small space, sums of the acceptance probabilities of jumps from row to
            column, shape (batch, M, M), and the numbers of draws they were proposed from,
            shape (batch, M), in the order of ``space.enumerate()``.
    """

    indicator: ModelIndicator
    doubted: Doubted
    crossings: tuple[Tensor, Tensor] | None = None
    _known: dict[str, Estimate] = field(default_factory=dict)

    def of(self, label: str) -> Estimate:
        """Probability of a model by the share of the draws in it."""
        if label not in self._known:
            self._known[label] = self._of(label)
        return self._known[label]

    def _of(self, label: str) -> Estimate:
        if self.indicator.log_prior([label])[0] == -math.inf:
            return Estimate(0.0, 0.0, math.inf, "prior probability 0")
        if self._alone:
            return Estimate(1.0, 0.0, math.inf)
        return self.share(self.indicator.inside(label))

    @cached_property
    def _alone(self) -> bool:
        """Whether only one model of a small space is possible."""
        space = self.indicator.space
        return space.few and int((space.log_prior(space.enumerate()) > -math.inf).sum()) == 1

    def share(self, inside: Mask) -> Estimate:
        """Share of the draws where some models are, with what is flagged in its error.

        Arguments:
            inside: Draws in them, shape (chain, draw).
        """
        return self.doubted.share(visit_probability(inside, self._ess), inside)

    @property
    def _ess(self) -> float:
        """Effective draws where an indicator never changes: those of others, or chains' starts."""
        return self.indicator.ess or self.indicator.draws.n_chains

    def shares(self, inside: Mask) -> VisitShares:
        """Shares of the draws in many sets of models, shape (chain, draw, Q)."""
        found = visit_probabilities(inside, self._ess)
        each = [self.doubted.share(e, inside[..., q]) for q, e in enumerate(found.estimates)]
        return VisitShares(each, found.rhat)

    @cached_property
    def by_jumps(self) -> dict[str, Estimate]:
        """Probabilities by the acceptance probabilities of jumps, by label; empty without them."""
        if self.crossings is None:
            return {}
        indicator = self.indicator
        labels = indicator.space.label(indicator.space.enumerate())
        stays = self.crossings[1]
        batches = (stays / stays.sum(1, keepdim=True)).numpy()
        found = {}
        for m, (label, e) in enumerate(zip(labels, bartolucci(*self.crossings), strict=True)):
            visits = self.of(label)  # chains that have not mixed spoil both
            inside, memory = indicator.inside(label), 1.0
            if indicator.draws.n_chains < MANY_CHAINS and len(batches) > 1:
                # stretches of one chain need not be independent
                spread = float(batches[:, m].std(ddof=1)) / math.sqrt(len(batches))
                memory = max(1.0, visits.std_error / spread) if spread > 0 else 1.0
            warning = e.warning or visits.warning
            e = replace(e, std_error=e.std_error * memory, warning=warning)
            found[label] = self.doubted.share(e, inside)
        return found

    def log_odds(self, a: str, b: str) -> Estimate:
        """Log of the ratio of two models' probabilities by the draws, nats."""
        e = log_odds(self.indicator.inside(a), self.indicator.inside(b))
        return self._flagged_odds(e, a, b)

    def log_odds_by_jumps(self, a: str, b: str) -> Estimate:
        """The same by the jumps between the two models alone, nats."""
        assert self.crossings is not None
        order = self.indicator.space.label(self.indicator.space.enumerate())
        e = bartolucci_odds(*self.crossings, order.index(a), order.index(b))
        return self._flagged_odds(e, a, b)

    def _flagged_odds(self, e: Estimate, a: str, b: str) -> Estimate:
        """Log odds of two models whose error counts what is flagged about the chains."""
        warning = e.warning or self.of(a).warning or self.of(b).warning
        return reduce(widened, self.doubted.about(a, b), replace(e, warning=warning))

    def jumps(self) -> pd.DataFrame:
        """Mean acceptance probability times chance of proposal, from row to column.

        Raises:
            TRJError: There are more than 64 models, or only one.
        """
        import pandas as pd

        if self.crossings is None:
            raise TRJError("jumps: none were recorded; that is done for 2 to 64 models")
        crossed, stays = (t.sum(0).numpy() for t in self.crossings)
        labels = self.indicator.space.label(self.indicator.space.enumerate())
        with np.errstate(invalid="ignore"):
            rate = crossed / stays[:, None]
        np.fill_diagonal(rate, np.nan)
        return pd.DataFrame(
            rate, index=pd.Index(labels, name="from"), columns=pd.Index(labels, name="to")
        )
