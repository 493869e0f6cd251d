"""Steps a second of the moves that default runs make, beside another version of the package.

    python -m benchmarks.step_speed                                   # this version alone
    python -m benchmarks.step_speed --against folder                  # of a checkout of another one

A step is what a run's loop does: the kernel's step, the counting, the record. Kernels are composed
alike in both versions from moves that version 0.9.0 had: jumps through normals fitted to draws and
walks (coal mining, robust regression), the moves through Laplace's normals (selection among ten
columns), births, deaths and walks of pulses, and the standard kernel of a flow (coal mining). The
versions take turns, each in a process of its own; one thread, processor time, the median over all
blocks with the slowest and the fastest beside it.
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
BLOCKS = 3
WARM = 30  # steps before the first block
DRAWS = 4000  # prior draws that normals are fitted to


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
    kernel, flow = trj.kernel, trj.Laplace(target)
    near = kernel.Neighbours(target.space, swap=0.3)
    proposals = (("sweep", kernel.SweepWalk(flow)), ("laplace near", near))
    jumps = [kernel.Jump(target, flow, to, rho=0.7, fresh=0.1, name=name) for name, to in proposals]
    inner = kernel.CrankNicolson(target, flow, fresh=0.1)
    births = kernel.BirthDeath(target, kernel.Neighbours(target.space, swap=0.3))
    return kernel.Cycle([*jumps, inner, births, (kernel.RandomWalk(target), 4)])


def _births(target: Any, generator: torch.Generator) -> Any:
    kernel = trj.kernel
    return kernel.Cycle([(kernel.ComponentBirthDeath(target), 2), kernel.ComponentWalk(target)])


def _flow(target: Any, generator: torch.Generator) -> Any:
    kernel, flow = trj.kernel, trj.CosmicFlow(target.space, seed=1)
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


def blocks(case: str, chains: int, compiled: bool = False) -> list[float]:
    """Steps a second of processor time, a block each."""
    try:
        from trjmcmc.run.count import Crossings, Tally
    except ImportError:  # version 0.9.0
        from trjmcmc.sample import Crossings, Tally  # type: ignore[import-not-found, no-redef]
    from trjmcmc.draws import Recorder

    make, compose = CASES[case]
    target, generator = make(), torch.Generator().manual_seed(1)
    kernel = compose(target, generator)
    code = target.space.sample_prior(chains, generator)
    tally, found = Tally(target), []
    few = target.space.size is not None and target.space.size <= 64
    names = {k.name for k in kernel.parts() if k.between}
    crossings = Crossings(target, chains, names) if few else None
    with torch.no_grad():
        state = trj.kernel.start(target, code, target.sample_prior(code, generator))
        recorder = Recorder(None, state.code, state.theta, 1)
        if compiled:
            from trjmcmc.run.capture import captured

            kernel = captured(kernel, state, generator)

        def step() -> None:
            nonlocal state
            state, infos = kernel.step(state, generator)
            tally.add(infos)
            if crossings is not None:
                crossings.add(infos)
            tally.check()
            recorder.keep(state.code, state.theta, state.log_joint)

        for _ in range(WARM):
            step()
        for _ in range(BLOCKS):
            begun, steps = time.process_time(), 0
            while (gone := time.process_time() - begun) < SECONDS or not steps:
                step()
                steps += 1
            found.append(steps / gone)
    return found


def _asked(tree: Path, options: argparse.Namespace, compiled: bool) -> dict[str, list[float]]:
    """What a process of its own measures in a checkout."""
    command = [sys.executable, __file__, "--worker"]
    command += [f"--case={case}" for case in options.case or ()]
    command += [f"--chains={chains}" for chains in options.chains or ()]
    command += ["--compiled"] if compiled else []
    command += [f"--threads={options.threads}"]
    environment = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": str(options.threads)}
    out = subprocess.run(command, env=environment, cwd=tree, check=True, capture_output=True)
    return json.loads(out.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.step_speed",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--case", choices=list(CASES), action="append", help="all if omitted")
    parser.add_argument("--chains", type=int, action="append", help="1, 16, 256, 4096 if omitted")
    parser.add_argument("--against", type=Path, help="checkout of another version")
    parser.add_argument("--rounds", type=int, default=3, help="of each version")
    parser.add_argument("--compiled", action="store_true", help="with captured steps too")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.add_argument("--output", type=Path, help="a JSON file")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        torch.set_num_threads(options.threads)
        found = {
            f"{case}, {chains}": blocks(case, chains, options.compiled)
            for case in options.case or CASES
            for chains in options.chains or CHAINS
        }
        print(json.dumps(found))
        return
    versions = {"now": (Path(__file__).resolve().parent.parent, False)}
    if options.compiled:
        versions["captured"] = (versions["now"][0], True)
    if options.against:
        versions["before"] = (options.against.resolve(), False)
    seen: dict[str, dict[str, list[float]]] = {name: {} for name in versions}
    for _ in range(options.rounds):
        for name, (tree, compiled) in versions.items():
            for key, rates in _asked(tree, options, compiled).items():
                seen[name].setdefault(key, []).extend(rates)
    if options.output:
        options.output.write_text(json.dumps(seen, indent=1))
    for key in next(iter(seen.values())):
        median = {name: statistics.median(rates[key]) for name, rates in seen.items()}
        row = [
            f"{name} {median[name]:.4g} ({min(rates[key]):.4g} to {max(rates[key]):.4g})"
            for name, rates in seen.items()
        ]
        base = median.get("before")
        gains = [f"{name} x{m / base:.2f}" for name, m in median.items() if base and m != base]
        print(f"{key} chains: steps/s " + "; ".join(row + gains), flush=True)


if __name__ == "__main__":
    main()
