"""The weights that evidences through a map are made of, at draws of chains and of the map."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ..draws import Draws
from ..target.target import Target
from ..transport.base import Transport, pulled
from .bridge import bridge
from .estimate import Estimate
from .importance import CHUNK, log_mean_weight, rounded, smoothed, weighted_points

MOST_CHAIN_DRAWS = 100_000  # that are carried through the map

MORE = 2.0  # errors of a difference from which a map knows more than a pilot run

MIRRORED = 2048  # draws of the chains and of the map, each, for the symmetrised bridge


def chain_weights(
    target: Target,
    transport: Transport,
    draws: Draws,
    most: int,
    generator: torch.Generator,
    among: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Draws of the chains, evenly thinned, and their log weights under the map.

    Arguments:
        target: The target.
        transport: The map.
        draws: What the chains kept.
        most: Draws to use at most, all chains together.
        generator: Source of randomness.
        among: Models whose draws are wanted, (M, L).

    Returns:
        Models (chain, draw, L), reference points (chain, draw, D + auxiliary) and log weights
        (chain, draw), float64, nats, on the CPU; zero where the model is not wanted. No
        likelihood is evaluated.
    """
    every = max(1, -(-draws.n_chains * draws.n_draws // most))
    code, theta = draws.code[:, ::every].flatten(0, 1), draws.theta[:, ::every].flatten(0, 1)
    log_joint = draws.log_joint[:, ::every].flatten()
    wanted = torch.zeros_like(log_joint, dtype=torch.bool)
    for one in among.to(
        code.device
    ):  # a map of very many models is expensive where one is new to it
        wanted |= (code == one).all(-1)
    device, place = target.device, wanted.nonzero()[:, 0]
    z = theta.new_zeros(len(theta), target.dim + transport.reference.auxiliary)
    log_w = torch.zeros(len(theta), dtype=torch.float64, device=theta.device)
    with torch.no_grad():
        for rows in place.split(CHUNK):
            here, model, value = (t[rows].to(device) for t in (theta, code, log_joint))
            point = pulled(transport, here, model, value, generator)
            z[rows], log_w[rows] = point.z.to(z), point.log_weight.to(log_w)
    shape = draws.n_chains, len(code) // draws.n_chains
    return code.view(*shape, code.shape[1]), z.view(*shape, z.shape[1]), log_w.view(shape)


def mirrored(
    target: Target, transport: Transport, code: Tensor, z: Tensor, log_w: Tensor
) -> Tensor:
    """Log weights of the target made symmetric about the map's centre.

    The target in reference space is averaged with its mirror image, which costs one more
    evaluation a draw and takes skewness out of the way of the bridge.

    Arguments:
        target: The target.
        transport: The map; its reference is symmetric.
        code: Models, shape (N, L).
        z: Reference points, shape (N, D + auxiliary).
        log_w: Log weights there, shape (N,), nats.

    Source:
        Meng & Schilling (2002), https://doi.org/10.1198/106186002457, section 4 (Warp-III)
    """
    d, device, found = target.dim, target.device, []
    with torch.no_grad():
        for c, point in zip(code.split(CHUNK), z.split(CHUNK), strict=True):
            c, point = c.to(device), point.to(device)
            across = torch.cat([-point[:, :d], point[:, d:]], 1)
            theta, log_q = transport.push(across, c)
            log_joint = target.log_joint(c, torch.where(target.space.active(c), theta, 0.0))
            target.check_finite(c, theta, log_joint)
            found.append((log_joint.double() - log_q.double()).cpu())
    return torch.logaddexp(log_w, torch.cat(found)) - math.log(2)


def by_weights(weights: Mapping[str, Tensor], dtype: torch.dtype) -> dict[str, dict[str, Estimate]]:
    """Log mean weights of each model, plain and smoothed, in nats.

    Arguments:
        weights: Log weights by model.
        dtype: Of the numbers that densities are computed in.
    """
    found: dict[str, dict[str, Estimate]] = {"importance": {}, "smoothed": {}}
    for m, w in weights.items():
        smooth, plain = smoothed(w), log_mean_weight(w)
        error = math.nan if math.isnan(smooth.std_error) else plain.std_error
        plain = replace(plain, std_error=error, warning=plain.warning or smooth.warning)
        found["importance"][m], found["smoothed"][m] = rounded(plain, dtype), rounded(smooth, dtype)
    return found


def through_the_map(
    target: Target,
    transport: Transport,
    draws: Draws,
    weights: Mapping[str, Tensor],
    generator: torch.Generator,
    *,
    evaluations: float = 0.0,
) -> dict[str, dict[str, Estimate]]:
    """Log of p(model) times the evidence of each model by every route through a map.

    Arguments:
        target: The target.
        transport: The map.
        draws: What the chains kept.
        weights: By model, log weights of draws from the map.
        generator: Source of randomness.
        evaluations: What may be spent on the symmetrised bridge; it is left out where this is
            not enough.

    Returns:
        By route (``importance``, ``smoothed``, ``bridge``, ``warp``) and model, estimates in
        nats.
    """
    if not weights:
        return {}
    space, dtype, found = target.space, target.dtype, by_weights(weights, target.dtype)
    found["bridge"] = {}
    codes = {m: space.code_of(m).to(draws.code.device) for m in weights}
    code, z, log_w = chain_weights(
        target, transport, draws, MOST_CHAIN_DRAWS, generator, torch.stack(list(codes.values()))
    )
    inside = {m: (code == c).all(-1) for m, c in codes.items()}
    for m, w in weights.items():
        rows = np.where(inside[m].numpy(), log_w.numpy(), np.nan)
        found["bridge"][m] = rounded(bridge(rows, w.numpy()), dtype)
    if evaluations > 3 * MIRRORED * len(weights):
        found["warp"] = {}
        for m, c in codes.items():
            some = _some(inside[m], MIRRORED)
            n = int(some.sum())
            table = np.full(some.shape, np.nan)
            if n:
                here = mirrored(target, transport, c.expand(n, -1), z[some], log_w[some])
                table[some.numpy()] = here.numpy()
            points, log_v = weighted_points(
                target, transport, c.to(target.device), MIRRORED, generator
            )
            there = mirrored(target, transport, c.expand(MIRRORED, -1), points.cpu(), log_v.cpu())
            found["warp"][m] = rounded(bridge(table, there.numpy()), dtype)
    return found


def _some(inside: Tensor, most: int) -> Tensor:
    """At most so many of the rows that are True, evenly spread."""
    place = inside.flatten().nonzero()[:, 0]
    some = torch.zeros_like(inside).flatten()
    some[place[:: max(1, -(-len(place) // most))]] = True
    return some.view_as(inside)
