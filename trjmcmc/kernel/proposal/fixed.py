"""Proposals that do not depend on the current model: a table, or learnt weights."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ...space.base import Space, check_enumerable
from ...weights.base import ModelWeights
from .base import IndexProposal, checked_table


class Fixed(IndexProposal):
    """Fixed probabilities over the models of a small space, whatever the current model.

    With the posterior probabilities and exact maps every jump is accepted.

    Arguments:
        space: A small space.
        log_weights: Unnormalised log-probabilities in the order of ``space.enumerate()``,
            shape (M,); uniform if omitted.
        other: Propose only models other than the current one, in proportion to the weights
            (Metropolised Gibbs), which mixes faster.

    Raises:
        ConfigurationError: Weights of the wrong length, or that are not numbers.

    Source:
        Yin & Jiao, https://arxiv.org/abs/2512.12742, eq. 23; Liu (1996), https://doi.org/10.1093/biomet/83.3.681

    Example:
        >>> from trjmcmc import problems
        >>> space = problems.sinh_arcsinh().space
        >>> proposal = Fixed(space, torch.tensor([0.25, 0.75]).log(), other=True)
        >>> proposal.propose(torch.tensor([[0], [1]]), torch.Generator())[0].tolist()
        [[1], [0]]
    """

    def __init__(
        self, space: Space, log_weights: Tensor | None = None, *, other: bool = False
    ) -> None:
        check_enumerable(space)
        self.space, self.codes = space, space.enumerate()
        w = torch.zeros(len(self.codes)) if log_weights is None else log_weights
        self.log_p = checked_table(w, space).log_softmax(0)
        self.other = other and len(self.codes) > 1
        p = self.log_p.exp()
        self._p, self._log_rest = p, torch.log1p(-p)
        self._log_score = self.log_p + self._log_rest if self.other else self.log_p
        self._below = torch.cat([p.new_zeros(1), p.cumsum(0)])  # of each model, then 1

    def propose(self, code: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        if type(self) is not Fixed:  # which may draw otherwise
            return super().propose(code, generator)
        old = self.space.index(code)
        new = self._drawn(old, generator)
        return self.codes[new], self._log_score[old] - self._log_score[new]

    def sample(self, code: Tensor, generator: torch.Generator) -> Tensor:
        return self.codes[self._drawn(self.space.index(code), generator)]

    def _drawn(self, old: Tensor, generator: torch.Generator) -> Tensor:
        """Places of the next models among all, by those of the current ones, (C,)."""
        below = self._below
        u = torch.rand(len(old), generator=generator, device=old.device, dtype=below.dtype)
        if self.other:  # inverse distribution function with the current model cut out
            p = self._p[old]
            u = u * (1 - p)
            u = u + torch.where(u >= below[old], p, 0.0)
        else:
            u = u * below[-1]
        return (torch.searchsorted(below, u, right=True) - 1).clamp(0, len(self.codes) - 1)

    def log_prob(self, new: Tensor, code: Tensor) -> Tensor:
        to, old = self.space.index(new), self.space.index(code)
        if not self.other:
            return self.log_p[to]
        return torch.where(to == old, -math.inf, self.log_p[to] - self._log_rest[old])


class Learnt(IndexProposal):
    """A distribution over models, whatever the current one; for spaces of any size.

    Arguments:
        weights: Has ``sample(n, generator)`` and ``log_prob(code)``, such as
            :class:`trjmcmc.weights.Made`.

    Source:
        Davies et al., "Variational transdimensional inference", whose q(m) it takes

    Example:
        >>> from trjmcmc import problems
        >>> from trjmcmc.weights import UniformWeights
        >>> q = UniformWeights(problems.variable_selection(3).space)
        >>> new, ratio = Learnt(q).propose(torch.zeros(4, 3).long(), torch.Generator())
        >>> ratio.tolist()
        [0.0, 0.0, 0.0, 0.0]
    """

    def __init__(self, weights: ModelWeights) -> None:
        self.space, self.weights = weights.space, weights

    def sample(self, code: Tensor, generator: torch.Generator) -> Tensor:
        return self.weights.sample(len(code), generator)

    def log_prob(self, new: Tensor, code: Tensor) -> Tensor:
        return self.weights.log_prob(new).double()
