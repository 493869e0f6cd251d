# %% [markdown]
# # Robust regression: which columns, with outliers?
#
# Half of the responses follow one regression, half another, and errors are a mixture of N(0, 1)
# and N(0, 100): posteriors have several modes, and least squares is lost. Four models: x2 enters
# on its own, x3 and x4 together (Davies et al. 2023, section 5.3). The exact answer is a sum over
# a lattice. Beside every published sampler: `examples/robust_regression.py`.

# %%
import os

from matplotlib import pyplot as plt

import trjmcmc as trj

SECONDS = float(os.environ.get("SECONDS", 30))  # the site is built with fewer

target = trj.problems.robust_regression()
result = trj.TRJSampler(target, seed=1).run(max_seconds=SECONDS, progress=False)
table = result.model_probabilities()[["probability", "se"]]
print(table.assign(exact=target.truth.probabilities).round(4).to_string())

# %% [markdown]
# Estimates with bars of two errors beside the exact values, and the coefficients of the full model
# in pairs.

# %%
result.plot_models()
plt.show()

# %%
result.plot_corner(result.chains.models[-1])
plt.show()
