"""Numbers by which a run looks for modes that it has lost."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..checks import Checked
from ..pilot.policy import ScreeningPolicy


@dataclass(frozen=True)
class ScreeningBudget(Checked):
    """How much a run spends on climbs of prior draws, which find modes that it has lost.

    Attributes:
        spent_share: Of the time spent so far.
        left_share: Of the time left, if that is more.
        seconds_a_dimension: Seconds at least, a coordinate of the largest model: with two seconds a
            mode in ten dimensions was lost by one run of ten.
        least_seconds: Seconds at least.
        most_seconds: Seconds at most.
        background_share: Of the time of sampling, for further climbs meanwhile.
        catching_up_share: The same while items are left that there was no time to look at.
        evaluations_a_draw: Evaluations of a draw, at the price of small batches.
        least_draws: Prior draws a model from which climbs are made.
        visited_models: Models that are looked at where there are too many to weigh all.
        least_points: Points of the chains in one of these: from fewer nothing can be told.
        first_look: Share of the time of sampling after which these are first looked at.
        alone_share: Of a look at subsets, for the parameters of one item at a time.
        seconds_alone: Seconds that are allowed for each of them, if ``left_share`` allows as much.
        draws_alone: Prior draws of an item in one look at least: a basin of a thousandth of its
            prior was met in 16 of 16 tries with 16 000 draws, .2 s of cheap likelihoods.
        alone: How these climb: in few dimensions there is little to climb, and prior draws are
            what counts. Chains know of a part of one item what they visit in proportion.
        most_draws: Most prior draws a model; 40 000 met the lost mode of 9 of 10 runs in 3 to 10
            dimensions.
        most_without_gradients: Most prior draws a model where they can't climb.
        crowd_share: Of that time, for a tempered population; the rest for prior draws.
        reopenings: Times that a run takes up what they have found, and looks again.
        look_again_share: Share of all the posterior, as it was weighed, that has to be found for
            another look before sampling; behind crumbs there are only crumbs, and chains are there.
        late_reopenings: Times that it does so once it samples, for what is met meanwhile.
        late_share: Share of all the posterior, by the run's draws, from which a part is worth it.
        climbs: How they climb.
    """

    spent_share: float = 0.2
    left_share: float = 0.1
    seconds_a_dimension: float = 0.5
    least_seconds: float = 1.0
    most_seconds: float = 4.0
    background_share: float = 0.08
    catching_up_share: float = 0.4
    evaluations_a_draw: int = 4
    least_draws: int = 1000
    visited_models: int = 4
    least_points: int = 6
    first_look: float = 0.15
    alone_share: float = 0.6
    seconds_alone: float = 0.3
    draws_alone: int = 16384
    alone: ScreeningPolicy = field(
        default_factory=lambda: ScreeningPolicy(
            kept_draws=64,
            summit_steps=8,
            climbing_share=1 / 32,
            census=1,
            known_fraction=0.4,
        )
    )
    most_draws: int = 1_000_000
    most_without_gradients: int = 2048
    crowd_share: float = 0.6
    reopenings: int = 4
    look_again_share: float = 0.02
    late_reopenings: int = 2
    late_share: float = 0.05
    climbs: ScreeningPolicy = field(default_factory=ScreeningPolicy)
