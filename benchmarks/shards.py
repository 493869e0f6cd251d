"""Do shards give the same draws wherever they are, whoever dies, and how do they scale?

    python -m benchmarks.shards                          # all parts
    python -m benchmarks.shards --part speed             # on two idle cores

- `engines`: eight shards in a loop, by threads, processes and Dask; digests of all draws.
- `deaths`: the same on four Dask workers that are killed one by one, the first twice.
- `leader`: the same in a folder, by a process that is killed at random moments.
- `speed`: draws a second of one process and of two.
- `truth`: many runs of four shards on a problem whose answer is known: are their errors true?
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import logging
import multiprocessing
import os
import random
import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.distributions import Normal

import trjmcmc as trj
from benchmarks.same_draws import pair
from trjmcmc.draws import Draws
from trjmcmc.run import rounds_saved

SPAWN = multiprocessing.get_context("spawn")

PATIENT = {
    "distributed.deploy.lost-worker-timeout": "600s",
    "distributed.comm.timeouts.connect": "120s",
    "distributed.scheduler.allowed-failures": 100,
}


# ---- a problem ----------------------------------------------------------------------------------


def counts() -> trj.Target:
    """Poisson, negative binomial, or two rates: the README's three models of forty counts."""
    y = torch.poisson(torch.full((40,), 4.0), generator=torch.Generator().manual_seed(1))

    def poisson(p: dict[str, torch.Tensor]) -> torch.Tensor:
        return torch.distributions.Poisson(p["rate"].exp()[:, None]).log_prob(y).sum(-1)

    def two(p: dict[str, torch.Tensor]) -> torch.Tensor:
        rate = p["rates"].exp().repeat_interleave(20, 1)
        return torch.distributions.Poisson(rate).log_prob(y).sum(-1)

    def wide(p: dict[str, torch.Tensor]) -> torch.Tensor:
        r, mean = p["r"].exp()[:, None], p["mean"].exp()[:, None]
        logits = mean.log() - r.log()
        return torch.distributions.NegativeBinomial(r, logits=logits).log_prob(y).sum(-1)

    one = Normal(1.0, 1.0)
    return trj.Target(
        [
            trj.Model("poisson", {"rate": one}, poisson),
            trj.Model("two rates", {"rates": Normal(torch.ones(2), 1.0)}, two),
            trj.Model("negative binomial", {"r": one, "mean": one}, wide),
        ]
    )


def quiet_run(executor: Any, options: argparse.Namespace, **settings: Any) -> trj.Result:
    """Eight shards; starts are given, so that sampling takes the time."""
    usual = {"draws": options.draws, "chains": options.chains, "shards": 8, "warmup": 50}
    target, g = counts(), torch.Generator().manual_seed(2)
    code = target.space.sample_prior(256, g)
    theta = target.sample_prior(code, g)
    start = trj.fit.Pool(code, theta, target.log_joint(code, theta).double())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return trj.TRJSampler(target, seed=3).run(
            fit=False, progress=False, executor=executor, start=start, **(usual | settings)
        )


def digest(result: trj.Result) -> str:
    total = hashlib.sha256()
    for t in (
        result.raw.code,
        result.raw.theta,
        result.raw.log_joint,
        *(result.chains.crossings or ()),
    ):
        total.update(t.contiguous().numpy().tobytes())
    return total.hexdigest()[:16]


@contextmanager
def dask_workers(n: int) -> Iterator[Any]:
    import dask
    from distributed import Client, LocalCluster

    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    quiet = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL}
    with (
        dask.config.set(PATIENT),
        LocalCluster(n_workers=n, threads_per_worker=1, **quiet) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(n)
        yield client


def shown(name: str, begun: float, result: trj.Result, whole: str) -> str:
    found = digest(result)
    seconds = time.monotonic() - begun
    word = "same" if found == whole or not whole else "NOT THE SAME"
    print(f"{name:32s} {found} {word:5s} {seconds:7.1f} s", flush=True)
    return found


# ---- parts --------------------------------------------------------------------------------------


def engines(options: argparse.Namespace) -> None:
    begun = time.monotonic()
    whole = shown("loop", begun, quiet_run(None, options), "")
    begun = time.monotonic()
    with ThreadPoolExecutor(2) as threads:
        shown("threads (2)", begun, quiet_run(threads, options), whole)
    begun = time.monotonic()
    with ProcessPoolExecutor(2, mp_context=SPAWN) as processes:
        shown("processes (2)", begun, quiet_run(processes, options), whole)
    begun = time.monotonic()
    with dask_workers(2) as client:
        shown("Dask (2)", begun, quiet_run(client, options), whole)


def deaths(options: argparse.Namespace) -> None:
    """Kill a worker after every second round: four, and then one that took the first's place."""
    whole = digest(quiet_run(None, options))
    begun, turn, killed = time.monotonic(), itertools.count(1), list[int]()
    with dask_workers(4) as client:

        def rule(record: Draws) -> bool:
            if next(turn) % 2 == 0 and len(killed) < 5:
                there = [w["pid"] for w in _workers(client)]
                fresh = [p for p in there if p not in first]
                left = [p for p in there if p in first]
                if pids := (left or fresh):
                    killed.append(pids[0])
                    os.kill(pids[0], signal.SIGKILL)
            return False

        first = {w["pid"] for w in _workers(client)}
        result = quiet_run(client, options, until=rule)
    print(f"killed: {len(killed)} workers, {len(first & set(killed))} of the first four")
    shown("Dask (4), killed one by one", begun, result, whole)


def _workers(client: Any) -> list[dict[str, Any]]:
    return [{"pid": pid} for pid in client.run(os.getpid, on_error="ignore").values()]


def leader(options: argparse.Namespace) -> None:
    whole = digest(quiet_run(None, options))
    rounds_saved.SAVE_SECONDS, rounds_saved.SAVE_SHARE = 0.2, 1.0
    folder = Path(tempfile.mkdtemp()) / "run"
    rng, kills, begun = random.Random(1), 0, time.monotonic()
    seconds = options.kill_seconds
    while kills < options.kills:
        child = os.fork()
        if not child:
            quiet_run(None, options, checkpoint=folder)
            os._exit(0)
        time.sleep(rng.uniform(0.2, 1.0) * seconds)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        kills += os.WIFSIGNALED(status)
        if not os.WIFSIGNALED(status):
            print(f"ended before it was killed a {kills + 1}. time")
            break
        there = trj_load(folder)
        print(f"killed {kills} times; draws in the folder: {there}", flush=True)
    result = quiet_run(None, options, checkpoint=folder)
    shown(f"leader killed {kills} times", begun, result, whole)


def trj_load(folder: Path) -> int:
    try:
        return int(trj.load(folder).raw.n_draws)
    except trj.errors.TRJError:
        return 0


def speed(options: argparse.Namespace) -> None:
    rates = {}
    for n in (1, 2, 1, 2):
        with ProcessPoolExecutor(n, mp_context=SPAWN) as pool:
            for _ in range(2 * n):  # torch is imported before the time is taken
                list(pool.map(_ready, range(2 * n)))
            result = quiet_run(pool, options, draws=4 * options.draws)
        seconds = result.report.seconds["sample"]
        rate = result.raw.n_chains * result.raw.n_draws / seconds
        rates.setdefault(n, []).append(rate)
        print(f"{n} processes: {rate:.0f} draws/s, {seconds:.1f} s of sampling", flush=True)
    print("ratio of medians:", round(float(np.median(rates[2]) / np.median(rates[1])), 2))


def _ready(_: int) -> int:
    trj.problems.sinh_arcsinh()
    time.sleep(0.2)
    return 1


def exact(n: int, g: torch.Generator) -> tuple[trj.Target, float, trj.fit.Pool]:
    """Two conjugate models, the probability of the second, and draws of both from the posterior."""
    target, y = pair(), torch.tensor([0.3, 1.2, 0.8])
    log_z = torch.stack(
        [
            torch.distributions.MultivariateNormal(torch.zeros(3), torch.eye(3) + k).log_prob(y)
            for k in (1, 2)
        ]
    )
    p = log_z.softmax(0)
    code = torch.multinomial(p, n, True, generator=g)[:, None]
    theta = torch.zeros(n, target.dim)
    for k in (1, 2):
        precision = torch.eye(k) + 3.0
        root = torch.linalg.cholesky(precision.inverse())
        rows = (code[:, 0] == k - 1).nonzero()[:, 0]
        mean = precision.inverse() @ torch.full((k,), float(y.sum()))
        theta[rows, :k] = mean + torch.randn(len(rows), k, generator=g) @ root.T
    return target, float(p[1]), trj.fit.Pool(code, theta, target.log_joint(code, theta).double())


def truth(options: argparse.Namespace) -> None:
    """z-scores of the probability of the second model: starts are exact, so that errors are asked.

    Chains are short, and remember their models for some steps.
    """
    z, plain, g = list[float](), list[float](), torch.Generator().manual_seed(0)
    begun = time.process_time()
    for seed in range(options.runs):
        target, true, start = exact(4 * 16, g)
        fixed = trj.kernel.Fixed(target.space)
        jump = trj.kernel.Jump(
            target, trj.transport.LaplaceMap(target), fixed, rho=0.0
        )  # exact, every other
        kernel = trj.kernel.MixtureKernel([jump, trj.kernel.RandomWalk(target)])
        sampler = trj.TRJSampler(target, kernel=kernel, seed=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = sampler.run(
                options.truth_draws,
                chains=16,
                shards=4,
                warmup=0,
                fit=False,
                start=start,
                progress=False,
            )
        row = result.model_probabilities(full=True).loc["2"]
        z.append(float((row["visits"] - true) / row["visits_se"]))
        means = (result.raw.code[..., 0] == 1).double().mean(1)
        error = float(means.std()) / len(means) ** 0.5
        plain.append((float(means.mean()) - true) / error)
        if len(z) in {5, 20, 50, 100, 150}:
            _say_truth(z, plain, time.process_time() - begun)
    _say_truth(z, plain, time.process_time() - begun)


def _say_truth(z: list[float], plain: list[float], seconds: float) -> None:
    """How z-scores are spread: by the errors shown, and by the spread of chains alone.

    The former are wider where a run is so short that its doubts cannot be told from chance.
    """
    n = len(z)
    words = [
        f"mean {np.mean(x):+.2f} (± {np.std(x) / np.sqrt(n):.2f}), sd {np.std(x, ddof=1):.3f} "
        f"(± {np.std(x) / np.sqrt(2 * n):.3f}), largest {np.abs(x).max():.2f}"
        for x in (z, plain)
    ]
    print(f"{n} runs of 4 shards, {seconds:.0f} processor s", flush=True)
    print(
        f"  z by errors as shown:      {words[0]}\n  z by the spread of chains: {words[1]}",
        flush=True,
    )


PARTS: dict[str, Callable[[argparse.Namespace], None]] = {
    "engines": engines,
    "deaths": deaths,
    "leader": leader,
    "speed": speed,
    "truth": truth,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.shards",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--part", action="append", choices=PARTS, help="all if omitted")
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--chains", type=int, default=128, help="of each of eight shards")
    parser.add_argument("--kills", type=int, default=4, help="of the leader")
    parser.add_argument("--kill-seconds", type=float, default=10.0, help="latest moment of each")
    parser.add_argument("--runs", type=int, default=200, help="of four shards, for `truth`")
    parser.add_argument("--truth-draws", type=int, default=50)
    parser.add_argument("--threads", type=int, default=1, help="of torch, here; workers have one")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for name in options.part or PARTS:
        print(f"-- {name}", flush=True)
        PARTS[name](options)


if __name__ == "__main__":
    main()
