"""The kernel of a run over components: births and deaths, and jumps by what they have shown."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import torch

from ..draws import Pool
from ..kernel.base import Kernel
from ..kernel.between.jump import Jump
from ..kernel.components.split import ComponentSplitMerge
from ..kernel.compose import Cycle
from ..kernel.proposal.fixed import Fixed
from ..target.exchangeable import components_of
from ..transport.base import Identity
from ..transport.normals import gaussian_mixture
from ..transport.ordered import Ordered
from .carry import carry
from .choose import JOIN, LONGEST, SEGMENT, TRUSTED, Auto
from .count import Tally
from .look import Segment
from .moves import component_births, component_walks

NORMALS = 8  # a model of the map that whole-vector jumps go through

CELLS = 5e6  # numbers that its covariances may take

FITS = 4  # times that it is fitted to better draws, at most

BETTER = 1.2  # as efficient as before, from where it is fitted again

SETTLED = 3.0  # standard errors of a change between halves of a look that is none

SHARE = 0.4  # of the time left that the warm-up may take

HASTE = 0.5  # share of its time that a look takes at least where a limit is set: short ones flatter

LEAST = 0.02  # of it that each look may take

LONG = 50.0  # seconds of which LEAST is a share where no limit is set

PATIENCE = 20.0  # seconds that it may take where no limit is set

UNSEEN = 0.05  # share of the jumps that lead to models by their prior

TAKEN = 0.005  # share of the splits that are accepted, from where they are worth their time

JUMPS = 2  # a step

RHO, FRESH = 0.5, 0.5  # of these jumps


class AutoComponents(Auto):
    """Chooses the kernel of a run whose target counts exchangeable components.

    Chains start from the prior and go on by births, deaths and walks of components until
    neither their log joint nor their number drifts. What they have passed is put into canonical
    order, a mixture of normals is fitted to each number of components, and jumps through it
    join in if that helps: they cross where one component would have to become two.
    """

    forget = 10.0  # tempering starts with too few components, and errors do not see it
    snapshots = 200

    def _choose(self) -> Kernel:
        room = SHARE * self._left
        self._end = time.monotonic() + (PATIENCE if math.isinf(room) else room)
        parts = components_of(self.target)
        moves: dict[str, Kernel] = {"components": component_births(self.target, parts)}
        counted = [part for part in parts if part.kind.max > max(1, part.kind.min)]
        splits = [ComponentSplitMerge(self.target, part) for part in counted]
        every = moves | ({"splits": Cycle(splits)} if counted else {})
        kernel = self._step(list(every.values()))
        kernel, self.state, origin = carry(
            self.target, self.state, kernel, self.generator, Tally(self.target), self._by(0.5)
        )
        assert isinstance(kernel, Cycle)
        every = {name: kernel.kernels[i][0] for i, name in enumerate(every)}
        self.ancestor = self.ancestor[origin]
        if counted:
            self._look(every, SEGMENT, self._end)
            self._moves, self._found = {}, {}
        if not counted or self._taken(splits) > TAKEN:
            moves = every
        else:
            moves = {"components": every["components"]}
        if self.ready:
            moves |= {"jump": self._jump()}
        fits = FITS if self._affordable else 0
        self._settle(moves, self._by(1 / (fits + 1)))
        before = 0.0
        for left in range(fits, 0, -1):
            pool = self.seen()
            assert pool is not None
            moves |= {"normals": self._jump_between(pool)}
            now = self._settle(moves, self._by(1 / left)).efficiency
            if now < BETTER * before or time.monotonic() > self._end:
                break
            before = now
        return self._frozen(self._leader())

    def _by(self, share: float) -> float:
        """When this share of the time left of the warm-up has passed."""
        now = time.monotonic()
        return now + share * max(0.0, self._end - now)

    def _settle(self, moves: dict[str, Kernel], end: float) -> Segment:
        """Go on with some moves until their chains drift no more, or time is up."""
        begun, steps = time.monotonic(), SEGMENT
        self._states = []
        while True:
            found = self._look(moves, steps, end)
            now = time.monotonic()
            still = found.drift < SETTLED and steps > TRUSTED * found.time
            early = math.isfinite(self.deadline) and now < begun + HASTE * (end - begun)
            if now + 2 * steps * found.step > end or (still and not early):
                return found
            steps = min(2 * steps, LONGEST)

    def _look(self, moves: dict[str, Kernel], steps: int, end: float) -> Segment:
        """Go on with some moves, all together: what is found, and in place what they learned."""
        name = JOIN.join(moves)
        self._moves |= moves
        self._together = name
        left = max(end - time.monotonic(), LEAST * min(self._left, LONG))
        found, learned = self.measure(name, list(moves.values()), steps, left)
        moves.update(zip(moves, learned, strict=True))
        self._moves |= moves
        self._found[name] = found
        return found

    def _walks(self) -> list[Kernel]:
        return component_walks(self.target, components_of(self.target))

    def _taken(self, moves: Sequence[Kernel]) -> float:
        """Share of the proposals of the best of some moves that was accepted so far."""
        rates = self._tally.rates()
        return max(rates[move.name]["between"] for move in moves if move.name in rates)

    @property
    def _affordable(self) -> bool:
        space = self.target.space
        enumerable = space.enumerable and len(space.kinds) == 1
        return enumerable and int(space.size or 0) * NORMALS * self.target.dim**2 < CELLS

    def _jump_between(self, pool: Pool) -> Kernel:
        """Jumps of all components at once, through normals fitted to draws in canonical order."""
        space = self.target.space
        order = Ordered(Identity(space))
        _, u = order.arrange(pool.code, pool.theta)
        draws = Pool(pool.code, u, pool.log_joint)
        normals = gaussian_mixture(space, draws, self.generator, components=NORMALS)
        flow = Ordered(normals, by=int(order.key))
        flow.arrange(pool.code, pool.theta)  # the same units
        seen = torch.bincount(space.index(pool.code), minlength=int(space.size or 0)).double()
        prior = space.log_prior(space.enumerate()).double().exp()
        share = seen.sqrt()  # the rare ones too often, for they are the slowest to be left
        share = (1 - UNSEEN) * share / share.sum() + UNSEEN * prior
        to = Fixed(space, share.log())
        jump = Jump(self.target, flow, to, rho=RHO, fresh=FRESH, name="normals")
        return Cycle([(jump, JUMPS)])

    @property
    def movable(self) -> bool:
        return False
