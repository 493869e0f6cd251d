"""Learning rates over the steps of a training run."""

from __future__ import annotations

import math

from .policy import TrainingPolicy


class Rate:
    """Learning rate factor: rises, stays at 1, falls to 0 along a half cosine.

    Arguments:
        steps: Steps of the whole run.
        policy: In what shares of them it rises and falls.
    """

    def __init__(self, steps: int, policy: TrainingPolicy = TrainingPolicy()) -> None:
        self.rise = max(1, round(policy.warming_share * steps))
        self.length = max(1, round(policy.cooling_share * steps))
        self.start = steps - self.length

    def __call__(self, step: int) -> float:
        fallen = min(1.0, max(0.0, (step - self.start) / self.length))
        return min(1.0, step / self.rise) * 0.5 * (1 + math.cos(math.pi * fallen))

    def cool_from(self, step: int) -> bool:
        """Begin to fall now, if that is earlier than planned."""
        if step >= self.start:
            return False
        self.start, self.length = step, min(self.length, max(1, step // 2))
        return True

    def done(self, step: int) -> bool:
        """Whether the rate has fallen to 0."""
        return step >= self.start + self.length
