"""The transport interface, and the reference distributions that maps end in."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from zuko.nn import MLP, MaskedMLP

from ..errors import ConfigurationError
from ..space import Space


class Reference(nn.Module, ABC):
    """A distribution with independent, identical coordinates."""

    @abstractmethod
    def sample(
        self, shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype
    ) -> Tensor:
        """Draws on the generator's device."""

    @abstractmethod
    def log_prob(self, z: Tensor) -> Tensor:
        """Log density of each coordinate, same shape as ``z``, nats."""

    def log_density(self, z: Tensor, used: Tensor) -> Tensor:
        """Log density of the coordinates in use, (..., D) and (..., D) bool -> (...), nats."""
        return torch.where(used, self.log_prob(z), 0.0).sum(-1)

    @abstractmethod
    def refresh(self, z: Tensor, rho: Tensor | float, generator: torch.Generator) -> Tensor:
        """A draw from a kernel that is reversible for the reference.

        Arguments:
            z: Current point, any shape.
            rho: Correlation in [0, 1], broadcast against ``z``: 1 returns ``z``, 0 a fresh draw.
            generator: Source of randomness.
        """


class Gaussian(Reference):
    """Normal coordinates; ``refresh`` is the preconditioned Crank-Nicolson step.

    Arguments:
        scale: Standard deviation.

    Source:
        Cotter, Roberts, Stuart & White (2013), https://doi.org/10.1214/13-STS421

    Example:
        >>> g = torch.Generator().manual_seed(0)
        >>> z = Gaussian().sample((4, 2), g, torch.float32)
        >>> bool((Gaussian().refresh(z, 1.0, g) == z).all())
        True
    """

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        if not scale > 0:
            raise ConfigurationError(f"scale: expected a positive number, got {scale}")
        self.scale = float(scale)

    def sample(
        self, shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype
    ) -> Tensor:
        noise = torch.randn(shape, generator=generator, device=generator.device, dtype=dtype)
        return self.scale * noise

    def log_prob(self, z: Tensor) -> Tensor:
        return -0.5 * (z / self.scale).square() - 0.5 * math.log(2 * math.pi * self.scale**2)

    def log_density(self, z: Tensor, used: Tensor) -> Tensor:
        squares = torch.where(used, z, 0.0).square().sum(-1)  # few passes over a large tensor
        constant = 0.5 * math.log(2 * math.pi * self.scale**2)
        return -0.5 / self.scale**2 * squares - constant * used.sum(-1, dtype=z.dtype)

    def refresh(self, z: Tensor, rho: Tensor | float, generator: torch.Generator) -> Tensor:
        rho = torch.as_tensor(rho, dtype=z.dtype, device=z.device)
        noise = self.sample(tuple(z.shape), generator, z.dtype)
        return rho * z + (1 - rho * rho).clamp(min=0).sqrt() * noise


class StudentT(Reference):
    """Student-t coordinates, for posteriors with heavy tails.

    ``refresh`` draws the precision of the normal scale mixture given z, then moves z by the
    Gaussian step at that precision: reversible for each precision, hence for their mixture.

    Arguments:
        df: Degrees of freedom, a positive integer.

    Example:
        >>> StudentT(5).log_prob(torch.zeros(3)).shape
        torch.Size([3])
    """

    def __init__(self, df: int = 5) -> None:
        super().__init__()
        if df < 1 or int(df) != df:
            raise ConfigurationError(f"df: expected a positive integer, got {df!r}")
        self.df = int(df)

    def _chi_square(
        self, df: int, shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype
    ) -> Tensor:
        normal = torch.randn((df, *shape), generator=generator, device=generator.device)
        return normal.to(dtype).square().sum(0)

    def sample(
        self, shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype
    ) -> Tensor:
        normal = torch.randn(shape, generator=generator, device=generator.device, dtype=dtype)
        precision = self._chi_square(self.df, shape, generator, dtype) / self.df
        return normal / precision.sqrt()

    def log_prob(self, z: Tensor) -> Tensor:
        v = self.df
        constant = math.lgamma((v + 1) / 2) - math.lgamma(v / 2) - 0.5 * math.log(v * math.pi)
        return constant - (v + 1) / 2 * torch.log1p(z * z / v)

    def refresh(self, z: Tensor, rho: Tensor | float, generator: torch.Generator) -> Tensor:
        shape = tuple(z.shape)
        chi_square = self._chi_square(self.df + 1, shape, generator, z.dtype)
        precision = chi_square / (self.df + z * z)
        rho = torch.as_tensor(rho, dtype=z.dtype, device=z.device)
        noise = torch.randn(shape, generator=generator, device=generator.device, dtype=z.dtype)
        return rho * z + (1 - rho * rho).clamp(min=0).sqrt() * noise / precision.sqrt()


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
