"""Normals fitted to all that a run has seen so far."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from .. import clock
from ..draws import Pool
from ..fit.trainer import Trainer
from ..kernel.base import Kernel
from ..kernel.between.jump import Jump
from ..transport.base import Transport
from ..transport.normals import gaussian_mixture
from .bench import Bench
from .moves import proposal
from .policy import Policy
from .segment import Segment

NAME = "normals"  # of jumps through them

Offer = Callable[[str, Kernel], Segment]

Saving = Callable[[Segment, float], float]

Guess = Callable[[], Tensor | None]


class FittedNormals:
    """A mixture of normals for each model of a few, from draws of pilot run, chains and crowds.

    Arguments:
        trainer: Has the pilot run.
        bench: Chains, and what they have passed.
        policy: The policy.

    Attributes:
        kept: Those that moves go through, if any do.
    """

    def __init__(self, trainer: Trainer, bench: Bench, policy: Policy) -> None:
        self.trainer, self.bench, self.policy = trainer, bench, policy
        self._later: Pool | None = None  # draws of a run that is reconsidered
        self._crowds: Pool | None = None
        self._wanted = True  # the crowds, which have not been needed so far
        self.kept: Transport | None = None
        self._sizes: dict[str, int] = {}

    def learn(self, later: Pool) -> None:
        """Fit to draws of the run too, from now on."""
        self._later = later

    def fitted(self, **sizes: int) -> Transport:
        """From all draws so far.

        Arguments:
            sizes: Components, and draws.
        """
        pool = self.trainer.draws()
        for more in (self.bench.seen(), self._crowds, self._later):
            pool = pool if more is None else pool.joined(more)
        return gaussian_mixture(self.trainer.target.space, pool, self.trainer.generator, **sizes)

    def quick(self) -> Transport:
        """Few of them, which are fitted soon."""
        return self._keep(components=self.policy.normals.quick_components[0])

    def offer(self, offer: Offer, saving: Saving, room: Callable[[], float], guess: Guess) -> None:
        """Measure jumps through them, fitted again to better draws while that helps.

        Arguments:
            offer: Takes up a move of a name after a first segment.
            saving: Seconds that a move of some efficiency would save beside a segment's.
            room: Seconds left for choice, training and warm-up.
            guess: Log-probabilities of models as far as they are known.
        """
        normals, share = self.policy.normals, self.policy.training.round_share
        for components in normals.quick_components:
            begun = clock.now()
            fitted = self.fitted(components=components)
            quick = clock.now() - begun
            now = self._offer_better(offer, guess, fitted, components=components)
            best = max(self.bench.found.values(), key=lambda f: f.efficiency)
            hoped = now.efficiency * min(normals.fine_gain, now.time)
            if normals.fine_price * quick < min(saving(best, hoped), share * room()):
                sizes = {"components": normals.fine_components, "draws": normals.fine_draws}
                self._offer_better(offer, guess, self.fitted(**sizes), **sizes)
                break
            if quick > normals.quick_share * room():
                break

    def _offer_better(self, offer: Offer, guess: Guess, fitted: Transport, **sizes: int) -> Segment:
        """Jumps through these normals if they are better than those before."""
        before, last = self.bench.moves.get(NAME), self.bench.found.get((NAME,))
        now = offer(NAME, self._jump(fitted, guess))
        if before is not None and last is not None and now.efficiency < last.efficiency:
            self.bench.withdraw(NAME, before, last)
            return last
        self.kept, self._sizes = fitted, sizes
        return now

    def fit_again(self, guess: Guess) -> Transport:
        """As many of them as were kept, fitted anew; jumps go through these from now on.

        Arguments:
            guess: As of :meth:`offer`.
        """
        fitted = self._keep(**self._sizes)
        if NAME in self.bench.moves:
            self.bench.moves[NAME] = self._jump(fitted, guess)
        return fitted

    def _keep(self, **sizes: int) -> Transport:
        self.kept, self._sizes = self.fitted(**sizes), sizes
        return self.kept

    def _jump(self, fitted: Transport, guess: Guess) -> Kernel:
        to = proposal(self.trainer.target.space, self.trainer.fitted.few, guess())
        return Jump(self.trainer.target, fitted, to, name=NAME)

    def finely(self, seconds: float, **sizes: int) -> Transport:
        """From draws that are mostly distinct.

        Arguments:
            seconds: That a large population of each model may take in all, when it is first needed.
            sizes: Components, and draws.
        """
        if self._wanted:
            audit, policy = self.trainer.fitted.audit, self.policy.screening.climbs.crowd
            assert audit is not None
            self._wanted = False
            self._crowds = self.trainer.pilot.crowds(audit.code, seconds, policy)
        return self.fitted(**sizes)
