"""A reduced version of benchmarks/calibration.py: are the error bars of all routes true?"""

import importlib.util
import warnings
from pathlib import Path

import numpy as np
import pytest

from tests.battery import assert_calibrated
from trjmcmc.errors import TRJWarning

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "calibration.py"
RUNS = 20


@pytest.fixture(scope="module")
def benchmark():
    spec = importlib.util.spec_from_file_location("calibration", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("case", "model"),
    [
        pytest.param("two modes", "two modes", marks=pytest.mark.whole),
        pytest.param("sinh-arcsinh", "2d", marks=pytest.mark.slow),
    ],
)
def test_error_bars_of_every_route_are_calibrated(benchmark, case, model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TRJWarning)
        sizes = {"steps": 100, "draws": 50, "chains": 64, "warmup": 30}
        found = benchmark.scores(benchmark.CASES[case](), RUNS, **sizes)
    assert found.groupby("run")["agree"].first().mean() >= 0.95
    for route, part in found[found["model"] == model].groupby("route"):
        z = part.loc[~part["flagged"].astype(bool), "z"]
        if len(z) < RUNS / 2:  # a flag is up: nothing is claimed
            continue
        assert_calibrated(np.array(z), len(z))
        assert route in {*benchmark.SHARES, *benchmark.EVIDENCES}
