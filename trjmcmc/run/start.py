"""Where chains start."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..draws import Pool
from ..errors import ConfigurationError, TargetError
from ..kernel.base import State, start
from ..rng import categorical
from ..target.target import Target
from ..transport.base import Transport

CANDIDATES = 64  # prior draws tried for each chain that starts from the prior

ENOUGH = 0.1  # prior draws of finite density per chain, from which no more are made


def prior_draws(target: Target, n: int, generator: torch.Generator) -> State:
    """So many chains at draws from the prior where these are finite.

    Raises:
        TargetError: None has a finite density.
        NonFiniteError: A density was NaN or +inf.
    """
    found: list[State] = []
    for _ in range(CANDIDATES):
        code = target.space.sample_prior(n, generator)
        theta = target.sample_prior(code, generator)
        usable = theta.isfinite().all(-1)
        theta = torch.where(usable[:, None], theta, 0.0)
        log_joint = torch.where(usable, target.log_joint(code, theta), -math.inf)
        target.check_finite(code, theta, log_joint)
        fine = log_joint > -math.inf
        found.append(State(code[fine], theta[fine], log_joint[fine]))
        if sum(len(x.code) for x in found) > ENOUGH * n:
            break
    code, theta, log_joint = (torch.cat(x) for x in list(zip(*found, strict=True))[:3])
    if not len(code):
        raise TargetError(
            f"no starting point with a finite density among {n * CANDIDATES} prior draws: "
            "is the likelihood -inf nearly everywhere?"
        )
    pick = torch.randint(len(code), (n,), generator=generator, device=code.device)
    each = torch.arange(n, device=code.device)
    pick = torch.where(each < len(code), each, pick)
    return State(code[pick], theta[pick], log_joint[pick])


def given_starts(target: Target, pool: Pool, chains: int) -> State:
    """Chains at points that the user gave.

    Raises:
        ConfigurationError: No points, points of another space, or where the density is zero.
    """
    if not isinstance(pool, Pool):
        raise ConfigurationError(
            "start: expected particles of trj.graphs.dibs, a trj.fit.Pool or a result, got "
            f"{type(pool).__name__}"
        )
    width = target.space.code_width, target.dim
    if (pool.code.shape[1], pool.theta.shape[1]) != width or not len(pool.code):
        raise ConfigurationError(
            f"start: expected points of this target, models (n, {width[0]}) and coordinates "
            f"(n, {width[1]}), got {tuple(pool.code.shape)} and {tuple(pool.theta.shape)}"
        )
    code, theta = pool.code.to(target.device), pool.theta.to(target.device, target.dtype)
    every = start(target, code, theta)
    target.check_finite(code, theta, every.log_joint)
    if lost := int((every.log_joint == -math.inf).sum()):
        raise ConfigurationError(
            f"start: {lost} of {len(code)} points have density zero; leave them out"
        )
    pick, _ = rows_of(pool, chains)
    return State(code[pick], theta[pick], every.log_joint[pick])


def rows_of(pool: Pool, chains: int) -> tuple[Tensor, Tensor]:
    """The point that each chain starts at, and which of the different ones it is, shapes (C,)."""
    code, theta = pool.code.cpu(), pool.theta.cpu()
    each = torch.arange(chains)
    pick = each % len(code) if chains > len(code) else each * len(code) // chains
    _, point = torch.cat([code.to(theta), theta], 1).unique(dim=0, return_inverse=True)
    return pick, point[pick]


def starting_state(
    target: Target,
    transport: Transport | None,
    code: Tensor,
    generator: torch.Generator,
    candidates: int = CANDIDATES,
) -> State:
    """Chains of which every other one starts from the map, the rest from the prior.

    Arguments:
        target: The target.
        transport: The map; without one all start from the prior.
        code: The model that each chain starts in, shape (C, L).
        generator: Source of randomness.
        candidates: Prior draws of a chain, which takes one in proportion to its likelihood.

    Raises:
        TargetError: No point with a finite density was found.
        NonFiniteError: A density was NaN or +inf.
    """
    chains, device = len(code), target.device
    with torch.no_grad():
        pushed = drawn = _from_prior(target, code, generator, candidates)
        if transport is not None:
            z = transport.reference.sample((chains, target.dim), generator, target.dtype)
            pushed = start(target, code, transport.push(z, code)[0])
        from_map = torch.arange(chains, device=device) % 2 == 0
        use_map = torch.where(from_map, pushed.log_joint > -math.inf, drawn.log_joint == -math.inf)
        theta = torch.where(use_map[:, None], pushed.theta, drawn.theta)
        log_joint = torch.where(use_map, pushed.log_joint, drawn.log_joint)
        target.check_finite(code, theta, log_joint)
        fine = log_joint > -math.inf
        if not bool(fine.any()):
            raise TargetError(
                f"no starting point with a finite density among {chains * candidates} prior "
                "draws and the map's draws: is the likelihood -inf nearly everywhere?"
            )
        # a chain without a start of its own borrows that of another
        donor = torch.multinomial(fine.double(), chains, replacement=True, generator=generator)
        chosen = torch.where(fine, torch.arange(chains, device=device), donor)
        return State(code[chosen], theta[chosen], log_joint[chosen])


def _from_prior(target: Target, code: Tensor, generator: torch.Generator, candidates: int) -> State:
    """For each chain one of a few prior draws, in proportion to its likelihood."""
    chains = len(code)
    many = code.repeat_interleave(candidates, 0)
    theta = target.sample_prior(many, generator)
    usable = theta.isfinite().all(-1)
    theta = torch.where(usable[:, None], theta, 0.0)
    log_prior, log_likelihood = target.log_prior_and_likelihood(many, theta)
    usable &= log_prior > -math.inf
    target.check_finite(many, theta, torch.where(usable, log_likelihood, 0.0))
    score = torch.where(usable, log_likelihood, -math.inf).view(chains, candidates)
    best = categorical(score, generator)
    rows = torch.arange(chains, device=target.device) * candidates + best
    log_joint = torch.where(usable, log_prior + log_likelihood, -math.inf)
    return State(code, theta[rows], log_joint[rows])
