"""Stein variational gradient descent: particles that move towards a target and repel each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..draws import Pool
from ..errors import ConfigurationError, ConvergenceWarning, InterruptedWarning, warn_user
from ..progress import progress_bar
from ..target.target import Target

LEAST_SPREAD, MOST_SPREAD = 0.8, 1.3  # by Stein's identity 1, outside of which it is told

LARGEST_DRIFT = 0.5  # mean gradient times standard deviation, from which it is told

FADES = 0.9  # memory of the mean square by which steps are scaled

TINY = 1e-8  # added to root mean squares


class SquaredExponential:
    r"""A kernel between particles, a sum over blocks of their coordinates.

    .. math:: k(x, y) = \sum_b \exp(-\lVert x_b - y_b \rVert^2 / h_b)

    Arguments:
        bandwidth: h, one number, or one a block; if omitted the median of the squared distances
            over log(M + 1), anew at each step.

    Raises:
        ConfigurationError: A bandwidth that is not positive.

    Source:
        Liu & Wang (2016), https://arxiv.org/abs/1608.04471; sum over blocks: Lorch et al. (2021),
        https://arxiv.org/abs/2105.11839, eq. 15

    Example:
        >>> kernel = SquaredExponential(2.0)
        >>> value, _ = kernel.parts([torch.tensor([[0.0], [1.0]])])[0]
        >>> [[round(v, 3) for v in row] for row in value.tolist()]
        [[1.0, 0.607], [0.607, 1.0]]
    """

    def __init__(self, bandwidth: float | Sequence[float] | None = None) -> None:
        several = isinstance(bandwidth, Sequence)
        values = list(bandwidth) if isinstance(bandwidth, Sequence) else [bandwidth]
        if any(h is not None and not h > 0 for h in values):
            raise ConfigurationError(f"kernel: expected bandwidth > 0, got {bandwidth}")
        self._bandwidths = values if several else None
        self._bandwidth = values[0]

    def parts(self, blocks: Sequence[Tensor]) -> list[tuple[Tensor, Any]]:
        """Values (M, M) and bandwidth of each block, (M, P_b)."""
        if self._bandwidths is not None and len(self._bandwidths) != len(blocks):
            raise ConfigurationError(
                f"bandwidth: {len(self._bandwidths)} numbers for {len(blocks)} blocks"
            )
        found: list[tuple[Tensor, Any]] = []
        for b, x in enumerate(blocks):
            square = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist").square()
            h: Any = self._bandwidth if self._bandwidths is None else self._bandwidths[b]
            if h is None:
                off = ~torch.eye(len(x), dtype=torch.bool, device=x.device)
                h = (square[off].median() / math.log(len(x) + 1)).clamp(min=TINY)
            found.append(((-square / h).exp(), h))
        return found


def stein_direction(
    blocks: Sequence[Tensor],
    gradients: Sequence[Tensor],
    kernel: SquaredExponential,
    alike: Tensor | None = None,
) -> list[Tensor]:
    r"""Where particles go next, block by block, (M, P_b).

    .. math:: \phi(x) = \frac{1}{M} \sum_m
              [k(x_m, x) \nabla \log p(x_m) + \nabla_{x_m} k(x_m, x)]

    Arguments:
        blocks: Coordinates of the particles, (M, P_b) each.
        gradients: Of the log density by them.
        kernel: Between particles.
        alike: Which particles see each other, (M, M), if not all do.

    Source:
        Liu & Wang (2016), https://arxiv.org/abs/1608.04471, eq. 8

    Example:
        >>> x = torch.tensor([[-1.0], [1.0]])
        >>> (found,) = stein_direction([x], [torch.zeros_like(x)], SquaredExponential(2.0))
        >>> found.sign().tolist()  # they repel each other
        [[-1.0], [1.0]]
    """
    parts = kernel.parts(blocks)
    if alike is not None:
        parts = [(value * alike.to(value), h) for value, h in parts]
    total = torch.stack([value for value, _ in parts]).sum(0)
    return [
        (total @ g + 2 / h * (x * value.sum(1, keepdim=True) - value @ x)) / len(x)
        for x, g, (value, h) in zip(blocks, gradients, parts, strict=True)
    ]


class RootMeanSquare:
    """Steps divided by the running root mean square of their directions, coordinate by
    coordinate.

    Arguments:
        rate: Learning rate.

    Source:
        Hinton, lecture 6e of "Neural networks for machine learning" (2012): RMSProp
    """

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._square: list[Tensor] = []

    def steps(self, directions: Sequence[Tensor], factor: float = 1.0) -> list[Tensor]:
        """What to add to the particles."""
        if not self._square:
            self._square = [torch.zeros_like(x) for x in directions]
        self._square = [
            FADES * s + (1 - FADES) * x.square()
            for s, x in zip(self._square, directions, strict=True)
        ]
        pairs = zip(directions, self._square, strict=True)
        return [factor * self.rate * x / (s + TINY).sqrt() for x, s in pairs]


@dataclass(frozen=True)
class SteinParticles:
    """Where the particles of Stein variational gradient descent came to rest.

    They are no draws: repelling each other they are spread evenly, and in many dimensions too
    little. Chains that start there (``run(start=particles)``) are exact, and say how far off
    these were.

    Attributes:
        pool: Models, coordinates and log joint, to train on: ``fit(pilot=particles.pool)``.
        spread: By model, minus the mean of (x - mean) . gradient of log p, over the number of
            dimensions, 0 of a single particle: 1 for draws of the posterior, by Stein's identity;
            less where variances have collapsed, in about that proportion.
        values: By model, parameters in natural units by name, (n, ...).
    """

    pool: Pool
    spread: dict[str, float]
    values: dict[str, dict[str, Tensor]]

    def __repr__(self) -> str:
        of = ", ".join(f"{name} {value:.2f}" for name, value in list(self.spread.items())[:4])
        return f"SteinParticles({len(self.pool.code)} particles, spread {of})"


def svgd(
    target: Target,
    model: Any = None,
    *,
    particles: int = 100,
    steps: int = 1000,
    learning_rate: float = 0.1,
    kernel: SquaredExponential | None = None,
    anneal: float = 0.3,
    seed: int = 0,
    progress: bool = True,
) -> SteinParticles:
    """Move particles to a posterior by Stein variational gradient descent.

    An approximation without guarantee, for comparison and for starts. Particles start from the
    prior; the likelihood's exponent grows at first. Models do not change: each particle keeps
    the one that it was given.

    Arguments:
        target: Any target with gradients.
        model: The model of all particles, by label; drawn from the model prior if omitted.
        particles: Number of them, 2 or more.
        steps: Number of steps; their size falls over the last half.
        learning_rate: Of RMSProp, in unconstrained coordinates.
        kernel: Between particles.
        anneal: Share of the steps over which the exponent grows from 0 to 1.
        seed: Of all randomness.
        progress: Show a bar.

    Raises:
        ConfigurationError: Fewer than two particles; no gradients, or no parameters; settings out
            of range.

    Source:
        Liu & Wang (2016), https://arxiv.org/abs/1608.04471; collapse in many dimensions: Ba et al.
        (2022), https://openreview.net/forum?id=Qycd9j5Qp9J

    Example:
        >>> from trjmcmc import problems
        >>> found = svgd(problems.sinh_arcsinh(), "1d", particles=50, progress=False)
        >>> found.pool.theta.shape, list(found.values)
        (torch.Size([50, 2]), ['1d'])
    """
    if particles < 2:
        raise ConfigurationError(
            f"svgd: expected 2 particles or more, got {particles}: one alone finds a mode"
        )
    if steps < 1 or not learning_rate > 0 or not 0 <= anneal < 1:
        raise ConfigurationError(
            "svgd: expected steps >= 1, learning_rate > 0 and anneal in [0, 1), got "
            f"{steps}, {learning_rate}, {anneal}"
        )
    if not target.differentiable or not target.dim:
        raise ConfigurationError("svgd: expected a target with parameters and gradients")
    kernel = SquaredExponential() if kernel is None else kernel
    generator = torch.Generator(target.device).manual_seed(seed)
    space = target.space
    if model is None:
        code = space.sample_prior(particles, generator)
    else:
        code = space.code_of(model).to(target.device)[None].expand(particles, -1).clone()
    theta = target.sample_prior(code, generator)
    active = space.active(code)
    theta = torch.where(active & theta.isfinite(), theta, 0.0)
    alike = (code[:, None] == code[None]).all(-1)  # particles of one model alone see each other
    rms = RootMeanSquare(learning_rate)
    with progress_bar(progress, total=steps, desc="svgd", unit="step") as bar:
        try:
            for i in range(1, steps + 1):
                temper = min(1.0, i / (anneal * steps)) if anneal else 1.0
                _, gradient = target.log_joint_and_grad(code, theta, temper=temper)
                gradient = torch.where(active & gradient.isfinite(), gradient, 0.0)
                (go,) = stein_direction([theta], [gradient], kernel, alike)
                (step,) = rms.steps([torch.where(active, go, 0.0)], min(1.0, 2 * (1 - i / steps)))
                theta = theta + step
                bar.update()
        except KeyboardInterrupt:
            warn_user("svgd interrupted; the particles are where they were", InterruptedWarning)
    return _summed_up(target, code, theta)


def _summed_up(target: Target, code: Tensor, theta: Tensor) -> SteinParticles:
    """Spread and values by model, with a warning of what has collapsed."""
    log_joint, gradient = target.log_joint_and_grad(code, theta)
    fine = log_joint > -math.inf
    if not bool(fine.any()):
        raise ConfigurationError(
            "svgd: every particle is where the density is zero; its gradient leads nowhere"
        )
    if lost := int((~fine).sum()):
        warn_user(
            f"svgd: {lost} of {len(fine)} particles are where the density is zero, which has no "
            "gradient to leave by, and are dropped; the others are no fair picture. State the "
            "bound in the prior",
            ConvergenceWarning,
        )
    code, theta, log_joint, gradient = (x[fine] for x in (code, theta, log_joint, gradient))
    spread: dict[str, float] = {}
    values: dict[str, dict[str, Tensor]] = {}
    moving: list[str] = []
    models, which = code.unique(dim=0, return_inverse=True)
    for m, (label, own) in enumerate(zip(target.space.label(models), models, strict=True)):
        rows = which == m
        active = target.space.active(own[None])[0]
        x, g = theta[rows][:, active], gradient[rows][:, active]
        values[label] = dict(target.constrain(own, theta[rows]))
        if x.shape[1]:
            centred = x - x.mean(0)
            unbiased = len(x) / max(1, len(x) - 1)  # one alone has no spread
            spread[label] = -float((centred * g).sum(1).mean()) * unbiased / x.shape[1]
            drift = float((g.mean(0) * x.std(0, correction=0)).abs().max())
            if drift > LARGEST_DRIFT or spread[label] > MOST_SPREAD:
                moving.append(label)
    if moving:
        warn_user(
            f"svgd: the particles are still on their way in {', '.join(moving[:4])}: their log "
            "density rises in one direction. More steps would help, or a larger learning_rate",
            ConvergenceWarning,
        )
    narrow = {name: s for name, s in spread.items() if not s >= LEAST_SPREAD}
    if narrow:
        shown = ", ".join(f"{name} {s:.2f}" for name, s in list(narrow.items())[:4])
        warn_user(
            "svgd: the particles have collapsed: by Stein's identity their variances are about "
            f"this share of the posterior's: {shown}. What may help: more particles than "
            "dimensions, several times; exact chains: run(start=particles)",
            ConvergenceWarning,
        )
    return SteinParticles(Pool(code, theta, log_joint.double()), spread, values)
