"""Bands, ranks and probabilities: exact levels, and faults in words."""

import numpy as np
import pytest
from scipy.stats import binom

from trjmcmc.validation import bands
from trjmcmc.validation.asked import Skipped
from trjmcmc.validation.models import Calibration, judge_models, poisson_binomial, smoothed
from trjmcmc.validation.ranks import judge_ranks, rank_table

RNG = np.random.default_rng(11)


def test_bands_hold_uniform_ranks_as_often_as_they_say():
    n, repeats = 60, 1500
    grid, low, high = bands.band(n, 0.1)
    share = (RNG.random((repeats, n))[:, :, None] <= grid).mean(1)
    outside = ((share < low - 1e-9) | (share > high + 1e-9)).any(1).sum()
    # counts are discrete: a little less often than asked
    assert binom.sf(outside - 1, repeats, 0.1) > 1e-5
    assert binom.cdf(outside, repeats, 0.06) > 1e-5


def test_p_values_of_uniform_ranks_are_uniform():
    p = np.array([bands.p_value(RNG.random(50)) for _ in range(400)])
    for level in (0.01, 0.1, 0.5):
        assert binom.sf((p <= level).sum() - 1, 400, level) > 1e-5
    assert (p < 0.5).mean() > 0.3


@pytest.mark.parametrize(
    ("u", "words"),
    [
        (lambda n: RNG.beta(1.0, 2.0, n), "ranked too low"),
        (lambda n: RNG.beta(2.0, 1.0, n), "ranked too high"),
        (lambda n: RNG.beta(0.4, 0.4, n), "too narrow"),
        (lambda n: RNG.beta(3.0, 3.0, n), "too wide"),
    ],
)
def test_ranks_that_stray_are_put_into_words(u, words):
    (found,) = judge_ranks(rank_table({"sigma": u(200)}), 10)
    assert found.grave and words in found.words


def test_uniform_ranks_are_fine():
    assert not any(d.grave for d in judge_ranks(rank_table({"sigma": RNG.random(200)}), 10))
    with pytest.raises(Skipped, match="too few"):
        judge_ranks(rank_table({"sigma": RNG.random(5)}), 10)


def drawn(n=200, change=0.0, power=1.0):
    """Probabilities of three models, and truths that follow them but for a change of the first."""
    p = RNG.dirichlet([1.0, 1.0, 1.0], n)
    true = np.array([RNG.multinomial(1, row) for row in p], dtype=bool)
    shown = p**power * np.exp([change, 0.0, 0.0])
    shown = smoothed(shown / shown.sum(1, keepdims=True), 1000, True)
    return Calibration(["a", "b", "c"], shown, true, True)


def test_calibrated_probabilities_are_fine():
    found = judge_models(drawn(), 5, RNG)
    assert not any(d.grave for d in found)
    table = drawn().reliability()
    inside = (table["true"] >= table["low"] - 0.2) & (table["true"] <= table["high"] + 0.2)
    assert inside.all()


def test_a_constant_of_one_model_is_named_and_measured():
    found = judge_models(drawn(change=2.0), 5, RNG)
    first = next(f for f in found if f.subject == "a")
    assert first.grave and "normalised wrongly" in first.words
    off, error = drawn(change=2.0).offsets()["a"]
    assert abs(off - 2.0 * 2 / 3) < 5 * error  # against the mean of all


def test_probabilities_that_are_too_sure_are_named():
    found = judge_models(drawn(400, power=4.0), 1, RNG)
    assert any("too sure" in f.words for f in found)


def test_a_number_of_unequal_events_has_its_exact_chance():
    for count in (0, 3, 9):
        p = 2 * min(binom.cdf(count, 10, 0.3), binom.sf(count - 1, 10, 0.3))
        assert poisson_binomial([0.3] * 10, count) == pytest.approx(min(1.0, p))
