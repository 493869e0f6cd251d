"""What a search for lost parts of a posterior has found, in numbers and words."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

LOST_SHARE = 0.005  # of the known mass, from which a part that no map knows counts as lost

BY_PRIOR, BY_CHAINS = "prior draws", "draws of the chains"  # what met a part

POINTS_OF = {BY_PRIOR: "points from", BY_CHAINS: "of"}

UNKNOWN_TO = {BY_PRIOR: "neither map nor chains know", BY_CHAINS: "the map does not know"}

LEAST_EXPECTED = 1e-12  # of a share that is divided by


@dataclass(frozen=True)
class Screening:
    """What prior draws of one model say of the maps of its posterior.

    Attributes:
        model: Label.
        draws: Prior draws that were looked at. A part of the posterior that holds less than three
            over this number of the prior, slopes that lead to it included, may have been missed
            by all.
        met: How many points, of those that lie highest, have climbed, or were tempered, are where
            no map has anything to speak of although the posterior has.
        share: The mass of that part over that of the model as it is known.
        place: Its highest point, in words; empty if nothing was met.
        by: What met it.
        climbs: Whether draws were carried uphill; else slopes that lead to a part do not count.
        visited: Whether this is one of the models that chains visit most, and no others were
            looked at.
        ends: Climbs that were followed to their end, however low that lies.
        summits: Summits at which they ended.
        once: Summits at which one of them ended alone.
        visits: Share of the chains' draws of the model that lie there.
    """

    model: str
    draws: int
    met: int
    share: float
    place: str = ""
    by: str = BY_PRIOR
    climbs: bool = True
    visited: bool = False
    ends: int = 0
    summits: int = 0
    once: int = 0
    visits: float = 0.0

    @property
    def limit(self) -> float:
        """Share of climbs that lead to a mode from which it would have been met with 95 %.

        Of n draws that meet nothing: exp(-3) is the probability that all miss a share of 3/n. NaN
        of chains, which are no independent draws.
        """
        return 3 / self.draws if self.by == BY_PRIOR and self.draws else math.nan

    @property
    def unseen(self) -> float:
        """Probability that a further climb ends at a summit that none has met; NaN of no climbs.

        Source:
            Good (1953), https://doi.org/10.1093/biomet/40.3-4.237
        """
        return self.once / self.ends if self.ends else math.nan

    @property
    def lost(self) -> bool:
        """Whether a part of the posterior that matters is missing from the maps."""
        return not self.share <= LOST_SHARE

    def after(self, earlier: Screening) -> Screening:
        """This one and an earlier one: what that has met is not forgotten."""
        if self.by != earlier.by or self.climbs != earlier.climbs:
            return self
        last = earlier if earlier.lost and not self.lost else self
        return replace(last, draws=self.draws + earlier.draws)

    def settled(self) -> Screening:
        """The same, once the map knows what was met."""
        return replace(self, met=0, share=0.0, place="")

    @property
    def shift(self) -> float:
        """Standard deviations that any mean over the model may be off by; NaN if nothing tells.

        Chains that are there more or less often than the mass says are off by the difference.
        """
        expected = expected_share(self.share)
        variance = expected * (1 - expected)
        if not (self.visits and variance):
            return math.nan
        return abs(self.visits - expected) / math.sqrt(variance)

    @property
    def note(self) -> str:
        """What was met, in words."""
        unknown = UNKNOWN_TO[BY_CHAINS if self.visits else self.by]
        words = (
            f"{self.met} {POINTS_OF[self.by]} {self.draws} {self.by} met a part of the posterior "
            f"of {self.model!r} that {unknown}{self.place and f', near {self.place}'}"
        )
        if self.by == BY_CHAINS or self.visits:
            words += f", and that holds {expected_share(self.share):.2g} of it as it was weighed"
        if self.visits:
            words += f", {self.visits:.2g} of the draws of chains"
        return words


def is_fair(visited: float, share: float, error: float, factor: float) -> bool:
    """Whether chains were in a part as often as its mass says.

    Arguments:
        visited: Share of their points that lie in it: where they were looked for, over the share
            of its mass that lies there.
        share: Its mass over what is known beside it.
        error: Standard error of the log of that, twice which is allowed for.
        factor: By which it may be off besides.

    Example:
        >>> is_fair(0.1, share=0.11, error=0.1, factor=1.5), is_fair(0.01, 0.11, 0.1, 1.5)
        (True, False)
    """
    expected = max(expected_share(share), LEAST_EXPECTED)
    return visited > 0 and abs(math.log(visited / expected)) < math.log(factor) + 2 * error


def expected_share(share: float) -> float:
    """Share of the draws that lie in a part, of its mass over what is known beside it.

    Example:
        >>> expected_share(1.0), expected_share(math.inf)
        (0.5, 1.0)
    """
    return 1.0 if share == math.inf else share / (1 + share)
