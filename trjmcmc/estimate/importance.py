"""Evidences by importance sampling through a map."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from ..target import Target
from ..transport import Transport
from .estimate import Estimate

CHUNK = 8192  # points evaluated at once
FIRST_DRAWS = 4096
MOST_DRAWS = 65_536
PRECISE = 0.005  # nats of standard error at which there are enough draws
LOW_SHARE = 0.1  # effective share of the draws under which the error itself is doubtful


def log_weights(
    target: Target, transport: Transport, code: Tensor, n: int, generator: torch.Generator
) -> Tensor:
    """Log importance weights of draws from the map of one model.

    Arguments:
        target: The target.
        transport: The map.
        code: One model, shape (L,).
        n: Number of draws.
        generator: Source of randomness.

    Returns:
        Log joint minus log density of the map, shape (n,), float64, nats; -inf for draws
        outside the support, which count as draws.

    Raises:
        NonFiniteError: A density is NaN or +inf.
    """
    parts = []
    with torch.no_grad():
        for size in [CHUNK] * (n // CHUNK) + ([n % CHUNK] if n % CHUNK else []):
            codes = code.expand(size, -1)
            z = transport.sample_reference(size, generator, target.dtype)
            theta, log_q = transport.push(z, codes)
            log_joint = target.log_joint(codes, theta)
            target.check_finite(codes, theta, log_joint)
            parts.append((log_joint - log_q).double())
    return torch.cat(parts)


def log_mean_weight(log_w: Tensor) -> Estimate:
    """Log of the mean weight: the log of p(model) times the evidence.

    Arguments:
        log_w: Log weights, shape (n,), nats.

    Returns:
        The estimate in nats; error by the delta method; ESS by Kish. A map that misses a mode
        makes both value and error wrong, and neither can show it.

    Source:
        Yin & Jiao, eq. 22; Kish (1965)
    """
    n = len(log_w)
    total = float(log_w.logsumexp(0))
    if total == -math.inf:
        return Estimate(-math.inf, math.inf, 0.0, "no draw in the support")
    ess = math.exp(2 * total - float((2 * log_w).logsumexp(0)))
    error = math.sqrt(max(1 / ess - 1 / n, 0.0))
    warning = f"importance ESS {ess / n:.1%}" if ess < LOW_SHARE * n else ""
    return Estimate(total - math.log(n), error, ess, warning)


def log_mass(
    target: Target,
    transport: Transport,
    code: Tensor,
    generator: torch.Generator,
    *,
    evaluations: int | None = None,
) -> Estimate:
    """Log of p(model) times the evidence, from ever more draws of the map.

    Arguments:
        target: The target.
        transport: The map.
        code: One model, shape (L,).
        generator: Source of randomness.
        evaluations: Draws to spend; if omitted as many as bring the standard error to 0.005
            nats, 65 536 at most.

    Returns:
        The estimate in nats; its error includes the rounding of the log joint.
    """
    most = MOST_DRAWS if evaluations is None else evaluations
    log_w = log_weights(target, transport, code, min(FIRST_DRAWS, most), generator)
    e = log_mean_weight(log_w)
    while len(log_w) < most and math.isfinite(e.value):
        if e.std_error <= PRECISE and evaluations is None:
            break
        n = min(len(log_w), most - len(log_w))
        log_w = torch.cat([log_w, log_weights(target, transport, code, n, generator)])
        e = log_mean_weight(log_w)
    if not math.isfinite(e.value):
        return e
    rounding = torch.finfo(target.dtype).eps * abs(e.value)
    return replace(e, std_error=math.hypot(e.std_error, rounding))


def probabilities(log_masses: list[Estimate]) -> list[Estimate]:
    """Normalise independent log masses to probabilities, errors by the delta method."""
    log_z = torch.tensor([e.value for e in log_masses], dtype=torch.float64)
    if not bool((log_z > -math.inf).any()):
        return [Estimate(math.nan, math.nan, 0.0, "no draw in any support") for _ in log_masses]
    p = log_z.softmax(0)
    variance = torch.tensor([e.std_error for e in log_masses], dtype=torch.float64) ** 2
    pull = torch.where(p > 0, p**2 * variance, 0.0)
    error = (p**2 * (pull.sum() - pull) + ((1 - p) ** 2) * pull).sqrt()
    return [
        Estimate(float(p[i]), float(error[i]) if e.ess else math.nan, e.ess, e.warning)
        for i, e in enumerate(log_masses)
    ]
