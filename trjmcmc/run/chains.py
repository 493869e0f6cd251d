"""How many chains a run goes on with."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ..draws import LEAST_DRAWS_STORED, STORED
from ..kernel.base import Kernel, State
from ..target.exchangeable import components_of
from ..target.target import Target
from .choice import Choice
from .crew import Grid
from .decide import chains_of_memory, may_have_more_chains, number_of_chains
from .knowledge import Knowledge
from .loop import first_of, joined
from .policy import ChainPolicy, Policy
from .request import Request
from .start import new_chains, starting_models


def chains_for(
    choice: Choice,
    state: State,
    request: Request,
    policy: Policy,
    pace: Callable[[Kernel, State], float],
    burn_in_times: float,
    all_time: bool,
    fewest_if_long: int,
) -> int:
    """Half or twice as many chains, while the run ends sooner.

    New chains have first to make the steps that the others have made. Where the segment was
    too short to trust its autocorrelation time there are none: it would be their burn-in.

    Arguments:
        choice: The choice of the moves.
        state: The chains so far.
        request: What the user asks of the run.
        policy: The policy.
        pace: Seconds of a step of a kernel from a state.
        burn_in_times: Autocorrelation times of burn-in.
        all_time: Whether the run goes on until its time is up.
        fewest_if_long: Chains at least where each has to make many steps.
    """
    found, chains, left = choice.segment, len(state.code), request.left()
    if found is None:
        return chains
    ahead = left if all_time else min(left, request.precise(found))
    fewest = request.fewest_chains
    if request.times * found.memory * found.step > ahead:  # it has to be long rather than wide
        fewest = min(fewest, fewest_if_long)
    more = may_have_more_chains(found, policy.chains, policy.segments)
    more = more and 2 * chains <= request.most_chains
    if not more and chains < 2 * fewest:
        return chains

    def steps(n: int) -> float:
        return max(request.times * found.memory, wanted / n)

    step, most = in_memory(state, lambda: pace(choice.kernel, state), policy.chains)
    more = more and 2 * chains <= most
    if policy.chains.steps_to_try * step > left:
        return chains
    wanted = chains * ahead / step  # steps of chains
    ends = {chains: step * steps(chains)}  # by number, seconds until the end
    few = state
    while (n := len(few.code) // 2) >= fewest:
        few = first_of(few, n)
        ends[n] = pace(choice.kernel, few) * steps(n)
        if ends[n] > min(ends.values()):
            break
    begin = max(choice.steps, burn_in_times * found.time)  # before the first draw
    while more and 2 * len(state.code) <= min(request.most_chains, most):
        state = joined(state, state)
        try:
            step = pace(choice.kernel, state)
        except torch.OutOfMemoryError:
            break
        n = len(state.code)
        ends[n] = step * (begin + steps(n))
        more = step <= policy.chains.busy_step_seconds and ends[n] <= 2 * min(ends.values())
    return number_of_chains(chains, ends, policy.chains)


def in_memory(state: State, step: Callable[[], float], policy: ChainPolicy) -> tuple[float, float]:
    """What a step gives, and how many chains the memory of their GPU holds by what it took.

    Arguments:
        state: The chains that are moved.
        step: Moves them.
        policy: The policy.

    Returns:
        Infinitely many chains on the CPU, whose memory is not measured.
    """
    device = state.theta.device
    if device.type != "cuda":
        return step(), math.inf
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    found = step()
    taken = torch.cuda.max_memory_allocated(device) - before
    free, _ = torch.cuda.mem_get_info(device)  # beside what torch has set aside
    free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return found, chains_of_memory(free, taken, len(state.code), policy)


def of_number(
    known: Knowledge, state: State, ancestor: Tensor, wanted: int, deadline: float
) -> tuple[State, Tensor]:
    """So many chains, and their ancestors: the first ones, or all and new ones that start alike.

    Arguments:
        known: What is known of the target; new chains need a pilot run to start from.
        state: The chains so far.
        ancestor: Index of the independent draw that each descends from, shape (C,).
        wanted: Number of chains.
        deadline: Time by :func:`trjmcmc.clock.now` by which new ones have started.
    """
    chains = len(state.code)
    if wanted < chains:
        return first_of(state, wanted), ancestor[:wanted]
    if wanted == chains or known.fitted.audit is None:
        return state, ancestor
    code = starting_models(known, wanted - chains)
    fresh, new = new_chains(known, code, None, deadline)
    new = torch.where(new < 0, new + ancestor.min().clamp(max=0), new)  # none of those before
    return joined(state, fresh), torch.cat([ancestor, new])


def chains_asked(
    known: Knowledge, chains: int | None, open_length: bool, grid: Grid | None, mapped: bool
) -> tuple[int, int, int]:
    """Chains to begin with, at least and at most; of each shard.

    Arguments:
        known: What is known of the target.
        chains: What the user asks, or None.
        open_length: Whether the number of draws is open.
        grid: Shards, which share the memory for draws, or None.
        mapped: Whether all steps are made through a trained map.
    """
    if chains is not None:
        return chains, chains, chains
    counts = known.policy.chains
    chains = counts.of_open_length if open_length else counts.of_given_draws
    if open_length and mapped and known.target.differentiable:
        chains = counts.through_a_map
    chains = chains_in_memory(known, chains)
    if not open_length:
        return chains, chains, chains
    most = chains_that_fit(known.target) // (1 if grid is None else grid.shards)
    return chains, min(chains, counts.fewest), max(most, 1)


def chains_in_memory(known: Knowledge, most: int) -> int:
    """Fewer chains where each holds a sum over components as large as the data."""
    target, policy = known.target, known.policy.chains
    if not components_of(target) or target.additive is None:
        return most
    code = target.space.sample_prior(1, known.generator)
    sums = target.total(code, target.sample_prior(code, known.generator))
    return min(most, max(policy.least_of_components, policy.numbers_in_sums // sums.numel()))


def chains_that_fit(target: Target) -> int:
    """Chains beyond which the memory set aside for draws would hold too few of each."""
    return STORED // (LEAST_DRAWS_STORED * (target.space.code_width + target.dim + 1))
