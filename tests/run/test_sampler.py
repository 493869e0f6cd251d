import functools
import json
import math
import signal
import sys
import time
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
import zuko
from scipy.stats import norm
from torch.distributions import Normal

import trjmcmc as trj
from tests import toys
from tests.battery import check, crossings
from tests.places import SHARED, shared_only
from trjmcmc.errors import (
    ConfigurationError,
    CoverageWarning,
    InterruptedWarning,
    NonFiniteError,
    TargetError,
    TRJWarning,
    UnknownModelError,
)
from trjmcmc.estimate.importance import FIRST_DRAWS, MOST_DRAWS
from trjmcmc.fit.train import train
from trjmcmc.kernel import CrankNicolson, Cycle, Fixed, Jump, Kernel, RandomWalk
from trjmcmc.pilot.audit import Audit
from trjmcmc.problems import SinhArcsinhMap
from trjmcmc.run.recorded import Tally
from trjmcmc.transport import Identity


def untrained(sampler):
    """The sampler, to be run with its map as it is."""
    sampler.run = functools.partial(sampler.run, fit=False)
    return sampler


@pytest.mark.whole
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("trained", marks=pytest.mark.whole),
        pytest.param("reverse KL", marks=pytest.mark.slow),
        pytest.param("untrained", marks=pytest.mark.slow),
        "exact",
    ],
)
def test_the_sinh_arcsinh_pair(kind):
    target = trj.problems.sinh_arcsinh()
    if kind == "exact":
        sampler = untrained(trj.TRJSampler(target, SinhArcsinhMap, seed=11))
    elif kind == "untrained":
        sampler = trj.TRJSampler(target, seed=12)
        sampler.fit(steps=0, pilot=False, audit=False, progress=False)
        untrained(sampler)
    else:
        sampler = trj.TRJSampler(target, seed=13)
        sampler.fit(steps=400, pilot=None if kind == "trained" else False, progress=False)
    draws = 800 if kind == "untrained" else 150
    result = sampler.run(draws, chains=256, warmup=80, progress=False)
    check(result, target.truth, sigmas=4.0)
    if kind == "exact":
        assert result.report.acceptance["map inside"]["within"] > 0.999


@pytest.mark.whole
def test_one_zuko_flow_a_model():
    target = trj.problems.sinh_arcsinh()
    sampler = trj.TRJSampler(
        target,
        lambda space: trj.transport.PerModel(space, lambda d: zuko.flows.NSF(d, transforms=2)),
        seed=14,
    )
    sampler.fit(steps=150, progress=False)
    result = sampler.run(150, chains=128, fit=False, progress=False)
    check(result, target.truth)
    assert result.report.plan.weights["map"] > 0
    assert crossings(sampler, result) > 0.8


@pytest.mark.whole
def test_one_flow_a_model_far_from_the_origin():
    y = 300 + torch.randn(20, generator=torch.Generator().manual_seed(1))

    def log_likelihood(p):
        return Normal(p["mu"][:, None], 1.0).log_prob(y).sum(-1)

    target = trj.Target(
        [
            trj.Model("free", {"mu": Normal(0.0, 300.0)}, log_likelihood),
            trj.Model("near", {"mu": Normal(300.0, 0.5)}, log_likelihood),
        ]
    )
    n, mean = len(y), float(y.mean())
    log_z = [
        Normal(m, (s**2 + 1 / n) ** 0.5).log_prob(torch.tensor(mean))
        for m, s in ((0.0, 300.0), (300.0, 0.5))
    ]
    p = torch.stack(log_z).softmax(0).tolist()
    sampler = trj.TRJSampler(
        target,
        lambda s: trj.transport.PerModel(s, lambda d: zuko.flows.NSF(d, transforms=1)),
        seed=3,
    )
    sampler.fit(steps=200, batch=128, progress=False)
    result = sampler.run(200, chains=64, progress=False)
    check(result, trj.problems.Truth({"free": p[0], "near": p[1]}))
    by_weights = result.evidences.routes["importance"].values()
    assert all(e.ess > 20 for e in by_weights)  # 1 where it isn't standardised


@pytest.mark.whole
@pytest.mark.planned
def test_a_prior_a_million_times_wider_than_the_posterior():
    """The first temperatures of the pilot run are then far below 1e-9."""
    y = torch.randn(50, generator=torch.Generator().manual_seed(2)) + 1.0

    def log_likelihood(p):
        return Normal(p["mu"][:, None], 1.0).log_prob(y).sum(-1)

    wide = 1e6
    target = trj.Target(
        [
            trj.Model("null", {}, lambda p: Normal(0.0, 1.0).log_prob(y).sum()),
            trj.Model("mean", {"mu": Normal(0.0, wide)}, log_likelihood),
        ]
    )
    n, mean = len(y), float(y.mean())
    log_bf = 0.5 * (n * mean) ** 2 / (n + wide**-2) - 0.5 * math.log(1 + n * wide**2)
    sampler = trj.TRJSampler(target, seed=4)
    sampler.fit(steps=100, batch=128, particles=1000, progress=False)
    result = sampler.run(150, chains=128, progress=False)
    p = 1 / (1 + math.exp(-log_bf))
    check(result, trj.problems.Truth({"null": 1 - p, "mean": p}))


quiet = pytest.mark.filterwarnings("ignore:the run has not converged")  # runs kept short


@pytest.mark.whole
@quiet
@pytest.mark.parametrize("n_models", [65, 1000])
def test_long_lists_of_models(n_models):
    models = [
        trj.Model(f"m{i}", {"x": Normal(float(i % 5), 1.0)}, lambda p: -p["x"].square() / 2)
        for i in range(n_models)
    ]
    sampler = trj.TRJSampler(trj.Target(models), seed=1)
    sampler.fit(steps=2, audit=False, progress=False)
    result = sampler.run(20, chains=16, warmup=5, progress=False)
    assert float(result.model_probabilities(full=True)["visits"].sum()) == pytest.approx(1)


@pytest.mark.slow
def test_running_twice_on_a_large_space():
    sampler = trj.TRJSampler(toys.conjugate_subsets(p=8, n=30), seed=6)
    sampler.fit(steps=50, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TRJWarning)
        for _ in range(2):
            result = sampler.run(40, chains=32, warmup=20, progress=False)
    on = result.raw.code.float().mean((0, 1))
    assert bool((on > 0).all())
    with pytest.raises(ConfigurationError, match=r"pilot: .* takes 64 at most; this space has 256"):
        sampler.fit(pilot=True)


@pytest.mark.whole
def test_a_space_of_one_model_by_construction():
    space = trj.Subsets(["a", "b"], of="w", always=["a", "b"])
    target = trj.Target(space, {"w": Normal(0.0, 1.0)}, lambda p, active: -p["w"].square().sum(-1))
    sampler = trj.TRJSampler(target, seed=1)
    sampler.fit(steps=100, batch=64, progress=False)
    result = sampler.run(50, chains=32, warmup=20, progress=False)
    table = result.model_probabilities(full=True)
    assert (table.loc["a+b", "visits"], table.loc["a+b", "visits_se"]) == (1, 0)
    assert result.inclusion_probabilities(full=True)["probability"].tolist() == [1, 1]


@pytest.mark.whole
@pytest.mark.planned  # a smaller map would need more draws
@pytest.mark.filterwarnings("ignore::trjmcmc.errors.ConvergenceWarning")  # it is a short run
def test_a_second_fit_goes_on_without_new_evaluations():
    """Map and audit are kept: only weighing calls the likelihood."""
    sampler = trj.TRJSampler(toys.gaussians(), seed=1)
    sampler.fit(steps=20, particles=50, progress=False)
    loc = sampler.transport.outer.loc.clone()
    result = sampler.run(20, chains=64, progress=False)
    before = sampler.target.evaluations
    sampler.fit(steps=20, progress=False)
    assert 3 * FIRST_DRAWS <= sampler.target.evaluations - before <= 3 * MOST_DRAWS
    assert torch.equal(sampler.transport.outer.loc, loc)
    sampler.fit(steps=20, pilot=result, progress=False)
    assert sampler.audit_report.mended == 0


def test_the_callers_objects_stay_as_they_are():
    target = toys.gaussians()
    flow = trj.transport.CosmicFlow(target.space, layers=2)
    sampler = trj.TRJSampler(target, flow, seed=1, dtype=torch.float64)
    assert next(flow.parameters()).dtype == torch.float32
    assert target.space.log_prior_table.dtype == torch.float32
    assert next(sampler.transport.parameters()).dtype == torch.float64
    assert trj.TRJSampler(target, flow, seed=1).transport is flow


def test_a_map_that_does_not_lead_back_is_refused():
    class Lost(Identity):
        def to_reference(self, theta, code):
            return theta + 1, theta.new_zeros(len(theta))

    sampler = trj.TRJSampler(toys.gaussians(), Lost, seed=1)
    with pytest.raises(ConfigurationError, match="Lost does not lead back"):
        sampler.run(5, fit=False)


@pytest.mark.whole
def test_nothing_is_copied_to_the_host_inside_a_step():
    """As on an accelerator: every model sees the whole batch, and no value becomes a number."""
    for target in (trj.problems.robust_regression(), trj.problems.coal_mining(1, 3)):
        sampler = trj.TRJSampler(target, seed=1)
        sampler.fit(steps=2, particles=100, moves=1, audit=False, progress=False)
        jump = Jump(target, sampler.transport, Fixed(target.space))
        move = trj.kernel.CrankNicolson(target, sampler.transport)
        kernel = Cycle([jump, move, RandomWalk(target)])
        generator = torch.Generator().manual_seed(1)
        code = target.space.sample_prior(32, generator)
        with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
            for module in ("grouping", "target.density"):
                patch.setattr(f"trjmcmc.{module}.on_host", lambda x: False)
            state = trj.kernel.start(target, code, target.sample_prior(code, generator))
            tally = Tally(target)
            state, infos = kernel.step(state, generator)
            tally.add(infos)
            with torch.profiler.profile(acc_events=True) as profile:
                state, infos = kernel.step(state, generator)
                tally.add(infos)
        names = {event.name for event in profile.events()}
        assert "aten::mul" in names
        assert not names & {"aten::item", "aten::_local_scalar_dense", "aten::nonzero"}


@quiet  # at k = 6 R-hat may lie just above its threshold; the bounds below are the test
@pytest.mark.slow
def test_coal_mining_in_full():
    """The main job, as examples/coal_mining.py runs it."""
    target = trj.problems.coal_mining()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoverageWarning)  # of k = 6, with 4 % of the posterior
        result = trj.TRJSampler(target, seed=1).run(2000, progress=False)
    table = check(result, target.truth, sigmas=4.0)
    exact = pd.Series(dict(target.truth.probabilities))
    assert bool(((table["visits"] - exact).abs() <= 0.01).all())


@pytest.mark.slow
def test_the_sinh_arcsinh_pair_through_the_identity():
    """No map at all, not even located: independence jumps from N(0, 1) still get there."""
    target = trj.problems.sinh_arcsinh()

    def kernel(target, transport):
        jump = Jump(target, transport, Fixed(target.space, other=True), rho=0.0)
        return Cycle([jump, CrankNicolson(target, transport), (RandomWalk(target), 4)])

    sampler = untrained(trj.TRJSampler(target, trj.transport.Identity, kernel, seed=12))
    result = sampler.run(15_000, chains=128, warmup=2000, progress=False)
    check(result, target.truth, sigmas=4.0)


@pytest.mark.slow
@pytest.mark.parametrize("data", ["simulated", pytest.param("shared", marks=shared_only)])
def test_robust_regression(data):
    target = trj.problems.robust_regression()
    if data == "shared":
        table = np.genfromtxt(SHARED / "data" / "six_dim_rr.csv", delimiter=",", skip_header=1)
        target = trj.problems.robust_regression(table[:, 2:6], table[:, 1])
    sampler = trj.TRJSampler(target, seed=3)
    sampler.fit(steps=600, progress=False)
    result = sampler.run(500, chains=128, progress=False)
    table = check(result, target.truth, sigmas=4.0, largest_error=0.01)
    assert bool((table["importance_se"] < 0.01).all())
    exact = pd.Series(dict(target.truth.probabilities))
    assert bool(((table["importance"] - exact).abs() < 5 * table["importance_se"] + 0.005).all())
    # a posterior mean against importance sampling by hand
    generator = torch.Generator().manual_seed(5)
    code = target.space.code_of("x1+x3+x4").expand(20_000, -1)
    z = sampler.transport.reference.sample(
        (20_000, sampler.transport.space.n_slots), generator, torch.float32
    )
    with torch.no_grad():
        theta, log_q = sampler.transport.push(z, code)
        log_w = target.log_joint(code, theta) - log_q
    w = log_w.double().softmax(0)
    mean = float(w @ theta[:, 2].double())
    error = float((w.square() @ (theta[:, 2].double() - mean).square()).sqrt())
    row = result.summary().loc[("x1+x3+x4", "beta[x3]")]
    assert abs(row["mean"] - mean) < 5 * math.hypot(error, row["mcse"])
    inclusion = result.inclusion_probabilities(full=True)["probability"]
    assert inclusion["x1"] == 1
    assert inclusion["x3"] == inclusion["x4"]
    assert result.inclusion_probabilities(full=True).loc["x1", "combined"] == 1
    by_model = table["visits"]["x1+x2"] + table["visits"]["x1+x2+x3+x4"]
    assert inclusion["x2"] == pytest.approx(by_model, abs=1e-12)


@pytest.mark.slow
def test_every_mode_of_the_robust_regression():
    """All evidences by importance sampling; the second mode of the intercept-only model."""
    x, y = far_intercept()
    target = trj.problems.robust_regression(x, y)
    sampler = trj.TRJSampler(target, seed=7)
    sampler.fit(steps=600, progress=False)
    exact_share = share_of_second_mode(x, y)
    assert 0.05 < exact_share < 0.5
    evidences_and_share(sampler, target, exact_share)


@pytest.mark.slow
@shared_only
def test_every_mode_of_the_published_robust_regression():
    table = np.genfromtxt(SHARED / "data" / "six_dim_rr.csv", delimiter=",", skip_header=1)
    target = trj.problems.robust_regression(table[:, 2:6], table[:, 1])
    gold = json.loads((SHARED / "gold" / "robust_regression_4.json").read_text())
    exact = dict(
        zip(target.truth.log_evidence, gold["log_evidence_normalised"].values(), strict=True)
    )
    for label, log_z in exact.items():
        assert target.truth.log_evidence[label] == pytest.approx(log_z, abs=1e-4)
    sampler = trj.TRJSampler(target, seed=7)
    sampler.fit(steps=1500, progress=False)
    share = share_of_second_mode(table[:, 2:6], table[:, 1])
    assert abs(share - 0.1104) < 1e-4  # by quadrature
    evidences_and_share(sampler, target, share)


def far_intercept():
    """Data in two groups: the intercept-only model has a mode in each."""
    rng = np.random.default_rng(3)
    x = np.concatenate([np.ones((80, 1)), rng.standard_normal((80, 3))], 1)
    return x, np.where(np.arange(80) < 39, 2.0, -2.0) + rng.standard_normal(80)


def intercept_density(x, y):
    """Posterior of the intercept-only model on a grid, normalised."""
    grid = torch.linspace(-4, 9, 4001, dtype=torch.float64)
    likelihood = trj.problems.robust_regression(x, y)._densities.each[0].likelihood.function
    params = {"beta": torch.nn.functional.pad(grid[:, None], (0, 3))}
    log_p = likelihood(params) + Normal(0.0, 10.0).log_prob(grid)
    return grid, log_p.softmax(0)


def share_of_second_mode(x, y):
    grid, p = intercept_density(x, y)
    return float(p[beyond(grid, float(grid[int(p.argmax())]))].sum())


def beyond(x, peak):
    """On the other side of the middle between the modes, which lie about 4 apart."""
    return x > peak + 2 if peak < 0 else x < peak - 2


def evidences_and_share(sampler, target, share):
    """Importance-sampled evidences as their errors say, and the mode at its share of the draws."""
    table = sampler.audit_report.table()
    for label, exact in target.truth.log_evidence.items():
        error = table.loc[label, "map_se"]
        assert error < 0.01, label
        assert abs(table.loc[label, "map_log_evidence"] - exact) < 4.5 * error, label
    assert (table["verdict"].isin({"covered", "rough"})).all()
    grid, p = intercept_density(target.x.numpy(), target.y.numpy())
    peak = float(grid[int(p.argmax())])
    generator = torch.Generator().manual_seed(3)
    z = sampler.transport.reference.sample(
        (40_000, sampler.transport.space.n_slots), generator, torch.float32
    )
    code = target.space.code_of("x1").expand(40_000, -1)
    with torch.no_grad():
        beta = sampler.transport.push(z, code)[0][:, 0]
    other = float(beyond(beta, peak).double().mean())
    assert abs(other - share) < 0.01


@pytest.mark.slow
@quiet
def test_factor_analysis_against_a_long_audit():
    """Simulated data: two independent ways to the evidences, and the visits, agree."""
    target = trj.problems.factor_analysis()
    long = Audit(
        target,
        target.space.enumerate(),
        particles=1500,
        generator=torch.Generator().manual_seed(77),
    )
    long.grow(0)
    assert bool((long.std_error < 0.15).all())
    sampler = trj.TRJSampler(target, seed=1)
    sampler.fit(steps=1500, progress=False)
    table = sampler.audit_report.table()
    gap = torch.tensor(table["map_log_evidence"].to_numpy()) - long.log_evidence
    error = torch.hypot(torch.tensor(table["map_se"].to_numpy()), long.std_error)
    assert bool((gap.abs() < 5 * error + 0.02).all()), table.to_string()
    assert table.loc["2 factors", "covered"] > 0.98
    assert table.loc["2 factors", "modes"] >= 2  # the second column's sign is open
    result = sampler.run(200, chains=64, progress=False)
    probabilities = result.model_probabilities(full=True)
    p = long.log_mass.softmax(0)
    spread = float(p[0] * p[1]) * float(torch.hypot(*long.std_error))
    row = probabilities.loc["2 factors"]
    assert abs(row["visits"] - float(p[0])) < 5 * math.hypot(row["visits_se"], spread)
    loading = result.draws("2 factors")["loading"]
    negative = float((loading[:, 6] < 0).mean())
    assert 0.1 < negative < 0.4


@pytest.mark.slow
@quiet
def test_factor_analysis_with_one_or_two_factors():
    """A quick one: map and audit agree, and the sign flip of the second column is found."""
    target = trj.problems.factor_analysis(factors=(1, 2))
    sampler = trj.TRJSampler(target, seed=3)
    sampler.fit(steps=500, particles=500, audit=1, progress=False)
    row = sampler.audit_report.table().loc["2 factors"]
    assert abs(row["difference"]) < 6 * row["difference_se"] + 0.02
    assert row["modes"] >= 2
    result = sampler.run(60, chains=64, warmup=100, progress=False)
    negative = float((result.draws("2 factors")["loading"][:, 6] < 0).mean())
    assert 0.1 < negative < 0.45
    assert (
        result.model_probabilities(full=True).loc["2 factors", "visits"] == 1
    )  # the data have two


@pytest.mark.slow
@shared_only
@quiet
def test_factor_analysis_of_the_exchange_rates():
    gold = json.loads((SHARED / "gold" / "factor_analysis.json").read_text())
    exact = {f"{k} factors": gold["log_evidence"][f"k={k}"]["value"] for k in (2, 3)}
    y = np.genfromtxt(SHARED / "data" / "exchange_rates.csv", delimiter=",", skip_header=1)
    target = trj.problems.factor_analysis(y)
    begun = time.perf_counter()
    sampler = trj.TRJSampler(target, seed=1)
    sampler.fit(steps=4000, progress=False)
    assert time.perf_counter() - begun < 360
    table = sampler.audit_report.table()
    for label, log_z in exact.items():
        row = table.loc[label]
        gap = abs(row["map_log_evidence"] - log_z)
        assert gap < 0.05
        assert gap < 3 * math.hypot(row["map_se"], 0.003)
        assert abs(row["log_evidence"] - log_z) < 0.1
    z = sampler.transport.reference.sample(
        (40_000, sampler.transport.space.n_slots), torch.Generator().manual_seed(3), torch.float32
    )
    with torch.no_grad():
        theta, _ = sampler.transport.push(z, torch.zeros(40_000, 1, dtype=torch.long))
    negative = float((theta[:, target.slot_names.index("loading[6]")] < 0).double().mean())
    assert abs(negative - 0.214) < 0.03
    result = sampler.run(1000, chains=256, progress=False)
    assert abs(result.model_probabilities(full=True).loc["2 factors", "visits"] - 0.8947) < 0.01


@pytest.mark.slow
def test_coal_mining_at_a_small_size():
    target = trj.problems.coal_mining(0, 3)
    sampler = trj.TRJSampler(target, seed=4)
    sampler.fit(steps=400, particles=1000, progress=False)
    result = sampler.run(400, chains=128, progress=False)
    table = check(result, target.truth)
    assert table.loc["k=0", "visits"] == 0
    assert table.loc["k=0", "visits_se"] > 0  # never visited is not probability zero
    assert "never visited" in table.loc["k=0", "note"]
    draws = result.draws("k=2")
    assert draws["spacing"].shape[1:] == (3,)
    assert np.allclose(draws["spacing"].sum(1), 1, atol=1e-5)
    change = draws["spacing"].cumsum(1)[:, :-1].mean(0) * 40907
    assert np.allclose(change, [14097, 33503], rtol=0.06)  # published: 14096.98, 33502.94


@pytest.mark.whole
def test_a_list_with_a_model_without_parameters():
    target = toys.gaussians(scale=2.0)
    sampler = trj.TRJSampler(target, seed=5)
    sampler.fit(steps=300, batch=128, progress=False)
    result = sampler.run(400, chains=64, progress=False)
    check(result, target.truth)
    assert result.draws("none") == {}
    assert result.draws("one")["a"].shape[1:] == (1,)
    assert result.draws("three")["a"].shape[1:] == (3,)


@pytest.mark.slow
def test_a_subset_space_too_large_for_a_pilot():
    target = toys.conjugate_subsets(p=7, n=30)
    sampler = trj.TRJSampler(target, seed=6)
    sampler.fit(steps=400, progress=False)
    result = sampler.run(800, chains=128, progress=False)
    table = result.model_probabilities(full=True)
    assert len(table) == 21
    assert table.index[-1] == "(other models)"
    assert float(table["visits"].sum()) == pytest.approx(1)
    exact = pd.Series(dict(target.truth.probabilities))
    for label in table.index[:5]:
        row = table.loc[label]
        assert abs(row["visits"] - exact[label]) < 5 * row["visits_se"]
        error = math.hypot(row["visits_se"], row["importance_se"])
        assert abs(row["visits"] - row["importance"]) < 5 * error + 0.005
    inclusion = result.inclusion_probabilities(full=True)
    for j in range(7):
        name = f"x{j}"
        truth = sum(p for label, p in exact.items() if name in label.split("+"))
        row = inclusion.loc[name]
        assert abs(row["probability"] - truth) < 5 * row["se"]
        assert math.isnan(row["combined"])  # most models were never weighed


@pytest.mark.whole
def test_counts_recover_their_prior_when_the_data_say_nothing():
    space = trj.Counts(4, of="x", prior=torch.distributions.Poisson(1.5))
    target = trj.Target(
        space,
        {"x": torch.distributions.Gamma(2.0, 1.0)},
        lambda p, active: torch.zeros(len(active)),
    )
    sampler = trj.TRJSampler(target, seed=7)
    sampler.fit(steps=30, batch=128, progress=False)
    result = sampler.run(80, chains=256, progress=False)
    prior = space.log_prior(space.enumerate()).exp().tolist()
    check(result, trj.problems.Truth(dict(zip("01234", prior, strict=True))))
    assert result.draws("3")["x"].shape[1] == 3
    assert float(result.draws("2")["x"].mean()) == pytest.approx(2.0, abs=0.2)
    assert result.draws("0") == {}


@pytest.mark.whole
@pytest.mark.filterwarnings("ignore:the run has not converged")  # of one chain, which is short
@pytest.mark.parametrize(
    ("chains", "dtype"),
    [
        (1, torch.float32),
        (300, torch.float64),
        *(
            pytest.param(c, d, marks=pytest.mark.whole)
            for c, d in [(1, torch.float64), (7, torch.float32), (7, torch.float64)]
        ),
    ],
)
def test_any_number_of_chains_and_both_precisions(chains, dtype):
    target = toys.gaussians()
    sampler = untrained(trj.TRJSampler(target, toys.gaussian_map(target), seed=8, dtype=dtype))
    result = sampler.run(300 // chains + 120, chains=chains, progress=False)
    assert result.raw.theta.dtype == dtype
    assert result.raw.code.shape[0] == chains
    check(result, target.truth)


@pytest.mark.whole
def test_the_whole_way_on_the_chosen_device(device):
    """On the CPU unless pytest is called with --device=cuda."""
    target = toys.gaussians()
    sampler = trj.TRJSampler(target, seed=8, device=device)
    sampler.fit(steps=100, batch=128, progress=False)
    result = sampler.run(150, chains=128, progress=False)
    assert sampler.transport.log_weights.device.type == device.type
    assert result.raw.theta.device.type == "cpu"
    check(result, target.truth)


def test_one_model_alone():
    target = trj.Target(
        [
            trj.Model(
                "m",
                {"x": Normal(0.0, 1.0)},
                lambda p: Normal(p["x"], 1.0).log_prob(torch.tensor(2.0)),
            )
        ]
    )
    sampler = trj.TRJSampler(target, seed=9)
    sampler.fit(steps=40, batch=64, progress=False)
    result = sampler.run(150, chains=128, progress=False)
    assert result.model_probabilities(full=True).loc["m", "visits"] == 1
    row = result.summary().loc[("m", "x")]
    assert abs(row["mean"] - 1.0) < 5 * row["mcse"]
    assert row["sd"] == pytest.approx(0.5**0.5, rel=0.05)
    expected = Normal(0.0, 2**0.5).log_prob(torch.tensor(2.0))
    found = result.evidence(full=True).loc["m"]
    assert abs(found["importance"] - float(expected)) < 5 * found["importance_se"] + 1e-4


def test_nothing_but_models_without_parameters():
    models = [trj.Model(n, {}, lambda p, v=v: torch.tensor(v)) for n, v in (("a", 0.0), ("b", 1.0))]
    result = trj.TRJSampler(trj.Target(models), seed=1).run(100, chains=160, progress=False)
    table = result.model_probabilities(full=True)
    exact = math.e / (1 + math.e)
    assert abs(table.loc["b", "visits"] - exact) < 5 * table.loc["b", "visits_se"]
    assert table.loc["b", "importance"] == pytest.approx(exact, abs=1e-6)
    assert result.summary().empty


@pytest.mark.whole
@pytest.mark.filterwarnings("ignore::trjmcmc.errors.TRJWarning")  # an untrained map, short runs
def test_the_same_seed_gives_identical_draws():
    def run():
        sampler = trj.TRJSampler(trj.problems.sinh_arcsinh(), seed=10)
        sampler.fit(steps=20, batch=128, particles=200, moves=3, progress=False)
        return sampler.run(20, chains=16, warmup=10, fit=True, progress=False).raw

    first, second = run(), run()
    assert torch.equal(first.code, second.code)
    assert torch.equal(first.theta, second.theta)
    other = untrained(trj.TRJSampler(trj.problems.sinh_arcsinh(), seed=11))
    third = other.run(20, chains=16, warmup=10, progress=False).raw
    assert not torch.equal(first.theta, third.theta)


@pytest.mark.whole
def test_the_sampler_fits_first_if_nobody_has(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)  # bars want a terminal
    sampler = trj.TRJSampler(
        toys.gaussians(), lambda s: trj.transport.CosmicFlow(s, layers=2, hidden=(8,))
    )
    result = sampler.run(50, chains=64, warmup=20, fit=True, progress=True)
    assert result.report.fit is sampler.fit_trace
    assert set(result.report.seconds) == {"pilot", "fit", "importance", "sample"}
    shown = capsys.readouterr().err
    assert "pilot" in shown
    assert "log density" in shown
    assert "sampling" in shown
    train(
        sampler.transport,
        trj.fit.ReverseKL(sampler.target),
        steps=50,
        generator=torch.Generator(),
        progress=True,
    )
    assert "elbo" in capsys.readouterr().err


@pytest.mark.whole
@pytest.mark.filterwarnings("ignore::trjmcmc.errors.TRJWarning")  # it is a short run
def test_bars_leave_log_files_alone(capsys):
    sampler = trj.TRJSampler(toys.gaussians(), seed=1)
    sampler.run(5, chains=8, warmup=5, fit=False)
    assert "sample" not in capsys.readouterr().err


class Interrupts(Kernel):
    """A kernel during whose n-th step the user presses Ctrl-C."""

    name, between, within = "interrupts", True, True

    def __init__(self, inner, at):
        self.inner, self.left = inner, at

    def step(self, state, generator):
        self.left -= 1
        if self.left == 0:
            signal.raise_signal(signal.SIGINT)
        return self.inner.step(state, generator)


def make_interrupting(at):
    def make(target, transport):
        inner = Cycle([Jump(target, transport, Fixed(target.space)), RandomWalk(target)])
        return Interrupts(inner, at)

    return make


@quiet
@pytest.mark.parametrize(("at", "least"), [(5, 1), (120, 40)])
def test_ctrl_c_returns_the_draws_so_far(at, least):
    """In the warm-up, and in a round."""
    sampler = trj.TRJSampler(toys.gaussians(), kernel=make_interrupting(at), seed=1)
    with pytest.warns(InterruptedWarning, match="interrupted after"):
        result = sampler.run(5000, chains=8, warmup=20, fit=False, progress=False)
    assert least <= result.raw.n_draws < 5000 and result.report.interrupted
    assert float(result.model_probabilities(full=True)["visits"].sum()) == pytest.approx(1)


def test_a_likelihood_that_turns_nan_is_named():
    def log_likelihood(p):
        return torch.where(p["x"] > 2.5, math.nan, -(p["x"] - 2).square())

    models = [trj.Model(n, {"x": Normal(0.0, 0.5)}, log_likelihood) for n in ("first", "second")]
    sampler = trj.TRJSampler(trj.Target(models), seed=1)
    with pytest.raises(
        NonFiniteError, match=r"model '(first|second)' with x=(2\.[5-9]|[3-9])"
    ) as e:
        untrained(sampler).run(2000, chains=256, progress=False)
    assert e.value.count >= 1
    assert "Return -inf" in str(e.value)


def two_far_modes():
    """A model of two far modes beside a flat one, and the probability of the first."""

    def log_likelihood(p):
        return torch.logaddexp(
            Normal(0.0, 1.0).log_prob(p["x"]), Normal(12.0, 1.0).log_prob(p["x"])
        )

    models = [
        trj.Model("two modes", {"x": Normal(6.0, 10.0)}, log_likelihood),
        trj.Model("flat", {}, lambda p: torch.tensor(-4.0)),
    ]
    odds = 2 * norm.pdf(6.0, 0.0, 101**0.5) / math.exp(-4.0)
    return trj.Target(models), odds / (1 + odds)


@pytest.mark.whole
def test_disagreeing_routes_are_announced():
    """A map that covers one of two far modes: its evidence is wrong, the visits are right."""
    target, exact = two_far_modes()
    births = trj.kernel.BirthDeath(target, Fixed(target.space))
    left = trj.transport.CosmicFlow(target.space)  # untrained it covers the left mode alone
    sampler = trj.TRJSampler(target, left, Cycle([births, RandomWalk(target)]), seed=1)
    with pytest.warns(trj.errors.DisagreementWarning, match="'two modes' .*visits"):
        result = untrained(sampler).run(500, chains=64, progress=False)
    row = result.model_probabilities(full=True).loc["two modes"]
    assert abs(row["visits"] - exact) < 5 * row["visits_se"]
    assert abs(row["importance"] - exact) > 0.1 and row["combined_se"] > 0.1


@pytest.mark.whole
def test_a_run_of_its_own_moves_does_not_rest_on_a_map_that_lacks_a_mode():
    target, exact = two_far_modes()
    sampler = trj.TRJSampler(target, trj.transport.CosmicFlow(target.space), seed=1)
    result = untrained(sampler).run(500, chains=64, progress=False)
    row = result.model_probabilities(full=True).loc["two modes"]
    for route in ("visits", "importance", "combined"):
        assert abs(row[route] - exact) < 5 * row[f"{route}_se"] < 0.05


@pytest.mark.whole
def test_rounding_that_matters_is_announced():
    def log_likelihood(p):
        return -1e6 - 50 * (p["mu"] - 0.5).square()

    models = [
        trj.Model(n, {"mu": Normal(0.0, s)}, log_likelihood) for n, s in (("a", 1.0), ("b", 3.0))
    ]
    sampler = trj.TRJSampler(trj.Target(models), seed=1, dtype=torch.float32)
    sampler.fit(steps=20, particles=200, progress=False)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        sampler.run(20, chains=32, warmup=10, progress=False)
    assert any("use dtype=torch.float64" in str(w.message) for w in seen)


@quiet
def test_ctrl_c_in_a_fit_that_run_began_samples_through_the_map_so_far():
    class Stops(trj.transport.CosmicFlow):
        calls = 0

        def to_reference(self, theta, code):
            self.calls += 1
            if self.calls == 5:
                signal.raise_signal(signal.SIGINT)
            return super().to_reference(theta, code)

    sampler = trj.TRJSampler(toys.gaussians(), lambda s: Stops(s, layers=2, hidden=(8,)), seed=1)
    with pytest.warns(InterruptedWarning) as said:
        result = sampler.run(10, chains=8, fit=True, progress=False)
    words = [str(w.message) for w in said]
    assert any("fit interrupted" in w for w in words)
    assert result.raw.n_draws >= 1 and result.report.interrupted


@pytest.mark.whole
@pytest.mark.filterwarnings("ignore::trjmcmc.errors.ConvergenceWarning")  # it is a short run
def test_ctrl_c_in_a_fit_of_its_own_leaves_a_map_that_runs_use():
    class Stops(trj.transport.CosmicFlow):
        calls = 0

        def from_reference(self, z, code):
            type(self).calls += 1
            if self.calls == 5:
                signal.raise_signal(signal.SIGINT)
            return super().from_reference(z, code)

    target = trj.problems.conjugate_selection(p=7)
    sampler = trj.TRJSampler(target, lambda s: Stops(s, layers=2, hidden=(8,)), seed=1)
    with pytest.warns(InterruptedWarning, match="runs use it"):
        sampler.fit(steps=50, audit=False, progress=False)
    assert sampler.run(10, chains=16, progress=False).raw.n_draws == 10


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: trj.TRJSampler(toys.gaussians(), device="cuda:77"),
            ConfigurationError,
            "is not there",
        ),
        (lambda: trj.TRJSampler(toys.gaussians()).run(1e2), ConfigurationError, "are integers"),
        (lambda: trj.TRJSampler("target"), TargetError, "expected a trj.Target, got str"),
        (lambda: trj.TRJSampler(toys.gaussians(), dtype=torch.int32), ConfigurationError, "dtype"),
        (lambda: trj.TRJSampler(toys.gaussians(), "RealNVP"), ConfigurationError, "got 'RealNVP'"),
        (
            lambda: trj.TRJSampler(toys.gaussians(), repr),
            ConfigurationError,
            "a map, or a function",
        ),
        (
            lambda: trj.TRJSampler(toys.gaussians(), kernel=lambda t, T: RandomWalk(t)),
            ConfigurationError,
            "nothing in it moves between models",
        ),
        (
            lambda: trj.TRJSampler(
                toys.gaussians(), kernel=lambda t, T: Jump(t, T, Fixed(t.space))
            ),
            ConfigurationError,
            "nothing in it moves inside a model",
        ),
        (lambda: trj.TRJSampler(toys.gaussians(), seed=1).run(0), ConfigurationError, "draws=0"),
        (
            lambda: trj.TRJSampler(toys.gaussians(), seed=1).run(chains=0),
            ConfigurationError,
            "chains=0",
        ),
        (
            lambda: trj.TRJSampler(toys.gaussians()).fit(steps=-1, pilot=False),
            ConfigurationError,
            "steps=-1",
        ),
    ],
)
def test_wrong_settings_say_what_is_wrong(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.whole
def test_a_kernel_object_of_the_users_own():
    target = toys.gaussians()
    flow = toys.gaussian_map(target)
    kernel = Cycle([Jump(target, flow, Fixed(target.space)), CrankNicolson(target, flow)])
    result = untrained(trj.TRJSampler(target, flow, kernel, seed=3)).run(
        300, chains=64, progress=False
    )
    check(result, target.truth)
    with pytest.raises(UnknownModelError, match="no model 'four'"):
        result.bayes_factor("four", "one")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert result.bayes_factor("one", "one").value == 1


def test_a_kernel_is_a_kernel_or_makes_one():
    target = toys.gaussians()
    with pytest.raises(ConfigurationError, match=r"kernel: expected .*a trj\.kernel\.Cycle"):
        trj.TRJSampler(target, kernel=[RandomWalk(target)])


@pytest.mark.filterwarnings("ignore::trjmcmc.errors.TRJWarning")  # they are short runs
def test_a_run_reports_itself_alone():
    sampler = trj.TRJSampler(toys.gaussians(), seed=1)
    first = sampler.run(draws=10, chains=8, progress=False)
    spent = sampler.target.evaluations
    second = sampler.run(draws=10, chains=8, progress=False)
    assert second.report.evaluations == sampler.target.evaluations - spent
    assert first.report.evaluations > 0 and sampler.fit_trace is None


@pytest.mark.whole
@pytest.mark.filterwarnings("ignore::trjmcmc.errors.TRJWarning")
def test_a_report_speaks_of_the_fit_just_before_alone(clock):
    sampler = trj.TRJSampler(trj.problems.sinh_arcsinh(), seed=1)
    sampler.fit(steps=50, audit=False, pilot=False, progress=False)
    first, second = (
        sampler.run(draws=10, chains=8, warmup=10, fit=False, progress=False) for _ in range(2)
    )
    assert first.report.fit is sampler.fit_trace and "fit" in first.report.seconds
    assert second.report.fit is None and "fit" not in second.report.seconds
    assert second.report.evaluations < first.report.evaluations
