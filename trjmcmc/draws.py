"""The record of a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

STORED = 100_000_000  # numbers set aside for an open number of draws

LEAST_DRAWS_STORED = 200  # draws a chain that are set aside in any case

BLOCK_DRAWS, BLOCK_NUMBERS = 64, 2**24  # that a device keeps at most, of draws and in all

INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64)


@dataclass(frozen=True)
class Draws:
    """Kept draws of all chains, on the CPU.

    Attributes:
        code: Models, shape (chain, draw, L), int64.
        theta: Padded unconstrained coordinates, shape (chain, draw, D).
        log_joint: Shape (chain, draw), nats.
        thin: Steps between kept draws.
        shares: Where draws of many chains and few models were thinned: share of its steps, those
            between kept draws included, that each chain was in each model, shape (chain, M),
            float64.
        ancestor: The independent draw that each chain descends from, as a number, shape
            (chain,): populations are resampled before chains start. None where each has its own.
        run: Of merged runs: the run that each chain belongs to, as a number, shape (chain,).
    """

    code: Tensor
    theta: Tensor
    log_joint: Tensor
    thin: int = 1
    shares: Tensor | None = None
    ancestor: Tensor | None = None
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
        ancestor = None if self.ancestor is None else self.ancestor[::few]
        run = None if self.run is None else self.run[::few]
        return Draws(code, theta, log_joint, self.thin * every, ancestor=ancestor, run=run)

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

    def second_half(self, most: int, device: torch.device) -> Pool:
        """Later draws to train on, evenly thinned.

        Arguments:
            most: Draws at most, about.
            device: Where they are wanted.
        """
        half, some = self.n_draws // 2, -(-self.n_chains // most)
        every = max(1, (self.n_draws - half) * self.n_chains // most)
        code, theta, log_joint = (
            x[::some, half::every].flatten(0, 1) for x in (self.code, self.theta, self.log_joint)
        )
        return Pool(code.to(device), theta.to(device), log_joint.double().to(device))


def draws_a_block(numbers: int) -> int:
    """Draws of all chains that a device keeps before they leave it.

    Arguments:
        numbers: In one draw of all chains.

    Example:
        >>> draws_a_block(1000), draws_a_block(10_000_000)
        (64, 1)
    """
    return max(1, min(BLOCK_DRAWS, BLOCK_NUMBERS // max(1, numbers)))


class Departure:
    """Some draws on their way from a device to the host.

    Arguments:
        states: Codes, coordinates and log joint densities of each draw.
        first: Number of the first draw.
    """

    def __init__(self, states: list[tuple[Tensor, ...]], first: int) -> None:
        self.first, self._done = first, None
        on_device = [torch.stack(column) for column in zip(*states, strict=True)]
        self._found = on_device
        if on_device[0].device.type == "cuda":
            self._found = [torch.empty(x.shape, dtype=x.dtype, pin_memory=True) for x in on_device]
            for here, there in zip(self._found, on_device, strict=True):
                here.copy_(there, non_blocking=True)
            self._done = torch.cuda.Event()
            self._done.record()

    def arrived(self) -> list[Tensor]:
        """Codes, coordinates and log joint densities on the CPU, shapes (draw, chain, ...)."""
        if self._done is not None:
            self._done.synchronize()
        return [x.cpu() for x in self._found]


class Recorder:
    """Collects states into :class:`Draws`, of a fixed number or of as many as come.

    Where their number is open, and the memory set aside is full, every other draw is dropped
    and only every other of those to come is kept. Codes are held in the smallest integers that they
    fit in. States on a device are kept there until there is a block of them; it is copied while
    chains go on, and waited for when the next one is, or when somebody reads the record.

    Arguments:
        draws: Most draws a chain; None for an open number.
        code: Codes of the chains, to take sizes from, shape (C, L).
        theta: Coordinates of the chains, to take sizes and dtype from, shape (C, D).
        thin: Steps between kept draws.
        ancestor: Of each chain, as of :class:`Draws`.
    """

    def __init__(
        self,
        draws: int | None,
        code: Tensor,
        theta: Tensor,
        thin: int,
        ancestor: Tensor | None = None,
    ) -> None:
        c = len(code)
        each = c * (code.shape[1] + theta.shape[1] + 1)
        size = draws if draws is not None else max(LEAST_DRAWS_STORED, 2 * (STORED // (2 * each)))
        self.open, self._ancestor = draws is None, ancestor
        self.block = draws_a_block(each)
        self._on_device: list[tuple[Tensor, ...]] = []
        self._on_the_way: list[Departure] = []
        self._code = torch.empty(size, c, code.shape[1], dtype=INTEGERS[0])
        self._theta = torch.empty(size, c, theta.shape[1], dtype=theta.dtype)
        self._log_joint = torch.empty(size, c, dtype=theta.dtype)
        self.thin, self.kept, self.most = thin, 0, size

    def thinned(self, asked: int) -> str:
        """Why fewer steps are kept than were asked for, in words; empty if they are not.

        Arguments:
            asked: Steps a kept draw that were asked for.
        """
        if self.thin == asked:
            return ""
        chains, size = self._theta.shape[1], len(self._theta)
        each = chains * (self._code.shape[2] + self._theta.shape[2] + 1)
        why = (
            f"the record of {chains} chains is held to {size * each:.1e} numbers"
            if self.most == size
            else "more could not have been summed up in the time left"
        )
        return f"one step in {self.thin} is kept where one in {asked} was asked for: {why}"

    def bound(self, most: int) -> None:
        """Keep fewer draws a chain than memory allows, where their number is open."""
        if self.open:
            self.most = min(self.most, max(LEAST_DRAWS_STORED, 2 * -(-most // 2)))

    @contextmanager
    def room_for(self, n: int) -> Iterator[None]:
        """Let n more draws come before any is dropped, so that all of them are thinned alike."""
        most = self.most
        self.most = max(most, min(self.kept + n, len(self._theta)))
        try:
            yield
        finally:
            self.most = most

    @property
    def chains(self) -> int:
        """Number of chains."""
        return self._code.shape[1]

    @property
    def ancestor(self) -> Tensor | None:
        """Of each chain, as of :class:`Draws`, on the CPU."""
        return None if self._ancestor is None else self._ancestor.cpu()

    @property
    def pending(self) -> int:
        """Draws that are on a device and not on their way."""
        return len(self._on_device)

    @property
    def code(self) -> Tensor:
        """A copy of the codes so far, shape (draw, chain, L), int64."""
        self._arrive()
        return self._code[: self.kept].long()

    @property
    def log_joint(self) -> Tensor:
        """Log joint densities so far, shape (draw, chain), nats."""
        self._arrive()
        return self._log_joint[: self.kept]

    def keep(self, code: Tensor, theta: Tensor, log_joint: Tensor) -> None:
        """Copy one state; of a device no earlier than a block of them."""
        self.make_room()
        if code.device.type != "cpu":
            self._on_device.append((code, theta, log_joint))
            self.kept += 1
            if self.pending >= self.block:
                self._leave()
            return
        self._hold(code)
        self._code[self.kept].copy_(code)
        self._theta[self.kept].copy_(theta)
        self._log_joint[self.kept].copy_(log_joint)
        self.kept += 1

    def _leave(self) -> None:
        """Send the draws on the device on their way; those before have arrived by now."""
        self._store()
        if self._on_device:
            self._on_the_way.append(Departure(self._on_device, self.kept - self.pending))
            self._on_device = []

    def _store(self) -> None:
        """Store the draws that were on their way."""
        for block in self._on_the_way:
            code, theta, log_joint = block.arrived()
            self._hold(code)
            some = slice(block.first, block.first + len(code))
            self._code[some], self._theta[some], self._log_joint[some] = code, theta, log_joint
        self._on_the_way = []

    def _arrive(self) -> None:
        """Wait for all draws that are not stored yet."""
        if self._on_device or self._on_the_way:
            self._leave()
            self._store()

    def make_room(self) -> None:
        """Drop every other draw where there is no room for another."""
        while self.kept >= self.most and self.kept % 2 == 0:
            self._halve()

    def _hold(self, code: Tensor) -> None:
        """Take wider integers where codes do not fit."""
        if not code.numel():
            return
        low, high = (int(x) for x in code.aminmax())
        of = self._code.dtype
        while not torch.iinfo(of).min <= low <= high <= torch.iinfo(of).max:
            of = INTEGERS[INTEGERS.index(of) + 1]
        if of != self._code.dtype:
            wider = torch.empty(self._code.shape, dtype=of)
            wider[: self.kept] = self._code[: self.kept]
            self._code = wider

    def take_up(self, code: Tensor, theta: Tensor, log_joint: Tensor) -> None:
        """Begin with draws that were kept before, shapes (draw, chain, ...)."""
        self._hold(code)
        n = self.kept = len(code)
        if n > len(self._code):  # of a run that could keep more; an even number can be halved
            self.most = n + n % 2
            self._code = self._code.new_empty(self.most, *self._code.shape[1:])
            self._theta = self._theta.new_empty(self.most, *self._theta.shape[1:])
            self._log_joint = self._log_joint.new_empty(self.most, *self._log_joint.shape[1:])
        self._code[:n], self._theta[:n], self._log_joint[:n] = code, theta, log_joint

    def since(self, first: int) -> tuple[Tensor, Tensor, Tensor]:
        """Codes, coordinates and log joint densities from a draw on, shapes (draw, chain, ...)."""
        self._arrive()
        some = slice(first, self.kept)
        return self._code[some].long(), self._theta[some], self._log_joint[some]

    def descend_from(self, ancestor: Tensor) -> None:
        """Let chains descend from others than was known when the record began, shape (C,)."""
        self._ancestor = ancestor

    def so_far(self) -> Draws:
        """The draws so far; all but the codes share memory with the record."""
        self._arrive()
        theta = self._theta[: self.kept].transpose(0, 1)
        code = self.code.transpose(0, 1)
        return Draws(code, theta, self.log_joint.T, self.thin, ancestor=self.ancestor)

    def _halve(self) -> None:
        self._arrive()
        half = self.kept // 2
        for stored in (self._code, self._theta, self._log_joint):
            stored[:half] = stored[1 : 2 * half : 2].clone()
        self.kept, self.thin = half, 2 * self.thin

    def draws(self) -> Draws:
        """What was kept so far."""
        self._arrive()
        n = self.kept
        return Draws(
            self._code[:n].transpose(0, 1).long().contiguous(),
            self._theta[:n].transpose(0, 1).contiguous(),
            self._log_joint[:n].T.contiguous(),
            self.thin,
            ancestor=self.ancestor,
        )


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
