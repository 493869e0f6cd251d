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
    from . import approximate as approximate
    from . import compare as compare
    from . import errors as errors
    from . import estimate as estimate
    from . import fit as fit
    from . import graphs as graphs
    from . import interop as interop
    from . import kernel as kernel
    from . import posthoc as posthoc
    from . import priors as priors
    from . import problems as problems
    from . import simulate as simulate
    from . import space as space
    from . import transport as transport
    from . import validation as validation
    from . import weights as weights
    from .approximate.variational import variational
    from .compare.compare import compare_samplers
    from .interop.from_jax import from_jax
    from .interop.from_numpyro import from_numpyro
    from .interop.from_pymc import from_pymc
    from .interop.from_pyro import from_pyro
    from .interop.from_stan import from_stan
    from .interop.joint import Joint
    from .posthoc.evidence import evidence_of_draws
    from .result.result import Result, merge
    from .run.even_counts import evidences_of_counts
    from .run.loaded import load
    from .run.sampler import TRJSampler
    from .space.counts import Counts
    from .space.prior import LogWeights
    from .space.subsets import Subsets
    from .target.additive import Additive
    from .target.blackbox import BlackBox, with_gradient
    from .target.model import Model
    from .target.observed import Observed
    from .target.ordered import Ordered
    from .target.target import Target
    from .validation.validate import validate
    from .versions import show_versions

__version__ = "0.12.0"

__all__ = [
    "Additive",
    "BlackBox",
    "Counts",
    "Joint",
    "LogWeights",
    "Model",
    "Observed",
    "Ordered",
    "Result",
    "Subsets",
    "TRJSampler",
    "Target",
    "compare_samplers",
    "errors",
    "evidence_of_draws",
    "evidences_of_counts",
    "from_jax",
    "from_numpyro",
    "from_pymc",
    "from_pyro",
    "from_stan",
    "graphs",
    "load",
    "merge",
    "priors",
    "problems",
    "show_versions",
    "simulate",
    "validate",
    "variational",
    "with_gradient",
]

_MODULE_OF = {  # where the names above are defined that are no folders
    "Additive": "target.additive",
    "BlackBox": "target.blackbox",
    "compare_samplers": "compare.compare",
    "Counts": "space.counts",
    "evidence_of_draws": "posthoc.evidence",
    "evidences_of_counts": "run.even_counts",
    "from_jax": "interop.from_jax",
    "from_numpyro": "interop.from_numpyro",
    "from_pymc": "interop.from_pymc",
    "from_pyro": "interop.from_pyro",
    "from_stan": "interop.from_stan",
    "Joint": "interop.joint",
    "load": "run.loaded",
    "LogWeights": "space.prior",
    "merge": "result.result",
    "Model": "target.model",
    "Observed": "target.observed",
    "Ordered": "target.ordered",
    "Result": "result.result",
    "show_versions": "versions",
    "Subsets": "space.subsets",
    "Target": "target.target",
    "TRJSampler": "run.sampler",
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
