"""Proposals that weigh neighbours by a score."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...errors import ConfigurationError
from ...rng import categorical
from ...space.base import Space, check_enumerable
from .base import IndexProposal, checked_table

LOG_LEAST = 30.0  # nats; no neighbour is less likely than this, so that each can be left again

CELLS = 2**24  # numbers that a table of neighbours may hold at once


Score = Callable[[Tensor], Tensor]


class Informed(IndexProposal):
    r"""Neighbours weighed by how probable they seem: a locally balanced proposal.

    A neighbour k' (one unit flipped; one component more or fewer; any other model of a list)
    is proposed in proportion to g(exp(s(k') - s(k))), where s estimates the log posterior
    probability of a model and g balances, g(t) = t g(1/t). With a good score the chain goes
    where the mass is and is hardly ever rejected for the model; any score is exact.

    Arguments:
        space: A space of subsets, counts or a few models.
        score: Function of codes (N, L) that gives log-probabilities (N,) up to a constant, or
            for a small space a table of them, in the order of ``space.enumerate()``. None
            learns one in warm-up: log odds of each unit, or of each count or model.
        balance: ``"sqrt"`` or ``"barker"``, t / (1 + t).

    Raises:
        ConfigurationError: No neighbours, or a wrong ``balance``.

    Source:
        Zanella (2020), https://doi.org/10.1080/01621459.2019.1585255

    Example:
        >>> from trjmcmc import Subsets
        >>> space = Subsets(["a", "b"], of="beta")
        >>> proposal = Informed(space, lambda code: 50.0 * code[:, 1])
        >>> new, ratio = proposal.propose(torch.zeros(3, 2).long(), torch.Generator())
        >>> new.tolist()
        [[0, 1], [0, 1], [0, 1]]
    """

    def __init__(
        self, space: Space, score: Score | Tensor | None = None, *, balance: str = "barker"
    ) -> None:
        if balance not in {"sqrt", "barker"}:
            raise ConfigurationError(f'balance: expected "sqrt" or "barker", got {balance!r}')
        if not space.has_items:
            check_enumerable(space)
        self.space, self.balance = space, balance
        self._learner = _VisitScore(space) if score is None else None
        self._score = self._learner or _as_function(score, space)

    def _log_weights(self, code: Tensor) -> tuple[Tensor, Tensor]:
        """Neighbours and their log-probabilities, (C, N, L) and (C, N)."""
        near, real = self.space.neighbours(code)
        here = self._score(code).double()
        there = self._score(near.flatten(0, 1)).double().view(real.shape)
        gain = (there - here[:, None]).nan_to_num(-math.inf)
        log_w = 0.5 * gain if self.balance == "sqrt" else torch.nn.functional.logsigmoid(gain)
        log_w = torch.where(real, log_w.clamp(min=-LOG_LEAST), -math.inf)
        return near, log_w.log_softmax(1)

    def _portion(self, code: Tensor) -> int:
        """Chains whose neighbours fit into memory at once."""
        units = self.space.units or int(self.space.size or 2)
        return max(1, CELLS // max(1, units * code.shape[1]))

    def sample(self, code: Tensor, generator: torch.Generator) -> Tensor:
        if not self._any(code):
            return code
        parts = code.split(self._portion(code))
        return torch.cat([self._sample(part, generator) for part in parts])

    def _sample(self, code: Tensor, generator: torch.Generator) -> Tensor:
        near, log_p = self._log_weights(code)
        pick = categorical(log_p, generator)
        return near.gather(1, pick[:, None, None].expand(-1, 1, code.shape[1]))[:, 0]

    def log_prob(self, new: Tensor, code: Tensor) -> Tensor:
        if not self._any(code):
            return torch.where((new == code).all(-1), 0.0, -math.inf)
        size = self._portion(code)
        parts = zip(new.split(size), code.split(size), strict=True)
        return torch.cat([self._log_prob(to, part) for to, part in parts])

    def _log_prob(self, new: Tensor, code: Tensor) -> Tensor:
        near, log_p = self._log_weights(code)
        same = (near == new[:, None]).all(-1)
        return torch.where(same, log_p, -math.inf).logsumexp(1)

    def _any(self, code: Tensor) -> bool:
        return self.space.several

    def adapted_to(self, code: Tensor) -> Informed:
        if self._learner is None:
            return self
        found = copy.copy(self)
        found._score = found._learner = self._learner.learned(code)
        return found

    def learnt(self) -> dict[str, Any]:
        return {} if self._learner is None else {"score": self._learner.table.tolist()}


class _VisitScore:
    """Log odds of units, or log shares of counts and models, by the visits so far."""

    def __init__(self, space: Space) -> None:
        self.space = space
        if space.size is None and not space.units:
            raise ConfigurationError("score: give one, for no table holds all models of this space")
        width = space.units or int(space.size or 0)
        device = _device(space)
        self._on = torch.full((width,), 0.5, dtype=torch.float64, device=device)
        self._seen = torch.ones((), dtype=torch.float64, device=device)

    @property
    def table(self) -> Tensor:
        if self.space.units:
            return (self._on / (self._seen - self._on)).log()
        return (self._on / self._on.sum()).log()

    def learned(self, code: Tensor) -> _VisitScore:
        found = copy.copy(self)
        if self.space.units:
            found._on = self._on + code.sum(0)
        else:
            one = torch.ones(len(code), dtype=self._on.dtype, device=code.device)
            found._on = self._on.index_add(0, self.space.index(code), one)
        found._seen = self._seen + len(code)
        return found

    def __call__(self, code: Tensor) -> Tensor:
        if self.space.units:
            return code.to(self._on.dtype) @ self.table
        return self.table[self.space.index(code)]


def _as_function(score: Score | Tensor | None, space: Space) -> Score:
    if not isinstance(score, Tensor):
        assert score is not None
        return score
    table = checked_table(score, space)
    return lambda code: table[space.index(code)]


def _device(space: Space) -> torch.device:
    return next(space.buffers()).device
