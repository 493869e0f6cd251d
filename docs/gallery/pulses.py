# %% [markdown]
# # Pulses: how many are in the noise?
#
# Gaussian pulses in white noise, as in the example of the Eryn paper (Karnesis et al. 2023). Here
# three are put in, two of which overlap. At full size: `examples/pulses.py`.

# %%
import numpy as np
import torch
from matplotlib import pyplot as plt
from torch.distributions import Normal, Poisson, Uniform

import trjmcmc as trj

t = torch.linspace(-1.0, 1.0, 60)
put_in = {
    "amplitude": torch.tensor([4.0, 3.0, 4.0]),
    "centre": torch.tensor([-0.5, 0.2, 0.5]),
    "width": torch.tensor([0.08, 0.1, 0.12]),
}


def pulse(p):
    """One pulse at all times, (n, times)."""
    z = (t - p["centre"][:, None]) / p["width"][:, None]
    return p["amplitude"][:, None] * torch.exp(-0.5 * z**2)


def log_likelihood(total, p):
    """Of the sum of all pulses; the noise has a standard deviation of 1."""
    return Normal(total, 1.0).log_prob(y).sum(-1)


y = pulse(put_in).sum(0) + torch.randn(60, generator=torch.Generator().manual_seed(1))
target = trj.Target(
    trj.Counts(5, of=("amplitude", "centre", "width"), prior=Poisson(2.0)),
    {"amplitude": Uniform(1.0, 6.0), "centre": Uniform(-1.0, 1.0), "width": Uniform(0.03, 0.3)},
    trj.Additive(pulse, log_likelihood),
)
result = trj.TRJSampler(target, seed=1).run(max_seconds=120, progress=False)
shown = ["probability", "se", "amplitude_mean", "centre_mean", "width_mean"]
print(result.catalogue()[shown].round(3).to_string())

# %% [markdown]
# Each row above is a component that was found; crosses mark the pulses that were put in.

# %%


def signal(p, active):
    """The sum of all pulses at all times, (draws, times)."""
    z = (t - p["centre"][..., None]) / p["width"][..., None]
    each = p["amplitude"][..., None] * torch.exp(-0.5 * z**2)
    return torch.where(active[..., None], each, 0.0).sum(1)


figure, (left, middle, right) = plt.subplots(1, 3, figsize=(12, 3.4), layout="constrained")
result.plot_models(left)
result.plot_averaged(t, signal, (np.asarray(t), np.asarray(y)), middle)
middle.set(xlabel="t", ylabel="signal, averaged over k")
result.plot_components("centre", "width", right)
right.plot(put_in["centre"], put_in["width"], "x", color="black", ms=7)
plt.show()
