"""Successive-conditional simulation: parameters, data and kernel steps in turn.

Each chain has data of its own. Parameters come from the prior and data from the likelihood; then
kernel steps given the data and fresh data given the parameters follow each other. Throughout,
parameters keep their prior distribution (Geweke 2004). Six kernels stand for all by default.
"""

import math

import pytest
import torch
from scipy.stats import gamma, norm
from torch.distributions import Gamma, Normal

import trjmcmc as trj
from tests.cases import learned, learned_split
from trjmcmc.fit import Pool
from trjmcmc.kernel import (
    HMC,
    BirthDeath,
    ComponentWalk,
    CrankNicolson,
    Cycle,
    Fixed,
    IndependenceJump,
    Jump,
    MarginalJump,
    MarginalRefresh,
    Marginals,
    MixtureKernel,
    MixtureProposal,
    Neighbours,
    NormalInverseGamma,
    RandomWalk,
    saturated_switch,
    start,
)
from trjmcmc.transport import SortedComponents as Ordered
from trjmcmc.transport.normals import gaussian_mixture

ALPHA = 1e-5
CHAINS, ROUNDS = 40_000, 8
PRIOR = (0.3, 0.3, 0.4)
CHANCES = torch.tensor([0.0, 0.5, -0.3])


class Joint:
    """No, one or two skewed parameters whose sum is seen with noise, by each chain its own."""

    def __init__(self):
        self.y = torch.zeros(CHAINS)
        space = trj.Counts(2, of="a", prior=PRIOR)
        self.target = trj.Target(space, {"a": Gamma(2.0, 1.0)}, self.log_likelihood)

    def log_likelihood(self, params, active):
        mean = params["a"].sum(-1)
        return Normal(mean, 1.0).log_prob(self.y[: len(mean)])

    def see(self, state, generator):
        """Fresh data; the density of the state follows them."""
        active = self.target.space.active(state.code)
        mean = torch.where(active, state.theta.exp(), 0.0).sum(-1)
        self.y = mean + torch.randn(CHAINS, generator=generator)
        return start(self.target, state.code, state.theta)

    def first(self, generator):
        code = self.target.space.sample_prior(CHAINS, generator)
        theta = self.target.sample_prior(code, generator)
        return self.see(start(self.target, code, theta), generator)

    def scores(self, state):
        """z-scores of model frequencies, of the parameters' quantiles, and of data moments."""
        k, found = state.code[:, 0], []
        for m, p in enumerate(PRIOR):
            share = float((k == m).double().mean())
            found.append((share - p) / math.sqrt(p * (1 - p) / CHAINS))
        for m, slot in ((1, 0), (2, 0), (2, 1)):
            x = torch.as_tensor(gamma.cdf(state.theta[k == m, slot].double().exp(), 2.0))
            for moment in (x - 0.5, (x - 0.5).square() - 1 / 12, (x < 0.1).double() - 0.1):
                found.append(float(moment.mean() / (moment.std() / len(x) ** 0.5)))
        x = torch.as_tensor(gamma.cdf(state.theta[k == 2].double().exp(), 2.0)) - 0.5
        both = x[:, 0] * x[:, 1]
        found.append(float(both.mean() / (both.std() / len(both) ** 0.5)))
        return torch.tensor(found)


def flow(target):
    made = trj.transport.CosmicFlow(target.space, layers=2, hidden=(16,))
    generator = torch.Generator().manual_seed(8)
    with torch.no_grad():
        for p in made.parameters():
            p.add_(0.1 * torch.randn(p.shape, generator=generator))
    return made


def prior_draws(target):
    generator = torch.Generator().manual_seed(3)
    code = target.space.sample_prior(2000, generator)
    return code, target.sample_prior(code, generator)


def fitted_normals(target):
    code, theta = prior_draws(target)
    pool = Pool(code, theta, torch.zeros(len(code)))
    return gaussian_mixture(target.space, pool, torch.Generator().manual_seed(1), components=3)


def marginals(target):
    generator = torch.Generator().manual_seed(2)
    return Marginals.fitted(target.space, *prior_draws(target), 2, generator)


KERNELS = {
    "jump": lambda t: Jump(t, flow(t), Fixed(t.space, other=True), rho=0.8),
    "jump through fitted normals": lambda t: Jump(t, fitted_normals(t), Neighbours(t.space)),
    "mixture of proposals": lambda t: Jump(
        t,
        flow(t),
        MixtureProposal([Fixed(t.space, CHANCES), Fixed(t.space)], [0.7, 0.3]),
    ),
    "birth-death": lambda t: BirthDeath(t, Neighbours(t.space)),
    "births by marginals, new values": lambda t: Cycle(
        [MarginalJump(t, marginals(t), Neighbours(t.space)), MarginalRefresh(t, marginals(t))]
    ),
    "saturated switch": lambda t: saturated_switch(t, Neighbours(t.space)),
    "normal and inverse gamma": lambda t: IndependenceJump(
        t, NormalInverseGamma(t, *prior_draws(t)), Fixed(t.space)
    ),
    "pCN": lambda t: CrankNicolson(t, flow(t)),
    "random walk in reference space": lambda t: RandomWalk(t, flow(t)),
    "HMC": lambda t: HMC(t, leaps=3),
    "HMC in reference space": lambda t: HMC(t, flow(t), leaps=3),
    "cycle": lambda t: Cycle([BirthDeath(t, Fixed(t.space, CHANCES)), (RandomWalk(t), 2)]),
    "learned births": learned,
    "learned splits": learned_split,
    "component walk": ComponentWalk,
    "jump in order": lambda t: Jump(t, Ordered(flow(t)), Fixed(t.space, other=True), rho=0.8),
    "components": lambda t: Cycle(
        [learned(t), learned_split(t), ComponentWalk(t), Jump(t, Ordered(flow(t)), Fixed(t.space))]
    ),
    "mixture of kernels": lambda t: MixtureKernel(
        [BirthDeath(t, Neighbours(t.space)), RandomWalk(t), Jump(t, flow(t), Fixed(t.space))]
    ),
}


def simulate(kernel, joint, generator):
    state = joint.first(generator)
    with torch.no_grad():
        for _ in range(ROUNDS):
            state, _ = kernel.step(state, generator)
            state = joint.see(state, generator)
    return joint.scores(state)


# One of each way in which a kernel meets data: through a map, from model to model without one,
# inside a model by values and by gradients, and component by component. The
# others differ from these in their ratios only, which test_kernel.py and test_components.py check
# on data that stay as they are.
REPRESENTATIVES = {"jump", "birth-death", "HMC", "components"}


@pytest.mark.parametrize(
    "name",
    [n if n in REPRESENTATIVES else pytest.param(n, marks=pytest.mark.slow) for n in KERNELS],
)
def test_getting_it_right(name, generator):
    joint = Joint()
    z = simulate(KERNELS[name](joint.target), joint, generator)
    assert float(z.abs().max()) < float(norm.isf(ALPHA / 2 / len(z)))


@pytest.mark.whole
def test_a_kernel_that_sees_other_data_gets_it_wrong(generator):
    """The negative control: one chain's data stand for its neighbour's."""
    joint = Joint()
    kernel = KERNELS["jump"](joint.target)
    see = joint.see

    def shifted(state, generator):
        after = see(state, generator)
        joint.y = joint.y.roll(1)
        return start(joint.target, after.code, after.theta)

    joint.see = shifted
    assert float(simulate(kernel, joint, generator).abs().max()) > 10
