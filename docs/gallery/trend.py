# %% [markdown]
# # Change points beside a trend
#
# Did the level of a series jump, and how often, or does it drift? A slow trend looks like many
# small jumps to a model that has no trend. The series is simulated, with two jumps and a trend, and
# sampled twice: with a slope among the parameters, and without.

# %%
import torch
from matplotlib import pyplot as plt
from torch.distributions import HalfNormal, Normal, Uniform

import trjmcmc as trj

t = torch.linspace(0.0, 1.0, 120)
noise = 0.5 * torch.randn(120, generator=torch.Generator().manual_seed(3))
y = 3.0 * t + 1.5 * (t > 0.3) - 2.0 * (t > 0.7) + noise


def drift(p):
    """The level without jumps, (draws, times)."""
    slope = p["slope"] if "slope" in p else torch.zeros_like(p["level"])
    return p["level"][:, None] + slope[:, None] * t


def step(p):
    """What one jump adds."""
    return p["jump"][:, None] * (t > p["when"][:, None])


def likelihood(steps, p):
    """Of the sum of all jumps; independent normal errors."""
    return Normal(drift(p) + steps, p["sigma"][:, None]).log_prob(y).sum(-1)


priors = {
    "level": Normal(0.0, 2.0),
    "sigma": HalfNormal(1.0),
    "jump": Normal(0.0, 2.0),
    "when": Uniform(0.0, 1.0),
}
jumps = trj.Counts(4, of=("jump", "when"), prior=torch.distributions.Poisson(1.0))
runs = {}
for name, more in (("with a trend", {"slope": Normal(0.0, 5.0)}), ("without", {})):
    target = trj.Target(jumps, priors | more, trj.Additive(step, likelihood))
    runs[name] = trj.TRJSampler(target, seed=1).run(max_seconds=120, progress=False)
result = runs["with a trend"]
slope = result.predict(lambda p, active: p["slope"])
print(f"slope {slope.mean:.2f}, 90 %: {slope.lower:.2f} to {slope.upper:.2f}; 3 is true")
print(result.catalogue()[["probability", "when_mean", "jump_mean"]].round(2).to_string())

# %% [markdown]
# The number of jumps in both runs: without a trend, more of them make up for it.

# %%


def curve(p, active):
    """The level at all times, (draws, times); jumps that are not there are zero."""
    steps = p["jump"][..., None] * (t > p["when"][..., None])
    return drift(p) + torch.where(active[..., None], steps, 0.0).sum(1)


figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
for shift, (name, run) in zip((-0.2, 0.2), runs.items(), strict=True):
    table = run.counts().droplevel("kind")
    left.bar(table.index + shift, table["probability"], 0.4, label=name)
left.set(xlabel="jumps (two are true)", ylabel="probability")
left.legend(frameon=False)
result.plot_averaged(t.numpy(), curve, (t.numpy(), y.numpy()), right)
right.set(xlabel="t", ylabel="level, averaged over all numbers")
plt.show()
