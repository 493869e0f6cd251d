"""Draws of acyclic graphs from a prior that can't be summed: all parents of a node at a time."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .paths import below

SWEEPS = 40  # over the nodes, from the required edges alone


def gibbs_draws(
    n: int,
    must: Tensor,
    may: Tensor,
    by_parents: Tensor,
    log_odds: Tensor,
    generator: torch.Generator,
    sweeps: int = SWEEPS,
) -> Tensor:
    """Parent masks, shape (n, d), of chains that draw each node's parents given all the rest.

    Arguments:
        n: Number of chains.
        must, may: Masks of the parents that nodes have to have, and may have, shape (d,).
        by_parents: Log weight of each number of parents, shape (d,).
        log_odds: Of each edge, shape (d, d); finite where it may be.
        generator: Source of randomness.
        sweeps: Times that each node is drawn.

    Example:
        >>> full = torch.tensor([6, 5, 3])
        >>> zero = torch.zeros(3).double()
        >>> draws = gibbs_draws(
        ...     500, 0 * full, full, zero, torch.zeros(3, 3), torch.Generator().manual_seed(0)
        ... )
        >>> draws.unique(dim=0).shape  # all graphs on three nodes
        torch.Size([25, 3])
    """
    d, device = len(must), must.device
    node = torch.arange(d, device=device)
    code = must.expand(n, -1).clone()
    for _ in range(sweeps):
        for j in torch.randperm(d, generator=generator, device=device).tolist():
            free = may[j] & ~must[j] & ~below(code, torch.full_like(code[:, 0], 1 << j))
            free = ((free[:, None] >> node) & 1).bool()
            taken = int((must[j] >> node & 1).sum())
            weight = by_parents[taken:].double()
            if bool(log_odds[:, j].nan_to_num(0.0, 0.0, 0.0).any()):
                parents = _by_odds(free, weight, log_odds[:, j].double(), generator)
            else:
                parents = _by_number(free, weight, generator)
            code[:, j] = must[j] | (parents.long() << node).sum(1)
    return code


def _by_number(free: Tensor, weight: Tensor, generator: torch.Generator) -> Tensor:
    """Subsets of the free ones, (n, d) bool, that depend on their number alone."""
    room = free.sum(1, keepdim=True).double()
    k = torch.arange(len(weight), device=free.device)
    log_choices = torch.lgamma(room + 1) - torch.lgamma(k + 1.0) - torch.lgamma(room - k + 1)
    log_p = torch.where(k <= room, weight + log_choices, -math.inf)
    number = torch.multinomial(log_p.softmax(1), 1, generator=generator)
    noise = torch.rand(free.shape, generator=generator, device=free.device)
    rank = noise.masked_fill(~free, math.inf).argsort(1).argsort(1)
    return free & (rank < number)


def _by_odds(free: Tensor, weight: Tensor, log_odds: Tensor, generator: torch.Generator) -> Tensor:
    """Subsets of the free ones, (n, d) bool, by odds of each and their number."""
    n, d = free.shape
    nothing = torch.full((n, 1), -math.inf, dtype=torch.float64, device=free.device)
    sums = [torch.cat([nothing + math.inf, nothing.expand(-1, len(weight) - 1)], 1)]
    sums[0][:, 0] = 0.0
    odds = torch.where(free, log_odds, -math.inf)
    for i in range(d):  # log sums over the subsets of the first ones, by their number
        one_more = torch.cat([nothing, sums[-1][:, :-1]], 1) + odds[:, i : i + 1]
        sums.append(torch.logaddexp(sums[-1], one_more))
    number = torch.multinomial((sums[-1] + weight).softmax(1), 1, generator=generator)
    found = torch.zeros_like(free)
    u = torch.rand(n, d, generator=generator, device=free.device, dtype=torch.float64).log()
    for i in reversed(range(d)):
        without = sums[i].gather(1, number)[:, 0] - sums[i + 1].gather(1, number)[:, 0]
        found[:, i] = u[:, i] >= without
        number = number - found[:, i : i + 1].long()
    return found
