"""Families of q(theta | m) by name, and the maps that they are."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import ConfigurationError
from ..space.base import Space
from ..target.target import Target
from ..transport.affine import Affine
from ..transport.autoregressive import CosmicAutoregressive
from ..transport.base import Bijection, Transport
from ..transport.cosmic import CosmicFlow
from ..transport.laplace import LaplaceMap
from ..transport.per_model import PerModel
from ..transport.whitened import Whitened
from .policy import ApproximationPolicy

RECOMMENDED = "recommended"

FOUND = ("laplace", "pathfinder", "normals")  # without a training by gradients


@dataclass(frozen=True)
class Start:
    """What is known of posteriors before a map is made.

    Attributes:
        target: The target.
        loc: Location of each model of a small space, (M, D); None in a large one.
        factor: Triangular factors of covariances, (M, D, D); None in a large space.
        seed: Of initial weights.
        policy: Sizes.
    """

    target: Target
    loc: Tensor | None
    factor: Tensor | None
    seed: int
    policy: ApproximationPolicy

    def around(self, flow: Bijection) -> Bijection:
        """A flow in coordinates in which the posteriors are about standard normal."""
        if self.loc is not None and self.factor is not None:
            return Whitened(flow, self.loc, self.factor)
        if self.target.differentiable and self.target.dim > 0:
            return LaplaceMap(self.target, flow)
        return flow


def _mean_field(start: Start, *, clip: float = 10.0) -> Transport:
    few = start.loc is not None and start.factor is not None
    usual: dict[str, Any] = {"seed": start.seed, "clip": clip} | ({"blocks": 0} if few else {})
    flow = CosmicAutoregressive(start.target.space, transform="diagonal", **usual)
    if start.loc is not None and start.factor is not None:  # not turned: own axes, own scales
        inverse = torch.linalg.inv(start.factor.double())
        precision = (inverse.mT @ inverse).diagonal(dim1=1, dim2=2).to(start.loc)
        flow.standardise(start.target.space.enumerate(), start.loc, precision.rsqrt())
    return flow


def _full_rank(start: Start) -> Transport:
    if start.loc is None:
        raise ConfigurationError(
            'family "full-rank": a matrix for each of so many models is too much; "laplace" finds '
            "each when it is needed"
        )
    return start.around(Affine(start.target.space))


def _coupling(start: Start, **options: Any) -> Transport:
    p = start.policy
    sizes: dict[str, Any] = {"layers": p.layers, "hidden": (p.hidden,)}
    if start.target.dim > p.many_coordinates:
        sizes = {"layers": p.layers_of_many, "hidden": (p.hidden_of_many,), "bins": 0}
    return start.around(CosmicFlow(start.target.space, **{"seed": start.seed, **sizes, **options}))


def _autoregressive(start: Start, *, usual: Mapping[str, Any], **options: Any) -> Transport:
    settings = {"hidden": start.policy.hidden, "seed": start.seed, **usual, **options}
    return start.around(CosmicAutoregressive(start.target.space, **settings))


FAMILIES: dict[str, Callable[..., Transport]] = {
    "mean-field": _mean_field,
    "full-rank": _full_rank,
    "laplace": lambda start, **options: LaplaceMap(start.target, **options),
    "coupling": _coupling,
    "spline": partial(
        _autoregressive, usual={"transform": "spline", "layers": 2, "blocks": 2, "bins": 16}
    ),
    "iaf": partial(_autoregressive, usual={"transform": "affine", "layers": 2, "blocks": 2}),
    "naf": partial(
        _autoregressive, usual={"transform": "dsf", "layers": 2, "blocks": 2, "nodes": 16}
    ),
    "ddsf": partial(
        _autoregressive, usual={"transform": "ddsf", "layers": 2, "blocks": 2, "nodes": 8}
    ),
}

NAMES = (RECOMMENDED, *FAMILIES, "pathfinder", "normals")

Family = str | Transport | Callable[[Space], Transport] | type[nn.Module]


def name_of(family: Family) -> str:
    """What an answer calls a family."""
    if isinstance(family, str):
        return family
    return str(getattr(family, "__name__", type(family).__name__))


def map_of(family: Family, start: Start, options: Mapping[str, Any]) -> Transport:
    """The map of a family, near the posteriors as far as they are known.

    Arguments:
        family: One of ``FAMILIES``, a map, a function that makes one of the space, or a flow of
            zuko's, such as ``zuko.flows.NSF``, of which every model gets its own.
        start: What is known.
        options: Further arguments of the map.

    Raises:
        ConfigurationError: An unknown family, or one that does not fit the target.
    """
    target = start.target
    made: Any
    if isinstance(family, Transport):
        if options:
            raise ConfigurationError(f"options: a map is taken as it is, got {dict(options)}")
        made = copy.deepcopy(family)
    elif isinstance(family, str):
        if family not in FAMILIES:
            raise ConfigurationError(f"family: expected one of {list(NAMES)}, got {family!r}")
        try:
            made = FAMILIES[family](start, **options)
        except TypeError as error:
            raise ConfigurationError(f"family {family!r}: {error}") from None
    elif isinstance(family, type) and not issubclass(family, Transport):
        if not issubclass(family, nn.Module):
            raise ConfigurationError(f"family: {family.__name__} is neither a map nor a flow")
        made = _of_zuko(family, start, options)
    elif callable(family):
        made = family(target.space, **options)
    else:
        raise ConfigurationError(f"family: expected a name, a map or a function, got {family!r}")
    if not isinstance(made, Transport):
        raise ConfigurationError(f"family: it made no Transport but {type(made).__name__}")
    if made.space.n_slots != target.dim:
        raise ConfigurationError(
            f"family: a map of {made.space.n_slots} coordinates does not fit a target of "
            f"{target.dim}"
        )
    return made.to(target.device, target.dtype)


def _of_zuko(flow: type[nn.Module], start: Start, options: Mapping[str, Any]) -> Transport:
    if start.loc is None:
        raise ConfigurationError(
            f"family {flow.__name__}: one flow for each of so many models is too much; take a "
            'family that sees the model, such as "coupling"'
        )
    inverse = options.get("inverse", False)
    rest = {name: value for name, value in options.items() if name != "inverse"}
    try:
        made = PerModel(
            start.target.space, lambda d: flow(d, **rest), inverse=inverse, seed=start.seed
        )
    except TypeError as error:
        raise ConfigurationError(f"family {flow.__name__}: {error}") from None
    return start.around(made)
