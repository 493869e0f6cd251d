"""Arguments of a sampler that there are not: the error says which one was meant."""

import pytest
import torch
from torch.distributions import Normal, Uniform

import trjmcmc as trj
from trjmcmc.errors import ArgumentError, ConfigurationError, UnreachableError

TARGET = trj.problems.sinh_arcsinh()

MEANT = {
    "n_draws": "draws",
    "num_samples": "draws",
    "num_chains": "chains",
    "nwalkers": "chains",
    "burn_in": "warmup",
    "warm_up": "warmup",
    "max_time": "max_seconds",
}


@pytest.mark.parametrize(("name", "right"), MEANT.items())
def test_arguments_of_a_run(name, right):
    words = rf"TRJSampler\.run: no argument '{name}'; did you mean '{right}'\?"
    with pytest.raises(ArgumentError, match=words):
        trj.TRJSampler(TARGET, seed=1).run(**{name: 5})


@pytest.mark.parametrize("name", ["sead", "random_seed", "random_state"])
def test_arguments_of_a_sampler(name):
    with pytest.raises(ArgumentError, match=f"TRJSampler: no argument '{name}'.*'seed'"):
        trj.TRJSampler(TARGET, **{name: 5})


def test_an_argument_like_no_other_lists_those_there_are():
    with pytest.raises(ArgumentError, match="no argument 'x'; there are target, transport, kernel"):
        trj.TRJSampler(TARGET, x=5)


@pytest.mark.parametrize(
    ("until", "words"),
    [
        ({"probabilty": 0.01}, "did you mean 'probability'?"),
        ({"r_hat": 1.01}, "did you mean 'rhat'?"),
        ({"bayes_factor": 0.1}, "did you mean 'log_bayes_factor'?"),
        ({}, "there are probability, log_bayes_factor, rhat, detection"),
        ("rhat", "there are probability, log_bayes_factor, rhat, detection"),
    ],
)
def test_aims_that_there_are_not(until, words):
    with pytest.raises(ConfigurationError) as caught:
        trj.TRJSampler(TARGET, seed=1).run(until=until)
    assert words in str(caught.value)


def test_a_precision_that_is_none():
    with pytest.raises(ConfigurationError, match=r"torch\.float64, got 'float64'"):
        trj.TRJSampler(TARGET, dtype="float64")


@pytest.mark.parametrize(
    ("prior", "words"),
    [
        (Uniform(-1e30, 1e30), r"the prior of 'a' in model 'flat' is flat over 2e\+30"),
        (Uniform(-1.0, 1.0), "has a finite likelihood$"),
    ],
)
def test_a_flat_prior_that_no_likelihood_reaches_is_named(prior, words):
    y = torch.tensor([60.1, 61.2])

    def likelihood(p):
        near = (p["a"] - 60).abs() < 50
        return torch.where(near, Normal(p["a"][:, None], 1.0).log_prob(y).sum(-1), -torch.inf)

    models = [
        trj.Model("narrow", {"a": Normal(60.0, 1.0)}, likelihood),
        trj.Model("flat", {"a": prior}, likelihood),
    ]
    with pytest.raises(UnreachableError, match=f"model 'flat': none of .*{words}"):
        trj.TRJSampler(trj.Target(models), seed=1).run(progress=False)


def test_how_much_of_the_data_was_possible_is_told():
    def within(p):
        return Uniform(torch.zeros(()), p["a"][:, None], validate_args=False)

    seen = trj.Observed(within, torch.tensor([3.0, 60.1, 61.2, 62.0]))
    model = trj.Model("short", {"a": Uniform(4.0, 9.0)}, seen)
    words = (
        "has a finite likelihood; the largest share of the 4 observations that one allows is 25%$"
    )
    with pytest.raises(UnreachableError, match=words):
        trj.TRJSampler(trj.Target([model]), seed=1).run(progress=False)
