"""Units in turn, drawn given all others under a quadratic, and accepted as a whole."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm
from solved import spike_and_slab
from torch.distributions import Normal

import trjmcmc as trj
from tests import cases, toys
from tests.battery import is_caught, limit, moved, stays_exact
from tests.logistic_selection import logistic_selection
from trjmcmc.errors import ConfigurationError
from trjmcmc.kernel import HMC, Cycle, UnitGibbs, start


def gibbs(target, *, off=1.0, **settings):
    """A kernel whose quadratic is as much off the target's."""
    kernel = UnitGibbs(target, **settings)
    terms = kernel.quadratic.terms
    kernel.quadratic._terms = terms._replace(slope=off * terms.slope, gain=terms.gain + 1 - off)
    return kernel


@pytest.mark.parametrize("case", [cases.subsets, cases.blocks])
@pytest.mark.parametrize(("off", "updates"), [(1.0, None), (0.7, None), (1.2, 2)])
def test_posteriors_are_left_as_they_are(case, off, updates, generator):
    """A scan's order is shared by a batch, so that batches are small."""
    case = case()
    kernel = gibbs(case.target, off=off, updates=updates)
    seen = stays_exact(kernel, case, generator, chains=20_000, steps=2, batch=500)
    accepted = float(seen.infos[0].chance.mean())
    assert accepted > (0.99 if off == 1.0 else 0.1)


def test_with_a_wrong_quadratic_and_no_ratio_the_same_check_fails(generator, monkeypatch):
    case = cases.subsets()
    kernel = gibbs(case.target, off=0.7)
    look = kernel._look

    def of_target(code, theta, scan):
        x, rest, _ = look(code, theta, scan)
        return x, rest, case.target.log_joint(code, theta).double()

    monkeypatch.setattr(kernel, "_look", of_target)
    is_caught(kernel, case, generator, steps=2)


def test_priors_of_the_number_of_units(generator):
    """The odds of a unit depend on how many others are in; columns are in very unlike units."""
    rng = np.random.default_rng(1)
    x = torch.as_tensor(rng.standard_normal((40, 5)) * [1e-3, 1e3, 1.0, 1.0, 10.0])
    y = 0.3 * x[:, 2] + torch.as_tensor(rng.standard_normal(40))
    space = trj.Subsets(list("abcde"), of="beta", prior=lambda k: 1.0 / (1 + k) ** 2)

    def log_likelihood(p, active):
        return Normal(p["beta"] @ x.T, 1.0).log_prob(y).sum(-1)

    target = trj.Target(space, {"beta": Normal(0.0, 2.0)}, log_likelihood, dtype=torch.float64)
    laplace, codes = trj.transport.LaplaceMap(target), space.enumerate()
    p = laplace.log_evidence(codes).double().softmax(0)
    n = 20_000
    code = codes[torch.multinomial(p, n, True, generator=generator)]
    theta, _ = laplace.push(torch.randn(n, 5, generator=generator).double(), code)
    state, kernel = start(target, code, theta), UnitGibbs(target)
    rows = []
    for part in range(0, n, 500):
        one = start(target, state.code[part : part + 500], state.theta[part : part + 500])
        after, (info,) = kernel.step(one, generator)
        assert float(info.chance.min()) > 0.999
        rows.append(after.code)
    seen = torch.bincount(space.index(torch.cat(rows)), minlength=32).double() / n
    often = p > 20 / n
    z = ((seen - p) / (p * (1 - p) / n).sqrt())[often]
    assert float(z.abs().max()) < limit(len(z))


def warmed(target, steps, generator):
    code = target.space.sample_prior(200, generator)
    state, kernel = start(target, code, target.sample_prior(code, generator)), UnitGibbs(target)
    with torch.no_grad():
        for _ in range(steps):
            kernel, state, _ = kernel.adapt(state, generator)
    return kernel.frozen(), state


def test_warm_up_finds_out_what_is_quadratic(generator):
    quadratic, _ = warmed(trj.problems.conjugate_selection(6, seed=1), 40, generator)
    assert quadratic.exact
    assert quadratic.updates == 24  # four scans
    curved = logistic_selection(6, n=40, seed=2)
    kernel, state = warmed(curved, 40, generator)
    assert not kernel.exact
    with torch.no_grad():
        _, (info,) = kernel.step(state, generator)
    assert float(info.chance.mean()) > 0.3


def test_it_refuses_what_it_can_not_do():
    with pytest.raises(ConfigurationError, match="UnitGibbs: expected a space of Subsets"):
        UnitGibbs(toys.gaussians())
    with pytest.raises(ConfigurationError, match="updates: expected 1 to 3, got 0"):
        UnitGibbs(toys.conjugate_subsets(), updates=0)
    target = trj.Target(
        trj.Subsets(list("ab"), of="rate"),
        {"rate": torch.distributions.Gamma(2.0, 1.0)},
        lambda p, active: -p["rate"].sum(-1),
    )
    with pytest.raises(ConfigurationError, match="zero where their coordinate is"):
        UnitGibbs(target)


@pytest.mark.whole
def test_default_runs_of_conjugate_selections_take_it():
    target = spike_and_slab(p=18, rho=0.6, effects=3, seed=1)
    result = trj.TRJSampler(target, seed=2).run(150, chains=128, progress=False)
    assert "gibbs" in result.report.plan.weights
    found = result.inclusion_probabilities(full=True)
    z = (found["probability"].to_numpy() - target.inclusion.numpy()) / found["se"].to_numpy()
    assert np.nanmax(np.abs(z)) < limit(18)


@pytest.mark.whole
def test_outliers_and_a_prior_with_a_kink(generator):
    """Neither likelihood nor prior is normal; the truth is quadrature over both coefficients."""
    x = torch.randn(25, 2, generator=torch.Generator().manual_seed(1))
    y = 0.7 * x[:, 0] + torch.randn(25, generator=torch.Generator().manual_seed(2))
    y[:3] += 6.0

    def log_likelihood(p, active):
        r = y - p["beta"] @ x.T
        parts = Normal(0.0, 1.0).log_prob(r) + math.log(0.9), Normal(0, 8.0).log_prob(r)
        return torch.logaddexp(parts[0], parts[1] + math.log(0.1)).sum(-1)

    space = trj.Subsets(["a", "b"], of="beta")
    target = trj.Target(space, {"beta": torch.distributions.Laplace(0.0, 1.0)}, log_likelihood)
    grid = torch.linspace(-4, 4, 801)
    a, b = torch.meshgrid(grid, grid, indexing="ij")
    log_z, d = [], math.log(float(grid[1] - grid[0]))
    for on in space.enumerate():
        places = torch.stack([a.flatten() * on[0], b.flatten() * on[1]], 1)
        if not on.all():
            places = torch.stack([grid * on[0], grid * on[1]], 1)[: len(grid) if on.any() else 1]
        value = target.log_joint(on.expand(len(places), -1), places).double()
        log_z.append(value.logsumexp(0) + d * int(on.sum()))
    p = torch.stack(log_z).softmax(0)
    state = start(target, torch.zeros(400, 2, dtype=torch.long), torch.zeros(400, 2))
    kernel = Cycle([UnitGibbs(target), HMC(target)])
    kernel, state = toys.warmed(kernel, state, generator, 60)
    shares = []
    for _ in range(90):
        state, _ = moved(kernel, state, generator, 1)
        shares.append(torch.nn.functional.one_hot(space.index(state.code), 4).double())
    by_chain = torch.stack(shares).mean(0)
    z = (by_chain.mean(0) - p) / (by_chain.std(0) / len(by_chain) ** 0.5)
    assert float(z.abs().max()) < float(norm.isf(1e-5 / 8))
