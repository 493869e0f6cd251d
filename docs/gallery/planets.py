# %% [markdown]
# # Radial velocities: how many planets?
#
# A star's velocity along the line of sight, pulled by planets on Kepler orbits. It is simulated
# with two planets, under the priors of the evidence challenge of Nelson et al. (2020). Your own
# measurements, and the correlated noise of a rotating star:
# `examples/planets.py velocities.txt --correlated`.

# %%
import os

import numpy as np
import torch
from matplotlib import pyplot as plt

import trjmcmc as trj
from trjmcmc.problems.radial_velocity import velocity_of

SECONDS = float(os.environ.get("SECONDS", 120))  # the site is built with fewer

target = trj.problems.radial_velocity(most=3)
result = trj.TRJSampler(target, seed=1).run(max_seconds=SECONDS, progress=False)
print(result.counts()[["probability", "se", "ess"]].round(3).to_string())

# %%
table = result.catalogue()
print(
    table[["probability", "period_mean", "period_sd", "amplitude_mean", "amplitude_sd"]]
    .round(3)
    .to_string()
)

# %% [markdown]
# The velocities, and the curve of draws of the posterior, all numbers of planets together.

# %%
NAMES = ("period", "amplitude", "eccentricity", "periastron", "anomaly")
time = np.linspace(float(target.time.min()), float(target.time.max()), 400)


def curve(p, active):
    """The star's velocity at some times, (draws, times)."""
    n, most = active.shape
    each = {name: p[name][active] for name in NAMES}
    one = velocity_of(each, torch.as_tensor(time, dtype=p["period"].dtype))
    whole = one.new_zeros(n, most, len(time))
    whole[active] = one
    return p["offset"][:, None] + whole.sum(1)


figure, (left, right) = plt.subplots(
    1, 2, figsize=(11, 3.4), layout="constrained", width_ratios=(1, 3)
)
result.plot_models(left)
left.set_xlabel("planets")
result.plot_averaged(time, curve, ax=right, most=400)
seen, error = target.velocity.numpy(), target.error.numpy()
right.errorbar(target.time.numpy(), seen, error, fmt=".", color="black", ms=4, lw=0.8)
right.set(xlabel="days", ylabel="velocity, m/s")
plt.show()
