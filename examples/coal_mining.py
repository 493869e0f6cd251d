"""How often did the rate of British coal-mining disasters change?

Green (1995) put a step function with an unknown number k of change points on the rate of the
191 disasters between 1851 and 1962 and invented reversible-jump MCMC to sample it. This script
asks trjmcmc for p(k | data), for the rate over the years, and compares with the exact answer.

    python examples/coal_mining.py                     # k = 1 to 6, to 0.005, some 25 seconds
    python examples/coal_mining.py --k-min 0 --k-max 10
    python examples/coal_mining.py --quick             # to 0.02
    python examples/coal_mining.py --fit               # train a map in full and audit it first
"""

import argparse
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from matplotlib import pyplot as plt

import trjmcmc as trj
from trjmcmc.plot.style import PALETTE
from trjmcmc.problems.coal_mining import DAYS, LENGTH

YEAR = 365.2425


def rate_by_year(result: trj.Result, years: np.ndarray, most: int = 4000) -> np.ndarray:
    """Draws of the rate (disasters a year) at given years, averaged over k, shape (n, years)."""
    probabilities = result.model_probabilities(full=True)["visits"]
    rng = np.random.default_rng(0)
    rates = []
    for label, p in probabilities.items():
        n = round(most * p)
        if not n:
            continue
        draws = result.draws(label)
        rows = rng.integers(len(draws["height"]), size=n)
        height = draws["height"][rows]
        spacing = draws["spacing"][rows] if "spacing" in draws else np.ones((n, 1))
        change = 1851 + LENGTH / YEAR * spacing.cumsum(1)[:, :-1]
        step = (years > change[:, :, None]).sum(1)
        rates.append(np.take_along_axis(height, step, 1) * YEAR)
    return np.concatenate(rates)


def draw(result: trj.Result, path: Path, panels: int = 3) -> None:
    """Rate over the years, p(k), and in a third panel running estimates."""
    size, widths = ((13, 3.8), (1.4, 1, 1)) if panels == 3 else ((8.5, 3.4), (1.4, 1))
    figure, (left, middle, *right) = plt.subplots(
        1, panels, figsize=size, layout="constrained", width_ratios=widths
    )
    years = np.linspace(1851, 1963, 300)
    rates = rate_by_year(result, years)
    low, high = np.quantile(rates, [0.05, 0.95], axis=0)
    left.fill_between(years, low, high, color=PALETTE[5], alpha=0.45, lw=0, label="90 % band")
    left.plot(years, rates.mean(0), color=PALETTE[0], label="posterior mean, averaged over k")
    left.plot(
        1851 + np.asarray(DAYS) / YEAR,
        np.zeros(len(DAYS)),
        "|",
        color="black",
        ms=9,
        label="disasters",
    )
    left.set(xlabel="year", ylabel="rate (disasters a year)", xlim=(1851, 1963))
    left.legend(frameon=False, fontsize=8)
    result.plot_models(middle)
    middle.set(xlabel="number of change points")
    if right:
        result.chains.plot_running(*right)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--k-min", type=int, default=1, help="fewest change points")
    parser.add_argument("--k-max", type=int, default=6, help="most change points")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="more only if cores are idle")
    parser.add_argument("--quick", action="store_true", help="fewer draws")
    parser.add_argument("--fit", action="store_true", help="train a map in full first")
    parser.add_argument(
        "--panels", type=int, choices=(2, 3), default=3, help="2: no running estimates"
    )
    parser.add_argument("--output", type=Path, default=Path("output/coal_mining.png"))
    arguments = parser.parse_args()
    begun = time.perf_counter()
    torch.set_num_threads(arguments.threads)

    target = trj.problems.coal_mining(arguments.k_min, arguments.k_max)
    sampler = trj.TRJSampler(target, seed=arguments.seed)
    if arguments.fit:
        sampler.fit()
        print(sampler.audit_report)
    result = sampler.run(until={"probability": 0.02 if arguments.quick else 0.005})

    table = result.model_probabilities()
    table.insert(0, "exact", pd.Series(target.truth.probabilities))
    print("\nPosterior probability of the number of change points, 191 disasters 1851-1962\n")
    print(table.round(4).to_string())
    print("\nLog evidences by every route (nats)\n")
    try:
        evidence = result.evidence(full=True)
    except trj.errors.TRJError:  # the run was cut off before it had weighed a model
        evidence = result.evidence()
    shown = ["visits", "importance", "bridge", "combined", "combined_se", "verdict"]
    print(evidence[[c for c in shown if c in evidence]].round(3).to_string())

    report, off = result.report, (table["probability"] - table["exact"]).abs()
    print(
        "\nsteps between models by",
        ", ".join(f"{name} {share:.0%}" for name, share in report.plan.weights.items()),
    )
    print(
        f"largest error of p(k)            {off.max():.4f}, at most {table['se'].max():.4f} stated"
    )
    print(f"autocorrelation time of k        {result.chains.autocorrelation_time():.1f} steps")
    print(f"draws                            {result.raw.n_chains} chains x {result.raw.n_draws}")
    print(f"likelihood evaluations           {report.evaluations:,}")
    draw(result, arguments.output, arguments.panels)
    print(f"total                            {time.perf_counter() - begun:.0f} s")
    print(f"picture                          {arguments.output}")
    if off.max() > 0.003 + 4 * table["se"].max():
        raise SystemExit(f"p(k) is off by {off.max():.4f}")


if __name__ == "__main__":
    main()
