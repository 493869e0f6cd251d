"""How many groups of galaxies are there?

The velocities of 82 galaxies, as a mixture of normals whose number, means, variances and weights
are all unknown, under the priors of Richardson & Green (1997), section 4.1. They report
p(k) = .061 .128 .182 .199 .160 .109 .071 .040 .023 .013 for k = 3 to 12, without errors.

* galaxies.png: p(k | data), the density averaged over all k, where the components are.

    python examples/galaxies.py            # ten minutes: every standard error at most .01
    python examples/galaxies.py --quick    # a rough answer, and warnings that say so
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from matplotlib import pyplot as plt

import trjmcmc as trj

SHARES = (0.061, 0.128, 0.182, 0.199, 0.160, 0.109, 0.071, 0.040, 0.023, 0.013)
PUBLISHED = {3 + i: p for i, p in enumerate(SHARES)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="30 seconds")
    parser.add_argument("--output", type=Path, default=Path("output"))
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.output.mkdir(parents=True, exist_ok=True)

    target = trj.problems.mixture_1d()
    result = trj.TRJSampler(target, seed=1).run(max_seconds=30 if options.quick else 600)
    table = result.counts().droplevel("kind")[["probability", "se", "ess"]]
    table = table[table["probability"] > 1e-3].join(pd.Series(PUBLISHED, name="published"))
    print(table.round(4).to_string())
    draws = result.raw.n_chains * result.raw.n_draws * result.raw.thin
    slowest = table["ess"][table["probability"] > 0.01].min()
    print(f"\nAutocorrelation time of k: {draws / slowest:.0f} steps of one chain")
    print("\nComponents that most draws share")
    print(result.catalogue(least=0.2).round(2).T.to_string())

    grid = np.linspace(5, 38, 300)
    x = torch.tensor(grid, dtype=torch.float32)

    def density(p, active):
        weight = torch.where(active, p["mass"], 0.0)
        weight = weight / weight.sum(1, keepdim=True)
        precision = p["precision"].clamp(min=1e-12)[..., None]
        each = -0.5 * precision * (x - p["mean"][..., None]) ** 2
        each = torch.exp(each) * (precision / (2 * np.pi)).sqrt()
        return (weight[..., None] * each).sum(1)

    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 3.8), layout="constrained")
    result.plot_models(left)
    left.plot(*zip(*PUBLISHED.items(), strict=True), "_", ms=14, mew=2, color="black", label="1997")
    left.legend(frameon=False, fontsize=8, loc="upper right")
    result.plot_averaged(grid, density, target.y.numpy(), middle)
    middle.set_xlabel("velocity, 1000 km/s")
    middle.set_ylabel("density, averaged over k")
    result.plot_components("mean", ax=right)
    path = options.output / "galaxies.png"
    figure.savefig(path, dpi=120)
    print(f"\nPicture: {path}")


if __name__ == "__main__":
    main()
