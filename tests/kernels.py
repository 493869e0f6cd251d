"""Set-ups of kernels that several test modules go through."""

import torch

import trjmcmc as trj
from tests import toys
from tests.cases import learned, learned_split
from tests.maps import MovesSpares, rough_affine, rough_flow, shaken, shaken_mixture
from trjmcmc.fit import Pool
from trjmcmc.kernel import (
    HMC,
    BirthDeath,
    CommonWalk,
    ComponentBirthDeath,
    ComponentSplitMerge,
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
    SharedWalk,
    saturated_switch,
    start,
)
from trjmcmc.pilot.modes import Modes, mode_map
from trjmcmc.transport import StudentT
from trjmcmc.transport.normals import gaussian_mixture


def densely(target):
    """HMC in the metric of some steps from the prior."""
    generator = torch.Generator().manual_seed(3)
    code = target.space.sample_prior(300, generator)
    state = start(target, code, target.sample_prior(code, generator))
    return toys.warmed(HMC(target, leaps=3, metric="dense"), state, generator, 60)[0]


def rough_realnvp(target):
    return shaken(trj.transport.ConditionalRealNVP(target.space, layers=3, hidden=(16,)))


def two_modes(target):
    """A wrong idea of where two modes of each model are; the point in each is kept."""
    loc = torch.full((2, 3), 0.8)
    loc[1] = -0.3
    modes = Modes(torch.tensor([0.5, 0.5]), loc, 0.7 * torch.eye(3).repeat(2, 1, 1))
    return mode_map(target.space, [modes] * 3)


def some_draws(target, n):
    """Draws near those of the posterior, wider and shifted."""
    generator = torch.Generator().manual_seed(2)
    code = torch.arange(3).repeat(n)[:, None]
    with torch.no_grad():
        theta = rough_affine(target).push(torch.randn(3 * n, 3, generator=generator), code)[0]
    return code, torch.where(target.space.active(code), theta, 0.0)


def rough_normal(target):
    return NormalInverseGamma(target, *some_draws(target, 500))


def rough_marginals(target):
    code, theta = some_draws(target, 500)
    generator = torch.Generator().manual_seed(1)
    return Marginals.fitted(target.space, code, theta, 2, generator)


def fitted_normals(target):
    code, theta = some_draws(target, 500)
    pool = Pool(code, theta, torch.zeros(len(code)))
    return gaussian_mixture(target.space, pool, torch.Generator().manual_seed(1), components=3)


# name: function of the target of cases.gaussians that makes the kernel
KERNELS = {
    "TRJ, rough affine": lambda t: Jump(t, rough_affine(t), Fixed(t.space)),
    "refreshed jump, flow": lambda t: Jump(t, rough_flow(t), Fixed(t.space), rho=0.7),
    "independence jump": lambda t: Jump(t, rough_affine(t), Fixed(t.space, other=True), rho=0.0),
    "random rho": lambda t: Jump(t, rough_flow(t), Fixed(t.space, other=True), rho=(0.2, 1.0)),
    "Student-t reference": lambda t: Jump(
        t, rough_flow(t, reference=StudentT(4)), Fixed(t.space), rho=0.5
    ),
    "a share of fresh proposals": lambda t: Jump(
        t, rough_flow(t), Fixed(t.space, other=True), rho=0.95, fresh=0.3
    ),
    "weighted proposal": lambda t: Jump(
        t, rough_affine(t), Fixed(t.space, torch.tensor([0.1, 0.6, 0.3]).log(), other=True)
    ),
    "conditional RealNVP": lambda t: Jump(t, rough_realnvp(t), Fixed(t.space), rho=0.8),
    "map that moves spare slots": lambda t: Jump(t, MovesSpares(t.space), Fixed(t.space), rho=0.8),
    "jump through a mixture": lambda t: Jump(
        t, shaken_mixture(t.space), Fixed(t.space, other=True), rho=0.6
    ),
    "jump through a mixture of flows": lambda t: Jump(
        t, shaken_mixture(t.space, outer=False), Fixed(t.space), rho=0.9, fresh=0.2
    ),
    "pCN through a mixture": lambda t: CrankNicolson(
        t, shaken_mixture(t.space, reference=StudentT(4))
    ),
    "from mode to mode": lambda t: Jump(t, two_modes(t), rho=1.0),
    "pCN": lambda t: CrankNicolson(t, rough_flow(t)),
    "pCN, spare slots move": lambda t: CrankNicolson(t, MovesSpares(t.space), rho=0.5),
    "random walk": lambda t: RandomWalk(t),
    "random walk in reference space": lambda t: RandomWalk(t, shaken_mixture(t.space)),
    "random walk, spare slots move": lambda t: RandomWalk(t, MovesSpares(t.space)),
    "HMC": lambda t: HMC(t, leaps=3, step_size=0.6),
    "HMC in a dense metric": densely,
    "HMC in reference space": lambda t: HMC(t, rough_flow(t), leaps=3, step_size=0.6),
    "HMC through a mixture": lambda t: HMC(
        t, shaken_mixture(t.space, reference=StudentT(4)), leaps=2, step_size=0.6
    ),
    "HMC, spare slots move": lambda t: HMC(t, MovesSpares(t.space), leaps=2, step_size=0.4),
    "mixture of proposals": lambda t: Jump(
        t,
        rough_flow(t),
        MixtureProposal([Fixed(t.space, torch.tensor([0.3, -0.2, 1.0])), Fixed(t.space)]),
    ),
    "mixture of kernels": lambda t: MixtureKernel(
        [Jump(t, rough_flow(t), Fixed(t.space)), RandomWalk(t), HMC(t, leaps=2)], [0.5, 0.2, 0.3]
    ),
    "birth-death": lambda t: BirthDeath(t, Fixed(t.space)),
    "births by marginals, new values": lambda t: Cycle(
        [
            MarginalJump(t, rough_marginals(t), Fixed(t.space)),
            MarginalRefresh(t, rough_marginals(t)),
        ]
    ),
    "two births and deaths": lambda t: Cycle(
        [BirthDeath(t, Fixed(t.space)), BirthDeath(t, Fixed(t.space))]
    ),
    "saturated switch": lambda t: saturated_switch(t, Fixed(t.space, other=True), scale=0.7),
    "normal independence": lambda t: IndependenceJump(t, rough_normal(t), Fixed(t.space)),
    "jump through fitted normals": lambda t: Jump(t, fitted_normals(t), Fixed(t.space), rho=0.8),
    "cycle": lambda t: Cycle(
        [
            Jump(t, rough_flow(t), Fixed(t.space), rho=0.9),
            (CrankNicolson(t, rough_affine(t)), 2),
            RandomWalk(t, scale=2.0),
        ]
    ),
}


def classical(target):
    return BirthDeath(target, Neighbours(target.space))


COMPONENT_KERNELS = {
    "births from the prior": lambda t: ComponentBirthDeath(t, prior_share=1.0),
    "learned births": learned,
    "walk": ComponentWalk,
    "walks": lambda t: ComponentWalk(t, times=3),
    "splits": ComponentSplitMerge,
    "learned splits": learned_split,
    "shared": lambda t: Cycle([learned(t), SharedWalk(t)]),
    "common": lambda t: Cycle([learned(t), CommonWalk(t)]),
    "all": lambda t: Cycle(
        [learned(t), learned_split(t), (ComponentWalk(t), 2), classical(t), RandomWalk(t)]
    ),
}
