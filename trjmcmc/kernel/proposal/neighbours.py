"""Proposals of any neighbour with equal probability."""

from __future__ import annotations

import torch
from torch import Tensor

from ...errors import ConfigurationError
from ...space.base import Space
from ...space.counts import Counts
from ...space.subsets import Subsets
from .base import IndexProposal, check_neighbours


class Neighbours(IndexProposal):
    """One unit flipped, two swapped, or one component more or fewer; for spaces of any size.

    Of several kinds of components each is chosen equally often.

    Steps that would leave the range of a count, and swaps where all units are on or off,
    propose the current model.

    Arguments:
        space: :class:`~trjmcmc.Subsets` or :class:`~trjmcmc.Counts`.
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
        assert isinstance(space, Subsets | Counts)
        if not 0 <= swap < 1 or (swap and not isinstance(space, Subsets)):
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
        c, device, space = len(code), code.device, self.space
        if isinstance(space, Counts):
            (low, levels), kinds = space.levels(), space.code_width
            move = torch.randint(0, 2 * kinds, (c, 1), generator=generator, device=device)
            step = torch.zeros_like(code).scatter(1, move // 2, 2 * (move % 2) - 1)
            return (code + step).clamp(low, low + levels - 1)
        if not space.code_width:
            return code
        unit = torch.randint(0, code.shape[1], (c, 1), generator=generator, device=device)
        flipped = code.scatter(1, unit, 1 - code.gather(1, unit))
        if not self.swap:
            return flipped
        u = torch.rand(c, 1, generator=generator, device=device)
        noise = torch.rand(code.shape, generator=generator, device=device)
        on = (noise + 2 * code).argmax(1, keepdim=True)  # a random one of those that are on
        off = (noise - 2 * code).argmax(1, keepdim=True)
        swapped = code.scatter(1, on, 0).scatter(1, off, 1)
        mixed = (code.amin(1) < code.amax(1))[:, None]
        return torch.where(u < self.swap, torch.where(mixed, swapped, code), flipped)

    def log_prob(self, new: Tensor, code: Tensor) -> Tensor:
        zero = torch.zeros(len(code), device=code.device)
        if isinstance(self.space, Counts):
            low, levels = self.space.levels()
            step, each = (new - code).abs().sum(1), 0.5 / code.shape[1]
            ends = ((code == low).long() + (code == low + levels - 1).long()).sum(1)
            chance = torch.where(step == 1, each, torch.where(step == 0, each * ends, zero))
            return chance.log()
        if not self.space.code_width:
            return zero
        units, on = code.shape[1], code.sum(1)
        gap = (new - code).abs().sum(1)
        pairs = on * (units - on)
        one, two = (1 - self.swap) / units, self.swap / pairs.clamp(min=1)
        balanced = (gap == 2) & (new.sum(1) == on)
        none = torch.where((gap == 0) & (pairs == 0), self.swap, zero)
        return torch.where(gap == 1, one, torch.where(balanced, two, none)).log()

    def propose(self, code: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        return self.sample(code, generator), torch.zeros(len(code), device=code.device)  # symmetric
