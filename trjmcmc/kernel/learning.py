"""What moves that learn in warm-up keep, and when they learn from it."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from ..grouping import on_host


def due(steps: int, first: int) -> bool:
    """Whether a move learns after so many steps: after ``first``, a power of two, then twice that.

    Example:
        >>> [steps for steps in range(1, 100) if due(steps, 16)]
        [16, 32, 64]
    """
    return steps >= first and steps & (steps - 1) == 0


class RecentRows:
    """The last rows that were seen; adding some makes another of it.

    Arguments:
        most: Rows to keep, about.
        parts: Tensors of rows, (n, P) each, the latest last.

    Example:
        >>> none = RecentRows(3)
        >>> some = none.plus(torch.zeros(2, 1)).plus(torch.ones(2, 1))
        >>> some.rows().flatten().tolist(), len(some.joined()), len(none)
        ([0.0, 1.0, 1.0], 3, 0)
    """

    def __init__(self, most: int, parts: tuple[Tensor, ...] = ()) -> None:
        self.most, self._parts = most, parts

    def __len__(self) -> int:
        return sum(len(part) for part in self._parts)

    def plus(self, rows: Tensor) -> RecentRows:
        """These and more rows, without parts that are older than all that is kept."""
        parts, size = (*self._parts, rows), len(self) + len(rows)
        while size - len(parts[0]) >= self.most:
            size, parts = size - len(parts[0]), parts[1:]
        return RecentRows(self.most, parts)

    def rows(self) -> Tensor:
        """All of them, (n, P)."""
        return torch.cat(self._parts)[-self.most :]

    def joined(self) -> RecentRows:
        """The same rows, no more than are kept, in one tensor."""
        return RecentRows(self.most, (self.rows(),))


FLOOR = 1e-6  # of a standard deviation that is learned, prior standard deviations

RATE = 0.2  # weight of the last step in what is learned


class TemperedCovariance:
    """Covariance of points at each power of the likelihood, as warm-up has seen it of late.

    Replicas at low powers are spread far more widely than those that are recorded.

    Arguments:
        unit: Prior standard deviations, shape (P,).

    Example:
        >>> none = TemperedCovariance(torch.ones(1))
        >>> x = torch.tensor([[-1.0], [1.0], [-3.0], [3.0]])
        >>> power = torch.tensor([1.0, 1.0, 0.5, 0.5])
        >>> known = none.plus(x, power)
        >>> known.scaled(torch.ones(4, 1), power).flatten().round(decimals=3).tolist()
        [1.0, 1.0, 3.0, 3.0]
    """

    def __init__(self, unit: Tensor) -> None:
        self.unit = unit
        self._moments: tuple[Tensor, Tensor] | None = None  # means (R, P), covariances (R, P, P)
        self._factor: Tensor | None = None  # (R, P, P)

    def plus(self, x: Tensor, power: Tensor | float) -> TemperedCovariance:
        """What is known after a step that has led to points (n, P) at powers, (n,) or one."""
        level, levels = _levels(x, power)
        size = torch.zeros(levels, dtype=torch.float64, device=x.device)
        size.index_add_(0, level, torch.ones_like(level, dtype=torch.float64))
        if bool((size <= x.shape[1]).any()):
            return self
        x = x.double()
        groups = [x[level == i] for i in range(levels)]
        mean = torch.stack([group.mean(0) for group in groups])
        gaps = [group - centre for group, centre in zip(groups, mean, strict=True)]
        covariance = torch.stack([gap.T @ gap / len(gap) for gap in gaps])
        if self._moments is not None and len(self._moments[0]) == levels:
            old, spread = self._moments
            shift = mean - old
            mean = old + RATE * shift
            between = (1 - RATE) * shift[:, :, None] * shift[:, None]
            covariance = spread + RATE * (covariance + between - spread)
        floor = torch.diag((FLOOR * self.unit.double()).square())
        factor, failed = torch.linalg.cholesky_ex(covariance + floor)
        found = copy.copy(self)
        if not bool(failed.any()) and bool(factor.isfinite().all()):
            found._moments, found._factor = (mean, covariance), factor.to(self.unit)
        return found

    def scaled(self, noise: Tensor, power: Tensor | float) -> Tensor | None:
        """Standard normal noise (n, P) with the covariance at each power; None if unknown."""
        if self._factor is None:
            return None
        if isinstance(power, Tensor) and not on_host(power):
            level = _ranks(power).clamp(max=len(self._factor) - 1)  # which is not asked how many
        else:
            level, levels = _levels(noise, power)
            if len(self._factor) != levels:
                return None
        return (self._factor[level] @ noise[..., None])[..., 0]


def _levels(x: Tensor, power: Tensor | float) -> tuple[Tensor, int]:
    """Position of each row's power among the different ones, and how many these are."""
    if not isinstance(power, Tensor):
        return torch.zeros(len(x), dtype=torch.long, device=x.device), 1
    different, level = power.unique(return_inverse=True)
    return level, len(different)


def _ranks(power: Tensor) -> Tensor:
    """Position of each row's power among the different ones, (n,)."""
    ordered, place = power.sort()
    rank = torch.nn.functional.pad((ordered.diff() > 0).long().cumsum(0), (1, 0))
    return torch.zeros_like(place).scatter_(0, place, rank)
