"""Small targets with exact answers, for many tests."""

import math

import torch
from torch.distributions import Gamma, Normal

import trjmcmc as trj


def gaussians(scale: float = 1.0) -> trj.Target:
    """Models with 0, 1 and 3 parameters whose posteriors are Gaussian and known.

    Model m sees y ~ N(sum of its parameters, 1); parameters are N(0, scale^2).
    """
    y = 1.5

    def log_likelihood(p):
        return Normal(p["a"].sum(-1), 1.0).log_prob(torch.tensor(y))

    models = [
        trj.Model("none", {}, lambda p: Normal(0.0, 1.0).log_prob(torch.tensor(y))),
        trj.Model("one", {"a": Normal(torch.zeros(1), scale)}, log_likelihood),
        trj.Model("three", {"a": Normal(torch.zeros(3), scale)}, log_likelihood),
    ]
    log_z = {
        name: -0.5 * math.log(2 * math.pi * (1 + d * scale**2)) - 0.5 * y**2 / (1 + d * scale**2)
        for name, d in (("none", 0), ("one", 1), ("three", 3))
    }
    prior = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    z = torch.tensor(list(log_z.values()), dtype=torch.float64)
    p = (z + prior.log()).softmax(0).tolist()
    truth = trj.Truth(dict(zip(log_z, p, strict=True)), log_z, "conjugate")
    return trj.Target(models, model_prior=prior, truth=truth)


def gaussian_map(target: trj.Target, scale: float = 1.0) -> trj.Affine:
    """The exact transport of :func:`gaussians`."""
    y = 1.5
    loc, tril = torch.zeros(3, 3), torch.eye(3).repeat(3, 1, 1)
    for m, d in ((1, 1), (2, 3)):
        precision = torch.eye(d) / scale**2 + torch.ones(d, d)
        covariance = torch.linalg.inv(precision)
        loc[m, :d] = covariance @ torch.full((d,), y)
        tril[m, :d, :d] = torch.linalg.cholesky(covariance)
    return trj.Affine(target.space, loc, tril)


def conjugate_subsets(p: int = 3, n: int = 20) -> trj.Target:
    """All subsets of p columns in a Gaussian regression with known variance: exact."""
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(n, p, generator=generator)
    y = x[:, 0] - 0.4 * x[:, 1] + torch.randn(n, generator=generator)

    def log_likelihood(params, active):
        mean = params["beta"] @ x.to(params["beta"]).T
        return Normal(mean, 1.0).log_prob(y.to(mean)).sum(-1)

    space = trj.Subsets([f"x{j}" for j in range(p)], of="beta", prior=0.4)
    target = trj.Target(space, {"beta": Normal(0.0, 1.0)}, log_likelihood)
    codes = space.enumerate()
    log_z = {}
    for code, label in zip(codes, space.label(codes), strict=True):
        used = x[:, code.bool()].double()
        covariance = torch.eye(n, dtype=torch.float64) + used @ used.T
        normal = torch.distributions.MultivariateNormal(torch.zeros(n).double(), covariance)
        log_z[label] = float(normal.log_prob(y.double()))
    z = torch.tensor(list(log_z.values()), dtype=torch.float64) + space.log_prior(codes).double()
    target.truth = trj.Truth(dict(zip(log_z, z.softmax(0).tolist(), strict=True)), log_z, "exact")
    return target


def skewed_pair() -> trj.Target:
    """A positive parameter, shared by name with a model that adds a real one; prior only."""
    zero = {"log_likelihood": lambda p: torch.zeros(len(p["rate"]))}
    return trj.Target(
        [
            trj.Model("a", {"rate": Gamma(2.0, 3.0)}, **zero),
            trj.Model("b", {"rate": Gamma(5.0, 1.0), "shift": Normal(1.0, 2.0)}, **zero),
        ],
        model_prior=[0.3, 0.7],
        truth=trj.Truth({"a": 0.3, "b": 0.7}, {"a": 0.0, "b": 0.0}, "prior only"),
    )


def warmed(kernel, state, generator, steps):
    """The kernel that has learned from some steps, and where they have led."""
    with torch.no_grad():
        for _ in range(steps):
            kernel, state, _ = kernel.adapt(state, generator)
    return kernel.frozen(), state
