"""q(m) of independent entries of a code."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..errors import ConfigurationError
from ..space.base import Space
from .score_gradient import ScoreGradient

# by .05 chances near 0 and 1 end .03 nats too far from them, by .2 within .006
TEMPERATURE = 0.5  # of the Gumbel-softmax

LEARNING_RATES = {"score": 0.2, "straight-through": 0.05}


class MeanField(ScoreGradient):
    r"""Independent units: q(m) = prod_i r_i^{m_i} (1 - r_i)^{1 - m_i}.

    The probabilities r are learned by score-function gradients, unbiased and for any map, or by
    straight-through Gumbel-softmax gradients, which differentiate the log joint with respect to
    the presence of each item: less noise for a bias.

    Arguments:
        space: A bound space of :class:`~trjmcmc.Subsets`.
        gradient: ``"score"`` or ``"straight-through"``.
        learning_rate: Of Adam; 0.2 by score gradients if omitted, 0.05 by others.
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
        learning_rate: float | None = None,
        **options: Any,
    ) -> None:
        usual = LEARNING_RATES.get(gradient, 1.0)
        super().__init__(space, learning_rate=learning_rate or usual, **options)
        if space.several and not space.units:
            raise ConfigurationError(
                f"MeanField: expected a space of Subsets, got {type(space).__name__}; use Made"
            )
        if gradient not in LEARNING_RATES:
            raise ConfigurationError(
                f'gradient: expected "score" or "straight-through", got {gradient!r}'
            )
        self.straight_through = gradient == "straight-through"
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
        soft = ((self.logits + u.log() - (-u).log1p()) / TEMPERATURE).sigmoid()
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
