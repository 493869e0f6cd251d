"""Draws with what speaks against them, and what that adds to the errors of what they tell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..estimate.estimate import Estimate
from ..estimate.importance import tail_shape
from ..estimate.indicator import Mask, ModelIndicator
from ..estimate.mean import mean_error_where
from ..estimate.visits import rule_of_three
from ..promises import PARETO_K_RELIABLE
from .convergence import Tail
from .doubt import CHAINS, DRAWS, EVERY, Doubt

NAMED_PART = 0.1  # of an error: what widens it by more is named

SELDOM_SHARE = 0.05  # share of the draws below which a model can't spoil all the others


class Doubted:
    """Draws of a run with what speaks against them.

    Arguments:
        indicator: Which model each draw is in.
        found: All that is known, the gravest first.
        tails: Those that chains hardly enter or leave.
    """

    def __init__(
        self, indicator: ModelIndicator, found: Sequence[Doubt], tails: Sequence[Tail] = ()
    ) -> None:
        self.indicator, self.found, self.tails = indicator, list(found), tails
        self._grave = [d for d in found if d.against in {CHAINS, DRAWS} and d.grave]

    def about(self, *labels: str) -> list[Doubt]:
        """What speaks against the draws of some models, or of all."""
        return [d for d in self.against if d.subject in {*labels, EVERY}]

    @property
    def against(self) -> list[Doubt]:
        """What speaks against the draws."""
        return [d for d in self.found if d.against in {CHAINS, DRAWS}]

    def _shift(self, series: NDArray[np.floating], every: int = 1) -> float:
        """How far tails may shift the mean of a series of mean zero; see :meth:`Tail.shift`.

        Tails of one model may be one, seen in several coordinates; those of others are not.
        """
        worst: dict[str, float] = {}
        for t in self.tails:
            worst[t.model] = max(worst.get(t.model, 0.0), t.shift(series, every))
        return math.hypot(*worst.values())

    def _size(self, doubt: Doubt) -> float:
        """By how much means of all draws may be off, in standard deviations; NaN if unknown."""
        if doubt.subject == EVERY:
            return doubt.size
        part = float(self.indicator.inside(doubt.subject).mean())
        # of a model seldom visited an unknown error is no more than all it has
        most = 1.0 if math.isnan(doubt.size) and part < SELDOM_SHARE else doubt.size
        return most * part

    @cached_property
    def _worth(self) -> float:
        """Draws that would tell a mean as well as these, by what flags them."""
        squares = sum(self._size(d) ** 2 for d in self._grave)
        return 1 / squares if squares else math.inf

    def share(self, e: Estimate, inside: Mask) -> Estimate:
        """A share of the draws whose error counts what is flagged about any model.

        Arguments:
            e: The share and its error by the draws alone.
            inside: Which draws it is of, shape (chain, draw).
        """
        error, p, flags = e.std_error, e.value, []
        if p in {0.0, 1.0} and self._worth < e.ess:  # no spread of its own that doubts could scale
            e = replace(e, std_error=max(error, rule_of_three(self._worth)), ess=self._worth)
            error = e.std_error
        for d in self._grave:
            if d.subject == EVERY:
                size = self._size(d) * math.sqrt(max(p * (1 - p), 0.0))
            else:
                here = self.indicator.inside(d.subject)
                within = float((here & inside).sum() / here.sum()) if here.any() else p
                size = self._size(d) * abs(within - p)
            if not size <= NAMED_PART * error:
                flags.append(d.words)
            error = math.hypot(error, size)
        error = math.hypot(error, self._shift(inside - p))
        ess = e.ess if self._worth >= e.ess else self._worth  # NaN where that is
        if flags or error > (1 + NAMED_PART) * e.std_error:
            ess = min(ess, p * (1 - p) / error**2) if error > 0 else math.nan
        return replace(e, std_error=error, ess=ess, warning=e.warning or "".join(flags[:1]))

    def widened(
        self,
        error: float,
        series: NDArray[np.floating],
        inside: Mask | None = None,
        every: int = 1,
    ) -> tuple[float, str]:
        """The error of a mean with what chains remember of their start, and why.

        Arguments:
            error: Standard error of the mean of independent or autocorrelated draws.
            series: What each draw adds to the mean, shape (chain, draw).
            inside: Draws that the mean is of, shape (chain, draw); all if omitted.
            every: The series is of every so many-th draw.

        Returns:
            The error, NaN where nothing tells it, and the flag, in words.
        """
        sd = float(series.std())
        doubts = [
            d
            for d in self._grave
            if d.subject == EVERY
            or inside is None
            or (self.indicator.inside(d.subject) & inside).any()
        ]
        wide = math.hypot(error, *(sd * d.size for d in doubts))
        wide = math.hypot(wide, self._shift(series - series.mean(), every))
        if doubts and not sd:  # a series that never changed may have missed what would change it
            wide = math.nan
        note = doubts[0].words if doubts else ""
        k = tail_shape(series if inside is None else series[inside])
        if k > PARETO_K_RELIABLE:  # the largest values decide, and larger ones were not met
            return math.nan, note or f"tail too heavy for an error (Pareto k {k:.2f})"
        return wide, note

    def error_where(self, x: NDArray[np.floating], inside: Mask) -> tuple[float, float, str]:
        """Standard error and effective draws of a mean over some draws, and its flag.

        Arguments:
            x: Values of those draws, in the order chain by chain, shape (n,).
            inside: Which draws they are, shape (chain, draw).
        """
        error, ess = mean_error_where(x, inside)
        series = np.zeros(inside.shape)
        series[inside] = (x - x.mean()) / inside.mean()
        wide, note = self.widened(error, series, inside)
        if wide != error:
            ess = float(x.var()) / wide**2
        return wide, ess, note
