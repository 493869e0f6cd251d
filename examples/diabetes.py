"""Which of ten measurements tell how diabetes progresses? A real data set, all 1024 subsets.

Efron et al. (2004): age, sex, body-mass index, blood pressure and six serum measurements of 442
patients, and how far their disease had progressed a year later. The data come with scikit-learn
(`pip install '.[examples]'`). Regression with unknown noise; every column in with probability 1/2.

* diabetes.png: inclusion probabilities with their errors, effects averaged over all models, and
  predictions of patients that were left out.

    python examples/diabetes.py --quick
"""

import argparse
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch.distributions import HalfNormal, Normal

import trjmcmc as trj

HELD_OUT = 60


def regression(x: torch.Tensor, y: torch.Tensor, names: list[str]) -> trj.Target:
    """y ~ N(level + x beta, sigma^2); everything in standard deviations of the columns."""

    def log_likelihood(params, active):
        mean = params["level"][:, None] + params["beta"] @ x.T
        return Normal(mean, params["sigma"][:, None]).log_prob(y).sum(-1)

    priors = {"level": Normal(0.0, 1.0), "beta": Normal(0.0, 0.5), "sigma": HalfNormal(1.0)}
    return trj.Target(trj.Subsets(names, of="beta"), priors, log_likelihood)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer draws")
    parser.add_argument("--output", type=Path, default=Path("output"))
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    try:
        from sklearn.datasets import load_diabetes
    except ImportError:
        raise SystemExit("the data come with scikit-learn: pip install '.[examples]'") from None
    options.output.mkdir(parents=True, exist_ok=True)
    data = load_diabetes()
    order = np.random.default_rng(0).permutation(len(data.target))
    x = torch.tensor(data.data[order], dtype=torch.float32)
    y = torch.tensor(data.target[order], dtype=torch.float32)
    known = slice(HELD_OUT, None)  # the scales too are of patients who are not left out
    x, y = (v.sub(v[known].mean(0)).div(v[known].std(0)) for v in (x, y))
    target = regression(x[HELD_OUT:], y[HELD_OUT:], list(data.feature_names))

    begun = time.perf_counter()
    draws = 200 if options.quick else 1000
    result = trj.TRJSampler(target, seed=1).run(draws, progress=True)
    print(f"{target.space.size} models, {time.perf_counter() - begun:.0f} s\n")
    inclusion = result.inclusion_probabilities()
    print("In the model?")
    print(inclusion[["probability", "se"]].round(3).to_string())
    top = result.model_probabilities()[["probability", "se"]].head(8)
    print("\nMost probable models")
    print(top.round(4).to_string())

    prediction = result.predict(lambda p, active: p["level"][:, None] + p["beta"] @ x[:HELD_OUT].T)
    noise = result.predict(lambda p, active: p["sigma"])
    mean, sd = np.asarray(prediction.mean), np.asarray(prediction.sd)
    total = np.sqrt(sd**2 + float(noise.mean) ** 2)
    z = (y[:HELD_OUT].numpy() - mean) / total
    print(
        f"\nOf {HELD_OUT} patients left out, {np.mean(np.abs(z) < 1.645):.0%} lie within the 90 % "
        f"interval of the model average;\nits mean square error is "
        f"{np.mean((y[:HELD_OUT].numpy() - mean) ** 2):.3f} (about 1 for no model)."
    )
    effects = result.predict(lambda p, active: p["beta"])
    figure(result, effects, mean, total, y[:HELD_OUT].numpy(), options.output / "diabetes.png")


def figure(result, effects, mean, total, seen, path: Path) -> None:
    picture, (left, middle, right) = plt.subplots(1, 3, figsize=(12, 3.6))
    names = result.space.names
    place = np.arange(len(names))
    result.plot_inclusion(left)
    middle.errorbar(
        np.asarray(effects.mean), place, xerr=np.asarray(effects.sd), fmt="o", color="tab:blue"
    )
    middle.axvline(0, color="0.7", lw=1)
    middle.set_yticks(place, names)
    middle.set(xlabel="effect, mean ± sd over all models,\nsd of progression per sd of the column")
    middle.invert_yaxis()
    right.errorbar(mean, seen, xerr=total, fmt=".", lw=0.5, color="tab:blue")
    right.plot([-2, 2], [-2, 2], color="0.7", lw=1)
    right.set(
        xlabel="predicted progression, ± sd of a new patient", ylabel="seen, of patients left out"
    )
    picture.tight_layout()
    picture.savefig(path, dpi=150)
    print(path)


if __name__ == "__main__":
    main()
