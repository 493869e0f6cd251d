"""Pictures of training runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from .style import PALETTE, axes_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_fit(
    step: ArrayLike,
    objective: ArrayLike,
    temper: ArrayLike,
    best_step: int = 0,
    ax: Axes | None = None,
) -> Axes:
    """Objective against step, lower is better; dashed while the likelihood is tempered.

    Arguments:
        step: Last training step of each window, shape (n,).
        objective: Mean objective over each window, nats, shape (n,).
        temper: Exponent of the likelihood at the end of each window, shape (n,).
        best_step: The step whose map was kept; 0 draws no line.
        ax: Where to draw.
    """
    ax = axes_of(ax, 6, 3.5)
    step, value = np.asarray(step), np.asarray(objective)
    tempered = np.asarray(temper) < 1
    if tempered.any():
        ax.plot(step[tempered], value[tempered], ls="--", color=PALETTE[0], label="tempered")
    ax.plot(step[~tempered], value[~tempered], color=PALETTE[0], label="full likelihood")
    if best_step:
        ax.axvline(best_step, color=PALETTE[1], lw=1, label="kept")
    ax.set_xlabel("training step")
    ax.set_ylabel("objective (nats)")
    ax.legend(frameon=False, fontsize=8)
    return ax
