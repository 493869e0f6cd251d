"""Numbers of a likelihood: how many an evaluation takes, and whether they resolve a posterior."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction

from ..draws import Pool
from ..errors import TRJError
from ..promises import ROUNDING_ERROR
from ..space.codes import distinct
from ..target.counting import Counting
from ..target.resolution import EXAMINED, LEAST_DRAWS, resolution_doubts
from ..target.target import Target

MODELS = 8  # that are counted, evenly among few, at random of many

TRIED = 32  # draws of a model at which its log density is computed in both precisions

STEP = 2e-3  # step of second differences of a log density, quartile distances of its draws

JUMPS = 2  # draws of these that may lie next to a jump of a log density

SECOND = 1.7  # mean size of second differences of independent normal errors without these, in sd


def price(target: Target) -> float:
    """Numbers that torch reads or writes to evaluate a model at one point, mean of some models.

    Infinite where a likelihood is not torch alone: nobody can count there. On a CPU a number takes
    1 to 2 ns, beside some 3 us of each point.

    Arguments:
        target: Some of its models are evaluated at a prior draw each, of a seed of their own.

    Example:
        >>> import trjmcmc as trj
        >>> 10 < price(trj.problems.sinh_arcsinh()) < 1000
        True
        >>> normal = torch.distributions.Normal(0.0, 1.0)
        >>> model = trj.Model("box", {"x": normal}, trj.BlackBox(lambda p: -(p["x"] ** 2)))
        >>> price(trj.Target([model]))
        inf
    """
    generator = torch.Generator(target.device).manual_seed(0)
    if target.space.few:
        codes = target.space.enumerate()
        codes = codes[:: -(-len(codes) // MODELS)]
    else:
        codes = target.space.sample_prior(MODELS, generator)
    numbers = 0
    for code, used in zip(codes, target.space.active(codes).any(1).tolist(), strict=True):
        theta = target.sample_prior(code[None], generator).nan_to_num(0.0, 0.0, 0.0)
        with torch.enable_grad(), Counting() as counted:
            theta = theta.requires_grad_()
            log_likelihood = target.log_prior_and_likelihood(code[None], theta)[1]
        whole = counted.all_of_it if log_likelihood.grad_fn is None else is_of_torch(log_likelihood)
        if used and not whole:
            return math.inf
        numbers += counted.numbers
    return numbers / len(codes)


def is_of_torch(value: Tensor) -> bool:
    """Whether autograd knows how a value was computed, by operations of torch alone."""
    if value.grad_fn is None:
        return False
    left, seen = [value.grad_fn], set()
    while left:
        node = left.pop()
        if node in seen:
            continue
        if isinstance(node, BackwardCFunction):
            return False
        seen.add(node)
        left += [before for before, _ in node.next_functions if before is not None]
    return True


class Unresolved(NamedTuple):
    """What numbers do not resolve of draws, in words; empty where they will do.

    Attributes:
        coarse: Sums of large terms, and coordinates of models.
        rounding: Models whose log densities rounding changes.
    """

    coarse: str = ""
    rounding: str = ""

    def __str__(self) -> str:
        rounded = f"log densities: rounding changes those of {self.rounding}"
        return "; ".join(x for x in (self.coarse, self.rounding and rounded) if x)


def unresolved(target: Target, pool: Pool) -> Unresolved:
    """What the working numbers do not resolve of draws.

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
    return Unresolved("; ".join(said), rounding_of(target, pool.code, pool.theta))


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
