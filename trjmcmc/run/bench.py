"""Moves between models side by side: what pilot segments say of each, and of several in turn."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from .. import clock
from ..draws import Pool
from ..kernel.base import Kernel, State
from ..kernel.compose import Cycle, MixtureKernel
from ..target.target import Target
from .count import Tally
from .decide import Names, Worth, leader, step_shares, useful_moves
from .loop import pooled
from .policy import Policy
from .segment import Segment, run_segment


class Bench:
    """Advances the chains of a warm-up by one kernel after another, and measures each.

    Arguments:
        target: The target.
        state: Chains.
        ancestor: Index of the independent draw from the prior that each chain was resampled from,
            shape (C,).
        inside: Gives the moves inside models that follow each move between them at first.
        generator: Source of randomness.
        policy: How segments are made and moves are chosen.
        states_kept: States of a segment to keep, half of which may be trained on.
        worth: What a segment is worth, by which moves are chosen.
        on_steps: Called with the number of steps after each segment.

    Attributes:
        state, ancestor: Where the chains are, and what they descend from.
        steps: Steps made so far.
        moves: By name, the moves between models.
        found: By the names of moves that took turns, their last segment.
        combined: Names of all useful moves, once they have been measured together.
    """

    def __init__(
        self,
        target: Target,
        state: State,
        ancestor: Tensor,
        inside: Callable[[], list[Kernel]],
        *,
        generator: torch.Generator,
        policy: Policy,
        states_kept: int,
        worth: Worth = lambda found: found.efficiency,
        on_steps: Callable[[int], object] = lambda steps: None,
    ) -> None:
        self.target, self.state, self.ancestor = target, state, ancestor
        self.generator, self.policy, self.on_steps = generator, policy, on_steps
        self.steps, self.worth = 0, worth
        self.moves: dict[str, Kernel] = {}
        self.found: dict[Names, Segment] = {}
        self.combined: Names | None = None
        self._first_inside, self._states_kept = inside, states_kept
        self._inside: list[Kernel] | None = None
        self._tally = Tally(target)
        self._states: list[State] = []

    def seen(self) -> Pool | None:
        """Points that the chains have passed."""
        return pooled(self._states)

    def move_to(self, state: State, ancestor: Tensor | None = None) -> None:
        """Go on from where something else has left the chains."""
        self.state = state
        self.ancestor = self.ancestor if ancestor is None else ancestor

    def forget_seen(self) -> None:
        """Drop the points so far: the chains were on their way."""
        self._states = []

    def kernel_of(self, moves: list[Kernel]) -> Kernel:
        """Moves between models in turn, then moves inside them."""
        return Cycle([*moves, *self.inside])

    @property
    def inside(self) -> list[Kernel]:
        """The moves inside models that follow each move between them."""
        return self._first_inside() if self._inside is None else self._inside

    def go_inside(self, moves: list[Kernel]) -> None:
        """Use other moves inside models from now on."""
        self._inside = moves

    def named(self, names: Names) -> list[Kernel]:
        """The moves of these names."""
        return [self.moves[n] for n in names]

    # ---- measuring --------------------------------------------------------------------------

    def measure(
        self, kernel: Kernel, steps: int, most_seconds: float = math.inf
    ) -> tuple[Segment, Kernel]:
        """Go on with a kernel for a segment: what was measured, and the adapted kernel."""
        found, learned, self.state, states = run_segment(
            kernel,
            self.state,
            steps,
            target=self.target,
            generator=self.generator,
            tally=self._tally,
            most_seconds=most_seconds,
            least_completed=self.policy.segments.least_completed,
            states_kept=self._states_kept,
        )
        self.steps += found.steps
        self._states += states
        self.on_steps(found.steps)
        return found, learned

    def measure_moves(
        self, moves: list[Kernel], steps: int, most_seconds: float = math.inf
    ) -> tuple[Segment, list[Kernel]]:
        """Go on with moves between models in turn: what was measured, and the adapted moves."""
        found, learned = self.measure(self.kernel_of(moves), steps, most_seconds)
        all_moves = moves_of(learned)
        if self._inside is not None:
            self._inside = all_moves[len(moves) :]
        return found, all_moves[: len(moves)]

    def measure_named(self, names: Names, steps: int, most_seconds: float = math.inf) -> Segment:
        """Measure moves that have been taken up, in turn, and keep what they have learned."""
        found, learned = self.measure_moves([self.moves[n] for n in names], steps, most_seconds)
        self.moves.update(zip(names, learned, strict=True))
        self.found[names] = found
        return found

    def offer(self, name: str, move: Kernel, steps: int, most_seconds: float) -> Segment:
        """Take up a move between models after a first segment; not if that was cut short."""
        found, (move,) = self.measure_moves([move], steps, most_seconds)
        if not found.cut_short or not self.moves:
            for names in [n for n in self.found if name in n]:
                del self.found[names]  # with the move of that name before
            self.moves[name], self.found[name,] = move, found
            self.combined = None
        return found

    def withdraw(self, name: str, move: Kernel, found: Segment) -> None:
        """Give a name back to the move that had it before."""
        self.moves[name], self.found[name,] = move, found

    def take_up(self, moves: Mapping[str, Kernel], steps: int, most_seconds: float) -> Segment:
        """Take up several moves at once, by one segment of all in turn."""
        self.moves |= moves
        self.combined = tuple(moves)
        return self.measure_named(self.combined, steps, most_seconds)

    def clear(self) -> None:
        """Forget moves and segments; the chains stay where they are."""
        self.moves, self.found = {}, {}

    def acceptance(self, name: str) -> float | None:
        """Share of a kernel's proposals between models that was accepted; None if unknown."""
        rates = self._tally.rates()
        return rates[name]["between"] if name in rates else None

    def pace(self, kernel: Kernel, state: State, left: float) -> float:
        """Seconds of a step: the second shortest of a few, for some steps are rare and long.

        Arguments:
            kernel: The kernel.
            state: The chains that it is tried on; they stay where they are.
            left: Seconds left until the end of the run.
        """
        segments, seconds = self.policy.segments, []
        with torch.no_grad():
            for _ in range(segments.probes):
                begun = clock.now()
                state, _ = kernel.step(state, self.generator)
                state.log_joint.sum().item()  # a GPU is waited for
                seconds.append(clock.now() - begun)
                if seconds[-1] > segments.probe_share * left:
                    break
        return sorted(seconds)[:2][-1]

    # ---- choosing ---------------------------------------------------------------------------

    def leader(self, steps: int, most_seconds: float) -> Names:
        """The best so far; all useful moves in turn are measured if they have not been.

        Arguments:
            steps: Of their segment, if they have not been measured together.
            most_seconds: That it may take.
        """
        if self.combined is None and not self.moves:
            self.combined = ()
            self.measure_named((), steps, most_seconds)
        if self.combined is None:
            names = useful_moves(self.found, self.moves, self.policy.choice)
            self.combined = names
            if len(names) > 1:
                self.measure_named(names, steps, most_seconds)
        return leader(self.found, self.combined, self.policy.choice, self.worth)

    def best_known(self) -> Names | None:
        """The best of what has been measured; None if nothing was."""
        known = {n: f for n, f in self.found.items() if set(n) <= set(self.moves)}
        return leader(known, self.combined, self.policy.choice, self.worth) if known else None

    def mixed(self, best: Names, trained: str | None = None) -> tuple[Kernel, dict[str, float]]:
        """The best, and now and then each of the rest: a kernel, and shares of the steps.

        Not what would take too much of the time even so.

        Arguments:
            best: Names of the moves that were chosen.
            trained: Name of jumps through a map that the user has had trained: beside the best
                they take turns in proportion to their efficiency, and always some.
        """
        rest = [
            n for n in self.moves if n not in best and (n == trained or not self._too_dear(n, best))
        ]
        shares = step_shares(len(rest), self.policy.choice)
        if trained in rest and best in self.found and (trained,) in self.found:
            place = 1 + rest.index(trained)
            mine, theirs = self.found[(trained,)], self.found[best]
            whole = mine.efficiency + theirs.efficiency
            share = shares[place] + (shares[0] * mine.efficiency / whole if whole else 0.0)
            if self._too_dear(trained, best):
                share = self.policy.choice.most_of_the_rest * theirs.step / mine.step
            shares[0] -= share - shares[place]
            shares[place] = share
        kernels = [self.kernel_of(self.named(best))]
        kernels += [self.kernel_of([self.moves[n]]) for n in rest]
        return MixtureKernel(kernels, shares), dict(
            zip([spelled(best), *rest], shares, strict=True)
        )

    def _too_dear(self, name: str, best: Names) -> bool:
        found, policy = self.found.get((name,)), self.policy.choice
        if found is None or best not in self.found:
            return False
        if 2 * found.efficiency > self.found[best].efficiency:
            return False  # it pays for what it takes
        price = policy.least_share * found.step / max(self.found[best].step, 1e-12)
        return price > policy.most_of_the_rest

    def efficiencies(self) -> dict[str, float]:
        """Effective draws a second by what was measured."""
        return {spelled(names): f.efficiency for names, f in self.found.items()}


def moves_of(kernel: Kernel) -> list[Kernel]:
    """The moves of a kernel of :meth:`Bench.kernel_of`: those between models, then those inside."""
    assert isinstance(kernel, Cycle)
    return [move for move, _ in kernel.kernels]


def spelled(names: Names) -> str:
    """Names of moves that take turns, as a plan shows them."""
    return " + ".join(names) or "inside"
