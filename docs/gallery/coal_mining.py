# %% [markdown]
# # Coal mining: how often did the rate change?
#
# 191 disasters in British coal mines between 1851 and 1962 (Jarrett 1979). Green (1995) put a step
# function with an unknown number of change points on their rate, and invented reversible-jump MCMC
# to sample it. The exact probabilities are known. At full size: `examples/coal_mining.py`.

# %%
import math

import numpy as np
import torch
from matplotlib import pyplot as plt
from torch.distributions import Dirichlet, Gamma

import trjmcmc as trj
from trjmcmc.problems.coal_mining import DAYS, LENGTH  # of the disasters; 112 years in days

days = torch.tensor(DAYS, dtype=torch.float32)


def changes(p):
    """Days of the change points, (draws, k)."""
    return LENGTH * p["spacing"].cumsum(1)[:, :-1]


def log_likelihood(p):
    """Of a Poisson process: events times log rate, less rate times days, summed over steps."""
    before = torch.searchsorted(days, changes(p).contiguous(), right=True)
    none, every = torch.zeros_like(before[:, :1]), torch.full_like(before[:, :1], len(days))
    events = torch.cat([none, before, every], 1).diff(dim=1)
    return (events * p["height"].log() - p["height"] * LENGTH * p["spacing"]).sum(1)


def model(k):
    """Spacings of the change points, and the rate of each step, per day."""
    priors = {
        "spacing": Dirichlet(torch.full((k + 1,), 2.0)),
        "height": Gamma(1.0, 200.0).expand([k + 1]),
    }
    return trj.Model(f"k={k}", priors, log_likelihood)


poisson = torch.tensor([3.0**k / math.factorial(k) for k in range(1, 7)])
target = trj.Target([model(k) for k in range(1, 7)], model_prior=poisson / poisson.sum())
result = trj.TRJSampler(target, seed=1).run(progress=False)
table = result.model_probabilities()[["probability", "se"]]
exact = trj.problems.coal_mining(1, 6).truth.probabilities
print(table.assign(exact=exact).round(4).to_string())

# %% [markdown]
# The rate, averaged over all numbers of change points: it fell around 1890, and perhaps once more
# in the 1940s.

# %%
YEAR = 365.2425
year = np.linspace(1851, 1962, 250)
day = torch.tensor((year - 1851) * YEAR, dtype=torch.float32)


def rate(p):
    """Disasters per year at some times, (draws, times)."""
    step = (day[:, None] > changes(p)[:, None, :]).sum(-1)
    return p["height"].gather(1, step) * YEAR


figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
result.plot_averaged(year, rate, ax=left)
left.plot(1851 + np.asarray(DAYS) / YEAR, np.zeros(len(DAYS)), "|", color="black", ms=9)
left.set(xlabel="year", ylabel="rate (disasters per year)")
result.plot_models(right)
right.set_xlabel("number of change points")
plt.show()
