"""Births and deaths that the gradient chooses."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch.distributions import Gamma, Normal

import trjmcmc as trj
from tests import cases, toys
from tests.battery import is_caught, limit, moved, stays_exact
from trjmcmc.errors import ConfigurationError
from trjmcmc.kernel import HMC, Cycle, InformedBirthDeath, start


def with_precision(target, factor, **settings):
    """A kernel whose precisions are a factor off the right ones."""
    kernel = InformedBirthDeath(target, **settings)
    kernel._precision = factor * curvatures(target).float()
    return kernel


def curvatures(target):
    """Of the log joint of all items along each slot, by autograd at zero."""
    code = torch.ones(1, target.space.code_width, dtype=torch.long)
    hessian = torch.autograd.functional.hessian(
        lambda x: target.log_joint(code, x[None]).sum(), torch.zeros(target.dim)
    )
    return -hessian.diagonal().double()


@pytest.mark.parametrize("factor", [1.0, 0.2, 5.0])
@pytest.mark.parametrize("flips", [1, 3])
def test_posteriors_are_left_as_they_are(factor, flips, generator):
    case = cases.subsets()
    kernel = with_precision(case.target, factor, flips=flips)
    seen = stays_exact(kernel, case, generator, steps=2)
    assert len(seen.infos) == flips
    assert float(seen.infos[0].accepted.double().mean()) > 0.1


@pytest.mark.parametrize("forgotten", ["choice", "newborn"])
def test_a_ratio_without_a_part_fails_the_same_check(forgotten, generator, monkeypatch):
    """The negative controls: the choice of the unit, or the newborn's density, left out."""
    case = cases.subsets()
    kernel = with_precision(case.target, 1.0)
    if forgotten == "newborn":
        kernel._log_normal = lambda theta, mean, slots: torch.zeros(len(theta))
    else:
        propose = kernel._propose

        def without_choice(state, here, generator):
            proposed, there, ratio = propose(state, here, generator)
            unit = (proposed.code != state.code).long().argmax(1, keepdim=True)
            return proposed, there, ratio - (there.log_q - here.log_q).gather(1, unit)[:, 0]

        monkeypatch.setattr(kernel, "_propose", without_choice)
    is_caught(kernel, case, generator, steps=2)


def test_blocks_items_that_are_always_in_and_parameters_beside_them(generator):
    """Against probabilities of all models: a block has two slots, one column never leaves."""
    case = cases.blocks()
    kernel = InformedBirthDeath(case.target, flips=3)
    kernel, _ = toys.warmed(kernel, case.draw(10_000, generator), generator, 1)
    infos = stays_exact(kernel, case, generator, chains=10_000).infos
    assert float(torch.stack([i.accepted.double().mean() for i in infos]).min()) > 0.3


def test_precisions_are_measured_and_the_choice_is_the_conditional_posterior(generator):
    """On a conjugate regression one look knows the odds of each item given the others."""
    target = toys.conjugate_subsets().to(dtype=torch.float64)
    kernel = InformedBirthDeath(target)
    state = cases.subsets().draw(50, generator)
    state = start(target, state.code, state.theta.double())
    kernel, _ = toys.warmed(kernel, state, generator, 1)
    assert torch.allclose(kernel._precision, curvatures(target.to(dtype=torch.float32)), rtol=1e-3)
    look = kernel._look(state.code, state.theta)
    for unit in range(3):
        # the item's coefficient integrated out of the log joint, by quadrature
        grid = torch.linspace(-8, 8, 4001, dtype=torch.float64)
        on, off = state.code[:1].clone(), state.code[:1].clone()
        on[0, unit], off[0, unit] = 1, 0
        theta = state.theta[:1].repeat(len(grid), 1)
        theta[:, unit] = grid
        inside = target.log_joint(on.expand(len(grid), -1), theta)
        outside = target.log_joint(off, torch.where(off.bool(), state.theta[:1], 0.0))
        odds = inside.logsumexp(0) + math.log(float(grid[1] - grid[0])) - outside[0]
        change = odds if state.code[0, unit] == 0 else -odds
        shown = look.log_q[0, unit] - look.log_q[0, 0]
        if unit == 0:
            first = torch.nn.functional.logsigmoid(change)
        assert float(shown) == pytest.approx(
            float(torch.nn.functional.logsigmoid(change) - first), abs=1e-5
        )


@pytest.mark.parametrize("prior", [0.2, [0.1, 0.5, 0.9], lambda size: 1.0 / (1 + size)])
def test_what_a_flip_changes_in_the_prior(prior):
    space = trj.Subsets(list("abc"), of="beta", prior=prior)
    code = space.enumerate()
    near, _ = space.neighbours(code)
    exact = space.log_prior(near.flatten(0, 1)).view(8, 3) - space.log_prior(code)[:, None]
    assert torch.allclose(space.flip_log_odds(code), exact, atol=1e-6)


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
    kernel = Cycle([InformedBirthDeath(target), HMC(target)])
    kernel, state = toys.warmed(kernel, state, generator, 60)
    shares = []
    for _ in range(90):
        state, _ = moved(kernel, state, generator, 1)
        shares.append(torch.nn.functional.one_hot(space.index(state.code), 4).double())
    by_chain = torch.stack(shares).mean(0)
    z = (by_chain.mean(0) - p) / (by_chain.std(0) / len(by_chain) ** 0.5)
    assert float(z.abs().max()) < float(norm.isf(1e-5 / 8))


def test_what_does_not_fit_is_refused():
    space = trj.Subsets(list("ab"), of="rate")
    zero = lambda p, active: -p["rate"].sum(-1)  # noqa: E731
    positive = trj.Target(space, {"rate": Gamma(2.0, 1.0)}, zero)
    with pytest.raises(ConfigurationError, match="absent items are not items at zero"):
        InformedBirthDeath(positive)
    few = trj.Subsets(list("ab"), of="rate", prior=lambda size: float(size < 2))
    with pytest.raises(ConfigurationError, match="a model of all items must be possible"):
        InformedBirthDeath(trj.Target(few, {"rate": Normal(0.0, 1.0)}, zero))
    with pytest.raises(ConfigurationError, match="expected a space of Subsets"):
        InformedBirthDeath(toys.gaussians())
    with pytest.raises(ConfigurationError, match="flips: expected 1 or more, got 0"):
        InformedBirthDeath(toys.conjugate_subsets(), flips=0)
    box = trj.BlackBox(lambda p, active: 0.0)
    blind = trj.Target(trj.Subsets(list("ab"), of="rate"), {"rate": Normal(0.0, 1.0)}, box)
    with pytest.raises(ConfigurationError, match="a likelihood without gradients"):
        InformedBirthDeath(blind)


@pytest.mark.slow
def test_robust_selection_of_65_536_models_by_default():
    """Against data augmentation, which knows this problem and shares nothing with the sampler."""
    target = trj.problems.robust_selection("mid", p=16, seed=0)
    chains = trj.problems.gibbs_robust_selection(target, chains=200, draws=1000, burn_in=300)
    result = trj.TRJSampler(target, seed=5).run(400, progress=False)
    found = result.inclusion_probabilities(full=True)
    gap = found["probability"].to_numpy()[1:] - chains.mean(0)
    error = np.hypot(found["se"].to_numpy()[1:], chains.std(0, ddof=1) / len(chains) ** 0.5)
    assert np.abs(gap).max() < 0.03
    assert np.abs(gap / error).max() < limit(len(gap)) + 1  # errors are estimates themselves
    assert "informed" in max(result.report.plan.weights, key=result.report.plan.weights.get)


def test_data_augmentation_agrees_with_quadrature():
    target = trj.problems.robust_selection("high", p=2, seed=4)
    chains = trj.problems.gibbs_robust_selection(target, draws=1000, burn_in=100)
    p = torch.tensor([target.truth.probabilities[m] for m in ("x0", "x0+x1", "x0+x2", "x0+x1+x2")])
    exact = torch.stack([p[1] + p[3], p[2] + p[3]]).numpy()
    z = (chains.mean(0) - exact) / (chains.std(0, ddof=1) / len(chains) ** 0.5)
    assert np.abs(z).max() < limit(2)
    with pytest.raises(ConfigurationError, match="chains, draws, burn_in"):
        trj.problems.gibbs_robust_selection(target, draws=0)
