"""Speed and scatter, ours and others', measured in one run.

    python -m benchmarks                           # all cases, about two hours and a half
    python -m benchmarks --quick                   # small budgets, about twenty minutes
    python -m benchmarks --case coal --budget 120
    python -m benchmarks --case chains --case overhead --threads 2
    python -m benchmarks --case device             # a GPU beside the CPU, eight minutes at most
    python -m benchmarks --case peers              # needs pip install '.[peers]'
    python -m benchmarks --paper vti --quick       # or yin-jiao, mixture, dibs, favi: see papers.py

Calibration, training and moves inside a model have scripts of their own; see README.md here.
Writes a JSON with machine, versions, seed and every figure, the same as Markdown, and pictures.
Ratios are of runs in one session: compare those, and not seconds between machines.
"""

import argparse
import importlib.metadata
import json
import math
import multiprocessing
import os
import platform
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
import torch

import trjmcmc as trj
from trjmcmc.compare.classical import METHODS

from . import alarms, bridge_spread, device, figures, honesty, papers, samplers, scaling, yin_jiao
from .peers import run

Rows = list[dict[str, Any]]
SCALING: dict[str, tuple[Callable[..., Rows], dict[str, Any]]] = {
    "chains": (scaling.by_chains, {"sizes": (1, 256, 4096)}),
    "models": (scaling.by_models, {"sizes": (2, 32)}),
    "dimension": (scaling.by_dimension, {"sizes": (2, 20, 100)}),
    "overhead": (scaling.overhead, {"repeats": 5}),
}  # by name: the whole, and what makes it quick
PACKAGES = (
    "torch",
    "zuko",
    "numpy",
    "scipy",
    "eryn",
    "bayesbay",
    "pocomc",
    "dynesty",
    "nautilus-sampler",
    "ultranest",
)
LEGENDS = {  # below a table
    "overhead": [
        "`bare_ms`: one pull and one push through the map and one target evaluation, nothing else;",
        "`cold_over_bare`: a jump over that, place under the map unknown; `warm_over_bare`: known.",
    ]
}
QUICK_BUDGET, BUDGET = 8.0, 30.0
DRAWS, FULL_BRIDGES = 500, {"repeats": bridge_spread.REPEATS, "steps": 2000}
PEER_BUDGETS = {True: 12.0, False: 300.0}  # seconds, quick or not


def apart(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """The function's value, found in a process of its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *args, **options).result()


def compared(case: str, options: argparse.Namespace) -> Rows:
    """All samplers on one problem; each with how many times as fast ours is."""
    names = options.sampler or (samplers.QUICK if options.quick else ["default", *METHODS])
    truth = None
    if samplers.CASES[case]().truth is None and not options.quick:
        truth = apart(samplers.long_run, case)
    rows = []
    for name in names:
        row = apart(
            samplers.row,
            case,
            name,
            budget=options.budget,
            chains=options.chains,
            seed=options.seed,
            threads=options.threads,
            truth=truth,
        )
        rows.append(row)
        print(f"  {name:<14} {row['ess_per_s']:12.4g} effective draws/s  {row['note']}", flush=True)
    ours = next((r["ess_per_s"] for r in rows if r["sampler"] == "default"), math.nan)
    for row in rows:
        row["ours_over_it"] = ours / row["ess_per_s"] if row["ess_per_s"] else math.inf
    return rows


def beside_peers(options: argparse.Namespace) -> Rows:
    """Ours and other packages; ``python -m benchmarks.peers`` takes published data too."""
    budget = PEER_BUDGETS[options.quick]
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(options.threads))
    found = []
    for case in run.CASES:  # in a process of its own, where NumPy finds the number of threads
        rows = apart(run.rows, case, budget=budget, quick=options.quick, seed=options.seed)
        table = run.with_ratios(rows).drop(columns="shares", errors="ignore")
        found += table.rename(columns={"case": "problem"}).to_dict("records")
    return [{"case": "peers", "budget_s": budget} | row for row in found]


def bridges(options: argparse.Namespace) -> Rows:
    """Scatter of Bartolucci's estimates on robust regression, drawn too."""
    target = bridge_spread.regression(None)
    size = {"repeats": 10, "steps": 100, "particles": 3000} if options.quick else FULL_BRIDGES
    found, seconds = bridge_spread.scatter(target, DRAWS, seed=options.seed, **size)
    bridge_spread.draw(found, target, DRAWS, options.output / "bridges.png")
    return bridge_spread.rows(found, seconds, target)


def environment(options: argparse.Namespace) -> dict[str, Any]:
    """What the figures were measured on."""
    versions = {"python": platform.python_version(), "trjmcmc": trj.__version__}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "machine": f"{_processor()}, {os.cpu_count()} cores",
        "threads": options.threads,
        "seed": options.seed,
        "budget_s": options.budget,
        "quick": options.quick,
        "versions": versions,
    }


def _processor() -> str:
    cpus = Path("/proc/cpuinfo")
    lines = cpus.read_text().splitlines() if cpus.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return " ".join([platform.machine(), *names[:1]])


def markdown(found: dict[str, Any]) -> str:
    """The figures as tables."""
    about = found["environment"]
    versions = ", ".join(f"{k} {v}" for k, v in about["versions"].items())
    lines = [
        f"{about['machine']}, {about['threads']} thread(s), seed {about['seed']}, "
        f"{about['budget_s']:g} s a sampler; {versions}.",
    ]
    for case, rows in found["cases"].items():
        table = pd.DataFrame(rows).drop(columns="case").dropna(axis=1, how="all")
        lines += ["", f"## {case}", "", "| " + " | ".join(table.columns) + " |"]
        lines.append("|" + " --- |" * table.shape[1])
        lines += [
            "| " + " | ".join(map(_cell, row)) + " |" for row in table.itertuples(index=False)
        ]
        lines += ["", *LEGENDS[case]] if case in LEGENDS else []
    return "\n".join(lines) + "\n"


def _plain(value: Any) -> Any:
    """What JSON can hold: no infinities, no NaN, no NumPy numbers."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    if isinstance(value, str | bool | int | None):
        return value
    return float(value) if math.isfinite(value) else None


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value.replace("|", "/").replace("\n", " ")
    if value is None or value != value:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


OTHERS: dict[str, Callable[[argparse.Namespace], Rows]] = {
    "bridges": bridges,
    "peers": beside_peers,
    "honesty": honesty.rows_of,
    "alarms": alarms.rows_of,
    "device": device.rows_of,
    "yin-jiao": yin_jiao.rows_of,
}


def draw(cases: dict[str, Rows], folder: Path) -> None:
    """Pictures of the cases that were measured."""
    if measured := {k: rows for k, rows in cases.items() if k in samplers.CASES}:
        figures.speed(measured, folder / "speed.png")
    if scaled := {k: rows for k, rows in cases.items() if k in {"chains", "models", "dimension"}}:
        figures.scaling(scaled, folder / "scaling.png")


def main() -> None:
    cases = [*samplers.CASES, *SCALING, *OTHERS]
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--case", choices=cases, action="append", help="all if omitted")
    parser.add_argument("--paper", choices=papers.PAPERS, help="its studies, and nothing else")
    parser.add_argument("--sampler", choices=["default", *METHODS], action="append")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--budget", type=float, help="seconds a sampler, 30 if omitted")
    parser.add_argument("--chains", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path("output/benchmarks"), help="a folder")
    options = parser.parse_args()
    if options.paper:
        raise SystemExit(papers.run(options.paper, options.quick))
    options.budget = options.budget or (QUICK_BUDGET if options.quick else BUDGET)
    torch.set_num_threads(options.threads)
    found: dict[str, Any] = {"environment": environment(options), "cases": {}}
    options.output.mkdir(parents=True, exist_ok=True)
    for case in options.case or cases:
        print(case, flush=True)
        if case in SCALING:
            function, quick = SCALING[case]
            rows = function(**quick if options.quick else {})
        elif case in OTHERS:
            rows = OTHERS[case](options)
        else:
            rows = compared(case, options)
        found["cases"][case] = rows
        (options.output / "benchmarks.json").write_text(json.dumps(_plain(found), indent=1))
        (options.output / "benchmarks.md").write_text(markdown(found))
    draw(found["cases"], options.output)
    print("\n" + markdown(found))


if __name__ == "__main__":
    main()
