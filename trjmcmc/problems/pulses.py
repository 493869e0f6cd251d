"""How many pulses are in the noise?"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Uniform

from ..errors import ShapeError, TargetError
from ..space.counts import Counts
from ..target.additive import Additive
from ..target.target import Target
from .regression import Constants

AMPLITUDE, CENTRE, WIDTH = (2.5, 3.5), (-1.0, 1.0), (0.01, 0.21)

NOISE_SD = 2.0


class PulsesTarget(Target):
    """A target that holds its data.

    Arguments:
        model: What a target is made of.
        t: Times, shape (n,).
        y: Values at these, shape (n,).
        pulses_true: Amplitudes, centres and widths that the data were simulated with, if they
            were, shape (k, 3).
    """

    def __init__(self, *model: Any, t: Tensor, y: Tensor, pulses_true: Tensor | None) -> None:
        super().__init__(*model)
        self.t, self.y, self.pulses_true = t, y, pulses_true


def pulses(
    y: Any = None,
    t: Any = None,
    *,
    most: int = 8,
    true: int = 4,
    points: int = 500,
    noise_sd: float = NOISE_SD,
    seed: int = 0,
) -> PulsesTarget:
    """A sum of Gaussian pulses in white noise, 0 to ``most`` of them, equally likely.

    Amplitudes are uniform on (2.5, 3.5), centres on (-1, 1), widths on (0.01, 0.21).

    Arguments:
        y: Measurements of your own, shape (n,); simulated if omitted.
        t: Their times, shape (n,); evenly spread over [-1, 1] if omitted.
        most: Largest number of pulses.
        true: Pulses in simulated data, drawn from the prior.
        points: n, of simulated data.
        noise_sd: Standard deviation of the noise.
        seed: Of the simulated data.

    Returns:
        A target over ``Counts`` with parameters ``amplitude``, ``centre`` and ``width``, each of
        shape (most,), whose likelihood is :class:`trjmcmc.Additive`. Its truth is None.

    Raises:
        ShapeError: y and t do not fit together.
        TargetError: A number in the data is not finite; a setting out of range.

    Source:
        The example of Eryn: Karnesis et al. (2023), https://arxiv.org/abs/2303.02164

    Example:
        >>> target = pulses(true=2, seed=1)
        >>> target.space.size, target.dim, target.y.shape, target.pulses_true.shape
        (9, 24, torch.Size([500]), torch.Size([2, 3]))
    """
    if most < 1 or noise_sd <= 0 or points < 1 or true < 0:
        raise TargetError(
            "most, noise_sd, points, true: expected at least 1, above 0, at least 1 and 0, got "
            f"{most}, {noise_sd}, {points} and {true}"
        )
    found = None
    if y is None:
        rng = np.random.default_rng(seed)
        found = np.stack([rng.uniform(*x, size=true) for x in (AMPLITUDE, CENTRE, WIDTH)], 1)
        time = np.linspace(-1.0, 1.0, points) if t is None else np.asarray(t, dtype=float)
        shape = found[:, :1] * np.exp(-0.5 * ((time - found[:, 1:2]) / found[:, 2:]) ** 2)
        y = shape.sum(0) + noise_sd * rng.standard_normal(len(time))
    measured = np.asarray(y, dtype=float)
    time = np.linspace(-1.0, 1.0, measured.size) if t is None else np.asarray(t, dtype=float)
    if measured.ndim != 1 or measured.shape != time.shape or not measured.size:
        raise ShapeError(f"y, t: expected one shape (n,), got {measured.shape} and {time.shape}")
    if not (np.isfinite(measured).all() and np.isfinite(time).all()):
        raise TargetError("y, t: a number in the data is not finite")
    times, values = torch.tensor(time), torch.tensor(measured)
    data = Constants(times, values)
    constant = -len(values) * math.log(noise_sd * math.sqrt(2 * math.pi))

    def contribution(p: dict[str, Tensor]) -> Tensor:
        x, _ = data.like(p["centre"])
        z = (x - p["centre"][:, None]) * p["width"].reciprocal()[:, None]
        return p["amplitude"][:, None] * torch.exp(-0.5 * z * z)

    def combine(total: Tensor, p: dict[str, Tensor]) -> Tensor:
        _, seen = data.like(total)
        gap = seen - total
        return constant - 0.5 / noise_sd**2 * torch.linalg.vecdot(gap, gap)

    return PulsesTarget(
        Counts(most, of=("amplitude", "centre", "width")),
        {"amplitude": Uniform(*AMPLITUDE), "centre": Uniform(*CENTRE), "width": Uniform(*WIDTH)},
        Additive(contribution, combine),  # type: ignore[arg-type]
        t=times,
        y=values,
        pulses_true=None if found is None else torch.tensor(found),
    )
