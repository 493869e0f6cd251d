"""Nine energies in the plane: densities with ridges, bends and modes that flows are tried on."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor
from torch.distributions import Normal

from ..errors import TargetError
from ..target.model import Model, Truth
from ..target.target import Target

SPREAD = 5.0  # standard deviation of the prior, which the likelihood divides out

LOW, HIGH = (-26.0, -12.0), (28.0, 12.0)  # of the lattice; less than 1e-13 of any mass is outside

STEP = 0.04  # of the lattice, a ninth of the narrowest width

BOUND = 1.05  # of the density over its interpolation; 1.024 is the most that was found


def _halved(distance: Tensor, width: float) -> Tensor:
    return -0.5 * (distance / width).square()


def _u1(z: Tensor) -> Tensor:
    ring = _halved(torch.linalg.vector_norm(z, dim=-1) - 2, 0.4)
    return ring + torch.logaddexp(_halved(z[:, 0] - 2, 0.6), _halved(z[:, 0] + 2, 0.6))


def _u2(z: Tensor) -> Tensor:
    ring = _halved(torch.linalg.vector_norm(z, dim=-1) / math.sqrt(2) - 2, 0.5)
    across = torch.logaddexp(_halved(z[:, 0] - 2, 0.6), _halved(z[:, 0] + z[:, 1] + 2.5, 0.6))
    return ring + torch.logaddexp(across, _halved(z[:, 0].sin(), 0.5))


def _u3(z: Tensor) -> Tensor:
    scaled = torch.stack([z[:, 0], z[:, 1] / math.sqrt(2)], -1)
    return -(2 - torch.linalg.vector_norm(scaled, dim=-1)).square()


WEIGHTS = (0.1, 0.3, 0.4, 0.2)

MEANS = ((-5.0, 0.0), (5.0, 0.0), (0.0, 5.0), (0.0, -5.0))

VARIANCE = 1.5


def _u4(z: Tensor) -> Tensor:
    gap = (2 * z[:, None] - z.new_tensor(MEANS)).square().sum(-1)
    log_weight = z.new_tensor(WEIGHTS).log() + 2.5 - math.log(2 * math.pi * VARIANCE)
    return (log_weight - 0.5 * gap / VARIANCE).logsumexp(-1)


def _wave(z: Tensor) -> Tensor:
    return (0.5 * math.pi * z[:, 0]).sin()


def _u5(z: Tensor) -> Tensor:
    return _halved(z[:, 1] - _wave(z), 0.4) - 0.1 * z[:, 0].square()


def _u6(z: Tensor) -> Tensor:
    above = z[:, 1] - _wave(z)
    below = above + 3 * (-0.5 * (z[:, 0] - 2).square()).exp()
    return torch.logaddexp(_halved(above, 0.35), _halved(below, 0.35)) - 0.05 * z[:, 0].square()


def _u7(z: Tensor) -> Tensor:
    gap = (z[:, 0] - 2).square()
    above = z[:, 1] - (0.35 * math.pi * z[:, 0]).cos()
    below = above + 2 * (-0.8 * gap).exp()
    return torch.logaddexp(_halved(above, 0.35), _halved(below, 0.35)) - 0.1 * gap


def _fork(z: Tensor, centre: tuple[float, float]) -> Tensor:
    above = z[:, 1] - _wave(z)
    below = above + 2.5 * ((z[:, 0] - 2) / 0.3).sigmoid()
    gap = (z[:, 0] - centre[0]).square() + (z[:, 1] - centre[1]).square()
    return torch.logaddexp(_halved(above, 0.4), _halved(below, 0.35)) - 0.05 * gap


def _u8(z: Tensor) -> Tensor:
    return torch.logaddexp(_fork(z, (2.0, -3.0)), -2.5 * (z - 2).square().sum(-1))


def _u9(z: Tensor) -> Tensor:
    return torch.logaddexp(_fork(z, (0.0, 0.0)), 2 * _u3(1.5 * z - 2)) - 1


LOG_DENSITIES: dict[str, Callable[[Tensor], Tensor]] = {
    "U1": _u1,
    "U2": _u2,
    "U3": _u3,
    "U4": _u4,
    "U5": _u5,
    "U6": _u6,
    "U7": _u7,
    "U8": _u8,
    "U9": _u9,
}

ENERGIES = tuple(LOG_DENSITIES)


def energy(name: str) -> Energy:
    """One of nine densities in the plane, unnormalised, whose constants are known.

    U1 is a ring cut into two arcs, U2 a ring cut by three ridges, U3 an ellipse, U4 four
    normals of weights 0.1, 0.3, 0.4, 0.2, U5 a sine, U6 and U7 a wave that splits and closes
    again, U8 and U9 waves that fork, beside a blob and a small ellipse.

    Arguments:
        name: ``"U1"`` to ``"U9"``, those of ``ENERGIES``.

    Returns:
        A target of one model of that name with parameter ``z`` (2,); see :class:`Energy`.

    Raises:
        TargetError: There is no such energy.

    Source:
        U1, U2, after Rezende & Mohamed (2015), https://arxiv.org/abs/1505.05770; all nine:
        Premchandar (2024), Normalizing flows aided variational inference, thesis, Michigan
        State University, section 2.6.2

    Example:
        >>> round(math.exp(energy("U4").log_evidence), 4)
        3.0456
    """
    if name not in LOG_DENSITIES:
        raise TargetError(f"name: expected one of {', '.join(ENERGIES)}, got {name!r}")
    return Energy(name)


class Energy(Target):
    """A density in the plane with its normalising constant, and independent draws.

    The prior of ``z`` is N(0, 5^2), and the likelihood the density over it: their product is
    the density, while tempered runs begin at a normal.

    Arguments:
        name: One of ``ENERGIES``.

    Attributes:
        name: As given.
        log_evidence: Log of the integral of the density over the plane, nats, by the
            trapezoid rule.

    Error:
        Of the log evidence below 1e-6 nats.

    Example:
        >>> target = energy("U5")
        >>> x = target.exact_draws(1000, torch.Generator().manual_seed(0))
        >>> x.shape, round(target.log_prob(torch.zeros(1, 2)).item(), 4)
        (torch.Size([1000, 2]), -1.7263)
    """

    def __init__(self, name: str) -> None:
        self.name, self._log_density = name, LOG_DENSITIES[name]
        self.log_evidence = math.log(float(_lattice(name).sum()) * STEP**2)
        prior = Normal(torch.zeros(2), SPREAD)

        def log_likelihood(params: dict[str, Tensor]) -> Tensor:
            z = params["z"]
            constant = 2 * math.log(SPREAD * math.sqrt(2 * math.pi))
            return self._log_density(z) + 0.5 * z.square().sum(-1) / SPREAD**2 + constant

        truth = Truth({name: 1.0}, {name: self.log_evidence}, "trapezoid rule, error below 1e-6")
        super().__init__([Model(name, {"z": prior}, log_likelihood)], truth=truth)

    def log_density(self, z: Tensor) -> Tensor:
        """The density as published, not normalised, (n, 2) -> (n,), nats."""
        return self._log_density(z)

    def log_prob(self, z: Tensor) -> Tensor:
        """The density whose integral is 1, (n, 2) -> (n,), nats."""
        return self._log_density(z) - self.log_evidence

    def exact_draws(self, n: int, generator: torch.Generator) -> Tensor:
        """Independent draws.

        A draw is a node of the lattice and a triangular displacement, whose density is the
        bilinear interpolation between nodes; it is kept with the probability that turns this
        into the density itself, so that no error of the lattice remains but the mass outside
        it, below 1e-13.

        Arguments:
            n: How many.
            generator: Of the draws, on the CPU.

        Returns:
            Shape (n, 2), float64.
        """
        lattice = _lattice(self.name)
        cumulative = lattice.flatten().cumsum(0)
        low = torch.tensor(LOW, dtype=torch.float64)
        kept, found = [low.new_zeros(0, 2)], 0
        while found < n:
            u = torch.rand(int(1.1 * (n - found)) + 10, 6, generator=generator, dtype=torch.float64)
            node = torch.searchsorted(cumulative, u[:, 0] * cumulative[-1], right=True)
            place = torch.stack([node // lattice.shape[1], node % lattice.shape[1]], -1)
            place = place + u[:, 1:3] + u[:, 3:5] - 1
            z = low + STEP * place
            ratio = self._log_density(z).exp() / _interpolated(lattice, place)
            kept.append(z[u[:, 5] * BOUND < ratio])
            found += len(kept[-1])
        return torch.cat(kept)[:n]


@cache
def _lattice(name: str) -> Tensor:
    """The density at the nodes, the edge set to zero, float64."""
    axes = [
        torch.arange(round((high - low) / STEP) + 1, dtype=torch.float64) * STEP + low
        for low, high in zip(LOW, HIGH, strict=True)
    ]
    value: Tensor = LOG_DENSITIES[name](torch.cartesian_prod(*axes)).exp()
    value = value.view(len(axes[0]), len(axes[1]))
    value[[0, -1]] = 0.0
    value[:, [0, -1]] = 0.0
    return value


def _interpolated(lattice: Tensor, place: Tensor) -> Tensor:
    """Bilinear interpolation, at places in units of steps, (n, 2) -> (n,)."""
    corner = place.floor()
    right, up = (place - corner).unbind(-1)
    i, j = corner.long().unbind(-1)
    left = lattice[i, j] * (1 - up) + lattice[i, j + 1] * up
    return left * (1 - right) + (lattice[i + 1, j] * (1 - up) + lattice[i + 1, j + 1] * up) * right
