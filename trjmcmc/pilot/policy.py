"""How pilot runs are planned: sizes, shares of the time, and what chose each number.

Numbers that guard arithmetic stand where they are used; thresholds that reports promise stand in
:mod:`trjmcmc.pilot.report`. What no measurement chose says what it trades off.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..checks import Checked


@dataclass(frozen=True)
class MovePolicy(Checked):
    """How the chains of one temperature of a tempered run move.

    Attributes:
        log_length_sd: Standard deviation of the log length of a walk. Wide, so that some walks fit
            a narrow mode and some a broad one; wider wastes more of them.
        difference_share: Share of the walks along the difference of two particles, which leads
            between modes; the others go along the covariance, which fits one mode.
        whole_difference_share: Share of the former that are as long as the difference itself: only
            those arrive in the other mode.
        difference_noise: Noise beside a difference, in units of a walk along the covariance:
            particles of one line would never leave it.
        trajectory_gain: Factor by which a trajectory must outdo a walk in the worst coordinate to
            replace every other one. Measured 4 to 60 on factor analysis (errors ten times
            smaller), below 1 on coal mining (nothing gained).
    """

    log_length_sd: float = 1.0
    difference_share: float = 0.5
    whole_difference_share: float = 0.3
    difference_noise: float = 0.02
    trajectory_gain: float = 2.0


@dataclass(frozen=True)
class TemperingPolicy(Checked):
    """How a tempered sequential Monte Carlo run spends memory, evaluations and time.

    Attributes:
        most_stored_points: Points kept over all models and temperatures, about: memory against the
            error of what is weighed from them.
        most_stored_numbers: Numbers of all kept points beyond which every other point is dropped
            (float32: half a gigabyte).
        usual_temperatures: Temperatures that a run takes: more of them keep fewer points of each.
        polish_rounds: Rounds of moves at temperature 1 after the first.
        polish_rounds_within_budget: The same where evaluations are limited.
        most_leapfrog_steps: Leapfrog steps of a trajectory; its length is uniform from half of it.
        walks_a_trajectory: Walks that are given up for a trajectory: about its price.
        trajectory_acceptance: Acceptance rate to which the step of trajectories is tuned: lower
            means longer steps, more of them refused.
        moves: How chains move.
    """

    most_stored_points: int = 4_000_000
    most_stored_numbers: float = 128_000_000
    usual_temperatures: int = 20
    polish_rounds: int = 3
    polish_rounds_within_budget: int = 1
    most_leapfrog_steps: int = 8
    walks_a_trajectory: int = 5
    trajectory_acceptance: float = 0.75
    moves: MovePolicy = MovePolicy()


@dataclass(frozen=True)
class AuditPolicy(Checked):
    """How large an audit is, and how much of it scores a map.

    Attributes:
        particles_in_all: Chains of the first round, shared by all models and replicates. Four
            replicates of 1000 particles give the log evidences of factor analysis to .1 in 18 s.
        fewest_particles: Of them a model and replicate, however many models there are.
        most_particles: The same, however few: more rounds follow where halves disagree.
        moves: Moves of each chain at each temperature: fewer need more temperatures, more wait
            longer at each.
        relevant_probability: Posterior probability from which the halves of a model must agree:
            rarer models would take most of the time and change no answer.
        longest_seconds: Seconds of audit after which it does not grow again: a user waits.
        scored_draws: Held-out draws a model that score a map: the share that it covers is then
            known to .4 percent.
        draws_per_model: Draws a model for training.
        draws_in_all: Draws for training, all models together: memory.
        tempering: How its runs are planned.
    """

    particles_in_all: int = 24_000
    fewest_particles: int = 100
    most_particles: int = 1000
    moves: int = 30
    relevant_probability: float = 0.01
    longest_seconds: float = 120.0
    scored_draws: int = 4000
    draws_per_model: int = 50_000
    draws_in_all: int = 1_000_000
    tempering: TemperingPolicy = TemperingPolicy()

    def particles(self, runs: int) -> int:
        """Chains of each of so many runs in the first round."""
        each = self.particles_in_all // max(runs, 1)
        return min(self.most_particles, max(self.fewest_particles, each))


@dataclass(frozen=True)
class SurveyPolicy(Checked):
    """How audits are sized by the price of a likelihood and by the time left.

    Attributes:
        particles_in_all: Particles of a survey, shared by all models and replicates: a tenth of an
            audit's, since it decides only where to start and what to train.
        fewest_particles: Of them a model and replicate, at least where time allows.
        most_particles: The same at most.
        moves: Moves of each particle at each temperature.
        longest_seconds: Seconds that a survey takes where likelihoods are expensive, about.
        planned_temperatures: Temperatures, the prior included, that a limited audit is planned for.
        overhead: Price of a tempered run over that of its likelihoods alone, gradients included.
        priced_evaluations: Evaluations whose price is taken, in one batch as large as the chains'.
        mode_draws: Draws of a model in which modes are searched: a mode of one percent has 20.
        audit: How audits are planned.
    """

    particles_in_all: int = 2400
    fewest_particles: int = 25
    most_particles: int = 300
    moves: int = 20
    longest_seconds: float = 60.0
    planned_temperatures: int = 9
    overhead: float = 4.0
    priced_evaluations: int = 256
    mode_draws: int = 2000
    audit: AuditPolicy = AuditPolicy()

    def particles(self, runs: int) -> int:
        """Particles of each of so many runs of a survey."""
        each = self.particles_in_all // max(runs, 1)
        return min(self.most_particles, max(self.fewest_particles, each))


@dataclass(frozen=True)
class WalkPolicy(Checked):
    """How chains walk through a part of one model.

    Attributes:
        walkers: Chains that walk from a summit, but four for each coordinate at least.
        steps: Steps of each.
        recorded_steps: The last of them, whose points are kept.
        searching_steps: The first of them, the same length along all coordinates; later ones are
            as long in each direction as the walkers are spread. Parts a thousand times wider one
            way than another weighed e^-4 to e^-60 of their mass without.
        first_length: Length of the first of them in units of the prior's spread: short, since a
            narrow mode is what was lost.
        growth: Factor on that length after a step that was taken.
        shrinkage: The same after one that was not; with ``growth``, 29 % are taken.
        haste: Power of both in the first steps.
        steps_a_spread: Steps between two looks at the spread.
    """

    walkers: int = 128
    steps: int = 80
    searching_steps: int = 16
    recorded_steps: int = 20
    first_length: float = 0.01
    growth: float = 1.3
    shrinkage: float = 0.9
    haste: float = 5.0
    steps_a_spread: int = 2


@dataclass(frozen=True)
class ScreeningPolicy(Checked):
    """How prior draws climb, and how what lies about a summit is weighed.

    With these numbers 40 000 draws met the lost mode of 9 of 10 runs in 3 to 10 dimensions, with
    its mass right to a few percent, and nothing on five problems where none was lost
    (``benchmarks/alarms.py`` times the climbs).

    Attributes:
        kept_draws: Draws of the most mass, or that have climbed highest, held against the maps.
        first_lengths: Lengths tried in the one step that every draw makes, in units of half the
            draws' spread: few, since all pay for them.
        lengths: Lengths tried in a later step, in units of the last one.
        climbing_share: Share of a batch that goes on after that step, but ``kept_draws`` at least.
        climbing_steps: Further steps of these.
        summit_steps: Further steps of the highest.
        followed: Draws that climb to the end however low they lie: what is wide but low is met by
            these.
        draws_a_climb: Prior draws for each of these at least.
        most_parts: Summits about which parts are weighed, at most.
        walk: How chains walk from a summit: their spread is its extent.
        weighing_draws: Draws of a normal by which what lies about a summit is weighed.
        weighing_width: Width of that normal over that of the walkers' points: wider costs draws,
            narrower misses the tails.
        neighbourhood_sds: Standard deviations of a squared distance within which a point of the
            run's chains belongs to the summit.
        known_fraction: Fraction of the share it should have among the run's points from which
            they know the summit.
    """

    kept_draws: int = 512
    first_lengths: tuple[float, ...] = (1.0, 0.25)
    lengths: tuple[float, ...] = (4.0, 1.0, 0.25, 0.06, 0.015)
    climbing_share: float = 1 / 8
    climbing_steps: int = 2
    summit_steps: int = 12
    followed: int = 1024
    draws_a_climb: int = 8
    most_parts: int = 8
    walk: WalkPolicy = field(default_factory=WalkPolicy)
    weighing_draws: int = 2048
    weighing_width: float = 1.3
    neighbourhood_sds: float = 3.0
    known_fraction: float = 0.1


@dataclass(frozen=True)
class FewCallsPolicy(Checked):
    """How importance sampling goes on where likelihood calls are few.

    Attributes:
        share: Of the calls, for finding proposals at most: growth curves of four parameters,
            1000 calls a model, are within .08 nats in 36 of 36 tries; 450 of 1000 were too few.
        time_share: Of the time of a run, that calls may take where it has a limit of time alone.
        prior_share: Of the calls of a model, for draws of its prior.
        rounds: Rounds in which the rest is spent.
        draws_a_dimension: Draws of a round at least, a dimension and one.
        points_a_fit: Effective points, a dimension and one, from which a proposal is fitted.
        points_a_component: The same, for each further component.
        components: Most t distributions of a proposal.
        tail_scales: Widths of the normals that stand for a t distribution.
        tail_shares: Their weights.
        widening: Relative variance that a fit to n effective points in d dimensions is widened
            by, times n / d.
        fitted_draws: Resampled draws of a fit.
        good_share: Effective draws over draws at which a proposal is good enough.
        alone: Draws of it from which these alone weigh its model: a fit to what it weighs itself
            is .04 nats off.
    """

    share: float = 0.7
    time_share: float = 0.85
    prior_share: float = 0.15
    rounds: int = 30
    draws_a_dimension: int = 4
    points_a_fit: float = 2.0
    points_a_component: float = 15.0
    components: int = 4
    tail_scales: tuple[float, ...] = (1.0, 1.7, 3.5)
    tail_shares: tuple[float, ...] = (0.75, 0.2, 0.05)
    widening: float = 1.0
    fitted_draws: int = 2000
    good_share: float = 0.7
    alone: int = 400
