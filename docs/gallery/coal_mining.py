# %% [markdown]
# # Coal mining: how often did the rate change?
#
# 191 disasters in British coal mines between 1851 and 1962 (Jarrett 1979). Green (1995) put a step
# function with an unknown number of change points on their rate, and invented reversible-jump MCMC
# to sample it. The exact probabilities are known. At full size: `examples/coal_mining.py`.

# %%
import os

import numpy as np
import torch
from matplotlib import pyplot as plt

import trjmcmc as trj
from trjmcmc.problems.coal_mining import DAYS, LENGTH

SECONDS = float(os.environ.get("SECONDS", 30))  # the site is built with fewer

target = trj.problems.coal_mining(1, 6)
result = trj.TRJSampler(target, seed=1).run(max_seconds=SECONDS, progress=False)
table = result.model_probabilities()[["probability", "se"]]
print(table.assign(exact=target.truth.probabilities).round(4).to_string())

# %% [markdown]
# The rate, averaged over all numbers of change points: it fell around 1890, and perhaps once more
# in the 1940s.

# %%
YEAR = 365.2425
year = np.linspace(1851, 1962, 250)
share = torch.tensor((year - 1851) * YEAR / LENGTH, dtype=torch.float32)


def rate(p):
    """Disasters a year at some times, (draws, times)."""
    change = p["spacing"].cumsum(1)[:, :-1] if "spacing" in p else p["height"][:, :0]
    step = (share[:, None] > change[:, None, :]).sum(-1)
    return p["height"].gather(1, step) * YEAR


figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
result.plot_averaged(year, rate, ax=left)
left.plot(1851 + np.asarray(DAYS) / YEAR, np.zeros(len(DAYS)), "|", color="black", ms=9)
left.set(xlabel="year", ylabel="rate (disasters a year)")
result.plot_models(right)
right.set_xlabel("number of change points")
plt.show()
