"""The transport interface: what a map has to offer, and where chains lie under it.

To add a map, derive from :class:`Bijection` and write both directions, each with its
log-determinant; densities, spare coordinates and the reference are taken care of. A scale in each
coordinate, for all models alike:

    >>> import torch
    >>> from trjmcmc import problems
    >>> class Scale(Bijection):
    ...     def __init__(self, space, factor):
    ...         super().__init__(space)  # and a reference, unless it is standard normal
    ...         self.factor = torch.nn.Parameter(torch.tensor(factor))
    ...     def to_reference(self, theta, code):
    ...         active = self.space.active(code)  # spare coordinates pass unchanged
    ...         ladj = -active.sum(-1) * self.factor.log()
    ...         return torch.where(active, theta / self.factor, theta), ladj
    ...     def from_reference(self, z, code):
    ...         active = self.space.active(code)
    ...         ladj = active.sum(-1) * self.factor.log()
    ...         return torch.where(active, self.factor * z, z), ladj
    >>> flow = Scale(problems.sinh_arcsinh().space, 2.0)
    >>> theta, log_q = flow.push(torch.ones(1, 2), torch.tensor([[1]]))
    >>> theta.tolist(), round(log_q.item(), 4)
    ([[2.0, 2.0]], -4.2242)

A map that is not one bijection a model derives from :class:`Transport` and writes ``push``,
``pull`` and ``log_prob``; one with auxiliary coordinates derives from :class:`Choosing`. A map
whose coordinates have units that a fit should set first has a method ``standardise``
(:class:`Standardisable`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from zuko.nn import MLP, MaskedMLP

from ..space.base import Space
from .reference import Gaussian, Reference

VAGUE = 0.05  # nats by which rounding may change a map's log density


class Transport(nn.Module, ABC):
    """A density for every model, and a way to it from one reference distribution.

    A reference point has the D coordinates of the padded space, and the auxiliary ones of the
    reference, by which a map may choose (:class:`MixtureOfMaps`). Most maps are one bijection a
    model: derive those from :class:`Bijection`.

    Arguments:
        space: The bound model space.
        reference: Standard normal if omitted.

    Attributes:
        space: The bound model space, pure data.
        reference: The distribution that posteriors are carried to.
        spares_pass: Whether coordinates that a model does not use pass through unchanged, so
            that the density of a model's own coordinates is known exactly.
    """

    spares_pass: bool = True

    def __init__(self, space: Space, reference: Reference | None = None) -> None:
        super().__init__()
        self.space = space
        self.reference = reference if reference is not None else Gaussian()

    @abstractmethod
    def push(self, z: Tensor, code: Tensor) -> tuple[Tensor, Tensor]:
        """Carry reference points to parameters.

        Arguments:
            z: Reference points, shape (C, D + auxiliary).
            code: Models, shape (C, L).

        Returns:
            theta, shape (C, D), and the log density of its active coordinates under the map,
            shape (C,), nats.
        """

    @abstractmethod
    def pull(
        self, theta: Tensor, code: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Find a reference point of each theta: a draw from all that lead there.

        Arguments:
            theta: Padded unconstrained coordinates, shape (C, D).
            code: Models, shape (C, L).
            generator: Source of randomness.

        Returns:
            z, shape (C, D + auxiliary), and the log density of theta under the map, (C,), nats.
        """

    @abstractmethod
    def log_prob(self, theta: Tensor, code: Tensor) -> Tensor:
        """Log density of the active coordinates under the map, shape (C,), nats.

        Where the map moves spare coordinates those of ``theta`` count: it is the log of a factor
        whose mean over reference draws of them is the density. See :meth:`with_spares`.
        """

    def with_spares(
        self, theta: Tensor, code: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """Points with reference draws in their spare coordinates, if the map moves these.

        Recorded draws have zeros there, which such a map knows nothing of.

        Arguments:
            theta: Padded unconstrained coordinates, shape (C, D).
            code: Models, shape (C, L).
            generator: Source of randomness; the same numbers each time if omitted.

        Returns:
            Shape (C, D); ``theta`` itself where spare coordinates pass through.

        Source:
            The saturated space of Davies et al. (2023), https://arxiv.org/abs/2210.12572; Yin &
            Jiao, https://arxiv.org/abs/2512.12742, eq. 7
        """
        if self.spares_pass:
            return theta
        if generator is None:
            generator = torch.Generator(theta.device).manual_seed(0)
        spare = self.reference.sample(tuple(theta.shape), generator, theta.dtype)
        return torch.where(self.space.active(code), theta, spare[:, : theta.shape[1]])


class Choosing(Transport):
    """A map whose auxiliary coordinates choose: among maps, or among orders of components."""

    @abstractmethod
    def log_choice(self, z: Tensor, code: Tensor) -> Tensor:
        """Log-probability of what the auxiliary coordinates of ``z`` choose, shape (C,), nats.

        It is differentiable in the map's parameters: reverse KL learns the probabilities by it.
        """


@runtime_checkable
class Standardisable(Protocol):
    """A map with units of its own, which a fit sets before it trains."""

    def standardise(self, code: Tensor, loc: Tensor, scale: Tensor) -> None:
        """Take a first guess of location and scale of the models' coordinates.

        Arguments:
            code: Models, shape (M, L).
            loc: Locations, shape (M, D), unconstrained coordinates.
            scale: Positive scales, shape (M, D).
        """


class Bijection(Transport):
    """A bijection of the padded coordinates for every model: parameters to reference and back.

    Derive your own maps from this: both directions, each with its log-determinant.
    """

    @abstractmethod
    def to_reference(self, theta: Tensor, code: Tensor) -> tuple[Tensor, Tensor]:
        """Carry parameters to the reference.

        Arguments:
            theta: Padded unconstrained coordinates, shape (C, D).
            code: Models, shape (C, L).

        Returns:
            z, shape (C, D), and log|det dz/dtheta|, shape (C,).
        """

    @abstractmethod
    def from_reference(self, z: Tensor, code: Tensor) -> tuple[Tensor, Tensor]:
        """Carry reference points to parameters.

        Arguments:
            z: Reference points, shape (C, D).
            code: Models, shape (C, L).

        Returns:
            theta, shape (C, D), and log|det dtheta/dz|, shape (C,).
        """

    def _log_density(self, z: Tensor, theta: Tensor, code: Tensor) -> Tensor:
        if self.spares_pass:
            return self.reference.log_density(z, self.space.active(code))
        # averaged over the spare coordinates by one draw of them: right in ratios
        spare = torch.where(self.space.active(code), 0.0, self.reference.log_prob(theta))
        return (self.reference.log_prob(z) - spare).sum(-1)

    def push(self, z: Tensor, code: Tensor) -> tuple[Tensor, Tensor]:
        theta, ladj = self.from_reference(z, code)
        return theta, self._log_density(z, theta, code) - ladj

    def pull(
        self, theta: Tensor, code: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        z, ladj = self.to_reference(theta, code)
        return z, self._log_density(z, theta, code) + ladj

    def log_prob(self, theta: Tensor, code: Tensor) -> Tensor:
        z, ladj = self.to_reference(theta, code)
        return self._log_density(z, theta, code) + ladj


class Identity(Bijection):
    """theta = z: moves in plain unconstrained coordinates."""

    def to_reference(self, theta: Tensor, code: Tensor) -> tuple[Tensor, Tensor]:
        return theta, theta.new_zeros(len(theta))

    def from_reference(self, z: Tensor, code: Tensor) -> tuple[Tensor, Tensor]:
        return z, z.new_zeros(len(z))


class Point(NamedTuple):
    """Where chains lie under a transport.

    Attributes:
        transport: The map that ``z`` belongs to.
        z: Reference coordinates, shape (C, D + auxiliary); entries of spare slots have no
            meaning.
        log_weight: Log importance weight log pi(theta, m) - log q(theta | m), with pi the
            unnormalised joint density and q the map's, shape (C,), nats.
    """

    transport: Transport
    z: Tensor
    log_weight: Tensor


def pulled(
    transport: Transport,
    theta: Tensor,
    code: Tensor,
    log_joint: Tensor,
    generator: torch.Generator,
) -> Point:
    """Where chains lie under a transport.

    If it moves spare coordinates they are drawn afresh and belong to the point; else their
    entries have no meaning.

    Arguments:
        transport: The map.
        theta: Padded unconstrained coordinates, shape (C, D).
        code: Models, shape (C, L).
        log_joint: Shape (C,), nats.
        generator: Source of randomness.
    """
    theta = transport.with_spares(theta, code, generator)
    z, log_q = transport.pull(theta, code, generator)
    return Point(transport, z, log_weight(log_joint, log_q, math.inf))


def log_weight(log_joint: Tensor, log_q: Tensor, unknown: float) -> Tensor:
    """log pi - log q, (C,), and ``unknown`` where log q is too large to be known to a few percent.

    Rounding would make a ratio of such densities up: no move may lead to them, nor from them.
    """
    vague = log_q.abs() > VAGUE / torch.finfo(log_q.dtype).eps
    return torch.where(vague, unknown, log_joint - log_q)


def zero_last(net: MLP | MaskedMLP) -> MLP | MaskedMLP:
    """Zero the last layer, so that the net answers 0 at the start."""
    last = net[-1]
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return net
