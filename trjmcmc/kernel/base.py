"""The kernel interface: State, Info, and the one accept/reject step.

What do I write to add a move? A class with ``step``: propose, state the log acceptance ratio, and
let :func:`accept` decide. A step is a function of its arguments: all randomness comes from the
generator, and nothing is remembered outside the state it returns. A move that learns in warm-up
also writes ``adapted_to``, which returns a new kernel. A random walk that learns its length:

    >>> import copy, torch
    >>> from trjmcmc import problems
    >>> class Walk(Kernel):
    ...     name, within = "my walk", True
    ...     def __init__(self, target, size=1.0):
    ...         self.target, self.size = target, size
    ...     def step(self, state, generator):
    ...         noise = torch.randn(state.theta.shape, generator=generator)
    ...         active = self.target.space.active(state.code)  # spare slots stay zero
    ...         theta = torch.where(active, state.theta + self.size * noise, 0.0)
    ...         log_joint = self.target.log_joint(state.code, theta)
    ...         log_ratio = log_joint - state.log_joint  # there as likely as back
    ...         proposed = State(state.code, theta, log_joint)
    ...         return accept(self.name, state, proposed, log_ratio, generator)
    ...     def adapted_to(self, infos, generator):
    ...         found = copy.copy(self)
    ...         found.size = self.size * float((infos[0].chance.mean() - 0.3).exp())
    ...         return found
    >>> target = problems.robust_regression()
    >>> walk, generator = Walk(target, 9.0), torch.Generator().manual_seed(0)
    >>> state = start(target, torch.zeros(50, 2, dtype=torch.long), torch.zeros(50, 4))
    >>> for _ in range(100):  # a warm-up
    ...     walk, state, infos = walk.adapt(state, generator)
    >>> walk.size < 1
    True

A run takes it as ``TRJSampler(target, kernel=...)``. For default runs to try it, offer it in
``moves`` of a recipe, :mod:`trjmcmc.run.recipes.lists` and others there.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..target.target import Target
from ..transport.base import Point, Transport, pulled


class Memo(NamedTuple):
    """What the last kernel knew of the place where the chains are.

    Attributes:
        owner: The object that it holds for, told by identity: a map, of whose reference point and
            log importance weight it consists; a target, of whose components' sum.
        values: Tensors of leading size C.
    """

    owner: object
    values: tuple[Tensor, ...]

    def rows(self, rows: slice) -> Memo:
        """That of some chains."""
        return Memo(self.owner, tuple(value[rows] for value in self.values))


class State(NamedTuple):
    """What the next step needs.

    Attributes:
        code: Models, shape (C, L), int64.
        theta: Padded unconstrained coordinates, spare slots zero, shape (C, D).
        log_joint: Shape (C,), nats.
        memo: What the last kernel knew of this place; a kernel that moves chains otherwise leaves
            it out.
    """

    code: Tensor
    theta: Tensor
    log_joint: Tensor
    memo: Memo | None = None

    def recall(self, owner: object) -> tuple[Tensor, ...] | None:
        """The memo's values if they are the owner's, else None."""
        known = self.memo
        return known.values if known is not None and known.owner is owner else None


class Info(NamedTuple):
    """What diagnostics want to know of one accept/reject step.

    Attributes:
        kernel: Name of the kernel.
        before: State before the step.
        proposed: The proposed state.
        accepted: Shape (C,), bool.
        log_ratio: Log acceptance ratio, not cut at 0, shape (C,), nats.
        note: What the kernel itself wants to learn from, if anything.
    """

    kernel: str
    before: State
    proposed: State
    accepted: Tensor
    log_ratio: Tensor
    note: Any = None

    @property
    def chance(self) -> Tensor:
        """Acceptance probability, shape (C,), float64; 0 where the density is not defined."""
        chance = self.log_ratio.double().nan_to_num(-math.inf).clamp(max=0).exp()
        return torch.where(self.proposed.log_joint.abs() < math.inf, chance, 0.0)

    @property
    def code(self) -> Tensor:
        """Models after the step, shape (C, L)."""
        return torch.where(self.accepted[:, None], self.proposed.code, self.before.code)

    @property
    def theta(self) -> Tensor:
        """Coordinates after the step, shape (C, D)."""
        return torch.where(self.accepted[:, None], self.proposed.theta, self.before.theta)


class Kernel(ABC):
    """A Markov kernel on batches of chains that leaves the target invariant.

    Kernels do not change: a step returns a state, adaptation another kernel. So chains go on
    exactly as they would have from a state, a kernel and the generator's state.

    Attributes:
        name: Shown in tables of acceptance rates.
        between: Whether it can change the model.
        within: Whether it can move inside a model.
    """

    name: str
    between: bool = False
    within: bool = False

    @abstractmethod
    def step(self, state: State, generator: torch.Generator) -> tuple[State, list[Info]]:
        """One step of every chain, a function of its arguments.

        Arguments:
            state: C chains.
            generator: The only source of randomness.

        Returns:
            The next state, and one :class:`Info` an accept/reject step.
        """

    def adapted_to(self, infos: list[Info], generator: torch.Generator) -> Kernel:
        """The kernel that has learned from a step of its own; itself if it learns nothing.

        Arguments:
            infos: Of its last step.
            generator: Source of randomness.
        """
        return self

    def adapt(self, state: State, generator: torch.Generator) -> tuple[Kernel, State, list[Info]]:
        """A step of the warm-up: the step, and the kernel that has learned from it."""
        after, infos = self.step(state, generator)
        return self.adapted_to(infos, generator), after, infos

    def frozen(self) -> Kernel:
        """The kernel to go on with after warm-up: settings that it was trying out are settled."""
        return self

    def parts(self) -> list[Kernel]:
        """The kernels that it is made of; itself, if it is not."""
        return [self]

    def adapted(self) -> dict[str, Any]:
        """What warm-up has set, by name, in plain numbers."""
        return {}


def start(target: Target, code: Tensor, theta: Tensor) -> State:
    """The state of chains that sit at given points.

    Arguments:
        target: The target.
        code: Models, shape (C, L), int64.
        theta: Padded unconstrained coordinates, shape (C, D); spare slots are set to zero.
    """
    theta = torch.where(target.space.active(code), theta, 0.0)
    return State(code, theta, target.log_joint(code, theta))


def locate(state: State, transport: Transport, generator: torch.Generator) -> Point:
    """Where the chains lie under a transport: as remembered, else as pulled back.

    If it moves spare coordinates they are drawn afresh and belong to the point; else their
    entries have no meaning.
    """
    known = state.recall(transport)
    if known is not None and transport.spares_pass:
        return Point(transport, *known)
    return pulled(transport, state.theta, state.code, state.log_joint, generator)


def accept(
    kernel: str, state: State, proposed: State, log_ratio: Tensor, generator: torch.Generator
) -> tuple[State, list[Info]]:
    """Metropolis-Hastings: take the proposal with probability min(1, ratio).

    Proposals of zero or undefined density are rejected; the sampler reports the undefined.

    Arguments:
        kernel: Name for the record.
        state: Current state.
        proposed: Proposed state. The next state has a memo where both of these have one of the
            same owner.
        log_ratio: Shape (C,), nats.
        generator: Source of randomness.
    """
    u = torch.rand(
        log_ratio.shape, generator=generator, device=log_ratio.device, dtype=torch.float64
    )
    accepted = (u.log() < log_ratio) & (proposed.log_joint.abs() < math.inf)
    here, there, memo = state.memo, proposed.memo, None
    if here is not None and there is not None and here.owner is there.owner:
        pairs = zip(here.values, there.values, strict=True)
        memo = Memo(here.owner, tuple(_chosen(accepted, new, old) for old, new in pairs))
    after = State(
        code=_chosen(accepted, proposed.code, state.code),
        theta=_chosen(accepted, proposed.theta, state.theta),
        log_joint=torch.where(accepted, proposed.log_joint, state.log_joint),
        memo=memo,
    )
    return after, [Info(kernel, state, proposed, accepted, log_ratio)]


def _chosen(accepted: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """Chain by chain the new or the old, (C,) and (C, ...)."""
    if new is old:
        return old
    return torch.where(accepted.view(-1, *[1] * (new.ndim - 1)), new, old)
