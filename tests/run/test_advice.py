"""What each warning advises helps: one run that warns, and one that has done as it was told."""

import math
import re
import warnings

import numpy as np
import pytest
import torch
from torch.distributions import Normal, Uniform

import trjmcmc as trj
from tests import toys
from trjmcmc.errors import TRJWarning
from trjmcmc.fit import emcee_pool
from trjmcmc.run.policy import Policy
from trjmcmc.run.policy_of_screening import ScreeningBudget

pytestmark = [pytest.mark.planned, pytest.mark.whole]


def heard(run):
    """All that a call says aloud, in one text."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        run()
    return "\n".join(str(w.message) for w in said if issubclass(w.category, TRJWarning))


def run(target, transport=None, dtype=None, policy=None, **settings):
    sampler = trj.TRJSampler(target, transport, seed=1, dtype=dtype, policy=policy)
    return sampler.run(progress=False, **settings)


def narrow():
    """Ten correlated coordinates, against a fair coin: most moves never leave a model."""
    g = torch.Generator().manual_seed(1)
    mix = torch.linalg.qr(torch.randn(10, 10, generator=g))[0] * torch.logspace(-1.5, 0, 10)

    def log_likelihood(p):
        z = torch.linalg.solve(mix, p["x"].mT).mT
        return Normal(0.0, 1.0).log_prob(z).sum(-1) - mix.det().abs().log() + 4.0

    wide = {"x": Normal(torch.zeros(10), 1.0)}
    none = trj.Model("none", {}, lambda p: torch.tensor(0.0))
    return trj.Target([trj.Model("narrow", wide, log_likelihood), none])


def two_modes(weight=0.5):
    """Two modes far apart, and a model without parameters."""

    def log_likelihood(p):
        left, right = Normal(0.0, 1.0).log_prob(p["x"]), Normal(12.0, 1.0).log_prob(p["x"])
        return torch.logaddexp(math.log(1 - weight) + left, math.log(weight) + right)

    flat = trj.Model("flat", {}, lambda p: torch.tensor(-4.0))
    return trj.Target([trj.Model("modes", {"x": Normal(6.0, 10.0)}, log_likelihood), flat])


def blobs(most):
    """Three points far apart, each explained by a component of its own."""
    y = torch.tensor([-6.0, 0.0, 6.0])

    def log_likelihood(p, active):
        near = Normal(p["at"][..., None], 0.5).log_prob(y)
        near = torch.where(active[..., None], near, -math.inf)
        floor = torch.full_like(near[..., :1, :], -8.0)
        return torch.cat([near, floor], -2).amax(-2).sum(-1) - 2.0 * active.sum(-1)

    return trj.Target(trj.Counts(most, of="at"), {"at": Normal(0.0, 6.0)}, log_likelihood)


def large(constant):
    """Log densities that float32 can't resolve."""
    models = [
        trj.Model(name, {"x": Normal(0.0, 1.0)}, lambda p, a=a: constant + a * p["x"])
        for name, a in (("up", 0.5), ("down", -0.5))
    ]
    return trj.Target(models)


def date(dtype, since=0.0, width=1e4, uniform=False):
    """A narrow posterior, far from zero."""

    def log_likelihood(p):
        return Normal(55000.123 - since, 0.01).log_prob(p["t"])

    centre = torch.tensor(55000.0 - since, dtype=dtype)
    prior = Uniform(centre - width, centre + width) if uniform else Normal(centre, width)
    return trj.Target([trj.Model("date", {"t": prior}, log_likelihood)])


def boxed():
    """A black box: no gradients."""
    log_likelihood = trj.BlackBox(lambda p: -0.5 * float(p["a"] - 1) ** 2)
    return trj.Target([trj.Model("m", {"a": Normal(0.0, 2.0)}, log_likelihood)])


def logistic(guarded):
    """A logistic curve by hand: exp overflows far out in the prior's tail."""

    def log_likelihood(p):
        size = torch.exp(11 * p["rate"])
        share = torch.sigmoid(11 * p["rate"]) if guarded else size / (1 + size)
        return Normal(p["rate"], 0.5).log_prob(share)

    return trj.Target([trj.Model("m", {"rate": Normal(0.0, 1.0)}, log_likelihood)])


def fit(target, transport=None, **settings):
    return trj.TRJSampler(target, transport, seed=1).fit(progress=False, **settings)


def reweighted(mean):
    model = trj.Model("m", {"x": Normal(0.0, 1.0)}, lambda p: Normal(p["x"], 1.0).log_prob(1.0))
    result = run(trj.Target([model]), draws=300, chains=64)
    return result.reweight(priors={"x": Normal(mean, 0.3)})


def fresh_run(mean):
    model = trj.Model("m", {"x": Normal(mean, 0.3)}, lambda p: Normal(p["x"], 1.0).log_prob(1.0))
    return run(trj.Target([model]), draws=300, chains=64)


def evidence(shift):
    x = np.random.default_rng(4).normal(size=(4, 300, 1))
    return trj.evidence(x, lambda x: -0.5 * (x[:, 0] - shift) ** 2, steps=100, progress=False)


def spiked(centre=0.0, width=3.0):
    """A narrow mode with most of the mass, beside a wide one, in four dimensions."""
    prior = Normal(torch.full((4,), centre), width)

    def log_likelihood(p):
        narrow = math.log(0.8) + Normal(3.0, 0.1).log_prob(p["x"]).sum(-1)
        wide = math.log(0.2) + Normal(0.0, 1.0).log_prob(p["x"]).sum(-1)
        return torch.logaddexp(narrow, wide) - Normal(0.0, 3.0).log_prob(p["x"]).sum(-1)

    return trj.Target([trj.Model("m", {"x": prior}, log_likelihood)])


def taught(target):
    """A run through a map that was trained on draws of both modes."""
    z = torch.randn(2000, 4, generator=seeded())
    near = torch.rand(2000, 1, generator=seeded()) < 0.8
    draws = torch.where(near, 3.0 + 0.1 * z, z)
    sampler = trj.TRJSampler(target, seed=1)
    sampler.fit(steps=200, pilot={"m": {"x": draws}}, progress=False)
    return sampler.run(draws=200, chains=128, progress=False)


def seeded():
    return torch.Generator().manual_seed(3)


sinh = trj.problems.sinh_arcsinh
double = torch.float64
MOVES = {"draws": 300, "chains": 128}
CLOSED = Policy(screening=ScreeningBudget(reopenings=0, late_reopenings=0))  # what is lost stays so

# message; the run that gives it; the run that has done as it says
ADVICE = {
    "let it choose its moves": (
        r"has not converged: .*let it choose its moves \(run\(fit=\"auto\"\)",
        lambda: run(narrow(), **MOVES, warmup=10, fit=False),
        lambda: run(narrow(), **MOVES),
    ),
    "run longer": (
        r"has not converged: .*run longer \(draws=\d+ with as many chains, and a longer warmup",
        lambda: run(sinh(), draws=5, chains=64, warmup=5, fit=False),
        lambda: run(sinh(), draws=200, chains=64, warmup=400),
    ),
    "until": (
        r"until was not reached: .*more max_seconds or draws",
        lambda: run(toys.gaussians(), draws=30, chains=64, until={"probability": 0.005}),
        lambda: run(toys.gaussians(), draws=4000, chains=64, until={"probability": 0.005}),
    ),
    "larger limit": (
        r"9.% of the draws have 3 components.*raise max of Counts\(3",
        lambda: run(blobs(3), draws=60, chains=256),
        lambda: run(blobs(7), draws=300, chains=256),
    ),
    "float64": (
        r"log densities of size 1e\+06 lose digits .*use dtype=torch.float64",
        lambda: run(large(1e6), dtype=torch.float32, **MOVES),
        lambda: run(large(1e6), dtype=double, **MOVES),
    ),
    "no constants": (
        r"leave constants out of the log-likelihood",
        lambda: run(large(1e6), dtype=torch.float32, **MOVES),
        lambda: run(large(0.0), **MOVES),
    ),
    "finer numbers": (
        r"rounding decides: .*use dtype=torch.float64",
        lambda: run(date(torch.float32), dtype=torch.float32, **MOVES),
        lambda: run(date(double), dtype=double, **MOVES),
    ),
    "an offset": (
        r"or state it as an offset from 55000",
        lambda: run(date(torch.float32, width=1e4), dtype=torch.float32, **MOVES),
        lambda: run(date(torch.float32, since=55000.0, width=1e4), **MOVES),
    ),
    "a narrower prior": (
        r"or give it a prior much narrower than .*e\+0",
        lambda: run(date(torch.float32, since=55000.0, uniform=True), dtype=torch.float32, **MOVES),
        lambda: run(date(torch.float32, since=55000.0, width=100.0, uniform=True), **MOVES),
    ),
    "-inf": (
        r"points, far out .*likelihood that was NaN or \+inf.*Return finite values or -inf",
        lambda: run(logistic(False), draws=300, chains=256),
        lambda: run(logistic(True), draws=300, chains=256),
    ),
    "larger map": (
        r"the map misses a part .*use a larger map",
        lambda: fit(two_modes(), trj.transport.Identity, steps=10),
        lambda: fit(two_modes(), trj.CosmicFlow, steps=300),
    ),
    "routes": (
        r"routes to the evidences disagree .*let it choose its moves",
        lambda: run(two_modes(), draws=300, chains=64, fit=False),
        lambda: run(two_modes(), draws=300, chains=64),
    ),
    "a run of its own": (
        r"reweighting leaves .*run again with it",
        lambda: reweighted(6.0),
        lambda: fresh_run(6.0),
    ),
    "the density of the draws": (
        r"evidence: .*may not be those of log_joint",
        lambda: evidence(1.5),
        lambda: evidence(0.0),
    ),
    "pilot draws by emcee": (
        r"emcee: 20 steps of .* poor ones to train on",
        lambda: emcee_pool(sinh(), sinh().space.enumerate(), steps=20, generator=seeded()),
        lambda: emcee_pool(sinh(), sinh().space.enumerate(), steps=2000, generator=seeded()),
    ),
    "draws of all parts": (
        r"prior draws met a part .*near x = .*train on draws of your own of all parts",
        lambda: run(spiked(), policy=CLOSED, draws=200, chains=128),
        lambda: taught(spiked()),
    ),
    "a prior nearer by": (
        r"prior draws met a part .*A prior with more of its mass there",
        lambda: run(spiked(), policy=CLOSED, draws=200, chains=128),
        lambda: run(spiked(centre=2.9, width=0.4), draws=2000, chains=128),
    ),
    "more seconds": (
        r"max_seconds left time for \d+ draws a chain.*give it more",
        lambda: run(narrow(), max_seconds=1.0, fit=True),
        lambda: run(narrow(), max_seconds=8.0),
    ),
}


@pytest.mark.parametrize("name", ADVICE)
def test_advice_helps(name, request):
    if name == "more seconds":  # on a busy machine eight seconds may be too few
        request.getfixturevalue("clock")
    message, warned, advised = ADVICE[name]
    assert re.search(message, before := heard(warned), re.DOTALL), before
    assert heard(advised) == ""
