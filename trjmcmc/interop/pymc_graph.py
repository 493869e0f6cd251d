"""A PyMC model as graphs of batches: log prior by parameter, log likelihood, natural values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..errors import TargetError
from .pymc_refuse import all_before, check_graph


@dataclass(frozen=True)
class PyMCDensities:
    """Densities of a model at C points.

    Attributes:
        plain: The model with its data frozen and without transforms.
        frozen: The same with transforms.
        names: Parameters in the order in which they were written.
        shapes: Of one value, by name.
        inputs: By name, a variable (C, *shape) of values.
        log_priors: By name, (C, *batch), nats.
        log_likelihood: Shape (C,), nats.
        parents: By name, the parameters before it that its prior depends on.
    """

    plain: Any
    frozen: Any
    names: list[str]
    shapes: dict[str, tuple[int, ...]]
    inputs: dict[str, Any]
    log_priors: dict[str, Any]
    log_likelihood: Any
    parents: dict[str, list[str]]


def graphs_of(name: str, model: Any, potentials: bool) -> PyMCDensities:
    """The graphs of a PyMC model.

    Data and dimensions are those of now: later ``pm.set_data`` changes nothing here.

    Raises:
        TargetError: A density draws random numbers.
    """
    import pytensor.tensor as pt
    from pymc.model.transform.conditioning import remove_value_transforms
    from pymc.model.transform.optimization import freeze_dims_and_data

    with without_starts(model):
        frozen = freeze_dims_and_data(model)
    plain = remove_value_transforms(frozen)
    names = [rv.name for rv in model.free_RVs]  # without transforms the order is another
    free = [plain[k] for k in names]
    values = [plain.rvs_to_values[rv] for rv in free]
    data = [*plain.observed_RVs, *(plain.potentials if potentials else [])]
    outputs = plain.logp(vars=[*free, *data], sum=False, jacobian=False)
    check_graph(name, outputs)
    parents = {
        k: [p for p, v in zip(names, values, strict=True) if p != k and v in before]
        for k, before in ((k, set(all_before([x]))) for k, x in zip(names, outputs, strict=False))
    }
    outputs, values = bounded(outputs, values)
    shapes = {k: _shape(rv) for k, rv in zip(names, free, strict=True)}
    inputs = {
        k: pt.tensor(f"{k}_points", dtype=v.dtype, shape=(None, *shapes[k]))
        for k, v in zip(names, values, strict=True)
    }
    batched = over_points(outputs, dict(zip(values, inputs.values(), strict=True)))
    priors = dict(zip(names, batched[: len(names)], strict=True))
    parts = [summed(x) for x in batched[len(names) :]]
    log_likelihood = sum(parts[1:], parts[0])
    return PyMCDensities(plain, frozen, names, shapes, inputs, priors, log_likelihood, parents)


@contextmanager
def without_starts(model: Any) -> Iterator[None]:
    """A model whose starting values (``initval=``) are away for now: PyMC can't copy these."""
    known = model.rvs_to_initial_values
    kept = dict(known)
    try:
        known.update(dict.fromkeys(kept))
        yield
    finally:
        known.update(kept)


def bounded(outputs: Sequence[Any], values: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """A copy of graphs in which parameters out of range give -inf, where PyMC would raise.

    At each point by itself: once points are batched, one would rule out all.
    """
    from pymc.logprob.utils import local_check_parameter_to_ninf_switch
    from pytensor.graph.fg import FunctionGraph
    from pytensor.graph.rewriting import basic

    memo: dict[Any, Any] = {}
    graph = FunctionGraph(outputs=list(outputs), clone=True, memo=memo)
    through = getattr(basic, "dfs_rewriter", None) or basic.in2out
    through(local_check_parameter_to_ninf_switch).rewrite(graph)
    return list(graph.outputs), [memo.get(v, v) for v in values]


def over_points(outputs: Sequence[Any], replace: Mapping[Any, Any]) -> list[Any]:
    """Graphs of one point as graphs of C points; what depends on none is repeated."""
    import pytensor.tensor as pt
    from pytensor.graph.replace import vectorize_graph

    if not replace:
        return list(outputs)
    n = next(iter(replace.values())).shape[0]
    try:
        found = vectorize_graph(list(outputs), dict(replace))
    except Exception as error:
        raise TargetError(
            f"PyTensor can not make batches of this density ({type(error).__name__}: {error}). "
            "Call it point by point: a trj.Model with trj.BlackBox around model.compile_logp(...)"
        ) from error
    return [
        b if b.ndim > o.ndim else pt.alloc(o, n, *(o.shape[i] for i in range(o.ndim)))
        for o, b in zip(outputs, found, strict=True)
    ]


def summed(x: Any) -> Any:
    """The sum of all but the first axis."""
    return x.sum(axis=tuple(range(1, x.ndim))) if x.ndim > 1 else x


def _shape(rv: Any) -> tuple[int, ...]:
    """A variable's shape, which frozen data and dimensions decide."""
    if None not in rv.type.shape:
        return tuple(int(n) for n in rv.type.shape)
    return tuple(int(n) for n in rv.shape.eval())
