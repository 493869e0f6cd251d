"""Smoothed importance weights: those of ArviZ, and what has no tail."""

import arviz
import numpy as np
import pytest

from trjmcmc.estimate.pareto import pareto_quantiles, pareto_smooth

WEIGHTS = {
    "normal": lambda rng, n: 3 * rng.normal(size=n),
    "Pareto": lambda rng, n: rng.exponential(0.9, n),
    "light": lambda rng, n: np.log(rng.beta(2, 3, size=n)),
    "beyond numbers": lambda rng, n: 400 * rng.normal(size=n),
    "ties": lambda rng, n: np.round(rng.normal(size=n)),
}


@pytest.mark.parametrize("n", [25, 400, 20_000])
@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(not arviz.__version__.startswith("0."), reason="ArviZ 1 cuts tails elsewhere")
def test_weights_are_smoothed_as_by_arviz(kind, n):
    log_w = WEIGHTS[kind](np.random.default_rng(1), n)
    given = log_w.copy()
    smooth, k = arviz.psislw(log_w.copy())
    with np.errstate(all="ignore"):
        found, shape = pareto_smooth(log_w)
    np.testing.assert_allclose(found, smooth, rtol=1e-7, atol=1e-9)
    assert shape == pytest.approx(float(k), rel=1e-4, nan_ok=True)
    assert np.array_equal(log_w, given)


def test_quantiles_turn_into_those_of_an_exponential_and_need_a_scale():
    place = np.array([0.1, 0.5, 0.99])
    exponential = -2.0 * np.log1p(-place)
    np.testing.assert_allclose(pareto_quantiles(place, 0.0, 2.0), exponential)
    np.testing.assert_allclose(pareto_quantiles(place, 1e-9, 2.0), exponential, rtol=1e-6)
    assert np.isnan(pareto_quantiles(place, 0.3, -1.0)).all()
