"""Pictures of training runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib import pyplot as plt

from .style import PALETTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..fit.trace import FitTrace


def plot_fit(trace: FitTrace, ax: Axes | None = None) -> Axes:
    """Objective against step, lower is better; dashed while the likelihood is tempered."""
    ax = ax if ax is not None else plt.subplots(figsize=(6, 3.5), layout="constrained")[1]
    step, value = np.asarray(trace.step), np.asarray(trace.objective)
    tempered = np.asarray(trace.temper) < 1
    if tempered.any():
        ax.plot(step[tempered], value[tempered], ls="--", color=PALETTE[0], label="tempered")
    ax.plot(step[~tempered], value[~tempered], color=PALETTE[0], label="full likelihood")
    if trace.best_step:
        ax.axvline(trace.best_step, color=PALETTE[1], lw=1, label="kept")
    ax.set_xlabel("training step")
    ax.set_ylabel("objective (nats)")
    ax.legend(frameon=False, fontsize=8)
    return ax
