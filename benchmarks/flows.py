"""When do autoregressive flows beat the coupling flow, and at what cost?

Every map has the same steps of annealed reverse KL from the same first guess of location and scale,
and is then scored by its own draws: mean over models of the evidence lower bound and of the
effective share of importance draws. Both say how well a map fits where it has mass, not whether it
has all of the mass. Push is the sampling direction, pull the way back; a jump takes one of each.

    python -m benchmarks.flows                    # about a quarter of an hour on one core
    python -m benchmarks.flows --case sinh-arcsinh --steps 2000
"""

import argparse
import platform
import time
from collections.abc import Callable

import pandas as pd
import torch

import trjmcmc as trj
from trjmcmc.estimate import log_mean_weight, log_weights
from trjmcmc.fit import ReverseKL
from trjmcmc.fit.locate import locate
from trjmcmc.fit.standardise import calibrate
from trjmcmc.fit.train import train
from trjmcmc.transport import Bijection

DRAWS = 4096  # of each model, for the bound and the effective share
POINTS = 1024  # in a timed batch, models in turn
REPEATS = 5  # of each timing; the fastest counts

SHOWN = {
    "training, s": "{:.0f}".format,
    "ELBO": "{:.2f}".format,
    "ESS share": "{:.3f}".format,
    "push, us": "{:.1f}".format,
    "pull, us": "{:.1f}".format,
}

CASES: dict[str, Callable[[], trj.Target]] = {
    "robust regression": trj.problems.robust_regression,
    "sinh-arcsinh": trj.problems.sinh_arcsinh,
    "factor analysis": trj.problems.factor_analysis,
}

FLOWS: dict[str, Callable[[trj.space.Space, int], Bijection]] = {
    "coupling": lambda s, seed: trj.transport.CosmicFlow(s, seed=seed),
    "Affine(5,5)": lambda s, seed: trj.transport.CosmicAutoregressive(s, seed=seed),
    "Spline(4,6)": lambda s, seed: trj.transport.CosmicAutoregressive(
        s, transform="spline", layers=4, blocks=6, seed=seed
    ),
    "diagonal": lambda s, seed: trj.transport.CosmicAutoregressive(
        s, transform="diagonal", seed=seed
    ),
}


def fastest(call: Callable[[], object]) -> float:
    """Least wall time of a call, microseconds a point."""
    times = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return 1e6 * min(times) / POINTS


def score(
    target: trj.Target, flow: Bijection, steps: int, batch: int, seed: int
) -> dict[str, float]:
    codes = target.space.enumerate()
    generator = torch.Generator().manual_seed(seed)
    begun = time.perf_counter()
    calibrate(flow, codes, *locate(target, codes, generator))
    train(flow, ReverseKL(target), steps=steps, batch=batch, generator=generator, progress=False)
    seconds = time.perf_counter() - begun
    found = [log_weights(target, flow, code, DRAWS, generator) for code in codes]
    code = codes.repeat(POINTS // len(codes) + 1, 1)[:POINTS]
    with torch.no_grad():
        z = flow.reference.sample((POINTS, target.dim), generator, target.dtype)
        theta, _ = flow.push(z, code)
        return {
            "training, s": seconds,
            "ELBO": sum(float(w.mean()) for w in found) / len(found),
            "ESS share": sum(log_mean_weight(w).ess for w in found) / (len(found) * DRAWS),
            "push, us": fastest(lambda: flow.push(z, code)),
            "pull, us": fastest(lambda: flow.pull(theta, code, generator)),
        }


def highest(target: trj.Target) -> str:
    """The mean over models of the log evidence, prior mass included, where it is known."""
    if target.truth is None:
        return "?"
    labels = target.space.label(target.space.enumerate())
    log_prior = target.space.log_prior(target.space.enumerate())
    total = sum(target.truth.log_evidence[x] for x in labels) + float(log_prior.sum())
    return f"{total / len(labels):.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--case", action="append", help="run this case only; may be repeated")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if unknown := set(arguments.case or ()) - set(CASES):
        raise SystemExit(f"--case: {sorted(unknown)} not among {list(CASES)}")
    print(f"torch {torch.__version__}, {platform.machine()}, {arguments.threads} thread(s)")
    for name in arguments.case or CASES:
        target = CASES[name]()
        rows = {}
        for kind, make in FLOWS.items():
            flow = make(target.space, arguments.seed)
            rows[kind] = score(target, flow, arguments.steps, arguments.batch, arguments.seed)
        table = pd.DataFrame.from_dict(rows, orient="index")
        print(
            f"\n{name}: {arguments.steps} steps of {arguments.batch}, {target.dim} slots, "
            f"bound at most {highest(target)}"
        )
        print(table.to_string(formatters=SHOWN), flush=True)


if __name__ == "__main__":
    main()
