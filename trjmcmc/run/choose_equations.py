"""The kernel of a run over graphs whose equations have parameters: families, then jumps."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import cast

import torch
from torch import Tensor

from .. import clock
from ..errors import (
    ConfigurationError,
    ConvergenceError,
    CoverageWarning,
    TargetError,
    warn_user,
)
from ..kernel.base import Kernel, start
from ..kernel.compose import Cycle
from ..kernel.graphs.draws import GraphDraws
from ..kernel.graphs.families import Families, FamilyJump, FamilyRefresh
from ..kernel.graphs.walk import GraphWalk
from ..kernel.inside.random_walk import RandomWalk
from ..kernel.proposal.surrogate import SurrogateWalk
from ..pilot.families import listed_families
from ..space.dags import Dags
from ..target.nodes import Nodes
from ..target.target import Target
from .choice import Choice
from .choose import Chooser
from .families import by_normals, by_tempering, effective
from .policy import Policy
from .start import given_starts


class EquationChooser(Chooser):
    """Chooses the kernel of a run over graphs with parameters, an equation a node.

    Each node given each of its parent sets, a family, gets a mixture of normals and an evidence:
    normals at the modes where these prove good, else what tempering finds. Jumps go to graphs that
    the evidences propose, with parameters from the mixtures.
    """

    tempers = True

    @classmethod
    def fits(cls, target: Target, policy: Policy) -> bool:
        """Whether it is such a target, and its families are not too many."""
        if target.equations is None or not target.space.graphs:
            return False
        listed = listed_families(cast("Dags", target.space))
        most = policy.graphs.most_families if target.differentiable else policy.graphs.most_tempered
        return listed is not None and int(listed.sum()) <= most

    @property
    def trainable(self) -> bool:
        """Nothing is: mixtures are fitted."""
        return False

    def _choose(self) -> Choice:
        bench, target, graphs = self.bench, self.target, self.policy.graphs
        families = self._families()
        surrogate = Target(families.nodes.space.bare(), {}, families.scores, device=target.device)
        walk = GraphWalk(surrogate, moves=1)
        share = float(effective(families, graphs.check_draws, self.generator).median())
        tries = min(graphs.most_tries, math.ceil(graphs.effective_tries / share))
        walks = Cycle([(RandomWalk(target), graphs.walks if tries > 1 else 1)])
        bench.go_inside([FamilyRefresh(target, families, tries=tries), walks])
        self._start(families, surrogate, walk, tries)
        moves: dict[str, Kernel] = {}
        with suppress(ConfigurationError):  # too many nodes
            moves["families"] = GraphDraws(surrogate, ahead=1)
        if not moves or share < graphs.nearly_exact:  # else these are all but independent
            moves["families near"] = walk
        for name, move in moves.items():
            to = SurrogateWalk(surrogate, move)
            self._offer(name, FamilyJump(target, families, to, tries=tries, name=name))
        self._leader()
        return self._chosen(self._race())

    def _families(self) -> Families:
        """Mixtures and evidences: normals at modes if these will do, else by tempering."""
        graphs, target = self.policy.graphs, self.target
        nodes = Nodes(target)
        listed = listed_families(nodes.space)
        assert listed is not None
        normals = by_normals(nodes, listed) if target.differentiable else None
        if normals is not None:
            share = effective(normals, graphs.check_draws, self.generator)
            good = float(share.median()) > graphs.least_effective
            if good or int(listed.sum()) > graphs.most_tempered:
                return normals
        room = graphs.warm_up_share * self.request.left()
        deadline = clock.now() + (graphs.most_seconds if math.isinf(room) else room)
        try:
            return by_tempering(nodes, listed, self.generator, deadline, graphs)
        except (TargetError, ConvergenceError):  # the prior reaches where nothing is possible
            if normals is None:
                raise
            return normals

    def _start(self, families: Families, surrogate: Target, walk: GraphWalk, tries: int) -> None:
        """Chains at graphs that the evidences propose, with parameters from the mixtures."""
        bench, target, generator = self.bench, self.target, self.generator
        graphs = self.policy.graphs
        n = len(bench.state.code)
        if self.request.fewest_chains != self.request.most_chains:
            of_a_step = families.nodes.slots.shape[0] * tries
            n = min(n, max(graphs.least_chains, graphs.draws_a_step // of_a_step))
        code = target.space.sample_prior(n, generator)
        nothing = torch.zeros(n, 0, dtype=surrogate.dtype, device=target.device)
        state = start(surrogate, code, nothing)
        for _ in range(graphs.first_steps):
            state, _ = walk.step(state, generator)
        code, nodes = state.code, families.nodes
        node = torch.arange(code.shape[1], device=code.device).repeat(n)
        place = nodes.places(code).flatten()
        row = families.rows(node, place)
        value = families.sample(row, families.active(node, place), generator)
        self._doubt(families, row.view(n, -1))
        theta = torch.zeros(n, target.dim, dtype=target.dtype, device=target.device)
        theta[:, nodes.slots.flatten()] = value.view(n, -1)
        state = start(target, code, theta)
        sound = state.log_joint.abs() < math.inf
        pick = torch.where(sound, 1.0, 0.0).multinomial(n, True, generator=generator)
        pick = torch.where(sound, torch.arange(n, device=code.device), pick)
        bench.move_to(start(target, code[pick], theta[pick]), pick)
        if self.request.start is not None:
            bench.move_to(*given_starts(target, self.request.start, n))

    def _doubt(self, families: Families, row: Tensor) -> None:
        """Warn where tempered runs of families that chains are in contradict each other.

        Arguments:
            families: With the gaps between them.
            row: Families that chains start in, shape (chain, d).
        """
        limit = self.policy.choice.contradiction_nats
        share = (families.gap[row.clamp(min=0)] > limit).double().mean(0)
        nodes = families.nodes.space.nodes
        worst = [nodes[j] for j in (share > self.policy.graphs.doubted_share).nonzero()[:, 0]]
        if worst:
            gap = float(families.gap[row.clamp(min=0)].max())
            warn_user(
                f"tempered runs of the equation(s) of {', '.join(worst)} contradict each other (by "
                f"up to {gap:.1f} nats): a part of their posterior may be lost, and chains start "
                "there. Compare with trj.graphs.exact(trj.graphs.evidences(target, "
                "particles=2000)), or give the run more time",
                CoverageWarning,
            )
