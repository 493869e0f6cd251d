"""Several samplers on one target and one budget, side by side."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
import zuko

from .defaults import several
from .errors import ConfigurationError, TRJError, TRJWarning
from .estimate import features
from .estimate.mean import mean_error, spread_error
from .export import split_rhat
from .fit import FitTrace, Pool, gaussian_mixture, train
from .fit.objective import ForwardKL, ReverseKL
from .kernel import (
    BirthDeath,
    Cycle,
    Fixed,
    IndependenceJump,
    IndexProposal,
    Jump,
    Kernel,
    Neighbours,
    NormalInverseGamma,
    RandomWalk,
    saturated_switch,
)
from .result import Result
from .sampler import TRJSampler
from .space import ModelList, Space
from .target import Target
from .transport import ConditionalRealNVP, CosmicFlow, PerModel, Transport

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WALKS = 4  # random walks between two jumps of a classical sampler
SWITCH_SCALE = 10.0  # of the saturated space: N(0, 100), as in Brooks et al. and Davies et al.
STEPS = 2000  # training steps of maps
Fit = Mapping[str, Any]  # arguments of a training: its steps, and a deadline
DEPTH, WIDTH = 8, 256  # of the maps that are trained without pilot draws
NORMALS = {"components": 16, "draws": 10_000}  # a model
FEWEST = 4  # draws a chain that a figure can be made of
COUNTED = 0.01  # share from which an indicator's effective draws count


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
            as in Yin & Jiao, ``"VI TRJ"`` (a RealNVP a model) and ``"VI CTP"``
            (:class:`ConditionalRealNVP`).
        options: ``seed``, ``device``, ``dtype``.

    Raises:
        ConfigurationError: No such method, more models than it can fit, or no gradient where it
            needs one.

    Example:
        >>> from trjmcmc import problems
        >>> sampler = ClassicalSampler(problems.sinh_arcsinh(), "affine TRJ", seed=1)
        >>> sampler.run(500, chains=64, progress=False).raw.n_draws
        500
    """

    fit_share = 1.0  # the published fit, in full or not at all

    def __init__(self, target: Target, method: str, **options: Any) -> None:
        if method not in METHODS:
            raise ConfigurationError(f"method: expected one of {list(METHODS)}, got {method!r}")
        self.method = method
        super().__init__(target, kernel=self._placeholder, **options)
        if METHODS[method].each and not self._recipe.few:
            raise ConfigurationError(
                f"{method}: it fits something to each model, and there are too many models"
            )
        if METHODS[method].gradient and not self.target.differentiable:
            raise ConfigurationError(f"{method}: reverse KL needs the likelihood's gradient")

    def _placeholder(self, target: Target, transport: Transport) -> Kernel:
        to = proposal(target) if several(target.space) else None
        kernels: list[Kernel] = [] if to is None else [BirthDeath(target, to)]
        return Cycle([*kernels, RandomWalk(target)])

    def _weigh(self, evaluations: int | None = None, until: float = math.inf) -> None:
        """The classical samplers count visits."""

    def _train_and_weigh(
        self,
        *,
        max_evaluations: int | None = None,
        deadline: float = math.inf,
        progress: bool = True,
        **settings: Any,
    ) -> FitTrace:
        begun = time.perf_counter()
        recipe, target, method = self._recipe, self.target, METHODS[self.method]
        recipe.survey(progress=progress)
        pool = None
        if method.pilot:
            if recipe.audit is None:
                raise ConfigurationError(f"{self.method}: no pilot run was possible")
            pool = recipe.audit.pool()
        fit = {"steps": STEPS, "deadline": deadline}
        jump = method.make(target, pool, self._generator, fit)
        self._make_kernel = lambda t, m: Cycle([jump, (RandomWalk(t, scale=recipe.scale), WALKS)])
        recipe.trace = FitTrace()
        recipe.seconds["fit"] = time.perf_counter() - begun - recipe.seconds.get("survey", 0.0)
        return recipe.trace


def proposal(target: Target) -> IndexProposal:
    """Uniform over the other models of a list, else to neighbours."""
    if isinstance(target.space, ModelList):
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
    return IndependenceJump(target, density, proposal(target))


def _automix(target: Target, pool: Pool, generator: torch.Generator, fit: Fit) -> Kernel:
    normals = gaussian_mixture(target.space, pool, generator, **NORMALS)
    return Jump(target, normals, proposal(target), name="automix")


def _affine(target: Target, pool: Pool, generator: torch.Generator, fit: Fit) -> Kernel:
    normals = gaussian_mixture(target.space, pool, generator, components=1)
    return Jump(target, normals, proposal(target), name="affine TRJ")


def on_draws(
    make: Callable[[Space], Transport], name: str
) -> Callable[[Target, Pool, torch.Generator, Fit], Kernel]:
    """Jumps through a map that forward KL has trained on pilot draws."""

    def kernel(target: Target, pool: Pool, generator: torch.Generator, fit: Fit) -> Kernel:
        flow = make(target.space).to(target.device, target.dtype)
        codes = target.space.enumerate()
        moments = [pool.theta[(pool.code == c).all(-1)] for c in codes]
        loc = torch.stack([x.mean(0) for x in moments])
        scale = torch.stack([x.std(0).clamp(min=1e-6) for x in moments])
        active = target.space.active(codes)
        flow.calibrate(codes, torch.where(active, loc, 0.0), torch.where(active, scale, 1.0))
        objective = ForwardKL(pool.code, pool.theta, generator=generator)
        train(flow, objective, generator=generator, progress=False, **fit)
        return Jump(target, flow, proposal(target), name=name)

    return kernel


def on_itself(
    make: Callable[[Space], Transport], name: str
) -> Callable[[Target, Pool | None, torch.Generator, Fit], Kernel]:
    """Jumps through a map that reverse KL has trained, all models equally often."""

    def kernel(target: Target, pool: Pool | None, generator: torch.Generator, fit: Fit) -> Kernel:
        flow = make(target.space).to(target.device, target.dtype)
        objective = ReverseKL(target, anneal=0.0)
        train(flow, objective, generator=generator, progress=False, **fit)
        return Jump(target, flow, proposal(target), name=name)

    return kernel


def _spline(d: int) -> torch.nn.Module:
    return zuko.flows.NSF(d, transforms=2, hidden_features=(32,))


def real_nvp(d: int, *, layers: int | None = None) -> torch.nn.Module:
    """Couplings with one hidden layer of 256, as Yin & Jiao; for one coordinate a spline.

    They take planar flows there, since a coupling of one coordinate is affine; planar flows have
    no inverse in closed form.
    """
    if d == 1:
        return zuko.flows.NSF(1, transforms=1)
    return zuko.flows.RealNVP(
        d, transforms=layers or DEPTH, hidden_features=(WIDTH,), activation=torch.nn.LeakyReLU
    )


def _conditional(space: Space) -> Transport:
    return ConditionalRealNVP(space, layers=DEPTH, hidden=(WIDTH,))


METHODS: dict[str, Method] = {
    "switch": Method(
        lambda t, pool, g, fit: saturated_switch(t, proposal(t), scale=SWITCH_SCALE),
        pilot=False,
        each=False,
    ),
    "birth-death": Method(
        lambda t, pool, g, fit: BirthDeath(t, proposal(t)), pilot=False, each=False
    ),
    "independence": Method(_independence),
    "automix": Method(_automix),
    "affine TRJ": Method(_affine),
    "spline TRJ": Method(on_draws(lambda s: PerModel(s, _spline), "spline TRJ")),
    "affine CTP": Method(on_draws(lambda s: CosmicFlow(s, bins=0), "affine CTP")),
    "spline CTP": Method(on_draws(CosmicFlow, "spline CTP")),
    "VI TRJ": Method(
        on_itself(lambda s: PerModel(s, real_nvp), "VI TRJ"), pilot=False, gradient=True
    ),
    "VI CTP": Method(on_itself(_conditional, "VI CTP"), pilot=False, each=False, gradient=True),
}

MakeSampler = Callable[[Target], TRJSampler]


@dataclass(frozen=True)
class Comparison:
    """What :func:`compare_samplers` found.

    Attributes:
        table: One row a sampler. ``fit_s`` and ``total_s`` in seconds of wall time;
            ``chains``, how many it had; ``ess``, effective draws of the model indicator that
            has fewest (of those between 1 and 99 %), less the one that each chain starts with;
            the same per second of the total, per step of a chain and per evaluation of the
            likelihood; ``between``, acceptance of moves to another model; ``error``, the
            largest of a model's probability against the truth; ``z``, the largest in standard
            errors; ``rhat`` of the indicator; ``note``.
        results: By sampler, its result; None where it failed.
    """

    table: pd.DataFrame
    results: dict[str, Result | None]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Effective draws of the indicator a second, fit included."""
        from .plot import plot_comparison

        return plot_comparison(self, ax)


def compare_samplers(
    target: Target,
    samplers: Sequence[str] | Mapping[str, str | MakeSampler] | None = None,
    *,
    budget: float = 30.0,
    chains: int | None = None,
    seed: int = 0,
    progress: bool = True,
) -> Comparison:
    """Run several samplers for the same time each, fit included.

    Arguments:
        target: The target; its ``truth``, if any, is what errors are measured against.
        samplers: Names (``"default"`` and those of :class:`ClassicalSampler`), or a dict by
            name of such names or of functions of the target that make a sampler. All that
            apply if omitted.
        budget: Seconds of wall time each. A pilot run and a fit under way are finished: a sampler
            whose fit takes longer gets no figures, and a note.
        chains: Chains each; if omitted 512, and of the default sampler as many as it chooses.
        seed: Of every sampler.
        progress: Show progress bars.

    Returns:
        A table and the results; ``.plot()`` draws it.

    Raises:
        ConfigurationError: No such sampler, or a budget that is not positive.

    Example:
        >>> from trjmcmc import problems
        >>> found = compare_samplers(problems.sinh_arcsinh(), ["default", "affine TRJ"],
        ...                          budget=5.0, progress=False)
        >>> bool((found.table["ess"] > 0).all())
        True
    """
    if not budget > 0:
        raise ConfigurationError(f"budget: expected seconds above 0, got {budget}")
    if samplers is None:
        samplers = ["default", *METHODS]
    named = samplers if isinstance(samplers, Mapping) else {name: name for name in samplers}
    for made in named.values():
        if isinstance(made, str) and made not in {"default", *METHODS}:
            raise ConfigurationError(
                f"samplers: expected 'default' or one of {list(METHODS)}, got {made!r}"
            )
    rows, results = {}, {}
    for name, made in named.items():
        rows[name], results[name] = _run(target, made, budget, chains, seed, progress)
    table = pd.DataFrame.from_dict(rows, orient="index")
    table.index.name = "sampler"
    return Comparison(table, results)


def _run(
    target: Target,
    made: str | MakeSampler,
    budget: float,
    chains: int | None,
    seed: int,
    progress: bool,
) -> tuple[dict[str, Any], Result | None]:
    begun = time.monotonic()
    row: dict[str, Any] = dict.fromkeys(COLUMNS, float("nan"))
    row["note"] = ""
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", TRJWarning)
            if not isinstance(made, str):
                sampler = made(target)
            elif made == "default":
                sampler = TRJSampler(target, seed=seed)
            else:
                sampler = ClassicalSampler(target, made, seed=seed)
            result = sampler.run(max_seconds=budget, chains=chains, progress=progress)
    except (TRJError, RuntimeError, ArithmeticError) as error:  # one must not lose the others
        row["note"] = str(error)
        return row, None
    total = time.monotonic() - begun
    row |= _row(result, total)
    notes = sorted({type(w.message).__name__ for w in said})
    if result.raw.n_draws < FEWEST:
        notes.insert(0, f"the fit left time for {result.raw.n_draws} draws a chain")
    row["note"] = "; ".join(notes)
    return row, result


COLUMNS = [
    "fit_s",
    "total_s",
    "chains",
    "ess",
    "ess_per_s",
    "ess_per_step",
    "ess_per_evaluation",
    "between",
    "error",
    "z",
    "rhat",
    "note",
]


def _row(result: Result, total: float) -> dict[str, Any]:
    seconds, raw = result.report.seconds, result.raw
    seen = features(result.space, raw.code).numpy()
    means = seen.mean((0, 1))
    ess, rhat = float("inf"), 1.0
    for f in np.flatnonzero((means > COUNTED) & (means < 1 - COUNTED)):
        if raw.shares is None:
            _, each = mean_error(seen[..., f])
        else:  # thinned draws: count what lies between them
            size = result.report.steps * raw.n_chains
            _, each = spread_error(raw.shares[:, f].numpy(), means[f] * (1 - means[f]), size)
        ess = min(ess, each)
        rhat = max(rhat, split_rhat(seen[..., f]))
    # each chain's start counts as one draw, whether the chain ever leaves it or not
    ess = max(0.0, ess - raw.n_chains) if np.isfinite(ess) else float("nan")
    if raw.n_draws < FEWEST:
        ess = rhat = float("nan")
    moved, tried = 0.0, 0.0
    for rates in result.report.acceptance.values():
        if rates["between"] == rates["between"]:
            moved += rates["between"] * rates["proposals"]
            tried += rates["proposals"]
    row = {
        "fit_s": total - seconds.get("warmup", 0.0) - seconds.get("sample", 0.0),
        "total_s": total,
        "chains": raw.n_chains,
        "ess": ess,
        "ess_per_s": ess / total,
        "ess_per_step": ess / (result.report.steps * raw.n_chains),
        "ess_per_evaluation": ess / max(result.report.evaluations, 1),
        "between": moved / tried if tried else float("nan"),
        "rhat": rhat,
    }
    if result.truth is not None:
        row |= _errors(result)
    return row


def _errors(result: Result) -> dict[str, float]:
    truth = result.truth
    assert truth is not None
    p = result.model_probabilities()
    known = [label for label in p.index if label in truth.probabilities]
    gap = np.array([p.loc[label, "visits"] - truth.probabilities[label] for label in known])
    error = np.array([p.loc[label, "visits_se"] for label in known])
    return {"error": float(np.abs(gap).max()), "z": float(np.abs(gap / error).max())}
