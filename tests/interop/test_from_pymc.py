"""PyMC models as models of a target."""

import copy
import math
import pickle
import warnings
from functools import partial

import numpy as np
import pytest
import torch
from torch.distributions import (
    Beta,
    Dirichlet,
    Exponential,
    Gamma,
    HalfCauchy,
    HalfNormal,
    InverseGamma,
    MixtureSameFamily,
    MultivariateNormal,
    Normal,
    StudentT,
    Uniform,
)

import trjmcmc as trj
from trjmcmc.errors import ConfigurationError, TargetError
from trjmcmc.interop.pymc_calls import Call
from trjmcmc.rng import seeded

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pm = pytest.importorskip("pymc")
    import pytensor.tensor as pt
    from pytensor.scalar.basic import UnaryScalarOp, upgrade_to_float
    from pytensor.tensor.elemwise import Elemwise

ROWS = np.random.default_rng(5)

X = ROWS.normal(size=(30, 2))

Y = X @ [0.5, 0.2] + 0.7 * ROWS.normal(size=30)

GROUP = ROWS.integers(0, 4, size=30)

COUNTS = ROWS.poisson(3.0, size=30)


def read(model, name="model", **options):
    """In NumPy, which compiles nothing."""
    return trj.from_pymc(name, model, **({"backend": "numpy"} | options))


def tensor(x):
    return torch.as_tensor(x, dtype=torch.float64)


def regression(x):
    with pm.Model(coords={"column": ["a", "b"][: x.shape[1]]}) as model:
        variance = pm.InverseGamma("variance", 3, 2)
        beta = pm.Normal("beta", 0, pt.sqrt(variance), dims="column")
        pm.Normal("y", x @ beta, pt.sqrt(variance), observed=Y)
    return model


def hierarchy():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 5)
        tau = pm.HalfCauchy("tau", 5)
        theta = pm.Normal("theta", mu, tau, shape=4)
        sigma = pm.HalfNormal("sigma", 2)
        pm.Normal("y", theta[GROUP], sigma, observed=Y)
    priors = {
        "mu": Normal(tensor(0), tensor(5)),
        "tau": HalfCauchy(tensor(5)),
        "theta": lambda p: Normal(p["mu"][:, None], p["tau"][:, None]).expand((len(p["mu"]), 4)),
        "sigma": HalfNormal(tensor(2)),
    }

    def log_likelihood(p):
        return Normal(p["theta"][:, GROUP], p["sigma"][:, None]).log_prob(tensor(Y)).sum(-1)

    return model, priors, log_likelihood


def mixture():
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.array([1.0, 2.0, 3.0]))
        ascending = pm.distributions.transforms.ordered
        mu = pm.Normal("mu", 0, 5, shape=3, transform=ascending, initval=[-1, 0, 1])
        sigma = pm.Gamma("sigma", 2, 1)
        pm.NormalMixture("y", w, mu, sigma, observed=Y)
    priors = {
        "w": Dirichlet(tensor([1.0, 2.0, 3.0])),
        "mu": trj.Ordered(Normal(tensor(0), tensor(5)), 3),
        "sigma": Gamma(tensor(2), tensor(1)),
    }

    def log_likelihood(p):
        parts = Normal(p["mu"][:, None], p["sigma"][:, None, None])
        weights = torch.distributions.Categorical(probs=p["w"][:, None])
        return MixtureSameFamily(weights, parts).log_prob(tensor(Y)).sum(-1)

    return model, priors, log_likelihood


def bounded():
    with pm.Model() as model:
        cut = pm.TruncatedNormal("cut", 0, 1, lower=-0.5, upper=2)
        tail = pm.Truncated("tail", pm.Cauchy.dist(0, 2), lower=0)
        top = pm.Gamma("top", 3, 1)
        below = pm.Uniform("below", 0, top)
        share = pm.Beta("share", 2, 3)
        pm.StudentT("y", nu=4, mu=cut + share * below, sigma=tail, observed=Y)
    priors = {
        "cut": trj.priors.TruncatedNormal(tensor(0), tensor(1), tensor(-0.5), tensor(2)),
        "tail": HalfCauchy(tensor(2)),
        "top": Gamma(tensor(3), tensor(1)),
        "below": lambda p: Uniform(torch.zeros_like(p["top"]), p["top"]),
        "share": Beta(tensor(2), tensor(3)),
    }

    def log_likelihood(p):
        where = p["cut"] + p["share"] * p["below"]
        law = StudentT(tensor(4), where[:, None], p["tail"][:, None])
        return law.log_prob(tensor(Y)).sum(-1)

    return model, priors, log_likelihood


def vectors():
    cov = np.array([[1.0, 0.3], [0.3, 2.0]])
    with pm.Model() as model:
        rate = pm.Exponential("rate", 1, shape=4)
        beta = pm.MvNormal("beta", np.zeros(2), cov)
        pm.Poisson("n", rate[GROUP] * pt.exp(0.3 * pt.tanh(X @ beta)), observed=COUNTS)
    priors = {
        "rate": Exponential(torch.ones(4, dtype=torch.float64)),
        "beta": MultivariateNormal(torch.zeros(2, dtype=torch.float64), tensor(cov)),
    }

    def log_likelihood(p):
        mean = p["rate"][:, GROUP] * (0.3 * (p["beta"] @ tensor(X).T).tanh()).exp()
        return torch.distributions.Poisson(mean).log_prob(tensor(COUNTS)).sum(-1)

    return model, priors, log_likelihood


CASES = {f.__name__: f for f in (hierarchy, mixture, bounded, vectors)}


@pytest.mark.whole
@pytest.mark.parametrize("case", CASES)
def test_the_log_joint_and_its_gradient_are_those_of_torch(case):
    """To 1e-8; the construction has judged constants, draws, batches and differences before."""
    model, priors, log_likelihood = CASES[case]()
    native = trj.Model("native", priors, log_likelihood)
    target = trj.Target([read(model), native], dtype=torch.float64)
    code = torch.zeros(40, 1, dtype=torch.long)
    theta = target.sample_prior(code, torch.Generator().manual_seed(2))
    here = target.log_joint_and_grad(code, theta, temper=0.7)
    there = target.log_joint_and_grad(code + 1, theta, temper=0.7)
    for a, b in zip(here, there, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(
        target.prior_by_slot(code, theta), target.prior_by_slot(code + 1, theta)
    )
    assert target.dim == sum(b.prior.size for b in target._densities.each[0].blocks)


@pytest.fixture(scope="module")
def pair():
    return [read(regression(X[:, :1]), "one"), read(regression(X), "two")]


def exact(x):
    """Log evidence of the regression with its normal-inverse-gamma prior: a multivariate t."""
    shape = 2 / 3 * (np.eye(len(Y)) + x @ x.T)
    y, d = tensor(Y), len(Y)
    factor = torch.linalg.cholesky(tensor(shape))
    z = torch.linalg.solve_triangular(factor, y[:, None], upper=False).square().sum()
    return float(
        math.lgamma((6 + d) / 2)
        - math.lgamma(3)
        - d / 2 * math.log(6 * math.pi)
        - factor.diagonal().log().sum()
        - (6 + d) / 2 * torch.log1p(z / 6)
    )


@pytest.fixture(scope="module")
def result(pair):
    target = trj.Target(pair)
    return trj.TRJSampler(target, seed=1).run(draws=150, chains=64, progress=False)


def test_two_models_that_share_parameters_get_their_exact_evidences(pair, result):
    assert result.target.slot_names == ["variance", "beta[0]", "beta[1]"]
    truth = {"one": exact(X[:, :1]), "two": exact(X)}
    found = result.evidence(full=True)
    for name, value in truth.items():
        row = found.loc[name]
        assert abs(row["combined"] - value) < 5 * row["combined_se"] and row["combined_se"] < 0.05
    share = 1 / (1 + math.exp(truth["one"] - truth["two"]))
    row = result.model_probabilities(full=True).loc["two"]
    assert abs(row["visits"] - share) < 5 * row["visits_se"]


def test_results_have_the_axes_of_pymc(result):
    found = result.to_arviz("two").posterior["beta"]
    assert found.dims == ("chain", "draw", "column")
    assert list(found.coords["column"].values) == ["a", "b"]


@pytest.mark.whole
def test_predictions_come_from_pymc(pair, result):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = pair[1].predict(result, draws=400, seed=3).posterior_predictive["y"].values
    draws = result.draws("two")
    mean = (draws["beta"].mean(0) * X).sum(1)
    error = found[0].std(0) / 20
    assert found.shape == (1, 400, 30) and (np.abs(found[0].mean(0) - mean) < 6 * error).all()


@pytest.mark.whole
def test_pilot_draws_come_from_pymc_and_train_a_map(pair):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        slow = {"mode": "FAST_COMPILE"}  # compiles nothing
        pilot = pair[0].pilot(60, seed=2, tune=40, chains=1, compile_kwargs=slow)
    assert {k: v.shape for k, v in pilot["one"].items()} == {"variance": (60,), "beta": (60, 1)}
    trj.TRJSampler(trj.Target([pair[0]]), seed=0).fit(steps=5, pilot=pilot, progress=False)


def test_seeds_of_prior_draws_are_torch_s(pair):
    target = trj.Target(pair)
    code = torch.ones(50, 1, dtype=torch.long)
    draws = [target.sample_prior(code, torch.Generator().manual_seed(s)) for s in (1, 1, 2)]
    assert torch.equal(draws[0], draws[1]) and not torch.equal(draws[0], draws[2])


def test_the_order_is_that_of_the_program(pair):
    """Without transforms PyMC lists the vector first, and a scale may come after what it scales."""
    assert list(pair[1].priors) == ["variance", "beta"]


@pytest.mark.whole
def test_compiled_backends_agree():
    """Value and gradient."""
    x = pt.tensor("x", dtype="float64", shape=(None, 2))
    out = [pt.exp(-x.sum(1)), pt.grad(pt.exp(-x.sum(1)).sum(), x)]
    value = ROWS.normal(size=(3, 2))
    expected = Call([x], out, "numpy")(value)
    for a, b in zip(Call([x], out, "numba")(value), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    with pytest.raises(ConfigurationError, match="backend: expected one of"):
        Call([x], out, "torch")


def test_new_names():
    model = read(regression(X[:, :1]), rename={"beta": "slope"}, check=False)
    assert list(model.priors) == ["variance", "slope"] and model.own_names["slope"] == "beta"
    assert model.dims == {"slope": ("column",)}


def test_copies_share_what_was_compiled(pair):
    assert copy.deepcopy(pair[0].fused) is not None
    with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
        pickle.dumps(pair[0])


# ---- what PyMC writes and no evidence belongs to ------------------------------------------------


def small(write, **options):
    """A model of a scale of data and what a test adds to it."""
    with pm.Model() as model:
        write()
        pm.Normal("y", 0, 1, observed=Y)
    return read(model, **options)


def test_discrete_latent_variables_are_refused():
    with pytest.raises(TargetError, match=r"discrete latent variables \['z'\].*marginalize"):
        small(lambda: pm.Bernoulli("z", 0.5))


def test_potentials_are_refused_until_they_are_placed():
    def write():
        x = pm.Normal("x", 0, 1)
        pm.Potential("penalty", -(x**2))

    with pytest.raises(TargetError, match=r"potentials \['penalty'\].*potentials=\"likelihood\""):
        small(write)
    with pytest.raises(TargetError, match='expected None or "likelihood"'):
        small(write, potentials="prior")
    model = small(write, potentials="likelihood")
    other = small(lambda: pm.Normal("x", 0, 1))
    at = {"x": tensor([0.0, 2.0])}
    torch.testing.assert_close(model.log_likelihood(at) - other.log_likelihood(at), -(at["x"] ** 2))
    torch.testing.assert_close(model.fused(at)[1], model.log_likelihood(at))


transforms = pm.distributions.transforms

NO_PRIORS = {
    "flat": (lambda: pm.Flat("x"), r"'x' of model 'model' has the improper prior pm\.Flat"),
    "half flat": (lambda: pm.HalfFlat("x"), r"improper prior pm\.HalfFlat"),
    "pairs": (lambda: pm.ICAR("x", W=np.array([[0, 1], [1, 0]])), r"improper prior pm\.ICAR"),
    "one number": (lambda: pm.DiracDelta("x", 0.5), r"'x' of model 'model' has atoms"),
    "censored": (
        lambda: pm.Censored("x", pm.Normal.dist(0, 1), lower=-1.0, upper=None),
        "has atoms",
    ),
    "hurdle": (lambda: pm.HurdleGamma("x", psi=0.8, alpha=2.0, beta=1.0), "has atoms"),
    "spike and slab": (
        lambda: pm.Mixture("x", [0.6, 0.4], [pm.DiracDelta.dist(0.0), pm.Normal.dist(0, 1)]),
        "has atoms.*two models",
    ),
    "covariances": (
        lambda: pm.Wishart("x", nu=4, V=np.eye(2)),
        r"pm\.Wishart lies in a cone.*pm\.LKJCholeskyCov",
    ),
    "correlations": (lambda: pm.LKJCorr("x", n=2, eta=2.0), r"pm\.LKJCorr lies in a cone"),
}


@pytest.mark.parametrize("name", NO_PRIORS)
def test_what_is_no_proper_density_of_numbers_is_refused(name):
    write, words = NO_PRIORS[name]
    for front in (read, partial(trj.interop.pymc_joint, "model")):
        with pm.Model() as model, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            write()
            pm.Normal("y", 0, 1, observed=Y)
        with pytest.raises(TargetError, match=words):
            front(model)


@pytest.mark.parametrize("transform", [transforms.log, transforms.Interval(-1.0, 1.0)], ids=str)
def test_transforms_do_not_truncate(transform):
    """PyMC takes the density of the whole line on a part of it, which has less than 1."""
    with pm.Model() as model:
        pm.Normal("x", 0, 1, transform=transform)
        pm.Normal("y", 0, 1, observed=Y)
    with pytest.raises(TargetError, match=r"'x' in model 'model'.*outside the support"):
        read(model)
    with pytest.raises(TargetError, match=r"'x' of model 'model': transform=.*pm\.Truncated"):
        trj.interop.pymc_joint("model", model)


def test_mini_batches_are_refused():
    rows = pm.Minibatch(Y, batch_size=5)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        pm.Normal("y", mu, 1, observed=rows, total_size=len(Y))
    with pytest.raises(TargetError, match=r"mini-batches of \['y'\]"):
        read(model)
    with warnings.catch_warnings(), pm.Model() as model:
        warnings.simplefilter("ignore")
        mu = pm.Normal("mu", 0, 1)
        pm.Normal("y", mu, 1, observed=rows)
    with pytest.raises(TargetError, match="draws random numbers"):
        read(model)


def test_models_without_data_are_refused():
    with pm.Model() as model:
        pm.Normal("mu", 0, 1)
    with pytest.raises(TargetError, match="no observed variables"):
        read(model)
    with pytest.raises(TargetError, match=r"expected a pymc\.Model"):
        read("mu ~ normal")
    for front in (trj.from_pymc, trj.interop.pymc_joint):
        with pytest.raises(TargetError, match=r"a name and then the model.*'pooled'"):
            front(model)


def test_data_are_those_of_when_it_was_read():
    with pm.Model() as model:
        data = pm.Data("data", Y)
        mu = pm.Normal("mu", 0, 1)
        pm.Normal("y", mu, 1, observed=data)
    found = read(model, check=False)
    at = {"mu": tensor([0.3])}
    before = found.log_likelihood(at), found.fused(at)[1]
    with model:
        pm.set_data({"data": Y + 10.0})
    assert torch.equal(found.log_likelihood(at), before[0])
    assert torch.equal(found.fused(at)[1], before[1])


def test_missing_data_are_parameters():
    data = np.ma.masked_invalid(np.where(np.arange(30) < 2, np.nan, Y))
    with warnings.catch_warnings(), pm.Model() as model:
        warnings.simplefilter("ignore")
        mu = pm.Normal("mu", 0, 1)
        pm.Normal("y", mu, 1, observed=data)
    found = read(model)
    assert list(found.priors) == ["mu", "y_unobserved"]
    at = {"mu": tensor([0.3]), "y_unobserved": tensor([[0.0, 1.0]])}
    expected = Normal(0.3, 1.0).log_prob(tensor(Y[2:])).sum()
    torch.testing.assert_close(found.fused(at)[1], expected[None])


def test_supports_without_a_counterpart_are_refused():
    for write in (
        lambda: pm.ZeroSumNormal("x", 1, shape=3),
        lambda: pm.LKJCholeskyCov(
            "x", n=2, eta=2, sd_dist=pm.HalfNormal.dist(1), compute_corr=False
        ),
    ):
        with pytest.raises(TargetError, match=r"'x' of model 'model'.*trj.interop.pymc_joint"):
            small(write)


def test_ordered_vectors_of_entries_that_differ_are_refused():
    """By how much their density misses 1 is not known, and no way is offered that has the gap."""

    def write():
        pm.Normal("x", [0.0, 1.0], 1, transform=transforms.ordered, initval=[0, 1])

    with pytest.raises(TargetError, match=r"'x' .*same parameters, or .*positive differences"):
        small(write)


def test_joints_of_ordered_vectors_are_refused():
    """What would be too small by n!, and where it is counted."""
    model, _, _ = mixture()
    with pytest.raises(TargetError, match=r"'mu' of model 'model'.*1 / n!.*trj.from_pymc"):
        trj.interop.pymc_joint("model", model)


@pytest.mark.whole
def test_the_precision_of_jax_is_left_alone(pair):
    """PyTensor's own way to JAX sets it for the whole process when it is imported."""
    jax = pytest.importorskip("jax")
    before = jax.config.jax_enable_x64
    try:
        for x64 in (False, True):
            jax.config.update("jax_enable_x64", x64)
            model = read(regression(X[:, :1]))
            assert model.dtype == torch.float64
            at = {"variance": tensor([1.0]), "beta": tensor([[0.1]])}
            assert model.fused(at)[0].dtype == torch.float64
            trj.interop.pymc_joint("joint", regression(X), backend="numpy")
            assert jax.config.jax_enable_x64 is x64
    finally:
        jax.config.update("jax_enable_x64", before)


def test_priors_without_draws_are_refused():
    def write():
        pm.CustomDist("x", logp=lambda value: -(value**2) / 2 - math.log(2 * math.pi) / 2)

    with pytest.raises(TargetError, match=r"'x' .*can not draw from its prior.*random="):
        small(write)


# the root of 2 pi, to two percent
NO_CONSTANT = r"does not integrate to 1 by its own draws: 2\.[3-7]"


def test_priors_without_their_constant_are_refused():
    def write():
        pm.CustomDist(
            "x", logp=lambda value: -(value**2) / 2, random=lambda rng, size: rng.normal(size=size)
        )

    with pytest.raises(TargetError, match=f"'x' .*{NO_CONSTANT}"):
        small(write)


def test_names_with_another_shape_are_told_apart():
    one = small(lambda: pm.Normal("x", 0, 1), name="one")
    two = small(lambda: pm.Normal("x", 0, 1, shape=2), name="two")
    three = small(lambda: pm.HalfNormal("x", 1), name="three")
    assert trj.Target([one, two, three]).slot_names == ["x", "x_two[0]", "x_two[1]", "x_three"]


def test_a_first_parameter_that_is_constant_does_no_harm():
    """PyTensor alone can't make a batch of such draws from a scale that varies."""

    def write():
        scale = pm.HalfNormal("scale", 1)
        pm.Normal("x", 0, scale, shape=3)

    prior = small(write, check=False).priors["x"]({"scale": tensor([1e-3, 1e3])})
    with seeded(1):
        draws = prior.sample()
    assert draws.shape == (2, 3) and bool((draws[0].abs() < 0.01).all())
    assert bool((draws[1].abs() > 0.1).all())
    assert not prior._sample.draws.one_by_one


def test_parameters_out_of_range_rule_out_their_own_point_alone():
    model = small(lambda: pm.Normal("x", 0, pm.HalfNormal("scale", 1)))
    at = {"scale": tensor([1.0, 0.0]), "x": tensor([0.5, 0.5])}
    log_prior, _ = model.fused(at)
    assert bool(log_prior[0].isfinite()) and log_prior[1] == -math.inf


# ---- distributions alone ------------------------------------------------------------------------

ALONE = {
    "normal": (lambda: pm.Normal.dist(1, 2), Normal(1.0, 2.0)),
    "positive": (lambda: pm.InverseGamma.dist(3, 2), InverseGamma(3.0, 2.0)),
    "interval": (lambda: pm.Uniform.dist(-1, 3, shape=2), Uniform(-torch.ones(2), 3.0)),
    "simplex": (lambda: pm.Dirichlet.dist(np.ones(3)), Dirichlet(torch.ones(3))),
}


@pytest.mark.parametrize("name", ALONE)
def test_distributions_are_priors_as_they_are(name):
    write, native = ALONE[name]

    def nothing(p):
        return 0.0 * p["x"].flatten(1).sum(-1) if p["x"].dim() > 1 else 0.0 * p["x"]

    models = [trj.Model(k, {"x": x}, nothing) for k, x in (("a", write()), ("b", native))]
    target = trj.Target(models, dtype=torch.float64)
    code = torch.zeros(50, 1, dtype=torch.long)
    theta = target.sample_prior(code, torch.Generator().manual_seed(1))
    torch.testing.assert_close(
        target.log_joint(code, theta), target.log_joint(code + 1, theta), rtol=1e-6, atol=1e-6
    )


NOT_ALONE = {
    "discrete": (lambda: pm.Poisson.dist(3), "expected a continuous distribution"),
    "improper": (lambda: pm.Flat.dist(), r"improper prior pm\.Flat"),
    "atoms": (lambda: pm.HurdleGamma.dist(psi=0.8, alpha=2.0, beta=1.0), "has atoms"),
    "no constant": (
        lambda: pm.CustomDist.dist(
            logp=lambda value: -(value**2) / 2,
            random=lambda rng=None, size=None: rng.normal(size=size),
            class_name="bare",
        ),
        f"of PyMC {NO_CONSTANT}",
    ),
}


@pytest.mark.parametrize("name", NOT_ALONE)
def test_distributions_that_are_no_priors(name):
    write, words = NOT_ALONE[name]
    with pytest.raises(TargetError, match=words):
        trj.Target([trj.Model("a", {"x": write()}, lambda p: p["x"])])


# ---- joint densities on PyMC's own coordinates --------------------------------------------------


def correlated():
    with pm.Model() as model:
        scale = pm.HalfNormal.dist(1.0)
        chol = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=scale, compute_corr=False)
        factor = pm.expand_packed_triangular(2, chol)
        pm.MvNormal("y", np.zeros(2), chol=factor, observed=X)
    return model


def log_joint_of_correlated(free):
    """By hand: logs of the diagonal of a Cholesky factor, and the number below it."""
    a, b, c = free[:, 0].exp(), free[:, 1], free[:, 2].exp()
    second = (b.square() + c.square()).sqrt()  # standard deviations are a and this
    r = b / second
    half_normal = HalfNormal(tensor(1)).log_prob
    log_lkj = (1 - r.square()).log() - math.log(4 / 3)  # eta = 2, density of r
    jacobian = a.log() + 2 * c.log() - 2 * second.log()  # of (a, second, r) by the coordinates
    log_prior = half_normal(a) + half_normal(second) + log_lkj + jacobian
    factor = torch.stack([torch.stack([a, 0 * b], -1), torch.stack([b, c], -1)], -2)
    law = MultivariateNormal(tensor([0.0, 0.0]), scale_tril=factor[:, None])
    return log_prior + law.log_prob(tensor(X)).sum(-1)


@pytest.mark.whole
def test_joint_densities_on_pymc_s_own_coordinates():
    """An LKJ prior, by hand; its coordinates have PyMC's names."""
    model = trj.interop.pymc_joint("lkj", correlated(), backend="numpy")
    (name,) = model.priors
    assert name.startswith("chol")
    other = trj.interop.pymc_joint(
        "b", correlated(), backend="numpy", rename={name: "factor"}, check=False
    )
    assert list(other.priors) == ["factor"] and other.own_names == {"factor": name}
    target = trj.Target([model])
    code = torch.zeros(20, 1, dtype=torch.long)
    theta = tensor(ROWS.normal(size=(20, 3)))
    found, slope = target.log_joint_and_grad(code, theta)
    leaf = theta.clone().requires_grad_()
    expected = log_joint_of_correlated(leaf)
    torch.testing.assert_close(found, expected.detach(), rtol=1e-8, atol=1e-8)
    (there,) = torch.autograd.grad(expected.sum(), leaf)
    torch.testing.assert_close(slope, there, rtol=1e-7, atol=1e-7)


class Same(UnaryScalarOp):
    """A number as it is, with twice its gradient."""

    nfunc_spec = ("positive", 1, 1)

    def impl(self, x):
        return x

    def L_op(self, inputs, outputs, gradients):
        return [2 * gradients[0]]

    pullback = L_op  # its name from PyTensor 3


@pytest.mark.parametrize("front", [read, partial(trj.interop.pymc_joint, "model", backend="numpy")])
def test_wrong_gradients_of_pytensor_are_refused(front):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        pm.Normal("y", Elemwise(Same(upgrade_to_float))(mu), 1, observed=Y)
    with pytest.raises(TargetError, match=r"gradient of the log (joint|likelihood).*; PyMC diff"):
        front(model)
    front(model, check=False)
