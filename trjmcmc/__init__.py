"""Transdimensional Bayesian inference with transport maps.

A model list goes in, p(model | data) comes out, exact however poor the maps are::

    import trjmcmc as trj

    target = trj.Target([trj.Model("a", priors, log_likelihood), trj.Model("b", ...)])
    result = trj.TRJSampler(target).run()
    result.model_probabilities()
"""

from . import errors, estimate, fit, kernel, problems, transport
from .additive import Additive
from .blackbox import BlackBox, with_gradient
from .compare import ClassicalSampler, Comparison, compare_samplers
from .estimate import Estimate
from .evidence import Evidence, evidence
from .fit import (
    Categorical,
    GaussianProcess,
    GaussianSurrogate,
    Made,
    MeanField,
    ModelWeights,
    Uniform,
)
from .prior import Ordered
from .result import Result, load
from .sampler import TRJSampler
from .space import Counts, LogWeights, Space, Subsets
from .target import Model, Target, Truth
from .transport import (
    Affine,
    Bijection,
    ConditionalRealNVP,
    CosmicAutoregressive,
    CosmicFlow,
    Laplace,
    Mixture,
    PerModel,
    Transport,
    mixture_flow,
)
from .variational import Variational

__version__ = "0.10.0"

__all__ = [
    "Additive",
    "Affine",
    "Bijection",
    "BlackBox",
    "Categorical",
    "ClassicalSampler",
    "Comparison",
    "ConditionalRealNVP",
    "CosmicAutoregressive",
    "CosmicFlow",
    "Counts",
    "Estimate",
    "Evidence",
    "GaussianProcess",
    "GaussianSurrogate",
    "Laplace",
    "LogWeights",
    "Made",
    "MeanField",
    "Mixture",
    "Model",
    "ModelWeights",
    "Ordered",
    "PerModel",
    "Result",
    "Space",
    "Subsets",
    "TRJSampler",
    "Target",
    "Transport",
    "Truth",
    "Uniform",
    "Variational",
    "compare_samplers",
    "errors",
    "estimate",
    "evidence",
    "fit",
    "kernel",
    "load",
    "mixture_flow",
    "problems",
    "transport",
    "with_gradient",
]


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
