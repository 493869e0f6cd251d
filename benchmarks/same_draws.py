"""Are draws what they were? Eleven runs whose draws depend on the seed alone, digested.

    python -m benchmarks.same_draws --record before.json     # with the old code
    python -m benchmarks.same_draws --compare before.json    # with the new: exit status 1 if not

For changes that must not change an answer: moves between modules, new names, faster code that
claims to be exact. Draws are compared bit by bit, so that before and after must be run on one
machine with one version of torch. Of every kind of space, with a map trained and with one as it is,
in single and double precision, with a black box, and of the evidence from given draws.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.distributions import Normal

import trjmcmc as trj
from benchmarks.calibration import funnel

SHORT: dict[str, Any] = {"draws": 40, "chains": 32, "warmup": 20, "progress": False}


def pair(dtype: torch.dtype = torch.float32) -> trj.Target:
    """A list: one and two parameters."""
    y = torch.tensor([0.3, 1.2, 0.8], dtype=dtype)

    def log_likelihood(p: dict[str, torch.Tensor]) -> torch.Tensor:
        return Normal(p["a"].sum(-1, keepdim=True), 1.0).log_prob(y).sum(-1)

    zero, one = torch.tensor(0.0, dtype=dtype), torch.tensor(1.0, dtype=dtype)
    models = [trj.Model(f"{n}", {"a": Normal(zero.expand(n), one)}, log_likelihood) for n in (1, 2)]
    return trj.Target(models, dtype=dtype)


def components(kinds: bool = False) -> trj.Target:
    """Levels, and if there are two kinds slopes, in noise."""
    t = torch.linspace(-1, 1, 12)
    y = 1.5 + 0.2 * torch.sin(7 * t)

    def log_likelihood(p: dict[str, torch.Tensor], active: Any) -> torch.Tensor:
        mean = p["level"].sum(-1, keepdim=True) + 0 * t
        if kinds:
            mean = mean + p["slope"].sum(-1, keepdim=True) * t
        return Normal(mean, 0.5).log_prob(y).sum(-1)

    space: Any = trj.Counts(3, of="level", name="levels")
    priors: dict[str, Any] = {"level": Normal(0.0, 2.0)}
    if kinds:
        space = space + trj.Counts(2, of="slope", name="slopes")
        priors["slope"] = Normal(0.0, 1.0)
    return trj.Target(space, priors, log_likelihood)


def black_box() -> trj.Target:
    """A likelihood without gradients, and a limit."""
    box = trj.BlackBox(lambda p: -0.5 * float(np.sum((np.asarray(p["a"]) - 0.7) ** 2)))
    wide = Normal(torch.zeros(2), 2.0)
    none = trj.BlackBox(lambda p: -1.0)
    return trj.Target([trj.Model("two", {"a": wide}, box), trj.Model("none", {}, none)])


def run(target: trj.Target, **settings: Any) -> trj.Result:
    dtype = settings.pop("dtype", None)
    return trj.TRJSampler(target, seed=3, dtype=dtype).run(**(SHORT | settings))


def evidence() -> dict[str, Any]:
    x = np.random.default_rng(4).normal(size=(4, 300, 2))
    found = trj.evidence(x, lambda x: -0.5 * (x**2).sum(-1), steps=100, seed=1)
    return {route: (e.value, e.std_error) for route, e in found.evidences.routes.items()}


def fitted(target: trj.Target, steps: int = 40, **settings: Any) -> trj.Result:
    sampler = trj.TRJSampler(target, seed=3)
    sampler.fit(steps=steps, progress=False, **settings)
    return sampler.run(**SHORT, fit=False)


CASES: dict[str, Callable[[], Any]] = {
    "list, as it is": lambda: run(pair(), fit=False),
    "list, trained": lambda: fitted(pair()),
    "list, double precision": lambda: run(pair(torch.float64), dtype=torch.float64, fit=False),
    "one model, trained": lambda: fitted(funnel()),
    "subsets, as they are": lambda: run(trj.problems.variable_selection(6), fit=False),
    "subsets, trained": lambda: fitted(trj.problems.variable_selection(4)),
    "counts, as they are": lambda: run(components(), fit=False),
    "counts, trained": lambda: fitted(components()),
    "two kinds": lambda: run(components(kinds=True), fit=False),
    "black box": lambda: run(black_box(), fit=True, max_evaluations=6000),
    "evidence": evidence,
}


def digest(found: Any) -> dict[str, str]:
    """What must stay: draws, and the table that is made of them."""
    if isinstance(found, dict):
        return {k: repr(v) for k, v in found.items()}
    raw = found.raw
    tables = found.model_probabilities(full=True)[["visits", "importance"]]
    return {
        "draws": _hash(raw.code, raw.theta, raw.log_joint),
        "probabilities": _hash(torch.as_tensor(tables.to_numpy(float))),
        "shape": repr(tuple(raw.theta.shape)),
    }


def _hash(*tensors: torch.Tensor) -> str:
    total = hashlib.sha256()
    for t in tensors:
        total.update(t.contiguous().numpy().tobytes())
    return total.hexdigest()[:20]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.same_draws",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--record", type=Path, help="a JSON file to write")
    parser.add_argument("--compare", type=Path, help="one that was written before")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    found = {}
    for name, case in CASES.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found[name] = digest(case())
        print(f"{name}: {found[name]}", flush=True)
    if options.record:
        options.record.write_text(json.dumps(found, indent=1))
    if options.compare:
        before = json.loads(options.compare.read_text())
        changed = [name for name in before if before[name] != found.get(name)]
        print(f"{len(before) - len(changed)} of {len(before)} as before; changed: {changed}")
        return int(bool(changed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
