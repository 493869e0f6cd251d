"""Normals fitted to all that a run has seen so far."""

from __future__ import annotations

from ..draws import Pool
from ..fit.trainer import Trainer
from ..transport.base import Transport
from ..transport.normals import gaussian_mixture
from .bench import Bench
from .policy import Policy


class FittedNormals:
    """A mixture of normals for each model of a few, from draws of pilot run, chains and crowds.

    Arguments:
        trainer: Has the pilot run.
        bench: Chains, and what they have passed.
        policy: The policy.
    """

    def __init__(self, trainer: Trainer, bench: Bench, policy: Policy) -> None:
        self.trainer, self.bench, self.policy = trainer, bench, policy
        self._later: Pool | None = None  # draws of a run that is reconsidered
        self._crowds: Pool | None = None
        self._wanted = True  # the crowds, which have not been needed so far

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
