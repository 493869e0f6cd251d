"""Proposals of the next model, q(k' | k), with exact log-probability ratios."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from ..errors import ConfigurationError
from ..space import Counts, Space, Subsets, check_enumerable


class IndexProposal(ABC):
    """A proposal distribution over models."""

    @abstractmethod
    def propose(self, code: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw the next models.

        Arguments:
            code: Current models, shape (C, L).
            generator: Source of randomness.

        Returns:
            Proposed models, shape (C, L), and log q(code | code') - log q(code' | code),
            shape (C,), nats.
        """


class Stay(IndexProposal):
    """The same model."""

    def propose(self, code: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        return code, torch.zeros(len(code), device=code.device)


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
        Yin & Jiao, eq. 23; Liu (1996), https://doi.org/10.1093/biomet/83.3.681

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
        m = len(self.codes)
        device = self.codes.device
        w = torch.zeros(m) if log_weights is None else torch.as_tensor(log_weights)
        if w.shape != (m,) or bool((w.isnan() | (w == math.inf)).any()):
            raise ConfigurationError(f"log_weights: expected {m} numbers, got {w.tolist()}")
        self.log_p = w.double().to(device).log_softmax(0)
        self.other = other and m > 1
        p = self.log_p.exp()
        self._p, self._log_rest = p, torch.log1p(-p)
        self._below = torch.cat([p.new_zeros(1), p.cumsum(0)])  # of each model, then 1

    def propose(self, code: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        old = self.space.index(code)
        below = self._below
        u = torch.rand(len(code), generator=generator, device=code.device, dtype=below.dtype)
        if self.other:  # inverse distribution function with the current model cut out
            u = u * (1 - self._p[old])
            u = u + torch.where(u >= below[old], self._p[old], 0.0)
        else:
            u = u * below[-1]
        new = (torch.searchsorted(below, u, right=True) - 1).clamp(0, len(self.codes) - 1)
        ratio = self.log_p[old] - self.log_p[new]
        if self.other:
            ratio = ratio - self._log_rest[new] + self._log_rest[old]
        return self.codes[new], ratio


class Neighbours(IndexProposal):
    """One unit flipped, or one component more or fewer; for spaces of any size.

    Steps that would leave the range of a count propose the current model.

    Arguments:
        space: :class:`~trjmcmc.Subsets` or :class:`~trjmcmc.Counts`.

    Raises:
        ConfigurationError: The space has no neighbours, or its prior leaves out sizes between
            others.

    Example:
        >>> from trjmcmc import Subsets
        >>> space = Subsets(["a", "b", "c"], of="beta")
        >>> code = torch.zeros(4, 3, dtype=torch.long)
        >>> new, ratio = Neighbours(space).propose(code, torch.Generator().manual_seed(0))
        >>> new.sum(1).tolist(), ratio.tolist()
        ([1, 1, 1, 1], [0.0, 0.0, 0.0, 0.0])
    """

    def __init__(self, space: Space) -> None:
        if not isinstance(space, Subsets | Counts):
            raise ConfigurationError(
                f"Neighbours: expected Subsets or Counts, got {type(space).__name__}"
            )
        by_size = (
            space.log_prior_table if isinstance(space, Counts) else space.log_size_weight
        ).isfinite()
        used = by_size.nonzero()[:, 0]
        if len(used) and not bool(by_size[used[0] : used[-1] + 1].all()):
            raise ConfigurationError(
                "Neighbours: the prior leaves out sizes between others, so that steps of one "
                "can't reach every model; give those sizes a little mass or use Fixed"
            )
        self.space = space

    def propose(self, code: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        c, device = len(code), code.device
        zero = torch.zeros(c, device=device)
        if isinstance(self.space, Counts):
            up = torch.randint(0, 2, (c, 1), generator=generator, device=device)
            return (code + 2 * up - 1).clamp(self.space.min, self.space.max), zero
        if not self.space.code_width:
            return code, zero
        unit = torch.randint(0, code.shape[1], (c, 1), generator=generator, device=device)
        return code.scatter(1, unit, 1 - code.gather(1, unit)), zero
