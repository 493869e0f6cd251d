import copy
import dataclasses
import itertools
import json
import math
import pickle
import re
import warnings

import arviz
import matplotlib
import matplotlib.pyplot
import numpy as np
import pandas as pd
import pytest
import torch
from torch.distributions import Normal

import trjmcmc as trj
from tests import toys
from trjmcmc import arviz_bridge as export
from trjmcmc.doubts.doubt import warn_of
from trjmcmc.errors import ConfigurationError, TRJError, UnknownModelError
from trjmcmc.estimate import (
    Estimate,
    autocorrelation_time,
    log_mean_weight,
    mean_error,
    visit_probability,
)
from trjmcmc.estimate.importance import probabilities
from trjmcmc.estimate.visits import log_odds
from trjmcmc.plot.style import spread_labels
from trjmcmc.result.probabilities import in_short
from trjmcmc.result.report import KernelPlan

matplotlib.use("Agg")


@pytest.fixture(scope="module")
def result():
    target = toys.gaussians()
    sampler = trj.TRJSampler(target, toys.gaussian_map(target), seed=1)
    trace = trj.fit.FitTrace(
        step=[50, 100, 150],
        objective=[3.0, 2.0, 1.5],
        temper=[0.5, 1.0, 1.0],
        non_finite=[0, 0, 0],
        draws=100,
        best_step=150,
    )
    fitted = dataclasses.replace(sampler._known.fitted, trace=trace, seconds={"fit": 1.0})
    sampler._known.trainer.keep(fitted)
    with warnings.catch_warnings():  # four errors of a drift are met by chance, seldom
        warnings.simplefilter("ignore", trj.errors.TRJWarning)
        return sampler.run(200, chains=48, progress=False)


def autoregressive(chains, draws, rho, seed=0):
    rng = np.random.default_rng(seed)
    x = np.zeros((chains, draws))
    x[:, 0] = rng.standard_normal(chains)
    for i in range(1, draws):
        x[:, i] = rho * x[:, i - 1] + (1 - rho**2) ** 0.5 * rng.standard_normal(chains)
    return x


@pytest.mark.parametrize("chains", [4, 200])
def test_errors_of_means_know_the_autocorrelation(chains):
    rho, draws = 0.8, 4000 if chains == 4 else 500
    tau = (1 + rho) / (1 - rho)
    x = autoregressive(chains, draws, rho)
    error, ess = mean_error(x)
    exact = (tau / x.size) ** 0.5
    assert error == pytest.approx(exact, rel=0.35)
    assert ess == pytest.approx(x.size / tau, rel=0.6)
    assert autocorrelation_time(x) == pytest.approx(tau, rel=0.5)


def test_a_few_stuck_chains_among_many_show_in_the_error():
    x = autoregressive(256, 400, 0.0) > 0
    free, _ = mean_error(x.astype(float))
    x[:8] = True
    stuck, _ = mean_error(x.astype(float))
    assert stuck > 3 * free


def test_errors_of_visits_are_calibrated():
    """z-scores of 200 repeats of a two-state chain."""
    rng = np.random.default_rng(3)
    z = []
    for _ in range(200):
        flips = rng.random((64, 200)) < 0.1
        state = (flips.cumsum(1) + rng.integers(2, size=(64, 1))) % 2 == 1
        e = visit_probability(state, 0.0)
        z.append((e.value - 0.5) / e.std_error)
    assert abs(np.mean(z)) < 5 / 200**0.5
    assert 0.8 < np.std(z) < 1.25


def test_never_visited_is_a_bound_and_not_zero():
    never = visit_probability(np.zeros((4, 100), dtype=bool), 150.0)
    assert (never.value, never.std_error) == (0.0, 3 / 150)
    assert never.warning == "never visited"
    always = visit_probability(np.ones((4, 100), dtype=bool), 0.0)
    assert (always.value, always.std_error) == (1.0, 1.0)
    inside = np.zeros((4, 100), dtype=bool)
    inside[0, 50:52] = inside[1, 70:72] = True
    assert visit_probability(inside, 150.0).warning == "entered only 2 times"
    assert visit_probability(~inside, 150.0).warning == "left only 2 times"
    odds = log_odds(np.zeros((4, 100), dtype=bool), np.ones((4, 100), dtype=bool))
    assert odds.value == -math.inf
    assert odds.std_error == math.inf


def test_log_mean_weight(generator):
    log_w = 0.3 * torch.randn(50_000, generator=generator, dtype=torch.float64) + 7
    e = log_mean_weight(log_w)
    assert abs(e.value - (7 + 0.045)) < 5 * e.std_error
    assert e.std_error == pytest.approx(math.sqrt((math.exp(0.09) - 1) / 50_000), rel=0.05)
    half = log_w.clone()
    half[::2] = -math.inf  # draws outside the support count as draws
    assert log_mean_weight(half).value == pytest.approx(
        float(log_w[1::2].logsumexp(0)) - math.log(50_000)
    )
    assert log_mean_weight(torch.full((5,), -math.inf)).value == -math.inf
    assert "ESS" in log_mean_weight(torch.cat([log_w[:200], torch.tensor([30.0])])).warning


def test_errors_of_normalised_probabilities_by_simulation():
    masses = [Estimate(0.0, 0.1), Estimate(1.0, 0.05), Estimate(-1.0, 0.3)]
    rng = np.random.default_rng(0)
    draws = np.stack([m.value + m.std_error * rng.standard_normal(100_000) for m in masses], 1)
    p = np.exp(draws) / np.exp(draws).sum(1, keepdims=True)
    for i, e in enumerate(probabilities(masses)):
        assert e.std_error == pytest.approx(p[:, i].std(), rel=0.08)


def test_the_table_of_models(result):
    table = result.model_probabilities(full=True)
    assert list(table.index) == ["none", "one", "three"]
    assert table.index.name == "model"
    assert list(table.columns[:5]) == [
        "visits",
        "visits_se",
        "visits_ess",
        "importance",
        "importance_se",
    ]
    assert table["visits"].sum() == pytest.approx(1)
    assert table["importance"].sum() == pytest.approx(1)


def test_effective_draws_are_of_the_error_beside_them(result):
    full, short = result.model_probabilities(full=True), result.model_probabilities()
    p, se = full["combined"], full["combined_se"]
    assert (se < full["visits_se"]).any()  # or the visits would pass as well
    assert short["ess"].tolist() == (p * (1 - p) / se**2).round().tolist()


def test_effective_draws_where_chains_alone_have_an_error():
    unknown = math.nan
    table = pd.DataFrame(
        {
            "probability": [0.5, 1.0, 0.0, 0.2],
            "se": [0.05, 0.0, 0.03, 0.04],
            "ess": [100.0, math.inf, 100.0, 100.0],
            "combined": [unknown, 1.0, 0.0, 0.25],  # the third was never visited: se is a bound
            "combined_se": [unknown, 0.0, 0.03, 0.01],
        }
    )
    assert in_short(table)["ess"].tolist() == [100.0, math.inf, 100.0, 1875.0]


def test_bayes_factors(result):
    truth = result.chains.truth.log_evidence
    exact = math.exp(truth["one"] - truth["three"])
    factor = result.bayes_factor("one", "three")
    assert abs(factor.value - exact) < 5 * factor.std_error
    log_factor = result.bayes_factor("one", "three", log=True)
    assert math.exp(log_factor.value) == pytest.approx(factor.value)
    inverse = result.bayes_factor("three", "one")
    assert inverse.value == pytest.approx(1 / factor.value)


def test_summary(result):
    table = result.summary()
    assert list(table.index) == [
        ("one", "a[0]"),
        ("three", "a[0]"),
        ("three", "a[1]"),
        ("three", "a[2]"),
    ]
    row = table.loc[("one", "a[0]")]
    assert abs(row["mean"] - 0.75) < 5 * row["mcse"]
    assert row["sd"] == pytest.approx(0.5**0.5, rel=0.1)
    assert row["q5"] < row["median"] < row["q95"]
    assert result.summary("three").equals(table.loc["three"])
    with pytest.raises(UnknownModelError, match="four"):
        result.summary("four")


def test_save_and_load_without_code(result, tmp_path):
    path = tmp_path / "run.pt"
    result.save(path)
    again = trj.load(path)
    assert again.model_probabilities(full=True).equals(result.model_probabilities(full=True))
    assert again.summary().equals(result.summary())
    assert np.array_equal(again.draws("three")["a"], result.draws("three")["a"])
    assert str(again.report.acceptance) == str(result.report.acceptance)  # NaN among them
    assert again.report.fit == result.report.fit
    assert again.chains.truth.probabilities == result.chains.truth.probabilities
    assert str(again.bayes_factor("one", "none")) == str(result.bayes_factor("one", "none"))
    torch.save({"format": 0}, path)
    with pytest.raises(TRJError, match="not a result saved by"):
        trj.load(path)

    class Evil:
        def __reduce__(self):
            return (print, ("executed",))

    torch.save({"format": 1, "space": Evil()}, path)
    with pytest.raises(TRJError, match="not a result saved by trjmcmc"):
        trj.load(path)
    path.write_text("something else")
    with pytest.raises(TRJError, match="not a result saved by trjmcmc"):
        trj.load(path)


def test_arviz(result):
    data = result.to_arviz()
    posterior = data["posterior"]
    assert posterior["a"].shape == (48, 200, 3)
    assert posterior["a"].dims[:2] == ("chain", "draw")
    models = json.loads(posterior.attrs["models"])
    inside = posterior["model"].values == models.index("one")
    assert np.isnan(posterior["a"].values[inside][:, 1:]).all()
    assert np.isfinite(posterior["a"].values[inside][:, 0]).all()
    assert data["sample_stats"]["lp"].shape == (48, 200)


@pytest.mark.filterwarnings("ignore::trjmcmc.errors.ConvergenceWarning")  # one is a short run
def test_arviz_of_one_model(result):
    found, n = result.draws("three")["a"], len(result.draws("three")["a"])
    data = result.to_arviz(model="three")
    a = data["posterior"]["a"]
    assert a.shape == (4, n // 4, 3) and a.dims[:2] == ("chain", "draw")
    assert np.array_equal(a.values.reshape(-1, 3), found[: 4 * (n // 4)])
    assert data["sample_stats"]["lp"].shape == (4, n // 4)
    table = arviz.summary(data, round_to=8).astype(float)
    assert np.isfinite(table.to_numpy()).all() and len(table) == 3
    assert np.allclose(table["mean"], found.mean(0), atol=1e-3)
    alone = trj.Target([trj.Model("m", {"x": Normal(0.0, 1.0)}, lambda p: 0 * p["x"])])
    whole = trj.TRJSampler(alone).run(30, chains=6, fit=False, progress=False).to_arviz(model="m")
    assert whole["posterior"]["x"].shape == (6, 30)
    with pytest.raises(trj.errors.UnknownModelError):
        result.to_arviz(model="four")


def test_diagnostics_through_arviz():
    x = autoregressive(4, 1000, 0.5)
    assert export.effective_sample_size(x) == pytest.approx(4000 / 3, rel=0.3)
    assert math.isnan(export.effective_sample_size(np.zeros((4, 100))))


def test_only_one_file_imports_arviz():
    package = __import__("pathlib").Path(trj.__file__).parent
    found = [p.name for p in package.rglob("*.py") if re.search(r"import arviz\b", p.read_text())]
    assert found == ["arviz_bridge.py"]


def test_advice_is_by_what_the_run_did(result):
    raw = result.raw  # moved by three in every other chain: R-hat is far from one
    moved = raw.theta + 3.0 * (torch.arange(raw.n_chains) % 2)[:, None, None]
    stuck = trj.Result(result.space, dataclasses.replace(raw, theta=moved), {}, {}, result.report)

    def advice(**report):
        doubtful = copy.copy(stuck)
        doubtful.report = dataclasses.replace(result.report, judged=None, **report)
        with pytest.warns(trj.errors.ConvergenceWarning, match="not converged") as said:
            warn_of(doubtful.doubts)
        return str(said[0].message)

    assert "more(max_seconds=...)" in advice()
    assert "more max_seconds" in advice(out_of_time=True)
    assert "more max_evaluations" in advice(budget_spent=True)


def test_pictures_have_labels(result):
    for ax in (result.plot_models(), result.chains.plot_running(), result.report.fit.plot()):
        assert ax.get_xlabel()
        assert ax.get_ylabel()
        assert ax.get_legend() is not None
        matplotlib.pyplot.close(ax.figure)


def test_labels_of_many_models_do_not_overlap():
    figure, ax = matplotlib.pyplot.subplots(figsize=(6, 3.5), layout="constrained")
    spread_labels(ax, np.arange(21), [f"x1+x2+x{i}+x10" for i in range(21)])
    figure.canvas.draw()
    boxes = [label.get_window_extent() for label in ax.get_xticklabels()]
    assert all(a.x1 < b.x0 for a, b in itertools.pairwise(boxes))
    matplotlib.pyplot.close(figure)


def test_bars_beyond_the_frame_and_flags_are_marked(result):
    routes = {r: dict(found) for r, found in result.evidences.routes.items()}
    far = routes["bridge"]["one"] - 50.0
    routes["bridge"]["one"] = dataclasses.replace(far, warning="far off")
    ax = trj.Result(result.space, result.raw, {}, routes, result.report).evidences.plot()
    assert "hollow: flagged" in [text.get_text() for text in ax.get_legend().get_texts()]
    assert any(line.get_marker() == "v" and len(line.get_xdata()) for line in ax.get_lines())
    matplotlib.pyplot.close(ax.figure)


def test_lists_have_no_items(result):
    with pytest.raises(TRJError, match="no items to include"):
        result.inclusion_probabilities(full=True)


# ---- files and pickles --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", trj.errors.TRJWarning)
        sampler = trj.TRJSampler(trj.problems.sinh_arcsinh(), seed=1)
        return sampler.run(draws=40, chains=8, warmup=20, fit=False, progress=False)


def test_a_fresh_result_can_be_pickled_without_its_target(small):
    again = pickle.loads(pickle.dumps(small))
    assert again.target is None and small.target is not None
    assert again.model_probabilities(full=True).equals(small.model_probabilities(full=True))
    assert all(
        np.array_equal(again._parameters.values[k], v, equal_nan=True)
        for k, v in small._parameters.values.items()
    )
    with pytest.raises(trj.errors.TRJError, match="target="):
        again.predict(lambda p: p["x"])


def test_a_flipped_bit_anywhere_is_seen(small, tmp_path):
    path = tmp_path / "run.trj"
    small.save(path)
    trj.load(path)
    whole = path.read_bytes()
    places = [0, 7, 8, 39, 40, len(whole) - 1, *range(0, len(whole), max(1, len(whole) // 60))]
    for place in places:
        bad = bytearray(whole)
        bad[place] ^= 1 << (place % 8)
        path.write_bytes(bad)
        with pytest.raises(trj.errors.TRJError, match=r"run\.trj"):
            trj.load(path)


@pytest.mark.parametrize("name", ["x.nc", "x.h5", "x.zarr"])
def test_a_file_of_another_format_is_not_named_so(small, tmp_path, name):
    with pytest.raises(ConfigurationError, match=r"to_arviz\(\)\.to_netcdf\('.*x\."):
        small.save(tmp_path / name)
    assert not any(tmp_path.iterdir())


def test_the_face_of_a_result_is_small(result):
    result.summary()  # makes parts
    assert len([name for name in dir(result) if not name.startswith("_")]) <= 31


def test_codes_are_saved_in_few_bytes(small, tmp_path):
    small.save(tmp_path / "whole.trj")
    draws = copy.copy(small)
    draws._onward = None  # the moves, which are not many bytes either
    draws.save(tmp_path / "run.trj")
    moves = (tmp_path / "whole.trj").stat().st_size - (tmp_path / "run.trj").stat().st_size
    assert 0 < moves < 200_000
    again = trj.load(tmp_path / "run.trj")
    assert torch.equal(again.raw.code, small.raw.code)
    numbers = sum(v.numel() for v in small._parameters.values.values())
    numbers += small.raw.theta.numel() + small.raw.log_joint.numel()
    assert (tmp_path / "run.trj").stat().st_size < 4 * numbers + 10_000


def test_many_chains_are_joined_for_arviz(small):
    posterior = small.to_arviz(chains=3).posterior
    assert posterior["model"].shape == (3, 80)  # of 8 chains two are left out
    index = small._indicator.position()
    assert np.array_equal(posterior["model"][1], index[2:4].reshape(-1))
    assert small.to_arviz("1d", chains=2).posterior.sizes["chain"] == 2
    with pytest.raises(TRJError, match="chains: expected 1 to 8, got 9"):
        small.to_arviz(chains=9)


def test_a_plan_is_read_at_a_glance():
    plan = KernelPlan({"jump": 0.75, "walk": 0.25}, {"walk": {"scale": [1 / 3] * 40}})
    assert str(plan).splitlines() == [
        "steps: jump 75%, walk 25%",
        "  walk: scale [0.333, 0.333, 0.333, 0.333, 0.333, ..., 0.333]",
    ]
    assert repr(plan) == str(plan)


def test_tables_read_at_a_glance(result):
    """At most five columns, of the best route to each number."""
    short, full = result.model_probabilities(), result.model_probabilities(full=True)
    assert list(short) == ["probability", "se", "ess", "bayes_factor", "note"]
    assert short["probability"].tolist() == full["combined"].tolist()
    assert short["se"].tolist() == full["combined_se"].tolist()
    a, b = short.index[:2]
    ratio = short.loc[a, "bayes_factor"] / short.loc[b, "bayes_factor"]
    assert ratio == pytest.approx(result.bayes_factor(a, b).value, rel=1e-6)
    table = result.evidence()
    assert list(table) == ["log_evidence", "se", "bayes_factor", "verdict", "note"]
    assert table["bayes_factor"].max() == 1.0 and list(table.index) == list(
        result.evidence(full=True).index
    )
    assert table["bayes_factor"].loc[short.index].tolist() == pytest.approx(
        short["bayes_factor"].tolist()
    )


@pytest.mark.whole
def test_tables_without_other_routes_say_so():
    target = trj.problems.variable_selection(8)
    table = trj.TRJSampler(target, seed=1).run(fit=False, draws=200, progress=False).evidence()
    assert "bridge" not in table and table.loc[table.index[0], "verdict"] == "unchecked"
