"""Graphs in rounds: with parameters of each node, and beyond sums over all graphs."""

import math
import warnings
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch.distributions import Bernoulli, Normal, Uniform

import trjmcmc as trj
from tests.battery import limit
from tests.emulated import DEVICE, Emulated
from tests.graphs.small import data
from tests.rounds import rounds
from trjmcmc import clock, graphs
from trjmcmc.errors import CoverageWarning, TRJWarning, UnreachableError
from trjmcmc.run.asked import Limit
from trjmcmc.run.plan import Plan
from trjmcmc.run.position import Lesson
from trjmcmc.run.recipes import equations
from trjmcmc.run.recipes import equations as families
from trjmcmc.run.recipes.choose import kind_of, recipe_of
from trjmcmc.run.recipes.equations import EquationsRecipe
from trjmcmc.run.recipes.graphs import GraphsRecipe, WalkedGraphsRecipe
from trjmcmc.run.recipes.subsets import SubsetsRecipe
from trjmcmc.run.rounds import lesson_of

FEW = Plan(chains=64, first=12, measured=6, most=30)
SMALL = {"PARTICLES": 40, "MOVES": 3, "COMPONENTS": 4, "FITTED_DRAWS": 200}


def many_nodes(d=13, **device):
    """Where few orders of the nodes tell edges apart."""
    x = torch.randn(30, d, generator=torch.Generator().manual_seed(1))
    return graphs.target(graphs.bge(x, candidates=2), **device)


def binary(d=3, n=40, seed=0):
    """Logistic equations of binary columns."""
    g = torch.Generator().manual_seed(seed)
    x = (torch.rand(n, d, generator=g) < 0.5).float()
    x[:, 1] = torch.where(torch.rand(n, generator=g) < 0.8, x[:, 0], x[:, 1])

    def density(j, p, parents):
        logit = p["w"] @ (2 * x.T - 1).to(p["w"]) + p["b"][:, None]
        return Bernoulli(logits=logit).log_prob(x[:, j].to(logit)).sum(1)

    names = [f"x{i}" for i in range(d)]
    weights = {"edges": {"w": Normal(0.0, 1.5)}, "nodes": {"b": Normal(0.0, 1.5)}}
    return graphs.equations(names, density, **weights)


def temper(monkeypatch, sizes):
    """Have families tempered, whatever normals at their modes are worth."""
    monkeypatch.setattr(equations, "EFFECTIVE", 1.0)
    for name, value in sizes.items():
        monkeypatch.setattr(families, name, value)


def run(target, kind=None, seed=1, plan=FEW, deadline=math.inf, **settings):
    generator = torch.Generator().manual_seed(seed)
    recipe = (kind or kind_of(target))(target, plan, generator, limit=Limit(deadline))
    return rounds(recipe, **settings)


def z_of(run, exact):
    """z of the edges that are neither certain nor impossible."""
    d = len(exact.edges)
    pairs = [(i, j) for j in range(d) for i in range(d) if i != j]
    p = torch.tensor([exact.edges.iloc[pair] for pair in pairs])
    known = isinstance(exact.edges_se, float)  # scores without errors
    error = torch.tensor([0.0 if known else exact.edges_se.iloc[pair] for pair in pairs])
    some = (p > 0.02) & (p < 0.98)
    return ((run.p - p) / torch.hypot(run.error, error))[some]


def same(a, b):
    return torch.equal(a.draws.theta, b.draws.theta) and torch.equal(a.draws.code, b.draws.code)


# ---- which graphs --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        (lambda: graphs.target(graphs.bge(data(4))), GraphsRecipe),
        (many_nodes, WalkedGraphsRecipe),
        (lambda: graphs.target(graphs.bge(data(21), candidates=2)), WalkedGraphsRecipe),
        (lambda: graphs.network(data(3)), EquationsRecipe),
        (binary, EquationsRecipe),
        (lambda: graphs.network(data(17)), SubsetsRecipe),  # families are too many to list
        (lambda: graphs.network(data(1)), SubsetsRecipe),
    ],
)
def test_recipes_by_graphs(target, kind):
    assert kind_of(target()) is kind


# ---- right answers -------------------------------------------------------------------------------


def test_weights_that_are_sampled_give_the_same_edges():
    x = data(3, n=12, seed=2)
    target = graphs.network(x, noise=0.5)
    first, again = (trj.TRJSampler(target, seed=1).run(progress=False) for _ in range(2))
    assert first.report.judged is not None and not first.report.missed
    assert torch.equal(first.raw.theta, again.raw.theta)
    found = run(target, plan=Plan(chains=256))
    z = z_of(found, graphs.exact(graphs.linear(x, noise=0.5)))
    assert found.done and len(z) > 2 and float(z.abs().max()) < limit(len(z))
    other = z_of(found, graphs.exact(graphs.linear(data(3, n=12, seed=3), noise=0.5)))
    assert float(other.abs().max()) > 2 * limit(len(z))


@pytest.mark.whole
@pytest.mark.parametrize("tempered", [False, True])
def test_binary_equations_by_normals_and_by_tempering(tempered, monkeypatch):
    if tempered:
        temper(monkeypatch, {"PARTICLES": 200})
    exact = graphs.exact(graphs.evidences(binary(), particles=400, replicates=8, seed=5))
    found = run(binary(), plan=Plan())
    z = z_of(found, exact)
    assert found.done and len(z) > 3 and float(z.abs().max()) < limit(len(z))
    assert (found.known.families[2].shape[1] > 1) == tempered  # normals of a mixture


@pytest.mark.whole
def test_walks_give_the_edges_of_sums_over_all_graphs():
    found, total = [], 0
    for seed in range(3):
        scores = graphs.bge(data(6, n=30, seed=seed))
        done = run(graphs.target(scores), WalkedGraphsRecipe, plan=Plan(chains=256), seed=seed)
        z = z_of(done, graphs.exact(scores))
        assert done.done and float(z.abs().max()) < limit(len(z))
        found.append(z)
        total += len(z)
    assert 0.6 < float(torch.cat(found).square().mean().sqrt()) < 1.5 and total > 30
    other = z_of(done, graphs.exact(graphs.bge(data(6, n=30, seed=9))))
    assert float(other.abs().max()) > 2 * limit(len(z))


def begun_apart(scores, plan):
    """z of edges of the chains where rounds begin, of each group alone."""
    recipe = WalkedGraphsRecipe(graphs.target(scores), plan, torch.Generator().manual_seed(2))
    _, state = recipe.begin()
    exact = graphs.exact(scores).edges.to_numpy()
    d = len(exact)
    p = torch.tensor([exact[i, j] for j in range(d) for i in range(d) if i != j])
    means = recipe.target.space.items(state.code).double().view(-1, plan.groups, len(p)).mean(0)
    some, n = (p > 0.1) & (p < 0.9), len(state.code) // plan.groups
    return ((means - p) / (p * (1 - p) / n).sqrt())[:, some]


def test_groups_begin_at_the_posterior():
    """Chains of a group share ancestors, so that errors are some larger."""
    scores, plan = graphs.bge(data(5, n=30)), Plan(chains=1024)
    assert float(begun_apart(scores, plan).square().mean()) < 4
    hot = replace(plan, kept=1e-9, warm=0)  # one step to the posterior, without a move
    assert float(begun_apart(scores, hot).square().mean()) > 8


# ---- one seed, one answer ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    ["normals", *(pytest.param(k, marks=pytest.mark.whole) for k in ("tempered", "walked"))],
)
def test_a_seed_has_one_answer_whatever_a_clock_says(kind, monkeypatch):
    if kind == "tempered":
        temper(monkeypatch, SMALL)
    make, now = (many_nodes if kind == "walked" else binary), [0.0]
    first = run(make(), error=0.1)

    def jumping():
        now[0] += 1e6
        return now[0]

    with clock.read_from(jumping):
        assert same(first, run(make(), error=0.1))
    assert not torch.equal(first.p, run(make(), seed=2, error=0.1).p)


@pytest.mark.whole
@pytest.mark.parametrize("make", [partial(graphs.network, data(3), noise=0.5), many_nodes])
def test_on_a_device(make):
    """What is learned stays there, what is judged leaves it."""
    plan = Plan(chains=32, first=8, measured=6, most=12)
    with Emulated():
        target = make(device=DEVICE)
        found = rounds(recipe_of(target, plan, torch.Generator(DEVICE).manual_seed(1)))
        assert found.known.draws.code.device == DEVICE
        assert all(x.device == DEVICE for x in found.known.families)
        assert found.draws.code.device.type == found.p.device.type == "cpu"
    assert bool(found.p.isfinite().all())


def test_families_are_plain_data():
    recipe = recipe_of(binary(), FEW, torch.Generator().manual_seed(1))
    known, state = recipe.begin()
    lesson = lesson_of(recipe, known, state, "")
    again = Lesson.of(lesson.data(), torch.device("cpu"))
    assert len(known.families) == 6
    assert all(torch.equal(*x) for x in zip(known.families, again.known.families, strict=True))


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_limit_cuts_tempering_short(share, monkeypatch):
    """The answer is there all the same."""
    temper(monkeypatch, SMALL)
    ticks = [0.0]

    def ticking():
        ticks[0] += 1.0
        return ticks[0]

    with clock.read_from(ticking), warnings.catch_warnings():
        warnings.simplefilter("ignore", TRJWarning)
        recipe_of(binary(), FEW, torch.Generator().manual_seed(1), limit=Limit(1e9)).begin()
        whole, ticks[0] = ticks[0], 0.0
        early = run(binary(), deadline=share * whole)
    assert bool(early.p.isfinite().all()) and bool((early.error > 0).all())
    assert early.draws.n_draws == 1


# ---- where likelihoods are 0 ---------------------------------------------------------------------


def bounded(width):
    """Noise is uniform: no normal lies where the likelihood is above 0 alone."""
    x = 0.3 * data(2, n=3, seed=1).float()

    def density(j, p, parents):
        gap = x[:, j] - p["w"] @ x.T.to(p["w"]) - p["b"][:, None]
        return Uniform(-width, width, validate_args=False).log_prob(gap).sum(1)

    weights = {"edges": {"w": Normal(0.0, 1.0)}, "nodes": {"b": Normal(0.0, 1.0)}}
    return graphs.equations(["a", "b"], density, **weights)


def test_chains_begin_where_the_likelihood_is_above_0():
    recipe = recipe_of(bounded(0.8), FEW, torch.Generator().manual_seed(1))
    _, state = recipe.begin()
    assert bool(state.log_joint.isfinite().all())


def test_a_likelihood_of_0_everywhere_is_told(monkeypatch):
    monkeypatch.setattr(equations, "by_tempering", lambda *_, **__: 1 / 0)  # by normals alone
    target = binary()
    recipe = recipe_of(target, FEW, torch.Generator().manual_seed(1))
    monkeypatch.setattr(recipe, "target", Nowhere(target))
    with pytest.raises(UnreachableError, match="0 wherever"):
        recipe._started(EquationsRecipe._families(recipe_of(target, FEW, torch.Generator())), 16)


class Nowhere:
    """A target that is 0 wherever it is asked."""

    def __init__(self, target):
        self.space, self.dim, self.dtype, self.device = (
            getattr(target, n) for n in ("space", "dim", "dtype", "device")
        )

    def log_joint(self, code, theta):
        return torch.full((len(code),), -math.inf)


@pytest.mark.parametrize("gap", [0.0, 9.0])
def test_tempered_runs_that_contradict_each_other_are_told(gap):
    recipe = recipe_of(binary(), FEW, torch.Generator().manual_seed(1))
    families = recipe._families()
    families.gap[:] = gap
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        recipe._started(families, 16)
    assert [w.category is CoverageWarning for w in said] == ([True] if gap else [])
