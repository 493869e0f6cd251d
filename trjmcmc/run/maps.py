"""The maps and q(m) that a sampler takes where none is given."""

from __future__ import annotations

import copy

from ..space.base import Space
from ..target.exchangeable import components_of
from ..target.target import Target
from ..transport.base import Transport
from ..transport.cosmic import CosmicFlow
from ..transport.laplace import Laplace
from ..transport.mixture import mixture_flow
from ..transport.ordered import OrderedComponents
from ..weights.base import ModelWeights
from ..weights.made import Made
from ..weights.score_gradient import CategoricalWeights
from .policy import MapPolicy

DEFAULT = MapPolicy()


def default_map(target: Target, seed: int, policy: MapPolicy = DEFAULT) -> Transport:
    """A flow: of components in order where like ones are counted; around Laplace's normals where
    the models are many and differentiable."""
    space = target.space
    if not laplace_fits(target, policy):
        if len(components_of(target)) == 1 == len(space.kinds):
            return OrderedComponents(mixture_flow(space, seed=seed))
        return mixture_flow(space, seed=seed)
    return Laplace(target, CosmicFlow(space, layers=policy.layers_in_laplace, seed=seed))


def laplace_fits(target: Target, policy: MapPolicy = DEFAULT) -> bool:
    """Whether the models are many, have gradients, and curvatures are not too large."""
    space = target.space
    many = space.has_items and not space.few
    return many and target.differentiable and 0 < target.dim <= policy.most_laplace_coordinates


def default_weights(space: Space) -> ModelWeights:
    """A table of few models; an autoregressive network over the codes of many."""
    if space.few:
        return CategoricalWeights(space)
    return Made(space)


def matching(transport: Transport, target: Target) -> Transport:
    """The map in the target's precision and place; the caller's own where it fits already."""
    tensors = [*transport.parameters(), *transport.buffers()]
    floating = [t for t in tensors if t.is_floating_point()]
    if all((t.dtype, t.device) == (target.dtype, target.device) for t in floating):
        return transport
    return copy.deepcopy(transport).to(target.device, target.dtype)
