"""Transdimensional Bayesian inference with transport maps.

A model list goes in, p(model | data) comes out, exact however poor the maps are::

    import trjmcmc as trj

    target = trj.Target([trj.Model("a", priors, log_likelihood), trj.Model("b", ...)])
    result = trj.TRJSampler(target).run()
    result.model_probabilities()
"""

from . import errors, estimate, fit, kernel, problems, transport
from .estimate import Estimate
from .prior import Ordered
from .result import Result, load
from .sampler import TRJSampler
from .space import Counts, LogWeights, Space, Subsets
from .target import Model, Target, Truth
from .transport import Affine, CosmicFlow, PerModel, Transport

__version__ = "0.1.0"

__all__ = [
    "Affine",
    "CosmicFlow",
    "Counts",
    "Estimate",
    "LogWeights",
    "Model",
    "Ordered",
    "PerModel",
    "Result",
    "Space",
    "Subsets",
    "TRJSampler",
    "Target",
    "Transport",
    "Truth",
    "errors",
    "estimate",
    "fit",
    "kernel",
    "load",
    "problems",
    "transport",
]
