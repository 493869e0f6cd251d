"""What is done of a run in shards wherever its shards are: pure steps, on plain data."""

from __future__ import annotations

import hashlib
import math
import pickle
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import clock
from ..errors import ConfigurationError
from ..kernel.base import State
from ..result.files import smallest
from ..rng import stream
from ..transport.base import Identity, Transport
from .count import Tally
from .knowledge import Knowledge
from .loop import CHECK_EVERY
from .memories import Memories
from .policy import Policy
from .sampling import Block, SamplingPlan, Shard, Walk, advance
from .start import carried_starts, starting_state, with_climbs
from .strategy import ThroughTheMap


@dataclass(frozen=True)
class Work:
    """What all shards of a run have in common; it does not change while they sample.

    Attributes:
        plan: What they are advanced by.
        seed: Of the run.
        burn_in: Steps between the start of a shard and its first draw.
        through: Map whose draws every other chain starts at, or None.
        transport: Map by which starts are found in many models, or None.
        policy: How starts are found.
    """

    plan: SamplingPlan
    seed: int
    burn_in: int
    through: Transport | None
    transport: Transport | None
    policy: Policy


class Start(NamedTuple):
    """Where the chains of a shard come from.

    Attributes:
        code: Models, shape (C, L).
        theta: Points, shape (C, D); None where the shard has to find them.
        log_joint: Of chains that go on from there, shape (C,); None of candidates for a start.
        memo, owner: What the kernel knows of the place, as of :class:`~trjmcmc.run.sampling.Shard`.
        ancestor: The independent draw that each chain descends from, shape (C,).
    """

    code: Tensor
    theta: Tensor | None = None
    log_joint: Tensor | None = None
    memo: tuple[Tensor, ...] = ()
    owner: int = -1
    ancestor: Tensor | None = None


# ---- steps --------------------------------------------------------------------------------------


def begin_shard(work: Work, number: int, place: Start, seconds: float, candidates: int) -> Shard:
    """A shard before its first draw: its chains start, and burn in by the frozen kernel.

    Arguments:
        work: The work.
        number: Of the shard; with the seed it names its stream of random numbers.
        place: Where its chains come from.
        seconds: That this may take; fewer steps are made then.
        candidates: Draws of the prior that a chain may choose from.
    """
    plan = work.plan
    target, kernel = plan.target, plan.kernel
    generator, end = stream(work.seed, number, target.device), clock.now() + seconds
    memories = Memories((kernel, work.through, work.transport), target)
    before = memories.held()
    state, ancestor = _chains(work, moved(place, target.device), generator, end, candidates)
    with torch.no_grad():
        tally = Tally(target)
        for i in range(work.burn_in):
            state, infos = kernel.step(state, generator)
            tally.add(infos)
            if i % CHECK_EVERY == 0:
                tally.check()
            if clock.now() > end:
                break
        tally.check()
        shard = Walk(plan, state, generator, ancestor).shard()._replace(remembered=None)
    memories.take_up(before)
    return shard


def _chains(
    work: Work, place: Start, generator: torch.Generator, end: float, candidates: int
) -> tuple[State, Tensor]:
    """Chains where they start, and the independent draw that each descends from, shape (C,)."""
    plan, code, theta, log_joint = work.plan, place.code, place.theta, place.log_joint
    target, ancestor = plan.target, place.ancestor
    if theta is not None and log_joint is not None:
        memo = Memories(plan.kernel, target).memo(place.owner, place.memo)
        assert ancestor is not None
        return State(code, theta, log_joint, memo), ancestor
    carried = None if theta is None or ancestor is None else (theta, ancestor)
    free = math.isinf(target.account.left)
    if carried is not None:
        few = len(carried[1].unique()) < work.policy.starts.fewest_starts
        if few and free and target.differentiable:
            until = clock.part_of_the_time_left(work.policy.starts.climbing_share, end)
            carried = with_climbs(target, code, *carried, generator, until)
    else:
        known = Knowledge(
            target,
            Identity(target.space) if work.transport is None else work.transport,
            ThroughTheMap(work.policy.kernels),
            generator,
            policy=work.policy,
            given_map=False,
            make_weights=None,
        )
        if free:
            carried = carried_starts(known, code, end)
        else:
            some = int(work.policy.starts.share_of_calls * target.account.left)
            candidates = max(1, min(candidates, some // len(code)))
    return starting_state(target, work.through, code, generator, carried, candidates)


def advance_shard(work: Work, shard: Shard, draws: int, thin: int) -> tuple[Block, Shard]:
    """Some draws of a shard, and its next state."""
    device = work.plan.target.device
    here = moved(shard, device)._replace(generator=shard.generator)
    block, after = advance(work.plan, here, draws, thin)
    return block._replace(code=smallest(block.code)), after


STEPS: dict[str, Callable[..., Any]] = {"begin": begin_shard, "advance": advance_shard}


# ---- as a task ----------------------------------------------------------------------------------


class Done(NamedTuple):
    """What came of a task.

    Attributes:
        value: What its step gave, on the CPU.
        evaluations, gradients, overflows: Likelihood calls that were made, as of
            :class:`~trjmcmc.target.account.Account`.
        seconds: That it took.
    """

    value: Any
    evaluations: int
    gradients: int
    overflows: int
    seconds: float


class Failed(NamedTuple):
    """An error that a task met.

    Attributes:
        error: It, where it can be sent.
        text: Its last lines.
    """

    error: Exception | None
    text: str


def perform(
    key: str, packed: bytes | None, limit: float, step: str, *args: Any
) -> Done | Failed | None:
    """Do a step of the work of that key; None where this worker does not know it.

    Torch computes with one thread meanwhile, so that the bits are those of every other worker.

    Arguments:
        key: Of the work.
        packed: The work; None where it was sent before.
        limit: Likelihood calls that may be made.
        step: A name of :data:`STEPS`.
        args: Of the step, after the work.
    """
    try:
        if packed is not None and key not in _HERE.works:
            learn(key, pickle.loads(packed))
        work: Work | None = _HERE.works.get(key)
        if work is None:
            return None
        account, begun = work.plan.target.account, clock.now()
        before = account.held()
        with _one_thread(), account.held_to(limit):
            value = moved(STEPS[step](work, *args), torch.device("cpu"))
        made = {name: n - before[name] for name, n in account.held().items()}
        return Done(value, **made, seconds=clock.now() - begun)
    except Exception as error:
        return Failed(_sendable(error), traceback.format_exc(limit=-3))


def pack_work(work: Work) -> tuple[str, bytes]:
    """A key of the work, and the work itself, for workers elsewhere.

    Raises:
        ConfigurationError: Something in it can't be sent.
    """
    try:
        import cloudpickle

        dumps = cloudpickle.dumps
    except ImportError:
        dumps = pickle.dumps
    try:
        packed = dumps(work)
    except Exception as error:  # of many kinds, by what the user's functions hold
        raise ConfigurationError(
            f"executor: this target can't be sent to workers ({type(error).__name__}: {error}). "
            "Define its functions at the top of a module, or pip install cloudpickle, and let "
            "them open files and connections where they are called"
        ) from None
    return hashlib.sha256(packed).hexdigest(), packed


class _Works(threading.local):
    """Works by key, of each thread its own: steps use the memory of their maps."""

    def __init__(self) -> None:
        self.works: dict[str, Work] = {}


_HERE = _Works()

MOST_WORKS = 2  # that a worker keeps


def learn(key: str, work: Work) -> None:
    """Keep a work in this thread, and forget the oldest."""
    works = _HERE.works
    works[key] = work
    for old in list(works)[:-MOST_WORKS]:
        del works[old]


def forget(key: str) -> None:
    """Forget a work."""
    _HERE.works.pop(key, None)


def _sendable(error: Exception) -> Exception | None:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return None
    return error


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    if before > 1:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        if before > 1:
            torch.set_num_threads(before)


def moved(x: Any, device: torch.device) -> Any:
    """Plain data with its tensors on a device; those that are part of a larger one are copied."""
    if isinstance(x, Tensor):
        x = x.detach().to(device)
        whole = x.untyped_storage().nbytes() <= x.numel() * x.element_size()
        return x if whole else x.clone()
    if isinstance(x, dict):
        return {k: moved(v, device) for k, v in x.items()}
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(moved(v, device) for v in x))
    if isinstance(x, tuple | list):
        return type(x)(moved(v, device) for v in x)
    return x
