"""Runs over graphs with parameters, and evidences of equations, beside exact answers."""

import math
import warnings

import pytest
import torch
from torch.distributions import Normal

import trjmcmc as trj
from tests.battery import limit
from tests.graphs.small import data
from trjmcmc import graphs
from trjmcmc.errors import ConfigurationError, TRJWarning


def z_of_edges(result, exact):
    """z-scores of the edges that are neither certain nor impossible."""
    found = result.inclusion_probabilities(full=True)
    names = [name.split("->") for name in found.index]
    p = torch.tensor([exact.edges.loc[i, j] for i, j in names])
    z = (torch.tensor(found["probability"].to_numpy()) - p) / torch.tensor(found["se"].to_numpy())
    return z[(p > 0.005) & (p < 0.995)]


@pytest.mark.whole
def test_weights_that_are_sampled_give_the_same_edges():
    x = data(4, n=30, seed=2)
    target = graphs.network(x, noise=0.5)
    result = trj.TRJSampler(target, seed=0).run(draws=60, chains=256, progress=False)
    z = z_of_edges(result, graphs.exact(graphs.linear(x, noise=0.5)))
    assert len(z) > 4 and float(z.abs().max()) < limit(len(z)) + 1  # errors are estimates too
    assert float(z_of_edges(result, graphs.exact(graphs.bge(x))).abs().max()) > 10


@pytest.mark.whole
def test_means_of_weights_are_the_conjugate_ones():
    """Given the parents, N(S X'y / noise, S) with S the inverse of X'X / noise + 1."""
    x = data(3, n=30, seed=3)
    target = graphs.network(
        x, noise=0.5, required=[("x0", "x1"), ("x1", "x2")], dtype=torch.float64
    )
    result = trj.TRJSampler(target, seed=0).run(draws=40, chains=256, progress=False)
    code, theta = result.raw.flat()
    on = (code == target.space.code_of("x0->x1, x1->x2")).all(1)
    slots = [target.space.names.index(name) for name in ("x0->x1", "x1->x2")]
    for slot, i, j in zip(slots, (0, 1), (1, 2), strict=True):
        variance = 1 / (x[:, i] @ x[:, i] / 0.5 + 1)
        mean = variance * (x[:, i] @ x[:, j]) / 0.5
        draws = theta[on, slot].double()
        z = (draws.mean() - mean) / (variance / len(draws)).sqrt()
        assert len(draws) > 1000 and abs(float(z)) < 6
        assert abs(float(draws.var() / variance) - 1) < 0.2


def evidence_of_one_unit(x, y, n, generator):
    """Of y = b + v relu(w x + c) + e, weights N(0, 1): w, c by draws, b, v in closed form."""
    w, c = torch.randn(2, n, 1, generator=generator, dtype=torch.float64)
    h = torch.relu(w * x + c) if x is not None else torch.relu(c).expand(n, len(y))
    design = torch.stack([torch.ones_like(h), h], 2)
    covariance = design @ design.mT + 0.5 * torch.eye(len(y), dtype=torch.float64)
    normal = torch.distributions.MultivariateNormal(torch.zeros(len(y)).double(), covariance)
    log_p = normal.log_prob(y)
    value = log_p.logsumexp(0) - math.log(n)
    return float(value), float((log_p - value).exp().std() / n**0.5)


@pytest.mark.whole
def test_evidences_of_a_network_by_tempering_and_by_draws(generator):
    x = data(2, n=5, seed=4)
    target = graphs.network(x, hidden=1, noise=0.5, dtype=torch.float64)
    found = graphs.evidences(target, particles=400, moves=10)
    for j in range(2):
        for place, parent in enumerate((None, x[:, 1 - j])):
            value, error = evidence_of_one_unit(parent, x[:, j], 100_000, generator)
            gap = float(found.table[j, place]) - value
            assert abs(gap) < 6 * math.hypot(error, float(found.std_error[j, place])) + 0.02
    assert float(found.std_error.max()) < 0.3


@pytest.mark.whole
def test_errors_of_edges_come_from_errors_of_evidences():
    x = data(3, n=12, seed=5)
    scores = graphs.linear(x, noise=0.5)
    truth, g = graphs.exact(scores), torch.Generator().manual_seed(0)
    z = []
    for _ in range(12):
        error = torch.full_like(scores.table, 0.1)
        noise = 0.1 * torch.randn(scores.table.shape, generator=g, dtype=torch.float64)
        found = graphs.exact(
            graphs.LocalScores(scores.names, scores.table + noise, std_error=error)
        )
        z.append(float((found.log_evidence - truth.log_evidence) / found.log_evidence_se))
        gap = torch.tensor((found.edges - truth.edges).to_numpy())
        of_edges = torch.tensor(found.edges_se.to_numpy())
        assert bool((gap.abs() <= 6 * of_edges + 1e-3).all())
    assert 0.3 < float(torch.tensor(z).std()) < 2.5
    assert graphs.exact(scores).log_evidence_se == 0.0


def test_evidences_are_of_equations():
    with pytest.raises(ConfigurationError, match="Equations"):
        graphs.evidences(graphs.target(graphs.bge(data(3))))
    with pytest.raises(ConfigurationError, match="replicates"):
        graphs.evidences(graphs.network(data(3)), replicates=1)


@pytest.mark.slow
def test_all_graphs_of_three_networks_by_tempering_and_by_visits():
    g = torch.Generator().manual_seed(100)
    x = torch.zeros(8, 3)
    for j in range(3):
        e = 0.5**0.5 * torch.randn(8, generator=g)
        before = 1.5 * torch.tanh(1.5 * x[:, j - 1]) if j else torch.randn(8, generator=g)
        x[:, j] = e + before
    target = graphs.network(x, hidden=2, noise=0.5)
    scores = graphs.evidences(target, particles=500)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TRJWarning)  # of parameters in rare graphs
        result = trj.TRJSampler(target, seed=0).run(max_seconds=60, progress=False)
    code = target.space.enumerate()
    log_prior = target.space.log_prior(code)
    draws = torch.stack([(scores.drawn(g).of(code) + log_prior).softmax(0) for _ in range(200)])
    p, error = (scores.of(code) + log_prior).softmax(0), draws.std(0)
    visits = result.model_probabilities(full=True)
    compared = 0
    for label, value, se in zip(target.space.label(code), p.tolist(), error.tolist(), strict=True):
        if value > 1e-3:
            row = visits.loc[label]
            known = not math.isnan(row["visits_se"])
            compared += known
            assert not known or abs(row["visits"] - value) < 5 * math.hypot(se, row["visits_se"])
    assert float(visits["visits"].sum()) > 0.99 and compared >= 9


@pytest.mark.whole
def test_noise_of_each_node_is_a_parameter_too():
    x = data(3, n=40, seed=6)

    def density(j, params, parents):
        mean = params["w"] @ x.T.to(params["w"])
        return Normal(mean, params["sigma"][:, None]).log_prob(x[:, j].to(mean)).sum(1)

    target = graphs.equations(
        ["a", "b", "c"],
        density,
        edges={"w": Normal(0.0, 1.0)},
        nodes={"sigma": torch.distributions.HalfNormal(2.0)},
    )
    result = trj.TRJSampler(target, seed=0).run(draws=40, chains=128, progress=False)
    found = graphs.exact(graphs.evidences(target, particles=200, moves=8))
    edges = result.inclusion_probabilities(full=True)
    for name, row in edges.iterrows():
        i, j = name.split("->")
        error = math.hypot(row["se"], found.edges_se.loc[i, j])
        assert abs(row["probability"] - found.edges.loc[i, j]) < 6 * error + 1e-3
