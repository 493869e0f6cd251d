"""What users get wrong most often is answered in a sentence that names it."""

import math

import numpy as np
import pytest
import scipy.stats
import torch
from torch.distributions import Normal

import trjmcmc as trj
from trjmcmc.errors import (
    ArgumentError,
    BlackBoxError,
    ConfigurationError,
    ShapeError,
    TargetError,
)

Y = torch.linspace(-1.0, 2.0, 10)
ROWS = Y.numpy()
PRIORS = {"a": Normal(0.0, 1.0)}


def good(p):
    return Normal(p["a"][:, None], 1.0).log_prob(Y).sum(-1)


def one(log_likelihood=good, priors=PRIORS, **options):
    return trj.Target([trj.Model("m", priors, log_likelihood, **options)])


def counted(log_likelihood):
    return trj.Target(trj.Counts(3, of="a"), PRIORS, log_likelihood)


def two(**options):
    return trj.Target([trj.Model(name, PRIORS, good) for name in "mn"], **options)


SAID = {
    "priors as a list": (
        lambda: one(priors=[Normal(0.0, 1.0)]),
        TargetError,
        "priors of model 'm': expected a dict",
    ),
    "priors as a list, over a space": (
        lambda: trj.Target(trj.Counts(3, of="a"), [Normal(0.0, 1.0)], good),
        TargetError,
        "priors: expected a dict",
    ),
    "model_prior as a dict": (
        lambda: two(model_prior={"m": 0.5, "n": 0.5}),
        TargetError,
        "model_prior: expected 2 probabilities in the order of the models",
    ),
    "a count that is none": (
        lambda: trj.Counts(4.0, of="a"),
        TargetError,
        r"Counts: expected integers 0 <= min <= max, got min=0, max=4\.0",
    ),
    "a number of items": (
        lambda: trj.Subsets(4.0, of="a"),
        TargetError,
        r"names of Subsets: expected one name an item, got 4\.0",
    ),
    "precision of a target in words": (
        lambda: two(dtype="float64"),
        ConfigurationError,
        r"dtype: expected torch\.float32 or torch\.float64, got 'float64'",
    ),
    "precision of a model by NumPy": (
        lambda: one(dtype=np.float64),
        ConfigurationError,
        r"dtype: expected torch\.float32 or torch\.float64, got <class 'numpy.float64'>",
    ),
    "an argument of Model": (
        lambda: trj.Model("m", PRIORS, likelihood=good),
        ArgumentError,
        "Model: no argument 'likelihood'; did you mean 'log_likelihood'?",
    ),
    "an argument of Target": (
        lambda: two(modelprior=[0.5, 0.5]),
        ArgumentError,
        "Target: no argument 'modelprior'; did you mean 'model_prior'?",
    ),
    "a discrete prior": (
        lambda: one(priors={"a": scipy.stats.poisson(3)}),
        TargetError,
        "prior of 'a' in model 'm': .*discrete",
    ),
    "a discrete prior without its parameters": (
        lambda: one(priors={"a": scipy.stats.poisson}),
        TargetError,
        r"prior of 'a' in model 'm': .*give it parameters: poisson\(",
    ),
    "NumPy beside a batch": (
        lambda: one(lambda p: -0.5 * ((ROWS - p["a"].numpy()) ** 2).sum()),
        TargetError,
        "could not be broadcast.*trj.BlackBox",
    ),
    "NumPy that adds up": (
        lambda: one(lambda p: -np.sum((ROWS[:, None] - p["a"].numpy()) ** 2)),
        ShapeError,
        "trj.BlackBox",
    ),
    "math of a batch": (
        lambda: one(lambda p: math.exp(p["a"])),
        TargetError,
        "trj.BlackBox",
    ),
    "NumPy of one point": (
        lambda: one(lambda p: -np.sum((ROWS - np.asarray(p["a"])) ** 2), vectorized=False),
        TargetError,
        "vectorized=False maps functions of torch alone: .*NumPy.*trj.BlackBox",
    ),
    "float() of one point": (
        lambda: one(lambda p: -(float(p["a"]) ** 2), vectorized=False),
        TargetError,
        r"vectorized=False maps functions of torch alone: .*float\(\).*trj.BlackBox",
    ),
    "a black box over counts": (
        lambda: counted(trj.BlackBox(lambda p: 0.0)),
        BlackBoxError,
        r"called with two: f\(params, active\)",
    ),
    "a black box of batches over counts": (
        lambda: counted(trj.BlackBox(lambda p: np.zeros(5), vectorized=True)),
        BlackBoxError,
        r"called with two: f\(params, active\)",
    ),
    "a black box in a list": (
        lambda: one(trj.BlackBox(lambda p, active: 0.0)),
        BlackBoxError,
        r"called with one: f\(params\)",
    ),
    "a likelihood in a list": (
        lambda: one(lambda p, active: p["a"]),
        TargetError,
        r"called with one: f\(params\)",
    ),
    "the sum of an additive likelihood": (
        lambda: counted(trj.Additive(lambda p: p["a"][:, None] * Y, lambda total: total.sum(-1))),
        TargetError,
        r"trj.Additive calls its functions as f\(params\) and g\(total, params\)",
    ),
    "a component of an additive likelihood": (
        lambda: counted(trj.Additive(lambda p, active: p["a"], lambda total, p: total)),
        TargetError,
        r"trj.Additive calls its functions as f\(params\) and g\(total, params\)",
    ),
}


@pytest.mark.parametrize(("state", "error", "words"), SAID.values(), ids=SAID)
def test_mistakes_are_answered_in_sentences(state, error, words):
    with pytest.raises(error, match=f"(?s){words}"):
        state()


def test_what_vmap_says_of_itself_is_left_out():
    with pytest.raises(TargetError) as caught:
        one(lambda p: torch.tensor(p["a"].item()), vectorized=False)
    assert "bug report" not in str(caught.value)


def test_a_likelihood_that_fails_in_a_run_names_model_and_point():
    meshes = [5.0]

    def meshed(p):
        if bool((p["a"].abs() > meshes[-1]).any()):
            raise RuntimeError("no such mesh")
        return good(p)

    target = trj.Target([trj.Model("m", PRIORS, good), trj.Model("n", PRIORS, meshed)])
    meshes.append(1.5)
    theta = torch.tensor([[0.1], [-0.3], [1.75], [0.2], [0.4]])
    words = r"model 'n' failed at \(a=1\.75\), RuntimeError: no such mesh"
    with pytest.raises(TargetError, match=words):
        target.log_joint(torch.ones(5, 1, dtype=torch.long), theta)


def test_a_likelihood_that_always_fails_shows_shapes():
    with pytest.raises(TargetError, match=r"failed at a: \(5,\).*hold a batch of points"):
        one(lambda p: (p["a"] - Y).sum(-1))
