"""Step sizes and scales that are tuned while chains warm up."""

from __future__ import annotations

import math

import torch
from torch import Tensor

SHRINKAGE, DELAY, DECAY = 0.05, 10.0, 0.75  # of dual averaging: gamma, t_0, kappa

FEW = 20.0  # draws that the standard deviations known before count as


class DualAveraging:
    """Log step sizes by group, tuned so that the mean acceptance meets a target."""

    def __init__(self, log_size: Tensor) -> None:
        self.log_size = self.average = log_size
        self.restart()

    def restart(self) -> None:
        """Forget the past; go on from the step size found."""
        self.log_size = self.average
        self._centre = self.average + math.log(2.0)
        self._gap = torch.zeros_like(self.average)
        self._count = torch.zeros_like(self.average)

    def held(self, low: float, high: float) -> None:
        """Keep log step sizes between limits."""
        self.log_size = self.log_size.clamp(low, high)
        self.average = self.average.clamp(low, high)

    def update(self, chance: Tensor, group: Tensor, acceptance: float) -> None:
        zeros = torch.zeros_like(self._gap)
        number = zeros.index_add(0, group, torch.ones_like(chance, dtype=zeros.dtype))
        mean = zeros.index_add(0, group, chance.to(zeros.dtype)) / number.clamp(min=1)
        seen = number > 0
        self._count = self._count + seen
        t = self._count.clamp(min=1)
        rate = 1 / (t + DELAY)
        gap = (1 - rate) * self._gap + rate * (acceptance - mean)
        size = self._centre - t.sqrt() / SHRINKAGE * gap
        weight = t**-DECAY
        average = weight * size + (1 - weight) * self.average
        self._gap = torch.where(seen, gap, self._gap)
        self.log_size = torch.where(seen, size, self.log_size)
        self.average = torch.where(seen, average, self.average)


class GroupScales:
    """Standard deviations of coordinates by group, shrunk towards those known before."""

    def __init__(self, before: Tensor) -> None:
        self.before = before
        self._count = before.new_zeros(len(before), 1, dtype=torch.float64)
        self._sum = before.new_zeros(before.shape, dtype=torch.float64)
        self._squares = before.new_zeros(before.shape, dtype=torch.float64)

    def add(self, x: Tensor, group: Tensor) -> None:
        x = x.to(self._sum.dtype)
        self._count = self._count.index_add(0, group, torch.ones_like(x[:, :1]))
        self._sum = self._sum.index_add(0, group, x)
        self._squares = self._squares.index_add(0, group, x.square())

    def scale(self) -> Tensor:
        n = self._count.clamp(min=1)
        variance = (self._squares / n - (self._sum / n).square()).clamp(min=0)
        share = self._count / (self._count + FEW)
        before = self.before.to(variance.dtype).square()
        blended = share * variance + (1 - share) * before
        return torch.where(blended > 0, blended, before).sqrt().to(self.before.dtype)


class Covariance:
    """Lower factors of covariances by group, shrunk towards those known before.

    Arguments:
        before: Factors known before, shape (G, D, D).
    """

    def __init__(self, before: Tensor) -> None:
        self.before = before
        groups, dim, _ = before.shape
        self._count = before.new_zeros(groups, dtype=torch.float64)
        self._sum = before.new_zeros(groups, dim, dtype=torch.float64)
        self._products = before.new_zeros(groups, dim, dim, dtype=torch.float64)

    def add(self, x: Tensor, group: Tensor) -> None:
        x = x.to(self._sum.dtype)
        self._count = self._count.index_add(0, group, torch.ones_like(x[:, 0]))
        self._sum = self._sum.index_add(0, group, x)
        if len(self.before) == 1:
            self._products = self._products + x.mT @ x
        else:
            self._products = self._products.index_add(0, group, x[:, :, None] * x[:, None])

    def scale(self) -> Tensor:
        """The factors; those known before where the new ones are not positive definite."""
        n = self._count.clamp(min=1)[:, None, None]
        mean = self._sum / n[:, 0]
        covariance = self._products / n - mean[:, :, None] * mean[:, None]
        weight = self._count[:, None, None]
        few = FEW + covariance.shape[-1]
        before = self.before.to(covariance.dtype)
        blended = (weight * covariance + few * before @ before.mT) / (weight + few)
        factor, failed = torch.linalg.cholesky_ex(blended)
        usable = (failed == 0)[:, None, None] & factor.isfinite().all(-1).all(-1)[:, None, None]
        return torch.where(usable, factor, before).to(self.before.dtype)
