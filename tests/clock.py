"""Time that passes only where a test says so."""

from contextlib import contextmanager

from trjmcmc import clock


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
    with clock.read_from(time):
        yield time
