"""How many planets pull at a star?

Radial velocities from a file (columns: days, m/s, error in m/s), or simulated with two planets; the
priors are those of the EPRV3 evidence challenge (Nelson et al. 2020).

* planets.png: p(number of planets), velocities folded with the period of each planet that is there
  with more than one half, what is left of them.
* planet_1.png, ...: the parameters of each of these.

    python examples/planets.py                        # simulated; five minutes
    python examples/planets.py velocities.txt --correlated
    python examples/planets.py --quick
"""

import argparse
from pathlib import Path

import arviz as az
import numpy as np
import torch
from matplotlib import pyplot as plt

import trjmcmc as trj
from trjmcmc.problems.radial_velocity import QuasiPeriodic, velocity_of

NAMES = ("period", "amplitude", "eccentricity", "periastron", "anomaly")


def velocities(entry: dict[str, np.ndarray], time: np.ndarray) -> np.ndarray:
    """What draws of a planet add at some times, (draws, times), m/s."""
    params = {name: torch.as_tensor(entry[name]) for name in NAMES}
    return velocity_of(params, torch.as_tensor(time)).numpy()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", nargs="?", type=Path, help="days, m/s, error in m/s")
    parser.add_argument("--correlated", action="store_true", help="noise of a rotating star")
    parser.add_argument("--most", type=int, default=3, help="planets")
    parser.add_argument("--quick", action="store_true", help="a tenth of the time")
    parser.add_argument("--output", type=Path, default=Path("output"))
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.output.mkdir(parents=True, exist_ok=True)
    seconds = 15 if options.quick else 150

    data = () if options.file is None else np.loadtxt(options.file, comments="#").T[:3]
    noise = QuasiPeriodic() if options.correlated else None
    target = trj.problems.radial_velocity(*data, most=options.most, correlated=noise)

    evidences = trj.evidences_of_counts(target, max_seconds=seconds, seed=1)
    print("\nNumber of planets: log evidence in nats, and probability")
    print(evidences.to_string(float_format="{:.4g}".format))
    result = trj.TRJSampler(target, seed=1).run(max_seconds=seconds)
    table = result.catalogue()
    print("\nPlanets: means and 90 % intervals")
    print(table.round(3).T.to_string())

    draws = result.to_arviz(entries=True)["posterior"]
    there = [int(i) for i in table.index[table["probability"] > 0.5]]
    planets = []
    for i in there:
        one = draws.sel(entry=i)
        on = one["present"].values.astype(bool).flatten()
        planets.append({name: one[name].values.flatten()[on] for name in NAMES})
    offset = float(draws["offset"].mean())
    time, seen, error = (x.numpy() for x in (target.time, target.velocity, target.error))
    some = [{name: x[:: max(1, len(x) // 300)] for name, x in p.items()} for p in planets]
    means = [velocities(p, time).mean(0) for p in some]
    left = seen - offset - sum(means)

    figure, axes = plt.subplots(
        1, 2 + len(there), figsize=(3.6 * (2 + len(there)), 3.4), layout="constrained"
    )
    axes[0].bar(evidences.index, evidences["probability"], color="0.7")
    axes[0].errorbar(
        evidences.index, evidences["probability"], evidences["probability_se"], fmt="none"
    )
    axes[0].set(xlabel="planets", ylabel="probability", xticks=evidences.index)
    for axis, entry, mean in zip(axes[1:-1], some, means, strict=True):
        period = float(np.median(entry["period"]))
        phase = time % period / period
        axis.errorbar(phase, left + mean, error, fmt=".", ms=4, lw=0.8, color="0.4")
        grid = np.linspace(0, period, 200)
        low, middle, high = np.quantile(velocities(entry, grid), [0.05, 0.5, 0.95], axis=0)
        axis.fill_between(grid / period, low, high, alpha=0.3)
        axis.plot(grid / period, middle)
        axis.set(xlabel=f"phase, period {period:.4g} d", ylabel="velocity, m/s")
    axes[-1].errorbar(time, left, error, fmt=".", ms=4, lw=0.8, color="0.4")
    axes[-1].axhline(0, lw=0.8)
    axes[-1].set(xlabel="days", ylabel="what is left, m/s")
    paths = [options.output / "planets.png"]
    figure.savefig(paths[0], dpi=120)
    for i, entry in zip(there, planets, strict=True):
        az.plot_pair({name: x[None, :: max(1, len(x) // 4000)] for name, x in entry.items()})
        paths.append(options.output / f"planet_{i}.png")
        plt.gcf().savefig(paths[-1], dpi=80)
    print("\nPictures:", *paths)


if __name__ == "__main__":
    main()
