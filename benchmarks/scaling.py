"""Chain-steps a second by number of chains, of models and of dimensions, and the cost of a step.

A step is a jump through a flow and a random walk inside the model. A map need not be trained for
its speed to be measured. Times are medians over repeats.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.distributions import Normal

import trjmcmc as trj
from trjmcmc.compare.classical import uniform_proposal
from trjmcmc.kernel import Cycle, Fixed, Jump, Kernel, RandomWalk, start
from trjmcmc.run.recorded import Tally

CHAINS = (1, 16, 256, 1024, 4096, 16_384, 65_536)
MODELS = (2, 8, 32, 128, 1024)  # 2^p of a variable selection, and two
DIMENSIONS = (2, 5, 10, 20, 50, 100, 200)
REPEATS, WARM = 7, 2
LONGEST = 3.0  # seconds a figure may take


def median_seconds(functions: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median time of each function, the functions taking turns."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for i in range(repeats + WARM):
        for name, function in functions.items():
            begun = time.perf_counter()
            function()
            if i >= WARM:
                times[name].append(time.perf_counter() - begun)
    return {name: statistics.median(t) for name, t in times.items()}


def stepper(target: trj.Target, kernel: Kernel, chains: int) -> Callable[[], None]:
    """A function that advances all chains by one step, as a run does."""
    generator = torch.Generator(target.device).manual_seed(1)
    code = target.space.sample_prior(chains, generator)
    state = start(target, code, target.sample_prior(code, generator))
    tally = Tally(target)

    def step() -> None:
        nonlocal state
        with torch.no_grad():
            state, infos = kernel.step(state, generator)
        tally.add(infos)

    return step


def per_second(target: trj.Target, chains: int) -> dict[str, Any]:
    """Chain-steps and target evaluations a second."""
    flow = trj.transport.CosmicFlow(target.space, seed=1).to(target.device)
    kernel = Cycle([Jump(target, flow, uniform_proposal(target)), RandomWalk(target)])
    generator = torch.Generator(target.device).manual_seed(2)
    code = target.space.sample_prior(chains, generator)
    theta = target.sample_prior(code, generator)
    step = stepper(target, kernel, chains)
    begun = time.perf_counter()
    step()
    repeats = max(1, min(REPEATS, int(LONGEST / (time.perf_counter() - begun))))
    t = median_seconds({"step": step, "target": lambda: target.log_joint(code, theta)}, repeats)
    return {
        "chains": chains,
        "dimensions": target.dim,
        "chain_steps_per_s": chains / t["step"],
        "evaluations_per_s": chains / t["target"],
        "step_over_target": t["step"] / t["target"],
    }


def normals(dim: int) -> trj.Target:
    """Two models with ``dim`` and ``dim - 1`` independent normal coordinates."""

    def log_likelihood(p: dict[str, torch.Tensor]) -> torch.Tensor:
        return -0.5 * (p["x"] - 1.0).square().sum(-1)

    sizes = {"smaller": max(1, dim - 1), "larger": dim}
    return trj.Target(
        [trj.Model(k, {"x": Normal(torch.zeros(d), 3.0)}, log_likelihood) for k, d in sizes.items()]
    )


def by_chains(sizes: Sequence[int] = CHAINS) -> list[dict[str, Any]]:
    """Robust regression: does speed grow with the batch until the cores are full?"""
    target = trj.problems.robust_regression()
    rows = [{"case": "chains"} | per_second(target, n) for n in sizes]
    for row in rows:
        row["times_one_chain"] = row["chain_steps_per_s"] / rows[0]["chain_steps_per_s"]
    return rows


def by_models(sizes: Sequence[int] = MODELS, chains: int = 1024) -> list[dict[str, Any]]:
    """Conjugate variable selection over p columns: 2^p models, of p dimensions at most."""
    return [
        {"case": "models", "models": m}
        | per_second(trj.problems.variable_selection(m.bit_length() - 1), chains)
        for m in sizes
    ]


def by_dimension(sizes: Sequence[int] = DIMENSIONS, chains: int = 1024) -> list[dict[str, Any]]:
    return [{"case": "dimension"} | per_second(normals(d), chains) for d in sizes]


def overhead(chains: int = 1024, repeats: int = 30) -> list[dict[str, Any]]:
    """A jump beside the bare mathematics in it: one pull, one push, one target evaluation.

    A jump after a move through the same map needs no pull of its own, for the chain remembers
    where it lies (``warm``); after a random walk it does (``cold``). Either way it draws noise,
    chooses models, accepts and counts.
    """
    names = ("coal_mining", "robust_regression", "factor_analysis", "sinh_arcsinh")
    return [
        {"case": "overhead", "problem": n} | jump_cost(getattr(trj.problems, n)(), chains, repeats)
        for n in names
    ]


def jump_cost(target: trj.Target, chains: int, repeats: int) -> dict[str, Any]:
    """Of one problem."""
    flow = trj.transport.CosmicFlow(target.space, seed=1)
    jump = Jump(target, flow, Fixed(target.space, other=True), rho=0.95, fresh=0.1)
    generator = torch.Generator().manual_seed(1)
    code = target.space.sample_prior(chains, generator)
    z = flow.reference.sample((chains, target.dim), generator, target.dtype)
    tally = Tally(target)
    with torch.no_grad():
        theta, _ = flow.push(z, code)
        state = start(target, code, theta)

        def step(warm: bool) -> None:
            nonlocal state
            state, infos = jump.step(state if warm else state._replace(memo=None), generator)
            tally.add(infos)

        t = median_seconds(
            {
                "pull": lambda: flow.pull(theta, code, generator),
                "push": lambda: flow.push(z, code),
                "target": lambda: target.log_joint(code, theta),
                "warm": lambda: step(True),
                "cold": lambda: step(False),
            },
            repeats,
        )
    bare = t["pull"] + t["push"] + t["target"]
    return {
        "chains": chains,
        "bare_ms": 1e3 * bare,
        "cold_over_bare": t["cold"] / bare,
        "warm_over_bare": t["warm"] / bare,
        "jumps_per_s": chains / t["warm"],
    }
