"""Pictures of what ``python -m benchmarks`` has measured."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot as plt

from trjmcmc.plot.style import PALETTE

Rows = list[dict[str, Any]]
MARKS = "osv^<>pP*X"
COLOURS = [c for c in PALETTE if c not in {PALETTE[1], PALETTE[6]}]  # of others; yellow is too pale
SMALLEST = 1e-1  # effective draws a second that are drawn


def speed(cases: dict[str, Rows], path: Path) -> None:
    """Effective draws of the model indicator a second: a line a problem, a mark a sampler."""
    figure, ax = plt.subplots(figsize=(7.5, 0.75 + 0.55 * len(cases)), layout="constrained")
    names = list(dict.fromkeys(row["sampler"] for rows in cases.values() for row in rows))
    others = [n for n in names if n != "default"]
    for i, rows in enumerate(cases.values()):
        ax.axhline(i, color="0.9", lw=1, zorder=0)
        for row in rows:
            rate = row["ess_per_s"]
            if not np.isfinite(rate) or rate < SMALLEST:
                continue
            if row["sampler"] == "default":
                ax.plot(rate, i, "D", ms=12, color=PALETTE[1], alpha=0.6, zorder=1)
            else:
                ax.plot(rate, i, ms=6, ls="", mfc="none", **_style(others, row["sampler"]))
    ax.plot([], [], "D", ms=9, color=PALETTE[1], alpha=0.6, label="trjmcmc, default")
    for name in others:
        ax.plot([], [], ls="", mfc="none", label=name, **_style(others, name))
    ax.set_xscale("log")
    ax.set_yticks(range(len(cases)), list(cases))
    ax.set_ylim(len(cases) - 0.5, -0.5)
    ax.set_xlabel("effective draws of the model indicator a second, fit included")
    figure.legend(frameon=False, fontsize=8, loc="outside right center")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _style(others: list[str], name: str) -> dict[str, str]:
    i = others.index(name)
    return {"marker": MARKS[i % len(MARKS)], "color": COLOURS[i % len(COLOURS)]}


def scaling(cases: dict[str, Rows], path: Path) -> None:
    """Chain-steps a second against the number of chains, of models, of dimensions."""
    figure, axes = plt.subplots(
        1, len(cases), figsize=(3.3 * len(cases), 2.9), layout="constrained", squeeze=False
    )
    for ax, (case, rows) in zip(axes[0], cases.items(), strict=True):
        key = {"chains": "chains", "models": "models", "dimension": "dimensions"}[case]
        x = [row[key] for row in rows]
        ax.plot(x, [r["chain_steps_per_s"] for r in rows], "o-", color=PALETTE[1], label="steps")
        ax.plot(
            x,
            [r["evaluations_per_s"] for r in rows],
            "s--",
            color=PALETTE[0],
            mfc="none",
            label="evaluations of the target alone",
        )
        ax.set_xscale("log")
        ax.set_yscale("log")
        fixed = "" if case == "chains" else f", {rows[0]['chains']} chains"
        ax.set_xlabel(("number of " if case != "dimension" else "") + key + fixed)
    axes[0, 0].set_ylabel("a second, all chains")
    axes[0, 0].legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=130)
    plt.close(figure)
