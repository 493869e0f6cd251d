"""A network of four variables whose equations bend: which edges, and in which direction?

Sixty rows of x0 -> x1 -> x3 <- x2, each variable a bent function of its parents plus noise of
variance one. Three models of the same data:

* BGe: linear, weights integrated out. It can't tell directions within a Markov equivalence class.
* linear equations with noise of known variance, weights sampled;
* a network of two hidden units for each node, weights sampled; each node given each of its parent
  sets is tempered by itself, and all graphs are added up, with errors.

Noise of the same known variance in all variables tells directions apart where weights are known to
be moderate; linear equations see less of the data than bent ones.

    python examples/structural_equations.py --quick
"""

import argparse
import time
import warnings

import torch

import trjmcmc as trj
from trjmcmc import graphs
from trjmcmc.errors import TRJWarning

NAMES = ["x0", "x1", "x2", "x3"]
TRUE = [("x0", "x1"), ("x1", "x3"), ("x2", "x3")]
NOISE = 1.0


def simulated(rows: int, seed: int = 0) -> torch.Tensor:
    """Rows of x0 -> x1 -> x3 <- x2."""
    g = torch.Generator().manual_seed(seed)
    e = NOISE**0.5 * torch.randn(4, rows, generator=g)
    x0, x2 = e[0], e[2]
    x1 = 2.5 * torch.tanh(2 * x0) + e[1]
    x3 = 2 * torch.tanh(x1) - 2.5 * torch.tanh(2 * x2) + e[3]
    return torch.stack([x0, x1, x2, x3], 1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="shorter runs")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    x = simulated(60)
    print("true edges:", ", ".join(f"{i}->{j}" for i, j in TRUE))

    found = graphs.exact(graphs.bge(x, names=NAMES))
    print("\nBGe, all graphs added up: edges, parents in rows")
    print(found.edges.round(3).to_string())

    target = graphs.network(x, noise=NOISE, names=NAMES)
    seconds = 5 if options.quick else 20
    with warnings.catch_warnings():
        if options.quick:
            warnings.simplefilter("ignore", TRJWarning)
        result = trj.TRJSampler(target, seed=0).run(max_seconds=seconds, progress=options.quick)
    print(f"\nlinear equations, weights sampled for {seconds} s: most probable graphs")
    print(graphs.GraphPosterior(result).graphs(3)[["probability", "se"]].round(3).to_string())

    target = graphs.network(x, hidden=2, activation="tanh", noise=NOISE, names=NAMES)
    begun = time.perf_counter()
    few = {"particles": 100, "replicates": 2, "moves": 10}
    scores = graphs.evidences(target, **(few if options.quick else {"particles": 500}))
    found = graphs.exact(scores)
    print(f"\nnetworks, tempered in {time.perf_counter() - begun:.0f} s: edges and their errors")
    print(found.edges.round(3).to_string())
    print(found.edges_se.round(3).to_string())
    print("log evidence of all graphs:", f"{found.log_evidence:.1f} ± {found.log_evidence_se:.1f}")
    print("parents of x3:", found.parents("x3").head(3).round(3).to_dict())


if __name__ == "__main__":
    main()
