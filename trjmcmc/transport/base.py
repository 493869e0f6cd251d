"""The transport interface, and the reference distributions that maps end in."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from zuko.nn import MLP, MaskedMLP

from ..space.base import Space
from .reference import Gaussian, Reference

VAGUE = 0.05  # nats by which rounding may change a map's log density


def log_weight(log_joint: Tensor, log_q: Tensor, unknown: float) -> Tensor:
    """log pi - log q, (C,), and ``unknown`` where log q is too large to be known to a few percent.

    Rounding would make a ratio of such densities up: no move may lead to them, nor from them.
    """
    vague = log_q.abs() * torch.finfo(log_q.dtype).eps > VAGUE
    return torch.where(vague, unknown, log_joint - log_q)


class Transport(nn.Module, ABC):
    """A density for every model, and a way to it from one reference distribution.

    A reference point has the D coordinates of the padded space and ``auxiliary`` more, which
    choose between several maps (:class:`Mixture`). Most maps are one bijection a model:
    derive those from :class:`Bijection`.

    Attributes:
        space: The bound model space, pure data.
        reference: The distribution that posteriors are carried to.
        spares_pass: Whether coordinates that a model does not use pass through unchanged, so
            that the density of a model's own coordinates is known exactly.
        auxiliary: Number of reference coordinates beyond the padded ones.
    """

    spares_pass: bool = True
    auxiliary: int = 0

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
        """Log density of the active coordinates under the map, shape (C,), nats."""

    def log_choice(self, z: Tensor, code: Tensor) -> Tensor:
        """Log-probability of what the auxiliary coordinates of ``z`` choose, shape (C,)."""
        return z.new_zeros(len(z))

    def sample_reference(self, n: int, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
        """Draws of the reference, shape (n, D + auxiliary)."""
        return self.reference.sample((n, self.space.n_slots), generator, dtype)

    def refresh(self, z: Tensor, rho: Tensor | float, generator: torch.Generator) -> Tensor:
        """A draw from a kernel that is reversible for the reference; see :class:`Reference`."""
        return self.reference.refresh(z, rho, generator)

    def log_nu(self, z: Tensor, code: Tensor) -> Tensor:
        """Log reference density of the coordinates that each model uses, shape (C,), nats."""
        return self.reference.log_density(z, self.space.active(code))

    def calibrate(self, code: Tensor, loc: Tensor, scale: Tensor) -> None:
        """Take a first guess of location and scale of the models' coordinates, if it helps.

        Arguments:
            code: Models, shape (M, L).
            loc: Locations, shape (M, D).
            scale: Positive scales, shape (M, D).
        """

    def unwrap(self, code: Tensor, theta: Tensor) -> tuple[Transport, Tensor]:
        """What to :meth:`calibrate` where there are posterior draws, and in which coordinates.

        Arguments:
            code: Models of the draws, shape (N, L).
            theta: The draws, shape (N, D).

        Returns:
            The map inside and the draws in its coordinates, (N, D): itself and ``theta``,
            except where coordinates are arranged before a map sees them.
        """
        return self, theta


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
            return self.log_nu(z, code)
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


def zero_last(net: MLP | MaskedMLP) -> MLP | MaskedMLP:
    """Zero the last layer, so that the net answers 0 at the start."""
    last = net[-1]
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return net
