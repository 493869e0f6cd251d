"""Which columns belong into a regression with outliers? Block variable selection.

Section 5.3 of Davies et al. (2023, https://arxiv.org/abs/2210.12572) and 4.3 of Yin & Jiao: half
the responses follow one regression, half another, errors are a mixture of N(0, 1) and N(0, 100),
and posteriors have several modes. Four models: x2 enters on its own, x3 and x4 together. Every
sampler of the two papers is trained and judged as there: by the scatter of Bartolucci's estimates
from N draws a model, one proposed jump each. The exact answer is a sum over a lattice.

* violins.png: those estimates by model, sampler and N.
* running.png: running estimates of the full model's probability, three chains a sampler.

    python examples/robust_regression.py --quick
    python examples/robust_regression.py                          # the papers' size
    python examples/robust_regression.py --data regression.csv    # columns y, x1, x2, x3, x4
"""

import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from experiments import (
    NAMES,
    PUBLISHED,
    Size,
    Trained,
    bridge_estimates,
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

import trjmcmc as trj
from trjmcmc.fit import tempered_draws

FULL = Size(12_500, 4_000, 10_000, 100_000, (500, 1000, 2000, 4000), 80)
QUICK = Size(2_000, 500, 150, 200, (500,), 10, fit={"audit": 500_000}, seconds=10)
FULL_MODEL = 3


def regression(path: Path | None) -> trj.Target:
    """The target, of the data in a file or of simulated ones."""
    if path is None:
        return trj.problems.robust_regression()
    table = pd.read_csv(path)
    first = list(table.columns).index("y") + 1
    return trj.problems.robust_regression(table.iloc[:, first : first + 4], table["y"])


def main() -> None:
    options = parser(__doc__, "robust_regression")
    options.add_argument("--data", type=Path, help="CSV; simulated if omitted")
    arguments = options.parse_args()
    begun = time.perf_counter()
    torch.set_num_threads(arguments.threads)
    size = QUICK if arguments.quick else FULL
    generator = torch.Generator().manual_seed(arguments.seed)
    target = regression(arguments.data)
    labels, truth = target.space.label(target.space.enumerate()), target.truth.probabilities
    pilot = tempered_draws(target, size.particles, generator)
    pool = tempered_draws(target, size.particles, generator)  # to evaluate on

    print("Four regressions with outliers: x2 enters on its own, x3 and x4 together, x1 always.")
    print(NAMES)
    trained = train_all(target, ("switch", *PUBLISHED), pilot, size, generator, arguments.seed)
    found: dict[int, dict[str, np.ndarray]] = {}
    for n in size.sets:
        found[n] = bridge_estimates(target, trained, pool, n, size.repeats, generator)
        say(
            f"Bartolucci's estimates from N = {n} draws a model, {size.repeats} repeats",
            "Standard deviation of each model's probability: the smaller, the better the map.",
        )
        print(spread_table(found[n], labels, truth).to_string(float_format=two_digits))

    lines = {
        name: running_estimates(target, each.jump, pool, FULL_MODEL, size.running, generator)
        for name, each in trained.items()
    }
    print_seconds(trained)
    sampler = trj.TRJSampler(target, seed=arguments.seed)
    result = sampler.run(max_seconds=size.seconds, progress=False)
    table = result.model_probabilities()[["probability", "se"]]
    table.insert(0, "exact", pd.Series(truth))
    say("TRJSampler(target).run(), the default", "Probabilities and standard errors.")
    print(table.round(4).to_string(), "\n")

    save(violin_figure(found, labels, truth), arguments.output, "violins.png")
    full = labels[FULL_MODEL]
    save(running_figure(lines, truth[full], full), arguments.output, "running.png")
    print(f"total {time.perf_counter() - begun:.0f} s")


def print_seconds(trained: dict[str, Trained]) -> None:
    pilot = "the tempered draws come on top for all but switch, VI and ours"
    say("Seconds of training", pilot[0].upper() + pilot[1:] + ".")
    print(pd.Series({n: t.seconds for n, t in trained.items()}).round(1).to_string(), "\n")


if __name__ == "__main__":
    main()
