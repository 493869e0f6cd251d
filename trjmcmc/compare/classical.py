"""Samplers as the field has them: random walks with classical jumps, and the maps of the paper."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
import zuko
from torch import Tensor

from .. import clock
from ..draws import Pool
from ..errors import ConfigurationError
from ..fit.fitted import Fitted
from ..fit.objective import ForwardKL
from ..fit.reverse import ReverseKL
from ..fit.standardise import calibrate, moments, typical_scale
from ..fit.trace import FitTrace
from ..fit.train import train
from ..fit.trainer import Trainer
from ..kernel.base import Kernel
from ..kernel.between.birth_death import BirthDeath
from ..kernel.between.independence import IndependenceJump, NormalInverseGamma
from ..kernel.between.jump import Jump
from ..kernel.between.saturated import saturated_switch
from ..kernel.compose import Cycle
from ..kernel.inside.random_walk import RandomWalk
from ..kernel.proposal.base import IndexProposal
from ..kernel.proposal.fixed import Fixed
from ..kernel.proposal.neighbours import Neighbours
from ..pilot.audit import REPLICATES
from ..run.sampler import TRJSampler
from ..run.strategy import Strategy
from ..space.base import Space
from ..target.target import Target
from ..transport.base import Transport
from ..transport.cosmic import CosmicFlow
from ..transport.normals import gaussian_mixture
from ..transport.per_model import PerModel
from ..transport.realnvp import ConditionalRealNVP, RealNVP

WALKS = 4  # random walks between two jumps of a classical sampler

SWITCH_SCALE = 10.0  # of the saturated space: N(0, 100), as in Brooks et al. and Davies et al.

Fit = Mapping[str, Any]  # arguments of a training: a deadline

DEPTH, WIDTH = 8, 256  # of the maps that are trained without pilot draws

PARTICLES, MOVES = 2400, 20  # of the pilot run: of all models and replicates; at each temperature

NORMALS = {"components": 16, "draws": 10_000}  # a model


class ClassicalSampler(TRJSampler):
    """A sampler of the literature, with the interface and the result of :class:`TRJSampler`.

    Maps and densities are fitted to a pilot run of tempered sequential Monte Carlo, whose time
    and evaluations count as the fit's; where none are fitted, its draws are where chains start.
    Between two jumps there are four random walks.

    Arguments:
        target: The target.
        method: One of ``"switch"`` (the saturated space of Brooks et al. 2003, "standard" in
            the papers), ``"birth-death"`` (from the prior, Green 1995), ``"independence"``
            (normals and inverse gammas, Lopes & West 2004), ``"automix"`` (normal mixtures,
            Hastie 2005), and, by forward KL on pilot draws as in Davies et al. (2023),
            ``"affine TRJ"``, ``"spline TRJ"`` (one map a model), ``"affine CTP"`` and
            ``"spline CTP"`` (one :class:`CosmicFlow` for all); by reverse KL without pilot draws
            after Yin & Jiao, ``"VI TRJ"`` (:class:`RealNVP`) and ``"VI CTP"``
            (:class:`ConditionalRealNVP`), both of 8 couplings and by the trainings of this
            package, where the paper has up to 16 and 10 000 to 40 000 steps at 1e-4.
        options: ``seed``, ``device``, ``dtype``.

    Raises:
        ConfigurationError: No such method, more models than it can fit, or no gradient where it
            needs one.

    Source:
        Davies et al. (2023), https://arxiv.org/abs/2210.12572; Yin & Jiao,
        https://arxiv.org/abs/2512.12742

    Example:
        >>> from trjmcmc import problems
        >>> sampler = ClassicalSampler(problems.sinh_arcsinh(), "automix", seed=1)
        >>> sampler.run(400, chains=64, progress=False).raw.n_draws
        400
    """

    def __init__(self, target: Target, method: str, **options: Any) -> None:
        if method not in METHODS:
            raise ConfigurationError(f"method: expected one of {list(METHODS)}, got {method!r}")
        self.method = method
        super().__init__(target, kernel=Classical(method), **options)
        if METHODS[method].each and not target.space.few:
            raise ConfigurationError(
                f"{method}: it fits something to each model, and there are too many models"
            )
        if METHODS[method].gradient and not self.target.differentiable:
            raise ConfigurationError(f"{method}: reverse KL needs the likelihood's gradient")


class Classical(Strategy):
    """Fits a classical jump to a pilot run, and samples with it and random walks.

    Arguments:
        method: One of :data:`METHODS`.
    """

    weighs = False  # the classical samplers count visits
    fit_share = 1.0  # the published fit, in full or not at all

    def __init__(self, method: str) -> None:
        super().__init__(self._moves)
        self.method = method
        self._jump: Kernel | None = None
        self._scale: Tensor | float = 1.0

    def fit(
        self,
        trainer: Trainer,
        *,
        deadline: float = math.inf,
        progress: bool = True,
        **settings: Any,
    ) -> Fitted:
        """Fit the jump; of the settings only a deadline and the bar matter."""
        begun, target, method = clock.now(), trainer.target, METHODS[self.method]
        pool = self._pilot(trainer, progress)
        if pool is None and method.pilot:
            raise ConfigurationError(f"{self.method}: no pilot run was possible")
        self._jump = method.make(target, pool, trainer.generator, {"deadline": deadline})
        seconds = {**trainer.fitted.seconds, "fit": clock.now() - begun}
        return trainer.keep(replace(trainer.fitted, trace=FitTrace(), seconds=seconds))

    def _pilot(self, trainer: Trainer, progress: bool) -> Pool | None:
        """Draws of a tempered run of each of few models, after which steps are as long."""
        target = trainer.target
        if not target.space.few or not target.dim:
            return None
        codes = target.space.enumerate()
        each = max(25, min(300, PARTICLES // (REPLICATES * len(codes))))
        audit = trainer.pilot.planned(codes, particles=each, moves=MOVES)
        if not trainer.pilot.grow(audit, 0, progress=progress):
            return None
        active, draws = target.space.active(codes), audit.pool(whole=True)
        self._scale = typical_scale(moments(draws, codes, active)[1], active)
        return audit.pool()

    def _moves(self, target: Target, transport: Transport) -> Kernel:
        """The fitted jump and random walks; before the fit, births and deaths."""
        if self._jump is not None:
            return Cycle([self._jump, (RandomWalk(target, scale=self._scale), WALKS)])
        births = [BirthDeath(target, uniform_proposal(target))] if target.space.several else []
        return Cycle([*births, RandomWalk(target)])


def uniform_proposal(target: Target) -> IndexProposal:
    """Uniform over the other models of a list, else to neighbours."""
    if not target.space.has_items:
        return Fixed(target.space, other=True)
    return Neighbours(target.space)


@dataclass(frozen=True)
class Method:
    """How a classical jump is made.

    Attributes:
        make: Of a target, pilot draws, a generator, and arguments of :func:`~trjmcmc.fit.train`.
        pilot: Whether it wants pilot draws.
        each: Whether something is fitted to each model, so that there must be few.
        gradient: Whether it wants gradients of the likelihood.
    """

    make: Callable[[Target, Any, torch.Generator, Fit], Kernel]
    pilot: bool = True
    each: bool = True
    gradient: bool = False


def _independence(target: Target, pool: Pool, generator: torch.Generator, fit: Fit) -> Kernel:
    density = NormalInverseGamma(target, pool.code, pool.theta)
    return IndependenceJump(target, density, uniform_proposal(target))


def _automix(target: Target, pool: Pool, generator: torch.Generator, fit: Fit) -> Kernel:
    normals = gaussian_mixture(target.space, pool, generator, **NORMALS)
    return Jump(target, normals, uniform_proposal(target), name="automix")


def _affine(target: Target, pool: Pool, generator: torch.Generator, fit: Fit) -> Kernel:
    normals = gaussian_mixture(target.space, pool, generator, components=1)
    return Jump(target, normals, uniform_proposal(target), name="affine TRJ")


def on_draws(
    make: Callable[[Space], Transport], name: str
) -> Callable[[Target, Pool, torch.Generator, Fit], Kernel]:
    """Jumps through a map that forward KL has trained on pilot draws."""

    def kernel(target: Target, pool: Pool, generator: torch.Generator, fit: Fit) -> Kernel:
        flow = make(target.space).to(target.device, target.dtype)
        codes = target.space.enumerate()
        calibrate(flow, codes, *moments(pool, codes, target.space.active(codes)))
        objective = ForwardKL(pool.code, pool.theta, generator=generator)
        train(flow, objective, generator=generator, progress=False, **fit)
        return Jump(target, flow, uniform_proposal(target), name=name)

    return kernel


def on_itself(
    make: Callable[[Space], Transport], name: str
) -> Callable[[Target, Pool | None, torch.Generator, Fit], Kernel]:
    """Jumps through a map that reverse KL has trained, all models equally often."""

    def kernel(target: Target, pool: Pool | None, generator: torch.Generator, fit: Fit) -> Kernel:
        flow = make(target.space).to(target.device, target.dtype)
        objective = ReverseKL(target, anneal=0.0)
        train(flow, objective, generator=generator, progress=False, **fit)
        return Jump(target, flow, uniform_proposal(target), name=name)

    return kernel


def _spline(d: int) -> torch.nn.Module:
    return zuko.flows.NSF(d, transforms=2, hidden_features=(32,))


def _conditional(space: Space) -> Transport:
    return ConditionalRealNVP(space, layers=DEPTH, hidden=(WIDTH,))


METHODS: dict[str, Method] = {
    "switch": Method(
        lambda t, pool, g, fit: saturated_switch(t, uniform_proposal(t), scale=SWITCH_SCALE),
        pilot=False,
        each=False,
    ),
    "birth-death": Method(
        lambda t, pool, g, fit: BirthDeath(t, uniform_proposal(t)), pilot=False, each=False
    ),
    "independence": Method(_independence),
    "automix": Method(_automix),
    "affine TRJ": Method(_affine),
    "spline TRJ": Method(on_draws(lambda s: PerModel(s, _spline), "spline TRJ")),
    "affine CTP": Method(on_draws(lambda s: CosmicFlow(s, bins=0), "affine CTP")),
    "spline CTP": Method(on_draws(CosmicFlow, "spline CTP")),
    "VI TRJ": Method(
        on_itself(lambda s: RealNVP(s, layers=DEPTH, hidden=(WIDTH,)), "VI TRJ"),
        pilot=False,
        gradient=True,
    ),
    "VI CTP": Method(on_itself(_conditional, "VI CTP"), pilot=False, each=False, gradient=True),
}
