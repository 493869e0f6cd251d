"""Moves over sets of units by what chains have seen of each coordinate."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..draws import Pool
from ..kernel.base import Kernel
from ..kernel.between.marginals import MarginalJump, MarginalRefresh, Marginals
from ..kernel.compose import MixtureKernel
from ..kernel.proposal.fixed import Learnt
from ..kernel.proposal.neighbours import Neighbours
from ..target.target import Target
from ..weights.bernoulli import BernoulliMixture
from .bench import Bench
from .decide import Worth
from .moves import swaps
from .policy import KernelPolicy, Policy
from .request import Request
from .segment import Segment

NAME = "marginals"


def marginals_fit(target: Target) -> bool:
    """Whether models are sets of units between which steps of one lead anywhere."""
    return bool(target.space.units) and not target.space.gaps


def marginal_moves(
    target: Target, pool: Pool, generator: torch.Generator, policy: KernelPolicy
) -> Kernel:
    """Births and deaths, jumps to models far away, and new values, from what chains have seen.

    Arguments:
        target: The target, over a space of units.
        pool: Points that chains have passed.
        generator: Source of randomness.
        policy: Shares of the moves.
    """
    space = target.space
    k = policy.marginal_components
    marginals = Marginals.fitted(space, pool.code, pool.theta, k, generator)
    kinds = BernoulliMixture.fitted(space, pool.code, policy.kinds_of_models, generator)
    near = Neighbours(space, swap=swaps(space, policy))
    moves: list[Kernel] = [
        MarginalJump(target, marginals, near, name=NAME),
        MarginalJump(target, marginals, Learnt(kinds), name="far marginals"),
        MarginalRefresh(target, marginals),
    ]
    return MixtureKernel(moves, list(policy.marginal_shares))


def offer_marginals(
    bench: Bench,
    request: Request,
    policy: Policy,
    offer: Callable[[str, Kernel], Segment],
    worth: Worth,
    seen: Pool | None = None,
) -> None:
    """Offer such moves, fitted again while that helps, where the run is long enough for it.

    Arguments:
        bench: Chains, and the moves so far.
        request: What the user asks of the run.
        policy: The policy.
        offer: Measures a move of a name, and takes it up.
        worth: What a segment is worth.
        seen: Points to fit to at first; those of the bench if omitted.
    """
    target = bench.target
    for _ in range(policy.choice.fits_of_marginals):
        seen = bench.seen() if seen is None else seen
        best = max(bench.found.values(), key=worth)
        most = policy.choice.inside_share * request.ahead_of(best)
        if seen is None or policy.choice.marginal_price * target.dim > most:
            return
        before, last = bench.moves.get(NAME), bench.found.get((NAME,))
        moves = marginal_moves(target, seen, bench.generator, policy.kernels)
        bench.forget_seen()
        now, seen = offer(NAME, moves), None
        if before is not None and last is not None and worth(now) < worth(last):
            bench.withdraw(NAME, before, last)
            return
