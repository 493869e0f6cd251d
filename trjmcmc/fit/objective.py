"""Training objectives: reverse and forward Kullback-Leibler divergence over many models."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import ConfigurationError
from ..grouping import group_logsumexp, group_means, same_rows
from ..space import Subsets, distinct
from ..target import Target
from ..transport import Transport
from .model_weights import MeanField, ModelWeights

ModelDraws = Callable[[int, torch.Generator], Tensor]

LARGEST_HOLD_OUT = 4096
COVERING_ORDER = 1.5
ENOUGH_DRAWS = 1000.0  # effective draws from which a model has its full share of a batch
OUT_OF_REACH = 1e6  # nats that a held-out draw counts for where the map has no density
CAP = 6.0  # nats above its model's mean at which a log ratio pi / q is cut in training
OUTSIDE = 5.0  # nats by which a draw outside the support counts as worse than the others


class Losses(NamedTuple):
    """Losses of a batch of draws.

    Attributes:
        value: What to minimise the mean of, finite everywhere, shape (n,), nats.
        finite: Whether the draw had a finite log density and gradient, shape (n,), bool; only
            these make up the reported objective.
    """

    value: Tensor
    finite: Tensor


class Objective(ABC):
    """A loss whose minimum is reached when the map carries each posterior to the reference.

    Attributes:
        shown: What minus the loss is called in the progress bar.
        learns: Whether it learns something itself, beside the map.
    """

    shown = "objective"
    learns = False

    @abstractmethod
    def losses(
        self, transport: Transport, progress: float, n: int, generator: torch.Generator
    ) -> Losses:
        """Loss of about ``n`` fresh draws, one value a draw.

        Arguments:
            transport: The map being trained.
            progress: Share of the planned steps that are done, in (0, 1].
            n: Draws asked for.
            generator: Source of randomness.
        """

    def temper(self, progress: float) -> float:
        """Exponent of the likelihood at this point of the training."""
        return 1.0

    def validate(self, transport: Transport) -> float | None:
        """Mean loss of draws that training never sees, nats; None if there are none."""
        return None


class ReverseKL(Objective):
    """Minus the evidence lower bound, averaged over models; no posterior draws needed.

    Arguments:
        target: The target; models are trained on their surrogates where they have one.
        anneal: Share of the steps over which the likelihood's exponent grows from 0 to 1.
        models: Function of (n, generator) that draws codes (n, L). By default all models in
            turn where they can be listed, else draws from the model prior.
        weights: A distribution over models that is learnt beside the map, instead of
            ``models``; the objective is then minus the bound of the evidence of all models.

    Raises:
        ConfigurationError: ``anneal`` outside [0, 1); both ``models`` and ``weights``.

    Source:
        Yin & Jiao, eqs. 12 and 18, Algorithm 2; annealing: Rezende & Mohamed (2015), eq. 20;
        weights: Davies et al., "Variational transdimensional inference", eq. 9
    """

    shown = "elbo"

    def __init__(
        self,
        target: Target,
        *,
        anneal: float = 0.3,
        models: ModelDraws | None = None,
        weights: ModelWeights | None = None,
    ) -> None:
        if not 0 <= anneal < 1:
            raise ConfigurationError(f"anneal: expected a share in [0, 1), got {anneal}")
        if models is not None and weights is not None:
            raise ConfigurationError("models, weights: give one of them")
        self.target, self.anneal, self.weights = target, anneal, weights
        self.learns = weights is not None
        self.models = models or _all_models(target)
        self._place: Tensor | None = None  # of the map's parameters at the last batch

    def temper(self, progress: float) -> float:
        return min(1.0, progress / self.anneal) if self.anneal else 1.0

    def losses(
        self, transport: Transport, progress: float, n: int, generator: torch.Generator
    ) -> Losses:
        if self.weights is not None:
            return self._with_weights(self.weights, transport, self.temper(progress), n, generator)
        code = self.models(n, generator)
        z = transport.sample_reference(len(code), generator, self.target.dtype)
        return reverse_kl(self.target, transport, code, z, temper=self.temper(progress))

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
        z = transport.sample_reference(n, generator, self.target.dtype)
        found = reverse_kl(self.target, transport, code, z, temper=temper)
        value = torch.where(found.finite, found.value.detach(), math.inf)
        with torch.no_grad():
            log_q = weights.log_prob(code).to(value)
        if bits is not None:
            assert isinstance(weights, MeanField)
            weights.descend(bits, present_loss(self.target, transport, bits, z, temper=temper))
        else:
            weights.learn(code, value)
        weights.moved(self._step(transport))
        return Losses(found.value + log_q, found.finite)

    def _step(self, transport: Transport) -> float:
        """Root mean square change of the map's parameters since the last call."""
        tensors = [p.detach().flatten() for p in transport.parameters() if p.requires_grad]
        if not tensors:
            return 0.0
        now, before = torch.cat(tensors), self._place
        self._place = now.clone()
        return 0.0 if before is None else float((now - before).square().mean().sqrt())


class ForwardKL(Objective):
    r"""Divergence of the map's density from given posterior draws: it covers what they show.

    Order 1 is the Kullback-Leibler divergence, minus the mean log density of the draws. A
    higher order is Renyi's,

    .. math:: \frac{1}{a} \log \mathrm{E}_\pi (\pi / q)^a, \quad a = \mathrm{order} - 1,

    which weighs draws up where the map's density falls short of the posterior's: measured
    with 1.5 on factor analysis, importance ESS 72 -> 79 and 10 -> 15 per cent. (Order 2
    minimises the variance of importance weights.) It needs the draws' log joint densities.

    Models have equal shares of a batch, those with few effective draws less.

    Arguments:
        code: Models of the draws, shape (N, L).
        theta: Padded coordinates of the draws, shape (N, D).
        log_weight: Log weights of the draws within their model, shape (N,); equal if omitted.
        log_joint: Log joint densities of the draws, shape (N,), nats; for orders above 1.
        order: Order of the divergence, 1 or higher; 1.5 with ``log_joint`` and 1 without, if
            omitted.
        hold_out: Share of the draws kept for validation.
        generator: Chooses the held-out draws.

    Raises:
        ConfigurationError: Fewer than two draws, a share outside [0, 1), an order below 1.

    Source:
        Davies et al. (2023), https://arxiv.org/abs/2210.12572; mass-covering orders: Midgley et
        al. (2023), https://arxiv.org/abs/2208.01893
    """

    shown = "log density"

    def __init__(
        self,
        code: Tensor,
        theta: Tensor,
        *,
        log_weight: Tensor | None = None,
        log_joint: Tensor | None = None,
        order: float | None = None,
        hold_out: float = 0.1,
        generator: torch.Generator,
    ) -> None:
        if len(code) < 2 or not 0 <= hold_out < 1:
            raise ConfigurationError(
                f"ForwardKL: expected 2 draws or more and 0 <= hold_out < 1, got {len(code)} and "
                f"{hold_out}"
            )
        order = order or (1.0 if log_joint is None else COVERING_ORDER)
        if order < 1 or (order > 1 and log_joint is None):
            raise ConfigurationError(
                f"order: expected 1, or more with log_joint, got {order} "
                f"{'without' if log_joint is None else 'with'} log_joint"
            )
        self.order = order
        models, self.model, _ = distinct(code)
        log_w = torch.zeros(len(code), device=code.device) if log_weight is None else log_weight
        log_w = log_w.double()
        log_w = log_w - group_logsumexp(log_w, self.model, len(models))[self.model]
        ess = (-group_logsumexp(2 * log_w, self.model, len(models))).exp()
        share = ess.clamp(max=ENOUGH_DRAWS)
        weight = (log_w.exp() * (share / share.sum())[self.model]).nan_to_num(0.0)
        group = same_rows(theta)  # copies of a draw must not lie on both sides
        kept = torch.rand(
            int(group.max()) + 1, generator=generator, dtype=torch.float64, device=code.device
        )
        held = (kept < hold_out)[group]
        if bool(held.all()):
            held = torch.zeros_like(held)
        kept_back, train = held.nonzero()[:, 0], (~held).nonzero()[:, 0]
        self._train, self._edges = train, weight[train].cumsum(0)
        self._held = kept_back
        if len(kept_back):  # as many as are worth looking at, drawn by weight
            n = min(len(kept_back), LARGEST_HOLD_OUT)
            pick = torch.multinomial(weight[kept_back].clamp(min=0), n, True, generator=generator)
            self._held = kept_back[pick]
        self.code, self.theta, self.log_joint = code, theta, log_joint

    def losses(
        self, transport: Transport, progress: float, n: int, generator: torch.Generator
    ) -> Losses:
        u = torch.rand(n, generator=generator, dtype=torch.float64, device=self._edges.device)
        rows = self.draw_rows(u)
        value = forward_kl(transport, self.code[rows], self.theta[rows])
        finite = value.isfinite()
        value = torch.where(finite, value, value.detach().nan_to_num(0.0, 0.0).mean())
        if self.order == 1:
            return Losses(value, finite)
        log_ratio, log_mean = self._tilted(value.detach(), rows)
        return Losses(value * (log_ratio - log_mean).exp().to(value.dtype), finite)

    def draw_rows(self, u: Tensor) -> Tensor:
        """Training draws by weight, from uniform numbers, (n,) -> indices (n,)."""
        place = torch.searchsorted(self._edges, u * self._edges[-1])
        return self._train[place.clamp(max=len(self._train) - 1)]

    def _tilted(self, value: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Powers of pi / q (log, capped) and the logs of their means by model, row by row."""
        assert self.log_joint is not None
        model, a = self.model[rows], self.order - 1
        log_ratio = self.log_joint[rows].double() + value
        log_ratio = a * torch.minimum(log_ratio, group_means(log_ratio, model) + CAP)
        groups = int(self.model.max()) + 1
        count = torch.bincount(model, minlength=groups).clamp(min=1)
        total = group_logsumexp(log_ratio, model, groups)
        return log_ratio, (total - count.log())[model]

    def validate(self, transport: Transport) -> float | None:
        if not len(self._held):
            return None
        with torch.no_grad():
            value = forward_kl(transport, self.code[self._held], self.theta[self._held]).double()
        value = value.nan_to_num(OUT_OF_REACH, OUT_OF_REACH).clamp(max=OUT_OF_REACH)
        if self.order == 1:
            return float(value.mean())
        assert self.log_joint is not None
        _, log_mean = self._tilted(value, self._held)
        return float((log_mean / (self.order - 1) - self.log_joint[self._held]).mean())


def reverse_kl(
    target: Target, transport: Transport, code: Tensor, z: Tensor, *, temper: float = 1.0
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

    Source:
        Rezende & Mohamed (2015), https://arxiv.org/abs/1505.05770
    """
    theta, log_q = transport.push(z, code)
    value, gradient = target.log_joint_and_grad(code, theta, temper=temper, surrogate=True)
    finite = gradient.isfinite().all(-1) & value.isfinite()
    gradient = torch.where(finite[:, None], gradient, 0.0)
    log_joint = torch.where(finite, value, 0.0) + ((theta - theta.detach()) * gradient).sum(-1)
    loss = torch.where(finite, log_q - log_joint, 0.0)
    usual = loss.detach()[finite].mean()
    if transport.auxiliary:
        _, which, _ = distinct(code)
        worse = torch.where(finite, loss.detach() - group_means(loss.detach(), which, finite), 0.0)
        choice = transport.log_choice(z, code)
        loss = loss + worse * (choice - choice.detach())
    lost = ~finite & theta.detach().isfinite().all(-1)
    if bool(lost.any()):
        score = transport.log_prob(theta[lost].detach(), code[lost])
        worse = log_q[lost].detach() - value[lost] - usual
        worse = worse.nan_to_num(OUTSIDE, OUTSIDE, -OUTSIDE).clamp(-OUTSIDE, OUTSIDE)
        loss = loss.index_put((lost,), worse * (score - score.detach()))
    return Losses(loss, finite)


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
    assert isinstance(space, Subsets)
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


def forward_kl(transport: Transport, code: Tensor, theta: Tensor) -> Tensor:
    """Minus the log density of given posterior draws under the map, shape (C,), nats."""
    return -transport.log_prob(theta, code)


def _all_models(target: Target) -> ModelDraws:
    space = target.space
    if not space.enumerable:
        return space.sample_prior
    codes = space.enumerate()

    def draw(n: int, generator: torch.Generator) -> Tensor:
        if n >= len(codes):
            return codes[torch.arange(n, device=codes.device) % len(codes)]
        chosen = torch.randint(len(codes), (n,), generator=generator, device=codes.device)
        return codes[chosen]

    return draw
