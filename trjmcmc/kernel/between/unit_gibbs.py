"""Gibbs updates of units and their coefficients under a quadratic, accepted as a whole."""

from __future__ import annotations

import copy
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...errors import ConfigurationError
from ...rng import host_order
from ...target.target import Target
from ...transport.laplace import LaplaceMap
from ..base import Info, Kernel, State, accept
from ..inside.tuning import DualAveraging
from ..learning import due
from ..proposal.quadratic import Quadratic, Terms

ACCEPTANCE = 0.6  # of scans, for which warm-up sets their length

SCANS, UPDATES = 4, 256  # of all units, and updates of one, in a step that is always accepted

MEGABYTES = 64.0  # for modes of centres

FIRST_MOVE = 8  # steps after which the centre is moved for the first time

LOG_ROOT_TWO_PI = 0.5 * math.log(2 * math.pi)


class _Scan(NamedTuple):
    """A quadratic as scans need it: of each unit, then of the slots that are always in use.

    Attributes:
        terms: The quadratic.
        factors: Lower Cholesky factors of the precisions of each one's slots, (k, k).
        log_odds: Of being in, beside half the explained square, nats, shape (B,): infinite of
            slots always in use, without p(model) where that depends on the other units.
        density: What each unit adds to the log density beside the quadratic, nats, shape (U,).
        slots: Of each, shape (k,).
    """

    terms: Terms
    factors: list[Tensor]
    log_odds: Tensor
    density: Tensor
    slots: list[Tensor]


class UnitGibbs(Kernel):
    r"""Each unit in turn is put in or left out given all other coefficients, and drawn anew.

    Under the log joint of all items to second order, precision Q and slope b, a unit j whose
    coefficients are integrated out is in with the odds, given those of all others,

    .. math:: \log\frac{p(m + j)}{p(m - j)} + c_j + \tfrac12 a^\top Q_{jj}^{-1} a
              - \tfrac12 \log |Q_{jj}|, \qquad a = b_j - Q_{j,-j} \theta_{-j},

    and its coefficients are then normal with mean :math:`Q_{jj}^{-1} a`. Units are visited in
    random order, so that a scan is reversible for the quadratic q, and what it leads to is
    accepted with the ratio of the joint over q, there and here: always where the log joint is
    quadratic, as of conjugate regressions. A scan costs p^2 operations a chain, and neither an
    evaluation of the target nor a factor of any model; a step is up to four. Elsewhere warm-up
    shortens it, to some units at random, until six in ten are accepted, and moves the centre of
    the expansion to the median probability model.

    Arguments:
        target: A target over :class:`~trjmcmc.Subsets`, with gradients, whose item parameters
            are real numbers, zero when absent.
        updates: Of units in a step, at first; one scan of all if omitted.
        name: Shown in tables.

    Raises:
        ConfigurationError: Another space, no gradients, no model of all items, parameters of
            items that are not real numbers, ``updates`` out of range.

    Source:
        Geweke (1996), Variable selection and model comparison in regression, Bayesian
        Statistics 5:609; accepted as a whole: Liu (2001), section 9.4.3

    Example:
        >>> from trjmcmc import problems
        >>> from trjmcmc.kernel import start
        >>> target = problems.conjugate_selection(4)
        >>> state = start(target, torch.zeros(5, 4, dtype=torch.long), torch.zeros(5, 4))
        >>> state, (info,) = UnitGibbs(target).step(state, torch.Generator().manual_seed(0))
        >>> info.kernel, bool((info.chance > 0.99).all())
        ('gibbs', True)
    """

    between = within = True

    def __init__(self, target: Target, *, updates: int | None = None, name: str = "gibbs") -> None:
        self.quadratic = Quadratic(LaplaceMap(target, megabytes=MEGABYTES), "UnitGibbs")
        self.target, self.space, self.name = target, target.space, name
        none = torch.zeros(1, len(self.quadratic.slots), dtype=torch.long, device=target.device)
        always = self.space.active(none)
        sets = [*self.quadratic.slots, *always[always.any(1)]]
        self._sets = [tuple(row.nonzero()[:, 0].tolist()) for row in sets]
        n = len(sets)
        if updates is not None and not 1 <= updates <= n:
            raise ConfigurationError(f"updates: expected 1 to {n}, got {updates}")
        self._most = math.log(n * max(1, min(SCANS, UPDATES // n)))
        first = torch.full((1,), math.log(updates or n), dtype=torch.float64)
        self._averaging, self._log_updates, self._steps = DualAveraging(first), first, 0
        self._scan: _Scan | None = None
        steps = torch.ones(n, none.shape[1], device=none.device).tril(-1).long()
        odds = (1 - 2 * steps) * self.space.flip_log_odds(steps)  # of being in, ever more others in
        self._crowded = not bool(torch.isclose(odds, odds[:1]).all())

    @property
    def updates(self) -> int:
        """Updates in a step: of some units at random, or of all in one scan or more."""
        each, wanted = len(self._sets), math.exp(min(self._most, float(self._log_updates)))
        return max(1, round(wanted)) if wanted < each else each * round(wanted / each)

    @property
    def exact(self) -> bool:
        """Whether warm-up has found the log joint to be quadratic."""
        return self.quadratic.exact

    def step(self, state: State, generator: torch.Generator) -> tuple[State, list[Info]]:
        scan = self._scan = self._scan or self._prepared()
        x, rest, log_q = self._look(state.code, state.theta, scan)
        code, theta = self._scanned(state.code, x, rest, scan, generator)
        proposed = State(code, theta, self.target.log_joint(code, theta))
        there = self._look(code, theta, scan)[2]  # of numbers rounded as they are in a state
        log_ratio = proposed.log_joint - state.log_joint - (there - log_q)
        return accept(self.name, state, proposed, log_ratio, generator)

    def adapted_to(self, infos: list[Info], generator: torch.Generator) -> Kernel:
        (info,) = infos
        found = copy.copy(self)
        found._steps = self._steps + 1
        found.quadratic = self.quadratic.adapted_to(info.code, move=due(found._steps, FIRST_MOVE))
        found._averaging = averaging = copy.copy(self._averaging)
        if found.quadratic.terms is not self.quadratic.terms:
            found._scan = None
            averaging.restart()
        chance = info.chance.mean()[None].cpu()
        averaging.update(chance, torch.zeros(1, dtype=torch.long), ACCEPTANCE)
        averaging.held(0.0, self._most)
        found._log_updates = averaging.log_size
        return found

    def frozen(self) -> Kernel:
        found = copy.copy(self)
        found._log_updates = self._averaging.average
        return found

    def adapted(self) -> dict[str, Any]:
        return {"updates": self.updates, **self.quadratic.learnt()}

    def _prepared(self) -> _Scan:
        terms, slots = self.quadratic.terms, self.quadratic.slots
        none = torch.zeros(1, len(slots), dtype=torch.long, device=self.target.device)
        prior = torch.zeros_like(terms.gain)
        if not self._crowded:
            prior = self.space.flip_log_odds(none)[0].to(prior)
        odds = torch.nn.functional.pad(terms.gain + prior, (0, 1), value=math.inf)
        odds, factors = odds[: len(self._sets)].clone(), []
        sets = [torch.tensor(which, device=none.device) for which in self._sets]
        for i, own in enumerate(sets):
            factors.append(torch.linalg.cholesky(terms.precision[own][:, own]))
            odds[i] -= factors[-1].diagonal().log().sum()
        density = terms.gain - slots.double() @ (terms.unit.log() + LOG_ROOT_TWO_PI)
        return _Scan(terms, factors, odds, density, sets)

    def _look(self, code: Tensor, theta: Tensor, scan: _Scan) -> tuple[Tensor, Tensor, Tensor]:
        """Coordinates x (D, C), the gradient of the quadratic there, and its log density (C,)."""
        terms = scan.terms
        used = self.space.active(code)
        x = torch.where(used, (theta.double() - terms.centre) / terms.unit, 0.0).T.contiguous()
        rest = terms.slope[:, None] - terms.precision @ x
        log_q = 0.5 * (x * (terms.slope[:, None] + rest)).sum(0)
        log_q = log_q + code.double() @ scan.density + self.space.log_prior(code).double()
        return x, rest, log_q

    def _scanned(
        self, code: Tensor, x: Tensor, rest: Tensor, scan: _Scan, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Where scans lead: codes (C, L) and coordinates (C, D); x and rest are overwritten."""
        terms, n, left = scan.terms, len(self._sets), self.updates
        new = code.T.contiguous()
        while left > 0:
            self._pass(new, x, rest, scan, host_order(n, generator)[:left], generator)
            left -= n
        after = new.T.contiguous()
        theta = terms.centre + terms.unit * x.T
        return after, torch.where(self.space.active(after), theta, 0.0).to(self.target.dtype)

    def _pass(
        self,
        code: Tensor,
        x: Tensor,
        rest: Tensor,
        scan: _Scan,
        order: list[int],
        generator: torch.Generator,
    ) -> None:
        """Update units one after another, in place: codes (U, C), x and gradients (D, C)."""
        number: dict[str, Any] = {
            "generator": generator,
            "device": x.device,
            "dtype": torch.float64,
        }
        noise = torch.randn(x.shape, **number)
        u = torch.rand(len(scan.log_odds), x.shape[1], **number)
        least = 2 * (u.logit() - scan.log_odds[:, None])  # explained squares that put units in
        rows = [tensor.unbind(0) for tensor in (x, rest, noise, scan.terms.precision)]
        crowded = self._crowded
        for i in order:
            slots, square = self._sets[i], least[i]
            if crowded and i < len(code):
                square = square - 2 * self._crowding(code, i)
            if len(slots) == 1:
                here, slope, fresh, column = (row[slots[0]] for row in rows)
                mean = slope + here
                on = mean.square().gt(square)
                change = (mean + fresh).mul_(on).sub_(here)
                rest.addr_(column, change, alpha=-1)
                here += change
            else:
                own, factor = scan.slots[i], scan.factors[i]
                slope = rest[own] + factor @ (factor.T @ x[own])
                white = torch.linalg.solve_triangular(factor, slope, upper=False)
                on = white.square().sum(0).gt(square)
                drawn = torch.linalg.solve_triangular(factor.T, white + noise[own], upper=True)
                change = drawn * on - x[own]
                rest -= scan.terms.precision[:, own] @ change
                x[own] += change
            if i < len(code):
                code[i] = on

    def _crowding(self, code: Tensor, which: int) -> Tensor:
        """Log prior odds that a unit is in, given the others, codes (U, C) -> (C,)."""
        here = code.T.contiguous()
        here[:, which] = 0
        return self.space.flip_log_odds(here)[:, which].double()
