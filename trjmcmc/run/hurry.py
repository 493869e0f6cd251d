"""With what a run goes on where the user has interrupted what comes before sampling."""

from __future__ import annotations

from torch import Tensor

from ..kernel.base import Kernel, State, start
from .bench import Bench
from .knowledge import Knowledge
from .loop import first_of
from .moves import plain_kernel
from .start import prior_draws, starting_models


def hurried_kernel(known: Knowledge) -> Kernel:
    """Moves through the map, or plain ones where none has been trained."""
    if known.strategy.chooses and known.trace is None:
        return plain_kernel(known.target, known.guess(), known.policy.kernels)
    return known.kernel(known.transport)


def hurried_state(known: Knowledge, chains: int, bench: Bench | None) -> tuple[State, Tensor]:
    """Chains, and the draw that each descends from: those of the warm-up where these are.

    Else draws of a pilot run, or the prior.

    Arguments:
        known: What is known of the target.
        chains: How many at most.
        bench: The warm-up; None where none has begun.
    """
    if bench is not None:
        return first_of(bench.state, chains), bench.ancestor[:chains]
    audit = known.fitted.audit
    if audit is None:
        return prior_draws(known.target, chains, known.generator, known.policy.starts)
    code = starting_models(known, chains)
    theta, _, ancestor = audit.draw(known.target.space.index(code))
    return start(known.target, code, theta), ancestor
