"""How many planets pull at a star?"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Uniform

from ..errors import ShapeError, TargetError
from ..priors.fields import LogUniform, ModifiedJeffreys, Periodic, Rayleigh
from ..space.counts import Counts
from ..target.additive import Additive
from ..target.target import Target
from .regression import Constants

PERIOD = (1.25, 1e4)  # days

MOST_ECCENTRIC = 0.999  # orbits are computed up to here

ITERATIONS = 4  # of Danby's fourth order: 1e-6 radians up to eccentricities of .99

WATCHED = 200.0  # days of simulated data

DRAWN = (4.0, 12.0)  # amplitudes of planets that are drawn, m/s

# period (days), amplitude (m/s), eccentricity, argument of periastron, mean anomaly at time 0
SIMULATED = ((12.3, 8.0, 0.1, 1.0, 2.0), (51.0, 4.0, 0.2, 4.0, 5.0))


class QuasiPeriodic(NamedTuple):
    """Covariance of what a rotating star adds to its velocity.

    Attributes:
        variance: Of the velocity, (m/s)^2.
        period: Of the rotation, days.
        roughness: Length scale within a period, relative.
        decay: Days over which spots live.
    """

    variance: float = 3.0
    period: float = 20.0
    roughness: float = 0.5
    decay: float = 50.0

    def covariance(self, time: Tensor) -> Tensor:
        """Of times (n,), shape (n, n), (m/s)^2."""
        gap = time[:, None] - time
        wave = (math.pi * gap / self.period).sin() / self.roughness
        return self.variance * torch.exp(-0.5 * (wave.square() + (gap / self.decay).square()))


class RadialVelocityTarget(Target):
    """A target that holds its data.

    Arguments:
        model: What a target is made of.
        time, velocity, error: The data, shape (n,) each; days and m/s.
        planets_true: Periods, amplitudes, eccentricities, arguments of periastron and mean
            anomalies that the data were simulated with, if they were, shape (k, 5).
    """

    def __init__(
        self,
        *model: Any,
        time: Tensor,
        velocity: Tensor,
        error: Tensor,
        planets_true: Tensor | None,
    ) -> None:
        super().__init__(*model)
        self.time, self.velocity, self.error = time, velocity, error
        self.planets_true = planets_true


def eccentric_anomaly(mean: Tensor, eccentricity: Tensor) -> Tensor:
    """Solution E of Kepler's equation, E - e sin E = M, by a fixed number of steps.

    Differentiable: the last step is Newton's, with the slope that the solution has.

    Arguments:
        mean: Mean anomalies M, radians, any shape.
        eccentricity: e in [0, 1), of a shape that broadcasts.

    Returns:
        E in radians, within pi of zero: whole turns are taken off.

    Source:
        Danby (1988), Fundamentals of Celestial Mechanics, section 6.6

    Example:
        >>> m, e = torch.linspace(-3, 3, 50), torch.tensor(0.7)
        >>> x = eccentric_anomaly(m, e)
        >>> torch.allclose(x - e * x.sin(), m, atol=1e-6)
        True
    """
    mean = mean - 2 * math.pi * (mean / (2 * math.pi)).round()
    with torch.no_grad():
        x = mean + 0.85 * eccentricity * mean.sign()
        for _ in range(ITERATIONS):
            f3, f2 = eccentricity * x.cos(), eccentricity * x.sin()
            f, f1 = x - f2 - mean, 1 - f3
            step = -f / f1
            step = -f / (f1 + 0.5 * step * f2)
            x = x - f / (f1 + 0.5 * step * f2 + step.square() * f3 / 6)
    return x - (x - eccentricity * x.sin() - mean) / (1 - eccentricity * x.cos()).detach()


def velocity_of(p: dict[str, Tensor], time: Tensor) -> Tensor:
    """Velocity that planets give their star, one row a planet.

    Arguments:
        p: ``period`` (days), ``amplitude`` (m/s), ``eccentricity``, ``periastron`` (its argument,
            radians) and ``anomaly`` (mean, at time 0, radians), each of shape (N,).
        time: Days, shape (n,).

    Returns:
        Shape (N, n), m/s.

    Example:
        >>> one = {k: torch.tensor([v]) for k, v in dict(
        ...     period=10.0, amplitude=3.0, eccentricity=0.0, periastron=0.0, anomaly=0.0).items()}
        >>> velocity_of(one, torch.tensor([0.0, 5.0])).round(decimals=4)
        tensor([[ 3., -3.]])
    """
    e = p["eccentricity"].clamp(max=MOST_ECCENTRIC)[:, None]
    mean = p["anomaly"][:, None] + 2 * math.pi * time / p["period"][:, None]
    x = eccentric_anomaly(mean, e)
    cos, sin = x.cos(), x.sin()
    k, w = p["amplitude"], p["periastron"]
    along, across = (k * w.cos())[:, None], (k * w.sin())[:, None]
    near = 1 - e * cos
    return along * ((cos - e) / near + e) - across * (1 - e * e).sqrt() * sin / near


def radial_velocity(
    time: Any = None,
    velocity: Any = None,
    error: Any = None,
    *,
    most: int = 3,
    period: tuple[float, float] = PERIOD,
    correlated: QuasiPeriodic | None = None,
    epochs: int = 60,
    true: int | None = None,
    seed: int = 0,
) -> RadialVelocityTarget:
    """Keplerian orbits of 0 to ``most`` planets, equally likely, in radial velocities.

    Priors are those of the EPRV3 evidence challenge: periods are log-uniform, amplitudes have a
    modified Jeffreys prior (1 to 999 m/s), eccentricities are Rayleigh (0.2, cut at 1), angles are
    uniform; an offset is uniform within 1000 m/s, and a jitter, with a modified Jeffreys prior
    (1 to 99 m/s), adds to the errors. Times are counted from their mean.

    Arguments:
        time: Days, shape (n,); simulated if omitted, with two planets and errors of 2 m/s.
        velocity: m/s, shape (n,).
        error: Standard errors, m/s, shape (n,) or one number.
        most: Largest number of planets.
        period: Shortest and longest period, days.
        correlated: Covariance of what the star adds; None of white noise.
        epochs: n, of simulated data.
        true: Planets of simulated data, drawn with periods within the 200 days and amplitudes of 4
            to 12 m/s, log-uniformly; None of two planets that are the same for every seed.
        seed: Of the simulated data.

    Returns:
        A target over ``Counts`` with ``period``, ``amplitude``, ``eccentricity``, ``periastron``
        and ``anomaly`` of each planet and the shared ``offset`` and ``jitter``. The likelihood is
        :class:`trjmcmc.Additive`; correlated noise costs a rotation of what a planet adds, for its
        covariance is diagonalised once. Its truth is None.

    Raises:
        ShapeError: The data do not fit together.
        TargetError: A number in the data is not finite, an error not positive; a setting out of
            range.

    Source:
        Nelson et al. (2020), https://doi.org/10.3847/1538-3881/ab5190

    Example:
        >>> target = radial_velocity()
        >>> target.space.size, target.dim, target.planets_true.shape
        (4, 17, torch.Size([2, 5]))
        >>> radial_velocity(true=3, seed=1).planets_true[:, 0].round(decimals=1)  # days
        tensor([ 5.0000, 33.1000, 86.8000], dtype=torch.float64)
    """
    if min(most, epochs) < 1 or (true or 0) < 0 or not 0 < period[0] < min(period[1], WATCHED):
        raise TargetError(
            "most, epochs, true, period: expected at least 1, at least 1, 0 or more, and shortest "
            f"< longest, shortest < {WATCHED:.0f} days, got {most}, {epochs}, {true} and {period}"
        )
    found = None
    if velocity is None:
        rng = np.random.default_rng(seed)
        time = np.sort(rng.uniform(0.0, WATCHED, epochs))
        time -= time.mean()
        found = torch.tensor(SIMULATED, dtype=torch.float64)
        found = found if true is None else _drawn(true, period, rng)
        names = ("period", "amplitude", "eccentricity", "periastron", "anomaly")
        exact = velocity_of(dict(zip(names, found.T, strict=True)), torch.tensor(time)).sum(0)
        error = np.full(epochs, 2.0)
        velocity = exact.numpy() + error * rng.standard_normal(epochs)
    t, v, s = _checked(time, velocity, error)
    t = t - t.mean()
    noise = torch.diag(s.square())
    if correlated is None:
        spread, turn = s.square(), None
    else:
        spread, turn = torch.linalg.eigh(noise + correlated.covariance(t))
    seen = v if turn is None else v @ turn
    level = torch.ones_like(v) if turn is None else turn.sum(0)
    data = Constants(t, seen, level, spread, *(() if turn is None else (turn,)))

    def contribution(p: dict[str, Tensor]) -> Tensor:
        x, _, _, _, *rotation = data.like(p["period"])
        found = velocity_of(p, x)
        return found @ rotation[0] if rotation else found

    def combine(total: Tensor, p: dict[str, Tensor]) -> Tensor:
        _, y, one, variance, *_ = data.like(total)
        offset, jitter = p["offset"].to(total), p["jitter"].to(total)
        gap = y - one * offset[:, None] - total
        variance = variance + jitter.square()[:, None]
        return -0.5 * ((gap.square() / variance) + (2 * math.pi * variance).log()).sum(-1)

    angle = Periodic(0.0, 2 * math.pi)
    return RadialVelocityTarget(
        Counts(most, of=("period", "amplitude", "eccentricity", "periastron", "anomaly")),
        {
            "period": LogUniform(*period),
            "amplitude": ModifiedJeffreys(1.0, 999.0),
            "eccentricity": Rayleigh(0.2, high=1.0),
            "periastron": angle,
            "anomaly": angle,
            "offset": Uniform(-1000.0, 1000.0),
            "jitter": ModifiedJeffreys(1.0, 99.0),
        },
        Additive(contribution, combine),  # type: ignore[arg-type]
        time=t,
        velocity=v,
        error=s,
        planets_true=found,
    )


def _drawn(n: int, period: tuple[float, float], rng: np.random.Generator) -> Tensor:
    """Planets as in ``SIMULATED``, shape (n, 5), float64."""
    spans = (period[0], min(period[1], WATCHED)), DRAWN
    low, high = np.log(np.array(spans)).T
    periods, amplitudes = np.exp(rng.uniform(low, high, (n, 2))).T
    eccentricity = np.minimum(rng.rayleigh(0.2, n), 0.9)
    return torch.tensor(
        np.column_stack([periods, amplitudes, eccentricity, *rng.uniform(0, 2 * math.pi, (2, n))])
    )


def _checked(time: Any, velocity: Any, error: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The data in float64."""
    if time is None or error is None:
        raise ShapeError("radial_velocity: time, velocity and error belong together")
    t, v = (np.asarray(x, dtype=float) for x in (time, velocity))
    s = np.asarray(error, dtype=float)
    s = np.full(v.shape, float(s)) if s.ndim == 0 else s
    if v.ndim != 1 or not v.size or t.shape != v.shape or s.shape != v.shape:
        raise ShapeError(
            f"time, velocity, error: expected one shape (n,), got {t.shape}, {v.shape} and "
            f"{np.shape(error)}"
        )
    if not (np.isfinite([t, v, s]).all() and (s > 0).all()):
        raise TargetError("time, velocity, error: expected finite numbers and positive errors")
    return torch.tensor(t), torch.tensor(v), torch.tensor(s)
