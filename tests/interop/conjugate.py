"""A regression whose evidences are known: each language states it, and must find them.

The variance is inverse gamma (3, 2), slopes are normal with that variance, and so is the noise:
y has a Student-t distribution with 6 degrees of freedom and scale 2/3 (I + X X').
"""

import math

import numpy as np
import torch
from torch.distributions import Normal

N = 30


def _data():
    rng = np.random.default_rng(11)
    x = rng.standard_normal((N, 2))
    y = x @ np.array([0.6, 0.25]) + 0.8 * rng.standard_normal(N)
    return torch.as_tensor(x), torch.as_tensor(y)


X, Y = _data()


def log_evidence(columns):
    """Log density of the data under the Student-t distribution, nats."""
    x = X[:, :columns]
    scale = 2 / 3 * (torch.eye(N, dtype=torch.float64) + x @ x.T)
    df = 6.0
    quadratic = float(Y @ torch.linalg.solve(scale, Y))
    return (
        math.lgamma((df + N) / 2)
        - math.lgamma(df / 2)
        - N / 2 * math.log(df * math.pi)
        - 0.5 * float(torch.logdet(scale))
        - (df + N) / 2 * math.log1p(quadratic / df)
    )


LOG_EVIDENCES = {"one": log_evidence(1), "two": log_evidence(2)}

PROBABILITY = 1 / (1 + math.exp(LOG_EVIDENCES["one"] - LOG_EVIDENCES["two"]))  # of two columns


def log_joint(columns):
    """The joint of the logarithm of the variance and the slopes, in batches."""

    def function(p):
        x, y = X[:, :columns].to(p["beta"]), Y.to(p["beta"])
        variance = p["log_variance"].exp()
        sd = variance.sqrt()[:, None]
        prior = math.log(4.0) - 3 * p["log_variance"] - 2 / variance  # of the logarithm
        prior = prior + Normal(0.0, sd).log_prob(p["beta"]).sum(-1)
        return prior + Normal(p["beta"] @ x.T, sd).log_prob(y).sum(-1)

    return function


def agrees(result):
    """p(model) and both evidences within 4.5 standard errors, which are small enough to judge."""
    p, se = result.model_probabilities(full=True).loc["two", ["combined", "combined_se"]]
    assert se < 0.005 and abs(p - PROBABILITY) < 4.5 * se
    table = result.evidence(full=True)
    for name, exact in LOG_EVIDENCES.items():
        value, se = table.loc[name, ["combined", "combined_se"]]
        assert se < 0.02 and abs(value - exact) < 4.5 * se
