"""Models written in Stan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import TargetError
from ..rng import seeded
from ..target.density import Density
from ..target.prior import Prior, PriorSpec
from ..target.support import bijection_onto, log_density_of, support_of, unchecked
from .check import checked, checked_joint
from .foreign import ForeignModel, check_name
from .reference import reference_priors
from .stan_program import Layout, LogDensity, StanModel, generated, opened

DRAWS = 5  # of the priors, at which transforms and priors are compared

SAME = 1e-8  # relative difference of coordinates and gradients that counts as none

CONSTANT = 1e-6  # nats by which the difference of two priors may vary, and be a constant

JOINT = "take the whole density on Stan's own coordinates: trj.interop.stan_joint(name, model)"


@dataclass(frozen=True)
class StanSplit(ForeignModel):
    """A Stan program with priors of torch, as :func:`from_stan` makes it.

    Attributes:
        prior_constant: Log of Stan's prior over the normalised one, nats: what Stan leaves out of
            truncations by declaration and of ordered vectors. It is in no evidence.
    """

    prior_constant: float = field(default=0.0, kw_only=True)


@dataclass(frozen=True)
class StanJoint(ForeignModel):
    """The whole density of a Stan program on its own coordinates: see :func:`stan_joint`."""

    on_reference: ClassVar[bool] = True

    coordinates_of: Callable[[Mapping[str, Any]], dict[str, NDArray[Any]]] | None = field(
        default=None, kw_only=True, repr=False
    )

    def coordinates(self, draws: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """Draws in Stan's units by its names, (n, *shape), as coordinates by the names here.

        For ``fit(pilot={model.name: model.coordinates(fit.stan_variables())})``.
        """
        assert self.coordinates_of is not None
        found = self.coordinates_of(draws)
        return {self.names.get(k, k): v for k, v in found.items()}


def from_stan(
    name: str,
    model: Any,
    priors: Mapping[str, PriorSpec],
    prior_only: Any = "prior_only",
    *,
    rename: Mapping[str, str] | None = None,
    check: bool = True,
) -> StanSplit:
    r"""A Stan program in a target's list of models, by BridgeStan.

    Stan does not separate priors from the likelihood. The program is opened twice, once with the
    data ``prior_only`` set to 1, where it must leave its likelihood out. The difference of the two
    is the likelihood, and every constant of the priors cancels. The priors are stated again,
    normalised: Stan's lack the constants of truncations by declaration (``real<lower=0> s;
    s ~ normal(0, 1);`` lacks log 2) and of ordered vectors (log K!), which would be in every
    evidence. Needs ``pip install 'trjmcmc[stan]'`` and what BridgeStan needs to compile.

    Arguments:
        name: Shown in every table.
        model: A ``bridgestan.StanModel``, or ``(path of the program, data)``, data a dict, JSON
            or the path of a JSON file.
        priors: By parameter, as of :class:`Model`: the same priors as the program's.
        prior_only: Name of the data that leaves out the likelihood; or another
            ``bridgestan.StanModel``, of the priors alone.
        rename: By Stan's name, another one.
        check: Try priors, batches and gradients; False is for models that have been. Priors are
            compared with Stan's, and transforms with torch's, all the same.

    Returns:
        A model whose ``predict`` gives the program's generated quantities, and whose
        ``prior_constant`` is what Stan's priors lack, nats. Stan's own draws can train it:
        ``fit(pilot={name: fit.stan_variables()})``.

    Raises:
        TargetError: Other parameters; a prior that differs from Stan's by more than a constant;
            a transform that is not torch's; objects of PyStan or CmdStanPy, which drop constants.
        ConfigurationError: BridgeStan is not installed, or can't compile.
    """
    check_name(name, "from_stan")
    owner = f"Stan model {name!r}"
    if isinstance(prior_only, str):
        full = opened(model, "from_stan", {prior_only: 0})
        alone = opened(model, "from_stan", {prior_only: 1})
    else:
        full, alone = opened(model, "from_stan"), opened(prior_only, "from_stan: prior_only")
    layout = Layout(full.param_names())
    _check_names(owner, layout, priors)
    if full.param_unc_names() != alone.param_unc_names():
        raise TargetError(f"{owner}: the program of the priors alone has other parameters")
    coordinates = Coordinates(full, priors)
    density = LogDensity(full, jacobian=False, less=alone)

    def log_likelihood(params: dict[str, Tensor]) -> Tensor:
        return density(coordinates(params)) if layout.size else _number(density)

    def predictor(values: Mapping[str, Any], seed: int) -> dict[str, Any]:
        rows = layout.flat(values)
        u = np.stack([full.param_unconstrain(np.ascontiguousarray(row)) for row in rows])
        return generated(full, u, seed)

    with seeded(0), torch.no_grad(), unchecked():
        draws, log_prior = _draws(owner, priors)
        _check_shapes(owner, layout, draws)
        _check_transforms(owner, full, layout, draws, coordinates)
        constant = _constant(owner, alone, draws, log_prior, coordinates)
        _check_possible(owner, density, draws, coordinates)
    split = StanSplit(
        name,
        dict(priors),
        log_likelihood,
        dtype=torch.float64,
        language="Stan",
        predictor=predictor,
        prior_constant=constant,
    )
    if check:
        checked(split)
    found = split.renamed(rename or {})
    assert isinstance(found, StanSplit)
    return found


def stan_joint(
    name: str,
    model: Any,
    reference: Any = None,
    *,
    rename: Mapping[str, str] | None = None,
    check: bool = True,
) -> StanJoint:
    r"""The whole density of a Stan program as a joint on its own coordinates, by BridgeStan.

    For programs that can't leave out their likelihood, or whose transforms are not torch's. As
    :class:`Joint`; parameters are Stan's unconstrained coordinates, whose names end in ``_unc``
    where these are not the parameters themselves.

    The evidence is that of the density as it is written, constants of ``~`` included. Where a
    bound is declared and the density is that of the whole line, or a vector is ordered, its prior
    does not integrate to 1, and neither counts the evidence: write the truncation
    (``s ~ normal(0, 1) T[0, ];``), add ``lgamma(K + 1)`` for K ordered draws, or use
    :func:`from_stan`. A parameter without a prior is improper in Stan, which nothing shows here:
    the evidence has no meaning then.

    Arguments:
        name: Shown in every table.
        model: A ``bridgestan.StanModel``, or ``(path of the program, data)``.
        reference: As of :class:`Joint`; or draws in Stan's own units by its names, (n, \*shape),
            such as ``fit.stan_variables()`` of CmdStanPy.
        rename: By the names here, others.
        check: Try gradients; False is for models that have been.

    Raises:
        TargetError: A reference of other names; objects of PyStan or CmdStanPy.
        ConfigurationError: BridgeStan is not installed, or can't compile.
    """
    check_name(name, "stan_joint")
    program = opened(model, "stan_joint")
    stan, unc = Layout(program.param_names()), Layout(program.param_unc_names())
    names = _coordinate_names(program, stan, unc)
    shapes = {names[k]: s for k, s in unc.shapes.items()}

    def coordinates_of(draws: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        missing = sorted(set(stan.shapes) - set(draws))
        if missing:
            raise TargetError(f"Stan model {name!r}: draws lack {missing}")
        rows = stan.flat({k: draws[k] for k in stan.shapes})
        u = np.stack([program.param_unconstrain(np.ascontiguousarray(row)) for row in rows])
        return {names[k]: v for k, v in unc.split(u).items()}

    if _are_draws(reference, stan):
        reference = coordinates_of(reference)
    density = LogDensity(program, jacobian=True)

    def together(params: Mapping[str, Tensor]) -> Tensor:
        first = next(iter(params.values()))
        columns = [first.new_empty(0)] * unc.size
        for k, place in unc.places.items():
            x = params[names[k]].reshape(len(first), -1)
            for j, i in enumerate(place.reshape(-1)):
                columns[i] = x[:, j]
        return torch.stack(columns, 1)

    def log_joint(params: dict[str, Tensor]) -> Tensor:
        return density(together(params)) if unc.size else _number(density)

    def predictor(values: Mapping[str, Any], seed: int) -> dict[str, Any]:
        u = unc.flat({k: values[here] for k, here in names.items()})
        return generated(program, u, seed) | stan.split(
            np.stack([program.param_constrain(row) for row in u])
        )

    joint = StanJoint(
        name,
        reference_priors(shapes, reference),
        log_joint,
        dtype=torch.float64,
        language="Stan",
        predictor=predictor,
        coordinates_of=coordinates_of,
    )
    if check:
        checked_joint(joint, "Stan")
    found = joint.renamed(rename or {})
    assert isinstance(found, StanJoint)
    return found


def _are_draws(reference: Any, stan: Layout) -> bool:
    """Whether it is draws by Stan's names, and no densities."""
    if not isinstance(reference, Mapping) or not set(stan.shapes) <= set(reference):
        return False
    return not any(callable(x) or hasattr(x, "log_prob") for x in reference.values())


class Coordinates:
    """Stan's unconstrained coordinates of values, by the bijections of the priors' supports.

    Arguments:
        model: The program.
        priors: By parameter.
    """

    def __init__(self, model: StanModel, priors: Mapping[str, PriorSpec]) -> None:
        self.priors, self.unc = priors, Layout(model.param_unc_names())

    def __call__(self, values: Mapping[str, Tensor]) -> Tensor:
        """Coordinates (C, D) of values, (C, *shape) by name."""
        n = len(next(iter(values.values())))
        columns: list[Any] = [None] * self.unc.size
        for name, spec in self.priors.items():
            dist = Prior.called(spec, values)
            u = bijection_onto(support_of(dist)).inv(values[name]).reshape(n, -1)
            places = self.unc.places.get(name, np.empty(0, dtype=int)).reshape(-1)
            if u.shape[1] != len(places):
                raise TargetError(
                    f"Stan has {len(places)} coordinates of {name!r}, the support of its prior "
                    f"{u.shape[1]}: state a prior with the support that Stan declares, or {JOINT}"
                )
            for j, i in enumerate(places):
                columns[i] = u[:, j]
        return torch.stack(columns, 1).double()


def _number(density: LogDensity) -> Tensor:
    """The log density of a program without parameters."""
    return torch.as_tensor(density.values(np.empty((1, 0))))[0]


def _check_names(owner: str, layout: Layout, priors: Mapping[str, PriorSpec]) -> None:
    if set(priors) != set(layout.shapes):
        raise TargetError(
            f"{owner}: expected a prior of each of Stan's parameters {list(layout.shapes)}, got "
            f"{list(priors)}"
        )


def _draws(owner: str, priors: Mapping[str, PriorSpec]) -> tuple[dict[str, Tensor], Tensor]:
    """A few prior draws, (n, *shape), and their log density in natural units, (n,), nats."""
    density = Density(owner, priors, lambda p: torch.zeros(()), True, None)
    density = density.to(torch.float64, torch.device("cpu"))
    values = density.sample(DRAWS, None)
    total = torch.zeros(DRAWS, dtype=torch.float64)
    for block in density.blocks:
        dist = block.prior.distribution(values, DRAWS)
        each = log_density_of(dist, values[block.prior.name])
        total = total + each.reshape(DRAWS, -1).sum(-1)
    return values, total


def _check_shapes(owner: str, layout: Layout, draws: Mapping[str, Tensor]) -> None:
    for name, shape in layout.shapes.items():
        if tuple(draws[name].shape[1:]) != shape:
            raise TargetError(
                f"{owner}: {name!r} has shape {shape} in Stan and {tuple(draws[name].shape[1:])} "
                "by its prior"
            )


def _check_transforms(
    owner: str,
    model: StanModel,
    layout: Layout,
    draws: Mapping[str, Tensor],
    coordinates: Coordinates,
) -> None:
    """Refuse priors whose bijection is not Stan's: values would be others than are meant."""
    if not layout.size:
        return
    rows = layout.flat({k: v.numpy() for k, v in draws.items()})
    ours = coordinates(draws).numpy()
    for row, u in zip(rows, ours, strict=True):
        try:
            there = model.param_unconstrain(np.ascontiguousarray(row))
        except RuntimeError as error:
            raise TargetError(
                f"{owner}: Stan refuses a draw of the priors: {error}. Their supports must be "
                "those that the program declares"
            ) from error
        wrong = ~(np.abs(there - u) <= SAME * (1 + np.abs(there)))
        if wrong.any():
            names = model.param_unc_names()
            i = int(wrong.argmax())
            raise TargetError(
                f"{owner}: Stan's coordinate {names[i]} of a draw is {there[i]:.8g}, that of its "
                f"prior's support {u[i]:.8g}: the constraint that Stan declares is another, or its "
                f"transform is (simplexes are). State a prior with Stan's support, or {JOINT}"
            )


def _constant(
    owner: str,
    alone: StanModel,
    draws: Mapping[str, Tensor],
    log_prior: Tensor,
    coordinates: Coordinates,
) -> float:
    """Log of Stan's prior over the stated one, nats; refused where it is no constant."""
    if not draws:
        return 0.0
    density = LogDensity(alone, jacobian=False)
    u = coordinates(draws).numpy()
    gap = density.values(u) - log_prior.numpy()
    if not np.ptp(gap) <= CONSTANT * (1 + np.abs(log_prior.numpy()).max()):
        said = f" ({density.said})" if density.said else ""
        raise TargetError(
            f"{owner}: the priors are not those of the program: log of Stan's over the stated ones "
            f"is {gap.min():.6g} to {gap.max():.6g} at {DRAWS} draws (a constant would be what "
            "Stan leaves out, and no harm). State the same priors, or put the likelihood alone "
            f"into the block that prior_only leaves out{_flat(density, u)}{said}"
        )
    return float(np.median(gap))


def _flat(density: LogDensity, u: NDArray[Any]) -> str:
    """Words about coordinates that a density of priors does not depend on, if there are some."""
    _, slopes = density.with_gradients(u)
    names = np.array(density.model.param_unc_names())[(slopes == 0).all(0)].tolist()
    if not names:
        return ""
    return (
        f". Stan's does not depend on {names}: a parameter without a prior is improper in Stan, "
        "unless both ends are declared, and then no evidence is defined; write its prior into the "
        "program"
    )


def _check_possible(
    owner: str, density: LogDensity, draws: Mapping[str, Tensor], coordinates: Coordinates
) -> None:
    if draws and not np.isfinite(density.values(coordinates(draws).numpy())).any():
        said = f": Stan says {density.said}" if density.said else ""
        raise TargetError(f"{owner}: none of {DRAWS} prior draws has a finite likelihood{said}")


def _coordinate_names(model: StanModel, stan: Layout, unc: Layout) -> dict[str, str]:
    """Names of coordinates: those of parameters that are their own, else with ``_unc``."""
    own = set[str]()
    if unc.size:
        rng = np.random.default_rng(0)
        u = rng.standard_normal((3, unc.size))
        values = stan.split(np.stack([model.param_constrain(row) for row in u]))
        there = unc.split(u)
        own = {
            k
            for k in there
            if k in values and values[k].shape == there[k].shape and (values[k] == there[k]).all()
        }
    return {k: k if k in own else f"{k}_unc" for k in unc.shapes}
