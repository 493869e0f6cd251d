"""What of PyMC has no place in a model whose evidence is asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..errors import TargetError

JOINT = "state the model by its joint density instead: trj.pymc_joint(name, model)"


def check_model(name: str, model: Any, potentials: str | None) -> None:
    """Refuse models that no posterior over continuous parameters with a proper prior belongs to.

    Raises:
        TargetError: Discrete latent variables, potentials, mini-batches, improper priors, no data.
    """
    import pymc as pm

    what = f"model {name!r}"
    if not isinstance(model, pm.Model):
        raise TargetError(f"{what}: expected a pymc.Model, got {type(model).__name__}")
    if potentials not in {None, "likelihood"}:
        raise TargetError(f'potentials: expected None or "likelihood", got {potentials!r}')
    discrete = [rv.name for rv in model.free_RVs if rv.dtype.startswith(("int", "uint", "bool"))]
    if discrete:
        raise TargetError(
            f"{what} has discrete latent variables {discrete}: sum them out "
            "(pymc_extras.marginalize, or a mixture such as pm.NormalMixture), or make each value "
            "a model of its own"
        )
    if model.potentials and potentials is None:
        raise TargetError(
            f"{what} has potentials {[p.name for p in model.potentials]}, and PyMC does not say "
            "whether they belong to the prior or to the data. If they are terms of the "
            'likelihood: from_pymc(..., potentials="likelihood"); a prior needs a distribution '
            "with its constant (pm.CustomDist with logp and random)"
        )
    flat = [rv.name for rv in model.free_RVs if _op_name(rv) in {"flat", "half_flat"}]
    if flat:
        raise TargetError(
            f"{what} has improper priors {flat} (pm.Flat, pm.HalfFlat): with them it has no "
            "evidence; give them proper ones"
        )
    small = [rv.name for rv in model.observed_RVs if _is_part(rv)]
    if small:
        raise TargetError(
            f"{what} sees mini-batches of {small} (total_size=): p(model | data) needs all data "
            "at every call; build it without pm.Minibatch"
        )
    if not model.observed_RVs and not model.potentials:
        raise TargetError(
            f"{what} has no observed variables; is observed= missing in one of its distributions?"
        )


def check_graph(name: str, outputs: Iterable[Any]) -> None:
    """Refuse densities that draw random numbers: mini-batches of data, simulators.

    Raises:
        TargetError: One does.
    """
    from pytensor.tensor.random.type import RandomType

    if any(isinstance(variable.type, RandomType) for variable in all_before(outputs)):
        raise TargetError(
            f"the density of model {name!r} draws random numbers: it sees mini-batches of its data "
            "(pm.Minibatch), or is a simulator. p(model | data) needs all data, and one density, "
            "at every call"
        )


def all_before(outputs: Iterable[Any]) -> list[Any]:
    """Variables of the graph that leads to some, with these."""
    try:
        from pytensor.graph.traversal import ancestors
    except ImportError:  # PyTensor before 2.35
        from pytensor.graph.basic import ancestors
    return list(ancestors(list(outputs)))


def evaluated(x: Any) -> Any:
    """A variable of constants as a number."""
    return x.eval() if hasattr(x, "eval") else x


def no_support(name: str, parameter: str, transform: Any) -> TargetError:
    """The error of a parameter whose support has no counterpart."""
    kind = getattr(transform, "name", type(transform).__name__)
    return TargetError(
        f"{parameter!r} of model {name!r}: the support behind PyMC's transform {kind!r} has no "
        f"counterpart among the supports here (numbers, intervals, simplexes, ordered "
        f"vectors); {JOINT}"
    )


def no_draws(name: str, parameter: str, error: Exception) -> TargetError:
    """The error of a prior that PyMC can not draw from."""
    return TargetError(
        f"{parameter!r} of model {name!r}: PyMC can not draw from its prior "
        f"({type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}). Give "
        f"pm.CustomDist a function random=, or {JOINT}"
    )


def _op_name(rv: Any) -> str:
    return str(getattr(rv.owner.op, "name", "") or "")


def _is_part(rv: Any) -> bool:
    return type(rv.owner.op).__name__ == "MinibatchRandomVariable"
