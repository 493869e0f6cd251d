"""The numbers of a run in rounds, each with what it was chosen by."""

from __future__ import annotations

from dataclasses import dataclass

from ..checks import Checked


@dataclass(frozen=True)
class Plan(Checked):
    """How a run in rounds is planned. No number has to do with time.

    Attributes:
        groups: Groups of chains that share nothing from the prior to the end.
        chains: Chains; chain c belongs to group c % groups.
        particles: Particles of the tempered populations of all listed models and groups.
        most_particles: Particles of one population at most.
        moves: Moves of a particle at each power.
        kept: Share of the points to keep effective at each power, over subsets and components.
        warm: Steps of each chain at each power there.
        climbs: Local optimisations from prior draws of each model, in search of modes.
        most_climbs: Local optimisations of all models together.
        sought: Evaluations of the continued search, over those of the last round.
        first: Steps of the first round; twice as many after it.
        measured: Steps by which a move between models is measured.
        learned: Times that normals are fitted to draws of the chains.
        growth: Length of the record over that a round before.
        normals: Normals of each model at most. Factor models reach half the error of 8 fitted to
            half as many draws in as many steps; other problems are as before.
        taught: Draws of each model that they are fitted to.
        remembered: Draws of all models together that runs over subsets and components learn from.
        weighed: Draws of the normals of each model for importance sampling.
        times: Autocorrelation times of the slowest quantity in a chain when a run ends; twice as
            many where the tests of drift and of groups are unclear, or the time grows.
        settled: Largest ratio of the autocorrelation time to that of the last quarter of the draws.
        slowing: The same of the slowest quantities, from which chains are to be twice as long.
        level: Level of the tests of drift and of groups, all quantities together.
        clear: Level above which these tests are clear.
        agree: Standard errors up to which two routes agree.
        variance: Variance of an indicator from which its own autocorrelation time counts.
        useful: Worth of a move over that of the best, from which its share is by worth.
        least: Share of other moves over that of the best.
        uniform: Share of jumps that go to any model with equal probability.
        most: Steps at most.
    """

    groups: int = 8
    chains: int = 512
    particles: int = 3000
    most_particles: int = 250
    moves: int = 12
    kept: float = 0.7
    warm: int = 3
    climbs: int = 40_000
    most_climbs: int = 80_000
    sought: float = 0.2
    first: int = 48
    measured: int = 12
    learned: int = 2
    growth: float = 1.35
    normals: int = 16
    taught: int = 4000
    remembered: int = 16_000
    weighed: int = 4096
    times: float = 5.0
    settled: float = 1.6
    slowing: float = 1.45
    level: float = 0.005
    clear: float = 0.05
    agree: float = 3.5
    variance: float = 0.02
    useful: float = 0.2
    least: float = 0.02
    uniform: float = 0.2
    most: int = 20_000
