"""Is every error bar of an edge true? z-scores of edges over many short runs, and their errors.

Data sets of four and five nodes come from seeds: linear equations with weights from N(0, 1) and
noise of variance .1. All their graphs are summed: by the BGe score, and for linear equations with
known noise, whose weights are integrated out or sampled. Of honest errors z-scores have standard
deviation 1.

    python benchmarks/graph_calibration.py                      # 50 runs a case: some minutes
    python benchmarks/graph_calibration.py --runs 10 --seconds 5 --case weights
"""

import argparse
import time
import warnings
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

import trjmcmc as trj
from trjmcmc import graphs
from trjmcmc.errors import TRJWarning

NOISE = 0.1
RARE = 0.005  # probability from either end within which an edge says nothing of its error
KINDS = ("bge", "linear", "weights")


def simulated(d: int, rows: int, seed: int) -> Tensor:
    """Rows of linear equations over a random graph, edges with probability one half."""
    g = torch.Generator().manual_seed(seed)
    order = torch.randperm(d, generator=g)
    x = torch.zeros(rows, d, dtype=torch.float64)
    for place, j in enumerate(order.tolist()):
        x[:, j] = NOISE**0.5 * torch.randn(rows, generator=g, dtype=torch.float64)
        for i in order[:place].tolist():
            if torch.rand((), generator=g) < 0.5:
                x[:, j] += torch.randn((), generator=g, dtype=torch.float64) * x[:, i]
    return x


def problem(kind: str, x: Tensor) -> tuple[trj.Target, graphs.ExactGraphs]:
    """A target, and the sum over all graphs."""
    scores = graphs.bge(x) if kind == "bge" else graphs.linear(x, noise=NOISE)
    if kind == "weights":
        return graphs.network(x, noise=NOISE), graphs.exact(scores)
    return graphs.target(scores), graphs.exact(scores)


def run(kind: str, d: int, rows: int, seed: int, seconds: float) -> dict[str, Any]:
    """What one run says of all edges, beside the truth."""
    target, exact = problem(kind, simulated(d, rows, seed))
    begun = time.perf_counter()
    result = trj.TRJSampler(target, seed=seed).run(max_seconds=seconds, progress=False)
    found = result.inclusion_probabilities(full=True)
    edges = exact.edges.to_numpy()
    of = np.array([edges[i, j] for j in range(d) for i in range(d) if i != j])
    gap = found["probability"].to_numpy() - of
    some = (of > RARE) & (of < 1 - RARE)
    z = (gap / found["se"].to_numpy())[some]
    known = z[~np.isnan(z)]
    return {
        "kind": kind,
        "nodes": d,
        "rows": rows,
        "seconds": time.perf_counter() - begun,
        "error": float(np.abs(gap).max()),
        "z": float(np.sqrt(np.mean(known**2))) if len(known) else np.nan,
        "worst": float(np.abs(known).max(initial=0.0)),
        "without": float(np.isnan(z).mean()) if len(z) else np.nan,
    }


def table(found: list[dict[str, Any]]) -> pd.DataFrame:
    """By case: errors and z-scores over the runs."""
    rows = pd.DataFrame(found)
    by = rows.groupby(["kind", "nodes", "rows"])
    return pd.DataFrame(
        {
            "runs": by.size(),
            "seconds": by["seconds"].median(),
            "median error": by["error"].median(),
            "worst error": by["error"].max(),
            "sd of z": by["z"].apply(lambda z: float(np.sqrt((z**2).mean()))),
            "worst |z|": by["worst"].max(),
            "without error": by["without"].mean(),
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each run")
    parser.add_argument("--case", choices=KINDS, nargs="*", default=list(KINDS))
    parser.add_argument("--nodes", type=int, nargs="*", default=[4, 5])
    parser.add_argument("--rows", type=int, nargs="*", default=[20, 100])
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TRJWarning)
        for kind in arguments.case:
            for d in arguments.nodes:
                for rows in arguments.rows:
                    for seed in range(arguments.runs):
                        found.append(run(kind, d, rows, seed, arguments.seconds))
    print(table(found).round(4).to_string())


if __name__ == "__main__":
    main()
