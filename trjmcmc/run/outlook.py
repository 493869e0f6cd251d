"""How far a run is, in words for those who wait: error, convergence, and the time left."""

from __future__ import annotations

import math

from .summary import Aims, Run


def outlook(run: Run, aims: Aims | None, draws: int | None, spent: float, left: float) -> str:
    """The largest standard error, what the draws lack, and how long it may take.

    The error falls as the square root of the time; what chains lack is not foretold.

    Arguments:
        run: Its draws so far.
        aims: What it is for, or None.
        draws: Kept draws of each chain, the last of them, with which it ends; or None.
        spent: Seconds so far.
        left: Seconds until it ends in any case.
    """
    error = float(run.error.max())
    asked = math.inf if aims is None else aims.probability
    words = [f"standard error {error:.2g}" + (f" of {asked:g}" if asked < math.inf else "")]
    words += [run.doubt or "chains have mixed"]
    if draws is not None:
        more = spent * (draws / max(1, run.draws.n_draws) - 1)
    else:
        more = spent * ((error / asked) ** 2 - 1) if asked < math.inf and not run.doubt else left
    if math.isfinite(more) and more < left:
        words += [f"about {max(0.0, more):.0f} s left"]
    elif math.isfinite(left):
        words += [f"at most {max(0.0, left):.0f} s left"]
    return ", ".join(words)
