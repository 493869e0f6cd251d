"""Every number by which a run is planned, with its unit, what it does and what chose it.

None of them touches what is right: a run is exact whatever they are. They trade time for precision
and memory. Where a field names a problem or a figure, that has chosen its number; the others were
set by judgement and kept while the benchmarks were run with them. Guards against rounding stand
where they are used; thresholds that users were told stand in :mod:`trjmcmc.promises`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any

from ..checks import Checked
from ..estimate.convergence import FEW_STARTS
from ..estimate.importance import FIRST_DRAWS, MOST_DRAWS
from ..fit.policy import TrainerPolicy
from ..pilot.policy import FewCallsPolicy
from .policy_of_capture import CapturePolicy
from .policy_of_components import ChainTemperingPolicy, CountedPolicy
from .policy_of_graphs import GraphPolicy
from .policy_of_screening import ScreeningBudget

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class ChainPolicy(Checked):
    """How many chains a run has.

    Attributes:
        of_given_draws: Chains of a run whose draws are counted by the user; sinh-arcsinh, coal
            mining and the robust regression side by side.
        fewest: Chains by which moves are measured at least in a run of open length.
        fewest_sampling: Chains that such a run samples with at least, where it has to be long and a
            step of fewer is cheaper: errors rest on the spread over chains.
        of_open_length: Chains of a run that ends by precision or time; the same three.
        through_a_map: The same with ``fit=True``, whose jumps forget in a few steps: a step of 1024
            costs 1.5 and 1.8 times one of 512 (conditional couplings, two and four models), and
            gives 1.3 and 1.2 times the effective draws a second. Of a black box it is the other.
        least_of_components: Fewest chains that warm up where components are counted.
        numbers_in_sums: Most numbers that the running sums of all chains may take where
            components are counted; 2**18 stay in a processor's cache.
        busy_step_seconds: Seconds a step from which more chains would gain nothing: all of the
            step is arithmetic then.
        relative_wait: Time to the end with more chains, relative to fewer, at most, for more to
            be taken: 512 chains made 133 000 effective draws a second on sinh-arcsinh, 4096 made
            403 000.
        steps_to_try: Steps that there must be time for, for other numbers of chains to be tried.
        steps_of_limited_evaluations: Steps at least that chains make where evaluations are
            limited; there are fewer chains then.
        evaluations_a_step: Likelihood calls of a step of the kernel of a trained map.
        warm_up_steps: Steps of a warm-up at least, where neither the user nor the choice says.
        memory_share: Share of a GPU's free memory that a step of all chains may take.
    """

    of_given_draws: int = 256
    fewest: int = 128
    fewest_sampling: int = 32
    of_open_length: int = 512
    through_a_map: int = 1024
    least_of_components: int = 64
    numbers_in_sums: int = 2**18
    busy_step_seconds: float = 0.02
    relative_wait: float = 0.9
    steps_to_try: int = 100
    steps_of_limited_evaluations: int = 100
    evaluations_a_step: int = 7
    warm_up_steps: int = 200
    memory_share: float = 0.8


@dataclass(frozen=True)
class StartPolicy(Checked):
    """Where chains start.

    Attributes:
        candidates: Prior draws tried for each chain that starts from the prior.
        share_of_calls: Of the likelihood calls left where these are limited, for such draws.
        least_possible_draws: Prior draws of finite density a chain from which no more are made.
        tempered_particles: Particles a model that starts are picked from where no pilot run was
            made.
        tempered_moves: Moves of each at each temperature.
        tempered_share: Of the time left, that tempering of a few of very many models may take: 90
            columns took 26 of 30 s without it.
        fewest_starts: Different prior draws that all chains descend from, below which every other
            one starts along a climb of its own: twice those below which a run is doubted.
        climbing_share: Of the time left, from which no further model is climbed: 64 climbs in 100
            coordinates take a second.
        covariance_cost: Models times coordinates cubed from which tempering, whose moves use
            covariances, costs more than it helps.
    """

    candidates: int = 64
    share_of_calls: float = 0.3
    least_possible_draws: float = 0.1
    tempered_particles: int = 64
    tempered_moves: int = 5
    tempered_share: float = 0.05
    fewest_starts: int = 2 * FEW_STARTS
    climbing_share: float = 0.1
    covariance_cost: float = 1e9


@dataclass(frozen=True)
class SharePolicy(Checked):
    """What parts of a limited run its stages may take.

    Attributes:
        fit: Of the time, or the evaluations, of a run with ``fit=True``, for the fit.
        fit_before_choice: The same of the time where moves are chosen after it, by ``fit="vi"``.
        sampling: Of the time, that pilot run, choice and warm-up leave for sampling.
        warm_up: Of the time left, for the warm-up by a standard or the user's kernel, and for
            weighing models before it.
        settling: Of the time left for choice and warm-up, for steps with the chosen kernel; then
            models are weighed.
        spot_audit: Of the time left, for an audit of the models of a large space that are
            visited most.
        symmetrised_bridge: Of the evaluations, or of the time left, for the symmetrised bridge.
    """

    fit: float = 0.75
    fit_before_choice: float = 0.4
    sampling: float = 0.35
    warm_up: float = 0.1
    settling: float = 0.5
    spot_audit: float = 0.2
    symmetrised_bridge: float = 0.1


@dataclass(frozen=True)
class SegmentPolicy(Checked):
    """Pilot segments: stretches of warm-up over which a kernel's efficiency is measured.

    Attributes:
        steps: Steps of the first segment of a kernel.
        least_steps: Steps of it in a run of few draws.
        most_steps: Most steps of a segment, and of burn-in.
        first_share: Of the time left, that a first segment may take.
        most_seconds: Seconds that any first segment may take, and a longer one in any case.
        share_of_sampling: Of the time that sampling would take, for a longer segment.
        trusted_autocorrelation_times: Length from which a segment needs no repetition.
        least_autocorrelation_times: Length from which a segment may decide that nothing else
            would be chosen, even if it overstates the efficiency.
        overstatement: Factor by which a short segment may overstate an efficiency: it misses
            corners of the posterior that are rarely left. Coal mining to .01 is warmed up in 2
            to 4 s with it, 3 to 5 s without.
        least_completed: Share of its steps below which a segment that ran out of time says
            nothing.
        states_kept: States of a segment that are kept, half of which may be trained on.
        probes: Steps by which the seconds of a step are found.
        probe_share: Of the time left, that a step may take of which more than one are probed.
    """

    steps: int = 40
    least_steps: int = 20
    most_steps: int = 2000
    first_share: float = 0.15
    most_seconds: float = 10.0
    share_of_sampling: float = 0.3
    trusted_autocorrelation_times: float = 5.0
    least_autocorrelation_times: float = 2.0
    overstatement: float = 3.0
    least_completed: float = 0.3
    states_kept: int = 12
    probes: int = 5
    probe_share: float = 0.01


@dataclass(frozen=True)
class ChoicePolicy(Checked):
    """How moves are chosen and mixed, and how long they burn in.

    Attributes:
        combined_share: Efficiency of all useful moves in turn, relative to the best one alone,
            from which they are preferred: together they guard against what a short segment has
            missed.
        useful_share: Of the best move's efficiency, from which another joins it.
        least_share: Of the steps, for each move between models that was not chosen.
        most_of_the_rest: Share of the time from which a move that was not chosen is left out.
        modes_share: Of the moves inside a model, for those between modes: coal mining 7.3 ms a
            step instead of 10.4 at the same autocorrelation time.
        burn_in_autocorrelation_times: Length of burn-in.
        burn_in_share: Of the time left, for burn-in at most.
        contradiction_nats: Gap between the halves of a small pilot run, from which it is
            enlarged before anything is fitted to it.
        survey_share: Of the time left for choice and warm-up, for such pilot runs at most.
        survey_seconds: Seconds beyond which they are not made larger still.
        proposed_precision: Standard error of a probability that training is judged by where the
            user asks for none.
        long_runs: Time until what is slowest is forgotten, over that until a probability is
            precise, from which fewer chains are better.
        inside_gain: Gain in efficiency for which further moves inside models are taken up.
        inside_share: Of the time that sampling would take, that they may be tried for.
        inside_late_share: The same, once sampling is slower than they had promised.
        second_thoughts: Times that a run is reconsidered.
        fits_of_marginals: Times that marginals of the coordinates are fitted.
        marginal_price: Seconds of such a fit, a coordinate.
        broken_promise: Seconds of sampling to go, over those that the moves had promised for all of
            it, from which others are tried.
        most_of_the_time_left: Share of the time left that sampling may take for none to be tried.
        seconds_to_reconsider: Seconds of sampling to go, from which moves inside models are tried
            again then.
        forgotten_share: Of a run whose length is given, within which what is slowest is forgotten
            soon enough for no further moves to be tried.
        inside_steps: Steps of a segment beyond which it is not made longer to find out how slow
            the slowest is.
        hmc_first_coordinates: Coordinates from which HMC is tried before moves through fitted
            normals, which take a fifth of the time there and hardly move.
        inside_segments: Segments by which moves that learn are tuned before they are measured.
    """

    combined_share: float = 0.8
    useful_share: float = 0.1
    least_share: float = 0.02
    most_of_the_rest: float = 0.1
    modes_share: float = 0.25
    burn_in_autocorrelation_times: float = 3.0
    burn_in_share: float = 0.2
    contradiction_nats: float = 2.0
    survey_share: float = 0.3
    survey_seconds: float = 30.0
    proposed_precision: float = 0.01
    long_runs: float = 2.0
    inside_gain: float = 1.2
    inside_share: float = 0.12
    inside_late_share: float = 0.35
    second_thoughts: int = 3
    fits_of_marginals: int = 4
    marginal_price: float = 0.02
    broken_promise: float = 1.5
    most_of_the_time_left: float = 0.9
    seconds_to_reconsider: float = 20.0
    forgotten_share: float = 0.3
    inside_steps: int = 160
    hmc_first_coordinates: int = 20
    inside_segments: int = 2


@dataclass(frozen=True)
class KernelPolicy(Checked):
    """What the kernels of a run are made of.

    Attributes:
        births_a_walk: Births or deaths a walk of a component: two are jointly best on pulses and
            galaxies.
        walks: Random walks a step: cheap, and four halve the autocorrelation time.
        uniform_share: Share of the proposals between models that ignores evidences, so that no
            model is starved.
        jump_rho: Correlation of the reference between two jumps of the default kernel: best of
            .8, .95 and 1 on coal mining.
        laplace_rho: The same through Laplace's normals: as good as 0 on exact maps, better on
            the robust regression.
        fresh_share: Share of jumps and moves with independent reference noise: an untrained map
            mixes through nothing else.
        swap_share: Share of the proposals among neighbours that exchange two items.
        local_share: Share of births and deaths that lead to neighbours, where models are few.
        marginal_components: Normals by which each coordinate's marginal is fitted.
        kinds_of_models: Kinds of sets of units that jumps far away come from.
        marginal_shares: Shares of births and deaths by marginals, of such jumps, of new values.
    """

    births_a_walk: int = 2
    walks: int = 4
    uniform_share: float = 0.2
    jump_rho: float = 0.95
    laplace_rho: float = 0.7
    fresh_share: float = 0.1
    swap_share: float = 0.3
    local_share: float = 0.5
    marginal_components: int = 4
    kinds_of_models: int = 4
    marginal_shares: tuple[float, float, float] = (0.4, 0.2, 0.4)


@dataclass(frozen=True)
class MapPolicy(Checked):
    """Which map a sampler takes where none is given.

    Attributes:
        most_laplace_coordinates: Coordinates up to which many models are mapped by Laplace's
            method: curvatures cost their cube.
        layers: Couplings of the flow elsewhere.
        hidden: Widths of the layers of each of its conditioners.
        layers_in_laplace: Couplings of the flow inside Laplace's map.
    """

    most_laplace_coordinates: int = 64
    layers: int = 8
    hidden: tuple[int, ...] = (64, 64)
    layers_in_laplace: int = 4


@dataclass(frozen=True)
class NormalsPolicy(Checked):
    """Maps that need no training: normals fitted to draws, and Laplace's method.

    Attributes:
        quick_components: Normals a model of each quick fit.
        quick_share: Of the time left, that a quick fit may take to be made a second time.
        inside_components: Normals a model of fits for moves inside models: of a thin ridge in two
            dimensions 32 leave 18 % of their draws effective, 64 40 %, 128 60 % and more.
        crowd_share: Of the time for trying moves inside models, for draws of such fits.
        draws_a_component: Draws a model of such a fit, for each normal.
        seconds_a_number: Price of such a fit, times normals, draws and dimensions.
        fine_components: Normals a model of a fit that takes its time; the factor model forgets
            in 30 steps instead of 200 to 600.
        fine_draws: Draws a model of such a fit.
        fine_price: Seconds of it in those of a quick fit.
        fine_gain: Factor by which it is hoped to raise the efficiency.
        priced_models: Models whose price under Laplace's method is taken.
        new_models: Share of the models on a walk that no chain has seen before.
    """

    quick_components: tuple[int, ...] = (4, 8)
    quick_share: float = 0.1
    inside_components: tuple[int, ...] = (32, 64, 128)
    crowd_share: float = 0.25
    draws_a_component: int = 160
    seconds_a_number: float = 1e-6
    fine_components: int = 16
    fine_draws: int = 10_000
    fine_price: float = 20.0
    fine_gain: float = 4.0
    priced_models: int = 64
    new_models: float = 0.3


@dataclass(frozen=True)
class RoundPolicy(Checked):
    """When a map is trained, and for how long.

    Attributes:
        first_round_steps: Training steps of the first round; each one has twice as many as the
            last.
        rounds: Most rounds.
        least_step_seconds: Seconds of a training step at least: nothing is priced where these
            are too many.
        pricing_seconds: Seconds that finding the price of a step takes; the first optimiser of a
            process is slow.
        hoped_efficiency: Of the ideal efficiency, that a trained map is hoped to reach; .04 to
            .5 were seen.
        hoped_memory: Steps in which what is slowest is hoped to forget through a trained map.
        round_share: Of the time left, that a round may take.
        audit_share: Of the time left, for the audit of a round.
        mending_share: Of the time left, after which no mending begins.
        new_models_a_step: Models that are new to a map in a step of its training.
        taught_draws: Draws of a run that a map may be trained on.
        replayed_points: Points of a warm-up that are kept to train on, about.
    """

    first_round_steps: int = 500
    rounds: int = 3
    least_step_seconds: float = 0.005
    pricing_seconds: float = 3.0
    hoped_efficiency: float = 0.15
    hoped_memory: float = 10.0
    round_share: float = 0.5
    audit_share: float = 0.2
    mending_share: float = 0.3
    new_models_a_step: int = 100
    taught_draws: int = 20_000
    replayed_points: int = 20_000


@dataclass(frozen=True)
class StoppingPolicy(Checked):
    """When precision is looked at, and when a run looks back.

    Attributes:
        look_back_seconds: Seconds of sampling before which moves and training are not reconsidered.
        look_back_share: Of the time left, at which it is at the latest.
        look_back_growth: Factor on that time, after which it is looked at again.
        message_seconds: Seconds between messages of a progress bar.
        least_growth: Relative length of a run at the next look at its precision, at least.
        most_growth: The same, at most.
        rhat_share: Of the time, for R-hat that a progress bar shows.
    """

    look_back_seconds: float = 10.0
    look_back_share: float = 0.1
    look_back_growth: float = 2.5
    message_seconds: float = 0.5
    least_growth: float = 1.05
    most_growth: float = 1.5
    rhat_share: float = 0.02


@dataclass(frozen=True)
class WeighingPolicy(Checked):
    """Importance draws by which models are weighed; fewer if they bring .005 nats.

    Attributes:
        most_draws: Most draws of a map, of each of few models.
        most_of_normals: The same of normals that were fitted for jumps: more would not make these
            better.
        most_of_many: The same of each visited model of many.
    """

    most_draws: int = MOST_DRAWS
    most_of_normals: int = FIRST_DRAWS
    most_of_many: int = 2 * FIRST_DRAWS


@dataclass(frozen=True)
class SummingUpPolicy(Checked):
    """How a run that is limited by time keeps some for its result.

    Attributes:
        rehearsed: Shares of the time left after which summing up is rehearsed on early draws.
        rehearsal_share: Of the time left, that a first rehearsal may take for a second to follow.
        share: Of the time left, that summing up may grow to; beyond it draws are thinned.
        priced_draws: Draws of a map whose price is taken.
        interrupted_seconds: Seconds of sampling where the user has interrupted what comes
            before it.
    """

    rehearsed: tuple[float, float] = (0.15, 0.3)
    rehearsal_share: float = 0.1
    share: float = 0.08
    priced_draws: int = 64
    interrupted_seconds: float = 1.0


@dataclass(frozen=True)
class ThreadPolicy(Checked):
    """How a run finds out whether one thread is faster than many.

    Attributes:
        trials: Trials of each number of threads, the fastest of which counts.
        trial_share: Of the time left, for all of them.
    """

    trials: int = 3
    trial_share: float = 0.05


@dataclass(frozen=True)
class Policy(Checked):
    """How a run is planned: :class:`~trjmcmc.TRJSampler` takes one as ``policy``.

    Attributes:
        chains: How many chains.
        starts: Where they start.
        shares: What parts of a limited run its stages may take.
        segments: How kernels are measured.
        choice: How moves are chosen and mixed.
        kernels: What the kernels are made of.
        maps: Which map is the default.
        normals: Maps that need no training.
        training: When a map is trained.
        counted: The warm-up of runs that count components.
        graphs: Runs over graphs.
        tempering: How their chains are carried from the prior.
        stopping: When precision is looked at.
        screening: What is spent on climbs of prior draws.
        weighing: How many draws weigh a model.
        summing_up: What time is kept for the result.
        threads: How many threads are tried.
        few_calls: How importance sampling goes on where calls are few.
        fit: What a fit spends where, pilot runs and audits included.
        capture: When steps are captured and compiled.

    Example:
        >>> policy = Policy(training=RoundPolicy(first_round_steps=200, rounds=1))
        >>> policy.training.rounds, policy.segments.steps
        (1, 40)
        >>> policy.table().loc["training.first_round_steps", "value"]
        200
    """

    chains: ChainPolicy = field(default_factory=ChainPolicy)
    starts: StartPolicy = field(default_factory=StartPolicy)
    shares: SharePolicy = field(default_factory=SharePolicy)
    segments: SegmentPolicy = field(default_factory=SegmentPolicy)
    choice: ChoicePolicy = field(default_factory=ChoicePolicy)
    kernels: KernelPolicy = field(default_factory=KernelPolicy)
    maps: MapPolicy = field(default_factory=MapPolicy)
    normals: NormalsPolicy = field(default_factory=NormalsPolicy)
    training: RoundPolicy = field(default_factory=RoundPolicy)
    counted: CountedPolicy = field(default_factory=CountedPolicy)
    graphs: GraphPolicy = field(default_factory=GraphPolicy)
    tempering: ChainTemperingPolicy = field(default_factory=ChainTemperingPolicy)
    stopping: StoppingPolicy = field(default_factory=StoppingPolicy)
    screening: ScreeningBudget = field(default_factory=ScreeningBudget)
    weighing: WeighingPolicy = field(default_factory=WeighingPolicy)
    summing_up: SummingUpPolicy = field(default_factory=SummingUpPolicy)
    threads: ThreadPolicy = field(default_factory=ThreadPolicy)
    few_calls: FewCallsPolicy = field(default_factory=FewCallsPolicy)
    fit: TrainerPolicy = field(default_factory=TrainerPolicy)
    capture: CapturePolicy = field(default_factory=CapturePolicy)

    def table(self) -> pd.DataFrame:
        """Every number of the policy.

        Returns:
            Indexed by name, such as ``"training.rounds"``, with the columns ``value`` and
            ``meaning``.
        """
        import pandas as pd

        rows = {name: (value, text) for name, value, text in _numbers(self, "")}
        return pd.DataFrame.from_dict(rows, orient="index", columns=["value", "meaning"])


def _numbers(policy: Any, prefix: str) -> Iterator[tuple[str, Any, str]]:
    """Names, values and meanings of a policy's numbers and of those nested in it."""
    text = inspect.getdoc(type(policy)) or ""
    listed = re.search(r"^Attributes:\n((?:    .*\n?|\n)+)", text, re.MULTILINE)
    entries = re.findall(r"^    (\w+): ((?:.|\n     )+)", listed[1] if listed else "", re.MULTILINE)
    meaning = {name: " ".join(words.split()) for name, words in entries}
    for item in fields(policy):
        value = getattr(policy, item.name)
        if is_dataclass(value):
            yield from _numbers(value, f"{prefix}{item.name}.")
        else:
            yield f"{prefix}{item.name}", value, meaning[item.name]
