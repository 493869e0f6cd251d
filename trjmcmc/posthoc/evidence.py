"""The evidence behind anybody's posterior draws."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions import Distribution

from ..draws import Draws, Pool
from ..errors import ConfigurationError, DisagreementWarning, TargetError, warn_user
from ..estimate.agreement import Clash, clashes
from ..estimate.estimate import Estimate
from ..estimate.importance import enough_weights, log_mean_weight, log_weights, pareto_k
from ..estimate.routes import through_the_map
from ..fit.objective import ForwardKL
from ..fit.standardise import calibrate, moments
from ..fit.train import train
from ..promises import PARETO_K_FINITE_VARIANCE
from ..target.blackbox import BlackBox
from ..target.model import Model
from ..target.target import Target
from ..transport.base import Transport
from ..transport.mixture import mixture_flow
from ..transport.normals import gaussian_mixture
from .inputs import (
    ARRAY,
    Supports,
    as_dict,
    check_density,
    check_draws,
    constraints_of,
    rows_of,
    to_numpy,
)

NAME = "posterior"  # label of the one model

NORMALS = (1, 4)  # components of the normal mixtures that are tried before a flow

HELD_SHARE = 0.1  # of the draws to train on, which choose between maps

FLOW_STEPS = 1500  # training steps of the flow

JUDGING_DRAWS = 2048  # of a normal mixture, by whose weights it is judged

GOOD_SHARE = 0.8  # effective share of the weights from which a light tail needs no flow

PERFECT_SHARE = 0.98  # effective share of the weights from which their tail can't matter

FLOW_DRAWS = 20  # draws to train on by dimension, under which a flow is not tried


@dataclass(frozen=True)
class Evidence:
    """What :func:`evidence_of_draws` found.

    Attributes:
        log_evidence: Log evidence by the bridge, nats, or by the symmetrised bridge where the
            plain one is flagged.
        routes: By ``bridge``, ``warp``, ``smoothed`` and ``importance``, each route's estimate.
        clashes: Pairs of routes that contradict each other.
        pareto_k: Shape of the tail of the map's importance weights.
        evaluations: How often the density was evaluated.
    """

    log_evidence: Estimate
    routes: dict[str, Estimate]
    clashes: list[Clash]
    pareto_k: float
    evaluations: int

    @property
    def verdict(self) -> str:
        """``agree``; ``disagree`` and the routes; or ``in doubt``, with what raises it."""
        if self.clashes:
            return "disagree: " + ", ".join(" and ".join(c.routes) for c in self.clashes)
        if self.log_evidence.warning:
            return f"in doubt: {self.log_evidence.warning}"
        return "agree"

    def __str__(self) -> str:
        return f"log evidence {self.log_evidence} nats ({self.verdict})"


class _Given(Distribution):
    """A flat density on a support, whose draws are given ones."""

    def __init__(self, support: Any, values: Tensor) -> None:
        self._support, self.values = support, values
        super().__init__(torch.Size(), values.shape[1:], validate_args=False)

    @property
    def support(self) -> Any:
        return self._support

    def expand(self, batch_shape: Any, _instance: Any = None) -> _Given:
        return self

    def sample(self, sample_shape: Any = torch.Size()) -> Tensor:  # noqa: B008
        n = int(math.prod(sample_shape))
        pick = torch.randint(len(self.values), (n,))
        return self.values[pick].reshape(*sample_shape, *self.event_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        return value.new_zeros(value.shape[: value.dim() - len(self.event_shape)])


def evidence_of_draws(
    draws: Any,
    log_joint: Callable[..., Any],
    *,
    supports: Supports | Any = None,
    log_density: Any = None,
    vectorized: bool = True,
    steps: int = FLOW_STEPS,
    seed: int = 0,
    progress: bool = False,
) -> Evidence:
    """Log evidence from posterior draws of any sampler.

    A map is fitted to the first half of every chain; the evidence comes from a bridge between
    the other half and draws of the map. Regions where the density is zero do not bias it.

    Arguments:
        draws: An emcee sampler; an ArviZ ``InferenceData`` or ``DataTree`` with a ``posterior``;
            a dict of arrays by parameter, each (chain, draw, *shape); or one array, (draw,),
            (draw, d) or (chain, draw, d). In the sampler's units, warm-up left out.
        log_joint: Log of prior times likelihood at parameters in those units (no Jacobian),
            nats; -inf where impossible. Gets NumPy arrays as the draws come, a dict or one
            array, of n points, and returns (n,).
        supports: Where parameters are bounded: by name (for an array: one for all, or a list by
            column) ``"positive"``, ``"unit_interval"``, ``"simplex"``, a pair of numbers, or a
            constraint of torch. The rest are real. It makes the map's work easier; a density
            that is -inf beyond a bound needs none.
        log_density: What the sampler stored as ``log_joint`` of the draws, (chain, draw), to
            check the function against.
        vectorized: Whether ``log_joint`` takes batches.
        steps: Training steps of the map.
        seed: Any integer.
        progress: Show a progress bar.

    Returns:
        The estimate with an error that counts the autocorrelation of the chains, every route's
        own, and a verdict. Draws that miss a mode can't show it: the error then is too small.

    Raises:
        ConfigurationError: Fewer draws than the fit needs, draws that are not finite or outside
            their support, stored values that are not those of the function.
        BlackBoxError: ``log_joint`` failed, or returned NaN.

    Source:
        Meng & Wong (1996); with flows: Jia & Seljak (2020), https://arxiv.org/abs/1912.06073

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x = 2.0 + rng.standard_normal((8, 500, 3))
        >>> found = evidence_of_draws(x, lambda x: -0.5 * ((x - 2.0) ** 2).sum(-1))
        >>> bool(abs(found.log_evidence.value - 1.5 * np.log(2 * np.pi)) < 0.05)
        True
        >>> found.verdict
        'agree'
    """
    named, stored, plain = as_dict(draws, log_density)
    chains, n = check_draws(named)
    generator = torch.Generator().manual_seed(seed)
    target, theta = _density(
        named, constraints_of(named, supports, plain), log_joint, vectorized, plain
    )
    code = torch.zeros(len(theta), 1, dtype=torch.long)
    half = n // 2
    late = rows_of(chains, n, slice(half, n))
    with torch.no_grad():
        height = target.log_joint(code[late], theta[late])
    if not bool(height.isfinite().all()):
        raise ConfigurationError(
            f"log_joint: it is {height[~height.isfinite()][0]} at "
            f"{int((~height.isfinite()).sum())} of the draws; is it the density that they were "
            "drawn from, in the same units?"
        )
    if stored is not None:
        if stored.shape != (chains, n):
            raise ConfigurationError(
                f"log_density: expected shape ({chains}, {n}), (chain, draw), got {stored.shape}"
            )
        check_density(target, code[late], theta[late], height, stored.reshape(-1)[late])
    early = rows_of(chains, n, slice(0, half))
    pool = Pool(code[early], theta[early], torch.zeros(len(early), dtype=torch.float64))
    transport = _best_map(target, pool, steps, generator, progress)
    log_w = enough_weights(target, transport, code[0], generator)
    record = Draws(
        code[late].reshape(chains, -1, 1),
        theta[late].reshape(chains, n - half, -1),
        height.reshape(chains, -1),
    )
    routes = through_the_map(
        target, transport, record, {NAME: log_w}, generator, evaluations=math.inf
    )
    found = {route: by_model[NAME] for route, by_model in routes.items()}
    best = min((found["bridge"], found["warp"]), key=lambda e: bool(e.warning))
    found_clashes, _ = clashes([NAME], {r: [e] for r, e in found.items() if r != "smoothed"}, {})
    result = Evidence(best, found, found_clashes, pareto_k(log_w), target.evaluations)
    if found_clashes:
        warn_user(
            f"evidence: routes {result.verdict}. The draws may not be those of log_joint, or not "
            "have converged.",
            DisagreementWarning,
        )
    return result


def _density(
    named: dict[str, NDArray[np.float64]],
    bounds: dict[str, Any],
    log_joint: Callable[..., Any],
    vectorized: bool,
    plain: bool,
) -> tuple[Target, Tensor]:
    """The user's density as a target of one model, and the draws in its coordinates, (n, D).

    Arguments:
        named: Draws by parameter, (chain, draw, *shape).
        bounds: Constraint of each parameter.
        log_joint: The user's function.
        vectorized: Whether it takes batches.
        plain: Whether it takes one array in place of a dict.

    Raises:
        ConfigurationError: Draws are outside their support, or never change.
    """
    flat = {k: torch.as_tensor(v.reshape(-1, *v.shape[2:]).copy()) for k, v in named.items()}
    for name, value in flat.items():
        if not bool(bounds[name].check(value).all()):
            raise ConfigurationError(
                f"draws: some of {name!r} lie outside the support that was given for it"
            )
    for name, array in named.items():
        if (np.ptp(array, axis=(0, 1)) == 0).any():
            raise ConfigurationError(f"draws: {name!r} never changes in some of its entries")
    function = (lambda p: log_joint(p[ARRAY])) if plain else log_joint
    box = BlackBox(lambda p: to_numpy(function(p)), vectorized=vectorized)
    priors = {k: _Given(bounds[k], v) for k, v in flat.items()}
    target = Target([Model(NAME, priors, box)], dtype=torch.float64)
    return target, target.unconstrain(NAME, flat)


def _best_map(
    target: Target, pool: Pool, steps: int, generator: torch.Generator, progress: bool
) -> Transport:
    """A mixture of normals if that is good, else the map under which draws kept back are likeliest.

    Arguments:
        target: The density.
        pool: Draws to train on and to choose by.
        steps: Training steps of a flow; 0 tries none.
        generator: Source of randomness.
        progress: Show a progress bar.

    Raises:
        TargetError: No map could be fitted.
    """
    space = target.space
    order = torch.randperm(len(pool.code), generator=generator)
    n = max(1, int(HELD_SHARE * len(order)))
    held, kept = order[:n], order[n:]
    mine = Pool(pool.code[kept], pool.theta[kept], pool.log_joint[kept])
    maps: list[Transport] = []
    for components in NORMALS:
        maps.append(gaussian_mixture(space, mine, generator, components=components))
        log_w = log_weights(target, maps[-1], pool.code[0], JUDGING_DRAWS, generator)
        share = log_mean_weight(log_w).ess / JUDGING_DRAWS
        light = pareto_k(log_w) < PARETO_K_FINITE_VARIANCE
        if share > PERFECT_SHARE or (share > GOOD_SHARE and light):
            return maps[-1]
    if len(kept) >= FLOW_DRAWS * target.dim and steps:
        flow = mixture_flow(space, seed=int(torch.randint(2**31, (), generator=generator)))
        flow = flow.to(dtype=target.dtype)
        one = mine.code[:1]
        calibrate(flow, one, *moments(mine, one, space.active(one), smallest=1e-9))
        objective = ForwardKL(mine.code, mine.theta, generator=generator)
        train(flow, objective, steps=steps, generator=generator, progress=progress)
        maps.append(flow)
    with torch.no_grad():
        score = [float(m.log_prob(pool.theta[held], pool.code[held]).mean()) for m in maps]
    best = max(range(len(maps)), key=lambda i: score[i] if math.isfinite(score[i]) else -math.inf)
    if not math.isfinite(score[best]):
        raise TargetError("evidence: no map could be fitted to the draws")
    return maps[best]
