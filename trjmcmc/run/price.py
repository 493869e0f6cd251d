"""What an evaluation of a likelihood costs, counted and not timed."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction

from ..target.counting import Counting
from ..target.target import Target

MODELS = 8  # that are counted, evenly among few, at random of many


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
