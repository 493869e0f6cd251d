"""Numbers by which runs over exchangeable components are planned; see :mod:`.policy`."""

from __future__ import annotations

from dataclasses import dataclass

from ..checks import Checked


@dataclass(frozen=True)
class CountedPolicy(Checked):
    """The warm-up of runs that count components.

    Attributes:
        warm_up_share: Of the time left, for all of it.
        most_seconds: Seconds of it where no limit is set.
        least_segment_share: Of the time that a segment is given, that it lasts at least where a
            limit is set: short ones overstate. Pulses, 180 s: no chain at a wrong count.
        segment_share: Of the time left, that any segment may take.
        assumed_seconds: Seconds left that this share is taken of where no limit is set.
        settled_errors: Change between halves of a segment, in standard errors, that is no drift.
        fits: Most times that normals are fitted to better draws.
        gain_a_fit: Efficiency relative to the last fit, from which it is fitted again.
        components: Normals a model of that fit.
        numbers_in_covariances: Most numbers that their covariances may take.
        unvisited_share: Of the jumps, to models by their prior.
        accepted_splits: Acceptance rate from which splits and merges are worth their time.
        jumps: Jumps a step.
        rho: Correlation of the reference between two jumps.
        fresh_share: Of these jumps, with independent reference noise.
        burn_in_autocorrelation_times: Length of burn-in: tempering starts with too few
            components, and errors do not see it.
        ladder_share: Of the warm-up's time after tempering, for replicas where they may be needed.
        accepted_normals: Acceptance rate from which replicas jump through normals too.
        patience: Seconds of sampling from which chains count as slow where no limit is set.
        rungs_a_barrier: Replicas of a chain that forgets slowly a unit of the barrier between the
            first and the last power: two are best, by Syed et al. (2021).
        least_rungs: Fewest replicas of a chain, itself one of them.
        most_rungs: Most of them.
        least_ladders: Fewest chains with replicas.
        empty_share: Of the chains that have no components at a power: they start afresh there.
        melting: Last power relative to the highest of these. Components that were found are lost
            at lower powers than chains find them at; from .15 on, a star with two planets made
            a round trip a replica and minute, from .5 on none.
        states_kept: States of a segment that are kept, half of which may be fitted to.
    """

    warm_up_share: float = 0.4
    most_seconds: float = 20.0
    least_segment_share: float = 0.5
    segment_share: float = 0.02
    assumed_seconds: float = 50.0
    settled_errors: float = 3.0
    fits: int = 4
    gain_a_fit: float = 1.2
    components: int = 8
    numbers_in_covariances: float = 5e6
    unvisited_share: float = 0.05
    accepted_splits: float = 0.005
    jumps: int = 2
    rho: float = 0.5
    fresh_share: float = 0.5
    burn_in_autocorrelation_times: float = 10.0
    ladder_share: float = 0.3
    accepted_normals: float = 0.01
    patience: float = 120.0
    rungs_a_barrier: float = 2.0
    least_rungs: int = 4
    most_rungs: int = 16
    least_ladders: int = 32
    empty_share: float = 0.1
    melting: float = 0.15
    states_kept: int = 200


@dataclass(frozen=True)
class ChainTemperingPolicy(Checked):
    """How chains that count components are carried from the prior to the posterior.

    Attributes:
        steps: Most steps at each power of the likelihood.
        least_steps: Fewest, where time is short.
        planned_powers: Powers that there is to be time for.
        kept_chains: Share of the effective chains that a change of the power keeps.
    """

    steps: int = 20
    least_steps: int = 2
    planned_powers: int = 60
    kept_chains: float = 0.9
