"""Models that were written elsewhere: in probabilistic languages, with their priors and data."""

from .from_stan import stan_joint
from .pymc_joint import pymc_joint

__all__ = ["pymc_joint", "stan_joint"]
