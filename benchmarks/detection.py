"""How surely is a lost mode met, by the share of the prior that its basin holds?

    python -m benchmarks.detection                    # 100 instances, three seeds each: ten minutes
    python -m benchmarks.detection --instances 20 --draws 8192

The mixtures of ``benchmarks.discovery``. The map and the chains of each know all of its modes but
the one with the smallest basin; what a run does before it samples has to meet that one: prior
draws that climb. Left out are modes that the map covers by more
than half, since these lie next to others. Writes detection.json and detection.png into
the folder --output.
"""

import argparse
import json
import math
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib import pyplot as plt

from benchmarks.discovery import instance, shares_of_basins
from benchmarks.honest_problems import against_null
from trjmcmc.draws import Pool
from trjmcmc.pilot.report import LOST_NATS
from trjmcmc.pilot.screening import search_modes
from trjmcmc.plot.style import PALETTE
from trjmcmc.transport.normals import gaussian_mixture

KNOWN = 6000  # draws of the modes that are known
EDGES = (3e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1.0)  # between shares of the prior


def met(number: int, seeds: int, draws: int, threads: int = 1) -> dict[str, Any]:
    """In how many searches the mode of the smallest basin is met."""
    torch.set_num_threads(threads)
    mixture, prior_sd = instance(number)
    target, share = against_null(mixture, prior_sd).target, shares_of_basins(number)
    lost = int(share.argmin())
    generator = torch.Generator().manual_seed(number)
    weights = torch.as_tensor(mixture.weights).clone()
    weights[lost] = 0.0
    part = torch.multinomial(weights, KNOWN, True, generator=generator)
    centres, sds = (torch.as_tensor(v).float() for v in (mixture.centres, mixture.sds))
    noise = torch.randn(KNOWN, mixture.dim, generator=generator)
    theta = centres[part] + sds[part, None] * noise
    model = target.space.code_of("modes")
    code = model.expand(KNOWN, -1)
    pool = Pool(code, theta, target.log_joint(code, theta))
    normals = gaussian_mixture(target.space, pool, generator, components=len(weights) - 1)
    mode = centres[lost] + sds[lost] * torch.randn(KNOWN, mixture.dim, generator=generator)
    log_pi = target.log_joint(code, mode) - target.space.log_prior(code)
    gap = log_pi - math.log(float(weights.sum())) - normals.log_prob(mode, code)
    found = 0
    for seed in range(seeds):
        parts = search_modes(
            target,
            model,
            math.log(float(weights.sum())),
            normals,
            theta[:500],
            draws,
            torch.Generator().manual_seed(1000 * number + seed),
        )
        found += bool(parts)
    return {
        "instance": number,
        "dim": mixture.dim,
        "basin": float(share[lost]),
        "sd": float(sds[lost]),
        "weight": 1 - float(weights.sum()),
        "unknown": float((gap > LOST_NATS).double().mean()),
        "met": found,
        "searches": seeds,
    }


def draw(rows: list[dict[str, Any]], draws: int, path: Path) -> None:
    """Shares met by size of the basin, with the limit that a report states."""
    rows = [r for r in rows if r["unknown"] > 0.5]
    basin, hits, tries = (np.array([r[k] for r in rows]) for k in ("basin", "met", "searches"))
    figure, ax = plt.subplots(figsize=(6.0, 3.4), layout="constrained")
    shown = np.where(basin > 0, basin, EDGES[0] / 3)
    ax.plot(shown, hits / tries, "o", ms=4, mfc="none", color="0.6", label="one mixture")
    bins = np.digitize(basin, EDGES)
    for b in np.unique(bins):
        here = bins == b
        n, k = tries[here].sum(), hits[here].sum()
        p, z = k / n, 1.96
        middle = (p + z**2 / (2 * n)) / (1 + z**2 / n)  # Wilson's interval
        half = z / (1 + z**2 / n) * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
        x = EDGES[0] / 3 if b == 0 else math.sqrt(EDGES[b - 1] * EDGES[min(b, len(EDGES) - 1)])
        error = [[max(p - middle + half, 0)], [max(middle + half - p, 0)]]
        label = "all of that size, 95 %" if b == bins.max() else None
        ax.errorbar(x, p, error, fmt="D", ms=6, color=PALETTE[0], capsize=3, label=label)
    ax.axvline(3 / draws, color=PALETTE[1], ls="--", lw=1, label=f"limit: 3 of {draws:,} draws")
    ax.set_xscale("log")
    ax.set_ylim(-0.05, 1.05)
    ax.set_xlabel(f"share of the prior that the basin holds (left: below {EDGES[0]:.0e})")
    ax.set_ylabel("met by a search")
    ax.legend(frameon=False, fontsize=8, loc="lower right")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instances", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--draws", type=int, default=40_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="of each worker")
    parser.add_argument("--output", type=Path, default=Path("output"))
    options = parser.parse_args()
    numbers = range(options.first, options.first + options.instances)
    settings = (options.seeds, options.draws, options.threads)
    with ProcessPoolExecutor(options.workers) as pool:
        found = pool.map(met, numbers, *([s] * len(numbers) for s in settings))
        rows = []
        for row in found:
            rows.append(row)
            print(json.dumps(row), flush=True)
    options.output.mkdir(exist_ok=True)
    (options.output / "detection.json").write_text(json.dumps(rows, indent=1))
    draw(rows, options.draws, options.output / "detection.png")


if __name__ == "__main__":
    main()
