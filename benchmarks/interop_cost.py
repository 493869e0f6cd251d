"""What does a default run cost through each front end, beside PyTorch, and is it right?

    python -m benchmarks.interop_cost                                # all front ends: an hour
    python -m benchmarks.interop_cost --only from_pyro --repeats 1

Two conjugate regressions of thirty points whose evidences are known, stated in each language
(``tests/interop/languages.py``). Every front end runs once, so that all is compiled, and then in
turn with PyTorch from the same seeds. Processor seconds, by which the package plans as well: other
programs on the machine change little. Ratios are of pairs of one seed. Stan is a class with
BridgeStan's methods, in NumPy.

Writes interop_cost.json and interop_cost.md into the folder --output. Aimed at: 1.5 times PyTorch
(Stan 10 times), at most 12 programs that JAX compiles, making the models included; p(model) within
.002, evidences within .005 nats.
"""

import argparse
import json
import math
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import trjmcmc as trj
from benchmarks.tables import as_markdown
from tests.interop.conjugate import LOG_EVIDENCES, PROBABILITY
from tests.interop.languages import PAIRS
from trjmcmc import clock

NATIVE = "torch"

Row = dict[str, Any]


class Compilations:
    """How many programs JAX has compiled, where it is installed."""

    def __init__(self) -> None:
        self.count = 0
        try:
            from jax import monitoring
        except ImportError:
            return
        monitoring.register_event_duration_secs_listener(self._listen)

    def _listen(self, event: str, duration: float, **about: Any) -> None:
        self.count += event.endswith("backend_compile_duration")


def run(target: trj.Target, front_end: str, seed: int) -> Row:
    """A default run: what it took, and what it answers."""
    begun = time.process_time()
    with warnings.catch_warnings(record=True) as caught, clock.read_from(time.process_time):
        warnings.simplefilter("always")
        result = trj.TRJSampler(target, seed=seed).run(progress=False)
        seconds = time.process_time() - begun
        p, p_se = result.model_probabilities(full=True).loc["two", ["combined", "combined_se"]]
        table = result.evidence(full=True)[["combined", "combined_se"]]
    gaps = {k: (table.loc[k, "combined"] - exact) for k, exact in LOG_EVIDENCES.items()}
    return {
        "front end": front_end,
        "seed": seed,
        "seconds": seconds,
        "p off": p - PROBABILITY,
        "p z": (p - PROBABILITY) / p_se,
        "evidences off": [float(gap) for gap in gaps.values()],
        "evidences z": [gap / table.loc[k, "combined_se"] for k, gap in gaps.items()],
        "said": [str(w.message)[:90] for w in caught if issubclass(w.category, Warning)],
    }


def largest(rows: list[Row], key: str) -> float:
    return float(np.abs(np.concatenate([np.atleast_1d(r[key]) for r in rows])).max())


def summary(made: dict[str, Row], found: list[Row]) -> pd.DataFrame:
    """One row a front end; the run that compiled counts for the answers, not for the time."""
    native = {r["seed"]: r["seconds"] for r in found if r["front end"] == NATIVE}
    rows = {}
    for name, first in made.items():
        some = [r for r in found if r["front end"] == name]
        timed = [r for r in some if r["seed"] > 0]
        ratios = [r["seconds"] / native[r["seed"]] for r in timed]
        rows[name] = {
            "made, s": first["seconds"],
            "first run, s": some[0]["seconds"],
            "run, s": np.median([r["seconds"] for r in timed]) if timed else math.nan,
            "times torch": np.median(ratios) if timed else math.nan,
            "worst": max(ratios, default=math.nan),
            "JAX programs": first["programs"],
            "p off": largest(some, "p off"),
            "p z": largest(some, "p z"),
            "nats off": largest(some, "evidences off"),
            "nats z": largest(some, "evidences z"),
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.interop_cost",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", action="append", choices=list(PAIRS), help="front ends")
    parser.add_argument("--repeats", type=int, default=3, help="timed runs of each")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.add_argument("--output", type=Path, default=Path("output"), help="a folder")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.output.mkdir(parents=True, exist_ok=True)
    chosen = [k for k in PAIRS if k == NATIVE or not options.only or k in options.only]
    compilations = Compilations()
    made, found, targets = dict[str, Row](), list[Row](), dict[str, trj.Target]()
    for name in chosen:
        before, begun = compilations.count, time.process_time()
        targets[name] = trj.Target(PAIRS[name]())
        made[name] = {"seconds": time.process_time() - begun}
        found.append(run(targets[name], name, 0))
        made[name]["programs"] = compilations.count - before
        print(f"{name}: {made[name]}, {found[-1]}", flush=True)
    for seed in range(1, options.repeats + 1):
        for name in chosen:
            found.append(run(targets[name], name, seed))
            print(found[-1], flush=True)
            figures = {"made": made, "runs": found}
            (options.output / "interop_cost.json").write_text(json.dumps(figures, indent=1))
            if name == chosen[-1]:
                table = summary(made, found)
                (options.output / "interop_cost.md").write_text(as_markdown(table) + "\n")
    print("\n" + summary(made, found).to_string(float_format="{:.3g}".format))


if __name__ == "__main__":
    main()
