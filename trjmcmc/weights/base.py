"""Distributions over models that are learned beside a map: q(m) of variational inference."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from ..errors import ConfigurationError
from ..space.base import Space

OUTSIDE = 5.0  # nats by which a model whose density is not finite counts as worse than the worst


class ModelWeights(nn.Module, ABC):
    r"""A distribution q(m) over the models of a space, of any size.

    It is learned from losses of models drawn from it: with the map's density q(theta | m),

    .. math:: \ell = \log q(\theta | m) - \log\pi(\theta, m), \qquad
              \min_q \mathrm{E}_q [\ell + \log q(m)]

    whose minimum, for exact maps, is the posterior p(m | data).

    Arguments:
        space: A bound model space.

    Raises:
        ConfigurationError: Graphs: a code's positions, drawn one by one, close cycles nearly
            always.
    """

    low: Tensor
    by_position = True  # whether positions of a code are drawn one by one

    def __init__(self, space: Space) -> None:
        super().__init__()
        if space.graphs and self.by_position:
            raise ConfigurationError(
                f"{type(self).__name__}: its draws would close cycles; graphs are sampled without "
                'a fitted q(m): run(fit="auto")'
            )
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

    def reached(self, progress: float) -> None:
        """Take note of how much of a fit is over, (0, 1]."""

    def sound(self, loss: Tensor) -> Tensor:
        """Losses with those that are not finite a little above the worst so far."""
        finite = loss.isfinite()
        if bool(finite.any()):
            worst = float(loss[finite].max())
            self._worst = worst if self._worst is None else max(worst, self._worst)
        return torch.where(finite, loss, (self._worst or 0.0) + OUTSIDE)


class UniformWeights(ModelWeights):
    """Every code with the same probability; nothing is learned.

    Example:
        >>> from trjmcmc import problems
        >>> space = problems.variable_selection(3).space
        >>> UniformWeights(space).log_prob(torch.zeros(1, 3).long()).exp().tolist()
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


def draw_models(space: Space, log_p: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """Codes of a small space by unnormalised log-probabilities (M,), shape (n, L)."""
    p = log_p.double().softmax(0)
    edges = p.cumsum(0)
    u = torch.rand(n, generator=generator, device=p.device, dtype=p.dtype) * edges[-1]
    return space.enumerate()[torch.searchsorted(edges, u).clamp(max=len(p) - 1)]
