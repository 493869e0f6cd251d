"""One device beside the CPU: contracts, chain-steps a second, memory bandwidth, a trace of a step.

    python -m benchmarks --case device           # eight minutes at most, by its own clock
    python -m benchmarks --case device --quick   # a minute

Where there is a GPU each figure is taken on it and on the CPU; where there is none it says so and
takes those of the CPU alone. Problems: change points of coal mining and a robust regression by
jumps through an untrained map and walks, pulses by births, deaths and walks of components, a
thousand columns by births, deaths and walks, and a regression by a network.
"""

import argparse
import math
import statistics
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import torch
from torch import Tensor
from torch.distributions import Normal
from torch.utils._python_dispatch import TorchDispatchMode

import trjmcmc as trj
from trjmcmc import clock
from trjmcmc.compare.classical import uniform_proposal
from trjmcmc.kernel import (
    HMC,
    BirthDeath,
    ComponentBirthDeath,
    ComponentWalk,
    Cycle,
    Jump,
    Kernel,
    Neighbours,
    RandomWalk,
)

from .scaling import stepper

Rows = list[dict[str, Any]]

SECONDS, QUICK_SECONDS = 480.0, 60.0  # in all
CHAINS = (1, 16, 256, 4096, 65_536, 1_000_000)
LONGEST_STEP = 6.0  # seconds a step from which more chains are not tried
LEAST_STEPS, MOST_STEPS = 3, 50  # that a figure is the median of
TRACED = 100  # steps
COPIED = 2**26  # numbers by which memory bandwidth is measured
COLUMNS, ROWS = 1000, 200
HIDDEN, POINTS = 32, 256  # of the network, and data that it sees

WAITS = ("aten::_local_scalar_dense", "aten::nonzero", "aten::_unique2", "aten::equal")


# ---- the problems -------------------------------------------------------------------------------


def jumps(target: trj.Target) -> Kernel:
    """A jump through a map, trained or not, and a walk."""
    flow = trj.transport.CosmicFlow(target.space, seed=1).to(target.device)
    return Cycle([Jump(target, flow, uniform_proposal(target)), RandomWalk(target)])


def components(target: trj.Target) -> Kernel:
    return Cycle([ComponentBirthDeath(target), ComponentWalk(target)])


def births(target: trj.Target) -> Kernel:
    return Cycle([BirthDeath(target, Neighbours(target.space)), RandomWalk(target, scale=0.1)])


def gradients(target: trj.Target) -> Kernel:
    return Cycle([BirthDeath(target, uniform_proposal(target)), HMC(target, leaps=4)])


class Network:
    """The log likelihood of data under a network of one or two hidden layers."""

    def __init__(self, layers: int) -> None:
        generator = torch.Generator().manual_seed(3)
        self.layers, self.x = layers, torch.linspace(-2, 2, POINTS)[:, None]
        self.y = (2 * self.x[:, 0]).sin() + 0.2 * torch.randn(POINTS, generator=generator)

    def __call__(self, p: dict[str, Tensor]) -> Tensor:
        if self.x.device != p["first"].device:  # once
            self.x, self.y = self.x.to(p["first"]), self.y.to(p["first"])
        h = torch.tanh(self.x * p["first"][:, None, :HIDDEN] + p["first"][:, None, HIDDEN:])
        if self.layers == 2:
            middle = p["middle"].view(-1, HIDDEN, HIDDEN) / math.sqrt(HIDDEN)
            h = torch.tanh(h @ middle)
        mean = (h @ p["last"][..., None])[..., 0] / math.sqrt(HIDDEN)
        return Normal(mean, 0.2).log_prob(self.y).sum(-1)


def deep_regression() -> trj.Target:
    """Has a network one hidden layer or two? Some thousand weights."""
    first, last = Normal(torch.zeros(2 * HIDDEN), 1.0), Normal(torch.zeros(HIDDEN), 1.0)
    middle = Normal(torch.zeros(HIDDEN * HIDDEN), 1.0)
    shallow = {"first": first, "last": last}
    return trj.Target(
        [
            trj.Model("one layer", shallow, Network(1)),
            trj.Model("two layers", shallow | {"middle": middle}, Network(2)),
        ]
    )


def many_columns() -> trj.Target:
    return trj.problems.conjugate_selection(COLUMNS, n=ROWS)


CASES: dict[str, tuple[Callable[[], trj.Target], Callable[[trj.Target], Kernel]]] = {
    "coal mining": (trj.problems.coal_mining, jumps),
    "robust regression": (trj.problems.robust_regression, jumps),
    "pulses": (trj.problems.pulses, components),
    f"{COLUMNS} columns": (many_columns, births),
    "deep regression": (deep_regression, gradients),
}


# ---- what is measured ---------------------------------------------------------------------------


class Traffic(TorchDispatchMode):
    """Operations, and the bytes of what they read and write."""

    def __init__(self) -> None:
        super().__init__()
        self.operations, self.bytes = 0, 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if not getattr(func, "is_view", False):
            self.operations += 1
            tensors = [*_tensors(args), *_tensors(found)]
            self.bytes += sum(x.numel() * x.element_size() for x in tensors)
        return found


def _tensors(x: Any) -> Iterator[Tensor]:
    if isinstance(x, Tensor):
        yield x
    elif isinstance(x, list | tuple):
        for y in x:
            yield from _tensors(y)


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def bandwidth(device: torch.device) -> float:
    """Bytes a second that are read and written by a copy."""
    x = torch.ones(COPIED, device=device)
    y, times = torch.empty_like(x), []
    for _ in range(6):
        wait(device)
        begun = clock.now()
        y.copy_(x)
        wait(device)
        times.append(clock.now() - begun)
    return 2 * x.numel() * x.element_size() / statistics.median(times[1:])


def figure(
    target: trj.Target, kernel: Kernel, chains: int, bytes_a_second: float, left: float
) -> dict[str, Any]:
    """Chain-steps a second, with their spread, and the share of the memory bandwidth."""
    device, step = target.device, stepper(target, kernel, chains)
    times: list[float] = []
    step()  # what is found once
    begun = clock.now()
    while len(times) < LEAST_STEPS or (len(times) < MOST_STEPS and clock.now() - begun < left):
        wait(device)
        now = clock.now()
        step()
        wait(device)
        times.append(clock.now() - now)
    with Traffic() as traffic:
        step()
    middle = statistics.median(times)
    return {
        "chains": chains,
        "chain_steps_per_s": chains / middle,
        "worst_chain_steps_per_s": chains / max(times),
        "step_ms": 1e3 * middle,
        "operations": traffic.operations,
        "megabytes": traffic.bytes / 2**20,
        "share_of_bandwidth": traffic.bytes / middle / bytes_a_second,
    }


def traced(target: trj.Target, kernel: Kernel, chains: int, steps: int) -> dict[str, Any]:
    """Launches and waits a step of a trace, draws not kept."""
    step, cuda = stepper(target, kernel, chains), target.device.type == "cuda"
    step()
    kinds = [torch.profiler.ProfilerActivity.CPU]
    kinds += [torch.profiler.ProfilerActivity.CUDA] if cuda else []
    with torch.profiler.profile(activities=kinds, acc_events=True) as profile:
        for _ in range(steps):
            step()
        wait(target.device)
    names = [event.name for event in profile.events()]
    launches = sum("LaunchKernel" in name for name in names)
    return {
        "chains": chains,
        "steps": steps,
        "launches_per_step": launches / steps if cuda else math.nan,
        "operations_per_step": sum(name.startswith("aten::") for name in names) / steps,
        "to_host": sum("Memcpy DtoH" in name for name in names) if cuda else math.nan,
        "waits": sum(name in WAITS for name in names) if cuda else math.nan,
    }


# ---- contracts ----------------------------------------------------------------------------------


def contracts(device: torch.device) -> Iterator[tuple[str, bool, str]]:
    """The core of what tests hold, on a device: what, whether it holds, and a number."""
    here = trj.problems.robust_regression()
    there = here.to(device=device)
    generator = torch.Generator().manual_seed(1)
    code = here.space.sample_prior(500, generator)
    theta = here.sample_prior(code, generator)
    known = here.log_joint(code, theta)
    found = there.log_joint(code.to(device), theta.to(device)).cpu()
    gap = float(((found - known).abs() / known.abs().clamp(min=1)).max())
    yield "densities are those of the CPU", gap < 1e-4, f"relative gap {gap:.1g}"

    flow = trj.transport.CosmicFlow(here.space, seed=1).to(device)
    z = torch.randn(500, here.dim, generator=generator).to(device)
    with torch.no_grad():
        x, log_q = flow.push(z, code.to(device))
        _, log_p = flow.pull(x, code.to(device), torch.Generator(device).manual_seed(1))
    gap = float((log_q - log_p).abs().max())
    yield "a map has one density both ways", gap < 1e-2, f"gap {gap:.1g} nats"

    def run(draws: int) -> trj.Result:
        sampler = trj.TRJSampler(here, seed=1, device=device)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", trj.errors.TRJWarning)  # it is short
            return sampler.run(draws, chains=512, fit=False, warmup=100, progress=False)

    result, again = run(200), run(200)
    same = torch.equal(result.raw.theta, again.raw.theta)
    yield "a seed gives the same draws", same, f"{result.raw.theta.shape[0]} chains"

    table = result.model_probabilities(full=True)
    assert here.truth is not None
    exact = torch.tensor(list(here.truth.probabilities.values()), dtype=torch.float64)
    visits = torch.tensor(table["visits"].to_numpy())
    error = torch.tensor(table["visits_se"].to_numpy()).clamp(min=1e-3)
    worst = float(((visits - exact) / error).abs().max())
    yield "p(model | data) is right", worst < 5, f"{worst:.1f} standard errors"


# ---- all of it ----------------------------------------------------------------------------------


def devices() -> list[torch.device]:
    """The CPU, and a GPU if there is one."""
    found = [torch.device("cpu")]
    return [torch.device("cuda", 0), *found] if torch.cuda.is_available() else found


def name_of(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


def rows_of(options: argparse.Namespace) -> Rows:
    """All figures, within their time; a picture of them in the folder of the output."""
    end = clock.now() + (QUICK_SECONDS if options.quick else SECONDS)
    rows: Rows = []
    every = devices()
    if len(every) == 1:
        print("  no GPU here: these are figures of the CPU alone", flush=True)
    for device in every:
        about = {"case": "device", "device": name_of(device)}
        for what, holds, number in contracts(device):
            rows.append(about | {"figure": "contract", "problem": what, "holds": holds})
            print(f"  {about['device']}: {what}: {'yes' if holds else 'NO'} ({number})", flush=True)
        speed = bandwidth(device)
        rows.append(about | {"figure": "bandwidth", "gigabytes_per_s": speed / 1e9})
        print(f"  {about['device']}: memory bandwidth {speed / 1e9:.0f} GB/s", flush=True)
        target = trj.problems.robust_regression().to(device=device)
        trace = traced(target, jumps(target), 4096, 10 if options.quick else TRACED)
        rows.append(about | {"figure": "trace", "problem": "robust regression"} | trace)
        rows += throughput(device, speed, end, len(every))
    picture(rows, options.output / "device.png")
    return rows


def throughput(device: torch.device, speed: float, end: float, shares: int) -> Rows:
    """Chain-steps a second by problem and number of chains, while there is time."""
    rows: Rows = []
    begun = clock.now()
    each = (end - begun) / len(CASES)
    if device.type == "cuda":
        each /= shares
    for number, (problem, (make, kernel_of)) in enumerate(CASES.items(), 1):
        about = {"case": "device", "device": name_of(device), "problem": problem}
        target = make().to(device=device)
        kernel, last = kernel_of(target), begun + number * each
        for chains in CHAINS:
            left = last - clock.now()
            if left <= 0:
                break
            try:
                found = figure(target, kernel, chains, speed, min(1.0, 0.1 * left))
            except (torch.OutOfMemoryError, RuntimeError) as error:
                if "memory" not in str(error):
                    raise
                print(f"  {problem}, {chains} chains: out of memory", flush=True)
                break
            rows.append(about | {"figure": "throughput"} | found)
            print(
                f"  {about['device']}: {problem}, {chains} chains: "
                f"{found['chain_steps_per_s']:.3g} chain-steps/s, "
                f"{found['share_of_bandwidth']:.1%} of the bandwidth",
                flush=True,
            )
            growth = 16 * found["step_ms"] / 1e3  # of the next one
            if min(growth, 4 * LONGEST_STEP) > LONGEST_STEP or 5 * growth > left:
                break
    return rows


def picture(rows: Rows, path: Path) -> None:
    """Chain-steps a second by number of chains, a panel a problem, a line a device."""
    known = [row for row in rows if row["figure"] == "throughput"]
    problems = list(dict.fromkeys(row["problem"] for row in known))
    if not problems:
        return
    size = (2.6 * len(problems), 2.9)
    figure, axes = plt.subplots(1, len(problems), figsize=size, squeeze=False, sharey=True)
    for ax, problem in zip(axes[0], problems, strict=True):
        for name in dict.fromkeys(row["device"] for row in known):
            mine = [r for r in known if (r["problem"], r["device"]) == (problem, name)]
            x = [row["chains"] for row in mine]
            ax.plot(x, [row["chain_steps_per_s"] for row in mine], "o-", label=name)
        ax.set(xscale="log", yscale="log", title=problem, xlabel="chains")
    axes[0][0].set_ylabel("chain-steps a second")
    axes[0][0].legend(loc="upper left")
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)
