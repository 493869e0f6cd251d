"""What of PyMC has no place in a model whose evidence is asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..errors import TargetError

IMPROPER = {"flat": "Flat", "half_flat": "HalfFlat", "icar": "ICAR"}  # by the operation's name

MATRICES = {"Wishart", "LKJCorr"}

JOINT = "state the model by its joint density instead: trj.interop.pymc_joint(name, model)"


def check_model(name: str, model: Any, potentials: str | None) -> None:
    """Refuse models that no posterior over continuous parameters with a proper prior belongs to.

    Raises:
        TargetError: Discrete latent variables, potentials, mini-batches, improper priors, atoms,
            matrices, no data.
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
    for rv in model.free_RVs:
        check_prior(f"{rv.name!r} of {what}", rv)
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


def check_prior(where: str, rv: Any) -> None:
    """Refuse a continuous variable whose density is no prior: improper ones, atoms, matrices.

    Raises:
        TargetError: It is one of these.
    """
    kind, op = type(rv.owner.op).__name__.removesuffix("RV"), str(getattr(rv.owner.op, "name", ""))
    if op in IMPROPER or kind in IMPROPER.values():
        raise TargetError(
            f"{where} has the improper prior pm.{IMPROPER.get(op, kind)}: with it there is no "
            "evidence; give it a proper one"
        )
    if kind == "Censored" or any(_is_atom(x) for x in all_before([rv])):
        raise TargetError(
            f"{where} has atoms (pm.Censored, pm.DiracDelta, or a mixture with it): a posterior of "
            "that is no density; make the value a model of its own in the list (spike and slab: "
            "two models)"
        )
    if kind in MATRICES:
        raise TargetError(
            f"{where}: pm.{kind} lies in a cone of matrices, where no chain of numbers walks; use "
            "pm.LKJCholeskyCov and trj.interop.pymc_joint(name, model)"
        )


def _is_atom(variable: Any) -> bool:
    op = getattr(variable.owner, "op", None)
    return type(op).__name__ == "DiracDeltaRV" or getattr(op, "name", "") == "diracdelta"


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


def no_support(name: str, parameter: str | None, transform: Any) -> TargetError:
    """The error of a parameter whose support has no counterpart."""
    kind = getattr(transform, "name", type(transform).__name__)
    where = f"{parameter!r} of model {name!r}" if parameter else name
    return TargetError(
        f"{where}: the support behind PyMC's transform {kind!r} has no "
        f"counterpart among the supports here (numbers, intervals, simplexes, ordered "
        f"vectors); {JOINT}"
    )


def no_order(name: str, parameter: str) -> TargetError:
    """The error of ordered vectors whose constant is not known."""
    return TargetError(
        f"{parameter!r} of model {name!r}: with transform=ordered PyMC's density does not "
        "integrate to 1, and by how much is known for independent draws of one distribution "
        "alone (n!). Give all entries the same parameters, or write the first entry and positive "
        "differences"
    )


def check_transform(where: str, rv: Any, transform: Any) -> None:
    """Refuse a transform that may restrict a variable to a part of where its density lies.

    Raises:
        TargetError: It is not the variable's own.
    """
    from pymc.distributions.transforms import LogExpM1, _default_transform
    from pymc.logprob.transforms import LogTransform

    own = _default_transform(rv.owner.op, rv)
    positive = LogTransform | LogExpM1
    alike = isinstance(own, positive) and isinstance(transform, positive)
    if transform is None or alike or type(transform) is type(own):
        return
    raise TargetError(
        f"{where}: transform={getattr(transform, 'name', type(transform).__name__)} is not that of "
        "its distribution, whose density need not integrate to 1 on what the transform reaches; "
        "leave it out, or truncate by pm.Truncated"
    )


def no_draws(name: str, parameter: str, error: Exception) -> TargetError:
    """The error of a prior that PyMC can not draw from."""
    return TargetError(
        f"{parameter!r} of model {name!r}: PyMC can not draw from its prior "
        f"({type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}). Give "
        f"pm.CustomDist a function random=, or {JOINT}"
    )


def _is_part(rv: Any) -> bool:
    return type(rv.owner.op).__name__ == "MinibatchRandomVariable"
