"""Two skewed models in one and two dimensions: which map carries one to the other best?

The illustrative example of Davies et al. (2023, https://arxiv.org/abs/2210.12572) and of Yin &
Jiao, with every sampler of the two papers and ours. Both models' densities are known, and so is
the exact map between them. The pictures are theirs:

* transport.png: a lattice of points of the one-dimensional model and of the number that a jump
  upwards needs, carried to the two-dimensional model by each map. The exact map fills the
  density, a poor one strays from it.
* running.png: running estimates of p(2d), three chains a sampler; the truth is 3/4.
* spread.png: Bartolucci's estimates of p(2d), repeated.
* depth.png: running estimates by number of couplings of the maps trained without pilot draws.

    python examples/sinh_arcsinh.py --quick     # two minutes
    python examples/sinh_arcsinh.py             # the papers' size
"""

import time

import numpy as np
import pandas as pd
import torch
from experiments import (
    NAMES,
    PUBLISHED,
    Size,
    Trained,
    bridge_estimates,
    by_depth,
    parser,
    running_estimates,
    running_figure,
    save,
    say,
    spread_table,
    train_all,
    two_digits,
    violin_figure,
)
from matplotlib import pyplot as plt

import trjmcmc as trj
from trjmcmc.compare.classical import uniform_proposal
from trjmcmc.fit import Pool
from trjmcmc.kernel import Jump
from trjmcmc.problems import SinhArcsinhMap

FULL = Size(0, 50_000, 10_000, 100_000, (500, 4000), 80, (1, 2, 4, 8, 16))
QUICK = Size(0, 5_000, 250, 500, (500,), 20, (1, 4), seconds=10)
GRID = 40  # lattice points a coordinate
MODEL = 1  # the two-dimensional one


def exact_draws(target: trj.Target, n: int, generator: torch.Generator) -> Pool:
    """Posterior draws of both models through the exact map."""
    code = torch.arange(2).repeat(n)[:, None]
    z = torch.randn(2 * n, 2, generator=generator)
    theta = SinhArcsinhMap(target.space).push(z, code)[0]
    theta = torch.where(target.space.active(code), theta, 0.0)
    return Pool(code, theta, target.log_joint(code, theta))


def carried(jump: Jump, exact: SinhArcsinhMap, generator: torch.Generator) -> torch.Tensor:
    """Where a jump takes a lattice of points of the one-dimensional model, shape (GRID^2, 2)."""
    u = (torch.arange(GRID) + 0.5) / GRID
    z = torch.special.ndtri(torch.cartesian_prod(u, u))
    here, there = torch.zeros(len(z), 1).long(), torch.ones(len(z), 1).long()
    theta = exact.push(z, here)[0]  # its second coordinate is the number that the jump needs
    with torch.no_grad():
        moved, _ = jump.transport.pull(theta, here, generator)
        return jump.transport.push(moved, there)[0]


def draw_transport(
    trained: dict[str, Trained], exact: SinhArcsinhMap, generator: torch.Generator
) -> plt.Figure:
    """One panel a map: the density's own draws in grey, carried points by where they came from."""
    shown = {n: t.jump for n, t in trained.items() if isinstance(t.jump, Jump)}
    columns = 4
    rows = -(-len(shown) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(3.1 * columns, 2.9 * rows), layout="constrained", squeeze=False
    )
    z = torch.randn(4000, 2, generator=generator)
    density = torch.asinh(exact.push(z, torch.ones(4000, 1).long())[0])
    hue = np.repeat((np.arange(GRID) + 0.5) / GRID, GRID)
    low, high = np.quantile(density, [0.002, 0.998], axis=0)
    edge = 0.1 * (high - low)
    for ax, (name, jump) in zip(axes.flat, shown.items(), strict=False):
        grey = ax.scatter(*density.T, s=2, color="0.8", rasterized=True, label="draws of 2d")
        points = torch.asinh(carried(jump, exact, generator))
        drawn = ax.scatter(*points.T, s=3, c=hue, cmap="viridis", rasterized=True)
        ax.set_title(name, fontsize=10)
        ax.set(xlabel="asinh x1", ylabel="asinh x2")
        ax.set(xlim=(low[0] - edge[0], high[0] + edge[0]))
        ax.set(ylim=(low[1] - edge[1], high[1] + edge[1]))
    for ax in axes.flat[len(shown) :]:
        ax.set_axis_off()
    figure.colorbar(drawn, ax=axes, label="carried points: quantile in the 1d model", shrink=0.8)
    figure.legend(handles=[grey], loc="outside lower center", frameon=False, markerscale=4)
    return figure


def conclusion(estimates: dict[str, np.ndarray], seconds: pd.Series) -> str:
    """What the largest evaluation set says of the maps that had to be learnt."""
    spread = {n: float(v[:, MODEL].std(ddof=1)) for n, v in estimates.items() if n != "exact"}
    best, worst = min(spread, key=spread.__getitem__), max(spread, key=spread.__getitem__)
    needed = {n: two_digits((sd / spread[best]) ** 2) for n, sd in spread.items()}
    known = 1 / (2 * len(estimates[best]) - 2) ** 0.5
    text = (
        f"\nLeast scatter: {best}, {two_digits(spread[best])} after {seconds[best]:.0f} s of "
        f"training. Most: {worst}, {two_digits(spread[worst])}:\nas errors fall with the root of "
        f"the draws, it needs {needed[worst]} times as many for the same error"
    )
    text += "" if best == "ours" else f",\nand ours {needed['ours']} times as many"
    return f"{text} (each scatter is known to {known:.0%})."


def main() -> None:
    arguments = parser(__doc__, "sinh_arcsinh").parse_args()
    begun = time.perf_counter()
    torch.set_num_threads(arguments.threads)
    size = QUICK if arguments.quick else FULL
    generator = torch.Generator().manual_seed(arguments.seed)
    target = trj.problems.sinh_arcsinh()
    exact = SinhArcsinhMap(target.space)
    pilot = exact_draws(target, size.pilot, generator)
    pool = exact_draws(target, 20 * max(size.sets), generator)  # to evaluate on

    print(
        "Two models with skewed, heavy-tailed sinh-arcsinh densities: 1d has one coordinate and "
        "probability\n1/4, 2d has two, correlated at .99, and 3/4. Which map makes the best jump "
        "between them?"
    )
    print(NAMES)
    trained = train_all(target, PUBLISHED, pilot, size, generator, arguments.seed)
    trained["exact"] = Trained(Jump(target, exact, uniform_proposal(target)), 0.0)

    lines = {
        name: running_estimates(target, each.jump, pool, MODEL, size.running, generator)
        for name, each in trained.items()
    }
    labels, truth = ["1d", "2d"], target.truth.probabilities
    table = pd.DataFrame({"seconds of training": {n: t.seconds for n, t in trained.items()}})
    table["largest error of three chains"] = {
        name: np.abs(line[-1] - truth["2d"]).max() for name, line in lines.items()
    }
    found = {}
    for n in size.sets:
        found[n] = bridge_estimates(target, trained, pool, n, size.repeats, generator)
        table[f"sd of Bartolucci's p(2d), N = {n}"] = spread_table(found[n], labels, truth)["sd 2d"]
    say(
        "How good is each map?",
        f"Errors of three running estimates of p(2d) = 3/4 after {size.running} steps, and the "
        "scatter of\nBartolucci's estimates from N draws a model: the smaller, the better. Through "
        "the exact map all\nestimates are the same.",
    )
    print(table.to_string(float_format=two_digits))
    print(conclusion(found[max(found)], table["seconds of training"]))

    sampler = trj.TRJSampler(target, seed=arguments.seed)
    result = sampler.run(max_seconds=size.seconds, progress=False)
    say("TRJSampler(target).run(), the default", "Probabilities by the visits; exact: .25 and .75.")
    print(result.model_probabilities()[["probability", "se"]].round(4).to_string(), "\n")

    folder = arguments.output
    save(draw_transport(trained, exact, generator), folder, "transport.png")
    save(running_figure(lines, truth["2d"], "2d"), folder, "running.png")
    upper = {n: {k: v[:, [MODEL]] for k, v in each.items()} for n, each in found.items()}
    save(violin_figure(upper, ["2d"], truth), folder, "spread.png")

    depth = by_depth(target, pool, MODEL, size, generator)
    save(running_figure(depth, truth["2d"], "2d"), folder, "depth.png")
    print(f"total {time.perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    main()
