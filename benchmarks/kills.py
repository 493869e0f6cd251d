"""Is a run that is killed again and again the run that it would have been?

    python -m benchmarks.kills            # 50 SIGKILLs at random moments over four problems

Each problem is run once whole, and once in a folder by processes that are killed at random moments:
while they search for starts, train, warm up, sample, or write. Draws are compared bit by bit. The
table says how many kills there were, in which stage, how often a process had to begin anew, what a
head costs, and what is on the disk.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import os
import random
import shutil
import signal
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
from trjmcmc.checkpoint.folder import read_folder
from trjmcmc.run import saving

PROBLEMS: dict[str, tuple[Callable[[], trj.Target], dict[str, Any]]] = {
    "list": (pair, {"fit": False}),
    "subsets, Laplace": (lambda: trj.problems.variable_selection(8), {"fit": False}),
    "components": (components, {"fit": False}),
    "trained flow": (pair, {"fit": True}),
}


def run(problem: str, draws: int, folder: Path | None) -> trj.Result:
    make, settings = PROBLEMS[problem]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return trj.TRJSampler(make(), seed=3).run(
            draws=draws, chains=64, warmup=50, progress=False, checkpoint=folder, **settings
        )


def digest(result: trj.Result) -> str:
    total = hashlib.sha256()
    for t in (result.raw.code, result.raw.theta, result.raw.log_joint):
        total.update(t.contiguous().numpy().tobytes())
    return total.hexdigest()[:16]


def stage(folder: Path) -> str:
    """What the folder says a process was at."""
    found = read_folder(folder, plan=False) if folder.exists() else None
    if found is None:
        return "before the pilot run is known"
    return "sampling" if found.head["shard"] is not None else "after the pilot run or the fit"


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
    end = time.monotonic() + after
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            if status:
                raise RuntimeError(f"{problem}: a process failed with status {status}")
            return True
        time.sleep(0.005)
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
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--save", type=float, default=0.2, help="seconds between heads")
    parser.add_argument("--seed", type=int, default=1, help="of the moments")
    parser.add_argument("--threads", type=int, default=1, help="of torch; more do not survive fork")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    saving.SAVE_SECONDS, saving.SAVE_SHARE = options.save, math.inf
    rng, rows = random.Random(options.seed), {}
    each = -(-options.kills // len(PROBLEMS))
    for problem in PROBLEMS:
        folder = Path(tempfile.mkdtemp()) / "run"
        begun = time.monotonic()
        whole = run(problem, options.draws, None)
        seconds = time.monotonic() - begun
        kills, stages = 0, dict[str, int]()
        while kills < each:  # of a run that has ended another is begun
            if killed(problem, options.draws, folder, rng.uniform(0.1, 0.8) * seconds):
                found = read_folder(folder, plan=False)
                assert found is not None
                break
            kills += 1
            at = stage(folder)
            stages[at] = stages.get(at, 0) + 1
        found = run(problem, options.draws, folder)
        files = list(folder.glob("*.ckpt"))
        rows[problem] = {
            "kills": kills,
            "stages": ", ".join(f"{n} {name}" for name, n in stages.items()),
            "whole": digest(whole),
            "killed": digest(found),
            "same": digest(whole) == digest(found),
            "head kB": round(max(p.stat().st_size for p in files if "head" in p.name) / 1000, 1),
            "plan kB": round(sum(p.stat().st_size for p in files if "plan" in p.name) / 1000, 1),
            "all kB": round(sum(p.stat().st_size for p in files) / 1000, 1),
        }
        print(pd.Series(rows[problem], name=problem).to_string(), flush=True)
        shutil.rmtree(folder.parent)
    table = pd.DataFrame(rows).T
    print(f"{int(table['kills'].sum())} kills; same draws: {bool(table['same'].all())}")


if __name__ == "__main__":
    main()
