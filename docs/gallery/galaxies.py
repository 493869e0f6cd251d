# %% [markdown]
# # Galaxies: how many groups?
#
# Velocities of 82 galaxies as a mixture of normals whose number, means, variances and weights are
# all unknown, under the priors of Richardson & Green (1997), who reported the probabilities marked
# in the picture. At full size (ten minutes): `examples/galaxies.py`.

# %%
import os

import numpy as np
import torch
from matplotlib import pyplot as plt

import trjmcmc as trj

SECONDS = float(os.environ.get("SECONDS", 120))  # the site is built with fewer

target = trj.problems.mixture_1d()
result = trj.TRJSampler(target, seed=1).run(max_seconds=SECONDS, progress=False)
counts = result.counts().droplevel("kind")[["probability", "se", "ess"]]
print(counts[counts["probability"] > 0.01].round(3).to_string())

# %% [markdown]
# Errors are large or NaN, with a warning, where the run was too short for the chains to mix: ten
# minutes give errors of 0.01.

# %%
grid = np.linspace(5, 38, 300)
velocity = torch.tensor(grid, dtype=torch.float32)


def density(p, active):
    """The mixture's density at some velocities, (draws, velocities)."""
    weight = torch.where(active, p["mass"], 0.0)
    weight = weight / weight.sum(1, keepdim=True)
    precision = p["precision"].clamp(min=1e-12)[..., None]
    each = torch.exp(-0.5 * precision * (velocity - p["mean"][..., None]) ** 2)
    return (weight[..., None] * each * (precision / (2 * np.pi)).sqrt()).sum(1)


published = (0.061, 0.128, 0.182, 0.199, 0.160, 0.109, 0.071, 0.040, 0.023, 0.013)
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
result.plot_models(left)
left.plot(range(3, 13), published, "_", ms=14, mew=2, color="black", label="published")
left.legend(frameon=False, fontsize=8)
result.plot_averaged(grid, density, target.y.numpy(), right)
right.set(xlabel="velocity, 1000 km/s", ylabel="density, averaged over k")
plt.show()
