"""Runs that are none in rounds: kernels of the user, shards, limits."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch

from .. import clock
from ..draws import Pool
from ..errors import TargetError
from ..kernel.base import Kernel
from ..promises import DONE_ERROR, DONE_RHAT, DONE_SECONDS
from ..result.result import Result
from ..target.account import Account
from ..target.target import Target
from ..transport.base import Transport
from . import few_calls
from .budget import Spending
from .chains import chains_asked
from .crew import Grid
from .given import as_pool
from .in_rounds import InRounds
from .knowledge import Knowledge
from .onward import Onward, adopted, check_asked
from .policy import Policy
from .precision import TooCoarse
from .request import Request, check_counts, checked_fit
from .resumed import Resumed
from .saving import ASKED, Place
from .sharded import runner_of
from .stop import Rule, Stop


class Elsewhere(ABC):
    """A sampler's runs that are none in rounds; attributes are those of the sampler."""

    target: Target
    transport: Transport
    seed: int
    _known: Knowledge
    _made: Kernel
    _left: Onward | InRounds | None
    _compile: bool | str
    _given_seed: bool
    _open_precision: bool

    @property
    def policy(self) -> Policy:
        """How runs are planned."""
        return self._known.policy

    @property
    def account(self) -> Account:
        """Evaluations of its runs and fits, and of nobody else on the same target."""
        return self._known.spending.account

    def _run_elsewhere(
        self,
        asked: dict[str, Any],
        place: Place | None,
        *,
        draws: int | None,
        start: Any,
        until: Mapping[str, float] | Rule | None,
        max_seconds: float | None,
        max_evaluations: int | None,
        grid: Grid | None,
        progress: bool,
    ) -> Result:
        """A run; ``asked`` has chains, warmup, thin, fit, and all is as of :meth:`run`."""
        if draws is None and until is None and max_seconds is None and max_evaluations is None:
            until, max_seconds = {"probability": DONE_ERROR, "rhat": DONE_RHAT}, DONE_SECONDS
        before = None
        if isinstance(start, Result) and start.onward is not None and grid is None:
            before, start = self._onward(start, draws=draws, **asked), None
            if place is not None:
                place = replace(place, settings={**place.settings, "seed": self.seed})
        begun = clock.now() - (0.0 if place is None else place.spent)
        settings: dict[str, Any] = {
            "until": until,
            "start": as_pool(start, self.target.device, self.target.dtype),
            "deadline": math.inf if max_seconds is None else begun + max_seconds,
            "progress": progress,
            "place": place,
            "before": before,
            **({k: asked[k] for k in ASKED} if before is None else before.settings),
            "grid": grid,
        }
        spent = self.account.evaluations
        try:
            return self._run(draws, max_evaluations=max_evaluations, **settings)
        except TooCoarse as found:
            with suppress(TargetError):  # its data have the other precision
                self._go_on_in_float64(str(found))
            self._open_precision = False
        if place is not None:  # what it holds is of float32
            settings["place"] = place.anew(clock.now() - begun)
        if max_evaluations is not None:
            max_evaluations -= self.account.evaluations - spent
        return self._run(draws, max_evaluations=max_evaluations, **settings)

    def _more_elsewhere(
        self,
        left: Onward,
        draws: int | None,
        until: Mapping[str, float] | Rule | None,
        max_seconds: float | None,
        max_evaluations: int | None,
        progress: bool,
    ) -> Result:
        """Go on with a run; arguments as of :meth:`more`."""
        before = left.check("more")
        settings: dict[str, Any] = {
            **before.settings,
            "until": until,
            "deadline": math.inf if max_seconds is None else clock.now() + max_seconds,
            "progress": progress,
        }
        total = None if draws is None else draws + len(before.code)
        return self._run(total, max_evaluations=max_evaluations, **settings, before=before)

    def _run(
        self,
        draws: int | None,
        *,
        chains: int | None,
        warmup: int | None,
        thin: int,
        fit: bool | str,
        until: Mapping[str, float] | Rule | None,
        deadline: float,
        max_evaluations: int | None,
        progress: bool,
        start: Pool | None = None,
        place: Place | None = None,
        before: Resumed | None = None,
        grid: Grid | None = None,
    ) -> Result:
        """A run in the precision of now; arguments as of :meth:`run`, but for the deadline."""
        policy, begun = self.policy, clock.now()
        space = copy.deepcopy(self.target.space).cpu()
        stop = Stop(space, until, deadline, policy.stopping)
        open_length = draws is None and (until is not None or math.isfinite(deadline))
        if draws is None and not open_length:
            draws = 1000
        chains, fewest, most = chains_asked(self._known, chains, open_length, grid, fit is True)
        check_counts(draws, chains, thin, warmup)
        fit, by = checked_fit(fit, self._may_train)
        free = fit == "auto" and not by and self._known.strategy.chooses and not self._known.ready
        calls_are_few = free and few_calls.are_few(self._known, max_evaluations)
        if fit == "auto" and (not self._known.strategy.chooses or max_evaluations is not None):
            fit = self._may_train
        request = Request(
            draws=draws,
            chains=chains,
            fewest_chains=fewest,
            most_chains=most,
            thin=thin,
            warmup=warmup,
            fit=fit,
            by=by,
            until=stop.until,
            error=stop.error or policy.choice.proposed_precision,
            begun=begun,
            deadline=deadline,
            max_evaluations=max_evaluations,
            progress=progress,
            calls_are_few=calls_are_few,
            start=start,
            refines=self._refines,
            times=stop.times,
            compile=self._compile,
        )
        saver = None
        if place is not None:
            saver, known, there, max_evaluations = place.begin(self._known, self._made, request)
            before = there or before
            self._known, self.transport = known, known.transport
        request = replace(request, max_evaluations=max_evaluations)
        runner = runner_of(grid, self._known, request, stop, self.seed, before, saver)
        try:
            result = runner.run()
        finally:
            left = runner.left()
            onward = None if left is None else Onward(self._known, self._made, left, self.seed)
            self._left = onward
        result.onward = onward
        return result

    def _onward(self, result: Result, **asked: Any) -> Resumed:
        """The run of a result, to go on with; refused where it is another's, or more is asked."""
        if isinstance(onward := result.onward, Onward) and onward.is_of(self._known):
            before = onward.check("start")
        else:
            if result.raw.theta.dtype == torch.float64 and self._refines:
                self._go_on_in_float64("")
            seed = self.seed if self._given_seed else None
            before, self.seed = adopted(result, self._known, self._made, seed)
        check_asked(before, result, **asked)
        return before

    @property
    def _may_train(self) -> bool:
        """Whether a map may be trained over the models: not over many graphs."""
        return self.target.space.few or not self.target.space.graphs

    @property
    def _refines(self) -> bool:
        """Whether float64 may follow: nobody has stated a precision, given a kernel, or trained."""
        known = self._known
        untouched = known.trace is None and known.strategy.chooses
        single = self.target.dtype == torch.float32 and self.target.device.type != "mps"
        return self._open_precision and untouched and single

    def _go_on_in_float64(self, why: str) -> None:
        """Begin anew with float64 numbers; what is known of evaluations stays."""
        finer = self.target.to(dtype=torch.float64)
        self._know(finer, f"float32 does not resolve {why}", self._known.spending)

    @abstractmethod
    def _know(self, target: Target, precision: str = "", spending: Spending | None = None) -> None:
        """Begin to learn about a target; arguments as of the sampler's."""
