"""Where chains start."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..errors import TargetError
from ..kernel.base import State, start
from ..rng import categorical
from ..target.target import Target
from ..transport.base import Transport

CANDIDATES = 64  # points tried for each chain that starts from the prior


def starting_state(
    target: Target,
    transport: Transport | None,
    code: Tensor,
    generator: torch.Generator,
    carried: tuple[Tensor, Tensor] | None = None,
) -> tuple[State, Tensor]:
    """Chains of which every other one starts from the map, the rest from the prior.

    Arguments:
        target: The target.
        transport: The map; without one all start from the prior.
        code: The model that each chain starts in, shape (C, L).
        generator: Source of randomness.
        carried: Where prior draws have been carried by tempering, shape (C, D), and the draws
            that these descend from as numbers, shape (C,). Without them a chain takes one of a few
            prior draws in proportion to its likelihood.

    Returns:
        The chains, and the independent draw that each descends from as a number, shape (C,).

    Raises:
        TargetError: No point with a finite density was found.
        NonFiniteError: A density was NaN or +inf.
    """
    chains, device = len(code), target.device
    with torch.no_grad():
        own = -1 - torch.arange(chains, device=device)
        if carried is None:
            drawn, ancestor = _from_prior(target, code, generator), own
        else:
            drawn, ancestor = start(target, code, carried[0]), carried[1]
        pushed = drawn
        if transport is not None:
            z = transport.reference.sample((chains, target.dim), generator, target.dtype)
            pushed = start(target, code, transport.push(z, code)[0])
        from_map = torch.arange(chains, device=device) % 2 == 0
        use_map = torch.where(from_map, pushed.log_joint > -math.inf, drawn.log_joint == -math.inf)
        theta = torch.where(use_map[:, None], pushed.theta, drawn.theta)
        log_joint = torch.where(use_map, pushed.log_joint, drawn.log_joint)
        if transport is not None:
            ancestor = torch.where(use_map, own, ancestor)
        target.check_finite(code, theta, log_joint)
        fine = log_joint > -math.inf
        if not bool(fine.any()):
            raise TargetError(
                f"no starting point with a finite density among {chains * CANDIDATES} prior "
                "draws and the map's draws: is the likelihood -inf nearly everywhere?"
            )
        # a chain without a start of its own borrows that of another
        donor = torch.multinomial(fine.double(), chains, replacement=True, generator=generator)
        chosen = torch.where(fine, torch.arange(chains, device=device), donor)
        return State(code[chosen], theta[chosen], log_joint[chosen]), ancestor[chosen]


def _from_prior(target: Target, code: Tensor, generator: torch.Generator) -> State:
    """For each chain one of a few prior draws, in proportion to its likelihood."""
    chains = len(code)
    many = code.repeat_interleave(CANDIDATES, 0)
    theta = target.sample_prior(many, generator)
    usable = theta.isfinite().all(-1)
    theta = torch.where(usable[:, None], theta, 0.0)
    log_prior, log_likelihood = target.log_prior_and_likelihood(many, theta)
    usable &= log_prior > -math.inf
    target.check_finite(many, theta, torch.where(usable, log_likelihood, 0.0))
    score = torch.where(usable, log_likelihood, -math.inf).view(chains, CANDIDATES)
    best = categorical(score, generator)
    rows = torch.arange(chains, device=target.device) * CANDIDATES + best
    log_joint = torch.where(usable, log_prior + log_likelihood, -math.inf)
    return State(code, theta[rows], log_joint[rows])
