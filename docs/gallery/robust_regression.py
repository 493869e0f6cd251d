# %% [markdown]
# # Robust regression: which columns, with outliers?
#
# Errors of a regression are a mixture of N(0, 1) and N(0, 100), so that posteriors may have several
# modes, and least squares is lost. Four models: x2 enters on its own, x3 and x4 together (Davies et
# al. 2023, section 5.3). The exact answer is a sum over a lattice. Beside every published sampler:
# `examples/robust_regression.py`.

# %%
import torch
from matplotlib import pyplot as plt
from torch.distributions import Normal

import trjmcmc as trj

data = trj.problems.robust_regression()  # simulated; it knows the exact probabilities
x, y = data.x.float(), data.y.float()


def log_likelihood(p, active):
    """Each error is narrow or wide with equal chances; what is off is zero in beta."""
    error = y - p["beta"] @ x.T
    both = torch.stack([Normal(0.0, sd).log_prob(error) for sd in (1.0, 10.0)])
    return (both.logsumexp(0) - torch.tensor(2.0).log()).sum(-1)


columns = trj.Subsets(["x1", "x2", "x3", "x4"], of="beta", always=["x1"], blocks=[["x3", "x4"]])
target = trj.Target(columns, {"beta": Normal(0.0, 10.0)}, log_likelihood)
result = trj.TRJSampler(target, seed=1).run(progress=False)
table = result.model_probabilities()[["probability", "se"]]
print(table.assign(exact=data.truth.probabilities).round(4).to_string())

# %% [markdown]
# Probabilities with bars of two standard errors, and the coefficients of the full model in pairs.

# %%
result.plot_models()
plt.show()

# %%
result.plot_corner(result.chains.models[-1])
plt.show()
