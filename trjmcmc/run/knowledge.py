"""What a sampler knows of its target: its map, evidences through it, and what was spent on them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from .. import clock
from ..doubts.of_search import of_climbs
from ..draws import Draws
from ..errors import CheckpointError, ConfigurationError, TRJError
from ..estimate.importance import MOST_DRAWS, enough_weights, log_mean_weight, rounded
from ..fit.climbs_by_model import lacking
from ..fit.fitted import Fitted
from ..fit.schedule import check_schedule
from ..fit.trace import FitTrace
from ..fit.trainer import Trainer
from ..kernel.base import Kernel
from ..pilot.report import AuditReport
from ..result.answer import audited, variational
from ..result.variational import Variational
from ..target.account import Account
from ..target.target import Target
from ..transport.base import Transport
from ..weights.base import ModelWeights
from .strategy import Strategy, check_kernel

OWN = ("vi", "objective")  # what trains a map on its own draws


@contextmanager
def limited(
    target: Target, account: Account, evaluations: int | None
) -> Iterator[Callable[[], int | None]]:
    """Count a target's calls in an account, and hold them to a number.

    Arguments:
        target: The target.
        account: Of the sampler.
        evaluations: Calls that may be made, or None.

    Returns:
        A function of the calls that are left; it gives None without a limit.

    Raises:
        ConfigurationError: The number is below 1.
    """
    if evaluations is not None and evaluations < 1:
        raise ConfigurationError(f"max_evaluations: expected 1 or more, got {evaluations}")
    most = math.inf if evaluations is None else evaluations
    with account.held_to(min(most, target.account.left)), target.counted_in(account):
        yield lambda: None if math.isinf(account.limit) else int(account.left)


class Spending:
    """Seconds and likelihood calls since the last report, fits before a run included.

    Attributes:
        account: Counts the calls.
        seconds: Wall time by stage.
        reported: Whether a report has told of all of it.
    """

    def __init__(self) -> None:
        self.account = Account()
        self.seconds: dict[str, float] = {}
        self.reported = False
        self._before = {"evaluations": 0, "gradients": 0}  # what earlier reports hold

    def spend(self, stage: str, seconds: float) -> None:
        """Add seconds to those of a stage."""
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    def begin(self) -> None:
        """Begin a new period."""
        self._before = {name: getattr(self.account, name) for name in self._before}
        self.seconds, self.reported = {}, False

    def close(self) -> None:
        """A report has told of all of it."""
        self.reported = True

    @property
    def made(self) -> dict[str, int]:
        """Likelihood calls, and those that were differentiated."""
        return {name: getattr(self.account, name) - n for name, n in self._before.items()}

    def restore(self, account: Mapping[str, int], seconds: Mapping[str, float]) -> None:
        """Go on from what a saved run has spent: held counts, and seconds by stage."""
        self.account.restore(account)
        self.seconds, self.reported = dict(seconds), False
        self._before = dict.fromkeys(self._before, 0)


class Knowledge:
    """What a sampler knows of its target, kept from run to run.

    Arguments:
        target: The target.
        transport: The map.
        strategy: How it is fitted, and what kernel is made of it.
        generator: Source of randomness.
        given_map: Whether the user gave the map, so that it is used as it is.
        make_weights: Gives the distribution over models to learn beside the map, or None.
        spending: What was spent on the same target before, or None.

    Attributes:
        trainer: Trains the map.
        audit_report: What the audit said of the map, or None.
        spending: Seconds and likelihood calls since the last report.
    """

    def __init__(
        self,
        target: Target,
        transport: Transport,
        strategy: Strategy,
        generator: torch.Generator,
        *,
        given_map: bool,
        make_weights: Callable[[], ModelWeights] | None,
        spending: Spending | None = None,
    ) -> None:
        self.target, self.transport, self.strategy = target, transport, strategy
        self.generator, self.given_map = generator, given_map
        self.trainer = Trainer(target, transport, generator, make_weights)
        self.audit_report: AuditReport | None = None
        self._answer: tuple[Any, Variational] | None = None
        self._told: tuple[Any, Variational] | None = None  # the same with what an audit says
        self.spending = Spending() if spending is None else spending

    def begin(self) -> None:
        """Count from here if what was spent so far has been reported."""
        if self.spending.reported:
            self.spending.begin()
            self.trainer.keep(replace(self.fitted, seconds={}))

    # ---- the map ----------------------------------------------------------------------------

    def restore_map(self, state: Mapping[str, Tensor]) -> None:
        """Have the map of a saved run.

        Raises:
            CheckpointError: It is a map of another kind.
            ConfigurationError: The sampler's was trained since.
        """
        now = self.transport.state_dict()
        if self.trace is not None and any(not torch.equal(now[k].cpu(), state[k]) for k in state):
            raise ConfigurationError("start: the map was trained since that run; run anew")
        try:
            self.transport.load_state_dict(state)
        except RuntimeError as error:
            raise CheckpointError(f"the run there has another map: {error}") from None
        self.given_map = True

    @property
    def fitted(self) -> Fitted:
        """What fits have found so far."""
        return self.trainer.fitted

    @property
    def trace(self) -> FitTrace | None:
        """Trace of the training, once there was one."""
        return self.fitted.trace

    @property
    def ready(self) -> bool:
        """Whether the map is used as it is: it has been trained, or given."""
        return self.trace is not None or self.given_map

    @property
    def mapped(self) -> bool:
        """Whether the map has been fitted or given."""
        trained = self.trace is not None and bool(self.trace.step)
        return trained or self.given_map

    @property
    def unaudited(self) -> bool:
        """Whether evidences go through a map that nothing but its own draws has judged."""
        own = self.given_map if self.trace is None else self.trace.by in OWN
        return own and self.strategy.weighs and self.audit_report is None

    def kernel(self, transport: Transport) -> Kernel:
        """The strategy's kernel through a map.

        Raises:
            ConfigurationError: It can't move between models, or inside them.
        """
        return check_kernel(self.target, self.strategy.kernel(self.target, transport))

    def fit(self, *, max_evaluations: int | None = None, **settings: Any) -> FitTrace:
        """Train the map, and weigh models through it; see :meth:`trjmcmc.TRJSampler.fit`."""
        check_schedule(settings.get("schedule", "cosine"))
        self.begin()
        with limited(self.target, self.spending.account, max_evaluations) as left:
            settings |= {"max_evaluations": max_evaluations}
            self.audit_report = None
            trace = self.strategy.fit(self.trainer, **settings).trace
            assert trace is not None
            if self.fitted.score is not None:
                self.audit_report = self._report(left())
        return trace

    @property
    def variational(self) -> Variational | None:
        """The answer of the fit alone, made when it is first asked for; None before a fit."""
        weights = self.fitted.weights
        if weights is None and not (self.fitted.few and self.mapped):
            return None
        state = fingerprint(self.transport)
        if self._answer is None or self._answer[0] != state:
            answer = variational(self.target, weights, self.transport, self.generator)
            if weights is not None:
                answer = searched(answer, self.target, self.generator)
            self._answer = state, answer
        known = self._answer[1], self.audit_report
        if self._told is None or any(a is not b for a, b in zip(self._told[0], known, strict=True)):
            self._told = known, audited(*known)
        return self._told[1]

    def variational_answer(self, draws: Draws) -> Variational | None:
        """The answer of the fit alone beside a run's draws, where it learnt q(m) or was asked."""
        if self.fitted.weights is None and self._answer is None:
            return None
        with suppress(TRJError):  # no evaluations are left, or the likelihood fails out there
            if (answer := self.variational) is not None:
                return answer.against(draws).without_draws()
        return None

    # ---- the audit --------------------------------------------------------------------------

    def _report(self, evaluations: int | None) -> AuditReport | None:
        """The audit beside evidences through the map, of so many likelihood calls, or None."""
        fitted, space, begun = self.fitted, self.target.space, clock.now()
        audit, score, most = fitted.audit, fitted.score, MOST_DRAWS
        assert audit is not None and score is not None
        if evaluations is not None:
            most = min(most, evaluations // len(audit.code))
        if most < 2:
            return None
        found = []
        for code in audit.code:
            log_w = enough_weights(self.target, self.transport, code, self.generator, most=most)
            found.append(rounded(log_mean_weight(log_w), self.target.dtype))
        self.spending.spend("importance", clock.now() - begun)
        log_prior = space.log_prior(audit.code).tolist()
        return audit.report(
            score,
            [len(m) for m in fitted.modes],
            [e.value - prior for e, prior in zip(found, log_prior, strict=True)],
            [e.std_error for e in found],
            fitted.mended,
        )


def searched(answer: Variational, target: Target, generator: torch.Generator) -> Variational:
    """An answer of a learnt q(m) with what climbs say against it, where models are few counts."""
    if answer.models is None or answer.transport is None:
        return answer
    lost = lacking(target, answer.transport, answer.models["log_evidence"].tolist(), generator)
    return audited(answer, None, [of_climbs(*row) for row in lost])


def fingerprint(transport: Transport) -> tuple[Any, ...]:
    """Something that differs once a parameter was changed, in place too."""
    tensors = [*transport.parameters(), *transport.buffers()]
    with torch.no_grad():
        sums = [float(t.double().sum()) for t in tensors if t.is_floating_point()]
    return (*sums, *(t._version for t in tensors))
