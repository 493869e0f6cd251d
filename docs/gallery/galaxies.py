# %% [markdown]
# # Galaxies: how many groups?
#
# Velocities of 82 galaxies as a mixture of normals whose number, means, variances and weights are
# all unknown, under the priors of Richardson & Green (1997), who reported the probabilities marked
# in the picture. It samples for five minutes; to errors of 0.01, in ten: `examples/galaxies.py`.

# %%
import math

import numpy as np
import torch
from matplotlib import pyplot as plt
from torch.distributions import Exponential, Gamma, Normal

import trjmcmc as trj
from trjmcmc.problems.mixtures import GALAXIES  # 1000 km/s

velocity = torch.tensor(GALAXIES, dtype=torch.float32)
span = float(velocity.max() - velocity.min())


def weighted(p, at=velocity):
    """Mass times density of one component at some velocities, and its mass, (n, velocities + 1)."""
    precision = p["precision"][:, None]
    gap = precision * (at - p["mean"][:, None]) ** 2
    density = torch.exp(-0.5 * gap) * (precision / (2 * math.pi)).sqrt()
    return p["mass"][:, None] * torch.cat([density, torch.ones_like(precision)], 1)


def log_likelihood(total, p):
    """Of the sum over components; a component's weight is its mass over the sum of all."""
    return (total[:, :-1] / total[:, -1:]).log().sum(1)


target = trj.Target(
    trj.Counts(30, 1, of=("mass", "mean", "precision")),
    {
        "rate": Gamma(0.2, 10 / span**2),
        "mass": Exponential(1.0),
        "mean": Normal(float(velocity.max() + velocity.min()) / 2, span),
        "precision": lambda p: Gamma(2.0, p["rate"][:, None]),
    },
    trj.Additive(weighted, log_likelihood),
)
result = trj.TRJSampler(target, seed=1).run(max_seconds=300, progress=False)
counts = result.counts().droplevel("kind")[["probability", "se", "ess"]]
print(counts[counts["probability"] > 0.01].round(3).to_string())

# %%
grid = torch.linspace(5, 38, 300)


def density(p, active):
    """The mixture's density at some velocities, (draws, velocities)."""
    flat = {name: p[name].flatten() for name in ("mass", "mean", "precision")}
    each = weighted(flat, grid).reshape(*active.shape, -1)
    total = torch.where(active[..., None], each, 0.0).sum(1)
    return total[:, :-1] / total[:, -1:]


published = (0.061, 0.128, 0.182, 0.199, 0.160, 0.109, 0.071, 0.040, 0.023, 0.013)
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
result.plot_models(left)
left.plot(range(3, 13), published, "_", ms=14, mew=2, color="black", label="published")
left.legend(frameon=False, fontsize=8)
result.plot_averaged(grid, density, np.asarray(velocity), right)
right.set(xlabel="velocity, 1000 km/s", ylabel="density, averaged over k")
plt.show()
