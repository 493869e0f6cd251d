"""Jumps from draws that are there already: Bartolucci's estimate without a run, time and again."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import numpy as np
import torch
from matplotlib.axes import Axes
from numpy.typing import ArrayLike
from torch import Tensor

from trjmcmc.draws import Pool
from trjmcmc.errors import ConfigurationError
from trjmcmc.estimate.bartolucci import bartolucci
from trjmcmc.kernel.base import Kernel, start
from trjmcmc.kernel.proposal.base import IndexProposal
from trjmcmc.plot.style import PALETTE, axes_of, spread_labels
from trjmcmc.space.base import Space, check_enumerable
from trjmcmc.target.target import Target

GROUPS = 50  # batches that the draws of a model are dealt to


class _Script(IndexProposal):
    """Goes to given models; there and back alike."""

    def __init__(self, space: Space, code: Tensor) -> None:
        self.space, self.code = space, code

    def sample(self, code: Tensor, generator: torch.Generator) -> Tensor:
        return self.code

    def log_prob(self, new: Tensor, code: Tensor) -> Tensor:
        return torch.zeros(len(code), device=code.device)


def evaluate_jumps(
    target: Target, kernel: Kernel, code: Tensor, theta: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """One proposed jump from each draw, its acceptance probability summed up by pair of models.

    The draws of a model are dealt evenly to all others, so that which model is proposed adds
    no noise.

    Arguments:
        target: A target of few models.
        kernel: A kernel with one ``proposal`` between models: :class:`~trjmcmc.kernel.Jump`,
            :class:`~trjmcmc.kernel.BirthDeath` or :class:`~trjmcmc.kernel.IndependenceJump`;
            what it proposes is replaced.
        code: Models of posterior draws, in random order, shape (N, L).
        theta: The draws, shape (N, D).
        generator: Source of randomness.

    Returns:
        Crossings (batch, M, M) and stays (batch, M), for :func:`bartolucci`.

    Raises:
        ConfigurationError: The kernel has no proposal, or there is one model only.

    Source:
        Bartolucci, Scaccia & Mira (2006); evaluation sets as in Davies et al. (2023), section 5

    Example:
        >>> from trjmcmc import problems
        >>> from trjmcmc.estimate import bartolucci
        >>> from trjmcmc.kernel import Fixed, Jump
        >>> target = problems.sinh_arcsinh()
        >>> exact = problems.SinhArcsinhMap(target.space)
        >>> generator = torch.Generator().manual_seed(0)
        >>> code = torch.arange(1000)[:, None] % 2
        >>> theta, _ = exact.push(torch.randn(1000, 2, generator=generator), code)
        >>> jump = Jump(target, exact, Fixed(target.space))
        >>> tables = evaluate_jumps(target, jump, code, theta, generator)
        >>> round(bartolucci(*tables)[0].value, 2)
        0.25
    """
    check_enumerable(target.space)
    codes = target.space.enumerate()
    m = len(codes)
    if m < 2 or not hasattr(kernel, "proposal"):
        raise ConfigurationError(
            "evaluate_jumps: expected two models or more, and a kernel with a `proposal`"
        )
    here = target.space.index(code)
    turn = _turns(here, m)
    there = (here + 1 + turn % (m - 1)) % m
    scripted = copy.copy(kernel)
    scripted.proposal = _Script(target.space, codes[there])
    with torch.no_grad():
        _, (info,) = scripted.step(start(target, code, theta), generator)
    batch = (turn // (m - 1)) % GROUPS
    crossings = torch.zeros(GROUPS * m * m, dtype=torch.float64, device=code.device)
    crossings.index_add_(0, (batch * m + here) * m + there, info.chance)
    stays = torch.bincount(batch * m + here, minlength=GROUPS * m).double()
    return crossings.view(GROUPS, m, m).cpu(), stays.view(GROUPS, m).cpu()


def repeated_bartolucci(
    target: Target,
    kernel: Kernel,
    pool: Pool,
    size: int,
    repeats: int,
    generator: torch.Generator,
) -> Tensor:
    """Bartolucci's estimates of the models' probabilities, each from fresh draws.

    Arguments:
        target: A target of few models.
        kernel: As for :func:`evaluate_jumps`.
        pool: Posterior draws that evaluation sets are taken from.
        size: Draws of each model in an evaluation set.
        repeats: Number of estimates.
        generator: Source of randomness.

    Returns:
        Shape (repeats, M), float64.

    Source:
        The comparison of samplers in Davies et al. (2023), section 5
    """
    found = []
    for _ in range(repeats):
        draws = pool.some(size, generator)
        tables = evaluate_jumps(target, kernel, draws.code, draws.theta, generator)
        found.append([e.value for e in bartolucci(*tables)])
    return torch.tensor(found, dtype=torch.float64)


def _turns(which: Tensor, groups: int) -> Tensor:
    """For each row how many of its group came before it, (n,)."""
    turn = torch.empty_like(which)
    for g in range(groups):
        rows = (which == g).nonzero()[:, 0]
        turn[rows] = torch.arange(len(rows), device=which.device)
    return turn


def plot_repeats(
    repeats: Mapping[str, ArrayLike],
    truth: float | None = None,
    ax: Axes | None = None,
    *,
    colours: Mapping[str, str] | None = None,
) -> Axes:
    """Violins of repeated estimates of one number, side by side.

    Arguments:
        repeats: By name (a sampler, a map), estimates of one probability, shape (n,).
        truth: What they estimate, where it is known.
        ax: Where to draw.
        colours: By name.
    """
    ax = axes_of(ax, max(4.0, 1.2 + 0.9 * len(repeats)), 3.5)
    x = np.arange(len(repeats))
    drawn = ax.violinplot(
        [np.asarray(v, dtype=float) for v in repeats.values()], x, widths=0.8, showmedians=True
    )
    chosen = [(colours or {}).get(n, PALETTE[i % len(PALETTE)]) for i, n in enumerate(repeats)]
    for i, body in enumerate(drawn["bodies"]):  # type: ignore[arg-type, var-annotated]
        body.set_facecolor(chosen[i])
        body.set_alpha(0.6)
    for part in ("cbars", "cmins", "cmaxes", "cmedians"):
        drawn[part].set_color("black")
        drawn[part].set_linewidth(1)
    if truth is not None:
        ax.axhline(truth, color="black", lw=1, ls="--", label="exact")
        ax.legend(frameon=False, fontsize=8)
    spread_labels(ax, x, list(repeats))
    ax.set_ylabel("estimate")
    return ax
