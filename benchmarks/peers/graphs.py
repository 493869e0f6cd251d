"""Programs that say how probable edges are: ours, and others in interpreters of their own."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import trjmcmc as trj
from trjmcmc.clock import read_from
from trjmcmc.errors import TRJWarning
from trjmcmc.kernel import (
    BlockGibbs,
    Cycle,
    EdgeReversal,
    GraphWalk,
    Kernel,
    LayerGibbs,
    ParentGibbs,
)

Array = NDArray[np.float64]

HERE = Path(__file__).parent
MOST_WAITED = 3600  # seconds of wall time for a program that can't be stopped by a clock


@dataclass
class Case:
    """Data of a race.

    Attributes:
        name: Shown in tables.
        data: Rows of d columns.
        scores: Ours, by prior the same; made once.
        scored: Processor seconds that they took.
    """

    name: str
    data: Array
    scores: trj.graphs.LocalScores = field(init=False)
    scored: float = field(init=False)

    def __post_init__(self) -> None:
        begun = time.process_time()
        self.scores = trj.graphs.bge(self.data)
        self.scored = time.process_time() - begun


@dataclass
class Answer:
    """Edge probabilities (d, d), what they took, and a remark."""

    edges: Array
    seconds: float
    note: str = ""


@dataclass
class Program:
    """Something that answers a case in so many processor seconds, or says why it can't.

    Attributes:
        name: Shown in tables.
        prior: Over graphs.
        run: Answer to a case, a budget and a seed; more than one by name where they come together.
        timed: Whether it keeps to a budget.
    """

    name: str
    prior: str
    run: Callable[[Case, float, int], dict[str, Answer]]
    timed: bool = True


# ---- ours ---------------------------------------------------------------------------------------


def all_moves(target: trj.Target) -> Kernel:
    """Moves that need no sum over all graphs, untempered."""
    return Cycle([BlockGibbs(target), LayerGibbs(target, moves=4)])


def blocks(target: trj.Target) -> Kernel:
    return BlockGibbs(target)


def others(target: trj.Target) -> Kernel:
    """Moves that know nothing of blocks."""
    edges = [GraphWalk(target), (EdgeReversal(target), 3), ParentGibbs(target)]
    return Cycle([LayerGibbs(target), *edges])


Moves = Callable[[trj.Target], Kernel]


def ours(name: str = "trjmcmc", prior: str = "uniform", kernel: Moves | None = None) -> Program:
    """A run by processor time, all stages included; its defaults where no kernel is given."""

    def run(case: Case, budget: float, seed: int) -> dict[str, Answer]:
        begun = time.process_time()
        target = trj.graphs.target(case.scores, prior)
        moves = None if kernel is None else kernel(target)
        sampler = trj.TRJSampler(target, kernel=moves, seed=seed)
        with warnings.catch_warnings(), read_from(time.process_time):
            warnings.simplefilter("ignore", TRJWarning)  # short runs say that they are short
            result = sampler.run(max_seconds=budget, progress=False)
        edges = trj.graphs.GraphPosterior(result).matrix().to_numpy()
        chains, draws = result.raw.code.shape[:2]
        note = f"{chains} chains, {draws} draws, {'+'.join(result.report.plan.weights)}"
        return {name: Answer(edges, time.process_time() - begun, note)}

    return Program(name, prior, run)


# ---- others -------------------------------------------------------------------------------------


def sumu(python: Path, threads: int = 1) -> Program:
    """Partition MCMC, Gadget: https://pypi.org/project/sumu"""

    def run(case: Case, budget: float, seed: int) -> dict[str, Answer]:
        found = elsewhere(python, "graphs_sumu", case, {"budget": budget, "seed": seed}, threads)
        return {"sumu": answer(found, "edges")}

    return Program("sumu", "fair", run)


def dibs(python: Path, steps: int, particles: int, threads: int = 1) -> Program:
    """Particles of soft graphs, DiBS and DiBS+: https://pypi.org/project/dibs-lib"""

    def run(case: Case, budget: float, seed: int) -> dict[str, Answer]:
        settings = {"steps": steps, "particles": particles, "seed": seed}
        found = elsewhere(python, "graphs_dibs", case, settings, threads)
        if "edges" not in found:
            raise RuntimeError(f"DiBS has no answer: {found['note']}")
        return {"DiBS": answer(found, "edges"), "DiBS+": answer(found, "plus")}

    return Program("DiBS", "uniform", run, timed=False)


def answer(found: dict[str, Any], edges: str) -> Answer:
    note = f"{found['note']}, scores {found['scores']:.1f} s"
    return Answer(np.array(found[edges]), found["seconds"], note)


def elsewhere(
    python: Path, script: str, case: Case, settings: dict[str, Any], threads: int
) -> dict[str, Any]:
    """What a script of this folder says of a case when another interpreter runs it."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("data.npy", "settings.json", "answer.json")]
        np.save(paths[0], case.data)
        paths[1].write_text(json.dumps(settings))
        called([python, HERE / f"{script}.py", *paths], folder, threads)
        found: dict[str, Any] = json.loads(paths[2].read_text())
    return found


def called(command: list[Any], folder: str, threads: int) -> float:
    """Processor seconds of a command in a folder; what it last wrote where it fails."""
    numbers = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    environment = os.environ | dict.fromkeys(numbers, str(threads))
    environment |= {"JAX_PLATFORMS": "cpu"}
    if threads == 1:
        environment |= {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=MOST_WAITED,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise RuntimeError(f"{command[0]} failed: {' '.join(last)}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def gibby(path: Path, threads: int = 1) -> Program:
    """Gibby, https://github.com/Sums-of-Products/gibby, compiled by the user.

    It reads our scores, all parent sets of them, under a uniform prior and without pruning. It
    counts iterations and not seconds: two short runs tell what one takes. A tenth of them comes
    before as burn-in, its default.
    """
    path = path.resolve()

    def once(case: Case, iterations: int, seed: int) -> tuple[Array, float]:
        with tempfile.TemporaryDirectory() as folder:
            write_jkl(case.scores, Path(folder) / "scores.jkl")
            most = case.scores.candidates.shape[1]
            settings = {"p": 0, "P": 0, "d": most, "iter": iterations, "R": seed + 1}
            words = [word for name, value in settings.items() for word in (f"-{name}", value)]
            seconds = called([path, "scores.jkl", *words], folder, threads)
            (written,) = Path(folder).glob("results/*_gibby_p_*.txt")
            lines = [x for x in written.read_text().splitlines() if x and not x.startswith("#")]
        return np.array([line.split() for line in lines], dtype=float), seconds

    def run(case: Case, budget: float, seed: int) -> dict[str, Answer]:
        few, many = 5, 55
        _, short = once(case, few, seed)
        _, long = once(case, many, seed)
        each = max((long - short) / (many - few), 1e-4)
        iterations = max(1, round((budget - short) / each) + few)
        edges, seconds = once(case, iterations, seed)
        return {"Gibby": Answer(edges, seconds, f"{iterations} iterations, reading of scores in")}

    return Program("Gibby", "uniform", run)


def write_jkl(scores: trj.graphs.LocalScores, path: Path) -> None:
    """Local scores as text: for each node, a line a parent set: score, size, parents."""
    d, sets = scores.table.shape
    size = (torch.arange(sets)[:, None] >> torch.arange(scores.candidates.shape[1]) & 1).sum(1)
    order = size.argsort(stable=True).tolist()
    with path.open("w") as file:
        file.write(f"{d}\n")
        for j, candidates in enumerate(scores.candidates.tolist()):
            rows = [place for place in order if scores.table[j, place] > -np.inf]
            file.write(f"{j} {len(rows)}\n")
            for place in rows:
                parents = sorted(i for k, i in enumerate(candidates) if place >> k & 1)
                value = float(scores.table[j, place])
                file.write(" ".join(map(str, [repr(value), len(parents), *parents])) + "\n")
