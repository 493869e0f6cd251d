"""Pathfinder: normals along climbs of the posterior, and the best one of each climb."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .. import clock
from ..errors import ConfigurationError
from ..pilot.modes import Modes, mode_map
from ..space.base import Space
from ..target.resolution import resolved
from ..target.target import Target
from ..transport.mixture import MixtureOfMaps
from .climbs import Climbs, Posterior

ENOUGH = 0.01  # nats: refinements that gain less are the last

JUDGED = 200  # draws by which the chosen normals are judged anew


@dataclass(frozen=True)
class Pathfinder:
    """Normals that :func:`pathfinder` found in one model, one a path.

    Attributes:
        code: The model, shape (L,).
        loc: Means, in padded unconstrained coordinates, shape (K, D); zero in spare slots.
        scale_tril: Lower factors of the covariances, shape (K, D, D); the identity in spare
            slots.
        elbo: Evidence lower bound of each normal, log p(model) included, shape (K,), nats, by
            draws that had no say in its choice. -inf where the density was zero at one of them.
        evaluations: Of the log joint, those with a gradient included.
        failures: For each path that has no normal a sentence.
    """

    code: Tensor
    loc: Tensor
    scale_tril: Tensor
    elbo: Tensor
    evaluations: int
    failures: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.loc)

    def __repr__(self) -> str:
        return (
            f"Pathfinder({len(self)} normals, elbo up to {float(self.elbo.max()):.2f}, "
            f"{self.evaluations} evaluations, {len(self.failures)} failures)"
        )


def pathfinder(
    target: Target,
    code: Tensor,
    generator: torch.Generator,
    *,
    paths: int = 8,
    draws: int = 10,
    max_iterations: int = 200,
    history: int = 10,
    refine: int = 5,
    starts: Tensor | None = None,
    deadline: float = math.inf,
) -> Pathfinder:
    r"""Normals that approximate the posterior of one model, from several starts.

    Each path is a quasi-Newton optimisation of the log joint from a prior draw. What the last steps
    taught of the curvature makes a normal at each point of the way,

    .. math:: N(\theta + \Sigma \nabla \log p(\theta), \Sigma),

    and the path keeps the one with the highest evidence lower bound: on the way through the bulk
    of a funnel or of a hierarchy that is not the one at the mode. All paths go at once, with
    one evaluation each in a call.

    With many correlated coordinates so few steps do not know the whole covariance. Unlike the
    published algorithm this one ends by refinements, at two gradients a coordinate and path: from
    slopes at pairs of opposite points of the normal, along orthogonal directions, follow mean
    gradient and mean curvature over it, and thus a Newton step of mean and covariance. The whole
    step is exact for normal posteriors; it or a part of it is taken where the bound rises.
    ``refine=0`` leaves refinements out: wider normals, where posteriors are bent.

    Arguments:
        target: A target with gradients. Paths follow surrogates where there are any; bounds are
            those of the target itself.
        code: The model, shape (L,).
        generator: Source of randomness.
        paths: Number of paths.
        draws: Draws by which normals along the way are compared, even: they come in opposite pairs.
        max_iterations: Most steps of a path.
        history: Steps that a normal is made of; 6 in the publication. Memory and work of the linear
            algebra are those of D x D matrices in any case.
        refine: Most refinements of a path; those that gain less than 0.01 nats are the last.
        starts: Points at which further paths start, in padded unconstrained coordinates, (n, D).
        deadline: Time by :func:`trjmcmc.clock.now` after which no further step or refinement
            begins: each path then has the best normal of its way so far, at first a standard
            normal about its start.

    Returns:
        One normal a path. :func:`pathfinder_map` makes a map of them, and
        ``trjmcmc.estimate.importance`` weighs its draws.

    Raises:
        ConfigurationError: Settings out of range; no gradients; no path succeeded.

    Source:
        Zhang, Carpenter, Gelman & Vehtari (2022), https://jmlr.org/papers/v23/21-0889.html;
        diagonal of the curvature: Gilbert & Lemarechal (1989), https://doi.org/10.1007/BF01589113;
        refinements are steps to the conditions of Opper & Archambeau (2009),
        https://doi.org/10.1162/neco.2008.08-07-592

    Example:
        >>> from trjmcmc import problems
        >>> target = problems.variable_selection(4)
        >>> g = torch.Generator().manual_seed(0)
        >>> found = pathfinder(target, target.space.code_of("x1+x2+x3+x4"), g, paths=4)
        >>> len(found), found.loc.shape, bool(found.elbo.std() < 0.1)
        (4, torch.Size([4, 4]), True)
    """
    numbers = {"paths": paths, "max_iterations": max_iterations, "history": history}
    for name, number in numbers.items():
        if number < 1:
            raise ConfigurationError(f"pathfinder: expected {name} >= 1, got {number}")
    if draws < 2 or draws % 2 or refine < 0:
        raise ConfigurationError(
            f"pathfinder: expected draws in pairs and refine >= 0, got {draws} and {refine}"
        )
    if not target.differentiable:
        raise ConfigurationError(
            "pathfinder: the likelihood has no gradients; write it in torch, wrap it by "
            "trj.with_gradient, or give the models a surrogate"
        )
    posterior = Posterior(target, code, generator)
    if not posterior.dim:
        paths = 1
    x, value, gradient = posterior.starts(paths)
    if starts is not None and posterior.dim:
        there = posterior.rounded(starts[:, posterior.used])
        more, slope = posterior.with_gradient(there)
        x, value, gradient = (
            torch.cat(pair) for pair in ((x, there), (value, more), (gradient, slope))
        )
        paths = len(x)
    climbs = Climbs(posterior, x, value, gradient, history)
    loc, tril = climbs.x.clone(), torch.eye(posterior.dim).to(climbs.x).repeat(paths, 1, 1)
    elbo = posterior.elbo(loc, tril, draws)
    failed = dict.fromkeys(climbs.nowhere, "no draw of a start has a density and a gradient")
    while bool(climbs.going.any()) and clock.now() < deadline:
        rows, mean, factor = climbs.advance(max_iterations)
        if not len(rows):
            continue
        bound = posterior.elbo(mean, factor, draws)
        better = bound > elbo[rows]
        rows = rows[better]
        loc[rows], tril[rows], elbo[rows] = mean[better], factor[better], bound[better]
    lost = (elbo == -math.inf).nonzero()[:, 0].tolist()
    failed = dict.fromkeys(lost, "the density is zero at draws of all its normals") | failed
    failures = tuple(f"path {i + 1}: {failed[i]}" for i in sorted(failed))
    kept = [i for i in range(paths) if i not in failed]
    if not kept:
        raise ConfigurationError(
            f"pathfinder: none of {paths} paths has a normal, as {failures[0]}. What may help: "
            "more paths, bounds stated in the prior, a likelihood smooth where prior draws are"
        )
    loc, tril = loc[kept], tril[kept]
    rows = torch.arange(len(loc) if posterior.dim else 0, device=loc.device)
    for _ in range(refine):
        if not len(rows) or clock.now() >= deadline:
            break
        loc[rows], tril[rows], gain = posterior.refined(loc[rows], tril[rows])
        rows = rows[gain > ENOUGH]
    tril = resolved(loc, tril, target.dtype)
    elbo = posterior.elbo(loc, tril, JUDGED)
    return Pathfinder(
        code, *posterior.padded_normals(loc, tril), elbo, posterior.evaluations, failures
    )


def pathfinder_map(space: Space, found: Sequence[Pathfinder]) -> MixtureOfMaps:
    """A map of the normals of each model, all equally probable.

    Its draws are weighed by the density of the whole mixture. Multi-path Pathfinder weighs each
    draw by the density of its own path; the mixture's gives weights whose variance is not larger,
    and which are bounded wherever one path covers what another misses.

    Arguments:
        space: A bound space of few models.
        found: The normals of each, in the order of ``space.enumerate()``.

    Source:
        Deterministic mixture weights: Owen & Zhou (2000), https://doi.org/10.1080/01621459.2000.10473909

    Example:
        >>> from trjmcmc import problems
        >>> from trjmcmc.estimate.importance import log_weights, smoothed
        >>> target = problems.variable_selection(1)
        >>> g, codes = torch.Generator().manual_seed(0), target.space.enumerate()
        >>> flow = pathfinder_map(target.space, [pathfinder(target, c, g) for c in codes])
        >>> e = smoothed(log_weights(target, flow, codes[1], 1000, g))
        >>> e.std_error < 0.02, e.warning
        (True, '')
    """
    equal = [torch.full_like(f.elbo, 1 / len(f)) for f in found]
    modes = [Modes(w, f.loc, f.scale_tril) for w, f in zip(equal, found, strict=True)]
    return mode_map(space, modes).requires_grad_(False)
