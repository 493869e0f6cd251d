"""q(m) as an autoregressive network over the entries of a code."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from zuko.nn import MaskedLinear, MaskedMLP

from ..errors import ConfigurationError
from ..rng import categorical, seeded
from ..space.base import Space
from .score_gradient import ScoreGradient


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
        learning_rate: float = 3e-2,
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
        self.net: nn.Sequential | None = None
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
        ends = torch.tensor([0, *self.levels]).cumsum(0).tolist()
        for i, (start, end) in enumerate(pairwise(ends)):
            logits = self.bias[start:end].expand(n, -1)
            if self.net is not None:
                *body, last = self.net
                assert isinstance(last, MaskedLinear)
                seen = one_hot
                for layer in body:
                    seen = layer(seen)
                mask, bias = last.mask[start:end], last.bias[start:end]
                logits = logits + F.linear(seen, mask * last.weight[start:end], bias)
            index[:, i] = categorical(logits, generator)
            one_hot.scatter_(1, start + index[:, i : i + 1], 1.0)
        return index + self.low
