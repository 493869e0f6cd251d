"""Walks in the space of models by a cheap score: many steps in one proposal."""

from __future__ import annotations

import math
from abc import abstractmethod

import torch
from torch import Tensor

from ...errors import ConfigurationError
from ...rng import host_order
from ...space.base import Space
from .base import IndexProposal
from .informed import Score
from .neighbours import Neighbours

SWAPS = 0.25  # number of swaps for each flip in a scan


class Walk(IndexProposal):
    """A walk that is reversible for a score; its probabilities are known in ratios only."""

    @abstractmethod
    def propose(self, code: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]: ...

    def sample(self, code: Tensor, generator: torch.Generator) -> Tensor:
        return self.propose(code, generator)[0]

    def log_prob(self, new: Tensor, code: Tensor) -> Tensor:
        raise ConfigurationError(
            f"{type(self).__name__}: its probabilities are known in ratios only; mix it with "
            "others as kernels (trj.kernel.Cycle or MixtureKernel) and not in a MixtureProposal"
        )


class ScoreWalk(Walk):
    r"""Metropolis steps to neighbours under a score of the models, as one proposal.

    Subsets are scanned, every unit once and some swaps, in random order; counts take random
    steps. The walk is reversible for exp(s), so that whatever its length

    .. math:: \log q(m | m') - \log q(m' | m) = s(m) - s(m')

    and a jump is accepted by how well s matches the log posterior probabilities: with s exact
    and exact maps, always. Only the score is evaluated on the way, the likelihood once at the
    end. Any score is exact; a poor one is rejected more often.

    Arguments:
        space: :class:`~trjmcmc.Subsets` or :class:`~trjmcmc.Counts`.
        score: Function of codes (C, L) that gives log-probabilities (C,) up to a constant,
            such as :meth:`~trjmcmc.Laplace.log_evidence`. Models of score -inf are neither
            gone to nor left.
        steps: Length of the walk; a scan of all units, or two steps of a count, if omitted.
            Longer walks scan again.

    Raises:
        ConfigurationError: The space has no neighbours; ``steps`` below 1.

    Source:
        Such walks ("surrogate transitions" there): Liu, "Monte Carlo Strategies in Scientific
        Computing" (2001), section 9.4.3

    Example:
        >>> from trjmcmc import Subsets
        >>> space = Subsets(["a", "b"], of="beta")
        >>> walk = ScoreWalk(space, lambda code: 50.0 * code.sum(1), steps=20)
        >>> new, ratio = walk.propose(torch.zeros(3, 2).long(), torch.Generator().manual_seed(0))
        >>> new.tolist(), ratio.tolist()
        ([[1, 1], [1, 1], [1, 1]], [-100.0, -100.0, -100.0])
    """

    def __init__(self, space: Space, score: Score, *, steps: int | None = None) -> None:
        if steps is not None and steps < 1:
            raise ConfigurationError(f"steps: expected 1 or more, got {steps}")
        self._near = Neighbours(space)
        self.space, self.score = space, score
        units = space.units or 2 * space.code_width
        self.steps = steps or units + n_swaps(units)

    def propose(self, code: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        new, first = code, self._scored(code)
        last = first
        for move in self._moves(code, generator):
            near = self._near.sample(new, generator)
            if move is not None:
                near = flipped(new, units_of(move, new, generator))
            there = self._scored(near)
            u = torch.rand(len(code), generator=generator, device=code.device, dtype=there.dtype)
            taken = u.log() < there - last
            new = torch.where(taken[:, None], near, new)
            last = torch.where(taken, there, last)
        return new, torch.where(first == last, 0.0, first - last)

    def _moves(self, code: Tensor, generator: torch.Generator) -> list[int | None]:
        if not self.space.units:
            return [None] * self.steps
        return scan(code.shape[1], self.steps, generator)

    def _scored(self, code: Tensor) -> Tensor:
        return self.score(code).double().nan_to_num(-math.inf, -math.inf, -math.inf)


def n_swaps(units: int) -> int:
    """Swaps in a scan of so many units."""
    return math.ceil(SWAPS * units) if units > 1 else 0


def scan(units: int, steps: int, generator: torch.Generator) -> list[int | None]:
    """Flips of each unit and swaps, -1, in random order, cut or repeated to a length.

    An order and its reverse are equally likely, which makes a walk along it reversible.
    """
    each = torch.cat([torch.arange(units), torch.full((n_swaps(units),), -1)])
    moves = each.repeat(-(-steps // max(1, len(each))))
    return moves[host_order(len(moves), generator)[:steps]].tolist()


def units_of(move: int | None, code: Tensor, generator: torch.Generator) -> list[Tensor]:
    """The units that a move flips in each model: one, or a random pair of an on and an off."""
    assert move is not None
    if move >= 0:
        return [torch.full_like(code[:, 0], move)]
    noise = torch.rand(code.shape, generator=generator, device=code.device)
    return [(noise + 2 * code).argmax(1), (noise - 2 * code).argmax(1)]


def flipped(code: Tensor, units: list[Tensor]) -> Tensor:
    """The models with units flipped; as they were where a swap finds nothing to swap."""
    new = code
    for unit in units:
        new = new.scatter(1, unit[:, None], 1 - new.gather(1, unit[:, None]))
    if len(units) == 1:
        return new
    return torch.where((new.sum(1) == code.sum(1))[:, None], new, code)
