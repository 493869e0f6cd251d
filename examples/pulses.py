"""How many pulses are in the noise?

Four Gaussian pulses of nearly one height in white noise two thirds as large, half of them
overlapping: three, four or five could be there. The example of the Eryn paper (Karnesis et al.
2023), which samples it with births from the prior and a ladder of temperatures.

* pulses.png: p(k | data), the signal averaged over all k with the data, where the pulses are.

    python examples/pulses.py            # a minute
    python examples/pulses.py --quick
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from matplotlib import pyplot as plt

import trjmcmc as trj


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a quarter of the time")
    parser.add_argument("--output", type=Path, default=Path("output"))
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.output.mkdir(parents=True, exist_ok=True)

    target = trj.problems.pulses()
    result = trj.TRJSampler(target, seed=1).run(max_seconds=15 if options.quick else 60)
    print(result)
    print("\nThe pulses that were put in")
    print(np.round(target.pulses_true.numpy(), 3))
    print("\nThe pulses that were found: amplitude, centre and width with 90 % intervals")
    print(result.catalogue().round(3).T.to_string())

    grid = np.linspace(-1, 1, 300)
    t = torch.tensor(grid, dtype=torch.float32)

    def signal(p, active):
        z = (t - p["centre"][..., None]) / p["width"].clamp(min=1e-3)[..., None]
        each = p["amplitude"][..., None] * torch.exp(-0.5 * z**2)
        return torch.where(active[..., None], each, 0.0).sum(1)

    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 3.8), layout="constrained")
    result.plot_models(left)
    result.plot_averaged(grid, signal, (target.t.numpy(), target.y.numpy()), middle)
    middle.set_xlabel("t")
    middle.set_ylabel("signal, averaged over k")
    result.plot_components("centre", "width", right)
    for centre, width in target.pulses_true[:, 1:].tolist():
        right.plot(centre, width, "x", color="black", ms=7)
    path = options.output / "pulses.png"
    figure.savefig(path, dpi=120)
    print(f"\nPicture: {path}")


if __name__ == "__main__":
    main()
