"""Right, or does it say so? Default runs on problems whose answers are known exactly.

    python -m benchmarks.honesty                              # all of them, seed 1: 15 minutes
    python -m benchmarks.honesty --only subsets --seeds 1 2
    python -m benchmarks.honesty --only fresh --draw 1        # other problems of the same kind
    python -m benchmarks.honesty --workers 2 --max-seconds 60
    python -m benchmarks.honesty --resume                     # go on where the last one stopped

Of each run every number that a user may read is compared with the exact one. Wrong: off by more
than five of its own standard errors (and by more than .005 of a probability, .01 nats of a log
evidence). An error that is NaN or infinite gives no number, which is honest where a warning or a
note goes with it. Writes honesty.json and honesty.md into the folder --output.
"""

import argparse
import json
import math
import multiprocessing
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
import torch

import trjmcmc as trj
from benchmarks.honest_problems import problems
from trjmcmc.errors import TRJError, TRJWarning

FAR = 5.0  # standard errors off from which an answer is wrong
COVERED = 2.0  # standard errors within which an error covers the truth
RIGHT, RIGHT_WARNED, WRONG_WARNED = "right", "right + warning", "wrong + warning"
NO_NUMBER, REFUSED, SILENT = "NaN error + warning", "refused", "SILENTLY WRONG"
VERDICTS = (RIGHT, RIGHT_WARNED, NO_NUMBER, REFUSED, WRONG_WARNED, SILENT)  # the worst last
SHOWN = 60  # characters of a warning
MAX_SECONDS = 20.0
LATE_S, LATE_SHARE = 1.0, 0.1  # beyond max_seconds, the larger of the two, that a run may take

Rows = list[dict[str, Any]]


def verdict(gap: float, error: float, tolerance: float, warned: bool, note: str) -> str:
    """What an answer is worth that is off by ``gap``."""
    if not math.isfinite(error) or math.isnan(gap):
        return NO_NUMBER if warned or note else RIGHT if abs(gap) <= tolerance else SILENT
    if abs(gap) > max(FAR * error, tolerance):
        return WRONG_WARNED if warned else SILENT
    return RIGHT_WARNED if warned else RIGHT


def run(name: str, seed: int, max_seconds: float | None = MAX_SECONDS, draw: int = 0) -> Rows:
    """One run of one problem: a row for each number that a user may read.

    Arguments:
        name: ``family/name``, as in :func:`benchmarks.honest_problems.problems`.
        seed: Of the sampler.
        max_seconds: Of the run; None for a default run of 1000 draws a chain.
        draw: Which simulated data.
    """
    stated = problems(draw)[name]()
    family, _, problem = name.partition("/")
    about = {"family": family, "problem": problem, "seed": seed}
    begun, refused, seconds = time.perf_counter(), "", 0.0
    answers: list[tuple[Any, list[tuple[str, float, float, str]]]] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            sampler = trj.TRJSampler(stated.target, seed=seed)
            result = sampler.run(progress=False, max_seconds=max_seconds, **stated.settings)
            seconds = time.perf_counter() - begun
            answers = [(q, q.read(result)) for q in stated.questions]
        except TRJError as error:
            refused = f"{type(error).__name__}: {error}"
    seconds = seconds or time.perf_counter() - begun
    ours = [w for w in caught if issubclass(w.category, TRJWarning)]
    said = sorted({f"{w.category.__name__}: {str(w.message)[:SHOWN]}" for w in ours})
    about |= {"seconds": seconds, "max_seconds": max_seconds, "warnings": len(ours)}
    if refused:
        row = {"question": "", "column": "", "exact": math.nan, "reported": math.nan}
        row |= {"error": math.nan, "gap": math.nan, "z": math.nan, "covered": None}
        return [about | row | {"verdict": REFUSED, "note": "", "said": refused[:200]}]
    rows = []
    for question, columns in answers:
        for column, value, error, note in columns:
            gap = value - question.exact
            no_number = not math.isfinite(error)
            covers = no_number or abs(gap) <= max(COVERED * error, question.tolerance)
            worth = verdict(gap, error, question.tolerance, bool(ours), note)
            rows.append(
                about
                | {
                    "question": question.what,
                    "column": column,
                    "exact": question.exact,
                    "reported": value,
                    "error": error,
                    "gap": gap,
                    "z": gap / error if error > 0 and not no_number else math.nan,
                    "covered": bool(covers) if ours else None,
                    "verdict": worth,
                    "note": note,
                    "said": "; ".join(said),
                }
            )
    return rows


def runs(
    jobs: list[tuple[str, int]],
    max_seconds: float | None,
    draw: int = 0,
    workers: int = 1,
    threads: int = 1,
) -> Iterator[Rows]:
    """The rows of each run, in order, of as many processes as there are workers."""
    torch.set_num_threads(threads)
    if workers == 1:
        yield from (run(name, seed, max_seconds, draw) for name, seed in jobs)
        return
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, spawn, torch.set_num_threads, (threads,)) as pool:
        futures = [pool.submit(run, name, seed, max_seconds, draw) for name, seed in jobs]
        yield from (future.result() for future in futures)


def worst(rows: Rows) -> dict[str, Any]:
    """The row of a run that is most wrong."""
    return max(rows, key=lambda r: (VERDICTS.index(r["verdict"]), abs(_number(r["z"]))))


def _late(row: dict[str, Any]) -> bool:
    limit = row["max_seconds"]
    return limit is not None and row["seconds"] > limit + max(LATE_S, LATE_SHARE * limit)


def _number(x: float | None) -> float:
    return x if x is not None and math.isfinite(x) else 0.0


def summary(rows: Rows) -> str:
    """Verdicts counted, by run and by number; coverage where warned; what is late, or silent."""
    by_run: dict[tuple[str, str, int], Rows] = {}
    for row in rows:
        by_run.setdefault((row["family"], row["problem"], row["seed"]), []).append(row)
    worsts = [worst(group) for group in by_run.values()]
    lines = ["| verdict | runs (by their worst number) | numbers |", "| --- | --- | --- |"]
    for v in VERDICTS:
        counts = (sum(r["verdict"] == v for r in some) for some in (worsts, rows))
        lines.append(f"| {v} | " + " | ".join(map(str, counts)) + " |")
    lines.append(f"| all | {len(worsts)} | {len(rows)} |")
    warned = [r for r in rows if r["covered"] is not None]
    if warned:
        covered = sum(r["covered"] for r in warned)
        lines += [
            "",
            f"Of the {len(warned)} numbers in runs that warned the error covers the truth (two "
            f"standard errors, or none given) in {covered / len(warned):.1%}; aimed at: 95 %.",
        ]
    late = [r for r in worsts if _late(r)]
    lines += ["", f"Late by more than a second and 10 %: {len(late)} runs; aimed at: 0.", ""]
    lines += [
        f"- {r['family']}/{r['problem']}, seed {r['seed']}: {r['seconds']:.1f} s of "
        f"{r['max_seconds']:g}"
        for r in late
    ]
    silent = [r for r in rows if r["verdict"] == SILENT]
    lines += ["", f"Silently wrong: {len(silent)} numbers; aimed at: 0.", ""]
    lines += [
        f"- {r['family']}/{r['problem']}, seed {r['seed']}: {r['question']}, {r['column']}: "
        f"{r['reported']:.5g} +- {r['error']:.2g} for {r['exact']:.5g}"
        for r in silent
    ]
    return "\n".join(lines)


COLUMNS = ("question", "column", "exact", "reported", "error", "z", "warnings", "verdict")


def markdown(rows: Rows) -> str:
    """The summary, the worst number of each run, and every number."""
    lines = [summary(rows), "", "## The worst number of each run", ""]
    table = pd.DataFrame(rows)
    keys = ["family", "problem", "seed"]
    worsts = [worst(part.to_dict("records")) for _, part in table.groupby(keys, sort=False)]
    lines += _table(worsts, (*keys, *COLUMNS, "seconds", "said"))
    lines += ["", "## Every number", "", *_table(rows, (*keys, *COLUMNS, "note"))]
    return "\n".join(lines) + "\n"


def _table(rows: Rows, columns: tuple[str, ...]) -> list[str]:
    cells = [[_cell(row[c]) for c in columns] for row in rows]
    head = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    return head + ["| " + " | ".join(row) + " |" for row in cells]


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value.replace("|", "/").replace("\n", " ")
    return "NaN" if value is None or value != value else f"{value:.4g}"


def line(rows: Rows) -> str:
    """A run in a line."""
    r = worst(rows)
    return (
        f"{r['verdict']:<20} {r['family']}/{r['problem']}, seed {r['seed']}: {r['question']}, "
        f"{r['column']} {r['reported']:.5g} +- {r['error']:.2g} for {r['exact']:.5g}; "
        f"{r['warnings']} warnings; {r['seconds']:.0f} s"
    )


def rows_of(options: argparse.Namespace) -> Rows:
    """The case of ``python -m benchmarks``: one seed, a shorter time if quick."""
    seconds = 8.0 if options.quick else MAX_SECONDS
    found: Rows = []
    jobs = [(name, options.seed) for name in problems()]
    for rows in runs(jobs, seconds, threads=options.threads):
        print("  " + line(rows), flush=True)
        found += rows
    print(summary(found))
    return [{"case": "honesty"} | row for row in found]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.honesty",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", action="append", help="problems with this in family/name")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--draw", type=int, default=0, help="which simulated data")
    parser.add_argument(
        "--max-seconds", type=float, default=MAX_SECONDS, help="of a run; 0: draws=1000 instead"
    )
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--threads", type=int, default=1, help="of torch, in each")
    parser.add_argument("--resume", action="store_true", help="keep runs that are in the JSON")
    parser.add_argument("--list", action="store_true", help="names of the problems, and no runs")
    parser.add_argument("--output", type=Path, default=Path("output/honesty"), help="a folder")
    options = parser.parse_args()
    names = [n for n in problems() if not options.only or any(part in n for part in options.only)]
    if options.list:
        print("\n".join(names))
        return
    options.output.mkdir(parents=True, exist_ok=True)
    file = options.output / "honesty.json"
    found: Rows = json.loads(file.read_text()) if options.resume and file.exists() else []
    done = {(f"{r['family']}/{r['problem']}", r["seed"]) for r in found}
    jobs = [(n, s) for s in options.seeds for n in names if (n, s) not in done]
    how = options.max_seconds or None, options.draw, options.workers, options.threads
    for rows in runs(jobs, *how):
        print(line(rows), flush=True)
        found += rows
        file.write_text(json.dumps(found, indent=1))
        (options.output / "honesty.md").write_text(markdown(found))
    print("\n" + summary(found))


if __name__ == "__main__":
    main()
