import math

import pytest
import torch
from scipy.stats import chisquare
from torch.distributions import Binomial, Categorical, Poisson

import trjmcmc as trj
from tests import toys
from trjmcmc.errors import TargetError, UnknownModelError
from trjmcmc.space.prior import normalised_log_prior
from trjmcmc.space.saved import space_from_spec

SPACES = {
    "subsets": lambda: trj.Subsets(list("abcd"), of="w", prior=0.3),
    "subsets by item": lambda: trj.Subsets(list("abc"), of="w", prior=[0.1, 0.5, 1.0]),
    "subsets by size": lambda: trj.Subsets(list("abcd"), of="w", prior=lambda s: 1 / (1 + s)),
    "subsets with blocks": lambda: trj.Subsets(
        list("abcde"), of="w", always=["c"], blocks=[["b", "e"]]
    ),
    "no free unit": lambda: trj.Subsets(["a"], of="w", always=["a"]),
    "counts": lambda: trj.Counts(5, of="w"),
    "counts from two": lambda: trj.Counts(4, 2, of="w", prior=Poisson(3.0)),
    "counts, short binomial": lambda: trj.Counts(6, of="w", prior=Binomial(4, torch.tensor(0.3))),
    "one count": lambda: trj.Counts(2, 2, of="w"),
    "two kinds": lambda: (
        trj.Counts(3, of="w", prior=[0.1, 0.2, 0.3, 0.4]) + trj.Counts(4, 2, of="v", name="lines")
    ),
    "list": lambda: toys.gaussians().space,
}


@pytest.mark.parametrize("name", SPACES)
def test_enumeration_labels_prior_and_index_fit_together(name):
    space = SPACES[name]()
    codes = space.enumerate()
    assert codes.shape == (space.size, space.code_width)
    assert torch.equal(space.index(codes), torch.arange(space.size))
    labels = space.label(codes)
    assert len(set(labels)) == space.size
    for code, label in zip(codes, labels, strict=True):
        assert torch.equal(space.code_of(label), code)
    assert float(space.log_prior(codes).exp().sum()) == pytest.approx(1, abs=1e-6)
    assert space.context(codes).shape == (space.size, space.context_width)
    assert len({tuple(row) for row in space.context(codes).tolist()}) == space.size


@pytest.mark.parametrize("name", SPACES)
def test_prior_draws_follow_the_prior(name, generator):
    space = SPACES[name]()
    n = 20_000
    index = space.index(space.sample_prior(n, generator))
    expected = space.log_prior(space.enumerate()).double().exp() * n
    seen = torch.bincount(index, minlength=space.size).double()
    possible = expected > 0
    assert not bool(seen[~possible].any())
    scaled = expected[possible] * n / expected[possible].sum()
    if len(scaled) > 1:
        assert chisquare(seen[possible], scaled).pvalue > 1e-5


@pytest.mark.parametrize("name", SPACES)
def test_a_space_survives_its_spec(name):
    space = SPACES[name]()
    if name != "list":
        space = space.bind(torch.arange(space.n_items))
    again = space_from_spec(space.spec())
    codes = space.enumerate()
    assert torch.equal(again.active(codes), space.active(codes))
    assert torch.equal(again.log_prior(codes), space.log_prior(codes))
    assert again.label(codes) == space.label(codes)


def test_blocks_move_together():
    space = SPACES["subsets with blocks"]()
    assert space.size == 8
    items = space.items(space.enumerate())
    assert bool(items[:, 2].all())
    assert torch.equal(items[:, 1], items[:, 4])
    assert torch.equal(space.code_of("e+b+c"), space.code_of(["b", "c", "e"]))
    with pytest.raises(UnknownModelError, match="move together"):
        space.code_of("b+c")


@pytest.mark.parametrize("slots", [[0, 0, 2], [3, 1], [2], []])
def test_slots_are_on_with_their_item_or_always(slots):
    bound = trj.Subsets(list("abc"), of="w").bind(torch.tensor(slots, dtype=torch.long))
    code = bound.enumerate()
    on = [[slot == 3 or bool(row[slot]) for slot in slots] for row in bound.items(code)]
    assert bound.active(code).tolist() == on


def test_a_space_of_2_to_the_40_stays_cheap(generator):
    space = trj.Subsets([f"x{i}" for i in range(40)], of="w", prior=0.1)
    code = space.sample_prior(1000, generator)
    assert space.log_prior(code).shape == (1000,)
    assert not space.enumerable
    with pytest.raises(trj.errors.ShapeError, match="too large to enumerate"):
        space.enumerate()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: trj.Subsets([], of="w"), "at least one, got none"),
        (lambda: trj.Subsets(["a", "a"], of="w"), r"\['a'\] repeat"),
        (lambda: trj.Subsets(["a+b"], of="w"), "hold a '\\+'"),
        (lambda: trj.Subsets(["a"], of="w", always=["z"]), r"\['z'\] are not among"),
        (lambda: trj.Subsets(["a", "b"], of="w", always=["a"], blocks=[["a", "b"]]), "in two"),
        (lambda: trj.Subsets(["a", "b"], of="w", prior=1.5), r"lie in \[0, 1\]"),
        (lambda: trj.Subsets(["a", "b"], of="w", prior=[0.5]), "one for each of 2 free units"),
        (lambda: trj.Subsets(["a"], of="w", prior=lambda s: -1.0), "must be >= 0"),
        (lambda: trj.Counts(2, 3, of="w"), "0 <= min <= max, got min=3, max=2"),
        (lambda: trj.Counts(2, of="w", prior=[0.5, 0.5]), "one number for each of 3 models"),
        (lambda: trj.Counts(3, of="w", prior=Categorical(torch.ones(2))), "a Categorical over 4"),
        (lambda: trj.Counts(1, of="w", prior=[0.5, -0.5]), "must not be negative"),
        (lambda: trj.Counts(1, of="w", prior=[0.5, 0.9]), "must sum to 1, got 1.4"),
        (lambda: trj.Counts(1, of="w", prior=trj.LogWeights([math.nan, 0.0])), "NaN, or no mass"),
    ],
)
def test_wrong_statements_say_what_is_wrong(make, message):
    with pytest.raises(TargetError, match=message):
        make()


def test_unknown_models_are_listed():
    with pytest.raises(UnknownModelError, match="no model 'zero'; the models are 'none', 'one'"):
        toys.gaussians().space.code_of("zero")
    with pytest.raises(UnknownModelError, match="a count from 2 to 4"):
        SPACES["counts from two"]().code_of(5)


def test_the_three_forms_of_a_model_prior_agree():
    p = [0.2, 0.3, 0.5]
    by_list = normalised_log_prior(p, 3, "model_prior")
    logs = trj.LogWeights([math.log(v) + 7 for v in p])
    assert torch.allclose(normalised_log_prior(logs, 3, "model_prior"), by_list)
    categorical = Categorical(probs=torch.tensor(p))
    assert torch.allclose(normalised_log_prior(categorical, 3, "model_prior"), by_list, atol=1e-6)


@pytest.mark.parametrize("prior", [0.2, [0.1, 0.5, 0.9], lambda size: 1.0 / (1 + size)])
def test_what_a_flip_changes_in_the_prior(prior):
    space = trj.Subsets(list("abc"), of="beta", prior=prior)
    code = space.enumerate()
    near, _ = space.neighbours(code)
    exact = space.log_prior(near.flatten(0, 1)).view(8, 3) - space.log_prior(code)[:, None]
    assert torch.allclose(space.flip_log_odds(code), exact, atol=1e-6)
