"""A quick first guess of where each model's posterior lies, to standardise coordinates by."""

from __future__ import annotations

import math
from contextlib import suppress

import torch
from torch import Tensor

from .. import clock
from ..errors import BudgetError
from ..target.target import Target

DRAWS = 64  # of a model and iteration, half of them mirror images

ITERATIONS = 150  # steps double where they fall short: a posterior far away takes tens of them


def locate(
    target: Target,
    code: Tensor,
    generator: torch.Generator,
    deadline: float = math.inf,
) -> tuple[Tensor, Tensor]:
    """Mean-field Gaussian approximation of each model by variational online Newton steps.

    Starts from a standard normal in unconstrained coordinates, never from prior moments (which
    heavy tails may lack). Steps are bounded by the current scale, which doubles where they
    fall short, so that a posterior thousands of units away is reached in tens of iterations.

    Arguments:
        target: The target; surrogates are used where there are any.
        code: Models, shape (M, L).
        generator: Source of randomness.
        deadline: Time by :func:`trjmcmc.clock.now` after which no further iteration begins.

    Returns:
        Location and scale, each of shape (M, D): 0 and 1 in spare slots, and in models where no
        finite gradient was found or where these have a higher evidence lower bound.

    Source:
        Khan et al. (2018), https://arxiv.org/abs/1806.04854

    Example:
        >>> from trjmcmc import problems
        >>> target = problems.coal_mining(0, 2)
        >>> loc, scale = locate(target, target.space.enumerate(), torch.Generator().manual_seed(0))
        >>> round(loc[0, 0].exp().item(), 4)  # height given no change: Gamma(192, 41107 days)
        0.0047
    """
    m, d, n = len(code), target.dim, DRAWS
    loc = torch.zeros(m, d, dtype=target.dtype, device=target.device)
    precision = torch.ones_like(loc)
    many = code.repeat_interleave(n, 0)
    for i in range(ITERATIONS):
        if i and clock.now() > deadline:
            break
        progress = i / ITERATIONS
        temper = min(1.0, 0.1 ** (1 - 2 * progress))
        rate = 0.3 if progress < 0.7 else 0.1
        scale = precision.rsqrt()
        half = torch.randn(m, n // 2, d, generator=generator, dtype=loc.dtype, device=loc.device)
        z = torch.cat([half, -half], 1)
        theta = (loc[:, None] + scale[:, None] * z).reshape(-1, d)
        value, gradient = target.log_joint_and_grad(many, theta, temper=temper, surrogate=True)
        usable = (gradient.isfinite().all(-1) & value.isfinite()).view(m, n, 1)
        gradient = torch.where(usable, gradient.view(m, n, d), 0.0)
        count = usable.sum(1).clamp(min=1)
        slope = gradient.sum(1) / count
        curvature = (-(z * gradient).sum(1) / count / scale).clamp(min=0)
        new = torch.clamp((1 - rate) * precision + rate * curvature, precision / 4, precision * 4)
        step, bound = rate * slope / new, 2 * new.rsqrt()
        # a Newton step beyond two standard deviations: the posterior is far away, so widen
        newton = slope / torch.maximum(curvature, precision)
        far = newton.abs() > 2 * precision.rsqrt()
        precision = torch.where(far, precision / 4, new).clamp(1e-14, 1e14)
        loc = loc + torch.clamp(step, -bound, bound)
    active = target.space.active(code)
    found = active & usable.any(1)
    loc, scale = torch.where(found, loc, 0.0), torch.where(found, precision.rsqrt(), 1.0)
    z = torch.randn(m, n, d, generator=generator, dtype=loc.dtype, device=loc.device)

    def evidence_bound(loc: Tensor, scale: Tensor) -> Tensor:
        theta = loc[:, None] + scale[:, None] * z
        value = target.log_joint(many, theta.reshape(-1, d)).view(m, n).mean(1)
        return value + torch.where(active, scale.log(), 0.0).sum(1)

    # where the iteration ran away, a standard normal is the better guess
    nowhere, unit = torch.zeros_like(loc), torch.ones_like(scale)
    better = evidence_bound(loc, scale) >= evidence_bound(nowhere, unit)
    lost = ~better[:, None]
    return torch.where(lost, nowhere, loc), torch.where(lost, unit, scale)


def located(
    target: Target,
    codes: Tensor,
    generator: torch.Generator,
    deadline: float = math.inf,
    evaluations: float = math.inf,
) -> tuple[Tensor, Tensor]:
    """What :func:`locate` finds; standard units without gradients, or with too few evaluations."""
    enough = len(codes) * DRAWS * ITERATIONS <= evaluations
    if target.differentiable and target.dim and enough:
        with suppress(BudgetError):
            return locate(target, codes, generator, deadline)
    loc = torch.zeros(len(codes), target.dim, dtype=target.dtype, device=target.device)
    return loc, torch.ones_like(loc)
