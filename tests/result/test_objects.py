"""Objects that a reader handles: how they print, and draws as tables and for ArviZ."""

import math
import warnings

import arviz
import numpy as np
import pytest
import torch
from torch.distributions import LogNormal, Normal, Poisson

import trjmcmc as trj
from tests import toys

DATA = torch.linspace(-1.0, 2.0, 20)

SPACES = {
    "one": lambda: trj.Counts(3, of="a"),
    "several of one": lambda: trj.Counts(4, 1, of=("a", "b"), prior=Poisson(2.0), name="lines"),
    "two kinds": lambda: trj.Counts(2, of="a") + trj.Counts(1, of="b", name="other"),
    "subsets": lambda: trj.Subsets(["x", "y", "z"], of="beta", always=["x"], prior=0.2),
    "blocks": lambda: trj.Subsets(["x", "y", "z"], of="beta", blocks=[["y", "z"]]),
}


@pytest.fixture(scope="module")
def result():
    target = toys.gaussians()
    sampler = trj.TRJSampler(target, toys.gaussian_map(target), seed=1)
    return sampler.run(draws=60, chains=32, fit=False, progress=False)


@pytest.fixture(scope="module")
def observed():
    def mean(p):
        return Normal(p["mu"][:, None].expand(-1, 20), 1.0)

    def spread(p):
        return Normal(0.0, p["sigma"][:, None].expand(-1, 20))

    models = [
        trj.Model("spread", {"sigma": LogNormal(0.0, 0.5)}, trj.Observed(spread, DATA)),
        trj.Model("mean", {"mu": Normal(0.0, 1.0)}, trj.Observed(mean, DATA)),
        trj.Model("plain", {}, trj.Observed(lambda p: Normal(torch.zeros(20), 1.0), DATA)),
    ]
    run = {"draws": 50, "chains": 64, "progress": False}
    return trj.TRJSampler(trj.Target(models), seed=1).run(**run)


@pytest.mark.parametrize("make", SPACES.values(), ids=SPACES)
def test_spaces_print_as_they_were_stated(make):
    space = make()
    again = eval(repr(space), {"Counts": trj.Counts, "Subsets": trj.Subsets})
    code = space.enumerate()
    assert repr(again) == repr(space) and again.label(code) == space.label(code)
    assert again.of == space.of
    assert torch.allclose(again.log_prior(code).exp(), space.log_prior(code).exp(), atol=1e-5)


def test_long_spaces_print_short():
    assert len(repr(trj.Subsets([f"x{i}" for i in range(300)], of="beta"))) < 100
    assert repr(trj.problems.sinh_arcsinh().space) == "ModelList('1d', '2d')"


def test_results_samplers_and_reports_print_in_a_few_lines(result):
    lines = repr(result).splitlines()
    assert lines[0] == "Result of 32 chains x 60 draws, 3 models visited"
    best = result.model_probabilities()["probability"].idxmax()
    assert lines[3].startswith(best) and 5 <= len(lines) <= 8
    page = result._repr_html_()
    assert page.count("<tr>") == 4 and lines[0] in page
    assert repr(result.report) == str(result.report) and "60 steps" in repr(result.report)
    sampler = repr(trj.TRJSampler(toys.gaussians(), seed=3))
    assert sampler.startswith("TRJSampler with seed 3 of\nTarget of 3 models")


def test_draws_of_all_models_are_one_table(result):
    table = result.draws()
    assert table.equals(result.to_dataframe()) and len(table) == 32 * 60
    assert table.index.names == ["chain", "draw"]
    for label in result.chains.models:
        here = table[table["model"] == label].dropna(axis=1)
        alone = result.to_dataframe(label)
        assert alone.equals(here[list(alone)])
        for name, values in result.draws(label).items():
            column = alone[[c for c in alone if c.split("[")[0] == name]].to_numpy()
            assert np.array_equal(column, values.reshape(column.shape))
    some = table.loc[(5, 7), "log_joint"]
    assert some == float(result.raw.log_joint[5, 7])


def test_components_are_named_as_in_a_summary(components):
    table, names = components.to_dataframe(), components.summary("2").index
    assert set(names) == set(components.to_dataframe("2")) - {"model", "log_joint"}
    assert set(names) <= set(table)
    one = table[table["model"] == "1"]
    assert one["x[2]"].isna().all() and one["x[1]"].notna().all()


def test_models_have_labels_in_arviz(result, components):
    for run in (result, components):
        labels, model = run.to_arviz()["posterior"]["label"].to_numpy(), run.chains.models[1]
        assert np.array_equal(labels == model, run.chains.inside(model))
    with warnings.catch_warnings(action="ignore"):  # ArviZ's own
        assert list(arviz.summary(result.to_arviz(), var_names=["model"]).index) == ["model"]


def test_arviz_compares_models_that_are_observed(observed):
    data = {m: observed.to_arviz(model=m) for m in ("spread", "mean")}
    each = data["mean"]["log_likelihood"]["data"].to_numpy()
    mu = data["mean"]["posterior"]["mu"].to_numpy()
    exact = -0.5 * (DATA.numpy() - mu[..., None]) ** 2 - 0.5 * math.log(2 * math.pi)
    assert np.allclose(each, exact, atol=1e-5)
    with warnings.catch_warnings(action="ignore"):  # ArviZ's own
        table = arviz.compare(data)
    ours = observed.compare()
    assert "plain" in ours.index and table.index[0] == ours.index[0]
    elpd = "elpd_loo" if "elpd_loo" in table else "elpd"
    far = 0.1 if elpd == "elpd_loo" else 0.5  # ArviZ 1 rounds
    assert np.allclose(table[elpd], ours.loc[table.index, "elpd_loo"], atol=far)
    assert observed.to_arviz(model="plain")["log_likelihood"]["data"].shape[-1] == 20
    assert np.isclose(ours.loc["mean", "probability"], observed.chains.visits("mean").value)


def test_models_that_tell_only_sums_have_no_likelihoods_by_datum(result):
    data = result.to_arviz(model=result.chains.models[0])
    groups = data.groups() if callable(data.groups) else data.groups
    assert not any("log_likelihood" in group for group in groups)
    with pytest.raises(trj.errors.ConfigurationError, match=r"trj\.Observed"):
        result.compare()


def test_over_counts_evidences_say_how_to_come_by_them(components):
    assert components.evidence()["note"].eq("by visits alone; see trj.evidences_of_counts").all()
    with pytest.raises(trj.errors.TRJError, match=r"trj\.evidences_of_counts\(target\)"):
        components.evidence(full=True)
