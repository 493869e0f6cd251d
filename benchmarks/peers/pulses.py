"""How many pulses? By Eryn and by BayesBay; births of both come from the prior."""

import math
import random
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

import trjmcmc as trj
from trjmcmc.problems.pulses import AMPLITUDE, CENTRE, NOISE_SD, WIDTH

from .ensemble import Ensemble, Row, of_visits
from .problems import LOG_2PI, Array, Data

RANGES = (AMPLITUDE, CENTRE, WIDTH)
SPREAD = np.array([(b - a) / math.sqrt(12) for a, b in RANGES])  # of the priors
PULSE = "pulse"
# p(0), ..., p(8) by three runs of component moves at six temperatures that swap within columns, 64
# columns each and 50 000 steps in all; standard errors up to .003, from the spread of the columns
TRUTH = (0.0, 0.0, 0.00013, 0.71899, 0.23943, 0.03788, 0.00339, 0.00018, 0.0)
EVERY = 100  # steps of BayesBay between two looks at its chains


class PulsesLikelihood:
    """Of leaves (amplitude, centre, width), those of a walker side by side; one value a walker."""

    def __init__(self, target: Any) -> None:
        self.t, self.y, self.calls = target.t.numpy(), target.y.numpy(), 0
        self.constant = -len(self.y) * (math.log(NOISE_SD) + LOG_2PI / 2)
        self.of_none = float(self.of(np.zeros_like(self.y)))

    def __call__(self, leaves: Array, owner: NDArray[np.int64]) -> Array:
        first = np.flatnonzero(np.diff(owner, prepend=-1))
        self.calls += len(first)
        return self.of(np.add.reduceat(self.pulses(leaves), first))

    def one(self, leaves: Array) -> float:
        """Of the leaves of one walker."""
        self.calls += 1
        return float(self.of(self.pulses(leaves).sum(0)))

    def pulses(self, leaves: Array) -> Array:
        z = (self.t - leaves[:, 1:2]) * (math.sqrt(0.5) / leaves[:, 2:])
        np.multiply(z, z, out=z)
        np.exp(np.negative(z, out=z), out=z)
        return np.multiply(z, leaves[:, :1], out=z)

    def of(self, signal: Array) -> Array:
        rest = self.y - signal
        return self.constant - np.einsum("...i,...i->...", rest, rest) / (2 * NOISE_SD**2)


def pulses_target(data: Data) -> trj.Target:
    target = trj.problems.pulses()
    names = target.space.label(target.space.enumerate())
    target.truth = trj.problems.Truth(dict(zip(names, TRUTH, strict=True)), source="long runs")
    return target


def eryn_tutorial(target: Any, data: Data, seed: int, walkers: int) -> Ensemble:
    """Walkers, temperatures and step of Eryn's own example; one likelihood at a time."""
    return eryn_pulses(
        target,
        seed,
        walkers=20,
        temperatures=8,
        steps=[np.full(3, 1e-5**0.5)],
        vectorize=False,
    )


def eryn_tuned(target: Any, data: Data, seed: int, walkers: int) -> Ensemble:
    """The best of seventeen settings: walkers, temperatures, steps, tries of a birth."""
    steps = [0.05 * SPREAD, 0.3 * SPREAD]
    return eryn_pulses(target, seed, walkers=32, temperatures=4, steps=steps)


def eryn_pulses(
    target: Any,
    seed: int,
    *,
    walkers: int,
    temperatures: int,
    steps: list[Array],
    vectorize: bool = True,
) -> Ensemble:
    """From the prior; walkers swap temperatures in columns, which are independent of each other."""
    from eryn.ensemble import EnsembleSampler
    from eryn.moves import DistributionGenerateRJ, GaussianMove
    from eryn.prior import ProbDistContainer, uniform_dist
    from eryn.state import State

    most = target.space.max
    likelihood = PulsesLikelihood(target)
    prior = {PULSE: ProbDistContainer({i: uniform_dist(*x) for i, x in enumerate(RANGES)})}
    limits = {"nleaves_max": {PULSE: most}, "nleaves_min": {PULSE: 0}}
    sampler = EnsembleSampler(
        walkers,
        {PULSE: 3},
        likelihood if vectorize else likelihood.one,
        prior,
        provide_groups=vectorize,
        vectorize=vectorize,
        branch_names=[PULSE],
        tempering_kwargs={"ntemps": temperatures, "permute": False},
        moves=[GaussianMove({PULSE: np.diag(step**2)}) for step in steps],
        rj_moves=DistributionGenerateRJ(prior, **limits),
        fill_zero_leaves_val=likelihood.of_none,
        **limits,
    )
    rng = np.random.default_rng(seed)
    count = rng.integers(0, most + 1, (temperatures, walkers, 1))
    leaves = np.stack([rng.uniform(*x, (temperatures, walkers, most)) for x in RANGES], -1)
    return Ensemble(
        sampler,
        State({PULSE: leaves}, inds={PULSE: np.arange(most) < count}),
        likelihood,
        lambda s: s.branches[PULSE].nleaves[0],
        target.space.label(target.space.enumerate()),
    )


def run_bayesbay(
    target: Any, data: Data, budget: float, seed: int, *, chains: int = 10, step: float = 0.1
) -> Row:
    """Until the budget is spent, on one core.

    BayesBay cannot move where there are no pulses: it has at least one. No draw of any sampler
    was without.
    """
    import bayesbay as bb

    begun = time.perf_counter()
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 it has no generator of its own
    likelihood = PulsesLikelihood(target)

    def log_likelihood(state: Any) -> float:
        if not state.saved_in_cache("value"):
            values = state[PULSE].param_values
            leaves = np.stack([values[str(i)] for i in range(3)], 1)
            state.save_to_cache("value", likelihood.one(leaves))
        return state.load_from_cache("value")

    space = bb.parameterization.ParameterSpace(
        PULSE,
        n_dimensions_min=1,
        n_dimensions_max=target.space.max,
        n_dimensions_init_range=1,
        parameters=[
            bb.prior.UniformPrior(str(i), *ends, perturb_std=step * spread)
            for i, (ends, spread) in enumerate(zip(RANGES, SPREAD, strict=True))
        ],
    )
    inversion = bb.BayesianInversion(
        bb.parameterization.Parameterization(space),
        bb.likelihood.LogLikelihood(
            log_like_ratio_func=lambda old, new: log_likelihood(new) - log_likelihood(old)
        ),
        n_chains=chains,
        on_forward_error="raise",
    )
    sampler = bb.samplers.VanillaSampler()
    sampler.initialize(inversion.chains)
    sampler.parallel_config = {"n_jobs": 1}
    seen = []
    while time.perf_counter() - begun < budget:
        sampler.advance_chain(EVERY, save_every=2**62, verbose=False)
        seen.append(np.array([x.current_state[PULSE].n_dimensions for x in sampler.chains], "i1"))
    names = target.space.label(target.space.enumerate())
    row = of_visits(seen, names, f"{chains} chains, {EVERY * len(seen)} steps")
    return row | {"steps": EVERY * row["steps"], "calls": likelihood.calls}
