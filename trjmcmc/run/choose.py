"""Classical moves at once, training only while it pays, and the best of both by measurement."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from typing import Any

from torch import Tensor

from .. import clock
from ..draws import Pool
from ..errors import ConfigurationError
from ..kernel.base import Kernel, State
from ..kernel.between.split import SplitMerge
from ..kernel.compose import Cycle, MixtureKernel
from ..kernel.inside.random_walk import RandomWalk
from ..progress import progress_bar
from ..result.report import Plan
from ..transport.base import Transport
from ..transport.laplace import Laplace
from .bench import Bench
from .chains import chains_for
from .choice import Choice
from .decide import (
    Names,
    burn_in,
    clearly_best,
    hope_after_a_round,
    least_seconds_of_a_round,
    longer_segment,
    no_time_to_train,
    rivals,
    sampling_ends_first,
    seconds_saved,
    seconds_to_meet_models,
)
from .gibbs import offer_gibbs
from .knowledge import Knowledge
from .laplace_walks import laplace_walks
from .loop import first_of
from .maps import laplace_fits
from .marginals import marginals_fit, offer_marginals
from .moves import between_modes, birth_death, informed_moves, laplace_moves
from .normals import FittedNormals
from .race_inside import InsideRace
from .request import Request
from .segment import Segment


class Chooser:
    """Chooses the kernel of a run, and trains the map while that saves time.

    Arguments:
        request: What the user asks of the run.
        known: What is known of the target. A map that is ready is used as it is; else it is
            trained if that pays.
        state: Chains.
        ancestor: Index of the independent draw that each descends from, shape (C,).

    Attributes:
        bench: What was measured so far, and where the chains are.
        plan: What was chosen.
        chosen: The segment of what was chosen, if anything was.
    """

    tempers = False  # whether chains start from the prior over models and parameters

    def __init__(
        self,
        request: Request,
        known: Knowledge,
        state: State,
        ancestor: Tensor,
    ) -> None:
        self.request, self.policy, self.ready = request, known.policy, known.ready
        self.strategy, self.guess = known.strategy, known.guess
        self.trainer, self.target, self.transport = known.trainer, known.target, known.transport
        self.generator = known.generator
        self.adapt_by = request.adapt_by(self.policy.shares.sampling)
        # a map of very many models is a gamble
        self.uses_all_time = request.uses_all_time and known.fitted.few
        self.plan = Plan(automatic=True)
        self.chosen: Segment | None = None
        self.bench = Bench(
            self.target,
            state,
            ancestor,
            self._inside,
            generator=self.generator,
            policy=self.policy,
            states_kept=self._states_kept,
            worth=self._worth,
            on_steps=self._advance_bar,
        )
        self._bar: Any = None
        self._map: Transport | None = None  # normals that were fitted to draws
        self._best: Names | None = None  # the moves that were chosen
        self.normals = FittedNormals(self.trainer, self.bench, self.policy)
        self._exact = False  # whether the log joint is quadratic: nothing is left to learn
        self._reconsidered = 0
        self._model_price = 0.0  # seconds that a model costs the map when it is new to it
        self._step_price: float | None = None  # seconds of a training step
        self._paces_with_map: dict[int, float] = {}  # seconds of a step through it, by chains

    @property
    def _states_kept(self) -> int:
        return self.policy.segments.states_kept

    @property
    def _burn_in_times(self) -> float:
        return self.policy.choice.burn_in_autocorrelation_times

    @property
    def _fewest_chains(self) -> int:
        chains = self.policy.chains  # steps of Gibbs moves cost little more with many
        return chains.fewest if self._exact else chains.fewest_sampling

    def _advance_bar(self, steps: int) -> None:
        if self._bar is not None:
            self._bar.update(steps)

    @contextmanager
    def _with_bar(self) -> Iterator[None]:
        shown = self.request.progress
        with progress_bar(shown, desc="warm-up", unit="step") as bar:
            self._bar = bar if shown else None
            yield

    # ---- what is asked of it ----------------------------------------------------------------

    def choose(self) -> Choice:
        """Measure, train while it pays, and give the kernel to sample with."""
        with self._with_bar():
            return self._choose()

    @property
    def goes_on(self) -> bool:
        """Whether what was chosen is as good where its maps learn of further parts."""
        return self._best is not None and not self.ready and not self.plan.rounds

    def again(self, state: State, ancestor: Tensor) -> Choice:
        """What was chosen, through maps that know of further parts; arguments as of the class."""
        bench, chains = self.bench, len(self.bench.state.code)
        assert self._best is not None
        self._survey_more()
        bench.move_to(first_of(state, chains), ancestor[:chains])
        if self.normals.kept is not None:
            self._map = self.normals.fit_again(self.guess)
        with self._with_bar():
            bench.measure_named(self._best, *self._first())
            again = self._pilot_contradicts_itself()
            return self._chosen(self._train(self._best) if again else self._best)

    def so_far(self) -> Kernel | None:
        """The best kernel that was measured, where the user has interrupted; None if none was."""
        best = self.bench.best_known()
        return None if best is None else self._chosen(best).kernel

    def after_all(self, state: State, seen: Pool, seconds: float) -> Choice:
        """Change moves, or train, where sampling has shown that what was chosen is slower.

        Arguments:
            state: Where the chains are.
            seen: Points of the run so far, to fit and to train on.
            seconds: That sampling on as it is would take.
        """
        self.bench.move_to(first_of(state, self.request.chains))  # efficiencies are of as many
        first = self.policy.training.first_round_steps
        self.normals.learn(seen)
        best = self._leader()
        with self._with_bar():
            if self._moves_may_change(seconds):
                if self._has_marginals:
                    self._offer_marginals(seen)
                    best = self._leader()
                self._race_inside(best, self.policy.choice.inside_late_share)
                seconds = self.request.until_done(self.bench.found[best])
            if self._training_may_pay(seconds):
                self._round(first, seen)
                best = self._train(self._race(), 2 * first)
        self._reconsidered += 1
        return self._chosen(best)

    def has_ideas(self, seconds: float) -> bool:
        """Whether sampling that has so many seconds to go is worth stopping to choose again."""
        if clock.now() > self.adapt_by or self._reconsidered >= self.policy.choice.second_thoughts:
            return False
        return self._moves_may_change(seconds) or self._training_may_pay(seconds)

    def _moves_may_change(self, seconds: float) -> bool:
        """Whether some were left out, and the chosen ones take far longer than they promised."""
        policy, found = self.policy.choice, self.chosen
        first = not self._reconsidered and self._has_marginals
        if found is None or not (first or self._inside_race.left_out):
            return False
        promised = policy.broken_promise * self.request.until_done(found)
        too_long = min(promised, policy.most_of_the_time_left * self.request.left())
        return seconds > max(policy.seconds_to_reconsider, too_long)

    @property
    def _has_marginals(self) -> bool:
        return marginals_fit(self.target) and self.trainer.fitted.audit is None

    def _training_may_pay(self, seconds: float) -> bool:
        return self.trainable and seconds > self.training_price()

    def training_price(self) -> float:  # seconds of a first round
        return self._round_price(self.policy.training.first_round_steps)

    def chains_for(self, choice: Choice, state: State) -> int:
        """How many chains to go on with; see :func:`chains_for`."""
        mine = self._pace, self._burn_in_times, self.uses_all_time, self._fewest_chains
        return chains_for(choice, state, self.request, self.policy, *mine)

    # ---- choosing ---------------------------------------------------------------------------

    def _choose(self) -> Choice:
        if not self.target.dim:
            known = self.guess(), self.policy.kernels, self.trainer.fitted.weights
            measured = self.bench.measure(birth_death(self.target, *known), *self._first())
            return self._choice(measured[1], None)
        self._survey_more()
        if not self.target.space.several:
            return self._choose_alone()
        if self.ready:  # first, for what is measured first stays where time is short
            self._offer("jump", self._jump())
        if self.trainer.fitted.audit is None:
            self._exact = offer_gibbs(self.bench, self.policy.kernels, self._offer)
        (self._offer_laplace if self._exact else self._offer_all)()
        best = self._leader()
        slow = self.request.takes_long(self.bench.found[best], self.policy.choice)
        if self._exact and slow and self._has_marginals:
            self._offer_marginals()  # sweeps hardly lead to sets without common items
            best = self._leader()
        self._race_inside(best)
        if not self.ready:  # short segments overstate, so that what pays beside them does pay
            best = self._train(best)
        if not self.plan.rounds:
            best = self._race()
            best = best if self.ready else self._train(best)
        return self._chosen(best)

    def _survey_more(self) -> None:
        """Enlarge a pilot run that contradicts itself."""
        if self._pilot_contradicts_itself():
            choice = self.policy.choice
            self.trainer.survey_again(
                choice.contradiction_nats,
                most_seconds=min(choice.survey_share * self._room, choice.survey_seconds),
                progress=self.request.progress,
            )

    def _offer_all(self) -> None:
        """Every move between models that fits."""
        self._offer("birth-death", birth_death(self.target, self.guess(), self.policy.kernels))
        if SplitMerge.fits(self.target):
            self._offer("split-merge", SplitMerge(self.target))
        if self.trainer.fitted.audit is not None:
            self._offer_normals()
            return
        with suppress(ConfigurationError):  # where it does not fit
            self._offer("informed", informed_moves(self.target, self.policy.kernels))
        self._offer_laplace()
        if self._has_marginals:
            self._offer_marginals()

    def _choose_alone(self) -> Choice:
        """The kernel of a single model: what is slowest in it decides."""
        if self.trainer.fitted.audit is not None:
            self._map = self.normals.quick()
        if self.ready:
            self._offer("jump", self._jump())
        best = self._leader()
        self._race_inside(best)
        best = self._race()
        return self._chosen(best if self.ready else self._train(best))

    def _race_inside(self, best: Names, share: float = 0.0) -> None:
        """Try further moves inside models that follow these between them."""
        if self._exact:  # coefficients are drawn with the units
            return
        self._inside_race.run(best, *self._first(), share)

    @cached_property
    def _inside_race(self) -> InsideRace:
        refit = None if self.trainer.fitted.audit is None else self.normals.finely
        return InsideRace(self.bench, self.request, self.target, self._map, refit, self.policy)

    def _inside(self) -> list[Kernel]:
        """Moves inside models that owe nothing to a map."""
        walks = self._walks()
        if modes := between_modes(self.target, self.trainer.fitted):  # expensive beside a walk
            share = self.policy.choice.modes_share
            walks = [MixtureKernel([Cycle(walks), *modes], [1 - share, share])]
        return walks

    def _walks(self) -> list[Kernel]:
        return [RandomWalk(self.target, scale=self.trainer.fitted.scale)]

    def _race(self) -> Names:
        """The best move, or all useful ones in turn, after segments that are long enough.

        Short segments overstate moves that rarely leave some corner. So whatever leads is
        measured again for twice as long, until its segment is several autocorrelation times long,
        or has taken a share of the time that the run will, or could decide nothing.
        """
        while True:
            best = self._leader()
            found = self.bench.found[best]
            steps = longer_segment(
                found,
                room=self._room,
                ahead=self.request.ahead,
                error=self.request.error,
                policy=self.policy,
            )
            if steps is None or self._stands_if_overstated(best):
                return best
            self.bench.measure_named(best, steps)

    def _stands_if_overstated(self, best: Names) -> bool:
        """Whether the choice would stand if the efficiency of the best were overstated."""
        found, combined = self.bench.found, self.bench.combined
        alone = best == combined and not rivals(found, best)
        if alone and not self.ready and (self._exact or self._no_room()):
            return True  # neither another move nor training is to be had
        segments, training = self.policy.segments, self.policy.training
        if not clearly_best(found, best, combined, segments):
            return False
        wait = segments.overstatement * self._wait(found[best])
        least = self._least_price(training.first_round_steps)
        return self.ready or wait < least or wait < self.training_price()

    def _chosen(self, best: Names) -> Choice:
        kernel, shares = self.bench.mixed(best, "jump" if self.ready else None)
        self.plan = replace(self.plan, weights=shares, efficiency=self.bench.efficiencies())
        self._best, self.chosen = best, self.bench.found[best]
        return self._choice(kernel, self.chosen)

    def _choice(self, kernel: Kernel, found: Segment | None) -> Choice:
        bench, policy = self.bench, self.policy
        steps = 0
        if found is not None:
            steps = burn_in(
                found,
                room=self._room,
                times=self._burn_in_times,
                moves=policy.choice,
                segments=policy.segments,
            )
        return Choice(
            kernel=kernel,
            state=bench.state,
            ancestor=bench.ancestor,
            plan=self.plan,
            steps=bench.steps,
            burn_in=steps,
            segment=found,
            map=self._map,
            seen=bench.seen(),
            hoped_seconds=min((self._wait(f) for f in bench.found.values()), default=math.inf),
            trainable=self.trainable,
        )

    @property
    def trainable(self) -> bool:
        """Whether there are models to move between, and a map that could still learn to."""
        more = len(self.plan.rounds) < self.policy.training.rounds
        return bool(self.bench.moves) and more and not self.ready and not self._exact

    def _first(self) -> tuple[int, float]:
        """Steps of a first segment, and seconds that it may take."""
        segments = self.policy.segments
        steps = int(min(segments.steps, max(segments.least_steps, self.request.ahead)))
        return steps, min(segments.most_seconds, segments.first_share * self._room)

    def _offer(self, name: str, move: Kernel) -> Segment:
        return self.bench.offer(name, move, *self._first())

    def _leader(self) -> Names:
        return self.bench.leader(*self._first())

    # ---- seconds ----------------------------------------------------------------------------

    @property
    def _room(self) -> float:
        """Seconds left for choice, training and warm-up."""
        return max(0.0, self.adapt_by - clock.now())

    def _wait(self, found: Segment) -> float:
        """Seconds of sampling until the precision that is wanted."""
        return self.request.precise(found)

    def _worth(self, found: Segment) -> float:
        """Effective draws a second, as far as they shorten the run."""
        if not self.request.until and found.varied:
            return found.efficiency
        if found.cut_short:
            return 0.0
        return 0.25 / self.request.error**2 / self.request.until_done(found)

    def _pace(self, kernel: Kernel, state: State) -> float:
        return self.bench.pace(kernel, state, self.request.left())

    # ---- maps that need no training ---------------------------------------------------------

    def _offer_normals(self) -> None:
        """Jumps through fitted normals, fitted again to better draws while that helps."""
        self.normals.offer(self._offer, self._saving, lambda: self._room, self.guess)
        self._map = self.normals.kept

    def _offer_laplace(self) -> None:
        """Jumps through Laplace's normals, to models found by cheap walks: nothing is trained."""
        if not laplace_fits(self.target, self.policy.maps):
            return
        known = self.transport
        flow = known.bare() if isinstance(known, Laplace) else Laplace(self.target)
        first, chains = self._first()[1], len(self.bench.state.code)
        self._model_price, walks = laplace_walks(flow, self.generator, first, chains, self.policy)
        if not walks:
            return
        self._map = flow
        for name, walk in walks.items():
            moves = laplace_moves(self.target, flow, walk, name, self.policy.kernels)
            # most models are new to the walk at first: too expensive to be measured
            _, (learned,) = self.bench.measure_moves([moves], *self._first())
            self._offer(name, learned)

    def _offer_marginals(self, seen: Pool | None = None) -> None:
        """Births and new values from what chains have seen."""
        request, policy = self.request, self.policy
        offer_marginals(self.bench, request, policy, self._offer, self._worth, seen)

    def _jump(self) -> Kernel:
        known = self.transport, self.trainer.fitted
        return self.strategy.kernel(self.target, *known, self.guess())

    # ---- training ---------------------------------------------------------------------------

    def _train(self, best: Names, steps: int | None = None) -> Names:
        """Rounds of training, each while it saves more time than it costs.

        Not where sampling ends before a first round could, nor where there is no time for one;
        one round in any case where the pilot run contradicts itself. Sampling may find later that
        training pays (:meth:`after_all`). How long a round goes on is up to
        :func:`trjmcmc.fit.train`, and whether a map is mended to :class:`trjmcmc.fit.Trainer`.
        """
        if self._exact:
            return best
        training, found = self.policy.training, self.bench.found
        steps = steps or training.first_round_steps
        doubtful = self._pilot_contradicts_itself() and not self.plan.rounds
        last = found["jump",].efficiency if "jump" in self.bench.moves else 0.0
        here, asked = found[best], self.request
        wait = asked.until_done(here) if asked.until else self._wait(here)
        if not self.uses_all_time and sampling_ends_first(wait, training):
            return best
        if no_time_to_train(self._room, self._step_price is not None, training):
            return best
        meeting = seconds_to_meet_models(self._model_price, steps, training)
        if meeting > training.round_share * self._room:  # even pricing it takes too long
            return best
        hoped = 2 * last or (
            training.hoped_efficiency * len(self.bench.state.code) / self._step_with_map()
        )
        while len(self.plan.rounds) < training.rounds:
            saving = self._saving(self.bench.found[best], hoped)
            pays = doubtful or saving > self._least_price(steps)
            price = self._round_price(steps) if pays else math.inf
            if not (doubtful or saving > price) or price > training.round_share * self._room:
                return best
            now = self._round(steps, self.bench.seen())
            best, doubtful = self._race(), False
            hoped = hope_after_a_round(now, last)
            last, steps = now, 2 * steps
        return best

    def _saving(self, found: Segment, hoped: float) -> float:
        """Seconds by which a kernel as efficient as is hoped would do the same sooner."""
        if not self.request.until:
            wait = self._wait(found)
            left = self.request.left()
            return seconds_saved(found, hoped, max(wait, left) if self.uses_all_time else wait)
        forgetting = self.request.times * self.policy.training.hoped_memory * self._step_with_map()
        precise = 0.25 / self.request.error**2 / hoped if found.varied and hoped else 0.0
        return min(self.request.left(), self.request.until_done(found)) - max(precise, forgetting)

    def _round(self, steps: int, seen: Pool | None) -> float:
        """Train, on what chains have seen too, and measure the jump through the map."""
        audit, room, training = self.trainer.fitted.audit, self._room, self.policy.training
        limits: dict[str, Any] = {}
        if audit is not None and not math.isinf(room):
            pace = audit.evaluations / max(audit.seconds, 1e-9)
            seconds = min(training.audit_share * room, self.trainer.audit_cost(steps))
            limits["audit"] = audit.evaluations + int(seconds * pace)
            limits["mend_until"] = clock.now() + training.mending_share * room
        if not math.isinf(room):
            limits["deadline"] = clock.now() + room
        self.strategy.fit(
            self.trainer, steps=steps, extra=seen, progress=self.request.progress, **limits
        )
        self.plan = replace(self.plan, rounds=[*self.plan.rounds, steps])
        return self._offer("jump", self._jump()).efficiency

    def _pilot_contradicts_itself(self) -> bool:
        """Whether the halves of the small pilot run are apart, so that modes may have been lost."""
        audit, most = self.trainer.fitted.audit, self.policy.choice.contradiction_nats
        return audit is not None and bool((audit.gap[audit.matters] > most).any())

    def _step_with_map(self) -> float:
        """Seconds of a step through the map, trained or not, measured once by number of chains."""
        state, paces = self.bench.state, self._paces_with_map
        if len(state.code) not in paces:
            paces[len(state.code)] = self._pace(self._jump(), state)
        return paces[len(state.code)]

    def _no_room(self) -> bool:
        """Whether a first round of training would take too much of the time left."""
        training, room = self.policy.training, self.policy.training.round_share * self._room
        if math.isinf(room):
            return False
        if no_time_to_train(self._room, self._step_price is not None, training):
            return True
        meeting = seconds_to_meet_models(self._model_price, training.first_round_steps, training)
        return meeting > room or self.training_price() > room

    def _round_price(self, steps: int) -> float:
        """Seconds that a round of training takes, and the audit that belongs to it."""
        if self._step_price is None:
            self._step_price = self.trainer.training_step(self.bench.seen())
        return steps * self._step_price + self.trainer.audit_cost(steps)

    def _least_price(self, steps: int) -> float:
        """The same of the cheapest steps, with what it takes to price one if that is not done."""
        priced, training = self._step_price is not None, self.policy.training
        return least_seconds_of_a_round(steps, priced, training) + self.trainer.audit_cost(steps)
