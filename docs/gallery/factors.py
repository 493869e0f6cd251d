# %% [markdown]
# # Factor models: one factor or two?
#
# Six series of numbers are driven by a few hidden factors (Lopes & West 2004, for
# monthly exchange rates). Here 60 rows are simulated from two factors, the second of them weak.
# With the published data, three factors, and every sampler of the papers:
# `examples/factor_analysis.py`.

# %%
import math

import torch
from matplotlib import pyplot as plt
from torch.distributions import HalfNormal, InverseGamma, Normal

import trjmcmc as trj

random = torch.Generator().manual_seed(1)
first = torch.tensor([0.9, 0.8, 0.6, 0.5, 0.4, 0.3])
second = torch.tensor([0.0, 0.0, 0.1, 0.3, 0.4, 0.5])
factors, noise = (torch.randn(60, n, generator=random) for n in (2, 6))
y = factors @ torch.stack([first, second]) + 0.6 * noise
scatter = (y.T @ y).double()
root = torch.linalg.cholesky(scatter)


def loadings(p):
    """Lower triangular, with a positive diagonal, (draws, 6, factors)."""
    k = p["diagonal"].shape[1]
    whole = p["diagonal"].new_zeros(len(p["diagonal"]), 6, k)
    whole[:, *torch.tril_indices(6, k, -1)] = p["loading"]
    return whole + torch.nn.functional.pad(torch.diag_embed(p["diagonal"]), (0, 0, 0, 6 - k))


def log_likelihood(p):
    """Normal rows of mean zero, whose covariance is that of the factors and of own errors."""
    b = loadings(p).double()
    covariance = b @ b.mT + torch.diag_embed(p["uniqueness"].double())
    half, failed = torch.linalg.cholesky_ex(covariance)
    log_det = 2 * half.diagonal(dim1=1, dim2=2).log().sum(1) + 6 * math.log(2 * math.pi)
    square = torch.linalg.solve_triangular(half, root, upper=False).square().sum((1, 2))
    value = -0.5 * (len(y) * log_det + square)
    return torch.where(failed > 0, -torch.inf, value).to(p["diagonal"])  # singular by rounding


def model(name, k):
    priors = {
        "diagonal": HalfNormal(torch.ones(k)),
        "loading": Normal(torch.zeros(6 * k - k * (k + 1) // 2), 1.0),
        "uniqueness": InverseGamma(torch.full((6,), 1.1), torch.full((6,), 0.05)),
    }
    return trj.Model(name, priors, log_likelihood)


target = trj.Target([model("1 factor", 1), model("2 factors", 2)])
result = trj.TRJSampler(target, seed=1).run(progress=False)
print(result.model_probabilities()[["probability", "se"]].round(4).to_string())

# %% [markdown]
# Log evidences by routes that rest on different draws. Where they agree within their bars, the
# answer does not hang on one of them.

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
result.plot_models(left)
result.evidences.plot(right)
plt.show()

# %% [markdown]
# Some loadings of the model with two factors, in pairs.

# %%
result.plot_corner("2 factors", ["diagonal", "loading[0]", "loading[5]"])
plt.show()
