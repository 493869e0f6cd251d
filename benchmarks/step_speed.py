"""Steps per second of the moves that default runs make, and of another version.

    python -m benchmarks.step_speed                                # of this version
    python -m benchmarks.step_speed --against folder               # and a checkout of another

A step is what a run's loop does: the kernel's step, and its counting. Kernels are composed
alike in all versions from moves that version 0.9.0 had: jumps through normals fitted to draws and
walks (coal mining, robust regression), the moves through Laplace's normals (selection among ten
columns), births, deaths and walks of pulses, and the standard kernel of a flow (coal mining).
Each version has a process of its own; they take turns block by block, in another order each round,
so that what else the machine does slows all of them. One thread, processor time; medians over
blocks with the slowest and the fastest beside them, and ratios to the other version
as medians over rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import trjmcmc as trj

CHAINS = (1, 16, 256, 4096)
SECONDS = 0.4  # of processor time a block
WARM = 30  # steps before the first block
DRAWS = 4000  # prior draws that normals are fitted to
NOW, BASE = "now", "before"  # this version, and the other


def _fitted_normals(target: Any, generator: torch.Generator) -> Any:
    """Normals fitted to prior draws: as fast as those fitted to a pilot run."""
    try:
        from trjmcmc.draws import Pool
        from trjmcmc.transport.normals import gaussian_mixture
    except ImportError:  # version 0.9.0
        from trjmcmc.fit.gaussians import (  # type: ignore[import-not-found, no-redef]
            gaussian_mixture,
        )

        from trjmcmc.fit import Pool  # type: ignore[attr-defined, no-redef]
    code = target.space.sample_prior(DRAWS, generator)
    theta = target.sample_prior(code, generator)
    pool = Pool(code, theta, torch.zeros(DRAWS).double())
    return gaussian_mixture(target.space, pool, generator, components=4)


def _jumps_and_walk(target: Any, generator: torch.Generator) -> Any:
    kernel, flow = trj.kernel, _fitted_normals(target, generator)
    jump = kernel.Jump(target, flow, kernel.Fixed(target.space, other=True), name="normals")
    return kernel.Cycle([jump, kernel.RandomWalk(target)])


def _laplace(target: Any, generator: torch.Generator) -> Any:
    kernel, flow = trj.kernel, trj.transport.LaplaceMap(target)
    near = kernel.Neighbours(target.space, swap=0.3)
    jump = kernel.Jump(target, flow, near, rho=0.7, fresh=0.1, name="laplace near")
    inner = kernel.CrankNicolson(target, flow, fresh=0.1)
    births = kernel.BirthDeath(target, kernel.Neighbours(target.space, swap=0.3))
    return kernel.Cycle([jump, inner, births, (kernel.RandomWalk(target), 4)])


def _births(target: Any, generator: torch.Generator) -> Any:
    kernel = trj.kernel
    return kernel.Cycle([(kernel.ComponentBirthDeath(target), 2), kernel.ComponentWalk(target)])


def _flow(target: Any, generator: torch.Generator) -> Any:
    kernel, flow = trj.kernel, trj.transport.CosmicFlow(target.space, seed=1)
    to = kernel.Fixed(target.space, other=True)
    jump = kernel.Jump(target, flow, to, rho=0.95, fresh=0.1)
    inner = kernel.CrankNicolson(target, flow, fresh=0.1)
    return kernel.Cycle([jump, inner, (kernel.RandomWalk(target), 4)])


CASES: dict[str, tuple[Callable[[], Any], Callable[[Any, torch.Generator], Any]]] = {
    "coal mining": (lambda: trj.problems.coal_mining(), _jumps_and_walk),
    "robust regression": (lambda: trj.problems.robust_regression(), _jumps_and_walk),
    "selection": (lambda: trj.problems.variable_selection(10), _laplace),
    "pulses": (lambda: trj.problems.pulses(), _births),
    "coal mining, flow": (lambda: trj.problems.coal_mining(), _flow),
}


def _drawing(target: Any, kernel: Any, state: Any, generator: torch.Generator) -> Any:
    """A function that makes one draw as a run does."""
    from trjmcmc.run.recorded import Tally

    tally = Tally(target)

    def draw() -> None:
        nonlocal state
        state, infos = kernel.step(state, generator)
        tally.add(infos)

    return draw


class Bench:
    """Steps of one case."""

    def __init__(self, case: str, chains: int) -> None:
        make, compose = CASES[case]
        self.target, self.generator = make(), torch.Generator().manual_seed(1)
        target, generator = self.target, self.generator
        self.kernel = compose(target, generator)
        code = target.space.sample_prior(chains, generator)
        with torch.no_grad():
            self.state = trj.kernel.start(target, code, target.sample_prior(code, generator))
            self.draw = _drawing(target, self.kernel, self.state, generator)
            for _ in range(2 * WARM):
                self.draw()

    def rate(self) -> float:
        """Steps a second of processor time, of one block."""
        begun, steps = time.process_time(), 0
        with torch.no_grad():
            while (gone := time.process_time() - begun) < SECONDS or not steps:
                self.draw()
                steps += 1
        return steps / gone


def work(threads: int) -> None:
    """Answer lines of standard input: a case and a number of chains, or a request for a block."""
    torch.set_num_threads(threads)
    bench: Bench | None = None
    for line in sys.stdin:
        asked = json.loads(line)
        if asked:
            bench = None
            bench, answer = Bench(*asked), 0.0
        else:
            assert bench is not None
            answer = bench.rate()
        print("answer", json.dumps(answer), flush=True)


class Worker:
    """A process of its own that makes steps of a checkout."""

    def __init__(self, tree: Path, threads: int) -> None:
        command = [sys.executable, __file__, "--worker", f"--threads={threads}"]
        numbers = {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": str(threads)}
        self._process = subprocess.Popen(
            command,
            env=os.environ | numbers,
            cwd=tree,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ask(self, what: Any) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(what), file=self._process.stdin, flush=True)
        for line in self._process.stdout:
            if line.startswith("answer "):
                return json.loads(line[7:])
        raise RuntimeError(f"a worker ended: {self._process.args}")

    def end(self) -> None:
        with self._process:  # closes its pipes and waits for it
            pass


def _ratios(rates: dict[str, list[float]], base: str) -> dict[str, float]:
    """Of each way to the base, the median over rounds."""
    return {
        way: statistics.median(a / b for a, b in zip(found, rates[base], strict=True))
        for way, found in rates.items()
        if way != base
    }


def measured(
    workers: dict[str, Worker], case: str, chains: int, rounds: int
) -> dict[str, list[float]]:
    """Rates of all versions, in turns."""
    for worker in workers.values():
        worker.ask([case, chains])
    rates: dict[str, list[float]] = {way: [] for way in workers}
    names = list(workers)
    for i in range(rounds):
        for way in names[i % len(names) :] + names[: i % len(names)]:
            rates[way].append(workers[way].ask(None))
    return rates


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.step_speed",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--case", choices=list(CASES), action="append", help="all if omitted")
    parser.add_argument("--chains", type=int, action="append", help="1, 16, 256, 4096 if omitted")
    parser.add_argument("--against", type=Path, help="checkout of another version")
    parser.add_argument("--rounds", type=int, default=7, help="blocks of each way")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.add_argument("--output", type=Path, help="a JSON file")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.threads)
        return
    here = Path(__file__).resolve().parent.parent
    trees = {NOW: here}
    if options.against:
        trees[BASE] = options.against.resolve()
    base = BASE if options.against else NOW
    workers = {name: Worker(tree, options.threads) for name, tree in trees.items()}
    seen: dict[str, Any] = {}
    gains: dict[int, dict[str, list[float]]] = {}
    for chains in options.chains or CHAINS:
        for case in options.case or CASES:
            rates = measured(workers, case, chains, options.rounds)
            ratios = _ratios(rates, base)
            seen[f"{case}, {chains}"] = {"rates": rates, "ratios": ratios}
            row = [
                f"{way} {statistics.median(x):.4g} ({min(x):.4g} to {max(x):.4g})"
                + (f" x{ratios[way]:.2f}" if way in ratios else "")
                for way, x in rates.items()
            ]
            print(f"{case}, {chains} chains: steps/s " + "; ".join(row), flush=True)
            for way, ratio in ratios.items():
                gains.setdefault(chains, {}).setdefault(way, []).append(ratio)
            if options.output:
                options.output.write_text(json.dumps(seen, indent=1))
        for way, x in gains.get(chains, {}).items():
            print(
                f"{chains} chains, {way}: median x{statistics.median(x):.2f}, worst x{min(x):.2f}"
            )
    for worker in workers.values():
        worker.end()


if __name__ == "__main__":
    main()
