"""The record of a run."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Draws:
    """Kept draws of all chains, on the CPU.

    Attributes:
        code: Models, shape (chain, draw, L), int64.
        theta: Padded unconstrained coordinates, shape (chain, draw, D).
        log_joint: Shape (chain, draw), nats.
        thin: Steps between kept draws.
        run: Of merged runs: the run that each chain belongs to, as a number, shape (chain,).
    """

    code: Tensor
    theta: Tensor
    log_joint: Tensor
    thin: int = 1
    run: Tensor | None = None

    @property
    def n_chains(self) -> int:
        """Number of chains."""
        return self.code.shape[0]

    @property
    def n_draws(self) -> int:
        """Kept draws a chain."""
        return self.code.shape[1]

    def flat(self) -> tuple[Tensor, Tensor]:
        """Codes and coordinates of all draws, chain by chain, shapes (N, L) and (N, D)."""
        n = self.n_chains * self.n_draws
        return self.code.reshape(n, -1), self.theta.reshape(n, self.theta.shape[2])

    def some(self, chains: int, draws: int) -> Draws:
        """Evenly spaced chains, and evenly spaced draws of these, up to so many."""
        few, every = -(-self.n_chains // chains), -(-self.n_draws // draws)
        code, theta, log_joint = (
            x[::few, ::every] for x in (self.code, self.theta, self.log_joint)
        )
        run = None if self.run is None else self.run[::few]
        return Draws(code, theta, log_joint, self.thin * every, run)

    def first(self, most: int) -> Draws:
        """The first draws of each chain, so many at most."""
        code, theta, log_joint = (x[:, :most] for x in (self.code, self.theta, self.log_joint))
        return replace(self, code=code, theta=theta, log_joint=log_joint)

    def last(self, most: int) -> Draws:
        """The last draws of each chain, so many at most."""
        code, theta, log_joint = (x[:, -most:] for x in (self.code, self.theta, self.log_joint))
        return replace(self, code=code, theta=theta, log_joint=log_joint)

    def in_pieces(self, chains: int) -> Draws:
        """Chains cut into pieces of equal length that count as chains: so many, if draws allow."""
        pieces = min(-(-chains // self.n_chains), self.n_draws)
        each = self.n_draws // pieces
        code, theta, log_joint = (
            x[:, : pieces * each].unflatten(1, (pieces, each)).transpose(0, 1).flatten(0, 1)
            for x in (self.code, self.theta, self.log_joint)
        )
        return Draws(code, theta, log_joint, self.thin)


@dataclass(frozen=True)
class Pool:
    """Equally weighted posterior draws of several models, to train on.

    Attributes:
        code: Shape (N, L).
        theta: Shape (N, D).
        log_joint: Shape (N,), nats.
    """

    code: Tensor
    theta: Tensor
    log_joint: Tensor

    @property
    def distinct(self) -> int:
        """Number of different draws."""
        return len(self.log_joint.unique())

    def joined(self, other: Pool) -> Pool:
        """The draws of both."""
        return Pool(
            torch.cat([self.code, other.code]),
            torch.cat([self.theta, other.theta]),
            torch.cat([self.log_joint, other.log_joint]),
        )

    def at(self, rows: Tensor) -> Pool:
        """The draws at some rows, by number or mask."""
        return Pool(self.code[rows], self.theta[rows], self.log_joint[rows])

    def some(self, n: int, generator: torch.Generator) -> Pool:
        """n random draws of each model that has any, with replacement."""
        rows = []
        for c in torch.unique(self.code, dim=0):
            mine = (self.code == c).all(-1).nonzero()[:, 0]
            pick = torch.randint(len(mine), (n,), generator=generator, device=mine.device)
            rows.append(mine[pick])
        return self.at(torch.cat(rows))


def odd(step: int) -> int:
    """An odd number of steps: chains that take turns between two models would seem to stay.

    Example:
        >>> [odd(n) for n in (0, 1, 2, 10)]
        [1, 1, 1, 9]
    """
    return (max(1, step) - 1) | 1
