"""Nonlinear networks of ten nodes: variational inference over graphs beside sums over all of them.

The study of Davies et al., "Variational transdimensional inference", section 5.2: networks of ten
hidden units without biases between ten nodes, half of the edges that an order allows, weights
uniform in +-(.3, .7), noise of variance one, the first n of 1024 rows. Four answers:

- sums over all graphs (`graphs.exact`), the weights of the output integrated in closed form, those
  of the first layer by draws from their prior, whose errors are told;
- the same where a graph counts once for each order of its nodes, which is what a permutation with
  a triangle of bits counts if nothing is done about it;
- variational inference over permutation and triangle, for both, of the graphs alone (weights as
  above), and of the graphs with independent normals over 1000 weights that depend on the graph.

The gap is the Kullback-Leibler divergence of q from the posterior: log evidence less bound.

The published figure (its numbers are not in the text) can not be compared: the simulator that was
released with it draws nodes by their number where the graph is permuted, so that half of the edges
never enter the data that they are scored against. Here every edge does (`graphs.simulate`).

    python examples/ten_node_network.py                 # two data sets of 16 rows, two minutes
    python examples/ten_node_network.py --rows 16 64 --sets 10 --draws 6000
"""

from __future__ import annotations

import argparse
import math
import time
from typing import Any

import pandas as pd
import torch
from torch import Tensor
from torch.distributions import Independent, Normal

import trjmcmc as trj
from trjmcmc import graphs
from trjmcmc.space.paths import adjacency

NODES, HIDDEN = 10, 10


def random_network(seed: int) -> graphs.SimulatedNetwork:
    """A random order, each edge that it allows with probability one half."""
    graph = graphs.random_graph(NODES, edges_a_node=(NODES - 1) / 4, seed=100 + seed)
    return graphs.simulate(
        graph, hidden=HIDDEN, bias=False, noise=1.0, weights=(0.3, 0.7), seed=200 + seed
    )


def network(x: Tensor) -> trj.Target:
    """Standard normal weights of both layers; nodes without parents have mean zero."""
    x = x.to(torch.get_default_dtype())
    constant = -0.5 * math.log(2 * math.pi)

    def density(j: int, params: dict[str, Tensor], parents: Tensor) -> Tensor:
        units = torch.einsum("ni,cih->cnh", x, params["w"]).relu()
        mean = (units @ params["v"][..., None])[..., 0]
        return (constant - 0.5 * (x[:, j] - mean).square()).sum(1)

    layer = Independent(Normal(torch.zeros(HIDDEN), 1.0), 1)
    names = [f"x{j}" for j in range(x.shape[1])]
    return graphs.equations(names, density, edges={"w": layer}, nodes={"v": layer})


def summed_scores(x: Tensor, draws: int, seed: int = 0) -> graphs.LocalScores:
    """Log evidence of each node given each of its parent sets, by draws of the first layer."""
    n, d = x.shape
    x = x.float()
    generator = torch.Generator().manual_seed(seed)
    first = torch.randn(draws, d, HIDDEN, generator=generator)
    eye, constant = torch.eye(HIDDEN), -0.5 * n * math.log(2 * math.pi)
    table = torch.full((d, 2 ** (d - 1)), -math.inf, dtype=torch.float64)
    error = torch.zeros_like(table)
    squares = x.square().sum(0)
    table[:, 0] = constant - 0.5 * squares.double()
    for mask in range(1, 2**d):
        parents = [i for i in range(d) if mask >> i & 1]
        children = [j for j in range(d) if j not in parents]
        if not children:
            continue
        units = torch.einsum("ni,sih->snh", x[:, parents], first[:, parents]).relu_()
        factor = torch.linalg.cholesky(units.mT @ units + eye)
        pull = torch.linalg.solve_triangular(factor, units.mT @ x[:, children], upper=False)
        volume = factor.diagonal(dim1=1, dim2=2).log().sum(1)
        residual = squares[children] - pull.square().sum(1)
        value = (constant - volume[:, None] - 0.5 * residual).double()
        mean = value.logsumexp(0) - math.log(draws)
        for c, j in enumerate(children):
            low, high = mask & (2**j - 1), mask >> (j + 1)  # the node's own bit is left out
            place = low | high << j
            table[j, place] = mean[c]
            error[j, place] = (value[:, c] - mean[c]).exp().std() / draws**0.5
    return graphs.LocalScores([f"x{j}" for j in range(d)], table, std_error=error)


def vti(target: trj.Target, counted: str, steps: int, batch: int) -> tuple[Any, Tensor, float]:
    """The bound, graphs drawn from q, and seconds."""
    begun = time.process_time()
    ordered = graphs.ordered(target, prior=counted)
    flow = None
    if target.dim:
        flow = trj.transport.CosmicAutoregressive(ordered.space, transform="diagonal", blocks=0)
    sampler = trj.TRJSampler(ordered, flow, models=trj.weights.Made, seed=0)
    sampler.fit(steps=steps, batch=batch, progress=False)
    code = sampler.models.sample(2000, torch.Generator().manual_seed(0))
    bound = sampler.variational.elbo
    return bound, ordered.space.masks(code), time.process_time() - begun


def row(truth: Tensor, draws: Tensor, seconds: float, gap: float, error: float) -> dict[str, float]:
    found = graphs.metrics(adjacency(draws).numpy(), truth.numpy())
    return {
        "F1": found["f1_by_draws"],
        "SHD": found["expected_shd_by_entries"],
        "Brier": found["brier"],
        "AUROC": found["auroc_by_draws"],
        "edges": found["expected_edges"],
        "gap/nats": gap,
        "± ": error,
        "cpu/s": seconds,
    }


def study(n: int, seed: int, options: argparse.Namespace) -> pd.DataFrame:
    """One data set, four answers."""
    simulated = random_network(seed)
    truth = simulated.graph
    x = simulated.draw(1024, seed=300 + seed)[:n]
    begun = time.process_time()
    scores = summed_scores(x, options.draws)
    known = {
        "graphs": graphs.exact(scores),
        "orders": graphs.exact(scores, orders=True),
    }
    seconds = time.process_time() - begun
    found = {}
    exact = known["graphs"]
    found["exact, graphs"] = row(truth, exact.sample(5000), seconds, 0.0, exact.log_evidence_se)
    edges = graphs.metrics(known["orders"].edges, truth.numpy())
    found["exact, orders"] = {
        "SHD": edges["expected_shd_by_entries"],
        "Brier": edges["brier"],
        "AUROC": edges["auroc_by_draws"],
        "edges": edges["expected_edges"],
        "gap/nats": 0.0,
        "± ": known["orders"].log_evidence_se,
        "cpu/s": seconds,
    }
    targets = {
        "of graphs": (graphs.target(scores), options.steps, 4 * options.batch),
        "of both": (network(x), options.steps, options.batch),
    }
    for counted in ("graphs", "orders"):
        for name, (target, *length) in targets.items():
            bound, draws, spent = vti(target, counted, *length)
            gap = known[counted].log_evidence - bound.value
            error = math.hypot(known[counted].log_evidence_se, bound.std_error)
            found[f"VI {name}, {counted}"] = row(truth, draws, spent, gap, error)
    table = pd.DataFrame(found).T
    worst = exact.edges_se.to_numpy().max()
    print(f"{n} rows, data set {seed}: {int(truth.sum())} edges; exact edges +- {worst:.3f}")
    print(table.round(2).to_string(), flush=True)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="*", default=[16])
    parser.add_argument("--sets", type=int, default=2, help="data sets of each size")
    parser.add_argument("--draws", type=int, default=2000, help="of the first layer")
    parser.add_argument("--steps", type=int, default=500, help="of each fit")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for n in options.rows:
        every = [study(n, seed, options) for seed in range(options.sets)]
        mean = sum(every) / len(every)
        print(f"\n{n} rows, mean of {options.sets} data sets")
        print(mean.round(2).to_string())
        gaps = [table.loc["VI of graphs, graphs", "gap/nats"] for table in every]
        print(f"largest gap of variational inference of graphs: {max(gaps):.1f} nats\n", flush=True)


if __name__ == "__main__":
    main()
