"""How good is a variational answer over 128 models, and how the sampler makes it exact.

Section 5.1 and Appendix F of Davies et al., "Variational transdimensional inference": a regression
with outliers, 7 columns that may or may not be in, a likelihood with the wrong errors. One flow and
one distribution q(m) over the models are trained together by gradients alone. That answer is
approximate. The sampler proposes from it, and from Laplace's normals that need no training, and its
answer is exact: it is what the flows are judged by.

* models.png: q(m) against p(m | data), by flow; a second run of the sampler on the diagonal, with
  its errors; below, how many nats the own posterior of a model is missed by, where draws are many.
* pairs.png: two coefficients of the model that the plain flow misses most, under the exact
  posterior and under two of the flows.

    python examples/robust_selection.py --quick
    python examples/robust_selection.py                 # 3000 steps a flow
    python examples/robust_selection.py --level high --prior wide --columns 7
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch

import trjmcmc as trj

FLOWS: dict[str, Callable[[trj.Target], trj.transport.Transport]] = {
    "diagonal normal": lambda t: trj.transport.CosmicAutoregressive(t.space, transform="diagonal"),
    "affine (5, 5)": lambda t: trj.transport.CosmicAutoregressive(t.space, layers=5, blocks=5),
    "spline (4, 6)": lambda t: trj.transport.CosmicAutoregressive(
        t.space, transform="spline", layers=4, blocks=6
    ),
    "couplings": lambda t: trj.transport.CosmicFlow(t.space),
    "Laplace": trj.transport.LaplaceMap,
}
VISIBLE = 1e-5  # probability below which models are not drawn
WORTH = 30  # draws of a model from which its cross-entropy is shown


def conditional(flow: trj.transport.Transport, result: trj.Result) -> pd.Series:
    """Mean of log pi(theta | m) - log q(theta | m) over exact draws of each model, nats."""
    code, theta = result.raw.flat()
    log_joint = result.raw.log_joint.flatten()
    index = result.space.index(code)
    known = result.evidences.routes.get("importance", {})  # none where the run had no time to weigh
    found = {}
    for m in index.unique().tolist():
        mine = (index == m).nonzero()[:, 0][:2000]
        label = result.space.label(code[mine[:1]])[0]
        if len(mine) < WORTH or label not in known:
            continue
        with torch.no_grad():
            log_q = flow.log_prob(theta[mine], code[mine])
        found[label] = float((log_joint[mine] - known[label].value - log_q).mean())
    return pd.Series(found)


def shares(result: trj.Result) -> pd.DataFrame:
    """Share of the draws in each visited model and its standard error, largest first."""
    index = result.space.index(result.raw.code.flatten(0, 1)).view(result.raw.code.shape[:2])
    found = {}
    for m in index.unique():
        by_chain = (index == m).double().mean(1)
        code = result.space.enumerate()[m][None]
        error = float(by_chain.std()) / len(by_chain) ** 0.5
        found[result.space.label(code)[0]] = {"share": float(by_chain.mean()), "se": error}
    return pd.DataFrame(found).T.sort_values("share", ascending=False)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="300 steps a flow")
    parser.add_argument("--level", choices=["none", "mid", "high"], default="mid")
    parser.add_argument("--prior", choices=["focused", "wide"], default="focused")
    parser.add_argument("--columns", type=int, default=7)
    parser.add_argument("--seed", type=int, default=701, help="of the simulated data")
    parser.add_argument("--output", type=Path, default=Path("output/robust_selection"))
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.output.mkdir(parents=True, exist_ok=True)
    target = trj.problems.robust_selection(
        options.level, options.prior, options.columns, options.seed
    )
    true = [name for name, on in zip(target.space.names[1:], target.gamma_true, strict=True) if on]
    print(f"{target.space.size} models; the data were made with {', '.join(true) or 'no column'}\n")

    begun = time.perf_counter()
    result = trj.TRJSampler(target, seed=1).run(1000, chains=512, progress=True)
    print(f"Exact, {time.perf_counter() - begun:.0f} s, nothing trained:")
    print(result.inclusion_probabilities()[["probability", "se"]].round(4).to_string(), "\n")
    exact = shares(result)
    again = shares(trj.TRJSampler(target, seed=2).run(1000, chains=512, progress=True))
    both = exact.join(again.add_suffix("_again"), how="inner")[lambda t: t["share"] > 0.01]
    apart = (both["share"] - both["share_again"]).abs() / np.hypot(both["se"], both["se_again"])
    print(
        f"A second run, of other draws: of {len(both)} models above .01 the one that differs most "
        f"does\nby {apart.max():.1f} standard errors.\n"
    )

    rows, answers = {}, {}
    for name, make in FLOWS.items():
        sampler = trj.TRJSampler(
            target, make(target), models=trj.weights.CategoricalWeights, seed=1
        )
        steps = 300 if options.quick else 3000
        begun = time.perf_counter()
        sampler.fit(steps=steps, batch=256, pilot=False, audit=False, progress=True)
        seconds = time.perf_counter() - begun
        answer = sampler.variational.against(result)
        missed = conditional(sampler.transport, result)
        answers[name] = (answer, sampler, missed)
        rows[name] = {
            "training, s": seconds,
            "evidence lower bound": answer.elbo.value,
            "cross-entropy": answer.cross_entropy.value,
            "divergence": answer.divergence,
            "worst inclusion error": answer.inclusion_error,
            "median nats a model": missed.median(),
        }
    print("What each flow alone would have answered (nats; smaller divergence is better):")
    print(pd.DataFrame(rows).T.round(3).to_string())
    best = min(rows, key=lambda name: rows[name]["divergence"])
    error = rows[best]["worst inclusion error"]
    print(
        f"\nThe best, {best}, is off by up to {error:.3f} in an inclusion probability and does\n"
        f"not know it; the sampler's largest standard error is "
        f"{result.inclusion_probabilities()['se'].max():.4f}."
    )
    models_figure(target, answers, exact, again, options.output / "models.png")
    pairs_figure(target, answers, result, options.output / "pairs.png")


def models_figure(target, answers, exact, again, path: Path) -> None:
    """q(m) against p(m) by flow, and the nats that each model's posterior is missed by."""
    shown = exact["share"][exact["share"] > VISIBLE]
    second = again.reindex(shown.index)
    codes = torch.stack([target.space.code_of(label) for label in shown.index])
    figure, axes = plt.subplots(
        2, len(answers), figsize=(3 * len(answers), 6), sharex=True, sharey="row"
    )
    for (name, (_, sampler, missed)), (top, bottom) in zip(answers.items(), axes.T, strict=True):
        with torch.no_grad():
            q = sampler.models.log_prob(codes).exp().numpy()
        top.plot([VISIBLE, 1], [VISIBLE, 1], color="0.7", lw=1)
        top.errorbar(
            shown,
            second["share"],
            2 * second["se"],
            2 * exact["se"][shown.index],
            fmt=".",
            ms=3,
            color="k",
            label="sampler, two runs, 2 errors",
            lw=0.7,
        )
        top.plot(shown, q, "o", ms=4, alpha=0.6, label=f"variational, q(m) > {VISIBLE:g}")
        top.set(xscale="log", yscale="log", title=name, ylim=(VISIBLE, 1))
        common = [label for label in missed.index if label in shown.index]
        bottom.plot(shown[common], missed[common].clip(1e-3), "o", ms=4, alpha=0.6)
        bottom.set(yscale="log", xlabel="p(m | data), by the sampler")
    axes[0, 0].set_ylabel("stated probability")
    axes[0, 0].legend(fontsize=7)
    axes[1, 0].set_ylabel("nats missed within a model")
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    print(f"{path}")


def pairs_figure(target, answers, result, path: Path) -> None:
    """The two most correlated coefficients of the model that the diagonal flow misses most.

    Of the most visited of three items or more where nothing tells what it misses.
    """
    missed = answers["diagonal normal"][2]
    missed = missed if len(missed) else shares(result)["share"]
    label = missed[[len(m.split("+")) > 2 for m in missed.index]].idxmax()
    code = target.space.code_of(label)
    every = target.space.active(code[None])[0].nonzero()[:, 0].tolist()
    beta = result.draws(label)["beta"][:3000]
    correlation = np.triu(np.abs(np.corrcoef(beta.T)), 1)
    pair = np.unravel_index(correlation.argmax(), correlation.shape)
    beta, slots = beta[:, pair], [every[i] for i in pair]
    names = [target.space.names[s] for s in slots]
    figure, axes = plt.subplots(1, 3, figsize=(9, 3.4), sharex=True, sharey=True)
    figure.suptitle(
        f"model {label}, p(m | data) = {result.chains.inside(label).mean():.3f}", fontsize=10
    )
    axes[0].plot(beta[:, 0], beta[:, 1], ".", ms=2, alpha=0.4, color="k")
    axes[0].set(title="exact, by the sampler", xlabel=f"{names[0]} coefficient")
    axes[0].set_ylabel(f"{names[1]} coefficient")
    for ax, name in zip(axes[1:], ("diagonal normal", "couplings"), strict=True):
        sampler = answers[name][1]
        z = sampler.transport.reference.sample(
            (3000, target.dim), torch.Generator().manual_seed(2), target.dtype
        )
        with torch.no_grad():
            theta, _ = sampler.transport.push(z, code.expand(3000, -1))
        ax.plot(theta[:, slots[0]], theta[:, slots[1]], ".", ms=2, alpha=0.4)
        ax.set(title=f"{name} alone", xlabel=f"{names[0]} coefficient")
    low, high = np.quantile(beta, [0.001, 0.999], axis=0)
    axes[0].set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    print(f"{path}")


if __name__ == "__main__":
    main()
