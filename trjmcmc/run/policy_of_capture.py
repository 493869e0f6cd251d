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
        traced_share: Of the time ahead, that a trace may take by that price.
        compiled_price: Seconds of a compilation in those of the trace: the robust regression took
            five to seven times as long, coal mining twenty.
        compiled_share: Of the time ahead, that a compilation may take by that price.
        gain: Time of a step in that of another way, from which the other is worth having.
        least_share: Of the steps, that a kernel of a mixture makes at least to be captured.
        missed_share: Of the steps, at which the usual case may not be at hand.
        missed_steps: Steps after which that is looked at.
    """

    measured_steps: int = 20
    idle_steps: int = 4
    traced_price: float = 600.0
    traced_share: float = 0.2
    compiled_price: float = 20.0
    compiled_share: float = 0.2
    gain: float = 0.95
    least_share: float = 0.1
    missed_share: float = 0.05
    missed_steps: int = 100
