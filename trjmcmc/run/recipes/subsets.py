"""Subsets of items."""

from __future__ import annotations

from contextlib import suppress

import torch
from torch import Tensor

from ...draws import Pool
from ...errors import ConfigurationError
from ...kernel.base import Kernel, State, start
from ...kernel.between.unit_gibbs import UnitGibbs
from ...kernel.compose import Cycle
from ...kernel.inside.random_walk import RandomWalk
from ...target.target import Target
from ...target.tempered import Tempered
from ...transport.base import Transport
from ...transport.normals import gaussian_mixture
from ..marginals import NAME, marginal_moves, marginals_fit
from ..moves import DEFAULT, birth_death
from .base import Known, Moves
from .cooled import Cooled

CLIMBERS = 8  # one chain of so many begins where a climb inside a model ends

CLIMB = 200  # steps

LONGER, SHORTER = 1.5, 0.9  # steps, after one uphill and after another: a fifth leads uphill


class Items(Cooled):
    """Births and deaths of items, and conditional draws of one item where a model allows them."""

    def begin(self) -> tuple[Known, State]:
        """Cooled chains, among them some that climbed: cooling loses narrow modes of rare models.

        Source:
            Steps uphill by the one-fifth rule, Rechenberg (1973), Evolutionsstrategie
        """
        known, cooled = super().begin()
        state = start(self.target, *self._climbed(cooled))
        pool = Pool(state.code, state.theta, state.log_joint.double())
        return known._replace(draws=pool), state

    @torch.no_grad()
    def _climbed(self, cooled: State) -> tuple[Tensor, Tensor]:
        """Codes and points of chains, some of each group where climbs from prior draws end."""
        target, g, n = self.target, self.generator, len(cooled.code)
        chains = torch.arange(n, device=cooled.code.device)
        rows = chains[chains // self.plan.groups % CLIMBERS == 0]
        code = target.space.sample_prior(len(rows), g)
        theta = target.sample_prior(code, g)
        height, free = target.log_joint(code, theta), target.free(code)
        scale = theta.std(0).nan_to_num(1.0)
        length = torch.ones_like(theta[:, :1])
        for _ in range(CLIMB):
            if self.late:
                break
            noise = torch.randn(theta.shape, generator=g, device=theta.device, dtype=theta.dtype)
            there = theta + length * scale * noise * free
            value = target.log_joint(code, there)
            up = value > height
            theta = torch.where(up[:, None], there, theta)
            height = torch.where(up, value, height)
            length = length * torch.where(up[:, None], LONGER, SHORTER)
        rows, code, theta = (x[height > -torch.inf] for x in (rows, code, theta))
        return cooled.code.index_copy(0, rows, code), cooled.theta.index_copy(0, rows, theta)

    def warm_kernel(self, target: Target) -> Kernel:
        return Cycle([*self._walks(target), *self._steps(target).values()])

    def _walks(self, target: Target) -> list[Kernel]:
        return [RandomWalk(target)] if target.dim else []

    def _steps(self, target: Target) -> dict[str, Kernel]:
        found: dict[str, Kernel] = {"births": birth_death(target, None)}
        if target.dim and not isinstance(target, Tempered):
            with suppress(ConfigurationError):  # it is not this kind of model
                found["gibbs"] = UnitGibbs(target)
        return found

    def moves(self, known: Known) -> Moves:
        between = self._steps(self.target)
        if marginals_fit(self.target):
            between[NAME] = marginal_moves(self.target, known.draws, self.generator, DEFAULT)
        return Moves(between, self._walks(self.target))

    def normals(self, known: Known, moves: Moves, generator: torch.Generator) -> Transport | None:
        space = self.target.space
        return gaussian_mixture(space, known.draws, generator) if space.few else None

    def asked(self, code: Tensor) -> Tensor:
        """Whether each item is in; of few models each model as well."""
        flat, shape = code.flatten(0, 1), code.shape[:2]
        found = self.host.items(flat).double()
        if self.host.few:
            each = torch.nn.functional.one_hot(self.host.index(flat), self.host.size or 0)
            found = torch.cat([found, each.double()], 1)
        return found.view(*shape, -1)
