"""Transdimensional Bayesian inference with transport maps.

A model list goes in, p(model | data) comes out, exact however poor the maps are::

    import trjmcmc as trj

    target = trj.Target([trj.Model("a", priors, log_likelihood), trj.Model("b", ...)])
    result = trj.TRJSampler(target).run()
    result.model_probabilities()
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what type checkers and editors read; at run time names come when asked for
    from . import errors, estimate, fit, graphs, kernel, priors, problems, simulate, transport
    from .approximate.variational import variational
    from .compare.classical import ClassicalSampler
    from .compare.compare import Comparison, compare_samplers
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
    from .transport.realnvp import ConditionalRealNVP, RealNVP
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
    "RealNVP",
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

_MODULE_OF = {  # where the names above are defined; the others are folders
    "Additive": "target.additive",
    "Affine": "transport.affine",
    "Bijection": "transport.base",
    "BlackBox": "target.blackbox",
    "CategoricalWeights": "weights.score_gradient",
    "ClassicalSampler": "compare.classical",
    "Comparison": "compare.compare",
    "ConditionalRealNVP": "transport.realnvp",
    "CosmicAutoregressive": "transport.autoregressive",
    "CosmicFlow": "transport.cosmic",
    "Counts": "space.counts",
    "Dags": "space.dags",
    "Estimate": "estimate.estimate",
    "Evidence": "posthoc.evidence",
    "GaussianProcess": "weights.belief",
    "GaussianSurrogate": "weights.belief",
    "Joint": "interop.joint",
    "Laplace": "transport.laplace",
    "LogWeights": "space.prior",
    "Made": "weights.made",
    "MeanField": "weights.mean_field",
    "Mixture": "transport.mixture",
    "Model": "target.model",
    "ModelWeights": "weights.base",
    "Observed": "target.observed",
    "Ordered": "target.ordered",
    "OrderedDags": "space.ordered_dags",
    "PerModel": "transport.per_model",
    "evidences_of_counts": "run.even_counts",
    "RealNVP": "transport.realnvp",
    "Result": "result.result",
    "Space": "space.base",
    "Subsets": "space.subsets",
    "TRJSampler": "run.sampler",
    "Target": "target.target",
    "Transport": "transport.base",
    "Truth": "target.model",
    "UniformWeights": "weights.base",
    "Validation": "validation.report",
    "Variational": "result.variational",
    "compare_samplers": "compare.compare",
    "evidence": "posthoc.evidence",
    "from_jax": "interop.from_jax",
    "from_numpyro": "interop.from_numpyro",
    "from_pymc": "interop.from_pymc",
    "from_pyro": "interop.from_pyro",
    "from_stan": "interop.from_stan",
    "load": "run.loaded",
    "merge": "result.result",
    "mixture_flow": "transport.mixture",
    "pymc_joint": "interop.pymc_joint",
    "stan_joint": "interop.from_stan",
    "validate": "validation.validate",
    "variational": "approximate.variational",
    "with_gradient": "target.blackbox",
}


def _look_up(name: str) -> Any:
    """A public name or a folder of the package, imported when it is first asked for (PEP 562)."""
    if name in _MODULE_OF:
        found = getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
    elif not name.startswith("_") and find_spec(f"{__name__}.{name}"):
        found = import_module(f".{name}", __name__)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


if not TYPE_CHECKING:  # else type checkers would take any name for one of the package
    __getattr__ = _look_up


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
