# %% [markdown]
# # Variable selection: what predicts how diabetes progresses?
#
# Age, sex, body-mass index, blood pressure and six serum measurements of 442 patients, and how far
# their disease had progressed a year later (Efron et al. 2004; the data come with scikit-learn).
# Every subset of the ten columns is a model: 1024 of them. With predictions of patients that were
# left out: `examples/diabetes.py`.

# %%
import numpy as np
import torch
from matplotlib import pyplot as plt
from sklearn.datasets import load_diabetes
from torch.distributions import HalfNormal, Normal

import trjmcmc as trj

data = load_diabetes()
x, y = (torch.tensor(v, dtype=torch.float32) for v in (data.data, data.target))
x, y = ((v - v.mean(0)) / v.std(0) for v in (x, y))


def likelihood(p, active):
    """Regression; what is off is zero in beta."""
    mean = p["level"][:, None] + p["beta"] @ x.T
    return Normal(mean, p["sigma"][:, None]).log_prob(y).sum(-1)


target = trj.Target(
    trj.Subsets(list(data.feature_names), of="beta", prior=0.5),
    {"level": Normal(0.0, 1.0), "beta": Normal(0.0, 0.5), "sigma": HalfNormal(1.0)},
    likelihood,
)
result = trj.TRJSampler(target, seed=1).run(max_seconds=120, progress=False)
print(result.inclusion_probabilities()[["probability", "se", "ess"]].round(3).to_string())

# %% [markdown]
# Inclusion probabilities, and effects averaged over all models with their standard deviations. The
# columns s1 to s6 carry much of the same information, so that data cannot tell which of them it
# is.

# %%
effects = result.predict(lambda p, active: p["beta"])
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
result.plot_inclusion(left)
place = np.arange(len(data.feature_names))
right.errorbar(np.asarray(effects.mean), place, xerr=np.asarray(effects.sd), fmt="o")
right.axvline(0, color="0.7", lw=1)
right.set_yticks(place, data.feature_names)
right.invert_yaxis()
right.set_xlabel("sd of progression per sd of the column")
plt.show()
