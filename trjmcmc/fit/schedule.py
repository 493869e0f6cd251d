"""Learning rates over the steps of a training run."""

from __future__ import annotations

import math

from ..errors import ConfigurationError


class Cosine:
    """Learning rate factor: rises, stays at 1, falls to 0 along a half cosine.

    Arguments:
        steps: Steps of the whole run.
    """

    RISE = 0.05  # of the steps: Adam's first ones rest on few gradients

    FALL = 0.3  # of the steps: the noise of the last ones stays in the map

    def __init__(self, steps: int) -> None:
        self.rise = max(1, round(self.RISE * steps))
        self.length = max(1, round(self.FALL * steps))
        self.start = steps - self.length

    def __call__(self, step: int) -> float:
        fallen = min(1.0, max(0.0, (step - self.start) / self.length))
        return min(1.0, step / self.rise) * 0.5 * (1 + math.cos(math.pi * fallen))

    def plateau(self, step: int) -> bool:
        """Begin to fall now, if that is earlier than planned."""
        if step >= self.start:
            return False
        self.start, self.length = step, min(self.length, max(1, step // 2))
        return True

    def done(self, step: int) -> bool:
        """Whether the rate has fallen to 0."""
        return step >= self.start + self.length


class Halving:
    """Learning rate factor: 1, and half as large after each plateau; the last one ends it.

    Arguments:
        steps: Not used.

    Source:
        Yin & Jiao, https://arxiv.org/abs/2512.12742, Appendix A, with a rate of 1e-4

    Example:
        >>> rate = Halving(1000)
        >>> [rate(10), rate.plateau(10), rate(11), rate.done(11)]
        [1.0, True, 0.5, False]
    """

    LEAST = 2**-6  # of the first rate, below which nothing moves any more

    def __init__(self, steps: int) -> None:
        self.factor = 1.0

    def __call__(self, step: int) -> float:
        return self.factor

    def plateau(self, step: int) -> bool:
        """Halve the rate."""
        self.factor /= 2
        return True

    def done(self, step: int) -> bool:
        """Whether the rate is too small."""
        return self.factor <= self.LEAST


SCHEDULES: dict[str, type[Cosine] | type[Halving]] = {"cosine": Cosine, "plateau": Halving}


def check_schedule(name: str) -> None:
    """Raises ConfigurationError of an unknown one."""
    if name not in SCHEDULES:
        raise ConfigurationError(f"schedule: expected one of {[*SCHEDULES]}, got {name!r}")
