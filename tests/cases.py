"""Targets of the battery: exact draws of each, and scores of draws against what is known."""

import math

import torch
from scipy.stats import norm
from torch.distributions import Gamma, LogNormal, Normal

import trjmcmc as trj
from tests import toys
from tests.battery import Case
from trjmcmc.kernel import ComponentBirthDeath, ComponentExchange, ComponentSplitMerge, start


def frequencies(space, code, p):
    """z scores of the shares of all models, against probabilities p in order, (M,)."""
    seen = torch.bincount(space.index(code), minlength=len(p)).double() / len(code)
    return (seen - p) / (p * (1 - p) / len(code)).sqrt()


def mean_score(x):
    """z score of the mean of independent numbers that should be zero."""
    return float(x.mean() / (x.std() / len(x) ** 0.5))


def from_prior(target, n, generator):
    """Independent draws of models and parameters from the prior."""
    code = target.space.sample_prior(n, generator)
    return start(target, code, target.sample_prior(code, generator))


def resampled(target, n, generator):
    """Draws by importance resampling from the prior: independent, but for what repeats."""
    code = target.space.sample_prior(40 * n, generator)
    theta = target.sample_prior(code, generator)
    weight = target.log_prior_and_likelihood(code, theta)[1].double().softmax(0)
    pick = torch.multinomial(weight, n, True, generator=generator)
    return start(target, code[pick], theta[pick])


def gaussians():
    """Three models of 0, 1 and 3 parameters: frequencies, and moments by the exact map."""
    target = toys.gaussians()
    exact, p = toys.gaussian_map(target), list(target.truth.probabilities.values())

    def draw(n, generator):
        code = torch.multinomial(torch.tensor(p), n, replacement=True, generator=generator)
        z = torch.randn(n, target.dim, generator=generator)
        theta, _ = exact.from_reference(z, code[:, None])
        return start(target, code[:, None], theta.detach())

    def scores(state):
        with torch.no_grad():
            z, _ = exact.to_reference(state.theta, state.code)
        found = frequencies(target.space, state.code, torch.tensor(p, dtype=torch.float64)).tolist()
        for m in range(len(p)):
            inside = state.code[:, 0] == m
            for slot in torch.nonzero(target.space.active(torch.tensor([[m]]))[0])[:, 0].tolist():
                x = z[inside, slot].double()
                for moment in (x, x**2 - 1, (x > 0.7).double() - norm.sf(0.7)):
                    found.append(mean_score(moment))
        return torch.tensor(found)

    return Case(target, draw, scores)


def subsets():
    """Eight subsets of a conjugate regression, by Laplace's map, which is exact here."""
    target = toys.conjugate_subsets()
    laplace, codes = trj.transport.LaplaceMap(target), target.space.enumerate()
    p = torch.tensor(list(target.truth.probabilities.values()), dtype=torch.float64)

    def draw(n, generator):
        code = codes[torch.multinomial(p, n, True, generator=generator)]
        theta, _ = laplace.push(torch.randn(n, target.dim, generator=generator), code)
        return start(target, code, theta)

    def scores(state):
        z = laplace.to_reference(state.theta, state.code)[0]
        active = target.space.active(state.code)
        found = frequencies(target.space, state.code, p).tolist()
        for slot in range(target.dim):
            x = z[active[:, slot], slot].double()
            found += [mean_score(x), mean_score(x**2 - 1)]
        return torch.tensor(found)

    return Case(target, draw, scores)


def blocks():
    """Columns in a block, one that is always in, and a level beside them, in float64."""
    target = toys.blocks_and_fixed()
    laplace, codes = trj.transport.LaplaceMap(target), target.space.enumerate()  # exact here
    p = laplace.log_evidence(codes).double().softmax(0)

    def draw(n, generator):
        code = codes[torch.multinomial(p, n, True, generator=generator)]
        theta, _ = laplace.push(torch.randn(n, target.dim, generator=generator).double(), code)
        return start(target, code, theta)

    def scores(state):
        z, _ = laplace.to_reference(state.theta, state.code)
        z = torch.where(target.space.active(state.code), z, math.nan)
        means = [mean_score(x[~x.isnan()]) for x in z.T]
        return torch.cat([frequencies(target.space, state.code, p), torch.tensor(means).double()])

    return Case(target, draw, scores)


def silent_components(additive=True):
    """Components of which data say nothing: numbers and parameters keep their prior."""
    target = toys.silent_components(additive)

    def scores(state):
        found = frequencies(target.space, state.code, toys.PRIOR).tolist()
        params = target.constrain(torch.tensor([3]), state.theta)
        for k in (1, 2, 3):
            rows = state.code[:, 0] == k
            spread = params["spread"][rows]
            mass = Gamma(2.0, 1.0).cdf(params["mass"][rows, :k].double())
            place = Normal(0.0, spread[:, None]).cdf(params["place"][rows, :k]).double()
            shared = LogNormal(0.0, 0.5).cdf(spread.double())[:, None]
            for u in (mass, place, shared):
                moments = (u - 0.5, (u - 0.5).square() - 1 / 12, (u < 0.1).double() - 0.1)
                found += [mean_score(moment.mean(1)) for moment in moments]
        return torch.tensor(found)

    return Case(target, lambda n, generator: from_prior(target, n, generator), scores)


REPEATS = 1.05  # of errors: one resampled draw in forty is there twice


def seen_sum(additive=True):
    """Components of which a sum is seen: p(k) by integration."""
    target, p = toys.seen_sum(additive), toys.exact_counts()
    return Case(
        target,
        lambda n, generator: resampled(target, n, generator),
        lambda state: frequencies(target.space, state.code, p) / REPEATS,
        1e-6,
    )


def waves(**settings):
    """Waves in noise: p(k), and moments of a single one's frequency, by integration."""
    target, (p, mean) = toys.waves(**settings), toys.exact_waves()

    def scores(state):
        single = state.code[:, 0] == 1
        values = target.constrain(torch.tensor([1]), state.theta[single])
        found = frequencies(target.space, state.code, p).tolist()
        found.append(mean_score(values["frequency"][:, 0].double() - mean))
        return torch.tensor(found) / REPEATS

    return Case(target, lambda n, generator: resampled(target, n, generator), scores)


# ---- kernels that have learned --------------------------------------------------------------


def learned(target, **settings):
    """Births and deaths whose densities have been fitted, to something near the posterior."""
    kernel = taught(ComponentBirthDeath(target, normals=3, **settings), target, 33)
    assert kernel.adapted()["births learned from"] > 100
    return kernel


def learned_split(target):
    """Splits whose distances have been fitted to what was accepted."""
    kernel = taught(ComponentSplitMerge(target), target, 65)
    assert kernel.adapted()["distances learned from"] > 100
    return kernel


def learned_exchange(target, pair):
    """Exchanges of so many for so many, whose newborns are like those of the posterior."""
    return taught(ComponentExchange(target, pairs={pair: 1}), target, 33)


def taught(kernel, target, steps):
    generator = torch.Generator().manual_seed(9)
    return toys.warmed(kernel, from_prior(target, 400, generator), generator, steps)[0]
