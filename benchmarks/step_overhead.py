"""A whole step beside the bare mathematics in it, plain and captured.

    python -m benchmarks.step_overhead                              # plain steps
    python -m benchmarks.step_overhead --way traced --way compiled  # captured ones too

A step is what a run makes of one: kernels, counting and record. Bare are the calls that its kernels
make of the map and of the target, as many and at as many points, and its random numbers; captured
steps are held against the same, captured in the same way. For the robust regression ``straight`` is
a step's mathematics written for that problem alone, without anything of the package: what the map
and the target spend on being general is seen there. Neither accepts, counts nor records. All take
turns; one thread, processor time, medians over rounds with the worst beside them.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import trjmcmc as trj
from benchmarks.step_speed import CASES, Bench
from trjmcmc.kernel import Info, Kernel, State
from trjmcmc.kernel.base import Memo
from trjmcmc.run.capture import CapturedStep, compiled, traced
from trjmcmc.run.memories import inside
from trjmcmc.tape import NotCapturable, Tape, tape_now

CHAINS = (1, 64, 512, 4096)
SECONDS = 0.2  # of processor time a block
WAYS = {"traced": traced, "compiled": compiled}
CALLS = ("push", "pull", "log_joint", "log_prior_and_likelihood", "contribution", "total")

Call = tuple[Callable[..., Any], list[Any], dict[str, Any]]


@contextmanager
def noted(kernel: Kernel, target: trj.Target, tape: Tape) -> Iterator[tuple[list[Call], set[int]]]:
    """The calls of maps and target in the block, and which of the tape's draws these make."""
    calls: list[Call] = []
    theirs: set[int] = set()
    busy = False

    def noting(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            nonlocal busy
            if busy:  # a call within a call
                return function(*args, **kwargs)
            calls.append((function, list(args), kwargs))
            busy, first = True, len(tape.parts)
            try:
                return function(*args, **kwargs)
            finally:
                busy = False
                theirs.update(range(first, len(tape.parts)))

        return called

    owners = [target, *(x for x in inside(kernel) if isinstance(x, trj.transport.Transport))]
    patched = [(x, name) for x in owners for name in CALLS if hasattr(x, name)]
    for owner, name in patched:
        object.__setattr__(owner, name, noting(getattr(owner, name)))
    try:
        yield calls, theirs
    finally:
        for owner, name in patched:
            object.__delattr__(owner, name)


class Bare(Kernel):
    """The calls that a step makes of maps and target, and its random numbers; chains stay."""

    name, within, between = "bare", True, True

    def __init__(self, bench: Bench) -> None:
        tape = Tape(bench.generator)
        with noted(bench.kernel, bench.target, tape) as (calls, theirs), tape.recording():
            bench.kernel.step(bench.state, bench.generator)
        self.own = Tape(bench.generator)
        self.own.parts = [x for i, x in enumerate(tape.parts) if i not in theirs]
        self.given: list[Tensor] = []
        self._calls = [(f, [self._place(x) for x in args], kw) for f, args, kw in calls]

    def _place(self, x: Any) -> Any:
        """Tensors are inputs of a captured step: a number stands for each."""
        if isinstance(x, Tensor):
            self.given.append(x)
            return ("input", len(self.given) - 1)
        return x

    def step(self, state: State, generator: torch.Generator) -> tuple[State, list[Info]]:
        assert state.memo is not None
        if tape_now() is None:
            self.own.played(generator)
        found = state.log_joint.new_zeros(())
        for function, args, kwargs in self._calls:
            given = [state.memo.values[x[1]] if isinstance(x, tuple) else x for x in args]
            given = [generator if isinstance(x, torch.Generator) else x for x in given]
            out = function(*given, **kwargs)
            for x in out if isinstance(out, tuple) else (out,):
                found = found + x.sum()  # or nothing would be computed where it is captured
        return state._replace(log_joint=state.log_joint + found), []


class Straight(Kernel):
    """A jump through four normals a model and a random walk of the robust regression, by hand."""

    name, within, between = "straight", True, True

    def __init__(self, bench: Bench) -> None:
        flow = next(x for x in inside(bench.kernel) if isinstance(x, trj.transport.Transport))
        parts: Any = flow.components  # type: ignore[attr-defined]
        likelihood: Any = bench.target._densities.each[0].likelihood.function  # type: ignore[attr-defined]
        self.x, self.y = (v.to(bench.target.dtype) for v in likelihood.data.like(bench.state.theta))
        self.gap, self.floor = likelihood.gap, likelihood.floor
        self.wide, self.constant = likelihood.wide_precision, likelihood.constant
        self.on, self.loc, self.tril = parts.on, parts.loc, parts.tril
        self.inverse, self.log_norm = parts.inverse, parts.log_norm
        log_w = flow.log_weights.detach().log_softmax(-1)  # type: ignore[attr-defined]
        self.log_w = log_w.expand(len(self.on), -1)
        self.edges = self.log_w.exp().cumsum(-1)
        self.given: list[Tensor] = []

    def log_joint(self, m: Tensor, theta: Tensor) -> Tensor:
        on = self.on[m]
        b = torch.where(on, theta, 0.0)
        square = (self.y - b @ self.x.T).square()
        ratio = torch.exp(-0.5 * self.gap * square)
        terms = torch.log(ratio + self.floor) - 0.5 * self.wide * square
        prior = torch.where(on, -0.5 * (b / 10).square() - math.log(10) - 0.918938533, 0.0)
        return terms.sum(-1) + self.constant + prior.sum(-1) - math.log(4)

    def terms(self, m: Tensor, x: Tensor) -> Tensor:
        gap = x[:, None] - self.loc[m]
        square = (self.inverse[m] @ gap[..., None])[..., 0].square().sum(-1)
        return self.log_w[m] - 0.5 * square - self.log_norm[m]

    def step(self, state: State, generator: torch.Generator) -> tuple[State, list[Info]]:
        theta, like = state.theta, {"generator": generator, "dtype": state.theta.dtype}
        c, d = theta.shape
        m = state.code[:, 0] + 2 * state.code[:, 1]
        here = self.terms(m, theta)
        u, v = torch.rand(2, c, here.shape[1], **like)
        pick = (here - torch.log(-torch.log(u))).argmax(-1)
        z = (self.inverse[m, pick] @ (theta - self.loc[m, pick])[..., None])[..., 0]
        spare, choice = torch.randn(c, d, **like), torch.rand(c, 1, **like)
        z = torch.where(self.on[m], z, spare)
        to = torch.rand(c, 4, **like).argmax(-1)
        pick = (choice > self.edges[to][:, :-1]).sum(-1)
        there = self.loc[to, pick] + (self.tril[to, pick] @ z[..., None])[..., 0]
        log_q = self.terms(to, there).logsumexp(-1)
        jump = self.log_joint(to, there) - log_q + here.logsumexp(-1) - state.log_joint
        first = torch.rand(c, **like).log() < jump
        length = torch.exp(6.9 * torch.rand(c, 1, **like) - 4.6)
        walked = theta + length * torch.randn(c, d, **like)
        second = torch.rand(c, **like).log() < self.log_joint(m, walked) - state.log_joint
        found = first.sum() + second.sum() + v.sum()
        return state._replace(log_joint=state.log_joint + found), []


def _calls(bench: Bench, kernel: Any, way: str) -> Callable[[], object]:
    """A function that makes a kernel's step in a way."""
    given = tuple(kernel.given)
    state = bench.state._replace(memo=Memo(kernel, given) if given else None)
    if way == "plain":
        return lambda: kernel.step(state, bench.generator)
    captured = CapturedStep(kernel, lambda infos: [], state, bench.generator, WAYS[way])

    def both() -> None:
        if isinstance(kernel, Bare):
            kernel.own.played(bench.generator)
        captured(state, bench.generator)

    return both


def _seconds(function: Callable[[], object]) -> float:
    """Of processor time a call, from one block."""
    begun, n = time.process_time(), 0
    with torch.no_grad():
        while (gone := time.process_time() - begun) < SECONDS or not n:
            function()
            n += 1
    return gone / n


def row(case: str, chains: int, way: str, rounds: int) -> dict[str, Any]:
    """Milliseconds of a step and of what is bare of it, and their ratios round by round."""
    bench = Bench(case, chains, way)
    with torch.no_grad():
        functions = {"step": bench.draw, "bare": _calls(bench, Bare(bench), way)}
        if case == "robust regression":
            functions["straight"] = _calls(bench, Straight(bench), way)
        for function in functions.values():
            for _ in range(5):
                function()
    taken: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            taken[name].append(_seconds(function))
    found: dict[str, Any] = {"case": case, "chains": chains, "way": way, "said": bench.said}
    for name, seconds in taken.items():
        found[f"{name}_ms"] = 1e3 * statistics.median(seconds)
        if name != "step":
            ratios = [a / b for a, b in zip(taken["step"], seconds, strict=True)]
            found[f"over_{name}"] = statistics.median(ratios), max(ratios)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.step_overhead",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--case", choices=list(CASES), action="append", help="all if omitted")
    parser.add_argument("--chains", type=int, action="append", help="1, 64, 512, 4096 if omitted")
    parser.add_argument("--way", choices=list(WAYS), action="append", default=[])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.add_argument("--output", type=Path, help="a JSON file")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = []
    for way in ("plain", *options.way):
        for chains in options.chains or CHAINS:
            for case in options.case or CASES:
                try:
                    rows.append(row(case, chains, way, options.rounds))
                except NotCapturable as error:
                    print(f"{way}, {case}, {chains} chains: not captured ({error})", flush=True)
                    continue
                last = rows[-1]
                said = "; ".join(
                    f"{key[5:]} x{last[key][0]:.2f} (worst x{last[key][1]:.2f}, "
                    f"{last[key[5:] + '_ms']:.3g} ms)"
                    for key in last
                    if key.startswith("over_")
                )
                ours = f"{way}, {case}, {chains} chains: {last['step_ms']:.3g} ms"
                print(f"{ours}, over {said}", flush=True)
                if options.output:
                    options.output.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
