"""One call from a target to its variational answer."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from dataclasses import replace
from numbers import Integral
from typing import Any

import torch

from .. import clock
from ..doubts.of_answers import of_no_audit
from ..doubts.of_search import of_climbs
from ..errors import ConfigurationError, TargetError
from ..fit.climbs_by_model import ClimbsByModel, grown
from ..fit.reverse import GRADIENTS
from ..pilot.report import AuditReport
from ..result.answer import answer_cost, audited
from ..result.answer import variational as answered
from ..result.variational import Variational
from ..run.knowledge import searched
from ..run.sampler import MakeWeights, TRJSampler
from ..space.base import Space
from ..target.account import Account
from ..target.target import Target
from ..transport.base import Transport
from ..weights.base import ModelWeights
from .families import FOUND, RECOMMENDED, Family, Start, map_of, name_of
from .family_fit import OBJECTIVES, FamilyFit
from .policy import ApproximationPolicy

FOUND_STEPS = 2000  # that q(m) learns in where the map has nothing to learn


def variational(
    target: Target,
    family: Family = RECOMMENDED,
    *,
    models: ModelWeights | MakeWeights | None = None,
    objective: str = OBJECTIVES[0],
    gradient: str | None = None,
    steps: int | None = None,
    batch: int | None = None,
    learning_rate: float | None = None,
    draws: int | None = None,
    audit: bool = True,
    max_evaluations: float = 1_200_000,
    seed: int | None = None,
    device: str | torch.device | None = None,
    dtype: torch.dtype | None = None,
    progress: bool = True,
    policy: ApproximationPolicy | None = None,
    **options: Any,
) -> Variational:
    """Approximate the posterior by a family of distributions that can be drawn from.

    For one model or many. The answer is quick and approximate; it carries what is known against
    it, and warns. :class:`~trjmcmc.TRJSampler` makes an exact one through the same map:
    ``TRJSampler(target, answer.transport).run()``.

    ================== ==========================================================================
    family             q(theta | m)
    ================== ==========================================================================
    ``recommended``    in up to eight dimensions normals, fitted round by round to weighted draws
                       of their own, under a coupling flow where they fall short; else a coupling
                       flow around the best normal
    ``mean-field``     a normal with independent coordinates
    ``full-rank``      a normal
    ``laplace``        the normal at the mode
    ``pathfinder``     the best normals of eight local optimisations
    ``normals``        a mixture of normals
    ``coupling``       :class:`CosmicFlow`
    ``spline``         autoregressive splines
    ``iaf``            inverse autoregressive flow, shift and scale; exactly ``hidden`` units of an
                       ``activation`` with ``residual=False, blocks=1``
    ``naf``            inverse autoregressive flow, deep sigmoidal networks of ``nodes``
    ``ddsf``           the same, dense networks of ``depth`` layers
    ================== ==========================================================================

    or a map, a function that makes one of the space, or a class of ``zuko.flows``, of which every
    model has its own (``inverse=True`` turns it round). Coordinates are whitened first.

    A small space is audited: independent tempered draws show what there is to cover, the map
    learns from them (a flow of up to eight coordinates from weighted draws of normals, which are
    nearly the posterior's), is polished by reverse KL, and scored by draws that were kept back.
    Beyond thirty coordinates there are none; flows get the means and covariances of short chains
    that start at their own draws. In a large space q(m) is learned beside the map by reverse KL.

    Arguments:
        target: The target.
        family: One of the above.
        models: Of a large space, the distribution q(m), such as ``trj.weights.MeanField`` or
            ``trj.weights.Made`` (the default): a :class:`~trjmcmc.weights.ModelWeights`, or a
            function that makes one of the space. In a small space q(m) is the best one given the
            map.
        objective: ``"cover, then polish"``; ``"cover"``, the divergence KL(p | q) of tempered
            draws alone; ``"reverse"``, KL(q | p) alone.
        gradient: ``"path"`` or ``"total"`` derivatives of reverse KL, see
            :class:`~trjmcmc.fit.ReverseKL`; the former where densities take one pass.
        steps: Steps of each training at most; 1000 if omitted, 2000 in a large space.
        batch: Draws of a step of reverse KL; 512 if omitted.
        learning_rate: Of Adam; found by short trainings if omitted.
        draws: Draws that the answer is made of; if omitted 10 000, or as many as a twentieth of the
            evaluations.
        audit: Whether a small space has tempered draws.
        max_evaluations: Evaluations of the likelihood, about: of the pilot run, the training, the
            search for modes that it has lost, and the answer's own draws.
        seed: Any integer; drawn if omitted.
        device: Where to compute.
        dtype: If omitted that of the target; float64 where that was left open.
        progress: Show progress bars.
        policy: What is spent where, for experts.
        options: Further arguments of the map, such as ``layers=4``.

    Returns:
        The answer; it has warned of its doubts.

    Raises:
        ConfigurationError: A setting out of range, a family that is unknown, or does not fit.
        NonFiniteError: No draw of the fitted q lies where the posterior has a density.

    Source:
        Rezende & Mohamed (2015), https://arxiv.org/abs/1505.05770; with neural autoregressive
        flows: Premchandar (2024), Normalizing flows aided variational inference, thesis, Michigan
        State University; Pareto k: Yao, Vehtari, Simpson & Gelman (2018),
        https://arxiv.org/abs/1802.02538

    Example:
        >>> import trjmcmc as trj
        >>> answer = trj.variational(trj.problems.energy("U5"), seed=1, progress=False)
        >>> answer.kl().value < 0.05, answer.ok
        (True, True)
    """
    policy = ApproximationPolicy() if policy is None else policy
    _check(target, gradient, steps, batch, learning_rate, draws, max_evaluations, seed)
    seed = secrets.randbits(31) if seed is None else int(seed)
    if dtype is None and target.is_precision_open:
        dtype = torch.float64
    target = target.to(dtype=dtype, device=device)
    n = min(policy.answer_draws, max(2, int(max_evaluations / 20))) if draws is None else draws
    begun, account = clock.now(), Account()
    settings = {
        "steps": steps,
        "batch": batch,
        "learning_rate": learning_rate,
        "gradient": gradient,
    }
    generator = torch.Generator(target.device).manual_seed(seed)
    own = answer_cost(target.space, n, int(max_evaluations / 10))
    most = int(min(max(max_evaluations - own, max_evaluations / 2), 1e12))
    with target.counted_in(account):
        if family == RECOMMENDED and models is None and (climbs := grown(target, generator)):
            answer = _of_counts(climbs, n)
        elif target.space.few and models is None:
            recipe = FamilyFit(
                target,
                family,
                objective=objective,
                generator=generator,
                seed=seed,
                options=options,
                settings=settings,
                most=most,
                audits=audit,
                policy=policy,
                progress=progress,
            )
            answer = _of_few(recipe, n, int(max_evaluations / 10))
        else:
            settings["max_evaluations"] = most
            known = {name: x for name, x in settings.items() if x is not None}
            made = _of_many(target, family, models, policy, seed, options, known, progress)
            answer = answered(
                target, made.models, made.transport, generator, n=n, family=name_of(family)
            )
            answer = searched(answer, target, generator)
    cost = {
        "evaluations": float(account.evaluations),
        "gradients": float(account.gradients),
        "seconds": clock.now() - begun,
    }
    answer = replace(answer, cost=cost)
    answer.warn()
    return answer


def _of_few(recipe: FamilyFit, n: int, far: int) -> Variational:
    """Fit a small space, and ask the audit."""
    transport = recipe.run()
    target = recipe.target
    report: AuditReport | None = None
    answer = answered(target, None, transport, recipe.generator, n=n, family=recipe.name, far=far)
    score = recipe.scored(transport)
    if score is not None and recipe.audit is not None and answer.models is not None:
        table = answer.models.loc[target.space.label(recipe.audit.code)]
        report = recipe.audit.report(
            score,
            [0] * len(table),
            table["log_evidence"].tolist(),
            table["log_evidence_se"].tolist(),
            0,
        )
    assert answer.models is not None
    found = answer.models.loc[target.space.label(recipe.codes), "log_evidence"].tolist()
    missed = recipe.climbs.missed(transport, found) if recipe.climbs.made else []
    more = [*(of_climbs(*lost) for lost in missed), *recipe.doubts]
    if report is None and target.dim and recipe.audits:
        more.append(of_no_audit(recipe.pilot_said))
    return audited(answer, report, more)


def _of_counts(climbs: ClimbsByModel, n: int) -> Variational:
    """Normals of like components, count by count, and the q(m) that fits them best."""
    target, generator = climbs.target, climbs.generator
    transport, listed = climbs.distinct(), climbs.codes[: len(climbs.found)]
    answer = answered(target, None, transport, generator, n=n, family="pathfinder", listed=listed)
    assert answer.models is not None
    missed = climbs.missed(transport, answer.models["log_evidence"].tolist())
    more = [of_climbs(*lost) for lost in missed]
    more.append(of_no_audit("there are too many counts"))
    return audited(answer, None, more)


def _of_many(
    target: Target,
    family: Family,
    models: ModelWeights | MakeWeights | None,
    policy: ApproximationPolicy,
    seed: int,
    options: dict[str, Any],
    settings: dict[str, Any],
    progress: bool,
) -> TRJSampler:
    """Learn q(m) beside the map of a large space."""
    make: Callable[[Space], Transport] | None = None
    if family in ("pathfinder", "normals"):
        raise ConfigurationError(
            f"family {family!r}: it lists the models, and there are too many; take "
            '"recommended", "laplace", "mean-field" or a flow'
        )
    if family != RECOMMENDED:
        start = Start(target, None, None, seed, policy)

        def make(space: Space) -> Transport:
            return map_of(family, start, options)

    sampler = TRJSampler(target, make, models=models, seed=seed)
    gradient = settings.pop("gradient", None)
    if gradient is not None:
        raise ConfigurationError("gradient: a large space has total derivatives only")
    if family in FOUND:
        settings.setdefault("steps", FOUND_STEPS)  # of q(m) alone, which are cheap
        settings["patience"] = settings["steps"]
    sampler.fit(pilot=False, audit=False, progress=progress, **settings)
    return sampler


def _check(
    target: Target,
    gradient: str | None,
    steps: int | None,
    batch: int | None,
    learning_rate: float | None,
    draws: int | None,
    max_evaluations: float,
    seed: int | None,
) -> None:
    """Refuse settings that are out of range."""
    if not isinstance(target, Target):
        raise TargetError(f"target: expected a trj.Target, got {type(target).__name__}")
    if gradient is not None and gradient not in GRADIENTS:
        raise ConfigurationError(f"gradient: expected one of {GRADIENTS}, got {gradient!r}")
    if seed is not None and not isinstance(seed, Integral):
        raise ConfigurationError(f"seed: expected an integer, got {seed!r}")
    if steps is not None and steps < 0:
        raise ConfigurationError(f"steps: expected 0 or more, got {steps}")
    for name, value, least in (("batch", batch, 2), ("draws", draws, 2)):
        if value is not None and value < least:
            raise ConfigurationError(f"{name}: expected {least} or more, got {value}")
    if learning_rate is not None and not 0 < learning_rate < math.inf:
        raise ConfigurationError(f"learning_rate: expected a positive number, got {learning_rate}")
    if not max_evaluations >= 1:
        raise ConfigurationError(f"max_evaluations: expected 1 or more, got {max_evaluations}")
