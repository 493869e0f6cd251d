"""Is a run that is killed again and again the run that it would have been?

    python -m benchmarks.kills            # 50 SIGKILLs at random moments over four problems

Each problem is run once whole, and in folders by processes that are killed at random moments: while
they search for starts, train, warm up, sample, or write; where a run ends another is begun. Draws
of all are compared bit by bit. The table says how many kills there were, in which stage, how many
runs they were of, what a head costs, and what is on the disk. Moments are in processor seconds, as
are all times that the package goes by meanwhile, so that it works on a busy machine.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import os
import random
import shutil
import signal
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import torch

import trjmcmc as trj
from benchmarks.same_draws import components, pair
from tests.small import small_plan
from trjmcmc import clock
from trjmcmc.checkpoint.events import read_events
from trjmcmc.run import rounds_saved

PROBLEMS: dict[str, tuple[Callable[[], trj.Target], dict[str, Any]]] = {
    "list": (pair, {"fit": False}),
    "subsets, Laplace": (lambda: trj.problems.variable_selection(8), {"fit": False}),
    "components": (components, {"fit": False}),
    "trained flow": (pair, {"fit": True}),
}


def run(problem: str, draws: int, folder: Path | None) -> trj.Result:
    make, settings = PROBLEMS[problem]
    with warnings.catch_warnings(), clock.read_from(time.process_time):
        warnings.simplefilter("ignore")
        return trj.TRJSampler(make(), seed=3, plan=small_plan()).run(
            draws=draws, chains=32, warmup=30, progress=False, checkpoint=folder, **settings
        )


def digest(result: trj.Result) -> str:
    total = hashlib.sha256()
    for t in (result.raw.code, result.raw.theta, result.raw.log_joint):
        total.update(t.contiguous().numpy().tobytes())
    return total.hexdigest()[:16]


def stage(folder: Path) -> str:
    """What the process was at that was killed last; a training once a part of it was saved."""
    told = [e for e in read_events(folder) if e["event"] == "stage" or e.get("step") is not None]
    return str(told[-1].get("stage", "the training")) if told else "the start"


def seconds_of(pid: int) -> float:
    """Processor seconds of a process; infinite of one that has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return math.inf
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def killed(problem: str, draws: int, folder: Path, after: float) -> bool:
    """Run in a process of its own, which is killed after some seconds; whether it had ended."""
    child = os.fork()
    if not child:
        status = 1
        try:
            run(problem, draws, folder)
            status = 0
        finally:
            os._exit(status)
    while seconds_of(child) < after:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            if status:
                raise RuntimeError(f"{problem}: a process failed with status {status}")
            return True
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.kills",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kills", type=int, default=50, help="over all problems")
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--problem", choices=PROBLEMS, help="one alone")
    parser.add_argument("--save", type=float, default=0.05, help="seconds between heads")
    parser.add_argument("--seed", type=int, default=1, help="of the moments")
    parser.add_argument("--threads", type=int, default=1, help="of torch; more do not survive fork")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rounds_saved.SAVE_SECONDS, rounds_saved.SAVE_SHARE = options.save, math.inf
    rng, rows = random.Random(options.seed), {}
    problems = [options.problem] if options.problem else list(PROBLEMS)
    each = -(-options.kills // len(problems))
    for problem in problems:
        begun = time.process_time()
        whole = digest(run(problem, options.draws, None))
        seconds = time.process_time() - begun
        found, stages, sizes = list[str](), dict[str, int](), dict[str, float]()
        heads, left = list[float](), each
        while left:
            folder = Path(tempfile.mkdtemp()) / "run"
            while left and not killed(problem, options.draws, folder, rng.uniform(0, 1) * seconds):
                left -= 1
                at = stage(folder)
                stages[at] = stages.get(at, 0) + 1
            found.append(digest(run(problem, options.draws, folder)))
            files = list(folder.glob("*.ckpt"))
            for kind in ("head", "plan", ""):
                sizes[kind] = sum(p.stat().st_size for p in files if kind in p.name) / 1000
            heads += [e["seconds"] for e in read_events(folder) if e["event"] == "saved"]
            shutil.rmtree(folder.parent)
        rows[problem] = {
            "whole run, s": round(seconds, 2),
            "kills": each,
            "stages": ", ".join(f"{n} {name}" for name, n in stages.items()),
            "runs": len(found),
            "same": all(d == whole for d in found),
            "digests": ", ".join(dict.fromkeys([whole, *found])),
            "a head, ms": f"{1000 * statistics.median(heads):.0f} (worst {1000 * max(heads):.0f})",
            "two heads kB": round(sizes["head"], 1),
            "plan kB": round(sizes["plan"], 1),
            "all kB": round(sizes[""], 1),
        }
        print(problem, *(f"  {k:18s} {v}" for k, v in rows[problem].items()), sep="\n", flush=True)
    table = pd.DataFrame(rows).T
    print(f"{int(table['kills'].sum())} kills; same draws: {bool(table['same'].all())}")


if __name__ == "__main__":
    main()
