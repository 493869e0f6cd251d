"""The one loop over kernels, and the places where chains start."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from .draws import Draws, Recorder
from .errors import BudgetError, InterruptedWarning, TargetError, TRJError, warn_user
from .estimate.mean import BATCHES
from .fit import Pool
from .kernel import Info, Kernel, State, adapting, start
from .target import Target
from .transport import Transport

CHECK_EVERY = 25  # warm-up steps between looks at the count of undefined densities
REPLAYED = 20_000  # points of a warm-up that are kept to train on, about
CANDIDATES = 64  # points tried for each chain that starts from the prior
SHOWN = 6  # numbers of a list that a printed plan shows


class Tally:
    """Running acceptance counts, kept on the device.

    For each kernel: proposals and acceptances within a model, then between models.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self._counts: dict[str, Tensor] = {}
        self._undefined = torch.zeros((), dtype=torch.long, device=target.device)
        self._bad: tuple[Tensor, Tensor] | None = None

    def add(self, infos: list[Info]) -> None:
        """Count one step of all chains; no copy to the host."""
        for info in infos:
            between = (info.proposed.code != info.before.code).any(-1)
            rows = torch.stack(
                [~between, info.accepted & ~between, between, info.accepted & between]
            ).sum(-1)
            self._counts[info.kernel] = self._counts.get(info.kernel, 0) + rows
            log_joint = info.proposed.log_joint
            bad = log_joint.isnan() | (log_joint == math.inf)
            first = bad.int().argmax(0, keepdim=True)  # a 0-dim index would be copied to the host
            here = info.proposed.code[first], info.proposed.theta[first]
            if self._bad is None:
                self._bad = here
            else:
                known = self._undefined > 0
                self._bad = (
                    torch.where(known, self._bad[0], here[0]),
                    torch.where(known, self._bad[1], here[1]),
                )
            self._undefined = self._undefined + bad.sum()

    def check(self) -> None:
        """Raise if any proposal so far had a NaN or infinite density."""
        if self._bad is not None and int(self._undefined):
            code, theta = self._bad
            raise self.target.non_finite(code[0], theta[0], int(self._undefined))

    def rates(self) -> dict[str, dict[str, float]]:
        """Acceptance rates by kernel; NaN where nothing was proposed."""
        table = {}
        for name, counts in self._counts.items():
            inside, inside_ok, across, across_ok = counts.tolist()
            table[name] = {
                "within": inside_ok / inside if inside else math.nan,
                "between": across_ok / across if across else math.nan,
                "proposals": inside + across,
            }
        return table


class Crossings:
    """Acceptance probabilities of the jumps between the models of a small space, summed up.

    Batches are groups of chains; where chains are few, each is cut into stretches of time too,
    which are merged in pairs as the run grows.

    Arguments:
        target: A target with few models.
        chains: Number of chains.
        names: Names of the kernels that move between models.
    """

    def __init__(self, target: Target, chains: int, names: set[str]) -> None:
        self.space, self.names = target.space, names
        self._models = m = len(target.space.enumerate())
        self._groups = min(chains, BATCHES)
        self._most = 2 * -(-BATCHES // self._groups) if self._groups < BATCHES else 1
        device = target.device
        self._group = torch.arange(chains, device=device) % self._groups
        self._span, self._steps = 1, 0
        zeros = torch.zeros(self._most, self._groups, m, m, dtype=torch.float64, device=device)
        self._crossed, self._stays = zeros, zeros.sum(-1)

    def add(self, infos: list[Info]) -> None:
        """Count one step of all chains; no copy to the host."""
        part = self._steps // self._span
        if part == self._most > 1:
            self._merge()
            part = self._steps // self._span
        part, m = min(part, self._most - 1), self._models
        for info in infos:
            if info.kernel not in self.names:
                continue
            here = self._group * m + self.space.index(info.before.code)
            to = self.space.index(info.proposed.code)
            chance = info.chance
            self._crossed[part].view(-1).index_add_(0, here * m + to, chance)
            self._stays[part].view(-1).index_add_(0, here, torch.ones_like(chance))
        self._steps += 1

    def _merge(self) -> None:
        half = self._most // 2
        for table in (self._crossed, self._stays):
            table[:half] = table[0::2] + table[1::2]
            table[half:] = 0.0
        self._span *= 2

    def result(self) -> tuple[Tensor, Tensor]:
        """Sums of acceptance probabilities (B, M, M) and numbers of draws (B, M), on the CPU."""
        used = self._stays.sum((1, 2)) > 0
        return self._crossed[used].flatten(0, 1).cpu(), self._stays[used].flatten(0, 1).cpu()


class Visits:
    """Steps of each chain in each model of a small space, thinned ones included.

    Arguments:
        target: A target with few models.
        chains: Number of chains.
    """

    def __init__(self, target: Target, chains: int) -> None:
        self.space, device = target.space, target.device
        models = len(target.space.enumerate())
        self._row = torch.arange(chains, device=device) * models
        self._one = torch.ones(chains, dtype=torch.float64, device=device)
        self._steps = torch.zeros(chains, models, dtype=torch.float64, device=device)

    def add(self, code: Tensor) -> None:
        """Count one step of all chains; no copy to the host."""
        self._steps.view(-1).index_add_(0, self._row + self.space.index(code), self._one)

    def result(self) -> Tensor:
        """Share of its steps that each chain was in each model, (chain, M), on the CPU."""
        return (self._steps / self._steps.sum(1, keepdim=True)).cpu()


def warm_up(
    kernel: Kernel,
    state: State,
    steps: int,
    target: Target,
    generator: torch.Generator,
    on_step: Callable[[], object] | None = None,
    deadline: float = math.inf,
) -> tuple[State, Pool | None]:
    """Advance chains without recording them as results; kernels adapt here and nowhere else.

    It ends early at ``deadline``, a time by ``time.monotonic``.

    Returns:
        Where they are, and a selection of their second half that a map may be trained on.

    Raises:
        NonFiniteError: A density was NaN or +inf.
    """
    tally = Tally(target)
    every = min(max(1, steps * len(state.code) // (2 * REPLAYED)), max(1, steps // 4))
    some = slice(None, None, -(-len(state.code) // REPLAYED))
    kept: list[State] = []
    with torch.no_grad(), adapting(kernel):
        for i in range(steps):
            state, infos = kernel.step(state, generator)
            tally.add(infos)
            if i % CHECK_EVERY == 0 or i == steps - 1:
                tally.check()
            if i >= steps // 2 and i % every == 0:
                kept.append(State(state.code[some], state.theta[some], state.log_joint[some]))
            if on_step is not None:
                on_step()
            if time.monotonic() >= deadline:
                tally.check()
                break
    return state, pooled(kept)


def joined(a: State, b: State) -> State:
    """Chains of two batches in one."""
    code, theta, log_joint = (torch.cat(pair) for pair in zip(a[:3], b[:3], strict=True))
    return State(code, theta, log_joint)


def pooled(states: list[State]) -> Pool | None:
    """The points of several states to train on, or None of none."""
    if not states:
        return None
    columns = zip(*((s.code, s.theta, s.log_joint) for s in states), strict=True)
    code, theta, log_joint = (torch.cat(x) for x in columns)
    return Pool(code, theta, log_joint.double())


@dataclass(repr=False)
class Plan:
    """How the kernel of a run was chosen: what was measured, and what came of it.

    Attributes:
        weights: Share of the steps by move between models.
        efficiency: By kernel measured, effective draws of the model indicator a second, over
            the chains of the warm-up; a run may go on with more.
        rounds: Training steps of each round.
        settings: By kernel, what it adapted in warm-up.
        automatic: Whether the run was free to choose.
    """

    weights: dict[str, float] = field(default_factory=dict)
    efficiency: dict[str, float] = field(default_factory=dict)
    rounds: list[int] = field(default_factory=list)
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    automatic: bool = False

    def __str__(self) -> str:
        steps = ", ".join(f"{name} {share:.0%}" for name, share in self.weights.items())
        lines = [f"steps: {steps or 'one kernel, not chosen'}"]
        lines += [f"trained: {', '.join(map(str, self.rounds))} steps"] if self.rounds else []
        lines += [f"  {name}: {e:.3g} effective draws/s" for name, e in self.efficiency.items()]
        for name, found in self.settings.items():
            said = ", ".join(f"{key} {_rounded(value)}" for key, value in found.items())
            lines.append(f"  {name}: {said}")
        return "\n".join(lines)

    __repr__ = __str__


def _rounded(value: Any) -> str:
    """Plain numbers with three digits, long lists by their ends."""
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k}: {_rounded(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        some = [_rounded(v) for v in value]
        some = some if len(some) <= SHOWN else [*some[: SHOWN - 1], "...", some[-1]]
        return f"[{', '.join(some)}]"
    return str(value)


@dataclass(frozen=True)
class Chains:
    """What :func:`run_chains` came back with.

    Attributes:
        draws: Kept draws.
        state: Where the chains are.
        stopped: ``"draws"``, ``"enough"``, ``"budget"``, ``"interrupted"`` or ``"error"``.
        error: What ended it, if anything did.
        crossings: Sums of acceptance probabilities between models, and numbers of draws, both by
            batch; None in a large space.
    """

    draws: Draws
    state: State
    stopped: str
    error: TRJError | None = None
    crossings: tuple[Tensor, Tensor] | None = None


def run_chains(
    kernel: Kernel,
    state: State,
    tally: Tally,
    *,
    draws: int | None,
    thin: int,
    generator: torch.Generator,
    enough: Callable[[Recorder], bool] | None = None,
    crossings: Crossings | None = None,
    visits: Visits | None = None,
    on_draw: Callable[[], object] | None = None,
) -> Chains:
    """Advance chains and record them; nothing is adapted here.

    Arguments:
        kernel: Leaves the target invariant.
        state: Where the chains are.
        tally: Acceptance counts to add to.
        draws: Kept draws a chain; None for as many as come until there are enough.
        thin: Steps a kept draw; may grow where the number of draws is open.
        generator: The only source of randomness.
        enough: Asked after each kept draw whether to stop.
        crossings: Counts jumps between models, if given.
        visits: Counts steps in models, if given.
        on_draw: Called after each kept draw.

    Returns:
        The draws; fewer than asked for if the user pressed Ctrl-C (with a warning), the limit
        was reached, or a likelihood failed.

    Raises:
        KeyboardInterrupt: The user pressed Ctrl-C before the first draw was kept.
        TRJError: A likelihood failed, or the limit was reached, before the first draw was kept.
    """
    recorder = Recorder(draws, state.code, state.theta, thin)
    stopped = "draws"
    failure: TRJError | None = None
    try:
        with torch.no_grad():
            while recorder.kept != draws:
                for _ in range(recorder.thin):
                    state, infos = kernel.step(state, generator)
                    tally.add(infos)
                    if crossings is not None:
                        crossings.add(infos)
                    if visits is not None:
                        visits.add(state.code)
                tally.check()
                recorder.keep(state.code, state.theta, state.log_joint)
                done = enough is not None and enough(recorder)
                if on_draw is not None:
                    on_draw()
                if done:
                    stopped = "enough"
                    break
    except KeyboardInterrupt:
        if not recorder.kept:
            raise
        stopped = "interrupted"
        of = "" if draws is None else f" of {draws}"
        warn_user(
            f"interrupted after {recorder.kept}{of} draws a chain; the result holds them",
            InterruptedWarning,
        )
    except BudgetError:
        if not recorder.kept:
            raise
        stopped = "budget"
    except TRJError as error:
        if not recorder.kept:
            raise
        stopped, failure = "error", error

    def found() -> Chains:
        record = recorder.draws()
        if visits is not None and record.thin > 1:
            record = replace(record, shares=visits.result())
        seen = None if crossings is None else crossings.result()
        return Chains(record, state, stopped, failure, seen)

    try:
        return found()
    except KeyboardInterrupt:  # the draws are all there
        if stopped == "interrupted":
            raise
        stopped = "interrupted"
        return found()


def starting_state(
    target: Target,
    transport: Transport | None,
    code: Tensor,
    generator: torch.Generator,
    carried: tuple[Tensor, Tensor] | None = None,
) -> tuple[State, Tensor]:
    """Chains of which every other one starts from the map, the rest from the prior.

    Arguments:
        target: The target.
        transport: The map; without one all start from the prior.
        code: The model that each chain starts in, shape (C, L).
        generator: Source of randomness.
        carried: Where prior draws have been carried by tempering, shape (C, D), and the draws
            that these descend from as numbers, shape (C,). Without them a chain takes one of a few
            prior draws in proportion to its likelihood.

    Returns:
        The chains, and the independent draw that each descends from as a number, shape (C,).

    Raises:
        TargetError: No point with a finite density was found.
        NonFiniteError: A density was NaN or +inf.
    """
    chains, device = len(code), target.device
    with torch.no_grad():
        own = -1 - torch.arange(chains, device=device)
        if carried is None:
            drawn, ancestor = _from_prior(target, code, generator), own
        else:
            drawn, ancestor = start(target, code, carried[0]), carried[1]
        pushed = drawn
        if transport is not None:
            z = transport.sample_reference(chains, generator, target.dtype)
            pushed = start(target, code, transport.push(z, code)[0])
        from_map = torch.arange(chains, device=device) % 2 == 0
        use_map = torch.where(from_map, pushed.log_joint > -math.inf, drawn.log_joint == -math.inf)
        theta = torch.where(use_map[:, None], pushed.theta, drawn.theta)
        log_joint = torch.where(use_map, pushed.log_joint, drawn.log_joint)
        if transport is not None:
            ancestor = torch.where(use_map, own, ancestor)
        target.check_finite(code, theta, log_joint)
        fine = log_joint > -math.inf
        if not bool(fine.any()):
            raise TargetError(
                f"no starting point with a finite density among {chains * CANDIDATES} prior "
                "draws and the map's draws: is the likelihood -inf nearly everywhere?"
            )
        # a chain without a start of its own borrows that of another
        donor = torch.multinomial(fine.double(), chains, replacement=True, generator=generator)
        chosen = torch.where(fine, torch.arange(chains, device=device), donor)
        return State(code[chosen], theta[chosen], log_joint[chosen]), ancestor[chosen]


def _from_prior(target: Target, code: Tensor, generator: torch.Generator) -> State:
    """For each chain one of a few prior draws, in proportion to its likelihood."""
    chains = len(code)
    many = code.repeat_interleave(CANDIDATES, 0)
    theta = target.sample_prior(many, generator)
    usable = theta.isfinite().all(-1)
    theta = torch.where(usable[:, None], theta, 0.0)
    log_prior, log_likelihood = target.log_prior_and_likelihood(many, theta)
    usable &= log_prior > -math.inf
    target.check_finite(many, theta, torch.where(usable, log_likelihood, 0.0))
    score = torch.where(usable, log_likelihood, -math.inf).view(chains, CANDIDATES)
    u = torch.rand(score.shape, generator=generator, device=target.device, dtype=torch.float64)
    best = (score - torch.log(-u.log())).argmax(-1)  # Gumbel maximum: a categorical draw
    rows = torch.arange(chains, device=target.device) * CANDIDATES + best
    log_joint = torch.where(usable, log_prior + log_likelihood, -math.inf)
    return State(code, theta[rows], log_joint[rows])
