"""Draws of PyMC: from the prior of one parameter, from its samplers, from its data model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .pymc_calls import Call, quietly
from .pymc_refuse import all_before

Array = NDArray[Any]


class PriorDraws:
    """Draws of one parameter given those before it.

    Arguments:
        rv: The random variable, in a model without transforms.
        parents: Random variables that it depends on.
        shape: Of one value.
    """

    def __init__(self, rv: Any, parents: Sequence[Any], shape: tuple[int, ...]) -> None:
        import pytensor.tensor as pt

        self.shape = shape
        n = pt.lscalar("n")
        given = [
            pt.tensor(f"{p.name}_given", dtype=p.dtype, shape=(None, *p.type.shape))
            for p in parents
        ]
        found = _batched(rv, parents, given, n, shape)
        self.one_by_one = found is None
        if found is None:
            from pytensor.graph.replace import clone_replace

            given = [x.type.clone(shape=x.type.shape[1:])(x.name) for x in given]
            (found,) = clone_replace([rv], dict(zip(parents, given, strict=True)))
        self._rngs = _generators(found)
        self._call = Call([n, *given], [found], "numpy")

    def __call__(self, n: int, given: Sequence[Array], seed: int) -> Array:
        """Draws, (n, *shape), of parents (n, *shape) each."""
        if not self.one_by_one:
            self._seed(seed)
            return self._call(np.asarray(n), *given)[0].reshape(n, *self.shape)
        each = []
        for i in range(n):
            self._seed(seed, i)
            each.append(self._call(np.asarray(n), *(x[i] for x in given))[0])
        return np.stack(each).reshape(n, *self.shape)

    def _seed(self, *seed: int) -> None:
        for i, rng in enumerate(self._rngs):
            rng.set_value(np.random.default_rng([*seed, i]), borrow=True)


def _batched(
    rv: Any, parents: Sequence[Any], given: Sequence[Any], n: Any, shape: tuple[int, ...]
) -> Any:
    """The variable for n values of its parents at once, or None where that can't be built."""
    import pytensor
    from pymc.distributions.shape_utils import change_dist_size
    from pytensor.graph.replace import vectorize_graph
    from pytensor.tensor.random.op import RandomVariable

    if not parents:
        return change_dist_size(rv, (n,), expand=True)
    op = rv.owner.op
    if not isinstance(op, RandomVariable):
        return None
    entries = rv.ndim - op.ndim_supp
    params = []
    for old, core in zip(op.dist_params(rv.owner), op.ndims_params, strict=True):
        new = vectorize_graph(old, dict(zip(parents, given, strict=True)))
        if new.ndim > old.ndim:  # it depends on parents: entries to the right of the points
            missing = entries - (old.ndim - core)
            new = new.dimshuffle(0, *["x"] * missing, *range(1, new.ndim))
        params.append(new)
    rng = pytensor.shared(np.random.default_rng(0))
    return op(*params, size=(n, *shape[:entries]), rng=rng)


def _generators(variable: Any) -> list[Any]:
    """Shared generators that a variable draws from."""
    from pytensor.compile.sharedvalue import SharedVariable
    from pytensor.tensor.random.type import RandomType

    found = [
        x
        for x in all_before([variable])
        if isinstance(x, SharedVariable) and isinstance(x.type, RandomType)
    ]
    return list(dict.fromkeys(found))


def sampler_of(model: Any) -> Callable[..., Mapping[str, Array]]:
    """Posterior draws by ``pm.sample``."""

    def sampled(draws: int, seed: int, **options: Any) -> dict[str, Array]:
        import pymc as pm

        chains = int(options.pop("chains", 4))
        usual = {"progressbar": False, "compute_convergence_checks": False, "cores": 1}
        with quietly(), model:
            found = pm.sample(
                draws=-(-draws // chains), chains=chains, random_seed=seed, **(usual | options)
            )
        names = [rv.name for rv in model.free_RVs]
        values = {k: np.asarray(found.posterior[k]) for k in names}
        return {k: v.reshape(-1, *v.shape[2:])[:draws] for k, v in values.items()}

    return sampled


def predictor_of(model: Any) -> Callable[..., Any]:
    """Posterior predictive draws by ``pm.sample_posterior_predictive``."""

    def predicted(values: Mapping[str, Array], seed: int, **options: Any) -> Any:
        import pymc as pm
        import xarray as xr

        axes = {
            k: model.named_vars_to_dims.get(k) or [f"{k}_dim_{i}" for i in range(v.ndim - 1)]
            for k, v in values.items()
        }
        data = {k: (("chain", "draw", *axes[k]), v[None]) for k, v in values.items()}
        used = {axis for each in axes.values() for axis in each}
        coords = {k: list(v) for k, v in model.coords.items() if k in used and v is not None}
        with quietly(), model:  # without coordinates PyMC would draw a parameter afresh
            return pm.sample_posterior_predictive(
                xr.Dataset(data, coords), random_seed=seed, **({"progressbar": False} | options)
            )

    return predicted
