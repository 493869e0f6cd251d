"""The map that a sampler takes where none is given, and whether a map is one."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import torch

from ..errors import ConfigurationError
from ..space.base import Space
from ..target.exchangeable import components_of
from ..target.target import Target
from ..transport.autoregressive import CosmicAutoregressive
from ..transport.base import Transport
from ..transport.cosmic import CosmicFlow
from ..transport.laplace import LaplaceMap
from ..transport.mixture import mixture_flow
from ..transport.sorted_components import SortedComponents

LAYERS, HIDDEN = 8, (64, 64)  # couplings of the flow, and widths of each of its conditioners

LAYERS_IN_LAPLACE = 4  # couplings of the flow inside Laplace's map

PROBES = 64  # points at which a map is checked

MOST_COORDINATES = 64  # of Laplace's map: curvatures cost their cube

ROUND_TRIP = 0.05  # largest error of a map there and back, relative or in nats


def map_of(
    target: Target,
    given: Transport | Callable[[Space], Transport] | None,
    seed: int,
) -> Transport:
    """The map that was given, or made by what was given; the default one of None.

    Raises:
        ConfigurationError: It is neither a map nor makes one.
    """
    if given is None:
        return default_map(target, seed)
    made = given if isinstance(given, Transport) or not callable(given) else given(target.space)
    if not isinstance(made, Transport):
        raise ConfigurationError(
            "transport: expected a map, or a function of the space that makes one, such as "
            f"trj.transport.RealNVP; got {made!r}"
        )
    return made


def default_map(target: Target, seed: int) -> Transport:
    """A flow: of components in order where like ones are counted; around Laplace's normals where
    the models are many and differentiable."""
    space = target.space
    if not target.dim:  # nothing to map
        return CosmicAutoregressive(space, transform="diagonal")
    many = space.has_items and not space.few
    if not (many and target.differentiable and target.dim <= MOST_COORDINATES):
        flow = mixture_flow(space, seed=seed, layers=LAYERS, hidden=HIDDEN)
        ordered = len(components_of(target)) == 1 == len(space.kinds)
        return SortedComponents(flow) if ordered else flow
    return LaplaceMap(target, CosmicFlow(space, layers=LAYERS_IN_LAPLACE, seed=seed))


def matching(transport: Transport, target: Target) -> Transport:
    """The map in the target's precision and place; the caller's own where it fits already."""
    tensors = [*transport.parameters(), *transport.buffers()]
    floating = [t for t in tensors if t.is_floating_point()]
    if all((t.dtype, t.device) == (target.dtype, target.device) for t in floating):
        return transport
    return copy.deepcopy(transport).to(target.device, target.dtype)


def check_round_trip(target: Target, transport: Transport, generator: torch.Generator) -> None:
    """Refuse a map whose two directions are not each other's inverse.

    Raises:
        ConfigurationError: Points or densities there and back differ.
    """
    if not target.dim:
        return
    code = target.space.sample_prior(PROBES, generator)
    with torch.no_grad():
        z = transport.reference.sample((PROBES, target.dim), generator, target.dtype)
        theta, log_q = transport.push(z, code)
        z, back_log_q = transport.pull(theta, code, generator)
        again, _ = transport.push(z, code)
    known = log_q != math.inf  # no move leads to what push disowns
    apart = ((again - theta).abs() / (1 + theta.abs()))[known]
    gap = float(apart.max()) if apart.numel() else 0.0
    density_gap = float((log_q - back_log_q)[known].abs().max()) if known.any() else math.inf
    if not max(gap, density_gap) < ROUND_TRIP:
        raise ConfigurationError(
            f"transport: {type(transport).__name__} does not lead back to where it came "
            f"from (error {gap:.3g} in theta, {density_gap:.3g} in the log density); the "
            "sampler would not be exact. Try dtype=torch.float64."
        )
