"""Mixtures of normals with full covariances, against sums over assignments by other means."""

import itertools
import math

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch

from trjmcmc.errors import ShapeError, TargetError
from trjmcmc.kernel import (
    ComponentBirthDeath,
    ComponentSplitMerge,
    ComponentWalk,
    Cycle,
    start,
)
from trjmcmc.problems import normal_mixture
from trjmcmc.problems.mixtures import _of_assignments

ERUPTIONS = [
    *((3.6, 79), (1.8, 54), (3.333, 74), (2.283, 62), (4.533, 85)),
]  # minutes that eruptions of Old Faithful last and are waited for, the first of them


def log_marginal(y):
    """Of one normal with a conjugate prior: predictive densities in turn, Student's t, nats."""
    d = y.shape[1]
    mean, weight, freedom, scatter, value = np.zeros(d), 0.3, d + 3.0, 0.5 * np.eye(d), 0.0
    for x in y:
        degrees = freedom - d + 1
        shape = scatter * (weight + 1) / (weight * degrees)
        value += scipy.stats.multivariate_t(mean, shape, df=degrees).logpdf(x)
        gap = x - mean
        scatter = scatter + weight / (weight + 1) * np.outer(gap, gap)
        mean, weight, freedom = mean + gap / (weight + 1), weight + 1, freedom + 1
    return value


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_evidences_by_all_assignments(dim):
    y, most = np.random.default_rng(dim).normal(size=(5, dim)), 3
    expected = []
    for k in range(1, most + 1):
        terms = []
        for of in itertools.product(range(k), repeat=len(y)):
            members = [y[np.array(of) == j] for j in range(k)]
            sizes = sum(scipy.special.gammaln(1 + len(m)) for m in members)
            weights = math.lgamma(k) - math.lgamma(k + len(y)) + sizes
            terms.append(weights + sum(log_marginal(m) for m in members if len(m)))
        expected.append(scipy.special.logsumexp(terms))
    np.testing.assert_allclose(_of_assignments(y, most), expected, atol=1e-9)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_the_likelihood_is_that_of_normals(dim, generator):
    target = normal_mixture(dim=dim, seed=3).to(dtype=torch.float64)
    code = torch.full((1, 1), 2)
    theta = target.sample_prior(code, generator)
    shown = {k: v[0].numpy() for k, v in target.constrain(code[0], theta).items()}
    density = 0.0
    for j in range(2):
        a = np.diag(shown["diagonal"][j] ** 0.5)
        if dim > 1:
            a[np.tril_indices(dim, -1)] = shown["below"][j]
        covariance = np.linalg.inv(a @ a.T / 0.5)
        mean = (0.5 / 0.3) ** 0.5 * np.linalg.solve(a.T, shown["centre"][j])
        normal = scipy.stats.multivariate_normal(mean, covariance)
        density = density + shown["mass"][j] * normal.pdf(target.y.numpy())
    expected = np.log(density / shown["mass"][:2].sum()).sum()
    found = target.log_prior_and_likelihood(code, theta)[1]
    assert float(found) == pytest.approx(expected, rel=1e-9)


def test_chains_find_the_number(generator, limit=5.0):
    """By births, splits, and walks of one component in a row, from weighted prior draws."""
    y = np.array(ERUPTIONS)
    target = normal_mixture((y - y.mean(0)) / y.std(0), most=3)
    exact = torch.tensor([*target.truth.probabilities.values()])
    moves = [ComponentBirthDeath(target, prior_share=1), ComponentSplitMerge(target)]
    kernel = Cycle([*moves, ComponentWalk(target, times=3)])
    code = target.space.sample_prior(40_000, generator)
    theta = target.sample_prior(code, generator)
    with torch.no_grad():
        weight = target.log_prior_and_likelihood(code, theta)[1].double().softmax(0)
        rows = torch.multinomial(weight, 400, replacement=True, generator=generator)
        state, found = start(target, code[rows], theta[rows]), []
        for i in range(110):
            state, _ = kernel.step(state, generator)
            found += [state.code[:, 0]] if i >= 50 else []
    mean = (torch.stack(found, 1)[..., None] == torch.arange(1, 4)).double().mean(1)
    error = mean.std(0) / len(mean) ** 0.5
    assert float(((mean.mean(0) - exact) / error).abs().max()) < limit
    assert float(error.max()) < 0.03


def test_settings_out_of_range_are_refused():
    with pytest.raises(ShapeError, match="expected shape"):
        normal_mixture(np.zeros(4))
    with pytest.raises(TargetError, match="expected finite"):
        normal_mixture(np.full((4, 2), np.nan))
    with pytest.raises(TargetError, match="two points per component"):
        normal_mixture(true=7)
    assert normal_mixture(points=13, seed=1).truth is None
