"""Small targets with exact answers, for many tests."""

import math

import numpy as np
import torch
from torch.distributions import Dirichlet, Gamma, LogNormal, Normal, Uniform

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
    truth = trj.problems.Truth(dict(zip(log_z, p, strict=True)), log_z, "conjugate")
    return trj.Target(models, model_prior=prior, truth=truth)


def gaussian_map(target: trj.Target, scale: float = 1.0) -> trj.transport.Affine:
    """The exact transport of :func:`gaussians`."""
    y = 1.5
    loc, tril = torch.zeros(3, 3), torch.eye(3).repeat(3, 1, 1)
    for m, d in ((1, 1), (2, 3)):
        precision = torch.eye(d) / scale**2 + torch.ones(d, d)
        covariance = torch.linalg.inv(precision)
        loc[m, :d] = covariance @ torch.full((d,), y)
        tril[m, :d, :d] = torch.linalg.cholesky(covariance)
    return trj.transport.Affine(target.space, loc, tril)


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
    target.truth = trj.problems.Truth(
        dict(zip(log_z, z.softmax(0).tolist(), strict=True)), log_z, "exact"
    )
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
        truth=trj.problems.Truth({"a": 0.3, "b": 0.7}, {"a": 0.0, "b": 0.0}, "prior only"),
    )


def warmed(kernel, state, generator, steps):
    """The kernel that has learned from some steps, and where they have led."""
    with torch.no_grad():
        for _ in range(steps):
            kernel, state, _ = kernel.adapt(state, generator)
    return kernel.frozen(), state


def blocks_and_fixed() -> trj.Target:
    """Subsets with a block of two columns, one that is always in, and a level beside them."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(30, 6, generator=generator)
    y = x[:, 0] + 0.5 * x[:, 2] - x[:, 3] + torch.randn(30, generator=generator)
    space = trj.Subsets(
        list("abcdef"), of="beta", always=["a"], blocks=[["c", "d"]], prior=[0.2, 0.5, 0.4, 0.7]
    )

    def log_likelihood(p, active):
        mean = p["beta"] @ x.to(p["beta"]).T + p["level"][:, None]
        return Normal(mean, 1.0).log_prob(y.to(mean)).sum(-1)

    priors = {"beta": Normal(0.5, 2.0), "level": Normal(0.0, 3.0)}
    return trj.Target(space, priors, log_likelihood, dtype=torch.float64)


PRIOR = torch.tensor([0.1, 0.3, 0.4, 0.2], dtype=torch.float64)  # of none to three components


def silent_components(additive: bool = True) -> trj.Target:
    """Two coordinates a component, one of which depends on what all share; data say nothing."""
    zero = trj.Additive(
        lambda p: p["mass"][:, None] * p["mass"].new_ones(3), lambda total, p: 0.0 * total.sum(-1)
    )
    return trj.Target(
        trj.Counts(3, of=("mass", "place"), prior=PRIOR),
        {
            "spread": LogNormal(0.0, 0.5),
            "mass": Gamma(2.0, 1.0),
            "place": lambda p: Normal(0.0, p["spread"][:, None]),
        },
        zero if additive else lambda p, active: 0.0 * p["mass"].sum(-1),
    )


def seen_sum(additive: bool = True, seen: float = 2.0) -> trj.Target:
    """The sum of a few skewed numbers is seen; p(k) is known by integration."""
    y = torch.tensor([seen])

    def combine(total, p):
        return Normal(total[:, 0], 0.7).log_prob(y.to(total))

    def plain(p, active):
        return combine(torch.where(active, p["a"], 0.0).sum(-1, keepdim=True), p)

    likelihood = trj.Additive(lambda p: p["a"][:, None], combine) if additive else plain
    return trj.Target(
        trj.Counts(3, of="a", prior=PRIOR), {"a": Gamma(2.0, 1.0)}, likelihood, dtype=torch.float64
    )


TIMES = torch.linspace(0.0, 1.0, 6, dtype=torch.float64)
WAVE = torch.tensor([0.9, -0.4, -1.1, 0.2, 1.3, -0.3], dtype=torch.float64)


def waves(**settings) -> trj.Target:
    """Up to two waves of unknown frequency in noise of unknown level."""

    def contribution(p):
        t = TIMES.to(p["height"])
        angle = 2 * math.pi * p["frequency"][:, None] * t - p["phase"][:, None]
        return p["height"][:, None] * angle.cos()

    def combine(total, p):
        return Normal(total, p["noise"][:, None].to(total)).log_prob(WAVE.to(total)).sum(-1)

    return trj.Target(
        trj.Counts(2, of=("frequency", "height", "phase"), prior=[0.5, 0.3, 0.2]),
        {
            "noise": LogNormal(0.0, 0.3),
            "frequency": Uniform(0.5, 4.0),
            "height": trj.priors.Rayleigh(0.7),
            "phase": trj.priors.Periodic(0.0, 2 * math.pi),
        },
        trj.Additive(contribution, combine, **settings),
    )


def exact_waves() -> tuple[torch.Tensor, float]:
    """p(k | data) of :func:`waves`, and the mean frequency of a single one.

    Height and phase are polar coordinates of normals, and integrate out; frequencies and the log of
    the noise are summed over.
    """
    f = torch.linspace(0.5, 4.0, 141, dtype=torch.float64)
    f = 0.5 * (f[1:] + f[:-1])
    z = torch.linspace(-4.0, 4.0, 33, dtype=torch.float64)
    noise, weight = (0.3 * z).exp(), Normal(0.0, 1.0).log_prob(z).softmax(0)
    angle = 2 * math.pi * f[:, None] * TIMES
    basis = torch.stack([angle.cos(), angle.sin()], 1)
    one = 0.49 * basis.mT @ basis  # covariance of a wave at each frequency
    eye = torch.eye(len(TIMES), dtype=torch.float64)
    mass = torch.zeros(3, dtype=torch.float64)
    mean = 0.0
    for sd, w in zip(noise, weight, strict=True):
        for k, signal in enumerate((0 * one[:1], one, one[:, None] + one)):
            normal = torch.distributions.MultivariateNormal(0 * WAVE, signal + sd.square() * eye)
            density = normal.log_prob(WAVE).exp()
            mass[k] += w * density.mean()
            mean += float(w * (density * f).mean()) if k == 1 else 0.0
    p = mass * torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    return p / p.sum(), mean / float(mass[1])


def exact_counts() -> torch.Tensor:
    """p(k | data) of :func:`seen_sum`."""
    return (PRIOR.log() + log_evidences_of_sum(2.0)).softmax(0)


def log_evidences_of_sum(seen: float) -> torch.Tensor:
    """Of each number in :func:`seen_sum`: a sum of k gammas is a gamma."""
    grid = torch.linspace(1e-6, 40, 400_001, dtype=torch.float64)
    height = Normal(grid, 0.7).log_prob(torch.tensor(seen))
    found = [float(Normal(0.0, 0.7).log_prob(torch.tensor(seen)))]
    for k in (1, 2, 3):
        density = (Gamma(2.0 * k, 1.0).log_prob(grid) + height).exp()
        found.append(math.log(float(torch.trapezoid(density, grid))))
    return torch.tensor(found, dtype=torch.float64)


def scattered(share, mean, sd, *, n=3000, clutter=0.0, seed=0, slots=None):
    """Draws of entries under shuffled names, some of them with clutter, and who is who."""
    rng = np.random.default_rng(seed)
    mean, sd = np.asarray(mean, dtype=float), np.asarray(sd, dtype=float)
    there = rng.random((n, len(mean))) < np.asarray(share)
    others = rng.poisson(clutter, n)
    k = slots or int((there.sum(1) + others).max())
    x = rng.standard_normal((n, k, mean.shape[1]))  # absent ones hold anything
    active, who = np.zeros((n, k), dtype=bool), np.full((n, k), -1)
    for i in range(n):
        mine = np.flatnonzero(there[i])
        own = mean[mine] + sd[mine] * rng.standard_normal((len(mine), mean.shape[1]))
        rest = rng.uniform(-8, 8, (others[i], mean.shape[1]))
        order = rng.permutation(len(own) + len(rest))
        active[i, : len(order)] = True
        x[i, : len(order)] = np.concatenate([own, rest])[order]
        who[i, : len(order)] = np.concatenate([mine, np.full(len(rest), -1)])[order]
    return x, active, who


def vectors(simplex=True, positive=True):
    """Models with vectors of two, three and four entries; prior only, so that draws are exact."""
    height = Gamma(2.0, 1.0) if positive else Normal(1.0, 2.0)

    def model(n):
        priors = {"width": Dirichlet(torch.full((n,), 2.0))} if simplex else {}
        priors["height"] = height.expand([n])
        priors["level"] = Normal(0.0, 1.0)
        return trj.Model(f"n={n}", priors, lambda p: p["level"].new_zeros(len(p["level"])))

    truth = trj.problems.Truth({"n=2": 0.2, "n=3": 0.5, "n=4": 0.3})
    return trj.Target([model(n) for n in (2, 3, 4)], model_prior=[0.2, 0.5, 0.3], truth=truth)
