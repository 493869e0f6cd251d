"""Units in turn by a quadratic: offered first, and alone where they are exact."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import ConfigurationError
from ..kernel.base import Kernel
from ..kernel.between.unit_gibbs import UnitGibbs
from ..kernel.compose import MixtureKernel
from ..target.target import Target
from .bench import Bench
from .moves import birth_death
from .policy import KernelPolicy
from .segment import Segment

NAME = "gibbs"


def gibbs_moves(target: Target, policy: KernelPolicy) -> Kernel:
    """Units in turn by a quadratic, and now and then births and deaths that need none."""
    births, share = birth_death(target, None, policy), policy.uniform_share
    return MixtureKernel([UnitGibbs(target), births], [1 - share, share])


def offer_gibbs(
    bench: Bench, policy: KernelPolicy, offer: Callable[[str, Kernel], Segment]
) -> bool:
    """Offer them where they fit; whether the log joint is quadratic, so that they are exact.

    Arguments:
        bench: Chains, and the moves so far.
        policy: What kernels are made of.
        offer: Measures a move of a name, and takes it up.
    """
    if not bench.target.differentiable:
        return False
    try:
        move = gibbs_moves(bench.target, policy)
    except ConfigurationError:  # it does not fit
        return False
    offer(NAME, move)
    parts = bench.moves[NAME].parts() if NAME in bench.moves else []
    return any(isinstance(part, UnitGibbs) and part.exact for part in parts)
