"""DiBS: gradients against enumeration and differences, particles, weights, bad input."""

import math
import sys

import numpy as np
import pandas as pd
import pytest
import torch

import trjmcmc as trj
from tests.battery import limit
from tests.graphs.small import data
from trjmcmc import graphs
from trjmcmc.errors import ConfigurationError, ConvergenceWarning
from trjmcmc.graphs.dibs import _Moving, _Plan, _schedule
from trjmcmc.graphs.embedding import (
    cyclicity,
    draw_graphs,
    hard_edges,
    relaxed_gradient,
    score_gradient,
    soft_edges,
)
from trjmcmc.graphs.particles import GraphParticles
from trjmcmc.graphs.relaxed import (
    Hidden,
    LinearLikelihood,
    Parametric,
    ScoreLikelihood,
    Workspace,
    likelihood_of,
)
from trjmcmc.kernel import BirthDeath, StructureNeighbours
from trjmcmc.space.paths import acyclic, adjacency, masks_of


def every_matrix(d):
    """All 2^(d (d - 1)) graphs, with cycles or without, (N, d, d)."""
    off = (~torch.eye(d, dtype=torch.bool)).nonzero()
    bits = torch.cartesian_prod(*[torch.arange(2)] * len(off))
    found = torch.zeros(len(bits), d, d, dtype=torch.float64)
    found[:, off[:, 0], off[:, 1]] = bits.double()
    return found


def log_odds(d, m, generator):
    found = torch.randn(m, d, d, generator=generator, dtype=torch.float64)
    return found.masked_fill(torch.eye(d, dtype=torch.bool), -math.inf)


# ---- gradients -----------------------------------------------------------------------------------


def exact_gradient(log_f, logits):
    """Of log E[f(G)] by the log odds, by all graphs, (M, d, d)."""
    d = logits.shape[-1]
    graphs_ = every_matrix(d)
    off = ~torch.eye(d, dtype=torch.bool)
    odds = logits[:, off].clone().requires_grad_()
    log_p = (graphs_[:, off] @ torch.nn.functional.logsigmoid(odds).T) + (
        (1 - graphs_[:, off]) @ torch.nn.functional.logsigmoid(-odds).T
    )
    value = (log_p + log_f(graphs_)[:, None]).logsumexp(0).sum()
    (slope,) = torch.autograd.grad(value, odds)
    found = torch.zeros_like(logits)
    found[:, off] = slope
    return found


def test_the_score_function_is_the_gradient_by_all_graphs(generator):
    """64 graphs on three nodes; without the mean of the draws' score it is not."""
    scores = graphs.bge(data(3, n=8))
    likelihood, logits = ScoreLikelihood(scores), log_odds(3, 2, generator)

    def log_f(edges):
        return scores.of(masks_of(edges.bool()))

    exact = exact_gradient(log_f, logits)
    found, wrong = [], []
    for _ in range(300):
        field = draw_graphs(logits, 400, generator, Workspace())
        hard = hard_edges(field, Workspace())
        value = likelihood.value(hard, torch.zeros(2, 0))
        found.append(score_gradient(logits, hard, value))
        wrong.append(score_gradient(torch.zeros_like(logits), hard, value))
    off = ~torch.eye(3, dtype=torch.bool)

    def z(of):
        seen = torch.stack(of)[:, :, off]
        return ((seen.mean(0) - exact[:, off]) / (seen.std(0) / len(of) ** 0.5)).abs().max()

    # a ratio of two means of 400 draws is biased by about a 400th part
    assert float((torch.stack(found).mean(0) - exact).abs().max()) < 0.02
    assert float(z(wrong)) > limit(12)


def test_sharp_relaxed_graphs_give_nearly_the_gradient(generator):
    """Of a function that is smooth in the edges; biased, and less so the sharper they are."""
    logits = log_odds(3, 1, generator)
    weight = torch.randn(3, 3, generator=generator, dtype=torch.float64)

    def log_f(edges):
        return (edges * weight).sum((-1, -2))

    exact = exact_gradient(log_f, logits)
    gaps = []
    for sharpness in (1.0, 5.0):
        field = draw_graphs(logits, 400_000, generator, Workspace())
        soft = soft_edges(sharpness * field, Workspace())
        value = (soft * weight[:, None, None]).sum((0, 3))
        slope = weight[:, None, None].expand_as(soft).clone()
        found = sharpness * relaxed_gradient(soft, value, slope)
        gaps.append(float((found - exact).abs().max()))
    assert gaps[1] < 0.02 and gaps[1] < gaps[0]


def test_cyclicity_is_zero_without_cycles_alone():
    every = every_matrix(3)
    value, slope = cyclicity(every)
    fine = acyclic(masks_of(every.bool()))
    assert torch.equal(value.abs() < 1e-12, fine) and int(fine.sum()) == 25
    with torch.enable_grad():
        edges = every.clone().requires_grad_()
        (exact,) = torch.autograd.grad(cyclicity(edges)[0].sum(), edges)
    torch.testing.assert_close(slope, exact)


@pytest.mark.parametrize("interventions", [False, True])
def test_products_of_the_data_stand_for_the_rows(interventions, generator):
    x = data(4, n=30)
    mask = None
    if interventions:
        mask = torch.zeros(30, 4, dtype=torch.bool)
        mask[:10, 2], mask[5:20, 0] = True, True
    target = graphs.network(x, noise=0.3, interventions=mask, dtype=torch.float64)
    assert isinstance(likelihood_of(target), LinearLikelihood)
    quick, plain = LinearLikelihood(target), Parametric(target)
    off = (~torch.eye(4, dtype=torch.bool))[:, None, None].double()
    edges = off * torch.rand(4, 3, 5, 4, generator=generator, dtype=torch.float64)
    theta = torch.randn(3, 12, generator=generator, dtype=torch.float64)
    value, slope = quick.by_edges(edges, theta)
    other, by_rows = plain.by_edges(edges, theta)
    torch.testing.assert_close(value, other)
    torch.testing.assert_close(slope * off, by_rows * off)
    torch.testing.assert_close(quick.value(edges, theta), plain.value(edges, theta))
    torch.testing.assert_close(quick.by_theta(edges, theta), plain.by_theta(edges, theta))


@pytest.mark.parametrize("interventions", [False, True])
@pytest.mark.parametrize("activation", ["relu", "tanh", "sigmoid"])
def test_gradients_of_networks_by_hand_are_those_of_the_density(
    activation, interventions, generator
):
    x, mask = data(4, n=30), None
    if interventions:
        mask = torch.zeros(30, 4, dtype=torch.bool)
        mask[:10, 2] = True
    target = graphs.network(
        x, hidden=3, noise=0.5, activation=activation, interventions=mask, dtype=torch.float64
    )
    quick, plain = likelihood_of(target), Parametric(target)
    assert isinstance(quick, Hidden)
    off = (~torch.eye(4, dtype=torch.bool))[:, None, None].double()
    edges = off * torch.rand(4, 3, 5, 4, generator=generator, dtype=torch.float64)
    theta = torch.randn(3, target.dim, generator=generator, dtype=torch.float64)
    value, slope = quick.by_edges(edges, theta)
    other, by_rows = plain.by_edges(edges, theta)
    torch.testing.assert_close(value, other)
    torch.testing.assert_close(slope * off, by_rows * off)
    torch.testing.assert_close(quick.value(edges, theta), other)
    torch.testing.assert_close(quick.by_theta(edges, theta), plain.by_theta(edges, theta))


@pytest.mark.parametrize("prior", ["uniform", "scale-free"])
def test_whole_edges_have_the_density_of_the_target(prior, generator):
    """Linear and with hidden units: by degrees, zero and one are off and on."""
    for hidden in (0, 2):
        settings = {"hidden": hidden, "prior": prior, "dtype": torch.float64}
        target = graphs.network(data(3, n=20), noise=1.0, **settings)
        code = target.space.sample_prior(6, generator)
        theta = target.sample_prior(target.space.together().expand(6, -1), generator)
        edges = adjacency(code).double().permute(1, 0, 2)[:, :, None]
        value = likelihood_of(target).value(edges, theta)[:, 0]
        known = target.log_joint(code, theta) - target.space.log_prior(code)
        torch.testing.assert_close(value, known)


@pytest.mark.parametrize("prior", ["uniform", "scale-free", "Erdos-Renyi"])
def test_the_prior_by_degrees_is_the_prior_of_whole_graphs(prior):
    law = graphs.erdos_renyi(0.5) if prior == "Erdos-Renyi" else prior
    space = trj.graphs.Dags(list("abcd"), prior=law)
    code = space.enumerate()
    graded = space.graded_log_prior(space.items(code).double())
    gap = graded - space.log_prior(code)
    torch.testing.assert_close(gap, gap[:1].expand_as(gap))


def moving(target, particles=4, relaxed=False, seed=0):
    plan = _Plan(100, lambda t: 1.0, lambda t: 0.5, relaxed)
    return _Moving(target, likelihood_of(target), plan, particles, seed)


def test_embeddings_follow_the_gradient_of_their_posterior(monkeypatch):
    """Whole gradients of z against the log posterior by all 64 graphs of three nodes."""
    scores = graphs.bge(data(3, n=8))
    target = graphs.target(scores, prior=graphs.edge_penalty(math.exp(-0.5)))
    here = moving(target)
    here.z = here.z.double()
    z = here.z.clone().requires_grad_()
    off = ~torch.eye(3, dtype=torch.bool)
    every = every_matrix(3)
    logits = (z[:, 0] @ z[:, 1].transpose(-1, -2))[:, off]
    on, out = (torch.nn.functional.logsigmoid(s * logits) for s in (1, -1))
    log_p = every[:, off] @ on.T + (1 - every[:, off]) @ out.T
    value = (log_p + scores.of(masks_of(every.bool()))[:, None]).logsumexp(0)
    p = logits.sigmoid()
    value = value - 0.5 * p.sum(1)  # of the prior, at the probabilities
    value = value - z.square().sum((1, 2, 3)) / (2 * here.sd**2)
    (exact,) = torch.autograd.grad(value.sum(), z)
    plan = here.plan
    here.plan = _Plan(100, plan.alpha, lambda t: 0.0, False)
    monkeypatch.setattr(sys.modules[_Plan.__module__], "SAMPLES", 40_000)
    seen = torch.stack([here.gradients(1)[0] for _ in range(30)]).mean(0)
    assert float((seen - exact).abs().max()) < 0.03  # a ratio of means has a bias
    here._of_prior = torch.zeros_like
    seen = torch.stack([here.gradients(1)[0] for _ in range(30)]).mean(0)
    assert float((seen - exact).abs().max()) > 0.06


# ---- particles ----------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:dibs. 1 of 30:trjmcmc.errors.ConvergenceWarning")
def test_particles_come_near_the_posterior_and_do_not_reach_it():
    """Where one particle ends in a cycle depends on the processor; the others are what counts."""
    scores = graphs.bge(data(3, n=100))
    target = graphs.target(scores)
    found = graphs.dibs(target, particles=30, steps=800, seed=1, progress=False)
    exact = graphs.exact(scores).edges
    gap = (found.edges() - exact).abs().to_numpy().max()
    assert gap < 0.35
    prior = torch.full((3, 3), 0.32)
    assert gap < (torch.tensor(exact.to_numpy()) - prior).fill_diagonal_(0).abs().max()
    assert found.graphs().sum() == pytest.approx(1)
    assert found.metrics(exact.to_numpy() > 0.5)["auroc"] > 0.5


@pytest.mark.whole
@pytest.mark.parametrize("hidden", [0, 2])
def test_parameters_move_along(hidden):
    target = graphs.network(data(3, n=40), noise=1.0, hidden=hidden)
    before = moving(target, relaxed=True)
    first = target.log_joint(target.space.sample_prior(4, before.generator), before.theta).max()
    found = graphs.dibs(
        target, particles=6, steps=300, beta=20.0, learning_rate=0.02, progress=False
    )
    assert float(found.pool.log_joint.max()) > float(first)
    assert found.theta.shape[1] == target.dim


def test_weights_of_particles():
    """DiBS+: each graph once, by its density, with or without its prior."""
    scores = graphs.bge(data(3))
    target = graphs.target(scores, prior="scale-free")
    labels = ["x0->x1", "x0->x1", "x1->x2", "(empty)"]
    masks = torch.stack([target.space.code_of(label) for label in labels])
    found = GraphParticles(target, masks)
    different = masks[1:]
    for prior in (True, False):
        log_weight = scores.of(different) + (target.space.log_prior(different) if prior else 0.0)
        weight = log_weight.softmax(0)
        expected = torch.cat([weight[:1] / 2, weight[:1] / 2, weight[1:]])
        torch.testing.assert_close(found.weights(prior=prior), expected)
    assert found.weights(plus=False).tolist() == [0.25] * 4
    assert found.share(lambda a: a[:, 0, 1], plus=False) == 0.5
    assert found.graphs(plus=False)["x0->x1"] == 0.5


@pytest.mark.filterwarnings("ignore::trjmcmc.errors.ConvergenceWarning")  # of one start
def test_chains_start_at_particles_and_say_how_far_off_they_were():
    target = graphs.network(data(2, n=40), noise=1.0)
    space = target.space
    start = GraphParticles(target, space.code_of("x1->x0").expand(300, -1))
    result = trj.TRJSampler(target, seed=0).run(max_seconds=2, start=start, progress=False)
    exact = graphs.exact(graphs.linear(data(2, n=40), noise=1.0)).edges
    told = result.report.start
    assert told.points == 300 and told.there == float(told.item == "x1->x0")
    i, j = (["x0", "x1"].index(name) for name in told.item.split("->"))
    assert told.here == pytest.approx(exact.iloc[i, j], abs=0.1)
    assert "given points" in str(result.report)


@pytest.mark.parametrize("fit", ["auto", False])
def test_points_of_another_kind_are_refused_as_starts(fit):
    target = trj.problems.sinh_arcsinh()
    sampler = trj.TRJSampler(target, seed=0)
    wrong = trj.fit.Pool(torch.zeros(3, 2).long(), torch.zeros(3, 2), torch.zeros(3))
    with pytest.raises(ConfigurationError, match="start: expected points of this target"):
        sampler.run(draws=10, start=wrong, fit=fit, progress=False)


# ---- what does not make sense -------------------------------------------------------------------


def small():
    return graphs.target(graphs.bge(data(3)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"particles": 1}, "2 particles or more"),
        ({"steps": 0}, "steps >= 1"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"alpha": -1.0}, "alpha: expected a schedule that is not negative and grows"),
        ({"alpha": lambda t: 1.0}, "alpha: expected a schedule"),
        ({"alpha": lambda t: 1.0 / t}, "alpha: expected a schedule"),
        ({"alpha": float("nan")}, "alpha: not finite"),
        ({"beta": -1.0}, "beta: expected a schedule"),
        ({"beta": lambda t: math.inf}, "beta: not finite"),
        ({"gradient": "gumbel"}, "local scores do not have"),
        ({"gradient": "both"}, '"score" or "gumbel"'),
        ({"alpha": lambda t: math.nan if t == 3 else t}, "alpha: not finite"),
        ({"beta": lambda t: -50.0 if t == 3 else t}, "beta: expected a schedule"),
        ({"kernel": trj.fit.SquaredExponential((1.0, 2.0))}, "2 numbers for 1 blocks"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(ConfigurationError, match=message):
        graphs.dibs(small(), progress=False, **{"steps": 5, **settings})


def test_other_targets_are_refused():
    for target in (trj.problems.sleep(), graphs.target(graphs.bge(data(1)))):
        with pytest.raises(ConfigurationError, match="two nodes or more"):
            graphs.dibs(target, progress=False)


def test_marginal_scores_of_many_nodes_are_looked_up_to_the_last_bit(generator):
    """Beyond the bits that a double keeps."""
    d = 60
    table = torch.randn(d, 8, generator=generator, dtype=torch.float64)
    candidates = torch.tensor([[(j + 1) % d, (j + 2) % d, (j + 59) % d] for j in range(d)])
    scores = graphs.LocalScores([f"x{j}" for j in range(d)], table, candidates)
    edges = torch.zeros(d, d, dtype=torch.bool)
    edges[candidates.T, torch.arange(d)] = torch.rand(3, d, generator=generator) < 0.5
    value = ScoreLikelihood(scores).value(edges[:, None, None].double(), torch.zeros(1, 0))
    assert value.item() == scores.of(masks_of(edges[None])).item()


def test_schedules_may_be_functions():
    assert _schedule("alpha", lambda t: 2.0 * t**0.5, 10, grows=True)(4) == 4.0
    assert _schedule("beta", 0.0, 10, grows=False)(4) == 0.0


def test_graphs_that_stay_cyclic_are_dropped_by_name():
    """Without the constraint; if all of them do it is an error."""
    target = small()
    ring = torch.tensor([[4, 1, 2]])
    with pytest.raises(ConfigurationError, match=r"all 1 graphs have a cycle .*x2->x0, x0->x1"):
        GraphParticles(target, ring)
    some = GraphParticles(target, torch.cat([ring, torch.zeros(1, 3, dtype=torch.long)]))
    assert some.dropped == ["x2->x0, x0->x1, x1->x2"] and len(some.masks) == 1
    rows = torch.tensor([[0.0, 5.0, 5.0, 9.0]] * 3)  # every node likes every other
    scores = graphs.LocalScores(["a", "b", "c"], rows)
    with pytest.raises(ConfigurationError, match="all 10 graphs have a cycle"):
        graphs.dibs(graphs.target(scores), particles=10, steps=300, beta=0.0, progress=False)


def test_particles_that_are_dropped_are_told():
    with pytest.warns(ConvergenceWarning, match=r"of 30 particles have a cycle, .* are dropped"):
        found = graphs.dibs(small(), steps=30, beta=0.0, progress=False)
    assert len(found.masks) + len(found.dropped) == 30


@pytest.mark.filterwarnings("ignore::trjmcmc.errors.ConvergenceWarning")
def test_required_and_forbidden_edges_are_respected():
    target = graphs.target(graphs.bge(data(3)), required=[("x0", "x2")], forbidden=[("x0", "x1")])
    found = graphs.dibs(target, particles=10, steps=600, beta=5.0, progress=False)
    edges = found.edges(plus=False)
    assert edges.loc["x0", "x2"] == pytest.approx(1) and edges.loc["x0", "x1"] == 0


# ---- the bootstrap of an estimator -----------------------------------------------------------


def test_a_bootstrap_counts_what_an_estimator_finds():
    x = data(3, n=60)
    target = graphs.target(graphs.bge(x), forbidden=[("x1", "x0"), ("x2", "x1")])

    def best(rows):
        """The most probable graph, by all of them."""
        scores = graphs.bge(rows)
        every = target.space.enumerate()
        return adjacency(every[scores.of(every).argmax()][None])[0]

    found = graphs.bootstrap(target, x, best, replicates=20)
    assert len(found.masks) == 20 and 0.8 < found.edges(plus=False).loc["x0", "x1"] <= 1
    with pytest.raises(ConfigurationError, match=r"estimates of shape \(3, 3\)"):
        graphs.bootstrap(target, x, lambda rows: [[0, 1], [0, 0]], replicates=2)
    with pytest.raises(ConfigurationError, match="1 replicate or more"):
        graphs.bootstrap(target, x, best, replicates=0)


def test_a_bootstrap_wants_the_columns_of_its_target():
    names = ["a", "b"]
    x = pd.DataFrame(data(2).numpy(), columns=names)
    target = graphs.target(graphs.bge(x))
    with pytest.raises(ConfigurationError, match=r"expected columns \['a', 'b'\]"):
        graphs.bootstrap(target, x[["b", "a"]], lambda rows: np.zeros((2, 2)))
    with pytest.raises(ConfigurationError, match="finite estimates"):
        graphs.bootstrap(target, x, lambda rows: np.full((2, 2), np.nan))


@pytest.mark.parametrize("wrong", [7, "dibs", torch.zeros(2)])
def test_starts_that_are_no_points_are_refused(wrong):
    with pytest.raises(ConfigurationError, match="start: expected particles"):
        trj.TRJSampler(trj.problems.sleep(), seed=0).run(draws=5, start=wrong, progress=False)


def test_copies_of_a_point_are_one_start():
    """A posterior that neighbours can hardly cross: the run must not take 64 copies for 64."""
    table = torch.tensor([[0.0, -3, -3, -6], [0, -3, -3, -6], [0, -60, -60, 1.5]])
    target = graphs.target(graphs.LocalScores(list("abc"), table))
    copies = GraphParticles(target, torch.zeros(64, 3, dtype=torch.long))
    kernel = BirthDeath(target, StructureNeighbours(target.space))
    sampler = trj.TRJSampler(target, kernel=kernel, seed=1)
    with pytest.warns(ConvergenceWarning, match="all chains start at one point"):
        sampler.run(draws=300, start=copies, progress=False)
