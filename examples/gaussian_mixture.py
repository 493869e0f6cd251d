"""Ten sources among a hundred: 4000 points in the plane.

An equal mixture of round normals of known width, 1 to 100 of them, 200 coordinates in all. The
problem and its sizes are those of the walkthrough of Davies et al. (2025), who fit one flow to all
101 models. Here chains go from the prior to the posterior through all numbers at once, and one
component at a time comes, goes or moves: a step costs what one component costs.

* gaussian_mixture.png: p(k | data), data and components, densities.

    python examples/gaussian_mixture.py            # two minutes
    python examples/gaussian_mixture.py --quick    # 500 points, 4 sources, 12 at most
"""

import argparse
from pathlib import Path

import torch
from matplotlib import pyplot as plt

import trjmcmc as trj

SMALL = {"true": 4, "points": 500, "most": 12, "side": 10.0}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a smaller problem")
    parser.add_argument("--output", type=Path, default=Path("output"))
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.output.mkdir(parents=True, exist_ok=True)

    target = trj.problems.gaussian_mixture_2d(**(SMALL if options.quick else {}))
    result = trj.TRJSampler(target, seed=1).run(max_seconds=15 if options.quick else 120)
    print(result)
    found = result.catalogue()
    print(f"\n{len(target.means_true)} sources were put in at")
    print(target.means_true[target.means_true[:, 0].argsort()].numpy().round(3))
    print(f"\n{len(found)} were found")
    print(found.sort_values("x_mean").round(3).to_string())

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
    result.plot_models(left)
    right.scatter(*target.y.T.numpy(), 1, "0.8", lw=0)
    result.plot_components("x", "y", right)
    right.plot(*target.means_true.T.numpy(), "x", color="black", ms=7)
    right.set_xlim(float(target.y[:, 0].min()), float(target.y[:, 0].max()))
    right.set_ylim(float(target.y[:, 1].min()), float(target.y[:, 1].max()))
    path = options.output / "gaussian_mixture.png"
    figure.savefig(path, dpi=120)
    print(f"\nPicture: {path}")


if __name__ == "__main__":
    main()
