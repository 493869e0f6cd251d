"""What a step of the sampler costs beside the mathematics in it, and chain-steps per second.

    python benchmarks/step_cost.py [--chains 1024] [--repeats 30] [--threads 2]

The bare sum is one `to_reference`, one `from_reference` and one target evaluation of the same
batch. A jump needs no `to_reference` of its own (the chain remembers where it lies under the map),
but draws noise, chooses models, accepts and counts. Times are medians over interleaved repeats.
"""

import argparse
import platform
import statistics
import time
from collections.abc import Callable

import torch

import trjmcmc as trj
from trjmcmc.kernel import Fixed, Jump, start
from trjmcmc.sample import Tally


def median_seconds(functions: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median time of each function, the functions taking turns."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for i in range(repeats + 3):
        for name, function in functions.items():
            begun = time.perf_counter()
            function()
            if i >= 3:
                times[name].append(time.perf_counter() - begun)
    return {name: statistics.median(t) for name, t in times.items()}


def measure(name: str, target: trj.Target, chains: int, repeats: int) -> None:
    """Print one row a kernel."""
    sampler = trj.TRJSampler(target, seed=1)
    sampler.fit(steps=100, particles=500, moves=3, progress=False)
    target, transport = sampler.target, sampler.transport
    generator = torch.Generator().manual_seed(1)
    code = target.space.sample_prior(chains, generator)
    z = torch.randn(chains, target.dim, generator=generator)
    with torch.no_grad():
        theta, _ = transport.from_reference(z, code)
        kernels = {
            "jump": Jump(target, transport, Fixed(target.space, other=True), rho=0.95),
            "default": sampler._default_kernel(target, transport),
        }
        states = {key: start(target, code, theta) for key in kernels}
        tally = Tally(target)

        def step(key: str) -> None:
            states[key], infos = kernels[key].step(states[key], generator)
            tally.add(infos)

        functions: dict[str, Callable[[], object]] = {
            "to_reference": lambda: transport.to_reference(theta, code),
            "from_reference": lambda: transport.from_reference(z, code),
            "target": lambda: target.log_joint(code, theta),
            "jump": lambda: step("jump"),
            "default": lambda: step("default"),
        }
        t = median_seconds(functions, repeats)
    bare = t["to_reference"] + t["from_reference"] + t["target"]
    # the default step: a jump and a Crank-Nicolson move through the map, four random walks, and
    # one to_reference to find out where the walks have led
    own = t["to_reference"] + 2 * t["from_reference"] + 6 * t["target"]
    print(f"\n{name}, {chains} chains, {target.dim} coordinates")
    for key in ("to_reference", "from_reference", "target"):
        print(f"  {key:<28} {1e3 * t[key]:8.2f} ms")
    print(f"  {'bare sum':<28} {1e3 * bare:8.2f} ms")
    print(f"  {'jump step':<28} {1e3 * t['jump']:8.2f} ms   {t['jump'] / bare:.2f} x bare sum")
    print(
        f"  {'default step (6 moves)':<28} {1e3 * t['default']:8.2f} ms   "
        f"{t['default'] / own:.2f} x its own mathematics"
    )
    print(f"  {'jump steps':<28} {chains / t['jump']:8,.0f} chain-steps a second")
    print(f"  {'default steps':<28} {chains / t['default']:8,.0f} chain-steps a second")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--chains", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(f"torch {torch.__version__}, {platform.machine()}, {arguments.threads} threads")
    for name, target in (
        ("coal mining", trj.problems.coal_mining()),
        ("robust regression", trj.problems.robust_regression()),
    ):
        measure(name, target, arguments.chains, arguments.repeats)


if __name__ == "__main__":
    main()
