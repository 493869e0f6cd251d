"""Structure MCMC as it is usually compared with: neighbours at random."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ...errors import ConfigurationError
from ...rng import categorical
from ...space.dags import Dags
from ..proposal.base import IndexProposal


class StructureNeighbours(IndexProposal):
    r"""One of the graphs with an edge more, less or around, all alike: the proposal of MC3.

    .. math:: \frac{q(G | G')}{q(G' | G)} = \frac{|N(G)|}{|N(G')|}

    As a kernel: ``BirthDeath(target, StructureNeighbours(target.space))``.

    Arguments:
        space: The graphs.
        ratio: ``"neighbourhoods"``, or ``"one"``, as published with DiBS: the ratio is left out
            there (:meth:`log_prob` then counts neighbours as one), so that the chain does not
            leave the posterior invariant. It is here to show that.

    Raises:
        ConfigurationError: Another space or ratio.

    Source:
        Madigan & York (1995), https://doi.org/10.2307/1403615; Giudici & Castelo (2003),
        https://doi.org/10.1023/A:1020202028934; ratio of one: Lorch et al. (2021),
        https://arxiv.org/abs/2105.11839, appendix E.4

    Example:
        >>> space = Dags(["a", "b", "c"])
        >>> empty, one = torch.zeros(1, 3).long(), space.code_of("a->b")[None]
        >>> StructureNeighbours(space).log_prob(one, empty).exp().round(decimals=4).tolist()
        [0.1667]
    """

    def __init__(self, space: Dags, *, ratio: str = "neighbourhoods") -> None:
        if not space.graphs:
            raise ConfigurationError("StructureNeighbours: expected Dags")
        if ratio not in ("neighbourhoods", "one"):
            raise ConfigurationError(f'ratio: expected "neighbourhoods" or "one", got {ratio!r}')
        self.space, self.ratio = space, ratio

    def sample(self, code: Tensor, generator: torch.Generator) -> Tensor:
        near, real = self.space.neighbours(code)
        if not near.shape[1]:
            return code
        pick = categorical(torch.where(real, 0.0, -math.inf), generator)
        chosen = near[torch.arange(len(code), device=code.device), pick]
        return torch.where(real.any(1)[:, None], chosen, code)

    def log_prob(self, new: Tensor, code: Tensor) -> Tensor:
        near, real = self.space.neighbours(code)
        there = ((near == new[:, None]).all(-1) & real).any(1)
        number = torch.ones_like(real[:, 0]).double() if self.ratio == "one" else real.sum(1)
        return torch.where(there, -number.double().log(), -math.inf)

    def propose(self, code: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        new = self.sample(code, generator)
        if self.ratio == "one" or not self.space.n_items:
            return new, torch.zeros(len(code), dtype=torch.float64, device=code.device)
        numbers = (self.space.neighbours(x)[1].sum(1).clamp(min=1) for x in (code, new))
        here, there = numbers
        return new, here.double().log() - there.double().log()
