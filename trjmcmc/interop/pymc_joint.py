"""A PyMC model by its joint density on PyMC's own unconstrained coordinates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from ..errors import TargetError
from .bridge import Both, FusedCall
from .check import checked_joint
from .extras import needed
from .foreign import check_name, dtype_of
from .joint import Joint
from .lkj import missing_constant
from .pymc_calls import Call, quietly
from .pymc_graph import bounded, over_points, without_starts
from .pymc_refuse import check_graph, check_model, check_transform


def pymc_joint(
    name: str,
    model: Any = None,
    *,
    reference: Any = None,
    potentials: str | None = None,
    rename: Mapping[str, str] | None = None,
    backend: str = "numba",
    check: bool = True,
    seed: int = 0,
    **options: Any,
) -> Joint:
    """A PyMC model whose prior and likelihood are not separate: any continuous one.

    For what :func:`trjmcmc.from_pymc` refuses: LKJ priors, sums to zero, priors without draws. Its
    parameters are PyMC's unconstrained ones, by PyMC's names for these (``sd_log__``). Every prior
    must integrate to 1 on its support: nothing can check that here.
    Vectors by ``transform=ordered`` do not, and are refused; PyMC's LKJ densities do not either,
    and are corrected (their constant has the wrong sign).

    Arguments:
        name: Of the model, in tables.
        model: A ``pymc.Model`` with observed variables.
        reference: As of :class:`trjmcmc.Joint`, on these coordinates; ``"sample"``: fitted to
            draws of ``pm.sample``.
        potentials: ``"likelihood"``: potentials are terms of the joint density.
        rename: New names of these coordinates, by PyMC's.
        backend: As of :func:`trjmcmc.from_pymc`.
        check: Try batches and gradients; False is for models that have been.
        seed, options: Of ``pm.sample``, where it makes the reference.

    Raises:
        ConfigurationError: PyMC is not installed; no such backend.
        TargetError: Discrete latent variables, mini-batches, improper priors, atoms, ordered
            vectors, transforms that are not a distribution's own.
    """
    needed("pymc", "pymc", "pymc_joint")
    import pytensor.tensor as pt
    from pymc.distributions.transforms import Ordered
    from pymc.model.transform.optimization import freeze_dims_and_data

    check_name(name, "pymc_joint")
    check_model(name, model, potentials)
    for rv in model.free_RVs:
        transform = model.rvs_to_transforms[rv]
        if any(isinstance(t, Ordered) for t in getattr(transform, "transform_list", [transform])):
            raise TargetError(
                f"{rv.name!r} of model {name!r}: PyMC's density of ordered vectors is that of "
                "independent draws, which integrates to 1 / n!, and evidences would be too small "
                "by n!; use trj.from_pymc, which counts it"
            )
        check_transform(f"{rv.name!r} of model {name!r}", rv, transform)
    with quietly(), without_starts(model):
        frozen = freeze_dims_and_data(model)
    values = [frozen.rvs_to_values[frozen[rv.name]] for rv in model.free_RVs]
    names = [v.name for v in values]
    missing = sum(missing_constant(rv) for rv in frozen.free_RVs)
    outputs = [frozen.logp(jacobian=True, sum=True) + missing]
    check_graph(name, outputs)
    shapes = {v.name: _shape(frozen, v) for v in values}
    outputs, values = bounded(outputs, values)
    inputs = [
        pt.tensor(f"{k}_points", dtype=v.dtype, shape=(None, *shapes[k]))
        for k, v in zip(names, values, strict=True)
    ]
    (joint,) = over_points(outputs, dict(zip(values, inputs, strict=True)))
    if isinstance(reference, str):
        if reference != "sample":
            raise TargetError(
                f'reference: expected draws, densities or "sample", got {reference!r}'
            )
        reference = _sampled(model, names, seed, options)
    found = Joint(
        name,
        shapes,
        _LogJoint(names, inputs, joint, backend),
        reference,
        dtype=dtype_of(values[0].dtype if values else "float64"),
        check=False,
    )
    found = checked_joint(found, "PyMC") if check else found
    renamed = found.renamed(rename or {})
    assert renamed is not None
    return renamed


def _shape(model: Any, value: Any) -> tuple[int, ...]:
    """The shape of an unconstrained variable; by a draw, where PyTensor does not know it."""
    if None not in value.type.shape:
        return tuple(int(n) for n in value.type.shape)
    rv = model.values_to_rvs[value]
    transform = model.rvs_to_transforms[rv]
    free = rv if transform is None else transform.forward(rv, *rv.owner.inputs)
    return np.shape(Call([], [free], "numpy")()[0])


class _LogJoint:
    """The joint density at C points by one compiled function, with its gradient by another."""

    def __init__(self, names: list[str], inputs: list[Any], output: Any, backend: str) -> None:
        import pytensor.tensor as pt

        self.names = names
        slopes = pt.grad(output.sum(), inputs, disconnected_inputs="ignore")
        self._value = Call(inputs, [output], backend)
        self._slopes = Call(inputs, [output, *slopes], backend)
        self._fused = FusedCall(self._both)

    def _both(self, values: dict[str, Any], gradient: bool) -> Both:
        call = self._slopes if gradient else self._value
        value, *slopes = call(*(values[k] for k in self.names))
        return Both(np.zeros_like(value), value, {}, dict(zip(self.names, slopes, strict=False)))

    def __call__(self, params: dict[str, Tensor]) -> Tensor:
        return self._fused(params)[1]


def _sampled(model: Any, names: list[str], seed: int, options: dict[str, Any]) -> dict[str, Any]:
    """Posterior draws on the unconstrained coordinates, (chain, draw, *shape) by name."""
    import pymc as pm

    usual = {"progressbar": False, "compute_convergence_checks": False, "cores": 1}
    known = {"idata_kwargs": {"include_transformed": True}, "random_seed": seed}
    with model:
        found = pm.sample(**(usual | options | known))
    groups = [found[g] for g in ("unconstrained_posterior", "posterior") if g in found]
    return {k: np.asarray(next(g[k] for g in groups if k in g)) for k in names}
