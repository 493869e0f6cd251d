"""Walks among models by Laplace's evidences or one quadratic, as far as there is time for them."""

from __future__ import annotations

from contextlib import suppress

import torch

from ..errors import ConfigurationError
from ..kernel.proposal.base import IndexProposal
from ..kernel.proposal.sweep import SweepWalk
from ..kernel.proposal.walk import ScoreWalk
from ..transport.laplace import Laplace
from .policy import Policy


def laplace_walks(
    flow: Laplace, generator: torch.Generator, seconds: float, chains: int, policy: Policy
) -> tuple[float, dict[str, IndexProposal]]:
    """Seconds that a new model costs the map, and walks by name: none where that is too much.

    Arguments:
        flow: The map, without a flow inside.
        generator: Source of randomness.
        seconds: Of a first segment.
        chains: Chains of it.
        policy: The policy.
    """
    space, segments, normals = flow.space, policy.segments, policy.normals
    price = flow.price(space.sample_prior(normals.priced_models, generator))
    models = seconds / max(price, 1e-12)  # that can be had in a segment
    asked = normals.new_models * chains * segments.steps  # by a step of a walk
    all_of_them = space.size is not None and models > space.size
    walks: dict[str, IndexProposal] = {}
    if not all_of_them and models < asked:
        return price, walks
    with suppress(ConfigurationError):  # where it does not fit
        walks["sweep"] = SweepWalk(flow)
    if all_of_them or not walks:
        steps = None if all_of_them else int(models / asked)
        walks["laplace"] = ScoreWalk(space, flow.log_evidence, steps=steps)
    return price, walks
