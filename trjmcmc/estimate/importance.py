"""Evidences by importance sampling through a map."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..promises import PARETO_K_FINITE_VARIANCE, PARETO_K_RELIABLE
from ..target.target import Target
from ..transport.base import Transport
from .estimate import Estimate
from .pareto import pareto_smooth, tail_length

CHUNK = 8192  # points evaluated at once

FIRST_DRAWS = 4096

MOST_DRAWS = 65_536

PRECISE = 0.005  # nats of standard error at which there are enough draws

LOOKED_AT = 20_000  # values that the tail of a mean is taken from

EVEN = 0.8  # effective share of the weights beyond which their tail can't matter

FLAT = 1e-6  # nats within which weights are one

LARGE = math.log(2.0)  # of a weight over the mean; where none is, there is no tail

LEAST_WEIGHTS = 25  # weights of which a tail can be told

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
    return weighted_points(target, transport, code, n, generator)[1]


def weighted_points(
    target: Target, transport: Transport, code: Tensor, n: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Reference points drawn for one model, and their log weights, (n, D + auxiliary) and (n,)."""
    points, found = [], []
    with torch.no_grad():
        for size in [CHUNK] * (n // CHUNK) + ([n % CHUNK] if n % CHUNK else []):
            codes = code.expand(size, -1)
            z = transport.reference.sample((size, target.dim), generator, target.dtype)
            theta, log_q = transport.push(z, codes)
            log_joint = target.log_joint(codes, theta)
            target.check_finite(codes, theta, log_joint)
            points.append(z)
            found.append((log_joint - log_q).double())
    return torch.cat(points), torch.cat(found)


def log_mean_weight(log_w: Tensor) -> Estimate:
    """Log of the mean weight: the log of p(model) times the evidence.

    Arguments:
        log_w: Log weights, shape (n,), nats.

    Returns:
        The estimate in nats; error by the delta method; ESS by Kish. A map that misses a mode
        makes both value and error wrong, and neither can show it.

    Source:
        Yin & Jiao, https://arxiv.org/abs/2512.12742, eq. 22; Kish (1965)
    """
    n = len(log_w)
    total = float(log_w.logsumexp(0))
    if total == -math.inf:
        return Estimate(-math.inf, math.inf, 0.0, "no draw in the support")
    ess = math.exp(2 * total - float((2 * log_w).logsumexp(0)))
    error = math.sqrt(max(1 / ess - 1 / n, 0.0))
    warning = f"ESS {ess / n:.1%} of the map's draws" if ess < LOW_SHARE * n else ""
    return Estimate(total - math.log(n), error, ess, warning)


def smoothed(log_w: Tensor) -> Estimate:
    """Log of the mean weight with the largest weights smoothed, and what their tail is like.

    Arguments:
        log_w: Log weights, shape (n,), nats; -inf outside the support.

    Returns:
        The estimate in nats; ``ess`` of the smoothed weights. It is flagged where the Pareto
        shape exceeds 0.5, unless four fifths of the draws count: the variance is then infinite.
        Beyond 0.7 the error is NaN: the mean itself can't be relied on. (Runs that missed the
        large weights, the worst of all, look like 0.5 to 0.7.) Where four fifths count, the error
        holds all that the tail adds to the mean.

    Source:
        Vehtari, Simpson, Gelman, Yao & Gabry (2024), https://jmlr.org/papers/v25/19-556.html
    """
    smooth, k = pareto_smoothed(log_w)
    e = log_mean_weight(smooth)
    if e.ess > EVEN * len(log_w):  # so even that no tail matters beyond what is there of it
        heavy = k > PARETO_K_FINITE_VARIANCE
        return replace(e, std_error=math.hypot(e.std_error, tail_share(smooth))) if heavy else e
    if k > PARETO_K_RELIABLE:
        return replace(e, std_error=math.nan, warning=f"Pareto k {k:.2f}")
    return replace(e, warning=f"Pareto k {k:.2f}" if k > PARETO_K_FINITE_VARIANCE else e.warning)


def tail_share(log_w: Tensor) -> float:
    """What the largest weights add to the mean beyond the least of them, as a share of it.

    Arguments:
        log_w: Log weights, shape (n,), nats.
    """
    top = log_w.topk(min(len(log_w), tail_length(len(log_w)) + 1)).values
    beyond = (top - log_w.logsumexp(0)).exp()
    return float((beyond - beyond[-1]).sum())


def pareto_k(log_w: Tensor) -> float:
    """Shape of the Pareto tail of the weights; above 0.7 they can't be averaged."""
    return pareto_smoothed(log_w)[1]


def tail_shape(x: NDArray[np.floating]) -> float:
    """Pareto shape of how far values lie from their mean; above 0.7 their mean has no error.

    Arguments:
        x: Any shape; evenly thinned to 20 000 values.

    Returns:
        The shape; -inf where values are few, or of few kinds.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> tail_shape(rng.normal(size=9000)) < 0.2 < 0.7 < tail_shape(rng.standard_cauchy(9000))
        True
    """
    flat = x.ravel()[:: -(-x.size // LOOKED_AT)].astype(float)
    with np.errstate(divide="ignore"):
        far = np.log(np.abs(flat - flat.mean()))
    if not np.isfinite(far).any():
        return -math.inf
    k = pareto_k(torch.as_tensor(far))
    return k if math.isfinite(k) else -math.inf


def pareto_smoothed(log_w: Tensor) -> tuple[Tensor, float]:
    """Log weights with a smooth tail, on the scale of the given ones, and the tail's shape."""
    if float(log_w.max()) == -math.inf:
        return log_w, math.inf
    supported = log_w > -math.inf
    inside = log_w[supported]
    even = float(inside.max() - inside.min()) < FLAT
    largest = float(inside.max() - inside.logsumexp(0)) + math.log(len(inside))
    if even or largest < LARGE or len(inside) < LEAST_WEIGHTS:  # no tail to speak of
        return log_w, -math.inf
    with np.errstate(all="ignore"):  # we flag a heavy tail ourselves
        smooth, k = pareto_smooth(inside.cpu().numpy())
    if not (math.isfinite(k) and np.isfinite(smooth).all()):  # ties: a flat tail, or next to none
        top = inside.topk(math.ceil(min(0.2 * len(inside), 3 * len(inside) ** 0.5))).values
        return log_w, -math.inf if float(top[0] - top[-1]) < 1 else math.inf
    found = log_w.clone()
    found[supported] = torch.as_tensor(smooth, dtype=log_w.dtype, device=log_w.device)
    # the smoothed weights come with a sum of 1: what was not in the tail tells their scale
    low = inside <= inside.median()
    found[supported] += (inside[low] - found[supported][low]).median()
    return found, k


def enough_weights(
    target: Target,
    transport: Transport,
    code: Tensor,
    generator: torch.Generator,
    *,
    most: int = MOST_DRAWS,
) -> Tensor:
    """Log weights of ever more draws of the map, until their mean is precise.

    Arguments:
        target: The target.
        transport: The map.
        code: One model, shape (L,).
        generator: Source of randomness.
        most: Draws to spend at most; fewer if they bring the standard error to 0.005 nats.

    Returns:
        Shape (n,), float64, nats.
    """
    log_w = log_weights(target, transport, code, min(FIRST_DRAWS, most), generator)
    while len(log_w) < most:
        e = log_mean_weight(log_w)
        if not math.isfinite(e.value) or e.std_error <= PRECISE:
            break
        n = min(len(log_w), most - len(log_w))
        log_w = torch.cat([log_w, log_weights(target, transport, code, n, generator)])
    return log_w


def rounded(e: Estimate, dtype: torch.dtype) -> Estimate:
    """The estimate with the rounding of log joints of some precision in its error."""
    if not math.isfinite(e.value):
        return e
    rounding = torch.finfo(dtype).eps * abs(e.value)
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
