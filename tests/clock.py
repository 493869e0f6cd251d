"""Simulated time: budgets, stopping rules and comparisons without waiting.

Under the fixture :func:`clock` the package's modules read a clock that stands still but for a
price for each batch of likelihoods, each point in it and each reading. What a run does in a
minute of it takes as long as the computing takes, and is the same on every machine.
"""

import sys
import time

import pytest

from trjmcmc.target.density import Density


class Clock:
    """In place of the module ``time``.

    Arguments:
        call: Seconds that a batch of likelihoods takes, however large.
        point: Seconds that each point in it takes on top.
        reading: Seconds that a look at the clock takes: a loop that waits must come to an end,
            and a training step that needs no likelihood has to cost something.
    """

    def __init__(self, call: float = 4e-3, point: float = 0.0, reading: float = 1e-5) -> None:
        self.call, self.point, self.reading = call, point, reading
        self.now = 1e3

    def monotonic(self) -> float:
        self.now += self.reading
        return self.now

    perf_counter = monotonic

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    """The simulated clock that the package reads during a test; its prices may be set."""
    simulated = Clock()
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "trjmcmc" and getattr(module, "time", None) is time:
            monkeypatch.setattr(module, "time", simulated)
    evaluate = Density.evaluate

    def priced(self, theta, *args, **settings):
        simulated.now += simulated.call + simulated.point * len(theta)
        return evaluate(self, theta, *args, **settings)

    monkeypatch.setattr(Density, "evaluate", priced)
    return simulated
