"""What each part of the training buys: coverage, effective draws, evidence error, cost.

Every way of training gets the same number of steps from the same audit, and is scored on draws
that no training saw. Truths are exact (quadrature, or by construction); for factor analysis they
come from an audit of its own that is several times as large.

    python -m benchmarks.ablation                     # all cases, about half an hour on one core
    python -m benchmarks.ablation --case mixture-5 --steps 500
    python -m benchmarks.ablation --factor-data exchange_rates.csv --robust-data six_dim_rr.csv
"""

import argparse
import json
import math
import platform
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch

import trjmcmc as trj
from benchmarks.four_modes import four_modes
from trjmcmc.estimate import log_mean_weight, log_weights
from trjmcmc.fit import ForwardKL, Objective, ReverseKL
from trjmcmc.fit.locate import locate
from trjmcmc.fit.standardise import calibrate
from trjmcmc.fit.train import train
from trjmcmc.pilot.audit import Audit
from trjmcmc.transport import Transport

DRAWS = 16_384  # for the evidence of each model
RESTARTS = 3
FORWARD_SHARE = 0.5  # of the steps, where forward follows reverse


def factor_analysis(path: Path | None, known: list[float] | None) -> trj.Target:
    y = None if path is None else np.genfromtxt(path, delimiter=",", skip_header=1)
    target = trj.problems.factor_analysis(y)
    if known is not None:
        labels = target.space.label(target.space.enumerate())
        p = torch.tensor(known).softmax(0).tolist()
        target.truth = trj.problems.Truth(
            dict(zip(labels, p, strict=True)), dict(zip(labels, known, strict=True)), "given"
        )
        return target
    reference = Audit(
        target,
        target.space.enumerate(),
        particles=6000,
        generator=torch.Generator().manual_seed(2**20),
    )
    reference.grow(0)
    labels = target.space.label(reference.code)
    log_z = dict(zip(labels, reference.log_evidence.tolist(), strict=True))
    p = dict(zip(labels, reference.log_mass.softmax(0).tolist(), strict=True))
    errors = ", ".join(f"{e:.3f}" for e in reference.std_error.tolist())
    target.truth = trj.problems.Truth(p, log_z, f"long audit, standard errors {errors}")
    return target


def robust_regression(path: Path | None) -> trj.Target:
    if path is None:
        return trj.problems.robust_regression()
    table = np.genfromtxt(path, delimiter=",", skip_header=1)
    return trj.problems.robust_regression(table[:, 2:6], table[:, 1])


def plain(target: trj.Target, seed: int = 1) -> Transport:
    return trj.transport.CosmicFlow(target.space, seed=seed)


def mixed(target: trj.Target, seed: int = 1) -> Transport:
    return trj.transport.mixture_flow(target.space, seed=seed)


class Bench:
    """One problem, its audit, and the ways to train a map for it."""

    def __init__(self, target: trj.Target, steps: int, batch: int, seed: int) -> None:
        self.target, self.steps, self.batch = target, steps, batch
        self.codes = target.space.enumerate()
        self.generator = torch.Generator().manual_seed(seed)
        self.audit = Audit(target, self.codes, generator=self.generator)
        self.audit.grow(20 * steps * batch)
        self.pool = self.audit.pool()
        self.seconds = 0.0

    def reverse(self, flow: Transport, anneal: float, share: float = 1.0) -> None:
        calibrate(flow, self.codes, *locate(self.target, self.codes, self.generator))
        self.train(flow, ReverseKL(self.target, anneal=anneal), share)

    def forward(
        self, flow: Transport, order: float, share: float = 1.0, fresh: bool = True
    ) -> None:
        if fresh:
            each = self.pool.theta.view(len(self.codes), -1, self.target.dim)
            active = self.target.space.active(self.codes)
            scale = torch.where(active, each.std(1), 1.0)
            calibrate(flow, self.codes, torch.where(active, each.mean(1), 0.0), scale)
        log_joint = None if order == 1 else self.pool.log_joint
        objective = ForwardKL(
            self.pool.code,
            self.pool.theta,
            log_joint=log_joint,
            order=order,
            generator=self.generator,
        )
        self.train(flow, objective, share)

    def train(self, flow: Transport, objective: Objective, share: float) -> None:
        train(
            flow,
            objective,
            steps=max(1, int(share * self.steps)),
            batch=self.batch,
            generator=self.generator,
            progress=False,
        )

    # the ways, in the order of the table

    def reverse_kl(self) -> Transport:
        flow = plain(self.target)
        self.reverse(flow, anneal=0.0)
        return flow

    def annealed(self) -> Transport:
        flow = plain(self.target)
        self.reverse(flow, anneal=0.3)
        return flow

    def annealed_mixture(self) -> Transport:
        flow = mixed(self.target)
        self.reverse(flow, anneal=0.3)
        return flow

    def restarts(self) -> Transport:
        flows = [trj.transport.CosmicFlow(self.target.space, seed=i) for i in range(RESTARTS)]
        for flow in flows:
            self.reverse(flow, anneal=0.3, share=1 / RESTARTS)
        return trj.transport.MixtureOfMaps(flows)

    def reverse_then_forward(self) -> Transport:
        flow = plain(self.target)
        self.reverse(flow, anneal=0.3, share=1 - FORWARD_SHARE)
        self.forward(flow, 1.0, FORWARD_SHARE, fresh=False)
        return flow

    def forward_kl(self) -> Transport:
        flow = plain(self.target)
        self.forward(flow, 1.0)
        return flow

    def covering(self) -> Transport:
        flow = plain(self.target)
        self.forward(flow, 1.5)
        return flow

    def covering_mixture(self) -> Transport:
        flow = mixed(self.target)
        self.forward(flow, 1.5)
        return flow

    def score(self, make: Callable[[], Transport]) -> dict[str, float]:
        """Worst model of each figure, among those with a share of the posterior."""
        begun = time.perf_counter()
        flow = make()
        seconds = time.perf_counter() - begun
        matters = self.audit.matters.tolist()
        covered = self.audit.score(flow).covered[self.audit.matters]
        errors, ess, z = [], [], []
        truth = self.target.truth
        assert truth is not None
        labels = self.target.space.label(self.codes)
        for code, label, counts in zip(self.codes, labels, matters, strict=True):
            if not counts:
                continue
            log_w = log_weights(self.target, flow, code, DRAWS, self.generator)
            e = log_mean_weight(log_w)
            value = e.value - float(self.target.space.log_prior(code[None])[0])
            errors.append(abs(value - truth.log_evidence[label]))
            ess.append(e.ess / DRAWS)
            z.append(errors[-1] / max(e.std_error, 1e-9))
        return {
            "covered": float(covered.min()),
            "ESS": min(ess),
            "error": max(errors),
            "error / se": max(z),
            "seconds": seconds,
        }


WAYS: dict[str, Callable[[Bench], Transport]] = {
    "reverse KL": Bench.reverse_kl,
    "+ annealing": Bench.annealed,
    "+ mixture base": Bench.annealed_mixture,
    f"{RESTARTS} restarts merged": Bench.restarts,
    "reverse, then forward": Bench.reverse_then_forward,
    "forward KL": Bench.forward_kl,
    "forward, order 1.5": Bench.covering,
    "default: mixture, order 1.5": Bench.covering_mixture,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--case", action="append", help="run this case only; may be repeated")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--factor-data", type=Path, help="CSV with a header, rows of y")
    parser.add_argument(
        "--factor-truth", type=float, nargs=2, help="log evidences of 2 and 3 factors, if known"
    )
    parser.add_argument("--robust-data", type=Path, help="CSV: index, y, four columns of x")
    parser.add_argument("--output", type=Path, default=Path("output/ablation.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    cases: dict[str, Callable[[], trj.Target]] = {
        "factor analysis": lambda: factor_analysis(arguments.factor_data, arguments.factor_truth),
        "robust regression": lambda: robust_regression(arguments.robust_data),
        "coal mining": lambda: trj.problems.coal_mining(1, 4),
        **{f"mixture-{d}": (lambda d=d: four_modes(d)) for d in (2, 5, 10)},
    }
    if unknown := set(arguments.case or ()) - set(cases):
        raise SystemExit(f"--case: {sorted(unknown)} not among {list(cases)}")
    print(f"torch {torch.__version__}, {platform.machine()}, {arguments.threads} thread(s)")
    found: dict[str, object] = {}
    for name in arguments.case or cases:
        bench = Bench(cases[name](), arguments.steps, arguments.batch, arguments.seed)
        rows = {}
        for way, make in WAYS.items():
            rows[way] = bench.score(lambda make=make, bench=bench: make(bench))
        table = pd.DataFrame.from_dict(rows, orient="index")
        gap = float(bench.audit.gap.abs().max())
        print(
            f"\n{name}: {arguments.steps} steps of {arguments.batch}; audit "
            f"{bench.audit.seconds:.0f} s, {bench.audit.evaluations:,} evaluations, halves differ "
            f"by {gap:.3f}"
        )
        print(table.round(3).to_string(), flush=True)
        found[name] = {"audit": bench.audit.seconds, "ways": rows}
    if any(math.isnan(v) for c in found.values() for w in c["ways"].values() for v in w.values()):  # type: ignore[index]
        raise SystemExit("a figure is NaN")
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    settings = {k: str(v) for k, v in vars(arguments).items()}
    arguments.output.write_text(json.dumps({"settings": settings, "cases": found}, indent=1))


if __name__ == "__main__":
    main()
