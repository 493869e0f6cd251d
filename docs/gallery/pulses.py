# %% [markdown]
# # Pulses: how many are in the noise?
#
# Four Gaussian pulses of nearly one height, half of them overlapping, in noise two thirds as
# large: the example of the Eryn paper (Karnesis et al. 2023). At full size: `examples/pulses.py`.

# %%
import os

import numpy as np
import torch
from matplotlib import pyplot as plt

import trjmcmc as trj

SECONDS = float(os.environ.get("SECONDS", 60))  # the site is built with fewer

target = trj.problems.pulses()
result = trj.TRJSampler(target, seed=1).run(max_seconds=SECONDS, progress=False)
shown = ["probability", "rhat", "amplitude_mean", "centre_mean", "width_mean"]
print(result.catalogue()[shown].round(3).to_string())

# %% [markdown]
# Each row above is a component that was found. Crosses mark the pulses that were put in: two of
# them overlap so much that the data tell them apart in few of the draws.

# %%
grid = np.linspace(-1, 1, 300)
t = torch.tensor(grid, dtype=torch.float32)


def signal(p, active):
    """The sum of all pulses at some times, (draws, times)."""
    z = (t - p["centre"][..., None]) / p["width"].clamp(min=1e-3)[..., None]
    each = p["amplitude"][..., None] * torch.exp(-0.5 * z**2)
    return torch.where(active[..., None], each, 0.0).sum(1)


figure, (left, middle, right) = plt.subplots(1, 3, figsize=(12, 3.4), layout="constrained")
result.plot_models(left)
result.plot_averaged(grid, signal, (target.t.numpy(), target.y.numpy()), middle)
middle.set(xlabel="t", ylabel="signal, averaged over k")
result.plot_components("centre", "width", right)
right.plot(*target.pulses_true[:, 1:].T, "x", color="black", ms=7)
plt.show()
