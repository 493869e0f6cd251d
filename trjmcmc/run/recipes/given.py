"""A kernel of the user, from draws of the prior."""

from __future__ import annotations

import math
from functools import cached_property

import torch

from ...draws import Pool
from ...kernel.base import State
from ...transport.base import Transport
from ...transport.normals import gaussian_mixture
from ..start import starting_state
from .base import USUAL, Known, Moves, Recipe, Route

A_START = 10  # share of the stated evaluations that these may take is one in so many

CANDIDATES = 16  # prior draws of each chain, which starts at one in proportion to its likelihood


class KernelRecipe(Recipe):
    """The kernel alone moves chains; all lessons are for it to adapt and to leave the prior."""

    @cached_property
    def share(self) -> float:
        """All that is planned, but for weights: what a step takes is the user's choice."""
        return min(1.0, (self.stated.evaluations or math.inf) / USUAL)

    @property
    def chains(self) -> int:
        return self.stated.chains or self.plan.chains

    def begin(self) -> tuple[Known, State]:
        target, generator = self.target, self.generator
        code = target.space.sample_prior(self.chains, generator)
        most = (self.stated.evaluations or math.inf) / (A_START * self.chains)
        candidates = max(1, int(min(CANDIDATES, most)))
        state = starting_state(target, self.trained, code, generator, candidates=candidates)
        pool = Pool(state.code, state.theta, state.log_joint.double())
        return Known(pool, None, torch.zeros(self.plan.groups, dtype=torch.float64)), state

    def moves(self, known: Known, generator: torch.Generator) -> Moves:
        assert self.stated.kernel is not None
        kernel = self.stated.kernel(self.target)
        return Moves({kernel.name: kernel}, [])

    def weigh(self, known: Known, moves: Moves) -> Route | None:
        """Models through a map that was trained or given."""
        space = self.target.space
        if self.trained is None or not space.few or space.has_items:
            return None
        return self.route(self.trained, space.enumerate(), self.generator)

    def finer(self, why: str) -> None:
        """None: the kernel was made for these numbers."""

    def normals(self, known: Known, moves: Moves, generator: torch.Generator) -> Transport | None:
        """The map that was trained or given; else normals of what chains have drawn of each of few
        models."""
        space = self.target.space
        if self.trained is not None or not space.few:
            return self.trained
        return gaussian_mixture(space, known.draws, generator)
