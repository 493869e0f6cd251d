"""Estimates are numbers: arithmetic carries their errors, and they print as one line."""

import math

import numpy as np
import pytest

from trjmcmc.estimate import Estimate

A, B = Estimate(2.0, 0.3, 100.0), Estimate(-5.0, 0.4, 40.0, "short")

FORMS = {
    "sum": lambda a, b: a + b,
    "difference": lambda a, b: a - b,
    "product": lambda a, b: a * b,
    "ratio": lambda a, b: a / b,
    "with numbers": lambda a, b: 3 - 2 * a / 7 + 1 / b,
    "powers": lambda a, b: a**2.5 + abs(b) ** -1 + b**3,
}


@pytest.mark.parametrize("form", FORMS)
def test_errors_are_carried_as_draws_have_them(form):
    rng, n = np.random.default_rng(1), 400_000
    small_a, small_b = Estimate(2.0, 0.003), Estimate(-5.0, 0.004)
    found = FORMS[form](small_a, small_b)
    draws = FORMS[form](rng.normal(2.0, 0.003, n), rng.normal(-5.0, 0.004, n))
    assert found.value == pytest.approx(FORMS[form](2.0, -5.0))
    # 5 errors of a standard deviation of n draws, and second order of the function
    assert found.std_error == pytest.approx(draws.std(), rel=5 / math.sqrt(2 * n) + 1e-3)


def test_logarithms_and_exponentials():
    assert A.log() == Estimate(math.log(2.0), 0.15, 100.0)
    assert A.log().exp().std_error == pytest.approx(0.3)
    assert Estimate(800.0, 1.0).exp().value == math.inf


def test_powers_that_are_no_numbers():
    assert (Estimate(0.0, 0.1) ** 2).value == 0.0 and (A**0).std_error == 0.0
    assert math.isnan((B**0.5).value) and (Estimate(0.0, 0.1) ** -1).std_error == math.inf
    assert (Estimate(1e300, 1.0) ** 2).value == math.inf


def test_estimates_are_ordered_by_their_values():
    assert sorted([A, B]) == [B, A] and max(A, B) is A and abs(B) > A
    assert A <= 2 and A >= B and A < 2.5 and not A > 2.0 and A > 1
    assert not Estimate(math.nan, 1.0) < A and A != 2.0  # the same value is not the same estimate


def test_what_two_estimates_rest_on():
    both = A + B
    assert both.ess == 40.0 and both.warning == "short"
    assert (A + Estimate(1.0, 0.1)).ess == 100.0  # where one does not know
    assert math.isnan((Estimate(math.nan, math.nan) * Estimate(1.0, math.inf)).std_error)


def test_deviations_by_batch_go_along():
    e = Estimate(1.0, 0.2, batches=(0.1, -0.1))
    assert (3 * e).batches == pytest.approx((0.3, -0.3)) and (e + 1).batches == (0.1, -0.1)
    assert (-e).std_error == 0.2


def test_estimates_are_numbers_and_words():
    assert float(A) == 2.0 and np.array([A, B], dtype=float).tolist() == [2.0, -5.0]
    assert f"{A:.3f}" == "2.000 ± 0.300" and str(A) == f"{A}" == "2 ± 0.3"
    assert repr(B) == "Estimate(-5 ± 0.4 (short))"
