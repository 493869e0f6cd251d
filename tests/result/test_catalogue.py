"""What a run over unknown numbers of components found: tables, pictures, export, warnings."""

import math
import warnings

import arviz
import matplotlib
import matplotlib.pyplot
import numpy as np
import pytest
import torch
from torch.distributions import LogNormal, Normal, Poisson

import trjmcmc as trj
from tests import toys
from tests.toys import scattered
from trjmcmc.doubts.doubt import warn_of
from trjmcmc.draws import Draws
from trjmcmc.errors import ConfigurationError, LimitWarning, TRJError
from trjmcmc.result.report import RunReport

matplotlib.use("Agg")

SHARE = [1.0, 0.8, 0.3]
PLACE, SIZE = np.array([0.0, 3.0, -3.0]), np.array([0.0, 1.0, 0.5])  # sizes: their logs
SD = np.array([[0.3, 0.2], [0.2, 0.3], [0.3, 0.1]])


def nothing_seen(most=6, least=0, prior=None):
    """Components with a place and a positive size, and one number that all share."""
    return trj.Target(
        trj.Counts(most, least, of=("place", "size"), prior=prior),
        {"noise": LogNormal(0.0, 1.0), "place": Normal(0.0, 5.0), "size": LogNormal(0.0, 1.0)},
        lambda p, active: 0.0 * p["place"].sum(-1),
    )


def result_of(target, x, active, chains):
    """A run whose draws have these components, shapes (n, K, 2) and (n, K)."""
    space, n = target.space, len(x)
    k = active.sum(1)
    first = np.argsort(~active, axis=1, kind="stable")  # absent ones last
    x = (
        np.take_along_axis(x, first[:, :, None], 1)
        * (np.arange(space.max) < k[:, None])[:, :, None]
    )
    theta = torch.zeros(n, target.dim)
    for i in range(space.max):
        slots = (space.slot_item == i).nonzero()[:, 0]
        theta[:, slots] = torch.as_tensor(x[:, i], dtype=theta.dtype)
    code = torch.as_tensor(k)[:, None]
    values = target.padded_values(code, theta)
    shape = (chains, n // chains)
    draws = Draws(*(v.reshape(*shape, *v.shape[1:]) for v in (code, theta, theta.sum(1))))
    values = {name: v.reshape(*shape, *v.shape[1:]) for name, v in values.items()}
    return trj.Result(space, draws, values, {}, RunReport(), target=target)


@pytest.fixture(scope="module")
def run():
    x, active, who = scattered(SHARE, np.stack([PLACE, SIZE], 1), SD, n=8000, slots=6)
    return result_of(nothing_seen(), x, active, 40), who


def test_the_catalogue_is_true(run):
    result, who = run
    table = result.catalogue()
    assert list(table.index) == [1, 2, 3] and table.index.name == "entry"
    assert table.attrs["unassigned"] < 0.005
    normal = 1.6448536269514722
    for e, row in enumerate(table.to_dict("records")):
        n = (who == e).sum()
        assert abs(row["probability"] - SHARE[e]) <= 5 * row["se"]
        assert row["probability"] == pytest.approx(n / len(who), abs=0.003)
        assert abs(row["place_mean"] - PLACE[e]) < 5 * row["place_mcse"]
        assert row["place_mcse"] == pytest.approx(SD[e, 0] / n**0.5, rel=0.4)
        assert row["place_sd"] == pytest.approx(SD[e, 0], rel=0.05)
        mean = np.exp(SIZE[e] + SD[e, 1] ** 2 / 2)  # natural units: a log-normal
        assert abs(row["size_mean"] - mean) < 5 * row["size_mcse"]
        for end, sign in (("low", -1), ("high", 1)):
            size = np.exp(SIZE[e] + sign * normal * SD[e, 1])
            assert row[f"size_{end}"] == pytest.approx(size, rel=0.03)
            assert row[f"place_{end}"] == pytest.approx(
                PLACE[e] + sign * normal * SD[e, 0], abs=0.04
            )
    half = result.catalogue(interval=0.5)
    assert (half["place_high"] < table["place_high"]).all()
    assert len(result.catalogue(least=0.5)) == 2


def test_without_relabelling_the_same_numbers_are_wrong(run):
    """The control: the first slot's mean is that of no component."""
    result, _ = run
    first = result._parameters.values["place"][..., 0]
    assert abs(float(first.nanmean()) - PLACE).min() > 0.1  # its standard error is 0.02


def test_errors_know_that_entries_stay():
    """An entry that comes and goes seldom has the error of chains, not that of draws."""
    rng = np.random.default_rng(5)
    flips = (rng.random((64, 2000)) < 0.02).cumsum(1) + rng.integers(2, size=(64, 1))
    second = (flips % 2 == 1).reshape(-1)
    x = np.stack([PLACE[:2], SIZE[:2]], 1) + 0.1 * rng.standard_normal((len(second), 2, 2))
    active = np.stack([np.ones_like(second), second], 1)
    x, active = (np.pad(v, [(0, 0), (0, 4)] + [(0, 0)] * (v.ndim - 2)) for v in (x, active))
    row = result_of(nothing_seen(), x, active, 64).catalogue().loc[2]
    assert row["probability"] == pytest.approx(second.mean(), abs=1e-3)
    naive = (0.25 / len(second)) ** 0.5
    assert 3 * naive < row["se"] < 12 * naive
    assert abs(row["probability"] - 0.5) < 5 * row["se"]
    row = result_of(nothing_seen(), x[:6400], active[:6400], 64).catalogue().loc[2]
    assert math.isnan(row["se"]) and row["note"].startswith("R-hat")  # two changes a chain


def overlapping(seed, apart):
    """A run of two components that are often there, and one that may be anywhere."""
    rng, n = np.random.default_rng(seed), 3200
    place, sd = np.array([0.0, apart, apart / 2]), np.array([0.5, 0.5, 3.0])
    active = rng.random((n, 6)) < [0.98, 0.7, 0.4, 0.0, 0.0, 0.0]
    x = rng.standard_normal((n, 6, 2))
    x[:, :3] = np.stack([place, [0.0, 0.3, 0.1]], 1) + np.stack([sd, [0.3] * 3], 1) * x[:, :3]
    return result_of(nothing_seen(), x, active, 64)


@pytest.mark.whole
def test_entries_are_found_whichever_draw_is_the_most_probable():
    """Here the sum of the coordinates says so: odd draws, far out."""
    for seed in range(3):
        assert len(overlapping(seed, 4.0).catalogue(least=0.5)) == 2


@pytest.mark.whole
def test_errors_of_probabilities_know_that_names_may_differ():
    """Entries that overlap so much that their borders move from run to run."""
    tables = [overlapping(seed, 1.0).catalogue(least=0.5) for seed in range(12)]
    first = np.array([t.loc[1, ["probability", "se"]].astype(float) for t in tables])
    spread, error = first[:, 0].std(ddof=1), np.sqrt(np.square(first[:, 1]).mean())
    assert 0.4 < spread / error < 2.1  # chance alone: 1 +- .21
    binomial = math.sqrt(0.99 * 0.01 / 3200)
    assert error > 1.3 * binomial


def test_none_always_and_one():
    empty = result_of(nothing_seen(), np.zeros((80, 6, 2)), np.zeros((80, 6), dtype=bool), 4)
    table = empty.catalogue()
    assert len(table) == 0 and "place_mean" in table and table.attrs["unassigned"] == 0
    assert empty.to_arviz(entries=True)["posterior"]["place"].shape == (4, 20, 0)
    for ax in (empty.plot_components("place"), empty.plot_components("place", "size")):
        matplotlib.pyplot.close(ax.figure)
    x = np.random.default_rng(0).standard_normal((400, 1, 2))
    one = result_of(nothing_seen(1, 1), x, np.ones((400, 1), dtype=bool), 4)
    row = one.catalogue().loc[1]
    assert row["probability"] == 1 and row["note"] == "never left"
    assert row["se"] < 0.05 and row["place_sd"] == pytest.approx(1, rel=0.1)


def test_the_catalogue_of_a_saved_run(run, tmp_path):
    result, _ = run
    result.save(tmp_path / "run.pt")
    assert trj.load(tmp_path / "run.pt").catalogue().equals(result.catalogue())


def test_mistakes_are_named(run):
    result, _ = run
    target = toys.gaussians()
    code = torch.zeros(4, 5, 1, dtype=torch.long)
    other = trj.Result(
        target.space, Draws(code, torch.zeros(4, 5, 3), torch.zeros(4, 5)), {}, {}, RunReport()
    )
    for wrong in (other.catalogue, other.components):
        with pytest.raises(TRJError, match="unknown number of components"):
            wrong()
    with pytest.raises(TRJError, match="entries=True"):
        other.to_arviz(entries=True)
    with pytest.raises(ConfigurationError, match="interval"):
        result.catalogue(interval=90)
    with pytest.raises(ConfigurationError, match="leave out model"):
        result.to_arviz("1", entries=True)
    with pytest.raises(ConfigurationError, match="no 'colour'"):
        result.plot_components("colour")
    with pytest.raises(ConfigurationError, match="expected a grid"):
        result.plot_averaged(np.arange(3), lambda p, active: p["noise"])


def test_arviz_by_component_and_by_entry(run):
    result, _ = run
    posterior = result.to_arviz()["posterior"]
    k = posterior["k"].values
    assert posterior["place"].dims == ("chain", "draw", "component")
    assert posterior["place"].shape == (40, 200, k.max())
    assert (np.isfinite(posterior["place"].values).sum(-1) == k).all()
    assert posterior["noise"].shape == (40, 200)
    data = result.to_arviz(entries=True)
    posterior, table = data["posterior"], result.catalogue()
    assert posterior["size"].dims == ("chain", "draw", "entry")
    assert list(posterior["entry"].values) == [1, 2, 3]
    present = posterior["present"].values
    assert (np.isfinite(posterior["size"].values) == present).all()
    assert np.allclose(present.mean((0, 1)), table["probability"])
    assert np.allclose(np.nanmean(posterior["size"].values, (0, 1)), table["size_mean"])
    summary = arviz.summary(result.to_arviz(), var_names=["k", "noise"], kind="stats")
    assert list(summary.index) == ["k", "noise"]
    assert result.to_arviz("1")["posterior"]["place"].shape[2] == 1


@pytest.mark.whole
def test_a_function_sees_few_draws_at_once(run):
    """Memory: a batch of draws times components times a grid, and not more values than fit."""
    result, _ = run
    seen, grid = [], torch.linspace(-5, 5, 50)

    def near(p, active):
        seen.append(len(active))
        bumps = torch.exp(-((p["place"][..., None] - grid) ** 2))
        return (bumps * active[..., None]).sum(1)

    said = result.predict(near)
    assert sum(seen) == 8000 and max(seen) <= 500
    parts, _ = result.components()
    exact = np.exp(-((parts["place"][:, None] - grid.numpy()) ** 2)).sum(0) / 8000
    assert np.allclose(said.mean, exact, atol=1e-5)
    wide = result.predict(lambda p, active: p["noise"][:, None].expand(-1, 200_000), most=2000)
    assert wide.mean.shape == (200_000,)


def test_pictures_of_components(run):
    result, _ = run
    ax = result.plot_models()
    assert ax.get_xlabel() == "number of components"
    assert all(float(t).is_integer() for t in ax.get_xticks())
    table = result.counts(full=True).droplevel("kind")["probability"].loc[1:3]
    assert [bar.get_height() for bar in ax.patches] == pytest.approx(list(table))
    assert table.sum() == pytest.approx(1)
    line = result.plot_components("place", interval=0.8)
    area = sum(bar.get_height() * bar.get_width() for bar in line.patches)
    assert area == pytest.approx(float(result.raw.code.double().mean()), rel=0.03)
    assert len(result.plot_inclusion().patches) == len(result.catalogue())
    plane = result.plot_components("place", "size")
    assert (plane.get_xlabel(), plane.get_ylabel()) == ("place", "size")
    assert plane.texts[0].get_text() == "1.00"
    grid = np.linspace(-5, 5, 30)

    def curve(p, active):
        return (active * p["size"]).sum(-1, keepdim=True) + torch.zeros(30)

    for data in (None, (grid, grid), np.random.default_rng(0).standard_normal(50)):
        curves = result.plot_averaged(grid, curve, data)
        assert "mean over all models" in [t.get_text() for t in curves.get_legend().get_texts()]
        matplotlib.pyplot.close(curves.figure)
    matplotlib.pyplot.close("all")


def said_of_counts(p, prior=None, n=8000):
    """Whether a run whose counts have these probabilities warns of their limit."""
    rng = np.random.default_rng(2)
    k = rng.choice(len(p), n, p=np.asarray(p) / np.sum(p))
    active = np.arange(len(p) - 1) < k[:, None]
    x = np.where(active[..., None], rng.standard_normal((*active.shape, 2)), 0.0)
    result = result_of(nothing_seen(len(p) - 1, prior=prior), x, active, 40)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        warn_of(result.doubts)
    return [str(w.message) for w in found if issubclass(w.category, LimitWarning)]


@pytest.mark.parametrize(
    "p, prior",
    [
        ([0, 0, 0.1, 0.3, 0.6], None),  # still rising
        ([0, 0.05, 0.35, 0.4, 0.2], None),  # past its peak, not by much
        ([0, 0.1, 0.3, 0.3, 0.3], None),  # as good as one less
        ([0.05, 0.2, 0.35, 0.3, 0.1], Poisson(1.0)),
    ],
)
def test_counts_at_their_limit_are_told(p, prior):
    (said,) = said_of_counts(p, prior)
    assert (
        "4 components, the largest" in said
        and "Raise max of Counts(4, of=['place', 'size'])" in said
    )


@pytest.mark.parametrize(
    "p, prior",
    [
        ([0.2, 0.2, 0.2, 0.2, 0.2], None),  # data say nothing
        ([0.1, 0.1, 0.1, 0.1, 0.6], [0.1, 0.1, 0.1, 0.1, 0.6]),
        ([0.15, 0.15, 0.15, 0.15, 0.4], [0.05, 0.05, 0.05, 0.05, 0.8]),  # the prior's doing
        ([0.0, 0.4, 0.45, 0.12, 0.03], None),  # few
        ([0.0, 0.1, 0.72, 0.12, 0.06], None),  # fallen
        ([0.1, 0.9], None),  # is there one?
    ],
)
def test_counts_that_end_by_themselves_are_not(p, prior):
    assert not said_of_counts(p, prior)
