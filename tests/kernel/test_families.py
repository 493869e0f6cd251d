"""Jumps between graphs with parameters: exact however poor the mixtures of the families are."""

import math

import pytest
import torch

import trjmcmc as trj
from tests.battery import limit
from tests.graphs.small import data
from trjmcmc import graphs
from trjmcmc.errors import ConfigurationError
from trjmcmc.kernel import GraphDraws, GraphWalk, RandomWalk, start
from trjmcmc.kernel.graphs import families as module
from trjmcmc.kernel.graphs.families import Families, FamilyJump, FamilyRefresh
from trjmcmc.kernel.proposal.surrogate import SurrogateWalk
from trjmcmc.pilot.families import listed_families
from trjmcmc.run.recipes.equations import by_normals
from trjmcmc.target.nodes import Nodes

CHAINS = 8_000


class Problem:
    """Linear equations of three nodes: draws of graphs and weights from the posterior itself."""

    def __init__(self, generator, **space):
        self.x, self.generator = data(3, n=12, seed=1), generator
        self.target = graphs.network(self.x, noise=0.5, dtype=torch.float64, **space)
        self.exact = graphs.exact(graphs.linear(self.x, noise=0.5), **space)
        self.nodes = Nodes(self.target)
        self.families = by_normals(self.nodes, listed_families(self.nodes.space))
        self.surrogate = trj.Target(self.nodes.space.bare(), {}, self.families.scores)
        self.state = self.drawn()

    def drawn(self):
        code = self.target.space.sample_prior(CHAINS, self.generator)
        state = start(self.surrogate, code, torch.zeros(CHAINS, 0).double())
        state, _ = GraphDraws(self.surrogate, ahead=1).step(state, self.generator)
        node = torch.arange(3).repeat(CHAINS)
        place = self.nodes.places(state.code).flatten()
        known = self.families.rows(node, place), self.families.active(node, place)
        theta = torch.zeros(CHAINS, self.target.dim).double()
        theta[:, self.nodes.slots.flatten()] = self.families.sample(*known, self.generator).view(
            CHAINS, -1
        )
        return start(self.target, state.code, theta)

    def poor(self):
        """Mixtures of two normals, shifted and too narrow; one family has none."""
        f = self.families
        mean = torch.cat([f.mean + 0.2, f.mean - 0.4], 1)
        active = f.factor.diagonal(dim1=-2, dim2=-1) != 1
        mean = torch.where(active.expand_as(mean), mean, 0.0)
        factor = torch.cat([0.7 * f.factor, 0.9 * f.factor], 1)
        off = ~active.expand(-1, 2, -1)
        factor.diagonal(dim1=-2, dim2=-1)[off] = 1.0
        index = f.index.clone()
        index[2, 3] = -1
        return Families(f.nodes, f.scores, index, torch.full_like(mean[..., 0], 0.5), mean, factor)

    def gap(self, state):
        """Largest z-score of edges, and of weights and their squares, beside fresh draws."""
        edges = self.target.space.items(state.code).double().mean(0)
        p = torch.tensor(
            [self.exact.edges.iloc[i, j] for j in range(3) for i in range(3) if i != j]
        )
        some = (p > 1e-3) & (p < 1 - 1e-3)
        z = [((edges - p) / (p * (1 - p) / CHAINS).sqrt())[some]]
        for power in (1, 2):
            a, b = (s.theta**power for s in (state, self.fresh))
            z.append((a.mean(0) - b.mean(0)) / ((a.var(0) + b.var(0)) / CHAINS).sqrt())
        return float(torch.cat(z).nan_to_num(0.0).abs().max())

    def after(self, kernel, steps=5):
        self.fresh = self.drawn()
        state = self.state
        for _ in range(steps):
            state, _ = kernel.step(state, self.generator)
        log_joint = self.target.log_joint(state.code, state.theta)
        torch.testing.assert_close(state.log_joint, log_joint)
        return self.gap(state)

    def to(self, kind):
        move = GraphDraws(self.surrogate, ahead=1) if kind == "draws" else None
        return SurrogateWalk(self.surrogate, move or GraphWalk(self.surrogate, moves=1))


MOST = limit(100)


@pytest.mark.whole
@pytest.mark.parametrize("tries", [1, 6])
@pytest.mark.parametrize("kind", ["draws", "walk"])
@pytest.mark.parametrize("poor", [False, True])
def test_jumps_leave_the_posterior_as_it_is(poor, kind, tries, generator):
    problem = Problem(generator)
    families = problem.poor() if poor else problem.families
    jump = FamilyJump(problem.target, families, problem.to(kind), tries=tries)
    assert problem.after(jump) < MOST


@pytest.mark.parametrize("tries", [1, 6])
@pytest.mark.parametrize("poor", [False, True])
def test_new_parameters_leave_the_posterior_as_it_is(poor, tries, generator):
    problem = Problem(generator)
    families = problem.poor() if poor else problem.families
    assert problem.after(FamilyRefresh(problem.target, families, tries=tries)) < MOST


def test_exact_mixtures_and_scores_are_always_accepted(generator):
    problem = Problem(generator)
    jump = FamilyJump(problem.target, problem.families, problem.to("draws"))
    _, (info,) = jump.step(problem.state, generator)
    assert float(info.accepted.double().mean()) > 0.999


def test_jumps_with_an_edge_that_has_to_be(generator):
    problem = Problem(generator, required=[("x1", "x0")], max_parents=1)
    jump = FamilyJump(problem.target, problem.families, problem.to("walk"))
    assert problem.after(jump) < MOST


# ---- what is wrong is caught --------------------------------------------------------------------


def test_without_the_densities_of_the_mixtures(generator, monkeypatch):
    problem = Problem(generator)
    jump = FamilyJump(problem.target, problem.poor(), problem.to("walk"))
    monkeypatch.setattr(Families, "log_prob", lambda self, row, *rest: torch.zeros(len(row)))
    assert problem.after(jump) > MOST


@pytest.mark.whole
def test_without_the_other_draws_at_the_old_place(generator, monkeypatch):
    problem, honest = Problem(generator), module._several

    def alone(families, node, before, after, here, tries, generator, in_turn):
        value, new, _ = honest(families, node, before, after, here, tries, generator, in_turn)
        return value, new - math.log(tries), families.log_weight(node, before, here)

    monkeypatch.setattr(module, "_several", alone)
    jump = FamilyJump(problem.target, problem.poor(), problem.to("walk"), tries=6)
    assert problem.after(jump, 25) > MOST


def test_without_the_ratio_of_the_surrogate(generator):
    problem = Problem(generator)
    to = problem.to("draws")
    to.propose = lambda code, g, propose=to.propose: (propose(code, g)[0], torch.zeros(len(code)))
    assert problem.after(FamilyJump(problem.target, problem.families, to)) > MOST


# ---- other moves of the same graphs -------------------------------------------------------------


def test_a_surrogate_has_no_parameters(generator):
    problem = Problem(generator)
    with pytest.raises(ConfigurationError, match="without parameters"):
        SurrogateWalk(problem.target, RandomWalk(problem.target))
