"""What a step of the sampler costs beside the mathematics in it, and chain-steps per second.

    python benchmarks/step_cost.py [--chains 1024] [--repeats 30] [--threads 2]

The bare sum is one `to_reference`, one `from_reference` and one target evaluation of the same
batch. A jump after a move through the same map needs no `to_reference` of its own (the chain
remembers where it lies); after a random walk it does ("cold"). Either way it draws noise, chooses
models, accepts and counts. The default step is six moves: a jump, a Crank-Nicolson move and four
random walks. Times are medians over interleaved repeats. Exits with an error if a jump costs more
than 1.3 times the bare sum.
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

LIMIT = 1.3  # times the bare sum, at 1024 chains


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


def measure(name: str, target: trj.Target, chains: int, repeats: int) -> float:
    """Print one row a kernel; the cost of a jump from an unknown place over the bare sum."""
    sampler = trj.TRJSampler(target, seed=1)
    sampler.fit(steps=100, particles=500, moves=3, progress=False)
    target, transport = sampler.target, sampler.transport
    generator = torch.Generator().manual_seed(1)
    code = target.space.sample_prior(chains, generator)
    z = torch.randn(chains, target.dim, generator=generator)
    with torch.no_grad():
        theta, _ = transport.from_reference(z, code)
        kernels = {
            "jump": Jump(target, transport, Fixed(target.space, other=True), rho=0.95, fresh=0.1),
            "default": sampler._default_kernel(target, transport),
        }
        states = {key: start(target, code, theta) for key in kernels}
        tally = Tally(target)

        def step(key: str, warm: bool = True) -> None:
            state = states[key] if warm else states[key]._replace(point=None)
            states[key], infos = kernels[key].step(state, generator)
            tally.add(infos)

        functions: dict[str, Callable[[], object]] = {
            "to_reference": lambda: transport.to_reference(theta, code),
            "from_reference": lambda: transport.from_reference(z, code),
            "target": lambda: target.log_joint(code, theta),
            "jump": lambda: step("jump"),
            "jump, cold": lambda: step("jump", warm=False),
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
    for key, label in (
        ("jump, cold", "jump, place not known"),
        ("jump", "jump, place known"),
        ("default", "default step, six moves"),
    ):
        print(
            f"  {label:<28} {1e3 * t[key]:8.2f} ms   {t[key] / bare:.2f} x bare sum   "
            f"{chains / t[key]:10,.0f} chain-steps a second"
        )
    print(f"  default step                 {t['default'] / own:.2f} x its own mathematics")
    return t["jump, cold"] / bare


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--chains", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(f"torch {torch.__version__}, {platform.machine()}, {arguments.threads} threads")
    ratios = [
        measure(name, target, arguments.chains, arguments.repeats)
        for name, target in (
            ("coal mining", trj.problems.coal_mining()),
            ("robust regression", trj.problems.robust_regression()),
        )
    ]
    if max(ratios) > LIMIT:
        raise SystemExit(f"a jump costs {max(ratios):.2f} times the bare sum, over {LIMIT}")


if __name__ == "__main__":
    main()
