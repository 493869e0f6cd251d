"""Classical moves at once, training only while it pays, and the best of both by measurement."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from tqdm.auto import tqdm

from .defaults import birth_death, inside, proposal, several, trained_kernel
from .estimate import features
from .fit import Recipe, gaussian_mixture
from .kernel import (
    Cycle,
    Jump,
    Kernel,
    Mixture,
    RandomWalk,
    SplitMerge,
    State,
    Stretch,
    adapting,
)
from .sample import Plan, Tally, pooled
from .transport import Transport

SEGMENT = 60  # steps over which a kernel is measured
FORGET, LONGEST = 3.0, 1000  # autocorrelation times of burn-in, and most steps of it
LONG, PATIENCE = 4, 5.0  # times that, where it has hardly moved; most seconds of it
NOISE = 0.03  # correlations that are not told from none
SLOWEST = 1e-4  # decay a step that is not told from none
TOGETHER = 0.8  # of the best alone: several moves guard against what a short look has missed
USEFUL = 0.1  # share of the best move's efficiency from which another joins it
NORMALS = 4  # components a model of the map that needs no training: measured best of 4, 8, 16
REFITS = 2  # times that it may be fitted again to the draws so far
GAIN = 1.2  # factor in efficiency that makes another refit worth while
LEAST_SHARE = 0.05  # of the steps for each move between models, whatever was measured
ROUND = 500  # training steps of the first round; each one has twice as many as the last
ROUNDS = 3
FASTEST = 0.005  # seconds of a training step, at least
HOPE = 0.3  # share of the ideal efficiency that a trained map is hoped to reach
PROBE = 5  # steps by which the speed of a trained map's kernel is found
ROOM = 0.5  # share of the time left that a round may take
DOUBTFUL = 2.0  # nats between the halves of a small audit from where it has to grow


@dataclass(frozen=True)
class Segment:
    """A stretch of warm-up by one kernel.

    Attributes:
        efficiency: Effective draws a second of a probability of one half, over all chains, by
            the indicator that needs most: that whose error falls slowest.
        time: Autocorrelation time of that indicator, in steps.
        step: Seconds a step.
        varied: Whether any indicator differed between draws.
    """

    efficiency: float
    time: float
    step: float
    varied: bool


def indicator_times(seen: Tensor) -> Tensor:
    """Integrated autocorrelation times of indicators, in steps.

    Chains are many and short: correlations are averaged over chains at lags 1, 2, 4, ... up to
    half the length, joined by trapezoids, and the tail is taken as exponential.

    Arguments:
        seen: Shape (step, chain, F).

    Returns:
        Shape (F,), at least 1; infinite where chains differ and none changed; 1 where nothing
        differs.

    Example:
        >>> draws = torch.rand(40, 500, 1, generator=torch.Generator().manual_seed(0)).round()
        >>> bool(indicator_times(draws.double()) < 1.2)
        True
    """
    n = len(seen)
    gap = seen - seen.mean((0, 1))
    variance = gap.square().mean((0, 1))
    lags = [2**i for i in range(n.bit_length()) if 2**i <= n // 2]
    rho = [torch.ones_like(variance)]
    for lag in lags:
        rho.append((gap[: n - lag] * gap[lag:]).mean((0, 1)) / variance.clamp(min=1e-300))
    total, alive = torch.ones_like(variance), torch.ones_like(variance, dtype=torch.bool)
    for i, (lag, before) in enumerate(zip(lags, [0, *lags], strict=False)):
        alive &= rho[i + 1] > NOISE  # what follows the first loss is noise
        here, there = rho[i], torch.where(alive, rho[i + 1], 0.0)
        # twice the sum over the lags between, the first left out
        total = total + (lag - before) * (here + there) + there - here
        rho[i + 1] = there
    if len(lags) > 1:
        last, before = rho[-1], rho[-2]
        rate = (before.clamp(min=1e-9) / last.clamp(min=1e-12)).log() / (lags[-1] - lags[-2])
        tail = torch.where(rate > SLOWEST, 2 * last / rate, math.inf)
        total = total + torch.where(alive, tail, 0.0)
    return torch.where(variance > 0, total.clamp(min=1.0), 1.0)


class Auto:
    """Chooses the kernel of a run, and trains the map while that saves time.

    Arguments:
        recipe: Trains the map; holds what is known already.
        state: Chains.
        guess: Function that gives log-probabilities of the models so far, or None.
        error: Standard error of the models' probabilities that is wanted.
        generator: Source of randomness.
        deadline: Time by ``time.monotonic`` that training must leave room before.
        ready: Whether the map is used as it is; else it is trained if that pays.
        progress: Show a bar.

    Attributes:
        plan: What was measured and chosen.
        steps: Steps made so far.
        burn_in: Steps by the chosen kernel after which the models are forgotten.
        simple: The map of normals that was fitted to draws, if any.
        state: Where the chains are.
    """

    def __init__(
        self,
        recipe: Recipe,
        transport: Transport,
        state: State,
        guess: Callable[[], Tensor | None],
        *,
        error: float,
        generator: torch.Generator,
        deadline: float = math.inf,
        ready: bool = False,
        progress: bool = False,
    ) -> None:
        self.recipe, self.target, self.transport = recipe, recipe.target, transport
        self.state, self.guess, self.generator = state, guess, generator
        self.error, self.deadline = error, deadline
        self.ready, self.progress = ready, progress
        self.plan, self.steps, self.burn_in = Plan(), 0, SEGMENT
        self.simple: Transport | None = None  # the map that needs no training
        self._tally = Tally(self.target)
        self._states: list[State] = []

    # ---- measuring --------------------------------------------------------------------------

    def measure(self, name: str, kernel: Kernel, steps: int = SEGMENT) -> Segment:
        """Go on with a kernel, and find how fast the model indicator forgets."""
        codes, states = [], []
        self.steps += steps
        state = self.state
        every = max(1, steps // 12)
        with torch.no_grad(), adapting(kernel):
            begun = time.perf_counter()
            for i in range(steps):
                state, infos = kernel.step(state, self.generator)
                self._tally.add(infos)
                codes.append(state.code)
                if i % every == 0:
                    states.append(state)
            seen = features(self.target.space, torch.stack(codes))
            seconds = time.perf_counter() - begun
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
            efficiency=rate / float(need[worst]) if varied else 0.0,
            time=float(times[worst]) if varied else 1.0,
            step=seconds / steps,
            varied=varied,
        )
        self.plan.efficiency[name] = found.efficiency
        return found

    # ---- choosing ---------------------------------------------------------------------------

    def run(self) -> Kernel:
        """Measure, train while it pays, and give the kernel to sample with."""
        with tqdm(desc="warm-up", disable=not self.progress, unit="step") as bar:
            self._bar = bar if self.progress else None
            return self._choose()

    def _choose(self) -> Kernel:
        space = self.target.space
        if not several(space) or not self.target.dim:
            kernel = self._only()
            self.measure("only", kernel)
            return kernel
        moves = {"birth-death": birth_death(self.target, self.guess())}
        if SplitMerge.fits(self.target):
            moves["split-merge"] = SplitMerge(self.target)
        found = {name: self._patient(name, [kernel]) for name, kernel in moves.items()}
        if self.recipe.audit is not None:
            self._simple_map(moves, found)
        if self.ready:
            moves["jump"] = self._jump()
            found["jump"] = self._patient("jump", [moves["jump"]])
        else:
            self._train(moves, found)
        return self._together(moves, found)

    def _only(self) -> Kernel:
        if several(self.target.space):
            return birth_death(self.target, self.guess())
        kernels: list[Kernel] = [RandomWalk(self.target, scale=self.recipe.scale)]
        if len(self.state.code) > 2 * self.target.dim:
            kernels.append(Stretch(self.target))
        if self.ready:
            return trained_kernel(self.target, self.transport, self.recipe, self.guess())
        if self.recipe.audit is not None:
            kernels += inside(self.target, self._fitted(), self.recipe)
        return Cycle(kernels)

    def _patient(self, name: str, moves: list[Kernel]) -> Segment:
        """A second, longer look where the first saw hardly a change."""
        kernel = self._step(moves)
        found = self.measure(name, kernel)
        if found.varied and found.efficiency == 0 and found.step * LONG * SEGMENT < PATIENCE:
            found = self.measure(name, kernel, LONG * SEGMENT)
        return found

    def _step(self, moves: list[Kernel]) -> Kernel:
        """Moves between models, then moves inside them that owe nothing to a map."""
        kernels: list[Kernel] = [*moves, RandomWalk(self.target, scale=self.recipe.scale)]
        if any(len(m) > 1 for m in self.recipe.modes):
            kernels += inside(self.target, self.transport, self.recipe)[1:]
        return Cycle(kernels)

    def _fitted(self) -> Transport:
        """A mixture of normals for each model, from all draws so far."""
        audit = self.recipe.audit
        assert audit is not None
        pool = audit.pool()
        extra = pooled(self._states)
        pool = pool if extra is None else pool.joined(extra)
        self.simple = gaussian_mixture(self.target.space, pool, self.generator, components=NORMALS)
        return self.simple

    def _simple_map(self, moves: dict[str, Kernel], found: dict[str, Segment]) -> None:
        best = 0.0
        for _ in range(REFITS):
            to = proposal(self.target.space, self.recipe.few, self.guess())
            moves["normals"] = Jump(self.target, self._fitted(), to, name="normals")
            found["normals"] = self._patient("normals", [moves["normals"]])
            if found["normals"].efficiency < GAIN * best:
                break
            best = found["normals"].efficiency

    def _jump(self) -> Kernel:
        return trained_kernel(self.target, self.transport, self.recipe, self.guess())

    def _together(self, moves: dict[str, Kernel], found: dict[str, Segment]) -> Kernel:
        """The best move alone, or all useful ones in turn; the rest now and then."""
        best = max(found, key=lambda name: found[name].efficiency)
        useful = [n for n in moves if found[n].efficiency > USEFUL * found[best].efficiency]
        chosen = [best]
        if len(useful) > 1:
            name = " + ".join(useful)
            found[name] = self._patient(name, [moves[n] for n in useful])
            if found[name].efficiency > TOGETHER * found[best].efficiency:
                best, chosen = name, useful
        rest = [n for n in moves if n not in chosen]
        weights = [1 - LEAST_SHARE * len(rest)] + [LEAST_SHARE] * len(rest)
        self.plan.weights = dict(zip([best, *rest], weights, strict=True))
        forgotten = FORGET * found[best].time
        self.burn_in = int(min(max(SEGMENT, forgotten), LONGEST))
        kernels = [self._step([moves[n] for n in chosen])]
        return Mixture([*kernels, *(self._step([moves[n]]) for n in rest)], weights)

    # ---- training ---------------------------------------------------------------------------

    def _train(self, moves: dict[str, Kernel], found: dict[str, Segment]) -> None:
        """Rounds of training, each while it saves more time than it costs."""
        doubtful = self._doubtful()
        best = max(f.efficiency for f in found.values())
        varied = any(f.varied for f in found.values())
        needed = 0.25 / self.error**2 if varied else 0.0
        if not doubtful and needed <= best * ROUND * FASTEST:
            return
        hoped = HOPE * len(self.state.code) / self._step_with_map()
        steps, last = ROUND, 0.0
        for _ in range(ROUNDS):
            cost = self._cost(steps)
            wait = needed / best if best else (math.inf if needed else 0.0)
            saving = wait - needed / max(hoped, best)
            pays = saving > cost or (doubtful and not self.plan.rounds)
            if not pays or cost > ROOM * (self.deadline - time.monotonic()):
                return
            self.recipe.extra = pooled(self._states)
            self.recipe.fit(steps=steps, progress=self.progress)
            self.plan.rounds.append(steps)
            moves["jump"] = self._jump()
            found["jump"] = self._patient("jump", [moves["jump"]])
            now = found["jump"].efficiency
            hoped = now * min(2.0, now / last if last else 2.0)  # another round gains no more
            best, last, steps = max(best, now), now, 2 * steps

    def _doubtful(self) -> bool:
        """Whether the small audit contradicts itself, so that modes may have been lost."""
        audit = self.recipe.audit
        if audit is None:
            return False
        gap = audit.gap[audit.matters]
        return bool((gap > DOUBTFUL).any())

    def _step_with_map(self) -> float:
        """Seconds of a step through the map, trained or not."""
        state, kernel = self.state, self._jump()
        with torch.no_grad():
            begun = time.perf_counter()
            for _ in range(PROBE):
                state, _ = kernel.step(state, self.generator)
        return (time.perf_counter() - begun) / PROBE

    def _cost(self, steps: int) -> float:
        """Seconds that a round of training takes, and the audit that belongs to it."""
        return steps * self.recipe.training_step(pooled(self._states)) + self.recipe.audit_cost()
