"""What moves that learn in warm-up keep, and when they learn from it."""

from __future__ import annotations

import copy

import torch
from torch import Tensor


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


FAR = 8.0  # times the distance from the median that three of four are within: others don't count


class RecentCovariance:
    """Covariance of points, as warm-up has seen it of late, but for a few that are far off.

    Of 512 chains a few in a poor mode would else set the length of the others' steps.

    Arguments:
        unit: Prior standard deviations, shape (P,).

    Example:
        >>> known = RecentCovariance(torch.ones(1)).plus(torch.tensor([[-3.0], [3.0]]))
        >>> known.scaled(torch.ones(1, 1)).round(decimals=3).tolist()
        [[3.0]]
    """

    def __init__(self, unit: Tensor) -> None:
        self.unit = unit
        self._moments: tuple[Tensor, Tensor] | None = None  # mean (P,), covariance (P, P)
        self._factor: Tensor | None = None  # (P, P)

    def plus(self, x: Tensor) -> RecentCovariance:
        """What is known after a step that has led to points (n, P)."""
        if len(x) <= x.shape[1]:
            return self
        x = x.double()
        gap = (x - x.quantile(0.5, 0)).abs()
        x = x[(gap <= FAR * gap.quantile(0.75, 0)).all(1)]
        mean = x.mean(0)
        gap = x - mean
        covariance = gap.T @ gap / len(gap)
        if self._moments is not None:
            old, spread = self._moments
            shift = mean - old
            mean = old + RATE * shift
            between = (1 - RATE) * shift[:, None] * shift
            covariance = spread + RATE * (covariance + between - spread)
        floor = torch.diag((FLOOR * self.unit.double()).square())
        factor, failed = torch.linalg.cholesky_ex(covariance + floor)
        found = copy.copy(self)
        if not bool(failed) and bool(factor.isfinite().all()):
            found._moments, found._factor = (mean, covariance), factor.to(self.unit)
        return found

    def scaled(self, noise: Tensor) -> Tensor | None:
        """Standard normal noise (n, P) with the covariance; None if unknown."""
        return None if self._factor is None else (self._factor @ noise[..., None])[..., 0]
