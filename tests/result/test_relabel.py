"""Which component is which, against draws of which that is known."""

import numpy as np
import pytest

from tests.toys import scattered
from trjmcmc.errors import ConfigurationError, ShapeError
from trjmcmc.result.relabel import relabel

CASES = {
    "doubtful ones": ([1.0, 0.95, 0.3, 0.1], [[0, 0], [2, 1], [-2, 1], [1, -3]], 0.2),
    "on a line": ([1.0, 0.6, 0.2], [[0.0], [1.0], [5.0]], 0.1),
    "ten in the plane": ([1.0] * 10, np.random.default_rng(3).uniform(-8, 8, (10, 2)), 0.03),
    "of all scales": (
        [1.0, 0.9, 0.5],
        [[-3, 0], [0, 0], [0.5, 0]],
        [[1, 1], [0.01, 0.05], [0.003, 1]],
    ),
    "one": ([1.0], [[3.0, 2.0, 1.0]], 0.5),
    "one that may be": ([0.3], [[3.0, 2.0]], 0.5),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("clutter", [0.0, 0.05])
def test_entries_are_found_whatever_their_names(case, clutter):
    share, mean, sd = CASES[case]
    mean = np.asarray(mean, dtype=float)
    sd = np.broadcast_to(sd, mean.shape)
    x, active, who = scattered(share, mean, sd, clutter=clutter, slots=30)
    found = relabel(x, active)
    assert found.entry.shape == active.shape and (found.entry[~active] == -1).all()
    assert len(found.probability) == len(mean)
    assert (np.diff(found.probability) <= 0).all()
    for j in range(len(mean)):
        e = int(np.linalg.norm((found.mean - mean[j]) / sd[j], axis=1).argmin())
        n = int((who == j).sum())
        right = float(((found.entry == e) & (who == j)).sum()) / n
        assert right > 0.99
        assert abs(found.probability[e] - n / len(x)) < 0.01
        assert (np.abs(found.mean[e] - mean[j]) < 5 * sd[j] / n**0.5 + clutter * sd[j]).all()
        spread = np.sqrt(np.diagonal(found.covariance[e]))
        assert spread == pytest.approx(sd[j], rel=0.1)
    rows = found.entry.reshape(len(x), -1)
    for e in range(len(mean)):  # one-to-one
        assert ((rows == e).sum(1) <= 1).all()


def test_without_relabelling_means_are_wrong():
    """The control: slots as they come mix all components."""
    x, active, _ = scattered([1.0, 1.0], [[-2.0], [2.0]], np.full((2, 1), 0.1))
    assert abs(x[active[:, 0], 0, 0].mean()) < 0.2
    assert relabel(x, active).mean[:, 0] == pytest.approx([-2.0, 2.0], abs=0.02)


def test_scattered_components_make_no_entry():
    x, active, _ = scattered([], np.zeros((0, 2)), np.zeros((0, 2)), clutter=2.0)
    found = relabel(x, active)
    assert len(found.probability) == 0 and (found.entry == -1).all()


def test_the_good_draw_and_the_numbers_of_draws_do_not_matter_much():
    share, mean, sd = [1.0, 0.4, 0.7], [[0, 0], [1, 1], [-3, 2]], np.full((3, 2), 0.2)
    for n in (40, 300, 9000):
        x, active, _ = scattered(share, mean, sd, n=n, seed=n)
        found = relabel(x, active, np.random.default_rng(n).standard_normal(n))
        assert len(found.probability) == 3
        assert found.probability[1] == pytest.approx(0.7, abs=5 * (0.21 / n) ** 0.5)
        by_chain = relabel(x.reshape(5, n // 5, *x.shape[1:]), active.reshape(5, n // 5, -1))
        assert by_chain.entry.shape == (5, n // 5, active.shape[1])
        assert np.allclose(by_chain.mean, found.mean, atol=0.1)


def test_no_components_and_constant_ones():
    none = relabel(np.zeros((10, 3, 2)), np.zeros((10, 3), dtype=bool))
    assert none.mean.shape == (0, 2) and none.covariance.shape == (0, 2, 2)
    same = relabel(np.tile([[[1.0], [2.0]]], (50, 1, 1)), np.ones((50, 2), dtype=bool))
    assert same.mean[:, 0].tolist() == [1.0, 2.0] and same.probability.tolist() == [1.0, 1.0]


def test_mistakes_are_named():
    x, active = np.zeros((4, 2, 1)), np.ones((4, 2), dtype=bool)
    with pytest.raises(ShapeError, match=r"x, active: expected \(..., K, P\)"):
        relabel(x, active[:3])
    with pytest.raises(ShapeError, match="log_joint: expected shape"):
        relabel(x, active, np.zeros(3))
    with pytest.raises(ConfigurationError, match="least"):
        relabel(x, active, least=1.0)
