"""Numbers by which a run decides whether its steps are captured and compiled."""

from __future__ import annotations

from dataclasses import dataclass

from ..checks import Checked


@dataclass(frozen=True)
class CapturePolicy(Checked):
    """When steps are captured (see :mod:`trjmcmc.run.capture`).

    Attributes:
        measured_steps: Steps whose median time counts, of a way to make them.
        idle_steps: First steps of a captured function, in which torch makes up its plan; they do
            not count.
        traced_price: Seconds of a trace in those of a step without one: coal mining, robust
            regression and pulses took 430 to 620 with 16 chains, fewer with more.
        traced_hope: Time of a traced step in that of a plain one, as it is counted on: .33 to .48
            where chains are few, .97 for coal mining with one chain.
        compiled_price: Seconds of a compilation, the C++ compiler's included, in those of the
            trace: the robust regression and coal mining took five to ten times as long.
        compiled_hope: Time of a compiled step in that of a traced one, as it is counted on: .24 to
            .48 for the same two.
        margin: Times that a capture has to save what it costs by these numbers.
        learning_seconds: That maps which remember models may take to learn all of them at most.
        gain: Time of a step in that of another way, from which the other is worth having.
        least_share: Of the steps, that a kernel of a mixture makes at least to be captured.
        checked_draws: Draws by which a captured step is held against the kernel's own, where the
            next two allow it.
        checked_steps: Steps of all chains that these are at least.
        most_checked_steps: The same at most.
        checked_share: Of these draws, that may differ: an acceptance at the edge falls the other
            way by rounding.
        kept_draws: That are held against the target at the end of a run.
        missed_share: Of the steps, at which the usual case may not be at hand.
        missed_steps: Steps after which that is looked at.
    """

    measured_steps: int = 20
    idle_steps: int = 4
    traced_price: float = 600.0
    traced_hope: float = 0.7
    compiled_price: float = 8.0
    compiled_hope: float = 0.5
    margin: float = 1.5
    learning_seconds: float = 10.0
    gain: float = 0.95
    least_share: float = 0.1
    checked_draws: int = 64
    checked_steps: int = 3
    most_checked_steps: int = 20
    checked_share: float = 0.005
    kept_draws: int = 2000
    missed_share: float = 0.05
    missed_steps: int = 100
