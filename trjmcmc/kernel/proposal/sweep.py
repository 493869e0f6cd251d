"""Walks among subsets by the evidences of one quadratic: no density is evaluated on the way."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor

from ...errors import ConfigurationError
from ...grouping import on_host
from ...transport.laplace import Laplace
from .quadratic import Quadratic
from .walk import Walk, n_swaps, scan, units_of

LEAST_PIVOT = 1e-10  # precision given a model, over that given all else, of collinear coordinates


class SweepWalk(Walk):
    r"""A scan of all units, and swaps, under the evidences of a quadratic log joint.

    With the log joint of all items expanded to second order, precision Q and slope b, the log
    evidence of a subset S is

    .. math:: s(S) = \tfrac12 b_S^\top Q_{SS}^{-1} b_S - \tfrac12 \log |Q_{SS}|
              + \sum_{j \in S} c_j + \log p(S)

    Sweeping the tableau of Q and b on a pivot adds or removes a coordinate, and its diagonal
    tells what the next one would gain: a flip costs p^2 operations, a scan of all units p^3,
    and nothing is remembered of any model. Coordinates are in units in which Q has ones on its
    diagonal, so that pivots are shares, whatever the width of the prior; those below 1e-10 are
    lost in rounding, and no walk takes them, neither in nor out. The order of flips and swaps is
    drawn at random, so that the walk is reversible for exp(s) and
    log q(m | m') - log q(m' | m) = s(m) - s(m'). On conjugate regressions s is exact; elsewhere
    the jump's acceptance makes up for it. In warm-up the centre of the expansion moves to the
    median probability model of the visits.

    Arguments:
        flow: Laplace's map of a target over :class:`~trjmcmc.Subsets` whose item parameters
            are real numbers, zero when absent.
        scans: Scans of all units in one walk.

    Raises:
        ConfigurationError: Another space, ``scans`` below 1, no model of all items, parameters
            of items that are not real numbers.

    Source:
        Sweep operator: Goodnight (1979), https://doi.org/10.1080/00031305.1979.10482685;
        walks under a score: Liu (2001), section 9.4.3

    Example:
        >>> from trjmcmc import problems
        >>> target = problems.variable_selection(6)
        >>> walk = SweepWalk(Laplace(target))
        >>> code = target.space.sample_prior(3, torch.Generator().manual_seed(0))
        >>> new, ratio = walk.propose(code, torch.Generator().manual_seed(0))
        >>> exact = target.log_evidence(code) - target.log_evidence(new)
        >>> bool((ratio - exact).abs().max() < 1e-3)
        True
    """

    def __init__(self, flow: Laplace, *, scans: int = 1) -> None:
        if scans < 1:
            raise ConfigurationError(f"scans: expected 1 or more, got {scans}")
        self.quadratic = Quadratic(flow, "SweepWalk")
        self.space, self.flow, self.scans = flow.space, flow, scans
        slots = self.quadratic.slots
        self._real, self._pivots = slots.long().sort(dim=1, descending=True, stable=True)
        self._real, self._most = self._real.bool(), int(slots.sum(1).max())

    @property
    def _bordered(self) -> Tensor:
        """Precision and slope as one matrix, (D + 1, D + 1)."""
        terms = self.quadratic.terms
        bordered = torch.cat([terms.precision, terms.slope[:, None]], 1)
        last = torch.cat([terms.slope, terms.slope.new_zeros(1)])
        return torch.cat([bordered, last[None]])

    @property
    def _gain(self) -> Tensor:
        return self.quadratic.terms.gain

    def adapted_to(self, code: Tensor) -> SweepWalk:
        """Expanded around the median probability model of the visits so far."""
        found = copy.copy(self)
        found.quadratic = self.quadratic.adapted_to(code)
        return found

    def learnt(self) -> dict[str, Any]:
        return self.quadratic.learnt()

    def score(self, code: Tensor) -> Tensor:
        """s, up to a constant, (C, L) -> (C,), nats, float64."""
        active, bordered = self.space.active(code), self._bordered
        both = active[:, :, None] & active[:, None, :]
        eye = torch.eye(active.shape[1], dtype=torch.float64, device=code.device)
        factor = torch.linalg.cholesky(torch.where(both, bordered[:-1, :-1], eye))
        slope = torch.where(active, bordered[:-1, -1], 0.0)
        z = torch.linalg.solve_triangular(factor, slope[..., None], upper=False)[..., 0]
        log_det = factor.diagonal(dim1=1, dim2=2).log().sum(-1)
        chosen = code.double() @ self._gain
        return 0.5 * z.square().sum(-1) - log_det + chosen + self._log_prior(code)

    def propose(self, code: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        units = code.shape[1]
        new, total = code, torch.zeros(len(code), dtype=torch.float64, device=code.device)
        table = self._tableau(code)
        for move in scan(units, self.scans * (units + n_swaps(units)), generator):
            change = units_of(move, new, generator)
            new, table, gain = self._try(new, table, change, generator)
            total = total + gain
        return new, -total

    def _try(
        self, code: Tensor, table: Tensor, change: list[Tensor], generator: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Flip units by Metropolis's rule: new codes, their tableaux, and what was gained."""
        new, swept = code, table
        gain = torch.zeros(len(code), dtype=torch.float64, device=code.device)
        for unit in change:
            on = new.gather(1, unit[:, None])[:, 0]
            gain = gain + (1 - 2 * on) * self._gain[unit]
            swept, more = self._turn(swept, unit, on)
            gain = gain + more
            new = new.scatter(1, unit[:, None], 1 - on[:, None])
        gain = gain + self._log_prior(new) - self._log_prior(code)
        if len(change) > 1:  # all on, or all off: nothing to swap
            gain = torch.where(new.sum(1) == code.sum(1), gain, -math.inf)
        u = torch.rand(len(code), generator=generator, device=code.device, dtype=torch.float64)
        taken = u.log() < gain
        return (
            torch.where(taken[:, None], new, code),
            torch.where(taken[:, None, None], swept, table),
            torch.where(taken, gain, 0.0),
        )

    def _turn(self, table: Tensor, unit: Tensor, on: Tensor) -> tuple[Tensor, Tensor]:
        """Sweep on the slots of each row's unit, and what the quadratic gains by it."""
        gain = torch.zeros(len(table), dtype=torch.float64, device=table.device)
        for i in range(self._most):
            pivot, real = self._pivots[unit, i], self._real[unit, i]
            swept, more = sweep(table, pivot, on)
            gain = gain + torch.where(real, more, 0.0)
            table = torch.where(real[:, None, None], swept, table)
        return table, gain

    def _tableau(self, code: Tensor) -> Tensor:
        """The bordered matrix swept on the active slots of each model, (C, D + 1, D + 1)."""
        active = torch.nn.functional.pad(self.space.active(code), (0, 1))
        both = active[:, :, None] & active[:, None, :]
        eye = torch.eye(active.shape[1], dtype=torch.float64, device=code.device)
        matrix = self._bordered
        factor, failed = torch.linalg.cholesky_ex(
            torch.where(both, matrix, eye), check_errors=on_host(code)
        )
        factor = torch.where(failed[:, None, None] > 0, math.nan, factor)  # no pivot is sound
        inverse = torch.where(both, torch.cholesky_inverse(factor), 0.0)
        regression = inverse @ matrix  # on active rows: inverse times the other columns
        rest = matrix - matrix @ regression
        mixed = torch.where(active[:, :, None], regression, regression.mT)
        outside = ~(active[:, :, None] | active[:, None, :])
        return torch.where(both, -inverse, torch.where(outside, rest, mixed))

    def _log_prior(self, code: Tensor) -> Tensor:
        return self.space.log_prior(code).double()


def sweep(table: Tensor, pivot: Tensor, on: Tensor) -> tuple[Tensor, Tensor]:
    """Add each row's pivot to its model, or take it out where it is on.

    A pivot is sound where the coordinate's precision given the model without it is more than
    rounding of its precision given all else, 1: the same question on both ways, without which
    walks would not be reversible.

    Arguments:
        table: Tableaux, shape (C, n, n), symmetric, of a precision with ones on its diagonal;
            -inverse on swept coordinates, the last column the slope.
        pivot: Shape (C,).
        on: Whether the pivot is swept already, shape (C,), 0 or 1.

    Returns:
        The tableaux, and the change of half the explained square less half the log
        determinant, shape (C,), nats; -inf for a pivot that is not sound.
    """
    rows = torch.arange(len(table), device=table.device)
    column = table[rows, :, pivot]
    d, y = column[rows, pivot], column[:, -1]
    sign = (1 - 2 * on).to(table.dtype)
    sound = torch.where(on > 0, -1 / d, d) > LEAST_PIVOT
    d = torch.where(sound, d, sign)
    gain = torch.where(sound, 0.5 * y.square() / d - 0.5 * d.abs().log(), -math.inf)
    swept = table - column[:, :, None] * (column / d[:, None])[:, None, :]
    edge = column * (sign / d)[:, None]
    swept[rows, :, pivot] = edge
    swept[rows, pivot, :] = edge
    swept[rows, pivot, pivot] = -1 / d
    return swept, gain
