"""The simulations of DiBS: twenty nodes, linear equations, 100 rows, four metrics.

Random networks of the Erdos-Renyi and the scale-free law with two edges a node, weights standard
normal, noise of variance .1. A run over graphs whose weights are integrated out, DiBS of this
package, and DiBS as released, where its answers are there:

    python -m benchmarks.graph_simulations --networks 15 --write FOLDER
    /its/python benchmarks/peers/graphs_dibs_joint.py FOLDER
    python -m benchmarks.graph_simulations --networks 15 --theirs FOLDER --seconds 15

E-SHD is between graphs, a reversal counted once; AUROC of edge probabilities without the diagonal;
neg. LL is minus the posterior mean of the log density of 100 further rows, neg. I-LL of 100 rows
with a tenth of the nodes clamped to zero, averaged over ten such sets, clamped nodes left out.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

import trjmcmc as trj
from trjmcmc import graphs
from trjmcmc.errors import TRJWarning
from trjmcmc.graphs.effects import weights
from trjmcmc.graphs.particles import GraphParticles
from trjmcmc.space.paths import adjacency, masks_of

LAWS = ("erdos-renyi", "scale-free")

NOISE = 0.1

CANDIDATES = 16  # parents among which a node of the run chooses: as many as a table holds


class Study:
    """One network, its data, and what answers are held against."""

    def __init__(self, law: str, seed: int, nodes: int, rows: int) -> None:
        self.law, self.seed = law, seed
        self.graph = graphs.random_graph(nodes, law, seed=100 + seed)
        network = graphs.simulate(self.graph, noise=NOISE, seed=200 + seed)
        self.x = network.draw(rows, seed=300 + seed)
        self.new = network.draw(100, seed=400 + seed)
        rng = np.random.default_rng(seed)
        self.clamped = []
        for k in range(10):
            which = torch.zeros(nodes, dtype=torch.bool)
            which[rng.choice(nodes, max(1, nodes // 10), replace=False)] = True
            self.clamped.append(
                (which, network.draw(100, seed=1000 * (seed + 1) + k, set_to_zero=which))
            )

    @property
    def prior(self) -> graphs.DagPrior:
        return graphs.erdos_renyi(2.0) if self.law == "erdos-renyi" else graphs.scale_free()

    def log_density(self, weight: Tensor, rows: Tensor, left_out: Tensor | None = None) -> Tensor:
        """Of rows given weights (m, d, d), shape (m,)."""
        residual = rows - rows @ weight
        each = -0.5 * (residual.square() / NOISE + math.log(2 * math.pi * NOISE))
        if left_out is not None:
            each = each * (~left_out)
        return each.sum((1, 2))

    def scored(
        self, edges: pd.DataFrame, weight: Tensor, share: Tensor, seconds: float
    ) -> dict[str, float]:
        """The four metrics of graphs with weights (m, d, d) that count by shares (m,)."""
        found = graphs.metrics(edges, self.graph.numpy())
        clamped = [-(share @ self.log_density(weight, rows, out)) for out, rows in self.clamped]
        return {
            "E-SHD": found["expected_shd"],
            "AUROC": found["auroc"],
            "neg. LL": -float(share @ self.log_density(weight, self.new)),
            "neg. I-LL": float(torch.stack(clamped).mean()),
            "edges": found["expected_edges"],
            "cpu/s": seconds,
        }


def by_run(study: Study, seconds: float) -> dict[str, float]:
    """Graphs by a run, weights given each graph in closed form."""
    begun = time.process_time()
    nodes = study.x.shape[1]
    scores = graphs.linear(study.x, noise=NOISE, candidates=min(CANDIDATES, nodes - 1))
    target = graphs.target(scores, study.prior)
    result = trj.TRJSampler(target, seed=study.seed).run(max_seconds=seconds, progress=False)
    found = graphs.GraphPosterior(result)
    flat = found.masks.flatten(0, 1)
    some = flat[:: max(1, len(flat) // 2000)]
    weight = weights(scores, some, np.random.default_rng(study.seed))
    spent = time.process_time() - begun
    alike = torch.full((len(some),), 1 / len(some), dtype=torch.float64)
    return study.scored(found.matrix(), weight, alike, spent)


def of_particles(
    study: Study, found: GraphParticles, seconds: float
) -> dict[str, dict[str, float]]:
    """DiBS and DiBS+."""
    space = found.target.space
    weight = (space.matrix(found.theta) * adjacency(found.masks)).double()
    return {
        name: study.scored(
            found.edges(plus=plus), weight, found.weights(plus=plus).double(), seconds
        )
        for name, plus in (("DiBS", False), ("DiBS+", True))
    }


def by_dibs(study: Study, particles: int, steps: int) -> dict[str, dict[str, float]]:
    """DiBS of this package."""
    target = graphs.network(study.x, noise=NOISE, prior=study.prior)
    settings = {}
    if study.x.shape[1] > 35:  # its settings for fifty nodes
        settings = {"alpha": 0.02, "kernel": trj.fit.SquaredExponential((15.0, 1000.0))}
    begun = time.process_time()
    found = graphs.dibs(
        target, particles=particles, steps=steps, seed=study.seed, progress=False, **settings
    )
    return of_particles(study, found, time.process_time() - begun)


def theirs(study: Study, folder: Path) -> dict[str, dict[str, float]]:
    """DiBS as released, if its answer is there."""
    file = folder / f"out_{study.law}_{study.seed}.npz"
    if not file.exists():
        return {}
    held = np.load(file)
    target = graphs.network(study.x, noise=NOISE, prior=study.prior)
    graph, theta = torch.tensor(held["g"]).bool(), torch.tensor(held["theta"])
    own = theta[:, target.space.parent_of, target.space.child_of].to(target.dtype)
    found = GraphParticles(target, masks_of(graph), own)
    named = of_particles(study, found, float(held["seconds"]))
    return {f"{name}, released": row for name, row in named.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--networks", type=int, default=2, help="of each law")
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=15.0, help="of a run")
    parser.add_argument("--particles", type=int, default=10)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--write", type=Path, help="folder for the data; nothing else is done")
    parser.add_argument("--theirs", type=Path, help="folder with answers of the released DiBS")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore", TRJWarning)
    rows = []
    for law in LAWS:
        for seed in range(options.networks):
            study = Study(law, seed, options.nodes, options.rows)
            if options.write is not None:
                options.write.mkdir(parents=True, exist_ok=True)
                np.savez(options.write / f"{law}_{seed}.npz", x=study.x, g=study.graph)
                continue
            found = {"run": by_run(study, options.seconds)}
            found |= by_dibs(study, options.particles, options.steps)
            if options.theirs is not None:
                found |= theirs(study, options.theirs)
            rows += [{"law": law, "network": seed, "method": m, **row} for m, row in found.items()]
            shown = pd.DataFrame(found).T.round(2).to_string()
            print(f"{law} {seed}\n{shown}", flush=True)
    if not rows:
        return
    table = pd.DataFrame(rows).drop(columns="network").groupby(["law", "method"])
    print("\nmedian\n" + table.median().round(2).to_string())
    print("\nmean\n" + table.mean().round(2).to_string())
    print("\nnetworks\n" + table.size().to_string())
    compared(pd.DataFrame(rows))


def compared(rows: pd.DataFrame) -> None:
    """The run less DiBS+, network by network: mean differences with their standard errors."""
    wide = rows.pivot(index=["law", "network"], columns="method")
    for other in ("DiBS+", "DiBS+, released"):
        if other not in wide["E-SHD"]:
            continue
        print(f"\nrun less {other}; below zero is better, but for AUROC")
        for metric in ("E-SHD", "AUROC", "neg. LL", "neg. I-LL", "cpu/s"):
            both = wide[metric][["run", other]].dropna()
            gap = both["run"] - both[other]
            better = (gap < 0) if metric != "AUROC" else (gap > 0)
            print(
                f"  {metric:10s} {gap.mean():9.3f} +- {gap.std() / len(gap) ** 0.5:.3f}, better in "
                f"{int(better.sum())} of {len(gap)}"
            )


if __name__ == "__main__":
    main()
