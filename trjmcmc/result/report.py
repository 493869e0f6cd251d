"""What a run planned, did and spent."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..doubts.of_chains import Judged
from ..fit.trace import FitTrace
from ..pilot.report import AuditReport
from .variational import Variational

TRAINED_BY = {
    "vi": "variational inference",
    "pilot": "draws of tempered runs",
    "draws": "given draws",
    "objective": "an objective of the user's",
}


@dataclass(repr=False)
class KernelPlan:
    """How the kernel of a run was chosen: what was measured, and what came of it.

    Attributes:
        weights: Share of the steps by move between models.
        settings: By kernel, what it adapted in warm-up.
    """

    weights: dict[str, float] = field(default_factory=dict)
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)

    def moved(self) -> str:
        """What moved chains between models, in a line; empty if nothing was chosen."""
        each = [f"{name} {share:.0%}" for name, share in self.weights.items()]
        return f"between models: {', '.join(each)} of the steps" if each else ""

    def __str__(self) -> str:
        steps = ", ".join(f"{name} {share:.0%}" for name, share in self.weights.items())
        lines = [f"steps: {steps or 'one kernel, not chosen'}"]
        for name, found in self.settings.items():
            settings = ", ".join(f"{key} {_rounded(value)}" for key, value in found.items())
            lines.append(f"  {name}: {settings}")
        return "\n".join(lines)

    __repr__ = __str__


@dataclass(frozen=True)
class Started:
    """How far off the points were that the user had chains start at.

    Attributes:
        points: How many.
        item: The item, or model where they are few, whose probability was furthest off.
        there, here: Its share among the points and among the draws.
        log_joint: Mean of the draws less that of the points, nats.
    """

    points: int
    item: str
    there: float
    here: float
    log_joint: float

    @property
    def error(self) -> float:
        """Largest difference of a probability."""
        return abs(self.here - self.there)

    def __str__(self) -> str:
        return (
            f"started at {self.points} given points: {self.item!r} in {self.there:.1%} of them, in "
            f"{self.here:.1%} of the draws; log joint {self.log_joint:+.1f} nats from there on "
            "average"
        )


@dataclass(repr=False)
class RunReport:
    """How a run went.

    Attributes:
        acceptance: By kernel: acceptance rates ``within`` and ``between`` models, and the
            number of ``proposals``.
        fit: Trace of the training, or None if the map was not trained for this run, by it or by
            ``fit`` just before.
        seconds: Wall time by stage of the run and of such a fit: ``survey`` (a small pilot
            run), ``pilot`` (a full one), ``fit``, ``importance``, ``sample``.
        steps: Kernel steps of each chain, warm-up left out.
        seed: The sampler's seed.
        interrupted: Whether the user stopped the run.
        overflows: Proposals at which a likelihood was NaN or +inf far out in the prior's tail;
            they counted as impossible.
        budget_spent: Whether the run ended because ``max_evaluations`` were made.
        evaluations: Likelihood evaluations of the run, such a fit included.
        gradients: How many of them were differentiated.
        audit: What the audit of the map found, or None if there was none.
        plan: How the kernel was chosen, and what it adapted in warm-up.
        out_of_time: Whether ``max_seconds`` ended the run.
        missed: Where it ended before it was as precise as ``until`` asked: how far it came.
        variational: The fit's own answer and how far off it was, where q(m) was learnt.
        precision: Why the run took float64 where the precision was left open; empty if it did not.
        rounding: Models whose log densities rounding changed before sampling, and by how much.
        unresolved: What float64 does not resolve, by the pilot run and the chains' starts.
        start: How far off the points were that chains were started at; None of others.
        draws_asked: Kept draws per chain that were asked for; None for as many as come.
        judged: How the run stands by its own rule; None of draws of other origin.
        unaudited: Whether evidences go through a map that was given, or trained on its own draws,
            and that no tempered draws have judged.
    """

    acceptance: dict[str, dict[str, float]] = field(default_factory=dict)
    fit: FitTrace | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    steps: int = 0
    seed: int = 0
    interrupted: bool = False
    overflows: int = 0
    budget_spent: bool = False
    evaluations: int = 0
    gradients: int = 0
    audit: AuditReport | None = None
    plan: KernelPlan = field(default_factory=KernelPlan)
    out_of_time: bool = False
    missed: str = ""
    variational: Variational | None = None
    precision: str = ""
    rounding: str = ""
    unresolved: str = ""
    start: Started | None = None
    draws_asked: int | None = None
    judged: Judged | None = None
    unaudited: bool = False

    def __str__(self) -> str:
        spent = ", ".join(f"{stage} {s:.1f} s" for stage, s in self.seconds.items())
        lines = ["interrupted"] if self.interrupted else []
        lines += [f"ended early: {self.missed}"] if self.missed else []
        if moved := self.plan.moved():
            lines.append(moved)
        elif self.acceptance:
            lines.append(f"one kernel, not chosen: {', '.join(self.acceptance)}")
        if self.fit is not None and self.fit.step:
            learned = TRAINED_BY.get(self.fit.by, self.fit.by or "a fit")
            last, best = self.fit.step[-1], self.fit.best_step
            kept = "" if best == last else f"; that of step {best} was kept"
            lines.append(f"map trained in {last} steps by {learned}{kept}")
        if self.unaudited:
            lines.append("map not audited: a mode that it has lost shows in visits alone")
        lines += [
            f"{self.steps} steps, {self.evaluations:,} likelihoods, {self.gradients:,} of them "
            f"with gradients; {spent}"
        ]
        if self.judged is not None:
            times = self.steps / self.judged.tau
            lines.append(
                f"  chains are {times:.0f} autocorrelation times long, by the slowest quantity"
            )
            if self.judged.detection == 0:
                lines.append("  each step draws from the posterior itself: no mode can be lost")
            elif math.isfinite(self.judged.detection):
                lines.append(
                    f"  detection limit {self.judged.detection:.2g}: a mode that attracts this "
                    "share of local optimisations from prior draws was found with probability 0.95"
                )
            else:
                lines.append("  detection limit unknown")
        for name, rate in self.acceptance.items():
            known = {where: rate[where] for where in ("between", "within") if rate[where] >= 0}
            moves = ", ".join(f"{r:.2%} {where} models" for where, r in known.items())
            lines.append(f"  {name}: accepted {moves}")
        if self.out_of_time and self.draws_asked is not None:
            lines.append(f"max_seconds ended the run before {self.draws_asked} draws per chain")
        lines += [f"in float64: {self.precision}"] if self.precision else []
        lines += [str(self.start)] if self.start is not None else []
        lines += [str(self.variational)] if self.variational is not None else []
        return "\n".join(lines)

    __repr__ = __str__


NUMBERS_PRINTED = 6  # numbers of a list that a printed plan shows


def _rounded(value: Any) -> str:
    """Plain numbers with three digits, long lists by their ends."""
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k}: {_rounded(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        some = [_rounded(v) for v in value]
        some = (
            some
            if len(some) <= NUMBERS_PRINTED
            else [*some[: NUMBERS_PRINTED - 1], "...", some[-1]]
        )
        return f"[{', '.join(some)}]"
    return str(value)
