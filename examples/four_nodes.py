"""Which way do edges point that no data can tell apart? Four nodes, every answer known.

The example of DiBS (Lorch et al. 2021, appendix H.4, Table 4): x0 -> x1, x0 -> x2, x3 below both.
Under the BGe score the directions of x1 - x0 - x2 are open, but for a collision at x0, and the one
at x3 is known. Probabilities of pairs of edges by sums over all 543 graphs, by a run, by structure
MCMC with its ratio and with the published one of 1, by DiBS, averaged over seeds as in the table
(with DiBS+ single seeds differ by more than its mean is off), and, where causal-learn is installed,
by a bootstrap of its greedy equivalence search.

    python examples/four_nodes.py                     # a data set of its own
    python examples/four_nodes.py rows.csv            # a table of 100 rows without a header
"""

from __future__ import annotations

import argparse
import importlib.util
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

import trjmcmc as trj
from trjmcmc import graphs
from trjmcmc.errors import ConvergenceWarning
from trjmcmc.kernel import BirthDeath, StructureNeighbours
from trjmcmc.space.paths import adjacency

WEIGHTS = {(0, 1): 2.0, (0, 2): -2.0, (1, 3): 3.0, (2, 3): 1.0}

PUBLISHED = {  # Table 4
    "exact": [0.298, 0.052, 0.311, 0.297, 0.017, 0.914, 0.043, 0.025],
    "DiBS": [0.134, 0.201, 0.223, 0.103, 0.157, 0.338, 0.275, 0.154],
    "DiBS+": [0.216, 0.037, 0.409, 0.298, 0.013, 0.934, 0.034, 0.019],
}


def simulated() -> np.ndarray:
    """A hundred rows with the weights of the paper and noise of variance one."""
    weight = torch.zeros(4, 4, dtype=torch.float64)
    for edge, value in WEIGHTS.items():
        weight[edge] = value
    return graphs.SimulatedNetwork(weight != 0, weight, 1.0).draw(100, seed=0).numpy()


def greedy(rows: np.ndarray) -> np.ndarray:
    """Greedy equivalence search of causal-learn: -1 at i, j where the edge has its tail at i."""
    from causallearn.search.ScoreBased.GES import ges

    return ges(rows)["G"].graph == -1


def pairs(share: Callable[[Callable[[Tensor], Tensor]], float]) -> dict[str, float]:
    """Of the paths over x0 and over x3 in their four directions each."""

    def both(edges: Tensor, i: int, middle: int, j: int, first: bool, second: bool) -> Tensor:
        one = edges[:, i, middle] if first else edges[:, middle, i]
        return one & (edges[:, middle, j] if second else edges[:, j, middle])

    found = {}
    for i, middle, j in ((1, 0, 2), (1, 3, 2)):
        for first in (True, False):
            for second in (True, False):
                name = f"x{i}{'->' if first else '<-'}x{middle}{'->' if second else '<-'}x{j}"
                where = (i, middle, j, first, second)
                found[name] = share(lambda edges, where=where: both(edges, *where))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, nargs="?", help="CSV of four columns, no header")
    parser.add_argument("--seeds", type=int, default=5, help="of DiBS")
    parser.add_argument("--seconds", type=float, default=5.0, help="of the run")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    x = simulated() if options.data is None else np.loadtxt(options.data, delimiter=",")
    target = graphs.target(graphs.bge(x))
    every = target.space.enumerate()
    p = target.log_joint(every, torch.zeros(len(every), 0)).softmax(0)
    edges = adjacency(every)
    table = {"exact": pairs(lambda of: float(p @ of(edges).double()))}

    begun = time.perf_counter()
    result = trj.TRJSampler(target, seed=0).run(
        until={"probability": 1e-3}, max_seconds=options.seconds, progress=False
    )
    seconds = time.perf_counter() - begun
    drawn = adjacency(graphs.GraphPosterior(result).masks.flatten(0, 1))
    table["run"] = pairs(lambda of: float(of(drawn).double().mean()))

    for ratio, label in (("neighbourhoods", "MC3"), ("one", "MC3, ratio one")):
        kernel = BirthDeath(target, StructureNeighbours(target.space, ratio=ratio))
        sampler = trj.TRJSampler(target, kernel=kernel, seed=0)
        steps = int(400 * options.seconds)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # short chains
            result = sampler.run(draws=steps, warmup=steps, chains=64, fit=False, progress=False)
        drawn = adjacency(graphs.GraphPosterior(result).masks.flatten(0, 1))
        table[label] = pairs(lambda of, drawn=drawn: float(of(drawn).double().mean()))

    names = list(table["exact"])
    each: dict[str, list[list[float]]] = {"DiBS": [], "DiBS+": []}
    begun = time.perf_counter()
    for seed in range(options.seeds):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # particles that stay cyclic
            found = graphs.dibs(target, steps=500, alpha=1.0, beta=2.0, seed=seed, progress=False)
        for name, plus in (("DiBS", False), ("DiBS+", True)):
            own = pairs(lambda of, f=found, plus=plus: f.share(of, plus=plus))
            each[name].append(list(own.values()))
    spent = (time.perf_counter() - begun) / options.seeds
    for name, values in each.items():
        table[name] = dict(zip(names, np.mean(values, 0), strict=True))
        table[f"{name} sd"] = dict(zip(names, np.std(values, 0), strict=True))
    if importlib.util.find_spec("causallearn") is not None:
        found = graphs.bootstrap(target, x, greedy, replicates=100)
        for name, plus in (("bootstrap", False), ("bootstrap, weighed", True)):
            table[name] = pairs(lambda of, f=found, plus=plus: f.share(of, plus=plus))
    if options.data is not None:
        for name, values in PUBLISHED.items():
            table[f"{name} published"] = dict(zip(names, values, strict=True))
    every_answer = pd.DataFrame(table)
    print(every_answer.round(3).to_string())
    worst = (every_answer["run"] - every_answer["exact"]).abs().max()
    print(f"\nrun of {seconds:.1f} s: largest error {worst:.4f}; DiBS {spent:.1f} s a seed")


if __name__ == "__main__":
    main()
