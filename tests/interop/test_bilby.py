"""Priors of bilby as they are, and the sampler that bilby finds by its entry point."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch.distributions import Normal

import trjmcmc as trj

bilby = pytest.importorskip("bilby")
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")

X = np.linspace(0.0, 1.0, 30)
Y = 1.0 + 2.0 * X + np.random.default_rng(1).normal(0.0, 0.3, 30)


def of(prior):
    """The torch distribution that a model makes of it."""
    return trj.priors.foreign.from_elsewhere(prior)


@pytest.mark.parametrize(
    ("make", "same"),
    [
        (lambda p: p.Normal(1.0, 2.0), stats.norm(1.0, 2.0)),
        (lambda p: p.Uniform(-1.0, 3.0), stats.uniform(-1.0, 4.0)),
        (lambda p: p.LogUniform(0.1, 10.0), stats.loguniform(0.1, 10.0)),
        (lambda p: p.Exponential(2.0), stats.expon(scale=2.0)),
        (lambda p: p.PowerLaw(2.0, 1.0, 4.0), None),
    ],
)
def test_priors_have_their_density_their_draws_and_a_slope(make, same):
    prior = of(make(bilby.core.prior))
    with torch.random.fork_rng():
        torch.manual_seed(1)
        x = prior.sample((4000,)).double()
    cdf = stats.kstest(x.numpy(), make(bilby.core.prior).cdf if same is None else same.cdf)
    assert cdf.pvalue > 1e-5
    some = x[:7].clone().requires_grad_()
    found = prior.log_prob(some)
    exact = np.log(make(bilby.core.prior).prob(x[:7].numpy()))
    assert np.allclose(found.detach(), exact, rtol=1e-6)
    slope = torch.autograd.grad(found.sum(), some)[0]
    assert torch.isfinite(slope).all()


def test_a_periodic_prior_stays_periodic():
    prior = bilby.core.prior.Uniform(0.0, 2 * math.pi, boundary="periodic")
    assert isinstance(of(prior), trj.priors.Periodic)


@pytest.mark.parametrize("kind", ["DeltaFunction", "Constraint", "Categorical", "Conditional"])
def test_priors_that_are_no_density_of_one_number_are_refused(kind):
    p = bilby.core.prior
    prior = {
        "DeltaFunction": lambda: p.DeltaFunction(1.0),
        "Constraint": lambda: p.Constraint(0.0, 1.0),
        "Categorical": lambda: p.Categorical(3),
        "Conditional": lambda: p.ConditionalUniform(
            condition_func=lambda reference, other: {}, minimum=0.0, maximum=1.0
        ),
    }[kind]()
    with pytest.raises(trj.errors.TRJError, match="of bilby"):
        of(prior)


def test_a_model_with_priors_of_bilby_has_the_evidence_of_the_same_in_torch():
    p, y = bilby.core.prior, torch.tensor(Y, dtype=torch.float32)

    def given(q):
        return Normal(q["level"][:, None] + q["slope"][:, None] * torch.tensor(X).float(), 0.3)

    def target(level, slope):
        priors = {"level": level, "slope": slope}
        return trj.Target([trj.Model("line", priors, lambda q: given(q).log_prob(y).sum(-1))])

    theirs = target(p.Normal(0.0, 3.0), p.Uniform(-5.0, 5.0))
    ours = target(Normal(0.0, 3.0), torch.distributions.Uniform(-5.0, 5.0))
    code = torch.zeros(5, 1, dtype=torch.long)
    theta = torch.randn(5, 2, generator=torch.Generator().manual_seed(1))
    assert torch.allclose(theirs.log_joint(code, theta), ours.log_joint(code, theta), atol=1e-4)


def exact():
    """Log evidence of the line by a grid, nats."""
    a, b = np.linspace(-1.0, 3.0, 401), np.linspace(-2.0, 5.0, 601)
    gap = Y - a[:, None, None] - b[:, None] * X
    log = stats.norm.logpdf(gap, 0.0, 0.3).sum(-1) + stats.norm.logpdf(a, 0.0, 3.0)[:, None]
    return np.logaddexp.reduce(log.ravel()) + math.log((a[1] - a[0]) * (b[1] - b[0]) / 10.0)


@pytest.mark.parametrize("constrained", [False, True])
def test_the_sampler_gives_the_evidence_and_the_posterior(constrained, tmp_path):
    from trjmcmc.bilby import TRJMCMC

    def line(x, a, b):
        return a + b * x

    p = bilby.core.prior
    priors = {"a": p.Normal(0.0, 3.0), "b": p.Uniform(-5.0, 5.0), "fixed": p.DeltaFunction(0.0)}
    conversion = None
    if constrained:
        priors["sum"] = p.Constraint(-20.0, 20.0)  # which nearly all points keep

        def conversion(q):
            return q | {"sum": q["a"] + q["b"]}

    likelihood = bilby.core.likelihood.GaussianLikelihood(X, Y, line, sigma=0.3)
    sampler = TRJMCMC(
        likelihood,
        p.PriorDict(priors, conversion_function=conversion),
        outdir=str(tmp_path),
        meta_data={"likelihood": None},
        seed=1,
        max_evaluations=8000,
        progress=False,
    )
    found = sampler.run_sampler()
    assert abs(found.log_evidence - exact()) < 5 * found.log_evidence_err < 1
    assert found.samples.shape[1] == 2
    assert abs(found.samples.mean(0) - [1.0, 2.0]).max() < 0.6
    assert 0 < found.meta_data["trjmcmc"]["evaluations"] <= 8000


def test_the_entry_point_names_the_sampler():
    from importlib.metadata import EntryPoint
    from pathlib import Path
    from tomllib import loads

    text = (Path(trj.__file__).parents[1] / "pyproject.toml").read_text()
    ((name, value),) = loads(text)["project"]["entry-points"]["bilby.samplers"].items()
    found = EntryPoint(name, value, "bilby.samplers").load()
    assert issubclass(found, bilby.core.sampler.base_sampler.Sampler)
    assert found.__name__.lower() == name
