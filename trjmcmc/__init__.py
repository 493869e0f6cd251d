"""Transdimensional Bayesian inference with transport maps.

A model list goes in, p(model | data) comes out, exact however poor the maps are::

    import trjmcmc as trj

    target = trj.Target([trj.Model("a", priors, log_likelihood), trj.Model("b", ...)])
    result = trj.TRJSampler(target).run()
    result.model_probabilities()
"""

from . import errors, estimate, fit, graphs, kernel, priors, problems, simulate, transport
from .approximate.variational import variational
from .compare.classical import ClassicalSampler
from .compare.compare import Comparison, compare_samplers
from .errors import renamed as _renamed
from .estimate.estimate import Estimate
from .interop.from_jax import from_jax
from .interop.from_numpyro import from_numpyro
from .interop.from_pymc import from_pymc
from .interop.from_pyro import from_pyro
from .interop.from_stan import from_stan, stan_joint
from .interop.joint import Joint
from .interop.pymc_joint import pymc_joint
from .posthoc.evidence import Evidence, evidence
from .result.result import Result, merge
from .result.variational import Variational
from .run.even_counts import evidences_of_counts
from .run.loaded import load
from .run.policy import Policy
from .run.sampler import TRJSampler
from .space.base import Space
from .space.counts import Counts
from .space.dags import Dags
from .space.ordered_dags import OrderedDags
from .space.prior import LogWeights
from .space.subsets import Subsets
from .target.additive import Additive
from .target.blackbox import BlackBox, with_gradient
from .target.model import Model, Truth
from .target.observed import Observed
from .target.ordered import Ordered
from .target.target import Target
from .transport.affine import Affine
from .transport.autoregressive import CosmicAutoregressive
from .transport.base import Bijection, Transport
from .transport.cosmic import CosmicFlow
from .transport.laplace import Laplace
from .transport.mixture import Mixture, mixture_flow
from .transport.per_model import PerModel
from .transport.realnvp import ConditionalRealNVP
from .validation.report import Validation
from .validation.validate import validate
from .weights.base import ModelWeights, UniformWeights
from .weights.belief import GaussianProcess, GaussianSurrogate
from .weights.made import Made
from .weights.mean_field import MeanField
from .weights.score_gradient import CategoricalWeights

__version__ = "0.12.0"

__all__ = [
    "Additive",
    "Affine",
    "Bijection",
    "BlackBox",
    "CategoricalWeights",
    "ClassicalSampler",
    "Comparison",
    "ConditionalRealNVP",
    "CosmicAutoregressive",
    "CosmicFlow",
    "Counts",
    "Dags",
    "Estimate",
    "Evidence",
    "GaussianProcess",
    "GaussianSurrogate",
    "Joint",
    "Laplace",
    "LogWeights",
    "Made",
    "MeanField",
    "Mixture",
    "Model",
    "ModelWeights",
    "Observed",
    "Ordered",
    "OrderedDags",
    "PerModel",
    "Policy",
    "Result",
    "Space",
    "Subsets",
    "TRJSampler",
    "Target",
    "Transport",
    "Truth",
    "UniformWeights",
    "Validation",
    "Variational",
    "compare_samplers",
    "errors",
    "estimate",
    "evidence",
    "evidences_of_counts",
    "fit",
    "from_jax",
    "from_numpyro",
    "from_pymc",
    "from_pyro",
    "from_stan",
    "graphs",
    "kernel",
    "load",
    "merge",
    "mixture_flow",
    "priors",
    "problems",
    "pymc_joint",
    "simulate",
    "stan_joint",
    "transport",
    "validate",
    "variational",
    "with_gradient",
]

__getattr__ = _renamed(__name__, {"Categorical": "CategoricalWeights", "Uniform": "UniformWeights"})


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
