"""Pilot runs sized by the price of a likelihood and the time left, and the modes they show."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .. import clock
from ..errors import (
    BudgetError,
    ConvergenceError,
    ConvergenceWarning,
    UnreachableError,
    warn_user,
)
from ..target.target import Target
from .audit import MOVES, REPLICATES, Audit, usual_particles
from .modes import Modes, find_modes

TEMPERATURES = 9  # the prior included, that a limited audit is planned for

OVERHEAD = 4.0  # price of a tempered run over that of its likelihoods alone, gradients included

PRICED = 256  # evaluations whose price is taken, in one batch as large as the chains'

MODE_DRAWS = 2000  # of a model in which modes are searched: a mode of one percent has 20

FEWEST_PARTICLES, FEWEST_MOVES = 4, 3  # of an audit, however few evaluations it may take


class PilotRuns:
    """Audits of a target's models that are sized by what they may cost.

    Arguments:
        target: The target.
        generator: Source of randomness.

    Example:
        >>> from trjmcmc import problems
        >>> target = problems.sinh_arcsinh()
        >>> pilot = PilotRuns(target, torch.Generator().manual_seed(0))
        >>> audit = pilot.planned(target.space.enumerate(), particles=300, moves=20)
        >>> pilot.grow(audit, 0), len(pilot.modes(audit))
        (True, 2)
    """

    def __init__(self, target: Target, generator: torch.Generator) -> None:
        self.target, self.generator = target, generator
        self._last: Audit | None = None  # unfinished where a likelihood failed on the way

    def price(self, codes: Tensor) -> float:
        """Seconds of one evaluation, in batches as large as chains make them.

        Prior draws of a seed of their own: a deadline alone changes no draw.

        Arguments:
            codes: Models that take turns, shape (M, L).
        """
        n = PRICED
        code = codes[torch.arange(n, device=codes.device) % len(codes)]
        generator = torch.Generator(self.target.device).manual_seed(0)
        theta = self.target.sample_prior(code, generator)
        theta = torch.where(theta.isfinite(), theta, 0.0)
        begun = clock.now()
        with torch.no_grad():
            self.target.log_joint(code, theta)
        return max(clock.now() - begun, 1e-9) / n

    # ---- audits -----------------------------------------------------------------------------

    def planned(
        self,
        codes: Tensor,
        *,
        particles: int | None = None,
        moves: int | None = None,
        evaluations: int | None = None,
        deadline: float = math.inf,
    ) -> Audit:
        """The last audit if it is of these models and as large as is asked for, or a new one.

        Arguments:
            codes: Models, shape (M, L).
            particles: Chains a model and replicate, or None.
            moves: Moves of each at each temperature, or None.
            evaluations: Most evaluations, about, or None.
            deadline: Time by :func:`trjmcmc.clock.now` by which its first round has to be over,
                about.
        """
        sizes = particles, moves or MOVES
        if evaluations is not None:
            sizes = self._sizes_within(evaluations, len(codes), moves or MOVES)
        known = self._last
        if known is not None and torch.equal(known.code, codes):
            asked = particles is not None or moves is not None or evaluations is not None
            if not asked or (known.particles, known.moves) == sizes:
                return known
        if particles is None and evaluations is None and math.isfinite(deadline):
            seconds = (deadline - clock.now()) / OVERHEAD
            affordable = seconds / self.price(codes)
            fewer = self._sizes_within(affordable, len(codes), moves or MOVES)
            if fewer[0] < usual_particles(len(codes)):
                sizes = fewer
        particles, moves = sizes
        return Audit(
            self.target,
            codes,
            particles=particles,
            moves=moves,
            generator=self.generator,
        )

    def grow(
        self,
        audit: Audit,
        budget: int | None,
        *,
        limit: int | None = None,
        deadline: float = math.inf,
        progress: bool = False,
    ) -> bool:
        """Let an audit grow; False, with a warning, where a posterior can't be reached.

        Arguments as of :meth:`trjmcmc.pilot.audit.Audit.grow`.
        """
        self._last = audit
        try:
            audit.grow(budget, limit=limit, deadline=deadline, progress=progress)
        except (UnreachableError, ConvergenceError, BudgetError) as error:
            self._last = None
            warn_user(f"no pilot run and no audit: {error}", ConvergenceWarning)
            return False
        return True

    def _sizes_within(self, evaluations: float, models: int, moves: int) -> tuple[int, int]:
        """Particles and moves of an audit that takes about so many evaluations."""
        runs = models * REPLICATES * TEMPERATURES
        each = max(0.0, evaluations) / runs
        moves = min(moves, max(FEWEST_MOVES, round(each**0.5)))
        return max(FEWEST_PARTICLES, int(each / (1 + moves))), moves

    # ---- what they show ---------------------------------------------------------------------

    def modes(self, audit: Audit) -> tuple[Modes, ...]:
        """The modes of each audited model."""
        found, n = [], MODE_DRAWS
        for m, active in enumerate(self.target.space.active(audit.code)):
            theta, *_ = audit.draw(torch.full((n,), m, device=self.target.device))
            found.append(find_modes(theta, active))
        return tuple(found)
