"""Chains in shards: batches with random numbers of their own, advanced anywhere."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from typing import Any

import torch
from torch import Tensor

from ..errors import PoolError, TRJError
from ..kernel.base import Kernel, State
from ..result.files import smallest
from .position import Position
from .recorded import Counted, Recorded, Tally
from .start import given_starts
from .tasks import Done, Failed, TaskQueue, Work, moved, one_thread

TOGETHER = 64  # steps of a shard between two looks at the time


class Shards(Recorded):
    """Chains of all shards side by side: as many of each, which start where those of lessons are.

    Where the user gives points they start at these, each shard at its own.

    What a shard does is a function of its kernel, its chains and its random numbers, so that
    draws are the same whoever makes them.

    Arguments:
        chains: Those of lessons.
        grid: How many shards, and who advances them.
    """

    def __init__(self, chains: Recorded, grid: TaskQueue) -> None:
        recipe, shards = chains.recipe, grid.shards
        code, theta, log_joint = (torch.cat([x] * shards) for x in chains.state[:3])
        first, points = State(code, theta, log_joint), recipe.stated.points
        if points is not None:
            first = given_starts(recipe.target, points, len(code))
        super().__init__(recipe, first, worth=chains.worth, shares=chains.shares)
        self._grid, generator = grid, recipe.generator
        seeds = torch.randint(2**62, (shards,), generator=generator, device=generator.device)
        made = (torch.Generator(generator.device).manual_seed(s) for s in seeds.tolist())
        self._randoms = [g.get_state() for g in made]
        self.begin(recipe.stated.thin)

    def advance(self, kernel: Kernel, n: int) -> Iterator[int]:
        """Steps of all shards, recorded, until it is late; after some, how many are ahead.

        Raises:
            PoolError: Workers are lost, or a task failed on one.
            TRJError: A density failed there.
        """
        self._kernel, work = kernel, Work(self.recipe.target, kernel)
        while n and not self.recipe.late:
            steps = min(n, TOGETHER)
            found = None
            with self.recipe.limit.until_spent():
                found = self._gathered(work, steps)
            if found is None:
                break
            self._take(found, steps)
            n -= steps
            yield n

    def _gathered(self, work: Work, steps: int) -> list[Any] | None:
        """What all shards have done in some steps; None where it is late before they have."""
        grid, account = self._grid, self.recipe.limit.account
        left, found = account.left / grid.shards, dict[Hashable, Any]()
        rows = zip(*(x.chunk(grid.shards) for x in self.state[:3]), strict=True)
        tasks = [
            (place, random, steps, self.steps, self.thin)
            for place, random in zip(rows, self._randoms, strict=True)
        ]
        if grid.executor is None:
            for i, task in enumerate(tasks):
                with one_thread(True), account.held_to(left):
                    found[i] = advanced(work, *task)
                if self.recipe.late and i + 1 < len(tasks):
                    return None
            return [*found.values()]
        grid.begin(work)
        for i, task in enumerate(tasks):
            limit = math.floor(min(left, 2**62))
            grid.send((i, self.steps), limit, advanced, *moved(task, torch.device("cpu")))
        try:
            while grid.pending:
                for key, done in grid.arrived():
                    found[key] = self._told(key, done)
                if grid.pending and self.recipe.late:
                    return None
        finally:
            grid.drop()
        return [found[i, self.steps] for i in range(grid.shards)]

    def _told(self, key: Hashable, task: Done | Failed) -> Any:
        """What a task has done, its likelihood calls counted."""
        if isinstance(task, Failed):
            if isinstance(task.error, TRJError):
                raise task.error
            raise PoolError(f"shard and step {key}: {task.text.strip()}") from task.error
        overflows = torch.tensor(task.overflows, device=self.recipe.target.device)
        self.recipe.target.account.add(
            evaluations=task.evaluations, gradients=task.gradients, overflows=overflows
        )
        return task.value

    def _take(self, found: list[Any], steps: int) -> None:
        """Record what the shards have done."""
        device = self.recipe.target.device
        places, randoms, drawn, counts = zip(*found, strict=True)
        code, theta, log_joint = (torch.cat(x).to(device) for x in zip(*places, strict=True))
        self.state = State(code, theta, log_joint)
        self._randoms, self.steps = list(randoms), self.steps + steps
        for each in zip(*drawn, strict=True):
            code, theta, log_joint = (torch.cat(x).to(device) for x in zip(*each, strict=True))
            self.record.append(State(code.long(), theta, log_joint))
        self._thin()
        for counted in counts:
            self.tally.add_counted(counted)

    @property
    def random(self) -> Tensor:
        """State of the generator, and of those of all shards, a row each."""
        return torch.stack([super().random, *self._randoms])

    def put(self, at: Position, record: list[State], kernel: Kernel) -> None:
        main, *self._randoms = (x.clone() for x in at.generator)  # torch reads no part of a tensor
        super().put(at, record, kernel)
        self.recipe.generator.set_state(main)


def advanced(
    work: Work, place: tuple[Tensor, ...], random: Tensor, n: int, before: int, thin: int
) -> tuple[tuple[Tensor, ...], Tensor, list[tuple[Tensor, ...]], list[Counted]]:
    """Some steps of a shard, a function of its arguments.

    Arguments:
        work: Target and frozen kernel.
        place: Codes, points and log joints of its chains.
        random: State of its generator.
        n: Steps.
        before: Steps that it has made.
        thin: Every so many-th step is kept.

    Returns:
        Where chains are; the state of the generator; the states that are kept; what was counted.

    Raises:
        NonFiniteError: A density was NaN or +inf.
    """
    target, tally = work.target, Tally(work.target)
    generator = torch.Generator(target.device)
    generator.set_state(random)
    state, kept = State(place[0], place[1], place[2]), list[tuple[Tensor, ...]]()
    with torch.no_grad():
        for step in range(before + 1, before + n + 1):
            state, infos = work.kernel.step(state, generator)
            tally.add(infos)
            if step % thin == 0:
                kept.append((smallest(state.code), state.theta, state.log_joint))
    tally.check()
    return tuple(state[:3]), generator.get_state(), kept, tally.counted()


def numbers_of(shards: int, chains: int) -> Tensor | None:
    """The shard that each of all chains belongs to, shape (chains,); None of one shard.

    Example:
        >>> numbers_of(2, 6).tolist()
        [0, 0, 0, 1, 1, 1]
    """
    return torch.arange(shards).repeat_interleave(chains // shards) if shards > 1 else None
