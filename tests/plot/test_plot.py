"""Pictures of tables and arrays, without a run behind them."""

import subprocess
import sys

import matplotlib
import matplotlib.pyplot
import numpy as np
import pandas as pd
import pytest

from trjmcmc.errors import ConfigurationError, TRJError
from trjmcmc.plot.components import plot_averaged, plot_components
from trjmcmc.plot.evidences import plot_evidence, plot_jumps, plot_pareto
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

PICTURES = {
    "models": lambda: plot_models(PROBABILITIES, {"a": 0.7}),
    "numbers": lambda: plot_models(PROBABILITIES.assign(prior=0.5).set_index(pd.RangeIndex(1, 3))),
    "running": lambda: plot_running(VISITED, 2, {"a": 0.7}, chains=2),
    "evidence": lambda: plot_evidence(EVIDENCES, {"a": -3.1}),
    "jumps": lambda: plot_jumps(JUMPS, {"a": 0.7, "b": 0.3}),
    "pareto": lambda: plot_pareto({"a": 0.2, "b": 0.9}, 0.5),
    "items": lambda: plot_inclusion(
        PROBABILITIES.rename(columns={"visits": "probability", "visits_se": "se"})
    ),
    "intensity": lambda: plot_components(CATALOGUE, PARTS, ENTRY, 10, "x", interval=0.9),
    "plane": lambda: plot_components(CATALOGUE, PARTS, ENTRY, 10, "x", "y", interval=0.9),
    "averaged": lambda: plot_averaged([0, 1], *np.arange(6.0).reshape(3, 2)),
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
    with pytest.raises(TRJError, match="no map has weighed"):
        plot_pareto({}, 0.5)
    with pytest.raises(ConfigurationError, match=r"no 'z'; there are \['x', 'y'\]"):
        plot_components(CATALOGUE, PARTS, ENTRY, 10, "z", interval=0.9)
    with pytest.raises(ConfigurationError, match="expected a grid"):
        plot_averaged([0, 1, 2], *np.arange(6.0).reshape(3, 2))
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
