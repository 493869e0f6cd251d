"""How often did the rate of British coal-mining disasters change?

Green (1995) put a step function with an unknown number k of change points on the rate of the
191 disasters between 1851 and 1962 and invented reversible-jump MCMC to sample it. This script
asks trjmcmc for p(k | data), for the rate over the years, and compares with the exact answer.

    python examples/coal_mining.py                     # k = 1 to 6, some 35 seconds
    python examples/coal_mining.py --k-min 0 --k-max 10
    python examples/coal_mining.py --quick             # fewer draws
    python examples/coal_mining.py --fit               # train a map in full and audit it first
"""

import argparse
import time
from pathlib import Path

import emcee
import numpy as np
import pandas as pd
import torch
from matplotlib import pyplot as plt

import trjmcmc as trj
from trjmcmc.plot.style import PALETTE
from trjmcmc.problems.coal_mining import DAYS, LENGTH

YEAR = 365.2425
UNTRAINED = """
No map was trained: it would have cost more time than it saves. The evidences go through normals
fitted to a small pilot run. A low importance ESS, 'uncovered', 'rough' and 'unchecked' speak of
those, and not of the answer: it rests on the chains, which are exact under any map. (--fit trains.)
"""


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
        result.plot_running(*right)
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
    result = sampler.run(
        draws=300 if arguments.quick else 2000, fit=True if arguments.fit else "auto"
    )

    table = result.model_probabilities(full=True)
    table.insert(0, "exact", pd.Series(target.truth.probabilities))
    table.insert(3, "z", (table["visits"] - table["exact"]) / table["visits_se"])
    print("\nPosterior probability of the number of change points, 191 disasters 1851-1962\n")
    print(table.round(4).to_string())

    print("\nLog evidences by every route (nats)\n")
    evidence = result.evidence(full=True)
    shown = ["visits", "bartolucci", "bridge", "warp", "combined", "combined_se", "verdict"]
    print(evidence[[c for c in shown if c in evidence]].round(3).to_string())
    print("\nAudit: tempered runs that owe nothing to the map, and what they say of it\n")
    print(result.audit().round(3).to_string())
    if result.report.fit is None:
        print(UNTRAINED.rstrip())
    print("\nEffective draws of p(k) a second by the moves that were measured")
    for moves, rate in sorted(result.report.plan.efficiency.items(), key=lambda pair: -pair[1]):
        print(f"{moves:<24} {rate:8,.0f}   used for {result.report.plan.weights.get(moves, 0):.0%}")

    report = result.report
    sampling = report.seconds["sample"]
    print("\nacceptance   between models   inside a model")
    for kernel, rates in report.acceptance.items():
        print(
            f"{kernel:<12} {rates['between']:14.1%} {rates['within']:16.1%}".replace("nan%", "   -")
        )
    print(
        f"\nlargest error of p(k)            {(table['visits'] - table['exact']).abs().max():.4f}"
    )
    index = result.model_index().T[:, :, None].astype(float)
    moved = index[:, np.ptp(index[:, :, 0], axis=0) > 0]
    window = emcee.autocorr.integrated_time(moved, tol=0, quiet=True).item()
    print(
        f"autocorrelation time of k        {result.autocorrelation_time():.1f} steps by the spread "
        f"of the chains' means, {window:.1f} by emcee's window"
    )
    print(f"draws                            {result.raw.n_chains} chains x {result.raw.n_draws}")
    print(f"chain-steps per second           {result.raw.n_chains * report.steps / sampling:,.0f}")
    print(
        "seconds                          "
        + ", ".join(f"{stage} {s:.1f}" for stage, s in report.seconds.items())
    )
    print(f"likelihood evaluations           {report.evaluations:,}")
    draw(result, arguments.output, arguments.panels)
    print(f"total                            {time.perf_counter() - begun:.0f} s")
    print(f"picture                          {arguments.output}")
    visited = table[table["visits"] > 0]
    worst = visited["z"].abs().max()
    wrong = (table["visits"] - table["exact"]).abs().max()
    if not arguments.quick and (wrong > 0.01 or worst > 4):
        raise SystemExit(f"p(k) is off: largest error {wrong:.4f}, {worst:.1f} standard errors")


if __name__ == "__main__":
    main()
