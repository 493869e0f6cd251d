"""Classical moves at once, training only while it pays, and the best of both by measurement."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from ..draws import Pool
from ..errors import ConfigurationError
from ..estimate.precision import FORGOTTEN, features
from ..fit.trainer import Recipe
from ..kernel.base import Kernel, State
from ..kernel.between.jump import Jump
from ..kernel.between.split import SplitMerge
from ..kernel.compose import Cycle, Mixture
from ..kernel.inside.random_walk import RandomWalk
from ..kernel.inside.stretch import Stretch
from ..kernel.proposal.base import IndexProposal
from ..kernel.proposal.sweep import SweepWalk
from ..kernel.proposal.walk import ScoreWalk
from ..progress import progress_bar
from ..result.report import Plan
from ..space.base import several
from ..target.exchangeable import components_of
from ..transport.base import Transport
from ..transport.laplace import Laplace
from ..transport.normals import gaussian_mixture
from .count import Tally
from .look import Segment, drift_of, indicator_times
from .loop import joined, pooled
from .maps import laplace_fits
from .moves import (
    between_modes,
    birth_death,
    component_walks,
    informed_moves,
    inside,
    laplace_moves,
    proposal,
    trained_kernel,
)

SEGMENT, SHORTEST = 40, 20  # steps over which a kernel is first measured; of a short run

BURN_SHARE = 0.2  # of the time left, for burn-in

FORGET = 3.0  # autocorrelation times of burn-in

LONGEST = 2000  # most steps of it, and of a look at a kernel

LOOK = 0.3  # share of the time of the run ahead that a look may take

PATIENCE = 10.0  # seconds that it may take in any case

TRUSTED = 5.0  # autocorrelation times that a look is long that needs no other

ENOUGH = 2.0  # and one that could be FLATTERED times too good and decide the same

FLATTERED = 3.0

JOIN = " + "

TOGETHER = 0.8  # of the best alone: several moves guard against what a short look has missed

BUSY = 0.02  # seconds a step of many chains, beyond which more of them would gain nothing

GAIN = 0.9  # of the time of fewer chains, that more of them may take at most

USEFUL = 0.1  # share of the best move's efficiency from which another joins it

NORMALS = (4, 8)  # components a model of the map that needs no training, at each quick fit of it

QUICK_SHARE = 0.1  # of the time left, beyond which a quick fit is not made a second time

FINE = {"components": 16, "draws": 10_000}  # of a model, at a fit that takes its time:

DEARER, FINER = 40.0, 4.0  # times that of a quick one, and that it forgets faster, about

MODES_SHARE = 0.25  # of the moves inside a model, for those from one mode to another

LEAST_SHARE = 0.02  # of the steps for each move between models, whatever was measured

ROUND = 500  # training steps of the first round; each one has twice as many as the last

ROUNDS = 3

FASTEST = 0.005  # seconds of a training step, at least

PRICING = 3.0  # seconds that finding its price takes; the first optimiser of a process is slow

HOPE = 0.15  # share of the ideal efficiency that a trained map is hoped to reach; .04 to .5 seen

PROBE = 5  # steps by which the speed of a trained map's kernel is found

PROBE_SHARE = 0.01  # of the time left, that a step may take of which more than one are tried

ROOM = 0.5  # share of the time left that a round may take

AUDIT_SHARE, MEND_SHARE = 0.2, 0.3  # of the time left: for the audit, and till no mending begins

PRICED = 64  # models whose price under Laplace's method is taken

ASKED = 100  # models that are new to the map in a step of its training

FIRST_SHARE = 0.15  # of the time left, for a first look

TOO_FEW = 0.3  # share of the steps of a first look below which nothing is known

NEW_MODELS = 0.3  # share of the models on a walk that no chain has seen before

DOUBTFUL = 2.0  # nats between the halves of a small audit from where it has to grow


class Auto:
    """Chooses the kernel of a run, and trains the map while that saves time.

    Arguments:
        recipe: Trains the map; holds what is known already.
        state: Chains.
        ancestor: The independent draw that each descends from, as a number, shape (C,).
        guess: Function that gives log-probabilities of the models so far, or None.
        chains: How many of them the run will go on with, at least.
        most: How many it may, where more of them pay.
        ahead: Steps that it will make, infinite where that is open.
        error: Standard error of the models' probabilities that is wanted.
        generator: Source of randomness.
        deadline: Time by ``time.monotonic`` at which the run ends.
        latest: Time at which the choice is made and chains are warmed up; the deadline if omitted.
        fill: Whether the run goes on till then, however precise it has become.
        ready: Whether the map is used as it is; else it is trained if that pays.
        progress: Show a bar.

    Attributes:
        plan: What was measured and chosen.
        steps: Steps made so far.
        burn_in: Steps by the chosen kernel after which the chains have forgotten their models.
        simple: The map of normals that was fitted to draws, if any.
        state: Where the chains are.
        ancestor: The independent draws that they descend from.
    """

    forget = FORGET
    snapshots = 12  # of a look, half of which are kept to train on

    def __init__(
        self,
        recipe: Recipe,
        transport: Transport,
        state: State,
        ancestor: Tensor,
        guess: Callable[[], Tensor | None],
        *,
        chains: int,
        most: int = 0,
        ahead: float,
        error: float,
        generator: torch.Generator,
        deadline: float = math.inf,
        latest: float | None = None,
        fill: bool = False,
        ready: bool = False,
        progress: bool = False,
    ) -> None:
        self.recipe, self.target, self.transport = recipe, recipe.target, transport
        self.state, self.ancestor = state, ancestor
        self.guess, self.generator = guess, generator
        self.chains, self.most, self.ahead = chains, most, ahead
        self.error, self.deadline, self.latest = error, deadline, latest
        self.fill = fill and recipe.few  # a map of very many models is a gamble
        self.ready, self.progress = ready, progress
        self.plan, self.steps, self.burn_in = Plan(automatic=True), 0, 0
        self.simple: Transport | None = None  # the map that needs no training
        self._tally = Tally(self.target)
        self._states: list[State] = []
        self._moves: dict[str, Kernel] = {}
        self._found: dict[str, Segment] = {}
        self._together: str | None = None
        self._chosen: Segment | None = None
        self._price = 0.0  # seconds that a model costs the map when it is new to it
        self._training_step: float | None = None  # seconds

    def seen(self) -> Pool | None:
        """Points that the chains have passed."""
        return pooled(self._states)

    # ---- measuring --------------------------------------------------------------------------

    def measure(
        self, name: str, moves: list[Kernel], steps: int | None = None, most: float = math.inf
    ) -> tuple[Segment, list[Kernel]]:
        """Go on with moves between models: what was found, and the moves that have learned."""
        found, kernel = self._advance(self._step(moves), steps, most)
        assert isinstance(kernel, Cycle)
        return found, [move for move, _ in kernel.kernels[: len(moves)]]

    def _advance(
        self, kernel: Kernel, steps: int | None = None, most: float = math.inf
    ) -> tuple[Segment, Kernel]:
        """Go on with a kernel that learns, and find the model indicator's autocorrelation time.

        A first look, of no given length, ends when it has taken its share of the time, any look
        after ``most`` seconds.
        """
        most = most if steps else min(PATIENCE, FIRST_SHARE * self._room)
        steps = steps or int(min(SEGMENT, max(SHORTEST, self.ahead)))
        codes, log_joints, states = [], [], []
        state = self.state
        every = max(1, steps // self.snapshots)
        with torch.no_grad():
            begun = time.perf_counter()
            for i in range(steps):
                kernel, state, infos = kernel.adapt(state, self.generator)
                self._tally.add(infos)
                codes.append(state.code)
                log_joints.append(state.log_joint)
                if i % every == 0:
                    states.append(State(state.code, state.theta, state.log_joint))
                if time.perf_counter() - begun > most:
                    break
            stacked = torch.stack(codes)
            seen = features(self.target.space, stacked)
            seconds = time.perf_counter() - begun
        dear, steps = len(codes) < TOO_FEW * steps, len(codes)
        self.steps += steps
        self._tally.check()
        self.state = state
        self._states += states[len(states) // 2 :]
        if self._bar is not None:
            self._bar.update(steps)
        times = indicator_times(seen)
        variance = seen.flatten(0, 1).var(0, correction=0)
        need = torch.where(variance > 0, variance * times, 0.0)
        worst = int(need.argmax()) if need.numel() else 0
        varied = bool((variance > 0).any())
        rate = 0.25 * len(state.code) * steps / seconds
        found = Segment(
            efficiency=rate / float(need[worst]) if varied and not dear else 0.0,
            time=float(times[worst]) if varied else 1.0,
            step=seconds / steps,
            varied=varied,
            steps=steps,
            dear=dear,
            drift=drift_of(stacked, torch.stack(log_joints)),
        )
        return found, kernel.frozen()

    # ---- choosing ---------------------------------------------------------------------------

    def run(self) -> Kernel:
        """Measure, train while it pays, and give the kernel to sample with."""
        with progress_bar(self.progress, desc="warm-up", unit="step") as bar:
            self._bar = bar if self.progress else None
            return self._choose()

    def _choose(self) -> Kernel:
        space = self.target.space
        if not several(space) or not self.target.dim:
            return self._advance(self._only())[1]
        self._offer("birth-death", birth_death(self.target, self.guess()))
        if SplitMerge.fits(self.target):
            self._offer("split-merge", SplitMerge(self.target))
        if self._doubtful():  # a second look at the models in doubt, twice as large
            self.recipe.survey_again(DOUBTFUL, progress=self.progress)
        if self.recipe.audit is not None:
            self._offer_normals()
        else:
            with suppress(ConfigurationError):  # where it does not fit
                self._offer("informed", informed_moves(self.target))
            if laplace_fits(self.target):
                self._offer_laplace()
        if self.ready:
            self._offer("jump", self._jump())
        best = self._leader()
        if not self.ready:  # short looks flatter: if training pays beside them, it does
            best = self._train(best)
        if not self.plan.rounds:
            best = self._race()
            best = best if self.ready else self._train(best)
        return self._frozen(best)

    def so_far(self) -> Kernel | None:
        """The best move that was measured, where the user has interrupted; None if none was."""
        known = [n for n in self._found if set(n.split(JOIN)) <= set(self._moves)]
        return self._frozen(max(known, key=self._rank)) if known else None

    def after_all(self, state: State, seen: Pool | None) -> Kernel:
        """Train although it did not seem to pay: sampling has shown that it does.

        Arguments:
            state: Where the chains are.
            seen: Points of the run so far, to train on.
        """
        few = slice(self.chains)  # efficiencies are of as many
        self.state = State(state.code[few], state.theta[few], state.log_joint[few])
        self.recipe.extra = seen
        with progress_bar(self.progress, desc="warm-up", unit="step") as bar:
            self._bar = bar if self.progress else None
            self._round(ROUND)
            best = self._train(self._race(), 2 * ROUND)
        return self._frozen(best)

    @property
    def movable(self) -> bool:
        """Whether there are models to move between, and a map that could learn to."""
        return bool(self._moves) and len(self.plan.rounds) < ROUNDS

    @property
    def hoped(self) -> float:
        """Seconds of sampling after which it should be done."""
        return min((self._wait(f) for f in self._found.values()), default=math.inf)

    def price(self) -> float:
        """Seconds that a first round of training costs."""
        return self._cost(ROUND)

    def _only(self) -> Kernel:
        if several(self.target.space):
            return birth_death(self.target, self.guess())
        kernels: list[Kernel] = [RandomWalk(self.target, scale=self.recipe.scale)]
        kernels += component_walks(self.target, components_of(self.target))
        if self.chains > 2 * self.target.dim:
            kernels.append(Stretch(self.target))
        if self.ready:
            return trained_kernel(self.target, self.transport, self.recipe, self.guess())
        if self.recipe.audit is not None:
            self.simple = self._fitted(components=NORMALS[0])
            kernels += inside(self.target, self.simple, self.recipe)
        return Cycle(kernels)

    def _offer(self, name: str, move: Kernel) -> Segment:
        """Take up a move between models, after a first look at it."""
        found, (move,) = self.measure(name, [move])
        if not found.dear or not self._moves:
            for joint in [n for n in self._found if name in n.split(JOIN)]:
                del self._found[joint]  # with the move of that name before
            self._moves[name], self._found[name] = move, found
            self._together = None
        return found

    def _race(self) -> str:
        """The best move, or all useful ones in turn, looked at for long enough.

        Short looks flatter moves that leave some corner seldom. So whatever leads is looked at
        again for twice as long, until the look is several autocorrelation times long, or has
        taken a share of the time that the run will. Where the rest is far behind, and training
        too dear, a longer look would decide nothing.
        """
        while True:
            best = self._leader()
            now = self._found[best]
            steps = 2 * now.steps
            patience = min(
                ROOM * self._room,
                max(LOOK * self._wait(now), PATIENCE),
                max(1.0, self.ahead * now.step),
            )
            known = not now.varied or now.steps > TRUSTED * now.time or self._settled(best)
            if known or steps > LONGEST or steps * now.step > patience:
                return best
            self._found[best], moves = self.measure(best, self._members(best), steps)
            self._learned(best, moves)

    def _leader(self) -> str:
        """The best so far, all useful moves in turn among them."""
        if self._together is None:
            self._join()
        return max(self._found, key=self._rank)

    def _settled(self, best: str) -> bool:
        """Whether the best would be chosen, and nothing trained, if it were much worse."""
        now, ours = self._found[best], best.split(JOIN)
        if best != self._together:
            return False
        rivals = [
            f.efficiency for name, f in self._found.items() if not set(name.split(JOIN)) & set(ours)
        ]
        if not rivals and not self.ready and self._no_room():
            return True  # neither another move nor training is to be had
        if now.steps < ENOUGH * now.time or now.efficiency < FLATTERED * max(rivals, default=0.0):
            return False
        wait = FLATTERED * self._wait(now)
        return self.ready or wait < ROUND * FASTEST or wait < self.price()

    def _rank(self, name: str) -> float:
        found = self._found[name].efficiency
        return found / TOGETHER if name == self._together else found

    def _join(self) -> None:
        """Look at all useful moves in turn; looks at fewer of them still count."""
        first = max(self._moves, key=lambda name: self._found[name].efficiency)
        least = USEFUL * self._found[first].efficiency
        useful = [n for n in self._moves if self._found[n].efficiency > least]
        self._together = JOIN.join(useful)
        if len(useful) > 1:
            moves = [self._moves[n] for n in useful]
            self._found[self._together], moves = self.measure(self._together, moves)
            self._learned(self._together, moves)

    def _learned(self, name: str, moves: list[Kernel]) -> None:
        """Go on with what moves have learned together."""
        self._moves.update(zip(name.split(JOIN), moves, strict=True))

    def _members(self, name: str) -> list[Kernel]:
        return [self._moves[n] for n in name.split(JOIN)]

    def _wait(self, found: Segment) -> float:
        """Seconds of sampling until the precision that is wanted."""
        needed = 0.25 / self.error**2 if found.varied else 0.0
        return needed / found.efficiency if found.efficiency else (math.inf if needed else 0.0)

    @property
    def _room(self) -> float:
        """Seconds left for choice, training and warm-up."""
        return max(0.0, self.by - time.monotonic())

    @property
    def by(self) -> float:
        """When choice, training and warm-up have to be over."""
        return self.deadline if self.latest is None else self.latest

    @property
    def _left(self) -> float:
        """Seconds left until the end of the run."""
        return max(0.0, self.deadline - time.monotonic())

    def _step(self, moves: list[Kernel]) -> Kernel:
        """Moves between models, then moves inside them that owe nothing to a map."""
        walks = self._walks()
        if modes := between_modes(self.target, self.recipe):  # dear beside a walk
            walks = [Mixture([Cycle(walks), *modes], [1 - MODES_SHARE, MODES_SHARE])]
        return Cycle([*moves, *walks])

    def _walks(self) -> list[Kernel]:
        return [RandomWalk(self.target, scale=self.recipe.scale)]

    def _fitted(self, **sizes: int) -> Transport:
        """A mixture of normals for each model, from all draws so far."""
        pool = self.recipe.draws()
        extra = self.seen()
        pool = pool if extra is None else pool.joined(extra)
        return gaussian_mixture(self.target.space, pool, self.generator, **sizes)

    def _offer_normals(self) -> None:
        """Jumps through fitted normals, fitted again to better draws while that helps."""
        for components in NORMALS:
            begun = time.perf_counter()
            normals = self._fitted(components=components)
            quick = time.perf_counter() - begun
            fine = DEARER * quick
            now = self._offer_better(normals)
            if quick > QUICK_SHARE * self._room:
                break
        best = max(self._found.values(), key=lambda f: f.efficiency)
        hoped = now.efficiency * min(FINER, now.time)
        if fine < min(self._saving(best, hoped), ROOM * self._room):
            self._offer_better(self._fitted(**FINE))

    def _offer_better(self, normals: Transport) -> Segment:
        """Jumps through these normals if they are better than those before."""
        before, last = self._moves.get("normals"), self._found.get("normals")
        to = proposal(self.target.space, self.recipe.few, self.guess())
        now = self._offer("normals", Jump(self.target, normals, to, name="normals"))
        if before is not None and last is not None and now.efficiency < last.efficiency:
            self._moves["normals"], self._found["normals"] = before, last
            return last
        self.simple = normals
        return now

    def _offer_laplace(self) -> None:
        """Jumps through Laplace's normals, to models found by cheap walks: nothing is trained."""
        known = self.transport
        flow = known.bare() if isinstance(known, Laplace) else Laplace(self.target)
        space = self.target.space
        price = self._price = flow.price(space.sample_prior(PRICED, self.generator))
        models = min(PATIENCE, FIRST_SHARE * self._room) / price  # that can be had in a look
        asked = NEW_MODELS * len(self.state.code) * SEGMENT  # by a step of a walk
        all_of_them = space.size is not None and models > space.size
        if not all_of_them and models < asked:
            return
        self.simple = flow
        walks: dict[str, IndexProposal] = {}
        with suppress(ConfigurationError):  # where it does not fit
            walks["sweep"] = SweepWalk(flow)
        if all_of_them or not walks:
            steps = None if all_of_them else int(models / asked)
            walks["laplace"] = ScoreWalk(space, flow.log_evidence, steps=steps)
        for name, walk in walks.items():
            moves = laplace_moves(self.target, flow, walk, name)
            _, (learned,) = self.measure(name, [moves])  # most models are new to it: too dear
            self._offer(name, learned)

    def _jump(self) -> Kernel:
        return trained_kernel(self.target, self.transport, self.recipe, self.guess())

    def _frozen(self, best: str) -> Kernel:
        """The best, and now and then each of the rest."""
        chosen = best.split(JOIN)
        rest = [n for n in self._moves if n not in chosen]
        weights = [1 - LEAST_SHARE * len(rest)] + [LEAST_SHARE] * len(rest)
        self.plan.weights = dict(zip([best, *rest], weights, strict=True))
        self.plan.efficiency = {n: f.efficiency for n, f in self._found.items()}
        self._chosen = found = self._found[best]
        most = min(LONGEST, BURN_SHARE * self._room / found.step)
        done = found.steps if found.steps > TRUSTED * found.time else 0  # else the time is a guess
        self.burn_in = int(max(0.0, min(self.forget * found.time - done, most)))
        kernels = [self._step(self._members(best))]
        return Mixture([*kernels, *(self._step([self._moves[n]]) for n in rest)], weights)

    # ---- how many chains --------------------------------------------------------------------

    def crowd(self, kernel: Kernel, state: State) -> int:
        """How many chains to go on with: twice as many while a step costs little more.

        New chains have first to make the steps that the others have made. Where a look was too
        short to trust its autocorrelation time there are none: it would be their burn-in.
        """
        chains, now = len(state.code), self._chosen
        if now is None or not now.varied or now.step > BUSY or now.steps <= TRUSTED * now.time:
            return chains
        ahead = self._left if self.fill else min(self._left, self._wait(now))
        wanted = chains * ahead / self._pace(kernel, state)  # steps of chains
        ends = {chains: ahead}  # by number, seconds until the end
        while 2 * len(state.code) <= self.most:
            state = joined(state, state)
            try:
                pace = self._pace(kernel, state)
            except torch.OutOfMemoryError:
                break
            steps = max(self.steps, FORGET * now.time)  # before the first draw
            steps += max(FORGOTTEN * now.time, wanted / len(state.code))
            ends[len(state.code)] = pace * steps
            if pace > BUSY or pace * steps > 2 * min(ends.values()):
                break
        soonest = min(ends.values())
        return min(n for n, end in ends.items() if GAIN * end <= soonest)

    # ---- training ---------------------------------------------------------------------------

    def _train(self, best: str, steps: int | None = None) -> str:
        """Rounds of training, each while it saves more time than it costs."""
        steps = steps or ROUND
        doubtful = self._doubtful() and not self.plan.rounds
        last = self._found["jump"].efficiency if "jump" in self._moves else 0.0
        if not self.fill and self._wait(self._found[best]) < ROUND * FASTEST:
            return best
        if self._cramped:
            return best
        if self._price * ASKED * steps > ROOM * self._room:  # too dear even to find out more
            return best
        hoped = 2 * last or HOPE * len(self.state.code) / self._step_with_map()
        while len(self.plan.rounds) < ROUNDS:
            cost = self._cost(steps)
            saves = self._saving(self._found[best], hoped) > cost
            if not (saves or doubtful) or cost > ROOM * self._room:
                return best
            self.recipe.extra = self.seen()
            now = self._round(steps)
            best, doubtful = self._race(), False
            hoped = now * min(2.0, now / last if last else 2.0)  # another round gains no more
            last, steps = now, 2 * steps
        return best

    def _saving(self, found: Segment, hoped: float) -> float:
        """Seconds by which a kernel as efficient as is hoped would do the same sooner."""
        if not found.varied:
            return 0.0
        wait = max(self._wait(found), self._left) if self.fill else self._wait(found)
        better = max(hoped, found.efficiency)
        return wait * (1 - found.efficiency / better) if better else 0.0

    def _round(self, steps: int) -> float:
        """Train, and look at the jump through the map."""
        audit, room = self.recipe.audit, self._room
        limits: dict[str, Any] = {}
        if audit is not None and not math.isinf(room):
            pace = audit.evaluations / max(audit.seconds, 1e-9)
            limits["audit"] = audit.evaluations + int(AUDIT_SHARE * room * pace)
            limits["mend_until"] = time.monotonic() + MEND_SHARE * room
        if not math.isinf(room):
            limits["deadline"] = time.monotonic() + room
        self.recipe.fit(steps=steps, progress=self.progress, **limits)
        self.plan.rounds.append(steps)
        return self._offer("jump", self._jump()).efficiency

    def _doubtful(self) -> bool:
        """Whether the small audit contradicts itself, so that modes may have been lost."""
        audit = self.recipe.audit
        if audit is None:
            return False
        gap = audit.gap[audit.matters]
        return bool((gap > DOUBTFUL).any())

    def _step_with_map(self) -> float:
        """Seconds of a step through the map, trained or not."""
        return self._pace(self._jump(), self.state)

    def _pace(self, kernel: Kernel, state: State) -> float:
        """Seconds of a step: the second shortest of a few, for some hiccup and some are rare."""
        seconds = []
        with torch.no_grad():
            for _ in range(PROBE):
                begun = time.perf_counter()
                state, _ = kernel.step(state, self.generator)
                state.log_joint.sum().item()  # a GPU is waited for
                seconds.append(time.perf_counter() - begun)
                if seconds[-1] > PROBE_SHARE * self._left:
                    break
        return sorted(seconds)[:2][-1]

    @property
    def _cramped(self) -> bool:
        """Whether the fastest training would take too much of the time left, its price included."""
        pricing = PRICING if self._training_step is None else 0.0
        return ROOM * self._room < ROUND * FASTEST + pricing

    def _no_room(self) -> bool:
        """Whether a first round of training would take too much of the time left."""
        room = ROOM * self._room
        if math.isinf(room):
            return False
        if self._cramped:
            return True
        return self._price * ASKED * ROUND > room or self.price() > room

    def _cost(self, steps: int) -> float:
        """Seconds that a round of training takes, and the audit that belongs to it."""
        if self._training_step is None:
            self._training_step = self.recipe.training_step(self.seen())
        return steps * self._training_step + self.recipe.audit_cost(steps)
