"""Graphs with an order of their nodes: codes, both priors, and what a network learns of them."""

import math

import pytest
import torch

import trjmcmc as trj
from tests.battery import limit
from tests.graphs.small import data
from trjmcmc import graphs
from trjmcmc.errors import TargetError, UnknownModelError
from trjmcmc.kernel import OrderRefresh, start
from trjmcmc.space.node_orders import log_order, random_order
from trjmcmc.space.saved import space_from_spec

SETTINGS = {
    "uniform": {},
    "fair": {"prior": "fair"},
    "few parents": {"max_parents": 1},
    "odds": {"forbidden": [("b", "a")], "edge_odds": [[1, 2, 1], [1, 1, 3], [0.5, 1, 1]]},
    "required": {"required": [("a", "c")]},
}


def of(d=3, counted="graphs", **settings):
    return trj.graphs.OrderedDags(trj.graphs.Dags(list("abcdef")[:d], **settings), prior=counted)


@pytest.mark.parametrize("prior", ["graphs", "orders"])
@pytest.mark.parametrize("name", SETTINGS)
def test_priors_sum_to_one_and_are_drawn_from(name, prior, generator):
    space, n = of(counted=prior, **SETTINGS[name]), 30_000
    code = space.enumerate()
    assert len(code) == space.size == 48
    assert torch.equal(space.index(code), torch.arange(48))
    p = space.log_prior(code).exp()
    assert float(p.sum()) == pytest.approx(1)
    drawn = space.index(space.sample_prior(n, generator))
    counts = torch.bincount(drawn, minlength=48).double()
    some = p > 0
    assert not counts[~some].any()
    z = ((counts - n * p) / (n * p * (1 - p)).sqrt())[some]
    assert float(z.abs().max()) < limit(len(z))
    if name == "uniform":  # the other prior would be noticed
        wrong = of(counted="orders" if prior == "graphs" else "graphs").log_prior(code).exp()
        z = (counts - n * wrong) / (n * wrong * (1 - wrong)).sqrt()
        assert float(z.abs().max()) > limit(len(z))


@pytest.mark.parametrize("name", SETTINGS)
def test_graphs_have_their_prior_or_that_times_the_number_of_orders(name):
    dags = trj.graphs.Dags(list("abc"), **SETTINGS[name])
    models = dags.enumerate()
    for prior in ("graphs", "orders"):
        space = trj.graphs.OrderedDags(dags, prior=prior)
        p = space.log_prior(space.enumerate()).exp()
        some = p > 0
        which = dags.index(space.masks(space.enumerate()[some]))
        found = torch.zeros(len(models)).double().index_add_(0, which, p[some].double())
        number = torch.bincount(which, minlength=len(models))
        exact = dags.log_prior(models).exp().double()
        if prior == "orders":
            exact = exact * number / (exact * number).sum()
        torch.testing.assert_close(found, exact)


def test_orders_of_a_graph_are_drawn_as_they_say(generator):
    dags, n = trj.graphs.Dags(list("abcd")), 20_000
    masks = dags.code_of("a->b, a->c, d->c")[None].expand(n, -1)
    order = random_order(masks, generator)
    kinds, counts = order.unique(dim=0, return_counts=True)
    p = log_order(masks[: len(kinds)], kinds).exp()
    assert len(kinds) == 5 and float(p.sum()) == pytest.approx(1)
    z = (counts - n * p) / (n * p * (1 - p)).sqrt()
    assert float(z.abs().max()) < limit(len(p))
    assert log_order(masks[:1], torch.tensor([[1, 0, 2, 3]])).item() == -math.inf


@pytest.mark.parametrize("d", [1, 2, 3, 4])
def test_being_a_neighbour_is_mutual(d):
    space = of(d)
    code = space.enumerate()
    near, real = space.neighbours(code)
    assert bool(real.all()) and near.shape == (len(code), space.code_width, space.code_width)
    matrix = torch.zeros(len(code), len(code))
    start = torch.arange(len(code)).repeat_interleave(space.code_width)
    matrix[start, space.index(near.flatten(0, 1))] += 1
    assert torch.equal(matrix, matrix.T) and not matrix.diagonal().any()


def test_labels_and_files():
    space = of(4, required=[("a", "b")], of="w")
    some = space.sample_prior(20, torch.Generator().manual_seed(0))
    for label, code in zip(space.label(some), some, strict=True):
        assert torch.equal(space.code_of(label), code)
    assert space.label(space.code_of(("a->b", ["d", "a", "b", "c"]))[None]) == ["a->b [d, a, b, c]"]
    for bad in ("a->b", "a->b [b, a, c, d]", "a->b [a, b]", ("a->b", ["a", "a", "b", "c"])):
        with pytest.raises(UnknownModelError, match="no graph with an order"):
            space.code_of(bad)
    bound = space.bind(torch.arange(12))
    again = space_from_spec(bound.spec())
    assert torch.equal(again.log_prior(some), bound.log_prior(some))
    assert torch.equal(again.active(some), bound.items(some))


def test_what_can_not_be_is_refused():
    with pytest.raises(TargetError, match='"graphs" or "orders"'):
        of(counted="lehmer")
    many = trj.graphs.Dags([f"x{i}" for i in range(16)], required=[("x0", "x1")])
    with pytest.raises(TargetError, match="up to 15 nodes"):
        trj.graphs.OrderedDags(many, prior="orders")
    with pytest.raises(TargetError, match="expected a target over Dags"):
        graphs.ordered(trj.problems.sleep())


# ---- what is learnt ----------------------------------------------------------------------------


def three(prior="graphs", **settings):
    return graphs.ordered(
        graphs.target(graphs.bge(data(3), names=list("abc"), **settings)), prior=prior
    )


def exact_log_weights(target):
    code = target.space.enumerate()
    return code, target.log_joint(code, torch.zeros(len(code), 0).double())


@pytest.mark.parametrize("prior", ["graphs", "orders"])
def test_evidence_and_edges_are_those_of_sums_over_all_graphs(prior):
    target = three(prior)
    scores = graphs.bge(data(3), names=list("abc"))
    code, log_weight = exact_log_weights(target)
    exact = graphs.exact(scores, orders=prior == "orders")
    assert float(log_weight.logsumexp(0)) == pytest.approx(exact.log_evidence, abs=1e-9)
    p = log_weight.softmax(0)
    edges = target.space.dags.matrix((p @ target.space.items(code).double())[None])[0]
    torch.testing.assert_close(edges, torch.tensor(exact.edges.to_numpy()))


def gradient_scores(target, generator, rounds=1500, n=4):
    """z-scores of gradients of q against the gradient by enumeration over 48 codes."""
    code, log_weight = exact_log_weights(target)
    weights = trj.weights.Made(target.space, hidden=(8,))
    for _ in range(3):
        draws = weights.sample(64, generator)
        weights.learn(draws, -log_weight[target.space.index(draws)])
    log_q = weights.log_prob(code)
    parameters = [p for p in weights.parameters() if p.requires_grad]
    bound = (log_q.exp() * (log_q - log_weight.to(log_q))).sum()
    exact = torch.cat([g.flatten() for g in torch.autograd.grad(bound, parameters)]).double()
    found = []
    for _ in range(rounds):
        draws = weights.sample(n, generator)
        _, gradient = weights.gradient(draws, -log_weight[target.space.index(draws)])
        found.append(torch.cat([g.flatten() for g in gradient]).double())
    seen = torch.stack(found)
    error = seen.std(0) / rounds**0.5
    used = error > 1e-9
    return ((seen.mean(0) - exact)[used] / error[used]).abs()


@pytest.mark.whole
@pytest.mark.parametrize("prior", ["graphs", "orders"])
def test_gradients_are_unbiased(prior, generator):
    z = gradient_scores(three(prior), generator)
    assert float(z.max()) < limit(len(z))


def test_with_a_biased_baseline_the_same_check_fails(generator, monkeypatch):
    """The mean of the batch, with the draw itself."""
    monkeypatch.setattr(trj.weights.Made, "_baseline", lambda self, gain: gain.mean())
    z = gradient_scores(three(), generator)
    assert float(z.max()) > limit(len(z))


@pytest.mark.whole
@pytest.mark.parametrize("prior", ["graphs", "orders"])
def test_the_fit_is_near_and_the_run_is_exact(prior):
    sampler = trj.TRJSampler(three(prior), models=trj.weights.Made, seed=0)
    sampler.fit(steps=300, batch=128, progress=False)
    exact = graphs.exact(graphs.bge(data(3), names=list("abc")), orders=prior == "orders")
    bound = sampler.variational.elbo
    assert exact.log_evidence - 0.4 < bound.value < exact.log_evidence + 5 * bound.std_error
    result = sampler.run(draws=600, chains=128, progress=False)
    found = graphs.GraphPosterior(result).edges()
    z = (found["probability"] - exact.edges.stack()[found.index]) / found["se"]
    assert float(z.abs().max()) < limit(6)
    other = graphs.exact(graphs.bge(data(3), names=list("abc")), orders=prior != "orders")
    z = (found["probability"] - other.edges.stack()[found.index]) / found["se"]
    assert float(z.abs().max()) > limit(6)
    assert result.report.variational.inclusion_error < 0.3


@pytest.mark.whole
def test_weights_of_edges_are_fitted_beside_the_graphs():
    """Linear equations, whose evidence is known."""
    x = data(3, n=30)
    target = graphs.ordered(graphs.network(x, noise=1.0, names=list("abc")))
    flow = trj.transport.CosmicAutoregressive(target.space, transform="affine", layers=2, blocks=1)
    sampler = trj.TRJSampler(target, flow, models=trj.weights.Made, seed=0)
    sampler.fit(steps=1500, batch=256, progress=False)
    exact = graphs.exact(graphs.linear(x, noise=1.0, names=list("abc")))
    bound = sampler.variational.elbo
    assert exact.log_evidence - 0.6 < bound.value < exact.log_evidence + 5 * bound.std_error
    result = sampler.run(draws=500, chains=256, progress=False)
    found = graphs.GraphPosterior(result).edges()
    z = (found["probability"] - exact.edges.stack()[found.index]) / found["se"]
    assert float(z.abs().max()) < limit(6)


@pytest.mark.parametrize("d", [1, pytest.param(2, marks=pytest.mark.whole)])
def test_few_nodes(d):
    target = graphs.ordered(graphs.target(graphs.bge(data(d), names=list("ab")[:d])))
    sampler = trj.TRJSampler(target, models=trj.weights.Made, seed=0)
    sampler.fit(steps=100, batch=64, progress=False)
    result = sampler.run(draws=100, chains=32, progress=False)
    assert graphs.GraphPosterior(result).masks.shape == (32, 100, d)


@pytest.mark.filterwarnings("ignore::trjmcmc.errors.ConvergenceWarning")
def test_required_edges_of_two_nodes_run():
    """Codes that the prior excludes have labels too."""
    scores = graphs.bge(data(2), names=["a", "b"])
    target = graphs.ordered(graphs.target(scores, required=[("b", "a")]))
    result = trj.TRJSampler(target, seed=1).run(draws=50, chains=32, progress=False)
    edges = graphs.GraphPosterior(result).edges()
    assert edges.loc[("b", "a"), "probability"] == 1


@pytest.mark.parametrize("prior", ["graphs", "orders"])
def test_orders_are_drawn_anew_in_proportion(prior, generator):
    """Exact draws stay exact; all accepted where orders have their probability given graphs."""
    target, n = three(prior), 100_000
    code, log_weight = exact_log_weights(target)
    p = log_weight.softmax(0)
    start_at = code[torch.multinomial(p, n, replacement=True, generator=generator)]
    state = start(target, start_at, torch.zeros(n, 0).double())
    state, (info,) = OrderRefresh(target).step(state, generator)
    assert bool(info.accepted.all()) or prior == "orders"
    counts = torch.bincount(target.space.index(state.code), minlength=len(p)).double()
    often = n * p > 20
    z = ((counts - n * p) / (n * p * (1 - p)).sqrt())[often]
    assert float(z.abs().max()) < limit(len(z))
    exact = target.log_joint(state.code[:50], state.theta[:50])
    torch.testing.assert_close(state.log_joint[:50], exact)
