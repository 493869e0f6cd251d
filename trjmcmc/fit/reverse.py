"""The reverse Kullback-Leibler divergence, estimated by a map's own draws."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ..errors import ConfigurationError
from ..grouping import group_means
from ..space.codes import distinct
from ..target.target import Target
from ..transport.autoregressive import CosmicAutoregressive
from ..transport.base import Choosing, Transport
from ..weights.base import ModelWeights
from ..weights.mean_field import MeanField
from .objective import Losses, Objective

ModelDraws = Callable[[int, torch.Generator], Tensor]

GRADIENTS = ("total", "path")

MOST_AHEAD = 8  # coordinates up to which a way back of a pass a coordinate is cheap

OUTSIDE = 5.0  # excess loss of a draw outside the support, over the mean of the others, nats


def goes_back_cheaply(transport: Transport) -> bool:
    """Whether densities of points cost about what draws cost, so that path gradients are cheap."""
    for m in transport.modules():
        if isinstance(m, CosmicAutoregressive) and m.numeric:
            return False
        if getattr(m, "sequential", False):
            return transport.space.n_slots <= MOST_AHEAD
    return True


class ReverseKL(Objective):
    """Minus the evidence lower bound, averaged over models; no posterior draws needed.

    Arguments:
        target: The target; models are trained on their surrogates where they have one.
        anneal: Share of the steps over which the likelihood's exponent grows from 0 to 1.
        models: Function of (n, generator) that draws codes (n, L). By default all models in
            turn where they can be listed, else draws from the model prior.
        weights: A distribution over models that is learned beside the map, instead of
            ``models``; the objective is then minus the bound of the evidence of all models.
        gradient: ``"total"``, or ``"path"``: by way of the draws alone, without the mean-zero
            term of log q's own parameters. It has no noise where the map fits, and takes one
            more passage back through the map.

    Raises:
        ConfigurationError: ``anneal`` outside [0, 1); both ``models`` and ``weights``; an unknown
            gradient.

    Source:
        Yin & Jiao, https://arxiv.org/abs/2512.12742, eqs. 13, 14 and 20, Algorithms 1 and 2;
        annealing: Rezende & Mohamed (2015), eq. 20; weights: Davies et al., "Variational
        transdimensional inference", https://arxiv.org/abs/2506.04749, eq. 9; path gradients:
        Roeder et al. (2017), https://arxiv.org/abs/1703.09194
    """

    shown = "elbo"

    def __init__(
        self,
        target: Target,
        *,
        anneal: float = 0.3,
        models: ModelDraws | None = None,
        weights: ModelWeights | None = None,
        gradient: str = "total",
    ) -> None:
        if gradient not in GRADIENTS:
            raise ConfigurationError(f"gradient: expected one of {GRADIENTS}, got {gradient!r}")
        self.by_path = gradient == "path"
        if not 0 <= anneal < 1:
            raise ConfigurationError(f"anneal: expected a share in [0, 1), got {anneal}")
        if models is not None and weights is not None:
            raise ConfigurationError("models, weights: give one of them")
        self.target, self.anneal, self.weights = target, anneal, weights
        self.learns = weights is not None
        self.models = models or _all_models(target)

    def temper(self, progress: float) -> float:
        return min(1.0, progress / self.anneal) if self.anneal else 1.0

    def losses(
        self, transport: Transport, progress: float, n: int, generator: torch.Generator
    ) -> Losses:
        if self.weights is not None:
            self.weights.reached(progress)
            return self._with_weights(self.weights, transport, self.temper(progress), n, generator)
        code = self.models(n, generator)
        z = transport.reference.sample((len(code), self.target.dim), generator, self.target.dtype)
        return self._of_draws(transport, code, z, self.temper(progress))

    def _of_draws(self, transport: Transport, code: Tensor, z: Tensor, temper: float) -> Losses:
        return reverse_kl(self.target, transport, code, z, temper=temper, by_path=self.by_path)

    def _with_weights(
        self,
        weights: ModelWeights,
        transport: Transport,
        temper: float,
        n: int,
        generator: torch.Generator,
    ) -> Losses:
        """Models from q(m), which learns from their losses; log q(m) counts in the objective."""
        bits = None
        if isinstance(weights, MeanField) and weights.straight_through:
            bits = weights.relaxed(n, generator)
        code = weights.explore(n, generator) if bits is None else bits.detach().long()
        z = transport.reference.sample((n, self.target.dim), generator, self.target.dtype)
        found = self._of_draws(transport, code, z, temper)
        value = torch.where(found.finite, found.value.detach(), math.inf)
        with torch.no_grad():
            log_q = weights.log_prob(code).to(value)
        if bits is not None:
            assert isinstance(weights, MeanField)
            weights.descend(bits, present_loss(self.target, transport, bits, z, temper=temper))
        else:
            weights.learn(code, value)
        weights.reached(0.0)  # whoever goes on learning does so at full pace
        return Losses(found.value + log_q, found.finite)


def reverse_kl(
    target: Target,
    transport: Transport,
    code: Tensor,
    z: Tensor,
    *,
    temper: float = 1.0,
    by_path: bool = False,
) -> Losses:
    r"""Minus the tempered log importance weight of draws pushed through the map.

    .. math:: \log q(\theta | m) - \log\pi_\beta(\theta, m)

    Its mean over z is, up to a constant of the model, the Kullback-Leibler divergence of the
    map's density from the posterior. The gradient of the target is taken apart from the
    map's, so that a point with a broken one spoils only itself. Dropping such points would
    reward a map for moving there; their gradient comes from the score function instead, with
    how much worse they are than the others (a constant, outside the support) as the weight.
    So does that of the choice between the components of a mixture, which has no path.

    Arguments:
        code: Models, shape (C, L).
        z: Reference draws, shape (C, D + auxiliary).
        temper: Exponent of the likelihood.
        by_path: Take the gradient of log q by way of theta alone.

    Source:
        Rezende & Mohamed (2015), https://arxiv.org/abs/1505.05770; path gradients: Roeder et al.
        (2017), https://arxiv.org/abs/1703.09194
    """
    theta, log_q = transport.push(z, code)
    if by_path:
        log_q = _along_path(transport, theta, code, log_q)
    value, gradient = target.log_joint_and_grad(code, theta, temper=temper, surrogate=True)
    placed = theta.detach().isfinite().all(-1) & log_q.detach().isfinite()
    finite = placed & gradient.isfinite().all(-1) & value.isfinite()
    gradient = torch.where(finite[:, None], gradient, 0.0)
    log_joint = torch.where(finite, value, 0.0) + ((theta - theta.detach()) * gradient).sum(-1)
    loss = torch.where(finite, log_q - log_joint, 0.0)
    if isinstance(transport, Choosing):
        _, which, _ = distinct(code)
        worse = torch.where(finite, loss.detach() - group_means(loss.detach(), which, finite), 0.0)
        choice = transport.log_choice(z, code)
        loss = loss + worse * (choice - choice.detach())
    lost = ~finite & placed
    if bool(lost.any()):
        usual = (log_q - log_joint).detach()[finite].mean()
        score = transport.log_prob(theta[lost].detach(), code[lost])
        worse = log_q[lost].detach() - value[lost] - usual
        worse = worse.nan_to_num(OUTSIDE, OUTSIDE, -OUTSIDE).clamp(-OUTSIDE, OUTSIDE)
        loss = loss.index_put((lost,), worse * (score - score.detach()))
    return Losses(loss, finite)


def _along_path(transport: Transport, theta: Tensor, code: Tensor, log_q: Tensor) -> Tensor:
    """log q of draws, with the gradient of a map that stands still, shape (C,), nats."""
    fixed = theta.detach().requires_grad_()
    (slope,) = torch.autograd.grad(transport.log_prob(fixed, code).sum(), fixed)
    slope = torch.where(slope.isfinite(), slope, 0.0)
    return log_q.detach() + ((theta - theta.detach()) * slope).sum(-1)


def present_loss(
    target: Target, transport: Transport, bits: Tensor, z: Tensor, *, temper: float = 1.0
) -> Tensor:
    r"""A loss that is differentiable in the presence of each unit, shape (C,), nats.

    A parameter of an item is its value times its presence, and the log prior and log density of
    an item count in proportion to it. Absent items have the values that the map gives them in
    the model of all items, and the density of a normal with the moments of those; this is
    exact for maps whose items are independent normals, a guess elsewhere.

    Arguments:
        bits: 0 or 1 for each unit with gradients, shape (C, L).
        z: Reference draws, shape (C, D + auxiliary).
        temper: Exponent of the likelihood.

    Source:
        Premchandar, "Normalizing flows aided variational inference", eq. 4.3
    """
    code, space = bits.detach().long(), target.space
    with torch.no_grad():
        theta, log_q = transport.push(z, code)
        everything, _ = transport.push(z, torch.ones_like(code))
    active = space.active(code)
    theta = torch.where(active, theta, everything)
    loc, scale = everything.mean(0), everything.std(0).clamp(min=1e-12)
    by_slot = -0.5 * ((theta - loc) / scale).square() - scale.log() - 0.5 * math.log(2 * math.pi)
    items = space.presence(bits)
    always = torch.ones_like(items[:, :1])
    present = torch.cat([items, always], 1)[:, space.slot_item]
    log_q = log_q + (by_slot * (present - active.to(present))).sum(-1)
    log_prior, log_likelihood = target.with_presence(bits, items, theta)
    return log_q - log_prior - temper * log_likelihood


def _all_models(target: Target) -> ModelDraws:
    space = target.space
    return _InTurn(space.enumerate()) if space.enumerable else space.sample_prior


class _InTurn:
    """All models in turn, or some of them where there are more than draws."""

    def __init__(self, codes: Tensor) -> None:
        self.codes = codes

    def __call__(self, n: int, generator: torch.Generator) -> Tensor:
        codes = self.codes
        if n >= len(codes):
            return codes[torch.arange(n, device=codes.device) % len(codes)]
        chosen = torch.randint(len(codes), (n,), generator=generator, device=codes.device)
        return codes[chosen]
