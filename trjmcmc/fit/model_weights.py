"""Distributions over models that are learnt beside a map: q(m) of variational inference."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from zuko.nn import MaskedMLP

from ..errors import ConfigurationError
from ..rng import seeded
from ..space import Space, Subsets, check_enumerable

OUTSIDE = 5.0  # nats by which a model whose density is not finite counts as worse than the worst
HALVINGS = 20  # of a step that changes the entropy too much


class ModelWeights(nn.Module, ABC):
    r"""A distribution q(m) over the models of a space, of any size.

    It is learnt from losses of models drawn from it: with the map's density q(theta | m),

    .. math:: \ell = \log q(\theta | m) - \log\pi(\theta, m), \qquad
              \min_q \mathrm{E}_q [\ell + \log q(m)]

    whose minimum, for exact maps, is the posterior p(m | data).

    Arguments:
        space: A bound model space.
    """

    low: Tensor

    def __init__(self, space: Space) -> None:
        super().__init__()
        space = copy.deepcopy(space)  # it moves between devices with the weights
        self.space = space
        low, levels = space.levels()
        self.register_buffer("low", low)
        self.levels: list[int] = levels.tolist()
        self._worst: float | None = None  # loss so far that was finite

    @abstractmethod
    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Codes drawn from q, shape (n, L)."""

    @abstractmethod
    def log_prob(self, code: Tensor) -> Tensor:
        """log q(m), shape (n, L) -> (n,), nats."""

    def explore(self, n: int, generator: torch.Generator) -> Tensor:
        """Codes to learn from next, shape (n, L): draws from q unless it has better ideas."""
        return self.sample(n, generator)

    @abstractmethod
    def learn(self, code: Tensor, loss: Tensor) -> None:
        """Take a step.

        Arguments:
            code: Models from :meth:`explore`, shape (n, L).
            loss: One draw of the loss for each, shape (n,), nats; what is not finite counts as
                worse than the worst.
        """

    def sound(self, loss: Tensor) -> Tensor:
        """Losses with those that are not finite a little above the worst so far."""
        finite = loss.isfinite()
        if bool(finite.any()):
            worst = float(loss[finite].max())
            self._worst = worst if self._worst is None else max(worst, self._worst)
        return torch.where(finite, loss, (self._worst or 0.0) + OUTSIDE)

    def moved(self, step: float) -> None:
        """Take note that the map's parameters moved by ``step``, root mean square."""


class Uniform(ModelWeights):
    """Every code with the same probability; nothing is learnt.

    Example:
        >>> from trjmcmc import problems
        >>> space = problems.variable_selection(3).space
        >>> Uniform(space).log_prob(torch.zeros(1, 3).long()).exp().tolist()
        [0.125]
    """

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        device = self.low.device
        columns = [torch.randint(k, (n,), generator=generator, device=device) for k in self.levels]
        index = torch.stack(columns, 1) if columns else self.low.new_zeros(n, 0)
        return index + self.low

    def log_prob(self, code: Tensor) -> Tensor:
        return torch.full((len(code),), -sum(map(math.log, self.levels)), device=code.device)

    def learn(self, code: Tensor, loss: Tensor) -> None:
        """Nothing."""


class ScoreGradient(ModelWeights):
    r"""A parametric q, learnt by score-function gradients.

    .. math:: \nabla = \mathrm{E}_q [(\ell + \log q(m) - \varsigma) \nabla \log q(m)]

    with the control variate \varsigma a running mean of *earlier* batches (of the other draws,
    at the first), so that the gradient is unbiased. Each Adam step is halved until it changes
    the entropy of q, estimated with importance weights, by no more than ``entropy_step``.

    Arguments:
        space: A bound model space.
        learning_rate: Of Adam.
        decay: Of the running mean.
        entropy_step: Nats.

    Source:
        Davies et al., "Variational transdimensional inference", eqs. 14, 15, 47-53
    """

    def __init__(
        self,
        space: Space,
        *,
        learning_rate: float,
        decay: float = 0.9,
        entropy_step: float = 0.1,
    ) -> None:
        super().__init__(space)
        if not learning_rate > 0 or not 0 <= decay < 1 or not entropy_step > 0:
            raise ConfigurationError(
                "expected learning_rate > 0, decay in [0, 1), entropy_step > 0, got "
                f"{learning_rate}, {decay}, {entropy_step}"
            )
        self.learning_rate, self.decay, self.entropy_step = learning_rate, decay, entropy_step
        self._moment, self._batches = 0.0, 0
        self._optimiser: torch.optim.Optimizer | None = None

    def learn(self, code: Tensor, loss: Tensor) -> None:
        parameters = [p for p in self.parameters() if p.requires_grad]
        if not parameters or not code.numel():
            return
        if self._optimiser is None:
            self._optimiser = torch.optim.Adam(parameters, lr=self.learning_rate)
        log_q, gradient = self.gradient(code, loss)
        for p, g in zip(parameters, gradient, strict=True):
            p.grad = g
        before = [p.detach().clone() for p in parameters]
        self._optimiser.step()
        self._limit(code, log_q, parameters, before)

    def gradient(self, code: Tensor, loss: Tensor) -> tuple[Tensor, list[Tensor]]:
        """log q of a batch and the gradient from it; takes note of the batch's mean."""
        parameters = [p for p in self.parameters() if p.requires_grad]
        with torch.enable_grad():
            log_q = self.log_prob(code)
            gain = self.sound(loss).to(log_q) + log_q.detach()
            objective = ((gain - self._baseline(gain)) * log_q).mean()
            found = torch.autograd.grad(objective, parameters, allow_unused=True)
        self._batches += 1
        self._moment = self.decay * self._moment + (1 - self.decay) * float(gain.mean())
        pairs = zip(found, parameters, strict=True)
        return log_q.detach(), [torch.zeros_like(p) if g is None else g for g, p in pairs]

    def _baseline(self, gain: Tensor) -> Tensor | float:
        if self._batches:
            return self._moment / (1 - self.decay**self._batches)
        return (gain.sum() - gain) / max(1, len(gain) - 1)

    @torch.no_grad()
    def _limit(
        self, code: Tensor, old: Tensor, parameters: list[nn.Parameter], before: list[Tensor]
    ) -> None:
        """Shorten the step just made until the entropy changes by little enough."""
        steps = [p - b for p, b in zip(parameters, before, strict=True)]
        for i in range(HALVINGS):
            new = self.log_prob(code)
            change = ((new - old).exp() * new - old).mean()
            if bool(change.abs() <= self.entropy_step):
                return
            for p, b, step in zip(parameters, before, steps, strict=True):
                p.copy_(b + 0.5 ** (i + 1) * step)
        for p, b in zip(parameters, before, strict=True):
            p.copy_(b)


class Categorical(ScoreGradient):
    """One logit a model, for spaces that can be listed; uniform at the start.

    Arguments:
        space: A bound space of up to 65 536 models.
        options: As for :class:`ScoreGradient`.

    Raises:
        ShapeError: The space is too large.

    Example:
        >>> from trjmcmc import problems
        >>> q = Categorical(problems.variable_selection(3).space)
        >>> q.sample(5, torch.Generator().manual_seed(0)).shape
        torch.Size([5, 3])
    """

    def __init__(self, space: Space, *, learning_rate: float = 0.1, **options: Any) -> None:
        check_enumerable(space)
        super().__init__(space, learning_rate=learning_rate, **options)
        self.logits = nn.Parameter(torch.zeros(int(space.size or 1), device=self.low.device))

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        return draw_models(self.space, self.logits.detach(), n, generator)

    def log_prob(self, code: Tensor) -> Tensor:
        return self.logits.log_softmax(0)[self.space.index(code)]


class Made(ScoreGradient):
    r"""A masked autoregressive network over the integers of a code, whatever their ranges.

    .. math:: q(m) = \prod_i q(m_i \mid m_1, \dots, m_{i-1})

    Positions may have different numbers of levels (MADE+); uniform at the start. Its size does
    not depend on the number of models.

    Arguments:
        space: A bound space of any size.
        hidden: Widths of the hidden layers.
        seed: Of the initial weights.
        options: As for :class:`ScoreGradient`.

    Source:
        Germain et al. (2015), https://arxiv.org/abs/1502.03509; Davies et al., "Variational
        transdimensional inference", Appendix G.8

    Example:
        >>> from trjmcmc import problems
        >>> space = problems.variable_selection(3).space
        >>> q = Made(space, hidden=(8,))
        >>> q.log_prob(space.enumerate()).exp().sum().item()
        1.0
    """

    first: Tensor
    real: Tensor

    def __init__(
        self,
        space: Space,
        *,
        hidden: Sequence[int] = (64, 64),
        seed: int = 0,
        learning_rate: float = 1e-2,
        **options: Any,
    ) -> None:
        super().__init__(space, learning_rate=learning_rate, **options)
        if not hidden or not all(h > 0 for h in hidden):
            raise ConfigurationError(f"hidden: expected positive widths, got {tuple(hidden)}")
        device = self.low.device
        levels = torch.tensor(self.levels, dtype=torch.long, device=device)
        first = levels.cumsum(0) - levels
        self.register_buffer("first", first)  # output of a position's lowest level
        widest = max(self.levels, default=1)
        self.register_buffer("real", torch.arange(widest, device=device) < levels[:, None])
        place = torch.arange(len(levels), device=device).repeat_interleave(levels)
        self.net: nn.Module | None = None
        self.bias = nn.Parameter(torch.zeros(len(place), device=device))
        if len(levels) > 1:  # one position has none before it
            with seeded(seed):
                net = MaskedMLP((place[:, None] > place).cpu(), hidden, activation=nn.SiLU)
            nn.init.zeros_(net[-1].weight)
            nn.init.zeros_(net[-1].bias)
            self.net = net.to(device)

    def _log_levels(self, one_hot: Tensor) -> Tensor:
        """Log-probabilities of each position's levels given those before it, (n, L, K)."""
        logits = self.bias.expand(len(one_hot), -1)
        if self.net is not None:
            logits = logits + self.net(one_hot)
        places = self.first[:, None] + torch.arange(self.real.shape[1], device=self.first.device)
        logits = logits[:, places.clamp(max=max(0, len(self.bias) - 1))]
        return torch.where(self.real, logits, -math.inf).log_softmax(-1)

    def log_prob(self, code: Tensor) -> Tensor:
        index = code - self.low
        if not index.shape[1]:
            return self.bias.new_zeros(len(code))
        one_hot = self.bias.new_zeros(len(code), len(self.bias)).scatter(1, self.first + index, 1.0)
        return self._log_levels(one_hot).gather(-1, index[..., None])[..., 0].sum(-1)

    @torch.no_grad()
    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        index = self.low.new_zeros(n, len(self.levels))
        one_hot = self.bias.new_zeros(n, len(self.bias))
        for i in range(len(self.levels)):
            p = self._log_levels(one_hot)[:, i].exp()
            index[:, i : i + 1] = torch.multinomial(p, 1, generator=generator)
            one_hot.scatter_(1, self.first[i] + index[:, i : i + 1], 1.0)
        return index + self.low


class MeanField(ScoreGradient):
    r"""Independent units: q(m) = prod_i r_i^{m_i} (1 - r_i)^{1 - m_i}.

    The probabilities r are learnt by score-function gradients, unbiased and for any map, or by
    straight-through Gumbel-softmax gradients, which differentiate the log joint with respect to
    the presence of each item: less noise for a bias.

    Arguments:
        space: A bound space of :class:`~trjmcmc.Subsets`.
        gradient: ``"score"`` or ``"straight-through"``.
        temperature: Of the Gumbel-softmax.
        options: As for :class:`ScoreGradient`.

    Raises:
        ConfigurationError: Another space, a wrong ``gradient``.

    Source:
        Premchandar, "Normalizing flows aided variational inference", chapter 4; Jang et al.
        (2017), https://arxiv.org/abs/1611.01144

    Example:
        >>> from trjmcmc import problems
        >>> MeanField(problems.variable_selection(3).space).probabilities.tolist()
        [0.5, 0.5, 0.5]
    """

    def __init__(
        self,
        space: Space,
        *,
        gradient: str = "score",
        temperature: float = 0.5,
        learning_rate: float = 0.05,
        **options: Any,
    ) -> None:
        super().__init__(space, learning_rate=learning_rate, **options)
        if not isinstance(space, Subsets):
            raise ConfigurationError(
                f"MeanField: expected a space of Subsets, got {type(space).__name__}; use Made"
            )
        if gradient not in {"score", "straight-through"} or not temperature > 0:
            raise ConfigurationError(
                'expected gradient "score" or "straight-through" and temperature > 0, got '
                f"{gradient!r}, {temperature}"
            )
        self.straight_through, self.temperature = gradient == "straight-through", temperature
        self.logits = nn.Parameter(torch.zeros(space.code_width, device=self.low.device))

    @property
    def probabilities(self) -> Tensor:
        """Inclusion probability of each unit, shape (L,)."""
        return self.logits.detach().sigmoid()

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        u = torch.rand(n, len(self.logits), generator=generator, device=self.low.device)
        return (u < self.probabilities).long()

    def log_prob(self, code: Tensor) -> Tensor:
        log_on, log_off = (nn.functional.logsigmoid(s * self.logits) for s in (1, -1))
        return torch.where(code > 0, log_on, log_off).sum(-1)

    def relaxed(self, n: int, generator: torch.Generator) -> Tensor:
        """Draws of 0 and 1 with the gradients of relaxed ones, shape (n, L)."""
        u = torch.rand(n, len(self.logits), generator=generator, device=self.low.device)
        u = u.clamp(1e-6, 1 - 1e-6)
        soft = ((self.logits + u.log() - (-u).log1p()) / self.temperature).sigmoid()
        hard = (soft > 0.5).to(soft)
        return hard + (soft - soft.detach())  # the bracket is zero exactly

    def descend(self, bits: Tensor, loss: Tensor) -> None:
        """Take a straight-through step.

        Arguments:
            bits: From :meth:`relaxed`, shape (n, L).
            loss: Differentiable in the bits, shape (n,), nats; log q(m) is not in it.
        """
        if self._optimiser is None:
            self._optimiser = torch.optim.Adam([self.logits], lr=self.learning_rate)
        r = self.logits.sigmoid()
        log_on, log_off = (nn.functional.logsigmoid(s * self.logits) for s in (1, -1))
        objective = loss.mean() + (r * log_on + (1 - r) * log_off).sum()
        (gradient,) = torch.autograd.grad(objective, self.logits)
        self.logits.grad = gradient.nan_to_num(0.0, 0.0, 0.0)
        code = bits.detach().long()
        old, before = self.log_prob(code).detach(), [self.logits.detach().clone()]
        self._optimiser.step()
        self._limit(code, old, [self.logits], before)


def draw_models(space: Space, log_p: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """Codes of a small space by unnormalised log-probabilities (M,), shape (n, L)."""
    p = log_p.double().softmax(0)
    edges = p.cumsum(0)
    u = torch.rand(n, generator=generator, device=p.device, dtype=p.dtype) * edges[-1]
    return space.enumerate()[torch.searchsorted(edges, u).clamp(max=len(p) - 1)]
