"""Pictures of tables and arrays, without a run behind them."""

import subprocess
import sys

import matplotlib
import matplotlib.pyplot
import numpy as np
import pandas as pd
import pytest

from trjmcmc.errors import ConfigurationError
from trjmcmc.plot.components import plot_averaged, plot_components
from trjmcmc.plot.draws import plot_corner, plot_rank, plot_trace
from trjmcmc.plot.evidences import plot_evidence, plot_jumps
from trjmcmc.plot.graphs import plot_edges, plot_graph
from trjmcmc.plot.models import plot_inclusion, plot_models, plot_running
from trjmcmc.plot.training import plot_fit

matplotlib.use("Agg")

MODELS = pd.Index(["a", "b"], name="model")

PROBABILITIES = pd.DataFrame(
    {
        "visits": [0.7, 0.3],
        "visits_se": [0.02, np.nan],
        "importance": [np.nan] * 2,
        "importance_se": [np.nan] * 2,
        "combined": [0.71, 0.29],
        "combined_se": [0.01, 0.01],
    },
    index=MODELS,
)

EVIDENCES = pd.DataFrame(
    {
        "combined": [-3.0, -4.0],
        "combined_se": [0.1, 0.1],
        "probability": [0.7, 0.3],
        "bridge": [-3.0, -4.1],
        "bridge_se": [0.1, 0.2],
        "note": ["", "bridge: error 0.2"],
    },
    index=MODELS,
)

CATALOGUE = pd.DataFrame(
    {
        "probability": [0.9, 0.4],
        **{f"{n}_{part}": [at, at + 3.0] for n in "xy" for part, at in (("mean", 0.0),)},
        **{f"{n}_low": [-1.0, 2.0] for n in "xy"},
        **{f"{n}_high": [1.0, 4.0] for n in "xy"},
    },
    index=pd.RangeIndex(1, 3, name="entry"),
)

PARTS = {n: np.linspace(-1.0, 4.0, 30) for n in "xy"}

ENTRY = np.arange(30) % 3

VISITED = {"a": np.arange(40).reshape(4, 10) % 3 > 0, "b": np.arange(40).reshape(4, 10) % 3 == 0}

JUMPS = pd.DataFrame([[np.nan, 0.2], [0.5, np.nan]], index=["a", "b"], columns=["a", "b"])

EDGES = pd.DataFrame([[0.0, 0.9, 0.0], [0.1, 0.0, 0.7], [0.0, 0.2, 0.0]], list("abc"), list("abc"))

NUMBERS = {f"x[{i}]": np.random.default_rng(i).standard_normal((4, 200)) for i in range(9)}

PICTURES = {
    "models": lambda: plot_models(PROBABILITIES, {"a": 0.7}),
    "numbers": lambda: plot_models(PROBABILITIES.assign(prior=0.5).set_index(pd.RangeIndex(1, 3))),
    "running": lambda: plot_running(VISITED, 2, {"a": 0.7}, chains=2),
    "evidence": lambda: plot_evidence(EVIDENCES, {"a": -3.1}),
    "jumps": lambda: plot_jumps(JUMPS, {"a": 0.7, "b": 0.3}),
    "items": lambda: plot_inclusion(
        PROBABILITIES.rename(columns={"visits": "probability", "visits_se": "se"})
    ),
    "intensity": lambda: plot_components(CATALOGUE, PARTS, ENTRY, 10, "x", interval=0.9),
    "plane": lambda: plot_components(CATALOGUE, PARTS, ENTRY, 10, "x", "y", interval=0.9),
    "edges": lambda: plot_edges(EDGES),
    "averaged": lambda: plot_averaged([0, 1], np.arange(6.0).reshape(3, 2)),
    "fit": lambda: plot_fit([50, 100], [3.0, 2.0], [0.5, 1.0], 100),
}


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_need_no_run(name):
    ax = PICTURES[name]()
    assert ax.has_data() and (ax.get_xlabel() or name == "averaged")
    matplotlib.pyplot.close(ax.figure)


def test_bars_without_an_error_are_hollow():
    ax = plot_models(PROBABILITIES)
    assert [bar.get_facecolor()[3] for bar in ax.patches] == [1.0, 0.0]
    matplotlib.pyplot.close(ax.figure)


def test_pictures_are_drawn_where_they_are_asked_for():
    _, ax = matplotlib.pyplot.subplots()
    assert plot_models(PROBABILITIES, None, ax) is ax
    matplotlib.pyplot.close(ax.figure)


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ConfigurationError, match=r"no 'z'; there are \['x', 'y'\]"):
        plot_components(CATALOGUE, PARTS, ENTRY, 10, "z", interval=0.9)
    with pytest.raises(ConfigurationError, match="expected a grid"):
        plot_averaged([0, 1, 2], np.arange(6.0).reshape(3, 2))
    matplotlib.pyplot.close("all")


def test_matplotlib_waits_for_the_first_picture():
    """ArviZ 0.2x imports it in any case, so that plot is asked alone."""
    code = "import sys, types; sys.modules['arviz'] = types.ModuleType('arviz'); "
    code += "sys.modules['arviz'].__version__ = '1.0'; import trjmcmc.plot; "
    code += "print('matplotlib.pyplot' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "False", said.stderr


@pytest.mark.parametrize("panel", [0, 1])
def test_evidences_leave_room_for_the_panel_beside_them(panel):
    figure, axes = matplotlib.pyplot.subplots(1, 2, layout="constrained", figsize=(9, 3.5))
    plot_evidence(EVIDENCES, None, axes[panel])
    figure.canvas.draw()
    assert min(ax.get_position().width for ax in axes) > 0.3
    matplotlib.pyplot.close(figure)


@pytest.fixture(autouse=True)
def closed():
    yield
    matplotlib.pyplot.close("all")


# ---- axes, legends ------------------------------------------------------------------------------


@pytest.mark.parametrize("top", [0.7, 1.0])
def test_probabilities_end_at_one(top):
    ax = plot_models(PROBABILITIES.assign(visits=[top, 1 - top], visits_se=0.3))
    assert top < ax.get_ylim()[1] <= 1.02


def test_numbers_of_components_begin_where_they_are():
    for first in (0, 1):
        table = PROBABILITIES.assign(prior=0.5).set_index(pd.RangeIndex(first, first + 2))
        low, high = plot_models(table).get_xlim()
        assert first - 1 < low < first - 0.4 and first + 1.4 < high < first + 2


def texts(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_evidences_have_few_routes_in_plain_words():
    names = ("visits", "bartolucci", "importance", "smoothed", "bridge", "warp", "audit")
    routes = {f"{name}{end}": [-3.0, 0.1][end == "_se"] for name in names for end in ("", "_se")}
    ax = plot_evidence(EVIDENCES.assign(**routes), {"a": -3.1})
    assert texts(ax) == [
        "visits",
        "importance sampling",
        "bridge sampling",
        "tempered draws",
        "all together",
        "exact",
        "hollow: flagged",
    ]


@pytest.mark.parametrize("draw", [plot_models, plot_evidence])
def test_legends_lie_on_no_data(draw):
    ax = draw(PROBABILITIES if draw is plot_models else EVIDENCES, {"a": 0.7})
    ax.figure.canvas.draw()
    assert ax.get_legend().get_window_extent().y0 >= ax.get_window_extent().y1


# ---- draws --------------------------------------------------------------------------------------


@pytest.mark.parametrize("draw", [plot_trace, plot_rank, plot_corner])
def test_numbers_that_are_not_drawn_are_counted(draw):
    series = {k: x.ravel() for k, x in NUMBERS.items()} if draw is plot_corner else NUMBERS
    first = draw(series, named=False)
    title = first.ravel()[0].figure.get_suptitle()
    assert len(first) == 6 and title == "3 more numbers are not shown; var_names names them"
    every = draw(series)
    assert len(every) == 9 and not every.ravel()[0].figure.get_suptitle()


@pytest.mark.parametrize("n", [1, 2, 5])
def test_few_draws_are_seen(n):
    for ax in plot_trace({"x": np.arange(1.0, n + 1)[None]}).ravel():
        line = ax.get_lines()[0]
        assert line.get_marker() in {"o", "."} and len(line.get_xdata()) == n
    pair = plot_corner({"x": np.arange(1.0, n + 1), "y": np.arange(1.0, n + 1)})[1, 0]
    assert len(pair.get_lines()[0].get_xdata()) == n and not pair.collections


def test_contours_hold_what_they_say():
    x, y = np.random.default_rng(1).standard_normal((2, 20_000))
    paths = plot_corner({"x": x, "y": y})[1, 0].collections[0].get_paths()
    inside = [path.contains_points(np.stack([x, y], 1)).mean() for path in paths]
    assert sorted(inside) == pytest.approx([0.393, 0.865], abs=0.03)


def test_titles_tell_medians_with_two_digits_of_their_spread():
    ends = {"small": 1e-4, "large": 1e5, "fixed": 0.0}
    x = np.linspace(-1.0, 1.0, 1001)
    axes = plot_corner({name: 3 * scale + scale * x for name, scale in ends.items()})
    titles = [axes[i, i].get_title() for i in range(3)]
    assert titles[0] == "small\n$0.000300^{+0.000068}_{-0.000068}$"
    assert titles[1] == "large\n$300000^{+68000}_{-68000}$"
    assert titles[2].startswith("fixed\n$0.000^")


def test_ranks_of_equal_chains_are_flat_and_of_others_not():
    rng = np.random.default_rng(3)
    equal = rng.integers(0, 3, (4, 2000))
    shifted = equal + np.array([0, 0, 0, 1])[:, None]
    for x, most in ((equal, 0.2), (shifted, None)):
        bars = np.array([bar.get_height() for bar in plot_rank({"k": x})[0].patches])
        away = abs(bars.reshape(4, -1) - 0.5).max()
        assert away < most if most else away > 0.3


# ---- profiles -----------------------------------------------------------------------------------


def test_depth_goes_down_and_shades_are_shares():
    depth = np.linspace(0.0, 10.0, 21)
    curves = np.where(depth < np.linspace(2.0, 8.0, 400)[:, None], 1.0, 3.0)
    ax = plot_averaged(depth, curves, (depth, depth), depth=True)
    assert ax.yaxis_inverted() and texts(ax) == ["data", "90 %", "mean over all models"]
    share = np.asarray(ax.collections[0].get_array()).reshape(21, -1) ** 2
    assert share.sum(1) == pytest.approx(np.ones(21))
    values, at = ax.get_lines()[-1].get_data()
    assert (values == curves.mean(0)).all() and (at == depth).all()
    assert ax.get_lines()[1].get_xdata() == pytest.approx(np.quantile(curves, 0.05, axis=0))


# ---- graphs -------------------------------------------------------------------------------------


def test_nodes_are_as_far_apart_as_their_path():
    at = {t.get_text(): np.array(t.get_position()) for t in plot_graph(EDGES).texts if t.get_text()}
    near, far = (np.linalg.norm(at["a"] - at[b]) for b in "bc")
    assert set(at) == set("abc") and far > 1.4 * near


def test_a_graph_of_one_node_and_of_none_joined():
    assert len(plot_graph(EDGES.loc[["a"], ["a"]]).texts) == 1
    assert len(plot_graph(0 * EDGES).texts) == 3
