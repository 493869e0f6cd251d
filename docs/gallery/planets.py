# %% [markdown]
# # Radial velocities: how many planets?
#
# A star's velocity along the line of sight, pulled by planets on circular orbits; simulated with
# two of them. Kepler's orbits with the priors of the evidence challenge of Nelson et al. (2020),
# your own measurements, and noise of a rotating star: `examples/planets.py`.

# %%
import math

import numpy as np
import torch
from matplotlib import pyplot as plt
from torch.distributions import HalfNormal, Normal, Poisson, Uniform

import trjmcmc as trj

random = torch.Generator().manual_seed(2)
time = 200 * torch.rand(40, generator=random).sort().values  # days
put_in = {
    "period": torch.tensor([12.3, 51.0]),  # days
    "amplitude": torch.tensor([8.0, 4.0]),  # m/s
    "phase": torch.tensor([2.0, 5.0]),
}


def pull(p, time=time):
    """What one planet adds to the velocity at some times, (n, times)."""
    angle = 2 * math.pi * time / p["period"][:, None] + p["phase"][:, None]
    return p["amplitude"][:, None] * angle.cos()


def log_likelihood(total, p):
    """Of the sum over planets; errors of 2 m/s, and more by a jitter."""
    error = (4.0 + p["jitter"] ** 2).sqrt()[:, None]
    return Normal(p["offset"][:, None] + total, error).log_prob(velocity).sum(-1)


velocity = pull(put_in).sum(0) + 2.0 * torch.randn(40, generator=random)
target = trj.Target(
    trj.Counts(4, of=("period", "amplitude", "phase"), prior=Poisson(1.0)),
    {
        "period": trj.priors.LogUniform(2.0, 200.0),
        "amplitude": Uniform(0.0, 20.0),
        "phase": trj.priors.Periodic(0.0, 2 * math.pi),
        "offset": Normal(0.0, 10.0),
        "jitter": HalfNormal(2.0),
    },
    trj.Additive(pull, log_likelihood),
)
result = trj.TRJSampler(target, seed=1).run(max_seconds=180, progress=False)
print(result.counts()[["probability", "se", "ess"]].round(3).to_string())

# %%
shown = ["probability", "se", "period_mean", "period_sd", "amplitude_mean", "amplitude_sd"]
print(result.catalogue()[shown].round(3).to_string())

# %% [markdown]
# The velocities, and the curve of draws of the posterior, all numbers of planets together.

# %%
days = torch.linspace(0.0, 200.0, 400)


def curve(p, active):
    """The star's velocity at some times, (draws, times)."""
    flat = {name: p[name].flatten() for name in put_in}
    each = pull(flat, days).reshape(*active.shape, -1)
    return p["offset"][:, None] + torch.where(active[..., None], each, 0.0).sum(1)


figure, (left, right) = plt.subplots(
    1, 2, figsize=(11, 3.4), layout="constrained", width_ratios=(1, 3)
)
result.plot_models(left)
left.set_xlabel("planets")
result.plot_averaged(days, curve, ax=right)
right.errorbar(time, velocity, np.full(40, 2.0), fmt=".", color="black", ms=4, lw=0.8)
right.set(xlabel="days", ylabel="velocity, m/s")
plt.show()
