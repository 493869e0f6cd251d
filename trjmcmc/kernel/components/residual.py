"""What components leave of the data, and where that asks for one more."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from .amplitudes import Amplitudes
from .cells import Cells

Along = Callable[[Tensor], Tensor]  # signals (C, points) -> log likelihood with them added (C,)

FLATTEST = 3.0  # nats that a cell may be ahead of others, beyond the logarithm of their number

CHUNK = 256  # chains whose cells are looked at together: they fit the caches

MEANS = 16  # cells whose signals make the direction in which curvature is compared


class Residual(NamedTuple):
    """What is left of the data beside some components, for each of C chains.

    Attributes:
        total: What these components add up to, (C, points), float64.
        log_likelihood: Of that, to the power 1, (C,), float64.
        slope: Its gradient in the total, (C, points), float64.
        power: Of the likelihood.
        gain: Of the tempered log likelihood by a component in each cell, (C, J), float32; nothing
            where there are no cells.
        along: The log likelihood with a signal added.
    """

    total: Tensor
    log_likelihood: Tensor
    slope: Tensor
    power: float
    gain: Tensor
    along: Along

    def curvature(self, basis: Tensor, step: Tensor) -> Tensor:
        """Negative second derivatives along signals (C, L, points), (C, L, L).

        Arguments:
            basis: The signals.
            step: Of the differences in each, shape (L,).
        """
        n, size, _ = basis.shape
        found = basis.new_zeros(n, size, size)

        def curve(signal: Tensor) -> Tensor:
            rise = self.along(signal) - self.log_likelihood
            return 2 * ((signal * self.slope).sum(1) - rise)

        for i, a in enumerate(step):
            found[:, i, i] = curve(a * basis[:, i]) / a.square()
        for i, a in enumerate(step):
            for j, b in enumerate(step[:i]):
                both = curve(a * basis[:, i] + b * basis[:, j])
                both = both - a.square() * found[:, i, i] - b.square() * found[:, j, j]
                found[:, i, j] = found[:, j, i] = 0.5 * both / (a * b)
        return found


class MatchedFilter:
    r"""How much a component in each cell would explain of a residual.

    With slope g and curvature H of the log likelihood in the total, signals X of a cell and
    amplitudes that are normal a priori, mean m and covariance S, the log likelihood gains

    .. math:: \log \int N(a; m, S) \exp(a' X g - \tfrac12 a' X H X' a) \, da,

    if S is taken as a multiple of the inverse of X H X'. H is that of one reference, times a number
    that is measured in one direction: noise may have another level.

    Arguments:
        amplitudes: What signals are linear in.
        cells: With their signals.
        reference: The residual of no component, of as many rows as are asked for.
    """

    def __init__(
        self, amplitudes: Amplitudes, cells: Cells, reference: Callable[[int], Residual]
    ) -> None:
        like = cells.signals
        if amplitudes.size:
            mean, covariance = amplitudes.mean, amplitudes.covariance
        else:
            mean, covariance = like.new_ones(1), like.new_zeros(1, 1)
        step = covariance.diagonal().sqrt() + (covariance.diagonal() == 0)
        parts = [reference(len(part)).curvature(part, step) for part in like.split(CHUNK)]
        curvature = torch.cat(parts)
        factor, failed = torch.linalg.cholesky_ex(curvature)
        sound = ((failed == 0) & factor.isfinite().all(2).all(1))[:, None, None]
        factor = torch.where(sound, factor, torch.eye(len(mean)).to(factor))
        white = torch.linalg.solve_triangular(factor, like, upper=False)
        self._signals = torch.where(sound, white, 0.0).transpose(0, 1).float().contiguous()
        self._mean = (factor.mT @ mean).T.float().contiguous()  # of whitened amplitudes, (L, J)
        spread = (factor.mT @ covariance @ factor).diagonal(dim1=1, dim2=2).mean(1)
        self._spread, self._number = spread.float(), cells.number
        self._direction = like[:: max(1, cells.number // MEANS)].sum((0, 1))[None]
        self._curve = self._along(reference(1))

    def _along(self, residual: Residual) -> Tensor:
        """Curvature in one direction, (C,)."""
        direction = self._direction[None].expand(len(residual.total), -1, -1)
        return residual.curvature(direction, self._direction.new_ones(1))[:, 0, 0]

    def gain(self, residual: Residual, constant: bool) -> Tensor:
        """Nats that each cell gains, no cell too far ahead, (C, J), float32.

        Arguments:
            residual: As it is.
            constant: Whether its curvature is that of the reference.
        """
        level = torch.ones_like(residual.log_likelihood)
        if not constant:
            level = self._along(residual) / self._curve
            level = level.nan_to_num(1.0).clamp(1e-6, 1e6)
        power = level.new_full((), residual.power).float()
        rows = zip(*(x.float().split(CHUNK) for x in (residual.slope, level)), strict=True)
        return torch.cat([self._gain(slope, level, power) for slope, level in rows])

    def _gain(self, slope: Tensor, level: Tensor, power: Tensor) -> Tensor:
        precision = (power * level)[:, None]
        squares, across = 0.0, 0.0  # of what is left along the whitened signals
        for signals, mean in zip(self._signals, self._mean, strict=True):
            along = slope @ signals.T
            across = across + along * mean
            squares = squares + along.square_()
        gain = squares * self._spread
        gain.mul_(0.5 * power.square()).addcmul_(across, power)
        gain.sub_(0.5 * precision * self._mean.square().sum(0))
        widened = (precision * self._spread).add_(1.0)
        gain.div_(widened).sub_(widened.log_(), alpha=0.5 * len(self._mean))
        ahead = (gain.amax(1, keepdim=True) - gain.mean(1, keepdim=True)).clamp(min=1.0)
        return gain.mul_(((math.log(self._number) + FLATTEST) / ahead).clamp(max=1.0))
