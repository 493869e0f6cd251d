"""Studies of variational answers in small: the scripts run, and what they say is right."""

import importlib.util
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import norm
from solved import linear_regression

import trjmcmc as trj

EXAMPLES = Path(__file__).parents[2] / "examples"

QUIET = pytest.mark.filterwarnings("ignore::trjmcmc.errors.TRJWarning")


@pytest.fixture
def script(monkeypatch):
    """A function that gives a script of the examples as a module."""
    monkeypatch.syspath_prepend(str(EXAMPLES))

    def load(name):
        spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    return load


def test_closed_forms_of_coverage_to_four_digits(script):
    module = script("variational_coverage")
    first, second = module.closed_forms()
    assert (first["ours"] - first["checked against"]).abs().max() < 6e-5
    assert (second["KL"] - second["KL checked"]).abs().max() < 6e-5
    assert (second["coverage"] - second["coverage checked"]).abs().max() < 6e-5
    drawn = module.one_node_coverage(0.9, -1.0, 0.95, exchanged=True)
    assert abs(drawn - 0.794) < 6e-4  # the figure as printed is another curve


def test_one_rectifier_is_as_good_as_the_best_by_quadrature(script):
    """The divergence in closed form, against a fit of its three numbers by another way."""
    module = script("variational_coverage")
    rho, t = 0.6, -1.0
    z = torch.linspace(-9, 9, 20_001, dtype=torch.float64)
    weight = torch.exp(-0.5 * z**2)
    weight /= weight.sum()
    node = (z - t).clamp(min=0)
    node = node - weight @ node
    slope, variance = weight @ (z * node), weight @ node**2
    # second moments of (s1 z1, c node + s2 z2) under the precision of correlation rho
    first = 1 - rho**2 * slope**2 / variance
    expected = 0.5 * math.log(float(first) / (1 - rho**2))
    assert abs(float(module.one_node_divergence(rho, np.asarray(t))) - expected) < 1e-6


@pytest.mark.whole
@QUIET
def test_two_rectifiers_are_exact_and_one_on_the_flat_side_is_mean_field(script):
    module = script("variational_coverage")
    target = linear_regression(sigma=1.0, n=160, p=2, rho=-0.6)
    loc, sd = target.posterior.mean.numpy(), target.posterior.mean_field.sd.numpy()
    found = {}
    for k, bias, steps in ((2, None, 600), (1, -4.0, 60)):
        flow = module.rectifiers(k, 0, bias, loc, sd)
        found[k] = module.fitted(target, flow, 0, steps, 0.05)
    two, one = found[2].kl(), found[1].kl()
    assert two.value < 1e-3 + 5 * two.std_error
    assert module.begins(found[1].transport) > 1.0
    assert one.value > 0.05  # mean field is .17 off


@QUIET
def test_mean_field_covers_what_its_closed_form_says(script):
    """Much less than it claims; a flow of two rectifiers holds nearly all that it claims."""
    module = script("variational_coverage")
    target = linear_regression(sigma=1.0, n=80, p=2, rho=0.9, seed=4)
    exact = target.posterior
    reference = {f"beta[{i}]": norm(float(exact.mean[i]), float(exact.sd[i])) for i in range(2)}
    narrow = module.fitted(target, "mean-field", 0, 300, 0.02, 128, 20_000)
    closed = module.mean_field_coverage(module.correlation(target), 0.9)
    covered = module.coverage(narrow, reference)
    assert closed < 0.65
    assert ((covered["covered"] - closed).abs() < 0.03 + 5 * covered["se"]).all()


@QUIET
def test_repeats_pool_all_methods(script):
    module = script("variational_coverage")
    pooled = module.pooled(module.repeats(0.9, 80, 2, 30, 1))
    methods = {"exact", "mean field", "two rectifiers", "run()"}
    assert set(pooled.index.get_level_values("method")) == methods
    assert pooled.loc[(0.9, "exact"), "sets"] == 2 and pooled.loc[(0.9, "run()"), "sets"] == 1
    assert 0.4 < pooled.loc[(0.9, "mean field"), "law"] < 0.65


def test_the_bound_of_the_theorem_is_below_what_any_line_reaches(script):
    module = script("variational_coverage")
    covariance = module.equicorrelated(10, 0.9).posterior.covariance
    assert module.bound(covariance, 2) < 1e-12
    assert abs(module.lines_divergence(covariance, [1]) - 0.636) < 6e-4
    assert module.lines_divergence(covariance, [1, 2]) > 0.0545
    assert module.lines_divergence(covariance, list(range(1, 10))) < 1e-5  # p - 1 lines: exact


@QUIET
def test_an_energy_in_small(script):
    module = script("variational_energies")
    target = trj.problems.energy("U5")
    run = module.approximate(target, "recommended", 0, 100_000)  # what --quick takes
    table = module.table_of({"U5": [run]})
    assert run.answer.ok
    assert table.loc["U5", "worst"] < 0.15 and abs(table.loc["U5", "log Z off by"]) < 0.1
    assert len(module.panels({"U5": target}, {"U5": [run]}).axes) == 1
    module.strips({"recommended": {"U5": [run]}})


def test_forward_divergence_sees_what_is_missed(script):
    """A normal in the place of a sine: its divergence by a lattice is the one by exact draws."""
    module = script("variational_energies")
    target = trj.problems.energy("U5")
    affine = trj.transport.Affine(target.space).double()
    value, error = module.forward_divergence(target, affine, seed=5)
    z = torch.linspace(-12, 12, 601, dtype=torch.float64)
    lattice = torch.cartesian_prod(z, z)
    log_p = target.log_prob(lattice)
    with torch.no_grad():
        log_q = affine.log_prob(lattice, torch.zeros(len(lattice), 1, dtype=torch.long))
    exact = float((log_p.exp() * (log_p - log_q)).sum() * (z[1] - z[0]) ** 2)
    assert value > 0.2 and abs(value - exact) < 5 * error


def test_kernel_estimates_have_a_floor(script):
    """Exact draws are far from zero by the thesis' metric, and a wrong constant is seen."""
    module = script("variational_energies")
    target = trj.problems.energy("U5")
    draws = target.exact_draws(300, torch.Generator().manual_seed(0)).numpy()
    floor = module.kernel_error(target, draws)
    assert floor > 0.5
    assert abs(module.kernel_error(target, draws, 3 * math.exp(target.log_evidence)) - floor) > 0.1
