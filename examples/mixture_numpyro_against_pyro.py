"""Two groups, or a slope? A mixture in NumPyro against a regression in Pyro, in one target.

Simulated melting points of 60 samples that were made under two pressures, more or less: do they
fall into two groups, whatever the pressure, or follow it? Somebody has the first as a model in
NumPyro, somebody else the second in Pyro. The regression is there in NumPyro too: both languages
must give it one evidence.

* mixture_numpyro_against_pyro.png: the data, predictions of both models by their own languages.

    pip install 'trjmcmc[numpyro,pyro]'
    python examples/mixture_numpyro_against_pyro.py --quick
"""

import argparse
import time
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch

import trjmcmc as trj

SAMPLES = 60


def simulated(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Pressures and melting points, in standard deviations."""
    rng = np.random.default_rng(seed)
    group = np.where(rng.random(SAMPLES) < 0.4, -1.0, 0.8)
    pressure = group + 1.2 * rng.standard_normal(SAMPLES)
    return pressure, group + 0.4 * rng.standard_normal(SAMPLES)


def mixture(y: Any) -> None:
    """Two groups, in NumPyro; their means are in ascending order, and so have names."""
    import numpyro
    import numpyro.distributions as dist

    share = numpyro.sample("share", dist.Beta(2.0, 2.0))
    rising = dist.transforms.OrderedTransform()
    means = dist.TransformedDistribution(dist.Normal(np.array([-1.0, 0.0]), 1.0), rising)
    means = numpyro.sample("means", means)
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    groups = dist.Normal(means, sigma)
    which = dist.CategoricalProbs(np.array([1.0, 0.0]) * (1 - share) + np.array([0.0, 1.0]) * share)
    with numpyro.plate("sample", len(y)):
        numpyro.sample("y", dist.MixtureSameFamily(which, groups), obs=y)


def in_numpyro(x: Any, y: Any) -> None:
    """A slope, in NumPyro."""
    import numpyro
    import numpyro.distributions as dist

    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    level = numpyro.sample("level", dist.Normal(0.0, 1.0))
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))
    numpyro.sample("y", dist.Normal(level + slope * x, noise), obs=y)


def in_pyro(x: Any, y: Any) -> None:
    """The same in Pyro."""
    import pyro
    import pyro.distributions as dist

    slope = pyro.sample("slope", dist.Normal(0.0, 1.0))
    level = pyro.sample("level", dist.Normal(0.0, 1.0))
    noise = pyro.sample("noise", dist.HalfNormal(1.0))
    with pyro.plate("sample", len(y)):
        pyro.sample("y", dist.Normal(level + slope * x, noise), obs=y)


def two_languages(x: np.ndarray, y: np.ndarray) -> trj.Target:
    """The three models as one target, in float64."""
    import jax

    jax.config.update("jax_enable_x64", True)
    tensors = torch.as_tensor(x), torch.as_tensor(y)
    return trj.Target(
        [
            trj.from_numpyro("two groups (NumPyro)", mixture, y),
            trj.from_pyro("a slope (Pyro)", in_pyro, *tensors),
            trj.from_numpyro("a slope (NumPyro)", in_numpyro, x, y),
        ],
        model_prior=[0.5, 0.25, 0.25],
        dtype=torch.float64,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer draws")
    parser.add_argument("--output", type=Path, default=Path("output"))
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.output.mkdir(parents=True, exist_ok=True)

    begun = time.perf_counter()
    x, y = simulated()
    target = two_languages(x, y)
    print(f"taken over in {time.perf_counter() - begun:.0f} s")
    draws = {"draws": 200} if options.quick else {}
    result = trj.TRJSampler(target, seed=1).run(progress=False, **draws)
    print("Probabilities of the models, and log evidences in nats (both slopes must have one):")
    print(result.model_probabilities()[["probability", "se"]].round(4).to_string())
    print(result.evidence()[["log_evidence", "se"]].round(4).to_string())

    groups, slope = target.models[0], target.models[2]
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
    axes[0].plot(x, y, "o", ms=4)
    axes[0].set(xlabel="pressure, standard deviations", ylabel="melting point, the same")
    axes[1].hist(y, bins=15, density=True, color="0.8", label="data")
    for model in (groups, slope):
        drawn = model.predict(result, draws=200, seed=1).posterior_predictive["y"].values
        axes[1].hist(drawn.ravel(), bins=60, density=True, histtype="step", label=model.name)
    axes[1].set(xlabel="melting point, standard deviations", ylabel="density", yticks=[])
    axes[1].legend(fontsize=8, frameon=False)
    figure.savefig(options.output / "mixture_numpyro_against_pyro.png", dpi=150)
    print(f"{time.perf_counter() - begun:.0f} s in all")


if __name__ == "__main__":
    main()
