# %% [markdown]
# # A black box: which differential equation?
#
# How does a body get rid of a drug? Concentrations of indomethacin in the plasma of one volunteer,
# eleven times within eight hours after an injection (Kwan et al. 1976). In one compartment the
# concentration falls exponentially; with a second one, which it goes into and comes back from, it
# falls fast, then slowly. The likelihood is SciPy's solver, point by point and without gradients.

# %%
import numpy as np
from matplotlib import pyplot as plt
from scipy.integrate import solve_ivp
from scipy.stats import halfnorm, lognorm, norm

import trjmcmc as trj

hours = np.array([0.25, 0.5, 0.75, 1.0, 1.25, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0])
seen = np.array([1.50, 0.94, 0.78, 0.48, 0.37, 0.19, 0.12, 0.11, 0.08, 0.07, 0.05])  # mg/l


def concentration(p, times=hours):
    """In the first compartment, mg/l, by the solver."""
    out, there, back = p["eliminated"], p.get("there", 0.0), p.get("back", 0.0)

    def flow(_, amount):
        return [
            -(out + there) * amount[0] + back * amount[1],
            there * amount[0] - back * amount[1],
        ]

    start = [p["start"], 0.0]
    found = solve_ivp(flow, (0.0, 8.0), start, "LSODA", times, rtol=1e-6, atol=1e-9)
    return found.y[0] if found.success else np.full(len(times), np.nan)


def log_likelihood(p):
    """Errors in proportion to the concentration: normal on the logarithm."""
    fitted = np.maximum(concentration(p), 1e-12)
    return float(norm.logpdf(np.log(seen), np.log(fitted), p["error"]).sum())


rate = lognorm(s=1.0, scale=1.0)  # per hour
one = {"start": lognorm(s=1.0, scale=2.0), "eliminated": rate, "error": halfnorm(scale=0.5)}
models = [
    trj.Model("one compartment", one, trj.BlackBox(log_likelihood)),
    trj.Model(
        "two compartments", {**one, "there": rate, "back": rate}, trj.BlackBox(log_likelihood)
    ),
]
result = trj.TRJSampler(trj.Target(models), seed=1).run(max_evaluations=20_000, progress=False)
print(result.bayes_factor("two compartments", "one compartment", log=True), "nats")
print(result.evidence()[["log_evidence", "se", "verdict"]].round(2).to_string())

# %% [markdown]
# Curves of some draws; the scale is logarithmic, so that one compartment is a line. Chains never
# visit it beside the other, so it has a run of its own.

# %%
alone = trj.TRJSampler(trj.Target(models[:1]), seed=1)
runs = {
    "one compartment": alone.run(max_evaluations=10_000, progress=False),
    "two compartments": result,
}
times = np.linspace(0.1, 8.0, 100)
figure, ax = plt.subplots(figsize=(6, 3.8), layout="constrained")
for colour, (model, run) in zip(("C0", "C1"), runs.items(), strict=True):
    draws = run.draws(model)
    n = len(draws["start"])
    for i in np.linspace(0, n - 1, min(n, 25)).astype(int):
        line = concentration({name: x[i] for name, x in draws.items()}, times)
        ax.semilogy(times, line, color=colour, lw=0.6, alpha=0.5)
    ax.plot([], [], color=colour, label=model)
ax.semilogy(hours, seen, "o", color="black", label="seen")
ax.set(xlabel="hours after the injection", ylabel="concentration, mg/l")
ax.legend(frameon=False)
plt.show()
