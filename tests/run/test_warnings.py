"""Every warning points at the user's line, wherever in the package it is issued."""

import math
import warnings
from contextlib import suppress

import numpy as np
import pytest
import torch
from torch.distributions import Normal

import trjmcmc as trj
from trjmcmc.doubts.doubt import warn_of
from trjmcmc.errors import ConvergenceWarning, TRJWarning, warn_user


def test_a_warning_skips_decorators_of_torch_and_context_managers():
    @torch.no_grad()
    def deep():
        warn_user("doubtful", ConvergenceWarning)

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        deep()
    assert said[0].filename == __file__


def two_models():
    y = torch.linspace(-1, 1, 20) + 0.3
    return [
        trj.Model("none", {}, lambda p: Normal(0.0, 1.0).log_prob(y).sum()),
        trj.Model(
            "mean",
            {"m": Normal(0.0, 1.0)},
            lambda p: Normal(p["m"][:, None], 1.0).log_prob(y).sum(-1),
        ),
    ]


@pytest.fixture(scope="module")
def short():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TRJWarning)
        sampler = trj.TRJSampler(trj.Target(two_models()), seed=1)
        return sampler.run(draws=3, chains=4, warmup=5, fit=False, progress=False)


def unreachable():
    """No pilot run: of one model no prior draw has a finite density, but the audit goes on."""
    few = trj.Model(
        "few", {"m": Normal(0.0, 1.0)}, lambda p: torch.where(p["m"] > 6, 0.0, -math.inf)
    )
    return trj.TRJSampler(trj.Target([*two_models(), few]), seed=1)


STORED = np.random.default_rng(4).normal(size=(4, 300, 1))
DRAWS = {"draws": 5, "chains": 8, "warmup": 5, "progress": False}
ENTRIES = {
    "run": lambda short: trj.TRJSampler(trj.Target(two_models()), seed=1).run(
        until={"probability": 1e-6}, fit=False, **DRAWS
    ),
    "fit": lambda short: unreachable().fit(steps=5, progress=False),
    "run that fits": lambda short: unreachable().run(fit=True, max_seconds=3, **DRAWS),
    "reweight": lambda short: short.reweight(priors={"m": Normal(0.9, 0.01)}),
    "evidence": lambda short: trj.evidence_of_draws(
        STORED, lambda x: -0.5 * (x[:, 0] - 1.5) ** 2, steps=50, progress=False
    ),
    "warn": lambda short: warn_of(short.doubts),
}


@pytest.mark.whole
@pytest.mark.parametrize("entry", ENTRIES)
def test_warnings_of_every_entry_point_name_the_line_that_called_it(entry, short, clock):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", TRJWarning)
        with suppress(trj.errors.TRJError):  # what was said before counts
            ENTRIES[entry](short)
    ours = [w for w in said if issubclass(w.category, TRJWarning)]
    assert ours, "nothing was said"
    assert {w.filename for w in ours} == {__file__}, [(w.filename, str(w.message)) for w in ours]
