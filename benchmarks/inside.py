"""Moves inside a model, on factor analysis: effective draws per second, gradient and target call.

Each kernel starts at draws of one audit, adapts, and runs for the same time in plain coordinates
and in the reference space of one trained map. The effective draws are those of the slowest
coordinate, bounded by tanh, and those of the log density, by ArviZ. Only moves that go from mode to
mode mix the sign of a column of loadings: the slowest coordinate is mostly that; the log density
tells how fast a kernel moves within a mode.

    python benchmarks/inside.py                  # about four minutes on one core
    python benchmarks/inside.py --seconds 30 --threads 2
"""

import argparse
import time
import warnings

import numpy as np
import pandas as pd
import torch

import trjmcmc as trj
from trjmcmc.arviz_bridge import effective_sample_size
from trjmcmc.errors import TRJWarning
from trjmcmc.kernel import HMC, CrankNicolson, Kernel, RandomWalk, start

CHAINS = 128
WARM_UP = 200  # steps; the metric changes after 25, 50, 100 and 200


def run(target: trj.Target, kernel: Kernel, state: object, seconds: float) -> dict[str, float]:
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for _ in range(WARM_UP):
            kernel, state, _ = kernel.adapt(state, generator)
        kernel = kernel.frozen()
        calls, gradients = target.evaluations, target.gradients
        kept, heights, accepted, begun = [], [], [], time.perf_counter()
        while time.perf_counter() - begun < seconds:
            state, infos = kernel.step(state, generator)
            kept.append(state.theta)
            heights.append(state.log_joint)
            accepted += [float(i.accepted.double().mean()) for i in infos]
        spent = time.perf_counter() - begun
    x = torch.tanh(torch.stack(kept, 1)).double().numpy()  # (chain, draw, D)
    varies = np.flatnonzero(x.std((0, 1)) > 0)
    ess = min(effective_sample_size(x[..., d]) for d in varies)
    local = effective_sample_size(torch.stack(heights, 1).double().numpy())
    calls, slopes = target.evaluations - calls, target.gradients - gradients
    return {
        "acceptance": float(np.mean(accepted)),
        "steps": len(kept),
        "slowest_per_s": ess / spent,
        "height_per_s": local / spent,
        "height_per_call": local / calls,
        "height_per_gradient": local / slopes if slopes else float("nan"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=15.0, help="of each kernel")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    target = trj.problems.factor_analysis()
    sampler = trj.TRJSampler(target, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TRJWarning)
        sampler.fit(progress=False)
    audit, flow = sampler._known.fitted.audit, sampler.transport
    rows = {}
    for m, label in enumerate(target.space.label(audit.code)):
        theta, *_ = audit.draw(torch.full((CHAINS,), m))
        state = start(sampler.target, audit.code[m : m + 1].expand(CHAINS, -1), theta)
        for place, transport in (("plain", None), ("reference", flow)):
            kernels = {
                "HMC": HMC(sampler.target, transport),
                "random walk": RandomWalk(sampler.target, transport),
            }
            if transport is not None:
                kernels["Crank-Nicolson"] = CrankNicolson(sampler.target, transport)
            for name, kernel in kernels.items():
                found = run(sampler.target, kernel, state, options.seconds)
                rows[label, name, place] = found
    table = pd.DataFrame.from_dict(rows, orient="index")
    table.index = pd.MultiIndex.from_tuples(table.index, names=["model", "kernel", "coordinates"])
    print(table.to_string(float_format="{:.4g}".format))


if __name__ == "__main__":
    main()
