"""Whole validations: likelihoods against simulators, truths against posteriors."""

import json
from concurrent.futures import ThreadPoolExecutor

import matplotlib
import matplotlib.pyplot
import pytest
import torch

import trjmcmc as trj
from tests.validation import faults
from tests.validation.resampling import Resampler
from trjmcmc.errors import CheckpointError, ConfigurationError
from trjmcmc.simulate import Simulator
from trjmcmc.validation import joint, ratios
from trjmcmc.validation.asked import Asked
from trjmcmc.validation.joint import check_joint
from trjmcmc.validation.ratios import check_ratios
from trjmcmc.validation.remake import Simulation
from trjmcmc.validation.repeat import Setup
from trjmcmc.validation.repeats import finished
from trjmcmc.validation.validate import judge


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(ratios, "POINTS", 2)
    monkeypatch.setattr(ratios, "DATA_SETS", 80)


def against_simulator(fault):
    target = faults.line(faults.data(), fault)
    generator = torch.Generator().manual_seed(5)
    simulator = Simulator(target, faults.simulate)
    return check_ratios(Simulation(target, simulator, lambda y: faults.line(y, fault), generator))


def test_a_right_likelihood_agrees_with_its_simulator(few):
    assert against_simulator("") == []


def test_a_likelihood_that_is_no_density_of_the_data_is_named(few):
    found = against_simulator("no constant")
    assert found and all(d.grave for d in found)
    assert any("is no density of these data" in f.words for f in found), found


@pytest.mark.whole
def test_a_mask_of_the_data_that_is_off_by_one_is_named(monkeypatch):
    monkeypatch.setattr(ratios, "DATA_SETS", 120)
    found = against_simulator("mask")
    assert any("a mask that is off by one" in f.words for f in found), found


@pytest.mark.whole
def test_a_prior_in_the_likelihood_is_named(monkeypatch):
    monkeypatch.setattr(ratios, "DATA_SETS", 250)
    found = against_simulator("prior twice")
    assert any("the prior is used twice" in f.words for f in found), [f.words for f in found]


def calibrated(make, simulate, target, repeats=60):
    given = Setup(target, make, simulate, {}, Resampler, {}, 7)
    rows = list(finished(given, list(range(repeats)), None, lambda: False))
    return judge(Asked(), rows, repeats, 7)


def test_right_models_are_calibrated():
    target = faults.line(faults.data())
    report = calibrated(faults.line, faults.simulate, target)
    assert report.ok, report
    assert {"mu", "sigma", "slope", "log likelihood"} <= set(report.rank_table().index)


def test_a_constant_of_one_model_is_named():
    make = lambda y: faults.line(y, "by model")  # noqa: E731
    report = calibrated(make, faults.simulate, make(faults.data()))
    assert any("normalised wrongly" in f.words and f.kind == "models" for f in report.wrong)
    assert "normalised wrongly" in str(report)


@pytest.mark.whole
def test_a_forgotten_jacobian_of_data_is_named():
    y = torch.full((faults.N,), 5.0)
    assert calibrated(faults.logs, faults.simulate_logs, faults.logs(y)).ok
    make = lambda y: faults.logs(y, "jacobian")  # noqa: E731
    report = calibrated(make, faults.simulate_logs, make(y))
    assert any("Jacobian of transformed data" in f.words for f in report.wrong)


@pytest.mark.whole
def test_parameters_and_data_in_turn_keep_the_prior_of_a_right_model_alone(monkeypatch):
    monkeypatch.setattr(joint, "TURNS", 3)
    for fault in ("", "no constant"):
        target = faults.line(faults.data(), fault)
        generator = torch.Generator().manual_seed(8)
        make = lambda y, fault=fault: faults.line(y, fault)  # noqa: E731
        found = check_joint(Simulation(target, Simulator(target, faults.simulate), make, generator))
        assert found if fault else not any(d.grave for d in found), found


def quick(**how):
    """A validation of a model that draws its own data, by resampling."""
    seen = trj.Observed(lambda p: torch.distributions.Normal(p["mu"][:, None], 1.0), [0.3, 1.2])
    models = [trj.Model(name, {"mu": faults.MU}, seen) for name in ("a", "b")]
    given = {"repeats": 6, "sampler": Resampler, "progress": False, "seed": 3}
    return trj.validate(trj.Target(models), **{**given, **how})


@pytest.fixture
def only_repeats(monkeypatch):
    module = __import__("sys").modules["trjmcmc.validation.validate"]
    for name in ("check_statements", "check_ratios", "check_joint"):
        monkeypatch.setattr(module, name, lambda *_: [])


def test_repeats_go_on_from_a_folder_and_on_workers(only_repeats, tmp_path):
    whole = quick()
    assert quick(repeats=3, folder=tmp_path).repeats == 3
    lines = (tmp_path / "repeats.jsonl").read_text()
    (tmp_path / "repeats.jsonl").write_text(lines + '{"repeat": 3, "u"')  # killed while writing
    with ThreadPoolExecutor(1) as pool:
        more = quick(folder=tmp_path, executor=pool)
    assert more.repeats == 6 and more.ranks == whole.ranks
    rows = [json.loads(line) for line in (tmp_path / "repeats.jsonl").read_text().splitlines()]
    assert sorted(row["repeat"] for row in rows[1:]) == list(range(6))
    with pytest.raises(CheckpointError, match="folder of its own"):
        quick(folder=tmp_path, seed=4)


def test_reports_can_be_drawn_and_exported(only_repeats):
    matplotlib.use("Agg")
    report = quick(repeats=25, quantities={"twice": lambda p: 2 * p["mu"]})
    assert "25 of 25 repeats" in str(report) and "twice" in report.ranks
    figure = report.plot()
    assert {"mu", "probabilities"} <= {ax.get_title() for ax in figure.axes}
    matplotlib.pyplot.close(figure)
    stats = report.to_arviz()["sample_stats"]
    assert stats["p"].shape == (1, 25, 2) and stats["mu"].shape == (1, 25)


def test_time_ends_a_validation(only_repeats):
    report = quick(repeats=1000, max_seconds=0.2)
    assert report.repeats < 1000 and "of 1000 repeats" in str(report)


def test_a_model_that_cannot_be_stated_is_reported():
    def make(y):
        return trj.Target([trj.Model("a", {"mu": faults.MU}, lambda p: p["mu"] - p["mu"].mean())])

    report = trj.validate(make, data=faults.data(), repeats=0, progress=False)
    assert "mixes the points of a batch" in report.wrong[0].words


def test_a_model_without_simulator_says_what_is_missing():
    target = faults.line(faults.data())
    result = Resampler(target, seed=1).run()
    report = trj.validate(target, result=result, progress=False)
    assert report.ok and "give simulate" in str(report)
    with pytest.raises(ConfigurationError, match="repeats"):
        trj.validate(target, repeats=-1)
    with pytest.raises(ConfigurationError, match="data"):
        trj.validate(faults.line, faults.simulate)
