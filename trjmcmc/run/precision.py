"""Whether the numbers of a run resolve its posterior."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..draws import Pool
from ..errors import TRJError
from ..promises import ROUNDING_ERROR
from ..space.codes import distinct
from ..target.resolution import EXAMINED, LEAST_DRAWS, resolution_doubts
from ..target.target import Target

ROUNDED = "log densities: rounding changes those of "

TRIED = 32  # draws of a model at which its log density is computed in both precisions

STEP = 2e-3  # step of second differences of a log density, quartile distances of its draws

JUMPS = 2  # draws of these that may lie next to a jump of a log density

SECOND = 1.7  # mean size of second differences of independent normal errors without these, in sd


def unresolved(target: Target, pool: Pool) -> str:
    """What the working numbers do not resolve of draws, in words; empty if they will do.

    Arguments:
        target: The target.
        pool: Draws, independent ones within each model.
    """
    pool = pool.at(pool.log_joint > -math.inf)  # a model may have none
    size, said = float(pool.log_joint.abs().median()), []
    if torch.finfo(target.dtype).eps * size > ROUNDING_ERROR:
        said.append(f"sums of log densities of size {size:.3g}")
    codes, which, counts = distinct(pool.code)
    order = counts.argsort(descending=True)[:EXAMINED]
    place = torch.full((len(codes),), -1, device=order.device)
    place[order] = torch.arange(len(order), device=order.device)
    found = resolution_doubts(target, codes[order], place[which][:, None], pool.theta[:, None])
    said += [f"{model}: {why}" for model, why in found.items()]
    if rounded := rounding_of(target, pool.code, pool.theta):
        said.append(f"{ROUNDED}{rounded}")
    return "; ".join(said)


def parted(words: str) -> tuple[str, str]:
    """What rounding changes, by model, and what else numbers do not resolve, in words."""
    said = words.split("; ") if words else []
    rounded = [x.removeprefix(ROUNDED) for x in said if x.startswith(ROUNDED)]
    return "; ".join(rounded), "; ".join(x for x in said if not x.startswith(ROUNDED))


def rounding_of(target: Target, code: Tensor, theta: Tensor) -> str:
    """Models whose log densities rounding changes, in words; empty if there are none.

    Large numbers that cancel inside a likelihood leave nothing in its size. In float32 log
    densities are computed in float64 too; in float64, or where that can't be, by how much they
    depart from a line over steps far smaller than the posterior. And in float64 a likelihood may
    still return float32 numbers. Costs up to seven evaluations of some draws of each model.

    Arguments:
        target: The target.
        code: Models, shape (n, L).
        theta: Points, shape (n, D).
    """
    codes, which, counts = distinct(code)
    said = []
    for m in counts.argsort(descending=True)[:EXAMINED].tolist():
        rows = (which == m).nonzero()[:TRIED, 0]
        lost = _lost(target, code[rows], theta[rows])
        if lost > ROUNDING_ERROR:
            said.append(f"{target.space.label(codes[m : m + 1])[0]!r} by {lost:.2g} nats")
    return ", ".join(said)


def _lost(target: Target, code: Tensor, theta: Tensor) -> float:
    """Typical rounding error of the log density at points of one model, nats; 0 if not known."""
    returned = target.likelihood_dtype(code[0], theta[:1])
    if returned is None or not returned.is_floating_point:  # what counts is exact
        return 0.0
    log_joint = target.log_joint(code, theta).double()
    if target.dtype == torch.float64:
        rounded = torch.finfo(returned).eps * float(log_joint.abs().median())
        return max(rounded, _roughness(target, code, theta, log_joint))
    try:
        finer = target.to(dtype=torch.float64, probe=False)
        exact = finer.log_joint(code, theta.double())
    except (TRJError, RuntimeError, TypeError, ValueError):  # data of one precision, or a device
        return _roughness(target, code, theta, log_joint)
    target.account.add(evaluations=finer.evaluations)
    error = (log_joint - exact).abs()
    error = error[error.isfinite()]
    return float(error.median()) if len(error) else 0.0


def _roughness(target: Target, code: Tensor, theta: Tensor, log_joint: Tensor) -> float:
    """Rounding error of a log density by its second differences, which are small if it is smooth.

    Where it jumps, few draws are next to a jump, and the largest differences are left out. Where
    large terms cancel most of them may be zero, and the others as large as the last digit: hence
    their mean. Curvature shrinks with the square of the step and rounding does not: the least of
    several steps tells that.
    """
    if len(theta) < LEAST_DRAWS or not bool(target.space.active(code[:1]).any()):
        return 0.0
    spread, found = theta.quantile(0.75, 0) - theta.quantile(0.25, 0), []
    for shorter in (1, 16, 256):
        step = STEP / shorter * spread
        each = [target.log_joint(code, theta + sign * step).double() for sign in (-1, 1)]
        size = (each[0] + each[1] - 2 * log_joint).abs()
        size = size[size.isfinite()].sort().values[:-JUMPS]
        found.append(float(size.mean()) / SECOND if len(size) else 0.0)
        if found[-1] <= ROUNDING_ERROR:
            break
    return min(found)
