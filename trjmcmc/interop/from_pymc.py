"""PyMC models, and PyMC distributions as priors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from ..errors import TargetError
from ..priors.foreign import read_with
from .bridge import Both, FusedCall, on_host, through
from .check import checked, checked_alone
from .extras import needed
from .foreign import ForeignModel, check_name, dtype_of
from .ordered import OrderedSite, Ordering
from .pymc_calls import Call, WithProduct, quietly
from .pymc_draws import PriorDraws, predictor_of, sampler_of
from .pymc_graph import PyMCDensities, graphs_of, over_points, summed
from .pymc_refuse import check_model, check_prior, no_draws, no_order
from .pymc_support import support_of
from .site import Conditional, Site


def from_pymc(
    name: str,
    model: Any = None,
    *,
    potentials: str | None = None,
    rename: Mapping[str, str] | None = None,
    backend: str = "numba",
    check: bool = True,
) -> ForeignModel:
    """A PyMC model as one of a target: priors, likelihood, names, axes and draws are PyMC's.

    Parameters have PyMC's names and natural values. Those of one name share coordinates across
    models, where rank and support agree; others get the model's name behind theirs. Data are
    those of now: a later ``pm.set_data`` changes nothing. What is compiled does not pickle: for
    another process, and after :func:`trjmcmc.load`, build the target again by the same lines.

    Arguments:
        name: Of the model, in tables.
        model: A ``pymc.Model`` with observed variables.
        potentials: ``"likelihood"``: potentials are terms of the likelihood.
        rename: New names of parameters, by PyMC's.
        backend: What computes density and gradient: ``"numba"``; ``"c"``, where there is a
            compiler; ``"numpy"``, which compiles nothing and takes ten times as long a call.
        check: Try priors, batches and gradients (see ``trjmcmc.interop.check``); False is for
            models that have been.

    Returns:
        A :class:`trjmcmc.Model` that also has ``pilot()``, draws by ``pm.sample`` for
        ``sampler.fit(pilot=...)``, and ``predict(result)``, posterior predictive draws.

    Raises:
        ConfigurationError: PyMC is not installed; no such backend.
        TargetError: Discrete latent variables, potentials that are not placed, mini-batches,
            improper priors, atoms, supports without a counterpart, priors without draws or
            constants.

    Example:
        >>> import numpy as np, pymc as pm, trjmcmc as trj  # doctest: +SKIP
        >>> with pm.Model() as model:  # doctest: +SKIP
        ...     mu = pm.Normal("mu", 0, 1)
        ...     pm.Normal("y", mu, 1, observed=np.array([0.3, 1.2]))
        >>> trj.Target([trj.from_pymc("normal", model)]).slot_names  # doctest: +SKIP
        ['mu']
    """
    needed("pymc", "pymc", "from_pymc")
    check_name(name, "from_pymc")
    check_model(name, model, potentials)
    with quietly():
        found = _read(name, model, potentials == "likelihood", backend).renamed(rename or {})
        return checked(found) if check else found


def _read(name: str, model: Any, potentials: bool, backend: str) -> ForeignModel:
    """The model, unchecked."""
    graphs = graphs_of(name, model, potentials)
    dtype = dtype_of(next((x.dtype for x in graphs.inputs.values()), "float64"))
    priors: dict[str, Any] = {}
    drawn: dict[str, Tensor] = {}
    for k in graphs.names:
        priors[k] = _prior(name, graphs, k, dtype, drawn)
    ordered = {k: _log_orders(p, graphs.shapes[k]) for k, p in priors.items()}
    dims = {
        k: tuple(map(str, axes))
        for k in graphs.names
        if (axes := model.named_vars_to_dims.get(k)) and None not in axes
    }
    coords = {str(k): list(v) for k, v in model.coords.items() if v is not None}
    return ForeignModel(
        name,
        priors,
        _LogLikelihood(graphs),
        fused=FusedCall(_Joint(graphs, sum(ordered.values()), backend)) if priors else None,
        dtype=dtype,
        dims=dims,
        coords=coords,
        language="PyMC",
        sampler=sampler_of(model),
        predictor=predictor_of(model),
    )


def _prior(
    name: str, graphs: PyMCDensities, key: str, dtype: torch.dtype, drawn: dict[str, Tensor]
) -> Any:
    """One parameter's prior: a distribution, or a function of those before it.

    Draws of these are taken, and one of this parameter is left there.
    """
    rv = graphs.plain[key]
    parents = {p: graphs.plain[p] for p in graphs.parents[key]}
    transform = graphs.frozen.rvs_to_transforms[graphs.frozen[key]]
    support, ordered = support_of(name, rv, transform, parents, dtype)
    if ordered and not _alike(rv):
        raise no_order(name, key)
    shape, events = graphs.shapes[key], rv.owner.op.ndim_supp
    batch, event = shape[: len(shape) - events], shape[len(shape) - events :]
    density = _Density(key, list(parents), graphs.inputs, graphs.log_priors[key])
    draws = _Draws(PriorDraws(rv, list(parents.values()), shape), list(parents), dtype)
    like = torch.zeros((), dtype=dtype)
    try:
        drawn[key] = draws(1, {k: drawn[k] for k in parents}, 0)
    except Exception as error:  # whatever of PyMC's: no random=, an overflow in a quantile
        raise no_draws(name, key, error) from error
    if parents:
        found = Conditional(list(parents), density, draws, support, batch, event, like=like)
        return Ordering(found) if ordered else found
    site = Site(density, draws, support, batch, event, like=like)
    return OrderedSite(site) if ordered else site


def _alike(rv: Any) -> bool:
    """Whether the entries along a variable's last axis are independent draws of one law."""
    op, node = rv.owner.op, rv.owner
    return all(p.ndim == 0 or p.type.shape[-1] == 1 for p in op.dist_params(node))


def _log_orders(prior: Any, shape: tuple[int, ...]) -> float:
    """Log number of orders of the vectors of a prior of ordered ones, which PyMC leaves out."""
    if not isinstance(prior, OrderedSite | Ordering):
        return 0.0
    return math.prod(shape[:-1]) * math.lgamma(shape[-1] + 1)


class _Density:
    """Log density of one parameter by entry, given those before it."""

    def __init__(
        self, key: str, parents: list[str], inputs: Mapping[str, Any], output: Any
    ) -> None:
        self.parents = parents
        self.graph = WithProduct([inputs[key], *(inputs[p] for p in parents)], output)

    def __call__(self, value: Tensor, given: Mapping[str, Tensor]) -> Tensor:
        return through(self.graph, [value, *(given[p] for p in self.parents)])


class _Draws:
    """Draws of one parameter given those before it, as tensors."""

    def __init__(self, draws: PriorDraws, parents: list[str], dtype: torch.dtype) -> None:
        self.draws, self.parents, self.dtype = draws, parents, dtype

    def __call__(self, n: int, given: Mapping[str, Tensor], seed: int) -> Tensor:
        found = self.draws(n, [on_host(given[p]) for p in self.parents], seed)
        return torch.as_tensor(np.array(found)).to(self.dtype)


class _LogLikelihood:
    """Log likelihood at C points, (C,)."""

    def __init__(self, graphs: PyMCDensities) -> None:
        self.names = graphs.names
        inputs = list(graphs.inputs.values())
        output = graphs.log_likelihood
        self.graph = WithProduct(inputs, output) if inputs else Call([], [output], "numpy")

    def __call__(self, params: dict[str, Tensor]) -> Tensor:
        if isinstance(self.graph, Call):  # no parameters: one number
            return torch.as_tensor(np.asarray(self.graph()[0])).sum()
        return through(self.graph, [params[k] for k in self.names])


class _Joint:
    """Log prior and log likelihood at C points by one compiled function, with gradients by another.

    Arguments:
        graphs: Of the model.
        constant: Log number of orders, added to the log prior, nats.
        backend: As of :func:`from_pymc`.
    """

    def __init__(self, graphs: PyMCDensities, constant: float, backend: str) -> None:
        import pytensor.tensor as pt

        self.names, self.constant = graphs.names, constant
        inputs = list(graphs.inputs.values())
        each = [summed(x) for x in graphs.log_priors.values()]
        values = [sum(each[1:], each[0]), graphs.log_likelihood]
        slopes = [
            slope
            for value in values
            for slope in pt.grad(value.sum(), inputs, disconnected_inputs="ignore")
        ]
        self._values = Call(inputs, values, backend)
        self._slopes = Call(inputs, [*values, *slopes], backend)

    def __call__(self, values: dict[str, Any], gradient: bool) -> Both:
        arrays = [values[k] for k in self.names]
        call = self._slopes if gradient else self._values
        log_prior, log_likelihood, *slopes = call(*arrays)
        n = len(self.names) if gradient else 0
        prior = dict(zip(self.names, slopes[:n], strict=False))
        likelihood = dict(zip(self.names, slopes[n:], strict=False))
        return Both(log_prior + self.constant, log_likelihood, prior, likelihood)


# ---- distributions alone, as priors ---------------------------------------------------------


def _is_distribution(spec: Any) -> bool:
    """Whether something is ``pm.Normal.dist(...)`` or the like."""
    if not type(spec).__module__.startswith("pytensor."):
        return False
    return hasattr(getattr(getattr(spec, "owner", None), "op", None), "ndim_supp")


def _from_distribution(rv: Any) -> Distribution:
    """A distribution of PyMC as one of torch.

    Raises:
        TargetError: It is discrete or improper, has atoms, lacks its constant, or is of a support
            that torch does not know.
    """
    import pymc as pm
    import pytensor.tensor as pt

    label = str(getattr(rv.owner.op, "name", None) or "a distribution")
    if not rv.dtype.startswith("float"):
        raise TargetError(
            f"{label} of PyMC: expected a continuous distribution; discrete choices belong into "
            "the model index"
        )
    check_prior(f"{label} of PyMC", rv)
    dtype = dtype_of(rv.dtype)
    support, _ = support_of(f"prior {label}", rv, None, {}, dtype)
    shape = tuple(int(n) for n in rv.shape.eval())
    value = pt.tensor("value", dtype=rv.dtype, shape=shape)
    points = pt.tensor("points", dtype=rv.dtype, shape=(None, *shape))
    (output,) = over_points([pm.logp(rv, value)], {value: points})
    events = rv.owner.op.ndim_supp
    density = _Density(label, [], {label: points}, output)
    draws = _Draws(PriorDraws(rv, [], shape), [], dtype)
    batch, event = shape[: len(shape) - events], shape[len(shape) - events :]
    like = torch.zeros((), dtype=dtype)
    return checked_alone(Site(density, draws, support, batch, event, like=like), "PyMC")


read_with(_is_distribution, _from_distribution)
