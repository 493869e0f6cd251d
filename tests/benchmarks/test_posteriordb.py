"""Posteriors of posteriordb: finite where the references are, and the densities that they say."""

import itertools
import math
import sys

import numpy as np
import pytest
import torch
from torch.distributions import Gamma, MultivariateNormal, Normal

from tests.places import ROOT, SHARED

sys.path.insert(0, str(ROOT))  # benchmarks are not installed
from benchmarks.posteriordb import by_variational, compare, of_data, posterior, posteriors
from benchmarks.stan_programs import MODELS, recurrence

FOLDER = SHARED / "data" / "posteriordb"
RNG = np.random.default_rng(0)
N = 30
OTHERS = {
    "arma11": {"T": N, "y": RNG.normal(size=N).cumsum()},
    "diamonds": {
        "N": N,
        "Y": RNG.normal(8.0, 1.0, N),
        "X": np.column_stack([np.ones(N), RNG.normal(size=(N, 3))]),
    },
    "eight_schools_centered": {"y": RNG.normal(5.0, 9.0, 8), "sigma": RNG.uniform(9, 18, 8)},
    "gp_pois_regr": {"x": np.linspace(-10, 10, 9), "k": RNG.poisson(9.0, 9)},
    "hmm_drive_0": {
        "u": RNG.exponential(size=9),
        "v": RNG.exponential(size=9),
        "alpha": np.ones((2, 2)),
    },
    "hmm_example": {"y": RNG.normal(6.0, 4.0, 9)},
    "kidscore_mom_work": {"kid_score": RNG.normal(87, 20, N), "mom_work": np.arange(N) % 4 + 1},
}  # programs without a file


def near(found, entry, generator, n=4):
    """Points (n, D) about the means of a reference, or what the prior's own slots are about."""
    target = found.target
    code = target.space.enumerate()[0]
    noise = 0.02 * torch.randn(n, target.dim, dtype=torch.float64, generator=generator)
    params = target.constrain(code, noise)
    for name, value in params.items():
        keys = [name] if value.dim() == 1 else [f"{name}[{i + 1}]" for i in range(value.shape[1])]
        if set(keys) <= set(entry):
            means = torch.tensor([entry[key]["mean"] for key in keys], dtype=torch.float64)
            params[name] = means.expand(n, -1).reshape(value.shape)
    return target.unconstrain(found.name, params) + noise


def check_finite(found, theta):
    value, slope = found.target.log_joint_and_grad(
        found.target.space.enumerate().expand(4, 1), theta
    )
    assert bool(value.isfinite().all()) and bool(slope.isfinite().all())


@pytest.mark.parametrize("name", posteriors(FOLDER))
def test_every_posterior_is_finite_about_the_means_of_its_reference(name, generator):
    found = posterior(FOLDER, name)
    assert found.target.dtype == torch.float64
    theta = near(found, found.reference, generator)
    check_finite(found, theta)
    values = found.target.constrain(found.target.space.enumerate()[0], theta)
    assert set(found.reported(values)) == set(found.reference)
    table = compare(found, values)
    assert list(table.index) == list(found.reference)


@pytest.mark.parametrize("program", OTHERS)
def test_programs_without_a_file_are_finite(program, generator):
    found = of_data(f"simulated-{program}", OTHERS[program])
    check_finite(found, near(found, {}, generator))


@pytest.mark.skipif(not FOLDER.is_dir(), reason="reference answers are not here")
def test_every_family_is_tried():
    tried = {name.split("-", 1)[1] for name in posteriors(FOLDER)} | set(OTHERS)
    assert {MODELS[name].__qualname__ for name in tried} == {
        f.__qualname__ for f in MODELS.values()
    }


def excess(program):
    """Log joint less the exact log density of a flat regression's posterior, at a few points."""
    rng = np.random.default_rng(1)
    height, male = rng.normal(66.0, 4.0, N), rng.integers(0, 2, N)
    earn = np.exp(3.0 + 0.1 * height - 0.4 * male + rng.normal(size=N))
    data = {"earn": earn, "height": height, "male": male}
    data |= {"kid_score": np.log(earn), "mom_hs": height, "mom_iq": male}
    found = of_data(f"simulated-{program}", data)
    x = torch.tensor(np.column_stack([np.ones(N), height, male, height * male]))
    y = torch.tensor(np.log(earn))
    precision = x.T @ x
    best = torch.linalg.solve(precision, x.T @ y)
    rss, free = (y - x @ best).square().sum(), N - x.shape[1]
    sigma = (rss / free).sqrt() * torch.linspace(0.6, 1.9, 6, dtype=torch.float64)
    unit = MultivariateNormal(torch.zeros(4, dtype=torch.float64), precision_matrix=precision)
    shift = torch.tensor(rng.normal(size=(6, 4))) @ unit.scale_tril.T
    beta = best + sigma[:, None] * shift
    # flat in sigma: 1 / sigma^2 is gamma, with 2 / sigma^3 for the change of variables
    exact = Gamma((free - 1) / 2, rss / 2).log_prob(sigma**-2) - 3 * sigma.log()
    exact = exact + unit.log_prob(shift) - 4 * sigma.log()
    target = found.target
    theta = target.unconstrain(found.name, {"beta": beta, "sigma": sigma})
    code = target.space.enumerate().expand(6, 1)
    return target.log_joint(code, theta) - sigma.log() - exact  # the joint's slot is log sigma


def test_a_flat_regression_has_its_exact_posterior():
    flat, other = excess("logearn_interaction"), excess("kidscore_interaction")
    assert float(flat.std()) < 1e-7
    assert float(other.std()) > 1e-3  # a half-Cauchy prior of the noise


def test_a_recurrence_is_the_loop():
    added = torch.tensor(RNG.normal(size=(3, 11)))
    factor = torch.tensor([0.9, -0.4, 1.1], dtype=torch.float64)
    sums = [added[:, 0]]
    for t in range(1, 11):
        sums.append(added[:, t] + factor * sums[-1])
    torch.testing.assert_close(recurrence(added, factor), torch.stack(sums, 1))


def test_hidden_states_are_summed_over():
    y = torch.tensor([2.0, 9.0, 4.0, 11.0, 10.0], dtype=torch.float64)
    mu, theta = [3.5, 9.0], [[0.3, 0.7], [0.6, 0.4]]
    p = {"mu": mu, "theta1": theta[0], "theta2": theta[1]}
    values = {name: torch.tensor([x], dtype=torch.float64) for name, x in p.items()}
    found = MODELS["hmm_example"]({"y": y}).log_likelihood(values)
    total = 0.0
    for path in itertools.product((0, 1), repeat=len(y)):
        seen = Normal(torch.tensor([mu[k] for k in path]).double(), 1.0).log_prob(y).sum().exp()
        total += float(seen) * math.prod(theta[j][k] for j, k in itertools.pairwise(path))
    prior = Normal(torch.tensor([3.0, 10.0]), 1.0).log_prob(torch.tensor(mu)).sum()
    assert float(found) == pytest.approx(math.log(total) + float(prior), abs=1e-6)


def test_garch_is_the_loop_of_its_program():
    y = np.random.default_rng(2).normal(5.0, 2.0, 12)
    found = of_data("simulated-garch11", {"y": y, "sigma1": 0.5})
    rows = torch.tensor([[5.1, 1.2, 0.5, 0.3], [4.0, 0.4, 0.2, 0.6]], dtype=torch.float64)
    values = dict(zip(("mu", "alpha0", "alpha1", "beta1"), rows.T, strict=True))
    theta = found.target.unconstrain(found.name, values)
    code = found.target.space.enumerate().expand(2, 1)
    wanted = []
    for mu, alpha0, alpha1, beta1 in rows.tolist():
        sd = [0.5]
        for t in range(1, 12):
            sd.append((alpha0 + alpha1 * (y[t - 1] - mu) ** 2 + beta1 * sd[-1] ** 2) ** 0.5)
        log_p = Normal(mu, torch.tensor(sd, dtype=torch.float64)).log_prob(torch.tensor(y)).sum()
        # slots: log alpha0, logits of alpha1 and of beta1 / (1 - alpha1)
        share = beta1 / (1 - alpha1)
        slope = alpha0 * alpha1 * (1 - alpha1) * beta1 * (1 - share)
        wanted.append(float(log_p) + np.log(slope))
    log_joint = found.target.log_joint(code, theta)
    assert float(log_joint[0] - log_joint[1]) == pytest.approx(wanted[0] - wanted[1], abs=1e-8)


def test_draws_with_weights_count_as_often():
    data = {"kid_score": RNG.normal(87, 20, N), "mom_hs": np.arange(N) % 2}
    names = ("beta[1]", "beta[2]", "sigma")
    reference = {name: {"mean": 1.0, "sd": 2.0} for name in names}
    found = of_data("simulated-kidscore_momhs", data, reference)
    draws = {"beta": RNG.normal(size=(3, 2)), "sigma": RNG.uniform(1, 2, 3)}
    again = {name: x[[0, 0, 1, 2]] for name, x in draws.items()}
    weighted, repeated = compare(found, draws, [0.5, 0.25, 0.25]), compare(found, again)
    np.testing.assert_allclose(weighted, repeated)
    assert not np.allclose(weighted, compare(found, draws))


@pytest.mark.parametrize("program", ["arK", "logearn_interaction"])
def test_a_regression_hands_out_its_outcomes_and_columns(program):
    data = {"K": 2, "y": RNG.normal(size=N), "earn": RNG.uniform(1, 9, N)}
    data |= {"height": RNG.normal(66, 4, N), "male": np.arange(N) % 2}
    found = MODELS[program]({name: torch.as_tensor(x).double() for name, x in data.items()})
    y, x = found.regression
    beta = torch.tensor(RNG.normal(size=(5, x.shape[1])))
    sigma = torch.tensor(RNG.uniform(0.5, 1.5, 5))
    values = {"sigma": sigma}
    values |= {"alpha": beta[:, 0], "beta": beta[:, 1:]} if program == "arK" else {"beta": beta}
    exact = Normal(beta @ x.T, sigma[:, None]).log_prob(y).sum(1)
    torch.testing.assert_close(found.log_likelihood(values), exact)


@pytest.mark.skipif(not FOLDER.is_dir(), reason="reference answers are not here")
def test_importance_weights_take_the_mode_to_the_means():
    row = by_variational(posterior(FOLDER, "sblri-blr"), "laplace", 1)
    assert row["corrected_mean_gap"] < 0.15 and row["corrected_sd_gap"] < 0.15
    assert row["evaluations"] > 0 and row["seconds"] > 0
