"""What transport maps carry every posterior to."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from ..errors import ConfigurationError


class Reference(nn.Module, ABC):
    """A distribution of D independent, identical coordinates, and of auxiliary ones.

    Write your own: ``sample``, ``log_prob`` and ``refresh``.

    Attributes:
        auxiliary: Number of coordinates, after the D padded ones, by which a map chooses; see
            :class:`Extended`.
    """

    auxiliary: int = 0

    @abstractmethod
    def sample(
        self, shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype
    ) -> Tensor:
        """Draws on the generator's device, shape (..., D) -> (..., D + auxiliary)."""

    @abstractmethod
    def log_prob(self, z: Tensor) -> Tensor:
        """Log density of each coordinate, same shape as ``z``, nats."""

    def log_density(self, z: Tensor, used: Tensor) -> Tensor:
        """Log density of the padded coordinates in use, auxiliary ones left out.

        Arguments:
            z: Shape (..., D), or (..., D + auxiliary).
            used: Shape (..., D), bool.

        Returns:
            Shape (...), nats.
        """
        return torch.where(used, self.log_prob(z), 0.0).sum(-1)

    @abstractmethod
    def refresh(self, z: Tensor, rho: Tensor | float, generator: torch.Generator) -> Tensor:
        """A draw from a kernel that is reversible for the reference.

        Arguments:
            z: Current point, shape (..., D + auxiliary).
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
        if not isinstance(rho, Tensor) and rho == 1:
            return z
        rho = as_rho(rho, z)
        noise = self.sample(tuple(z.shape), generator, z.dtype)
        return rho * z + (1 - rho * rho).clamp(min=0).sqrt() * noise


def as_rho(rho: Tensor | float, like: Tensor) -> Tensor:
    """The correlation of a refreshment, in the precision and on the device of points."""
    if isinstance(rho, Tensor):
        return rho.to(like)
    return torch.full((), rho, dtype=like.dtype, device=like.device)  # nothing is copied there


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
        if not isinstance(rho, Tensor) and rho == 1:
            return z
        shape = tuple(z.shape)
        chi_square = self._chi_square(self.df + 1, shape, generator, z.dtype)
        precision = chi_square / (self.df + z * z)
        rho = as_rho(rho, z)
        noise = torch.randn(shape, generator=generator, device=generator.device, dtype=z.dtype)
        return rho * z + (1 - rho * rho).clamp(min=0).sqrt() * noise / precision.sqrt()


class TrainableStudentT(Reference):
    """Student-t coordinates, each with degrees of freedom of its own that training learns.

    Tails of the coordinates are then part of what a fit finds. All models share them: what a jump
    adds or leaves out is drawn from the same reference.

    Arguments:
        dim: Number of padded coordinates, D.
        df: Degrees of freedom at the start, above 1.

    Attributes:
        df: Degrees of freedom, shape (D,), above 1; learned by any objective.

    Source:
        Andrade (2024), https://arxiv.org/abs/2402.16408

    Example:
        >>> reference = TrainableStudentT(3, df=5.0)
        >>> [round(x, 3) for x in reference.df.tolist()]
        [5.0, 5.0, 5.0]
        >>> reference.sample((4, 3), torch.Generator().manual_seed(0), torch.float32).shape
        torch.Size([4, 3])
    """

    def __init__(self, dim: int, df: float = 5.0) -> None:
        super().__init__()
        if not df > 1:
            raise ConfigurationError(f"df: expected more than 1, got {df}")
        self.log_excess = nn.Parameter(torch.full((dim,), math.log(df - 1)))

    @property
    def df(self) -> Tensor:
        return 1 + self.log_excess.exp()

    def _precision(self, half: Tensor, generator: torch.Generator) -> Tensor:
        """Gamma draws of unit rate and of these shapes, differentiable in them."""
        return torch._standard_gamma(half, generator=generator)

    def sample(
        self, shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype
    ) -> Tensor:
        normal = torch.randn(shape, generator=generator, device=generator.device, dtype=dtype)
        half = (self.df / 2).to(dtype)
        return normal * (half / self._precision(half.expand(shape), generator)).sqrt()

    def log_prob(self, z: Tensor) -> Tensor:
        v = self.df.to(z.dtype)
        constant = torch.lgamma((v + 1) / 2) - torch.lgamma(v / 2) - 0.5 * (v * math.pi).log()
        return constant - (v + 1) / 2 * torch.log1p(z * z / v)

    def refresh(self, z: Tensor, rho: Tensor | float, generator: torch.Generator) -> Tensor:
        if not isinstance(rho, Tensor) and rho == 1:
            return z
        v = self.df.to(z.dtype)
        precision = self._precision(((v + 1) / 2).expand(z.shape), generator)
        precision = precision / ((v + z * z) / 2)
        rho = as_rho(rho, z)
        noise = torch.randn(
            tuple(z.shape), generator=generator, device=generator.device, dtype=z.dtype
        )
        return rho * z + (1 - rho * rho).clamp(min=0).sqrt() * noise / precision.sqrt()


class Extended(Reference):
    """A reference with standard normal coordinates added, by which a map chooses.

    Arguments:
        inner: The reference of the other coordinates; it may have auxiliary ones of its own.
        number: Coordinates to add.
        sticky: Whether a small refresh tends to keep the choice; else each draws it afresh.

    Example:
        >>> reference = Extended(StudentT(5), 2)
        >>> z = reference.sample((4, 3), torch.Generator().manual_seed(0), torch.float32)
        >>> z.shape, reference.auxiliary
        (torch.Size([4, 5]), 2)
    """

    def __init__(self, inner: Reference, number: int, *, sticky: bool = True) -> None:
        super().__init__()
        self.inner, self.chooser = inner, Gaussian()
        self.number, self.sticky = number, sticky
        self.auxiliary = inner.auxiliary + number

    def sample(
        self, shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype
    ) -> Tensor:
        z = self.inner.sample(shape, generator, dtype)
        return torch.cat([z, self.chooser.sample((*shape[:-1], self.number), generator, dtype)], -1)

    def log_prob(self, z: Tensor) -> Tensor:
        inner, added = self._apart(z)
        return torch.cat([self.inner.log_prob(inner), self.chooser.log_prob(added)], -1)

    def log_density(self, z: Tensor, used: Tensor) -> Tensor:
        return self.inner.log_density(z[..., : used.shape[-1]], used)

    def refresh(self, z: Tensor, rho: Tensor | float, generator: torch.Generator) -> Tensor:
        inner, added = self._apart(z)
        inner = self.inner.refresh(inner, rho, generator)
        added = self.chooser.refresh(added, rho if self.sticky else 0.0, generator)
        return torch.cat([inner, added], -1)

    def _apart(self, z: Tensor) -> tuple[Tensor, Tensor]:
        middle = z.shape[-1] - self.number
        return z[..., :middle], z[..., middle:]
