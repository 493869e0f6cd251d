"""Simulated time: budgets, stopping rules and comparisons without waiting."""

from contextlib import contextmanager

import pytest

from trjmcmc import clock as package_clock
from trjmcmc.target.density import Density


class SimulatedClock:
    """A clock that stands still until a test moves it.

    Attributes:
        seconds: What it shows.
    """

    def __init__(self, seconds=0.0):
        self.seconds = seconds

    def __call__(self):
        return self.seconds


@contextmanager
def simulated(seconds=0.0):
    """Let the package read a simulated clock, which is given."""
    time = SimulatedClock(seconds)
    with package_clock.read_from(time):
        yield time


class PricedClock(SimulatedClock):
    """A clock that moves by a price for each batch of likelihoods and each reading.

    What a run does in a minute of it takes as long as the computing takes, and is the same on
    every machine.

    Attributes:
        call: Seconds that a batch of likelihoods takes, however large.
        reading: Seconds that a look at the clock takes: a loop that waits must come to an end,
            and a training step that needs no likelihood has to cost something.
    """

    def __init__(self, call=4e-3, reading=1e-5):
        super().__init__(1e3)
        self.call, self.reading = call, reading

    def __call__(self):
        self.seconds += self.reading
        return self.seconds


@pytest.fixture
def clock(monkeypatch):
    """The simulated clock that the package reads during a test; its prices may be set."""
    time, evaluate = PricedClock(), Density.evaluate

    def priced(self, *args, **settings):
        time.seconds += time.call
        return evaluate(self, *args, **settings)

    monkeypatch.setattr(Density, "evaluate", priced)
    with package_clock.read_from(time):
        yield time
