"""What moves that learn in warm-up keep, and when they learn from it."""

from __future__ import annotations

import torch
from torch import Tensor


def due(steps: int, first: int) -> bool:
    """Whether a move learns after so many steps: after ``first``, a power of two, then twice that.

    Example:
        >>> [steps for steps in range(1, 100) if due(steps, 16)]
        [16, 32, 64]
    """
    return steps >= first and steps & (steps - 1) == 0


class Kept:
    """The last rows that were seen; adding some makes another of it.

    Arguments:
        most: Rows to keep, about.
        parts: Tensors of rows, (n, P) each, the latest last.

    Example:
        >>> none = Kept(3)
        >>> some = none.plus(torch.zeros(2, 1)).plus(torch.ones(2, 1))
        >>> some.rows().flatten().tolist(), len(some.joined()), len(none)
        ([0.0, 1.0, 1.0], 3, 0)
    """

    def __init__(self, most: int, parts: tuple[Tensor, ...] = ()) -> None:
        self.most, self._parts = most, parts

    def __len__(self) -> int:
        return sum(len(part) for part in self._parts)

    def plus(self, rows: Tensor) -> Kept:
        """These and more rows."""
        return Kept(self.most, (*self._parts, rows))

    def rows(self) -> Tensor:
        """All of them, (n, P)."""
        return torch.cat(self._parts)[-self.most :]

    def joined(self) -> Kept:
        """The same rows, no more than are kept, in one tensor."""
        return Kept(self.most, (self.rows(),))


FLOOR = 1e-6  # of a standard deviation that is learned, prior standard deviations


def factor_of(x: Tensor, unit: Tensor) -> Tensor | None:
    """Factor of the covariance of points (n, P), (P, P); None of too few.

    Arguments:
        x: The points.
        unit: Prior standard deviations, shape (P,).

    Example:
        >>> factor_of(torch.tensor([[-1.0], [1.0], [-1.0], [1.0]]), torch.ones(1)).round(decimals=3)
        tensor([[1.]])
    """
    if len(x) <= x.shape[1]:
        return None
    centred = x.double() - x.double().mean(0)
    floor = torch.diag((FLOOR * unit.double()).square())
    return torch.linalg.cholesky(centred.T @ centred / len(x) + floor).to(x)
