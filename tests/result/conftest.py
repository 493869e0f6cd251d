"""Results that several files of tests look at."""

import warnings

import pytest

import trjmcmc as trj


@pytest.fixture(scope="session")
def components():
    """A short run over the number of components of a mixture."""
    target = trj.problems.gaussian_mixture_2d(true=2, points=50, most=3)
    kernel = trj.kernel.Cycle(
        [trj.kernel.ComponentBirthDeath(target), trj.kernel.ComponentWalk(target)]
    )
    with warnings.catch_warnings(action="ignore"):  # it is a short run
        sampler = trj.TRJSampler(target, kernel=kernel, seed=1)
        return sampler.run(70, chains=64, warmup=60, fit=False, progress=False)
