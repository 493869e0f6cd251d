"""Variational answers by PyMC, of one posterior of posteriordb; for an interpreter that has it.

    python variational.py SETTINGS FOLDER

Reads a JSON with ``program``, its ``data``, outcomes ``y`` and columns ``x`` where it is a normal
regression, and a ``seed``. Writes ``advi.npz`` and so on with draws by parameter, and ``advi.json``
with ``seconds`` from the model to draws, ``computed``, the part without compilation, ``gradients``
and ``pareto_k``, or what was ``said`` where it failed.

Every setting is at its default: ADVI and full-rank ADVI take 10 000 steps of one draw each, and
Pathfinder four climbs, whose draws it resamples to 1000 by smoothed importance weights. Climbs run
one after the other. Its gradients are iterations of L-BFGS, those of line searches left out.

Source:
    PyMC, https://www.pymc.io; Pathfinder of pymc-extras,
    https://github.com/pymc-devs/pymc-extras
"""

import json
import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm
import pymc_extras
import pytensor.tensor as pt

STEPS = 10_000  # of ADVI, the default of pm.fit
DRAWS = 10_000  # of what ADVI has fitted

OF_NOISE = ("kidscore_momhs", "kidscore_momiq", "kidscore_momhsiq", "kidscore_interaction")


def regression(program: str, data: dict[str, Any], y: np.ndarray, x: np.ndarray) -> None:
    """Outcomes (N,) normal about columns (N, P) times coefficients."""
    k = x.shape[1]
    if program == "arK":
        beta = [pm.Normal("alpha", 0, 10)[None], pm.Normal("beta", 0, 10, shape=k - 1)]
    elif program == "kilpisjarvi":
        names = ("alpha", "beta")
        beta = [pm.Normal(name, data[f"pmu{name}"], data[f"ps{name}"])[None] for name in names]
    elif program == "blr":
        beta = [pm.Normal("beta", 0, 10, shape=k)]
    else:
        beta = [pm.Flat("beta", shape=k)]
    if program in ("arK", *OF_NOISE):
        sigma = pm.HalfCauchy("sigma", 2.5)
    elif program == "blr":
        sigma = pm.HalfNormal("sigma", 10)
    else:
        sigma = pm.HalfFlat("sigma")
    pm.Normal("y", pt.dot(x, pt.concatenate(beta)), sigma, observed=y)


def schools(data: dict[str, Any]) -> None:
    mu, tau = pm.Normal("mu", 0, 5), pm.HalfCauchy("tau", 5)
    theta = mu + tau * pm.Normal("theta_trans", 0, 1, shape=data["J"])
    pm.Normal("y", theta, data["sigma"], observed=data["y"])


def garch(data: dict[str, Any]) -> None:
    y = np.array(data["y"])
    mu, alpha0 = pm.Flat("mu"), pm.HalfFlat("alpha0")
    alpha1 = pm.Beta("alpha1", 1, 2)  # and beta1 uniform given it: both flat on the triangle
    beta1 = pm.Uniform("beta1", 0, 1 - alpha1)
    lag = np.subtract.outer(np.arange(len(y)), np.arange(len(y)))
    decay = pt.switch(lag >= 0, beta1 ** np.maximum(lag, 0), 0.0)
    first = pt.as_tensor([data["sigma1"] ** 2])
    added = pt.concatenate([first, alpha0 + alpha1 * (y[:-1] - mu) ** 2])
    pm.Normal("y", mu, pt.sqrt(pt.dot(decay, added)), observed=y)


def gp(data: dict[str, Any]) -> None:
    rho, alpha = pm.Gamma("rho", 25, 4), pm.HalfNormal("alpha", 2)
    sigma = pm.HalfNormal("sigma", 1)
    prior = pm.gp.Marginal(cov_func=alpha**2 * pm.gp.cov.ExpQuad(1, ls=rho))
    x = np.array(data["x"])[:, None]
    prior.marginal_likelihood("y", x, np.array(data["y"]), sigma=pt.sqrt(sigma), jitter=0.0)


def two_normals(data: dict[str, Any]) -> None:
    ordered = pm.distributions.transforms.ordered
    mu = pm.Normal("mu", 0, 2, shape=2, transform=ordered, initval=[-1, 1])
    sigma, theta = pm.HalfNormal("sigma", 2, shape=2), pm.Beta("theta", 5, 5)
    share = pt.stack([theta, 1 - theta])
    pm.NormalMixture("y", share, mu, sigma, observed=data["y"])


OTHERS: dict[str, Callable[[dict[str, Any]], None]] = {
    "eight_schools_noncentered": schools,
    "garch11": garch,
    "gp_regr": gp,
    "low_dim_gauss_mix": two_normals,
}


def advi(kind: type[Any], seed: int) -> tuple[Any, dict[str, float]]:
    inference = kind(random_seed=seed)
    inference.fit(1, progressbar=False)
    begun = time.perf_counter()
    inference.refine(STEPS - 1, progressbar=False)
    seconds = (time.perf_counter() - begun) * STEPS / (STEPS - 1)
    found = inference.approx.sample(DRAWS, random_seed=seed)
    return found, {"computed": seconds, "gradients": STEPS}


def climbs(seed: int) -> tuple[Any, dict[str, float]]:
    found = pymc_extras.fit_pathfinder(
        random_seed=seed, concurrent=None, progressbar=False, display_summary=False
    )
    said = found.sample_stats
    steps = float(said["paths_lbfgs_niter"].sum())
    costs = {"computed": float(said["compute_time"]), "gradients": steps}
    return found, costs | {"pareto_k": float(said["pareto_k"])}


METHODS: dict[str, Callable[[int], tuple[Any, dict[str, float]]]] = {
    "advi": lambda seed: advi(pm.ADVI, seed),
    "fullrank_advi": lambda seed: advi(pm.FullRankADVI, seed),
    "pathfinder": climbs,
}


def main(settings: str, folder: str) -> None:
    logging.getLogger("pymc").setLevel(logging.ERROR)
    case = json.loads(Path(settings).read_text())
    program, data = case["program"], case["data"]
    for name, method in METHODS.items():
        place = Path(folder) / name
        begun = time.perf_counter()
        with pm.Model() as model:
            if "x" in case:
                regression(program, data, np.array(case["y"]), np.array(case["x"]))
            else:
                OTHERS[program](data)
            free = [variable.name for variable in model.free_RVs]
            try:
                found, costs = method(case["seed"])
            except Exception as error:  # any, of another package: it is what there is to report
                place.with_suffix(".json").write_text(json.dumps({"said": str(error)[:200]}))
                continue
        draws = {key: found.posterior[key].to_numpy() for key in free}
        np.savez(
            place.with_suffix(".npz"),
            **{key: x.reshape(-1, *x.shape[2:]) for key, x in draws.items()},
        )
        costs["seconds"] = time.perf_counter() - begun
        place.with_suffix(".json").write_text(json.dumps(costs))


if __name__ == "__main__":
    main(*sys.argv[1:])
