"""State, Info, the kernel interface and the one accept/reject step."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..target.target import Target
from ..transport.base import Point, Transport, pulled


class State(NamedTuple):
    """What the next step needs.

    Attributes:
        code: Models, shape (C, L), int64.
        theta: Padded unconstrained coordinates, spare slots zero, shape (C, D).
        log_joint: Shape (C,), nats.
        point: The same place under the transport that the last kernel used, if it did.
        total: What the components add up to, as from ``Components.total``, if the last kernel
            knew.
    """

    code: Tensor
    theta: Tensor
    log_joint: Tensor
    point: Point | None = None
    total: Tensor | None = None


class Info(NamedTuple):
    """What diagnostics want to know of one accept/reject step.

    Attributes:
        kernel: Name of the kernel.
        before: State before the step.
        proposed: The proposed state.
        accepted: Shape (C,), bool.
        log_ratio: Log acceptance ratio, not cut at 0, shape (C,), nats.
    """

    kernel: str
    before: State
    proposed: State
    accepted: Tensor
    log_ratio: Tensor

    @property
    def chance(self) -> Tensor:
        """Acceptance probability, shape (C,), float64; 0 where the density is not defined."""
        chance = self.log_ratio.double().nan_to_num(-math.inf).clamp(max=0).exp()
        return torch.where(self.proposed.log_joint.abs() < math.inf, chance, 0.0)


class Kernel(ABC):
    """A Markov kernel on batches of chains that leaves the target invariant.

    Attributes:
        name: Shown in tables of acceptance rates.
        between: Whether it can change the model.
        within: Whether it can move inside a model.
        adapting: Whether it may change its settings at each step; set during warm-up only.
    """

    name: str
    between: bool = False
    within: bool = False
    adapting: bool = False

    @abstractmethod
    def step(self, state: State, generator: torch.Generator) -> tuple[State, list[Info]]:
        """One step of every chain.

        Arguments:
            state: C chains.
            generator: The only source of randomness.

        Returns:
            The next state, and one :class:`Info` an accept/reject step.
        """

    def parts(self) -> list[Kernel]:
        """The kernels that it is made of; itself, if it is not."""
        return [self]

    def adapted(self) -> dict[str, Any]:
        """What warm-up has set, by name, in plain numbers."""
        return {}


@contextmanager
def adapting(kernel: Kernel) -> Iterator[None]:
    """Let a kernel, and what it is made of, adapt; freeze all of it afterwards."""
    touched = [kernel, *kernel.parts()]
    for part in touched:
        part.adapting = True
    try:
        yield
    finally:
        for part in touched:
            part.adapting = False


def start(target: Target, code: Tensor, theta: Tensor) -> State:
    """The state of chains that sit at given points."""
    theta = torch.where(target.space.active(code), theta, 0.0)
    return State(code, theta, target.log_joint(code, theta))


def locate(state: State, transport: Transport, generator: torch.Generator) -> Point:
    """Where the chains lie under a transport.

    If it moves spare coordinates they are drawn afresh and belong to the point; else their
    entries have no meaning.
    """
    known = state.point
    if known is not None and known.transport is transport and transport.spares_pass:
        return known
    return pulled(transport, state.theta, state.code, state.log_joint, generator)


def settle(state: State) -> State:
    """Forget a point whose spare coordinates are part of it and not of the state."""
    if state.point is not None and not state.point.transport.spares_pass:
        return state._replace(point=None)
    return state


def accept(
    kernel: str, state: State, proposed: State, log_ratio: Tensor, generator: torch.Generator
) -> tuple[State, list[Info]]:
    """Metropolis-Hastings: take the proposal with probability min(1, ratio).

    Proposals of zero or undefined density are rejected; the sampler reports the undefined.

    Arguments:
        kernel: Name for the record.
        state: Current state.
        proposed: Proposed state; it carries a point if, and only if, the next state can.
        log_ratio: Shape (C,), nats.
        generator: Source of randomness.
    """
    u = torch.rand(
        log_ratio.shape, generator=generator, device=log_ratio.device, dtype=torch.float64
    )
    accepted = (u.log() < log_ratio) & (proposed.log_joint.abs() < math.inf)
    point = None
    if state.point is not None and proposed.point is not None:
        point = Point(
            proposed.point.transport,
            torch.where(accepted[:, None], proposed.point.z, state.point.z),
            torch.where(accepted, proposed.point.log_weight, state.point.log_weight),
        )
    total = None
    if state.total is not None and proposed.total is not None:
        rows = accepted.view(-1, *[1] * (proposed.total.ndim - 1))
        total = torch.where(rows, proposed.total, state.total)
    after = State(
        code=torch.where(accepted[:, None], proposed.code, state.code),
        theta=torch.where(accepted[:, None], proposed.theta, state.theta),
        log_joint=torch.where(accepted, proposed.log_joint, state.log_joint),
        point=point,
        total=total,
    )
    return settle(after), [Info(kernel, state, proposed, accepted, log_ratio)]
