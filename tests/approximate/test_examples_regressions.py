"""Studies of regressions and of spike and slab in small: they run, and their numbers are right."""

import importlib.util
import json
import math
import re
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from solved import spike_and_slab

import trjmcmc as trj

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def script(monkeypatch):
    """A script of the examples as a module, by name."""

    def load(name):
        spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture
def regressions(script):
    return script("variational_regressions")


@pytest.fixture
def slabs(script):
    return script("variational_spike_and_slab")


def test_normals_of_a_regression_beside_exact_answers(regressions):
    """Forty rows: a normal misses a little of a t-like posterior, and no more."""
    cell = regressions.cell_of("lin_n50_p2", None)
    assert cell.target.posterior.n == 40 and len(cell.x) == 10
    known = regressions.reference(cell, {})
    found = regressions.answer(
        cell, "full-rank", 20_000, 1, steps=150, learning_rate=3e-3, audit=False
    )
    gap = known["log_evidence"] - found["elbo"]
    assert -5 * found["elbo_se"] < gap < 0.2
    assert abs(found["sd"] / known["sd"] - 1) < 0.05 + 5 * found["sd_se"] / known["sd"]
    assert known["best_mean_field_elbo"] < known["log_evidence"]
    said = regressions.verdict({"lin_n50_p2": {"known": known, "recommended": found}})
    assert "of 1" in said["linear, sd within 1 % of exact"]


def test_an_answer_that_is_too_narrow_does_not_meet_the_bars(regressions):
    """Negative control of the count, and cells in print."""
    cell = regressions.cell_of("lin_n50_p50", None)
    known = regressions.reference(cell, {})
    narrow = {"sd": 0.9 * known["sd"], "error": known["error"], "sigma2": known["sigma2"]}
    cells = {"lin_n50_p50": {"known": known, "recommended": {**narrow, "cpu/s": 130.0}}}
    said = regressions.verdict(cells)
    assert said["linear, sd within 1 % of exact"] == "0 of 1, not lin_n50_p50"
    assert said["linear, error within .5 % of exact"] == "1 of 1"
    assert said["at most 120 processor seconds"].startswith("0 of 1")
    text = regressions.claims(cells, {"lin_n50_p50": cell})
    by_gibbs, exact = map(float, re.search(r"sd (\d\.\d+),\s+exact (\d\.\d+)", text).groups())
    assert abs(by_gibbs / exact - 1) < 0.2  # slow chains, of 6000 sweeps


def test_the_logistic_mean_field_is_that_of_a_lattice(regressions):
    """One column: every normal is a product, so that the best one is found on a grid."""
    x = torch.tensor([[1.0], [2.0], [-1.0], [0.5]], dtype=torch.float64)
    y = torch.tensor([1.0, 1.0, 0.0, 0.0], dtype=torch.float64)
    sd, elbo = regressions.logistic_mean_field(x, y, 1.0)
    z = np.linspace(-9, 9, 1801)
    weight = np.exp(-0.5 * z**2)
    weight /= weight.sum()
    best = (-math.inf, 0.0)
    for m, s in product(np.linspace(0, 1.5, 61), np.linspace(0.4, 1.0, 61)):
        line = x.numpy() * (m + s * z)
        fit = (y.numpy()[:, None] - 1) * line - np.log1p(np.exp(-line))
        bound = float(fit.sum(0) @ weight) - 0.5 * (m**2 + s**2 - 1 - 2 * math.log(s))
        best = max(best, (bound, s))
    assert abs(elbo - best[0]) < 1e-3 and abs(float(sd[0]) - best[1]) < 0.02


@pytest.mark.filterwarnings("ignore::trjmcmc.errors.TRJWarning")
def test_regressions_in_small(regressions, monkeypatch, capsys, tmp_path, clock):
    arguments = ["--quick", "--cells", "lin_n50_p2", "--families", "full-rank", "laplace"]
    arguments += ["--draws", "4000", "--steps", "30", "--figures", str(tmp_path)]
    arguments += ["--run", "lin_n50_p2", "--run-seconds", "1"]
    monkeypatch.setattr(regressions, "QUICK", ["lin_n50_p2", "log_n50_p2"])
    monkeypatch.setattr(sys, "argv", ["variational_regressions.py", *arguments])
    regressions.main()
    said = capsys.readouterr().out
    assert "Conjugate toys" in said and "no further off than Laplace" in said
    kept = json.loads((tmp_path / "answers.json").read_text())
    assert {"known", "full-rank", "laplace"} <= set(kept["log_n50_p2"])
    found = kept["lin_n50_p2"]
    assert abs(found["run"]["sd"] / found["known"]["sd"] - 1) < 0.2  # of one second
    assert math.isfinite(found["run"]["elbo"])
    assert (tmp_path / "sds.png").exists()


def test_the_best_product_is_the_posterior_where_columns_are_orthogonal(slabs):
    """And no product is nearer than the one that is found, where they are not."""
    x = torch.eye(4, dtype=torch.float64)[:, :3]
    target = spike_and_slab(x, torch.tensor([2.0, 0.3, -1.0, 0.1]).double())
    floor, chance = slabs.best_product(target)
    assert floor < 1e-10 and torch.allclose(chance, target.inclusion, atol=1e-6)
    target = spike_and_slab(rho=0.8, n=8, effects=1)
    floor, chance = slabs.best_product(target)
    codes, log_p = target.space.enumerate().double(), slabs.log_posterior(target)
    assert floor > 1e-4
    for step in 0.1 * torch.randn(50, 3, generator=torch.Generator().manual_seed(0)).double():
        other = slabs.product(chance.logit() + step, codes)
        assert slabs.nats_off(other, log_p) >= floor - 1e-9


def test_one_gumbel_variable_draws_what_it_does_not_state(slabs):
    """P(z = 1) = 1 - exp(-r / (1 - r)), against r by the difference of two."""
    space = spike_and_slab().space
    r, n = torch.tensor([0.2, 0.5, 0.8]), 20_000
    for make, expected in (
        (slabs.OneGumbel, 1 - torch.exp(-r / (1 - r))),
        (lambda s: trj.weights.MeanField(s, gradient="straight-through"), r),
    ):
        q = make(space)
        with torch.no_grad():
            q.logits.copy_(r.logit())
        share = q.relaxed(n, torch.Generator().manual_seed(1)).detach().mean(0)
        error = (expected * (1 - expected) / n).sqrt()
        assert bool(((share - expected).abs() < 5 * error).all())
        assert torch.allclose(q.probabilities, r)


def test_distances_and_precision_in_small(slabs):
    assert slabs.distance(np.array([0.0, 1.0]), np.array([0.5, 0.6])) == 0.5
    found = slabs.average_precision(np.array([0.9, 0.8, 0.1]), np.array([1.0, 0.0, 1.0]))
    assert math.isclose(found, 5 / 6)
    target = spike_and_slab(p=8, rho=0.6, effects=2)
    chance, error, _ = slabs.gibbs(target, 4, 300)
    assert slabs.error_of(chance, target.inclusion) < 0.03 + 6 * error


@pytest.mark.filterwarnings("ignore::trjmcmc.errors.TRJWarning")
def test_spike_and_slab_in_small(slabs, monkeypatch, capsys, tmp_path):
    arguments = ["--quick", "--seconds", "2", "--steps", "40", "--sets", "2", "--flows", "0"]
    arguments += ["--figures", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["variational_spike_and_slab.py", *arguments])
    slabs.main()
    said = capsys.readouterr().out
    first = next(line for line in said.splitlines() if line.startswith("rho 0.6, 100"))
    exact, answer = (float(v) for v in first.split()[4:6])
    assert abs(exact - answer) < 0.03
    assert "planted error" in said
    assert (tmp_path / "errors.png").exists() and (tmp_path / "inclusion.png").exists()
