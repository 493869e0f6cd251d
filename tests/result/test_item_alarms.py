"""Items of which chains remember their start: said in the table, aloud, and by the result."""

import math

import numpy as np
import pytest
import torch

import trjmcmc as trj
from tests.result.said import said_by
from trjmcmc.doubts.of_chains import Judged
from trjmcmc.draws import Draws
from trjmcmc.errors import ConfigurationError, ConvergenceWarning
from trjmcmc.estimate.convergence import split_rhats
from trjmcmc.estimate.visits import visit_probabilities, visit_probability
from trjmcmc.result.report import RunReport
from trjmcmc.result.result import Result

CHAINS, DRAWS = 64, 200


@pytest.fixture
def rng():
    return np.random.default_rng(4)


def switching(rng, stays):
    """Chains of one item, half of them with it at the start, that keep it so often a draw."""
    x = np.empty((CHAINS, DRAWS), dtype=bool)
    x[:, 0] = np.arange(CHAINS) % 2
    for i in range(1, DRAWS):
        kept = rng.random(CHAINS) < stays
        x[:, i] = np.where(kept, x[:, i - 1], rng.random(CHAINS) < 0.5)
    return torch.as_tensor(x)


def subsets(*series):
    space = trj.Subsets(["a", "b"][: len(series)], of=()).bind(torch.zeros(0).long())
    return space, torch.stack(series, 2).long()


def dags(*series):
    """Two nodes: the edge from a to b where the first series has it."""
    return trj.graphs.Dags(["a", "b"]).bind(torch.zeros(0).long()), torch.stack(
        [torch.zeros_like(series[0]), series[0]], 2
    ).long()


def result_of(space, code):
    g = torch.Generator().manual_seed(1)
    height = torch.randn(code.shape[:2], generator=g)
    return Result(space, Draws(code, torch.zeros(*code.shape[:2], 0), height), {}, {}, RunReport())


@pytest.mark.parametrize("stays", [0.0, 0.99])
@pytest.mark.parametrize(("made", "item"), [(subsets, "a"), (dags, "a->b")])
def test_items_that_chains_remember_are_said_aloud(made, item, stays, rng):
    series = switching(rng, stays)
    result = result_of(*made(series))
    row = result.inclusion_probabilities(full=True).loc[item]
    expected = split_rhats(series[..., None].double().numpy())[0]
    assert row["rhat"] == pytest.approx(expected)
    said = said_by(result).get(ConvergenceWarning, "")
    if stays:  # a hundred draws to forget
        assert row["rhat"] > 1.2 and "R-hat" in row["note"] and math.isnan(row["se"])
        assert f"R-hat {row['rhat']:.2f}" in said and "not converged" in repr(result)
    else:
        assert row["rhat"] < 1.02 and row["note"] == "" and row["ess"] > 2000
        assert abs(row["probability"] - 0.5) < 5 * row["se"]
        assert not said and "not converged" not in repr(result)


def test_the_worst_item_is_named_first(rng):
    rise = np.linspace(0.2, 0.8, DRAWS)
    series = [rng.random((CHAINS, DRAWS)) < p for p in ((rise + 0.5) / 2, rise, 0.5)]
    space = trj.Subsets(["a", "b", "c"], of=()).bind(torch.zeros(0).long())
    result = result_of(space, torch.as_tensor(np.stack(series, 2)).long())
    result.report.judged = Judged("", 0.0, 5.0, 1e-3)
    table, said = result.inclusion_probabilities(full=True), said_by(result)[ConvergenceWarning]
    assert table.loc["b", "rhat"] > table.loc["a", "rhat"] > table.loc["c", "rhat"]
    worst = f"'b' ({table.loc['b', 'note']})"
    assert said.startswith(f"the run has not converged: {worst}") and worst in repr(result)


def test_features_of_the_users_are_judged_as_items_are(rng):
    series = switching(rng, 0.99), switching(rng, 0.0)
    result = result_of(*subsets(*series))
    has = torch.stack(series, 2).numpy()
    shown = ["probability", "se", "ess", "rhat", "note"]
    both = (
        result.chains.shares(has),
        result.inclusion_probabilities(full=True)[shown].reset_index(drop=True),
    )
    assert both[0].equals(both[1])
    with pytest.raises(ConfigurationError, match="expected shape"):
        result.chains.shares(has[:, :-1])


@pytest.mark.parametrize("chains", [4, 64])
def test_many_shares_at_once_are_those_of_each(chains, rng):
    has = rng.random((chains, 50, 40)) < rng.random((chains, 1, 40))
    has[..., 3], has[..., 5] = True, False
    for q, found in enumerate(visit_probabilities(has, 30.0).estimates):
        alone = visit_probability(has[..., q], 30.0)
        np.testing.assert_allclose(
            (found.value, found.std_error, found.ess),
            (alone.value, alone.std_error, alone.ess),
            rtol=1e-12,
        )
        assert found.warning == alone.warning
