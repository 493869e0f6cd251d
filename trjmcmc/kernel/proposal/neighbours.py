"""Proposals of any neighbour with equal probability."""

from __future__ import annotations

import torch
from torch import Tensor

from ...errors import ConfigurationError
from ...space.base import Space
from .base import IndexProposal, check_neighbours


class Neighbours(IndexProposal):
    """One unit flipped, two swapped, or one component more or fewer; for spaces of any size.

    Of several kinds of components each is chosen equally often.

    Steps that would leave the range of a count, and swaps where all units are on or off,
    propose the current model.

    Arguments:
        space: A space of items: :class:`~trjmcmc.Subsets`, :class:`~trjmcmc.Counts`.
        swap: Share of the proposals that exchange a unit that is on for one that is off.

    Raises:
        ConfigurationError: The space has no neighbours, or its prior leaves out sizes between
            others; ``swap`` outside [0, 1), or not zero for counts.

    Example:
        >>> from trjmcmc import Subsets
        >>> space = Subsets(["a", "b", "c"], of="beta")
        >>> code = torch.zeros(4, 3, dtype=torch.long)
        >>> new, ratio = Neighbours(space).propose(code, torch.Generator().manual_seed(0))
        >>> new.sum(1).tolist(), ratio.tolist()
        ([1, 1, 1, 1], [0.0, 0.0, 0.0, 0.0])
    """

    def __init__(self, space: Space, *, swap: float = 0.0) -> None:
        check_neighbours(space, "Neighbours")
        if not 0 <= swap < 1 or (swap and space.several and not space.units):
            raise ConfigurationError(
                f"swap: expected a share in [0, 1), and 0 unless the space is Subsets, got {swap}"
            )
        if space.gaps:
            raise ConfigurationError(
                "Neighbours: the prior leaves out sizes between others, so that steps of one "
                "can't reach every model; give those sizes a little mass or use Fixed"
            )
        self.space, self.swap = space, swap

    def sample(self, code: Tensor, generator: torch.Generator) -> Tensor:
        return self.space.random_neighbour(code, generator, swap=self.swap)

    def log_prob(self, new: Tensor, code: Tensor) -> Tensor:
        return self.space.log_neighbour(new, code, swap=self.swap)

    def propose(self, code: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        return self.sample(code, generator), torch.zeros(len(code), device=code.device)  # symmetric
