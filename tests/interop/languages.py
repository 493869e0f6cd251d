"""The conjugate pair of ``conjugate.py`` as each front end takes it, languages imported when asked.

``PAIRS`` has by front end a function that gives the two models, of one column and of two. All but
joints call their parameters variance and beta, and the coordinates of all are the logarithm of the
variance and beta.
"""

import math
import warnings
from functools import partial

import numpy as np
import torch
from torch.distributions import InverseGamma, Normal

import trjmcmc as trj
from tests.interop import conjugate
from tests.interop.conjugate import X, Y
from tests.interop.stand_in import DOUBLE, PROGRAMS, Lower, Program, Real, StandIn

COLUMNS = {"one": 1, "two": 2}

ONE = torch.ones((), dtype=DOUBLE)


def each(model, **options):
    return [model(name, k, **options) for name, k in COLUMNS.items()]


# ---- torch ------------------------------------------------------------------------------------


def priors(k):
    return {
        "variance": InverseGamma(3 * ONE, 2 * ONE),
        "beta": lambda p: Normal(0 * ONE, p["variance"].sqrt()[:, None].expand(-1, k)),
    }


def in_torch(name, k):
    x = X[:, :k]

    def log_likelihood(p):
        return Normal(p["beta"] @ x.T, p["variance"].sqrt()[:, None]).log_prob(Y).sum(-1)

    return trj.Model(name, priors(k), log_likelihood, dtype=DOUBLE)


def as_joint(name, k):
    shapes = {"log_variance": (), "beta": k}
    return trj.Joint(name, shapes, conjugate.log_joint(k), dtype=DOUBLE)


# ---- PyMC -------------------------------------------------------------------------------------


def pymc_model(k):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pymc as pm
    with pm.Model() as model:
        variance = pm.InverseGamma("variance", 3, 2)
        beta = pm.Normal("beta", 0, variance**0.5, shape=k)
        pm.Normal("y", X[:, :k].numpy() @ beta, variance**0.5, observed=Y.numpy())
    return model


def in_pymc(name, k, **options):
    return trj.from_pymc(name, pymc_model(k), **options)


def as_pymc_joint(name, k, **options):
    return trj.interop.pymc_joint(name, pymc_model(k), **options)


# ---- NumPyro, JAX ------------------------------------------------------------------------------


def numpyro_regression(x, y):
    import numpyro
    import numpyro.distributions as dist

    variance = numpyro.sample("variance", dist.InverseGamma(3.0, 2.0))
    sd = variance**0.5
    beta = numpyro.sample("beta", dist.Normal(0.0, sd).expand([x.shape[1]]).to_event(1))
    numpyro.sample("y", dist.Normal(x @ beta, sd), obs=y)


def in_numpyro(name, k):
    in_float64()
    return trj.from_numpyro(name, numpyro_regression, X[:, :k].numpy(), Y.numpy())


def in_jax(name, k):
    in_float64()
    from jax.scipy.stats import norm

    x, y = X[:, :k].numpy(), Y.numpy()

    def log_likelihood(p):
        return norm.logpdf(y, x @ p["beta"], p["variance"] ** 0.5).sum()

    return trj.Model(name, priors(k), trj.from_jax(log_likelihood))


def in_float64():
    import jax

    jax.config.update("jax_enable_x64", True)


# ---- Pyro -------------------------------------------------------------------------------------


def pyro_regression(x, y):
    import pyro
    import pyro.distributions as dist

    variance = pyro.sample("variance", dist.InverseGamma(3.0, 2.0))
    slopes = dist.Normal(0.0, variance.sqrt()).expand([x.shape[1]]).to_event(1)
    beta = pyro.sample("beta", slopes)
    pyro.sample("y", dist.Normal(x @ beta, variance.sqrt()).to_event(1), obs=y)


def in_pyro(name, k):
    return trj.from_pyro(name, pyro_regression, X[:, :k], Y)


# ---- Stan: a class with BridgeStan's methods ---------------------------------------------------


def by_torch(values, data):
    x = torch.tensor(data["x"], dtype=DOUBLE)
    variance, beta = values["variance"], values["beta"]
    found = InverseGamma(3 * ONE, 2 * ONE).log_prob(variance)
    found = found + Normal(0.0, variance.sqrt()).log_prob(beta).sum()
    if not data["prior_only"]:
        found = found + Normal(x @ beta, variance.sqrt()).log_prob(Y).sum()
    return found


LOG_4, LOG_2PI = math.log(4.0), math.log(2 * math.pi)

MATRICES = {k: np.ascontiguousarray(X[:, :k].numpy()) for k in (1, 2)}


def by_hand(u, data, jacobian):
    """The same in NumPy, with its gradient: inverse gamma (3, 2) has 2^3 / Gamma(3) = 4."""
    log_variance, beta = u[0], u[1:]
    precision, k = math.exp(-log_variance), len(u) - 1
    slope = np.empty(k + 1)
    squares = beta @ beta
    value = LOG_4 - 4 * log_variance - 2 * precision
    value -= 0.5 * (k * (LOG_2PI + log_variance) + squares * precision)
    slope[0] = -4 + 2 * precision - 0.5 * (k - squares * precision)
    slope[1:] = -beta * precision
    if not data["prior_only"]:
        x = MATRICES[k]
        gap = Y.numpy() - x @ beta
        squares = gap @ gap
        value -= 0.5 * (len(gap) * (LOG_2PI + log_variance) + squares * precision)
        slope[0] -= 0.5 * (len(gap) - squares * precision)
        slope[1:] += gap @ x * precision
    if jacobian:
        value, slope[0] = value + log_variance, slope[0] + 1
    return value, slope


def simulated(values, rng):
    return {"y_new": float(values["beta"].sum()) + rng.standard_normal((2, 3))}


for k in (1, 2):
    PROGRAMS[f"regression{k}.stan"] = Program(
        {"variance": Lower(), "beta": Real(k)}, by_torch, simulated, {"y_new": (2, 3)}, by_hand
    )


def program(k):
    return StandIn(f"regression{k}.stan", f'{{"x": {X[:, :k].tolist()}, "prior_only": 0}}')


def in_stan(name, k):
    return trj.from_stan(name, program(k), priors(k))


def as_stan_joint(name, k):
    return trj.interop.stan_joint(name, program(k))


# ---- all of them --------------------------------------------------------------------------------

PAIRS = {
    "torch": partial(each, in_torch),
    "Joint": partial(each, as_joint),
    "from_pymc": partial(each, in_pymc),
    "pymc_joint": partial(each, as_pymc_joint),
    "from_numpyro": partial(each, in_numpyro),
    "from_jax": partial(each, in_jax),
    "from_pyro": partial(each, in_pyro),
    "from_stan": partial(each, in_stan),
    "stan_joint": partial(each, as_stan_joint),
}

NEEDED = {"from_pymc": "pymc", "pymc_joint": "pymc", "from_numpyro": "numpyro"} | {
    "from_jax": "jax",
    "from_pyro": "pyro",
}
