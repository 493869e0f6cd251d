"""Ten sources among a hundred: 4000 points in the plane.

An equal mixture of round normals of known width, 1 to 100 of them, 200 coordinates in all. The
problem and its sizes are those of the walkthrough of Davies et al. (2025), who fit one flow to all
101 models. Here chains go from the prior to the posterior through all numbers at once, and one
component at a time comes, goes or moves: a step costs what one component costs.

With --variational q(k) comes first, by normals of one number of components after the other: each
begins at the best of one fewer and the newborns that fit best.

* gaussian_mixture.png: p(k | data), data and components, densities;
* variational.png: q(k) and the density averaged over numbers and parameters.

    python examples/gaussian_mixture.py            # two minutes
    python examples/gaussian_mixture.py --quick    # 500 points, 4 sources, 12 at most
    python examples/gaussian_mixture.py --variational
"""

import argparse
import math
from pathlib import Path

import torch
from matplotlib import pyplot as plt

import trjmcmc as trj

SIGMA = 0.5  # of each component
SMALL = {"true": 4, "points": 500, "most": 12, "side": 10.0}


def averaged_density(
    answer: trj.approximate.Variational, x: torch.Tensor, y: torch.Tensor, draws: int = 200
) -> torch.Tensor:
    """The predictive density on a grid, averaged over draws of q(k, theta), (len(y), len(x))."""
    sample = answer.sample
    centres = torch.stack([sample.values["x"], sample.values["y"]], -1)[:draws].double()
    gap_x = (x - centres[..., :1]).square()[:, :, None, :]
    gap_y = (y - centres[..., 1:]).square()[:, :, :, None]
    each = (-0.5 * (gap_x + gap_y) / SIGMA**2).exp() / (2 * math.pi * SIGMA**2)
    return each.nanmean(1).mean(0)


def variational(target: trj.Target, folder: Path) -> None:
    """q(k) and the averaged density; no chain."""
    answer = trj.variational(target, seed=1)
    print(answer)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    q = answer.models["probability"]
    left.bar(q.index.astype(int), q)
    left.set(xlabel="components k", ylabel="q(k)", ylim=(0, 1.05))
    low, high = target.y.min(0).values - 1, target.y.max(0).values + 1
    x, y = (torch.linspace(float(a), float(b), 90).double() for a, b in zip(low, high, strict=True))
    right.contourf(x, y, averaged_density(answer, x, y).sqrt(), 20, cmap="Blues")
    right.plot(*target.means_true.T.numpy(), "x", color="black", ms=7)
    right.set(xlabel="x", ylabel="y", title="square root of the averaged density")
    path = folder / "variational.png"
    figure.savefig(path, dpi=120)
    print(f"Picture: {path}\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a smaller problem")
    parser.add_argument("--variational", action="store_true", help="q(k) as well")
    parser.add_argument("--output", type=Path, default=Path("output"))
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.output.mkdir(parents=True, exist_ok=True)

    target = trj.problems.gaussian_mixture_2d(**(SMALL if options.quick else {}))
    if options.variational:
        variational(target, options.output)
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
