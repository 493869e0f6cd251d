"""Eight schools in PyMC: one effect, one of each school, or effects that are alike?

Rubin (1981), https://doi.org/10.3102/10769986006004377: effects of coaching on a test in eight
schools and their standard errors, in points. Three PyMC models, as anybody would write them, become
one target; their evidences are known by quadrature, and stand beside those of the run. The effects
of the hierarchy go back to ArviZ with their coordinates, and new data are predicted by PyMC.

    pip install 'trjmcmc[pymc]'
    python examples/eight_schools_pymc.py --quick
"""

import argparse
import time

import numpy as np
import torch
from scipy import stats
from scipy.integrate import quad

import trjmcmc as trj

EFFECT = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERROR = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
LEVEL, SPREAD, WIDE = 10.0, 10.0, 15.0  # prior scales of mean, of tau, of effects apart, points


def models() -> dict:
    import pymc as pm

    coords = {"school": list("ABCDEFGH")}
    with pm.Model(coords=coords) as pooled:
        mu = pm.Normal("mu", 0, LEVEL)
        pm.Normal("y", mu, ERROR, observed=EFFECT, dims="school")
    with pm.Model(coords=coords) as unpooled:
        theta = pm.Normal("theta", 0, WIDE, dims="school")
        pm.Normal("y", theta, ERROR, observed=EFFECT, dims="school")
    with pm.Model(coords=coords) as alike:
        mu = pm.Normal("mu", 0, LEVEL)
        tau = pm.HalfNormal("tau", SPREAD)
        theta = pm.Normal("theta", mu, tau, dims="school")
        pm.Normal("y", theta, ERROR, observed=EFFECT, dims="school")
    return {"pooled": pooled, "unpooled": unpooled, "alike": alike}


def log_density(tau: float) -> float:
    """Log evidence where effects are N(mu, tau^2) and mu is N(0, LEVEL^2)."""
    cov = np.diag(ERROR**2 + tau**2) + LEVEL**2
    return stats.multivariate_normal(np.zeros(8), cov).logpdf(EFFECT)


def exact() -> dict[str, float]:
    """Log evidences: two normals, and one integral over tau."""
    apart = stats.norm(0, np.hypot(ERROR, WIDE)).logpdf(EFFECT).sum()
    level = log_density(0.0)
    prior = stats.halfnorm(scale=SPREAD).pdf
    mass, _ = quad(lambda t: prior(t) * np.exp(log_density(t) - level), 0, 12 * SPREAD)
    return {"pooled": level, "unpooled": apart, "alike": level + np.log(mass)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few draws, and nothing is compiled")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    backend = "numpy" if options.quick else "numba"

    begun = time.perf_counter()
    read = [trj.from_pymc(name, m, backend=backend) for name, m in models().items()]
    target = trj.Target(read)
    print(f"three models read in {time.perf_counter() - begun:.1f} s: {target.slot_names}")
    length = {"draws": 150, "chains": 128} if options.quick else {}
    begun = time.perf_counter()
    result = trj.TRJSampler(target, seed=options.seed).run(progress=False, **length)
    print(f"run of {time.perf_counter() - begun:.1f} s\n")

    table = result.evidence()[["log_evidence", "se"]]
    p = result.model_probabilities()[["probability", "se"]]
    table = table.join(p.rename(columns={"se": "probability_se"}))
    table.insert(0, "exact", exact())
    share = np.exp(table["exact"] - table["exact"].max())
    table["exact p"] = share / share.sum()
    print(table.round(4).to_string())

    theta = result.to_arviz("alike").posterior["theta"]
    means = theta.mean(("chain", "draw")).to_series().round(1)
    print("\neffects that are alike, points:", means.to_dict())
    predicted = read[2].predict(result, draws=500).posterior_predictive["y"]
    above = (predicted > EFFECT).mean(("chain", "draw")).to_series().round(2)
    print("share of predicted data above those seen:", above.to_dict())


if __name__ == "__main__":
    main()
