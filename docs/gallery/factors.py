# %% [markdown]
# # Factor models: two factors or three?
#
# Six series of numbers are driven by a few factors that nobody sees (Lopes & West 2004, for
# monthly exchange rates; here 143 rows are simulated from two factors). Models of 17 and 21
# parameters whose posteriors have several modes. With the published data, and every sampler of the
# papers: `examples/factor_analysis.py`.

# %%
import os

from matplotlib import pyplot as plt

import trjmcmc as trj

SECONDS = max(60.0, float(os.environ.get("SECONDS", 60)))  # fewer may leave no evidence

target = trj.problems.factor_analysis()
result = trj.TRJSampler(target, seed=1).run(max_seconds=SECONDS, progress=False)
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
loadings = [name for name in result.summary().loc["2 factors"].index if "loading" in name][:4]
result.plot_corner("2 factors", loadings)
plt.show()
