"""Spike and slab by variational inference, beside exact answers and published statements.

Chapter 4 of Premchandar (2024), Normalizing flows aided variational inference (FAVI), thesis,
Michigan State University: 100 rows, equicorrelated columns, some coefficients ln 100, the others
zero. Every model is a normal, so that all 2^p are added up here, and draws are independent:

* inclusion probabilities by `trj.variational` and by the exact sampler, against enumeration;
* q(z) a product, `trj.weights.MeanField`, and autoregressive, `trj.weights.Made`, with normals that
  are exact given z (`"laplace"`): the nats from p(z | y), beside the least that any product can
  reach;
* the published way to draw z, by one Gumbel variable where the difference of two is needed: a
  planted error, P(z = 1) = 1 - exp(-r / (1 - r)) where r is stated, that answers have to flag;
* up to 90 columns: the exact sampler beside Gibbs chains, Brier score and log loss.

    python examples/variational_spike_and_slab.py --quick
    python examples/variational_spike_and_slab.py --columns 5 10 20 --widest 90

* errors.png: |theta - theta*|^2, the sampler's and variational draws beside 100 000 exact ones.
* inclusion.png: stated against exact inclusion probabilities; beside it the planted error.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from solved import gibbs_spike_and_slab, spike_and_slab
from torch import Tensor

import trjmcmc as trj
from trjmcmc.weights.mean_field import TEMPERATURE

EXACT = 100_000  # independent draws of the posterior
STARTS = 20  # of the coordinate ascent
SWEEPS = 500  # of it, at most
# Table C.2, AUC-PR by columns, the same of Gibbs, mean field and FAVI; Table C.1, their seconds
PRINTED_AUC = {
    5: 0.5,
    10: 0.67,
    15: 0.75,
    20: 0.8,
    30: 0.86,
    40: 0.89,
    50: 0.91,
    70: 0.93,
    90: 0.95,
}
PRINTED_SECONDS = {
    5: (4.6, 3.8, 3.0),
    10: (27, 3.9, 2.9),
    15: (30.9, 3.8, 3.1),
    20: (30.9, 3.9, 3.2),
    30: (63.4, 4, 3.2),
    40: (42.5, 4.5, 3.1),
    50: (59.3, 4.2, 3.7),
    70: (85.2, 5.1, 3.5),
    90: (148.4, 4.3, 3.8),
}
CLAIMS = """What is published and can't stand:
* "The PIP P(z3 = 0)", ln n, 0, 0 and rho = .6, "is .15 to .2 by Gibbs": that is P(z3 = 1). Over
  {sets} data sets the exact median of P(z3 = 0) is {median:.3f}, and {below:.0%} lie below .2.
* The mean-field q(z) is blamed for what was missed at (ln n, ln n, 0), rho = .8. There the best
  product misses p(z | y) by {floor:.4f} nats (median; at most {most:.4f}): it is not at fault.
* Table C.2 is k / (k + 1), k effects, to the digit, for every method: a perfect ranking has
  average precision 1, and says nothing of probabilities. Brier score and log loss do.
* Seconds of Table C.1: Gibbs is said to be quicker at 40 columns than at 30."""


class OneGumbel(trj.weights.MeanField):
    """The planted error: units drawn by one Gumbel variable, probabilities stated as if by two."""

    def __init__(self, space: Any) -> None:
        super().__init__(space, gradient="straight-through")

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        return self.relaxed(n, generator).detach().long()

    def relaxed(self, n: int, generator: torch.Generator) -> Tensor:
        u = torch.rand(n, len(self.logits), generator=generator).clamp(1e-6, 1 - 1e-6)
        soft = ((self.logits - (-u.log()).log()) / TEMPERATURE).sigmoid()
        return (soft > 0.5).to(soft) + (soft - soft.detach())


def log_posterior(target: Any) -> Tensor:
    """log p(z | y) of every model, shape (2^p,)."""
    codes = target.space.enumerate()
    log_p = target.log_evidences + target.space.log_prior(codes).double()
    return log_p.log_softmax(0)


def nats_off(log_q: Tensor, log_p: Tensor) -> float:
    """KL(q | p) of two distributions over the same models."""
    q = log_q.exp()
    return max(0.0, float((q * (log_q - log_p)).nan_to_num(0.0).sum()))


def product(logits: Tensor, codes: Tensor) -> Tensor:
    """Log-probabilities of models under independent units, shape (M,)."""
    on, off = (torch.nn.functional.logsigmoid(s * logits) for s in (1, -1))
    return codes @ on + (1 - codes) @ off


def best_product(target: Any) -> tuple[float, Tensor]:
    """The least KL(q | p) of a product, and its inclusion probabilities, by coordinate ascent."""
    codes, log_p = target.space.enumerate().double(), log_posterior(target)
    p, generator = codes.shape[1], torch.Generator().manual_seed(0)
    found = []
    for start in range(STARTS):
        logits = target.inclusion.clamp(1e-6, 1 - 1e-6).logit()
        if start:
            logits = logits + 3 * torch.randn(p, generator=generator, dtype=torch.float64)
        for _ in range(SWEEPS):
            before = logits.clone()
            for j in range(p):
                others = torch.cat([codes[:, :j], codes[:, j + 1 :]], 1)
                rest = product(torch.cat([logits[:j], logits[j + 1 :]]), others).exp()
                logits[j] = (rest * log_p * (2 * codes[:, j] - 1)).sum()
            if float((logits - before).abs().max()) < 1e-10:
                break
        found.append((nats_off(product(logits, codes), log_p), logits.sigmoid()))
    return min(found, key=lambda pair: pair[0])


def quiet(make: Callable[[], Any]) -> tuple[Any, float]:
    """What a call makes, its doubts unprinted, and processor seconds."""
    begun = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", trj.errors.TRJWarning)
        made = make()
    return made, time.process_time() - begun


def learnt(target: Any, make: Any, family: str, **settings: Any) -> tuple[Any, Any, float]:
    """An answer whose q(z) is learnt: the answer, its q(z), and processor seconds."""
    weights = make(target.space)
    found, seconds = quiet(
        lambda: trj.variational(target, family, models=weights, seed=1, progress=False, **settings)
    )
    return found, weights, seconds


def positions(effects: tuple[int, ...], p: int) -> str:
    return "".join("1" if j in effects else "0" for j in range(p))


def error_of(inclusion: Any, exact: Tensor) -> float:
    return float(np.abs(np.asarray(inclusion)[: len(exact)] - exact.numpy()).max())


# ---- tables --------------------------------------------------------------------------------------


def three_columns(scenes: list[tuple[float, tuple[int, ...]]], **settings: Any) -> pd.DataFrame:
    """Eight models: the audited answer, and what products and the planted error say."""
    rows = {}
    for rho, effects in scenes:
        target = spike_and_slab(rho=rho, effects=list(effects))
        exact = target.inclusion
        found, seconds = quiet(
            lambda t=target: trj.variational(t, seed=1, progress=False, **settings)
        )
        floor, _ = best_product(target)
        unsure = int((exact - 0.5).abs().argmin())
        codes = torch.stack([target.space.code_of(label) for label in found.models.index])
        stated = codes.double().T @ torch.tensor(found.models["probability"].to_numpy())
        rows[f"rho {rho:g}, {positions(effects, 3)}"] = {
            "least sure": f"z{unsure + 1}",
            "exact": float(exact[unsure]),
            "answer": float(stated[unsure]),
            "largest error": error_of(stated, exact),
            "KL": found.kl().value,
            "KL se": found.kl().std_error,
            "floor of products": floor,
            "evaluations": found.cost["evaluations"],
            "cpu/s": seconds,
            "audited": found.audited,
            "doubts": sum(d.grave for d in found.doubts),
        }
    return pd.DataFrame(rows).T


def learnt_models(
    scenes: list[tuple[int, float, tuple[int, ...]]], flows: int, **settings: Any
) -> tuple[pd.DataFrame, dict[str, tuple[Any, Any]]]:
    """KL(q(z) | p(z | y)) of what is learnt, beside the floor; and the answers.

    Flows are trained for the last so many scenes.
    """
    kinds = {
        "MeanField": (trj.weights.MeanField, "laplace"),
        "Made": (trj.weights.Made, "laplace"),
        "straight-through": (
            lambda space: trj.weights.MeanField(space, gradient="straight-through"),
            "laplace",
        ),
        "one Gumbel": (OneGumbel, "laplace"),
        "MeanField, flow": (trj.weights.MeanField, "recommended"),
        "Made, flow": (trj.weights.Made, "recommended"),
    }
    rows, answers = {}, {}
    for left, (p, rho, effects) in zip(range(len(scenes), 0, -1), scenes, strict=True):
        target = spike_and_slab(p=p, rho=rho, effects=list(effects))
        codes, log_p = target.space.enumerate(), log_posterior(target)
        floor, best = best_product(target)
        scene = f"p {p}, rho {rho:g}, {positions(effects, p)}"
        for name, (make, family) in kinds.items():
            if left > flows and family == "recommended":
                continue
            found, weights, seconds = learnt(target, make, family, **settings)
            log_q = weights.log_prob(codes).detach().double()
            inclusion = codes.double().T @ log_q.exp()
            answers[f"{scene}: {name}"] = target, found
            rows[f"{scene}: {name}"] = {
                "floor of products": floor if "Made" not in name else 0.0,
                "KL of q(z)": nats_off(log_q, log_p),
                "KL of all": found.kl(target.log_evidence_total).value,
                "error stated": error_of(inclusion, target.inclusion),
                "error drawn": error_of(found.inclusion, target.inclusion),
                "best product's": error_of(best, target.inclusion),
                "k": found.pareto_k,
                "cpu/s": seconds,
                "doubts": sum(d.grave for d in found.doubts),
            }
    return pd.DataFrame(rows).T, answers


def sampler_row(target: Any, seconds: float, exact: Tensor, error: float) -> dict[str, float]:
    """The exact sampler's inclusion probabilities against others that are known to an error."""
    result, spent = quiet(
        lambda: trj.TRJSampler(target, seed=1).run(max_seconds=seconds, progress=False)
    )
    table = result.inclusion_probabilities()
    chance = table["probability"].to_numpy()
    true = target.gamma_true.numpy().astype(float)
    sure = np.clip(chance, 1e-12, 1 - 1e-12)
    loss = -(true * np.log(sure) + (1 - true) * np.log1p(-sure))
    return {
        "largest difference": float(np.abs(chance - exact.numpy()).max()),
        "its se": float(np.hypot(table["se"].max(skipna=False), error)),
        "items it doubts": int(table["note"].astype(bool).sum()),
        "average precision": average_precision(chance, true),
        "Brier": float(np.square(chance - true).mean()),
        "log loss": float(loss.mean()),
        "cpu/s": spent,
    }


def average_precision(score: np.ndarray, true: np.ndarray) -> float:
    """Mean over effects of the precision among those ranked as high."""
    ranked = true[np.argsort(-score, kind="stable")]
    precision = np.cumsum(ranked) / np.arange(1, len(ranked) + 1)
    return float(precision[ranked > 0].mean())


def gibbs(target: Any, chains: int, sweeps: int) -> tuple[Tensor, float, float]:
    """Inclusion by Gibbs chains, the largest error of it, and processor seconds."""
    begun = time.process_time()
    each = np.stack(
        [
            (
                gibbs_spike_and_slab(
                    target.x, target.y, draws=sweeps, burn_in=sweeps // 10, seed=seed
                )
                != 0
            ).mean(0)
            for seed in range(chains)
        ]
    )
    error = each.std(0, ddof=1) / math.sqrt(chains)
    return torch.from_numpy(each.mean(0)), float(error.max()), time.process_time() - begun


def many_columns(columns: list[int], seconds: float, chains: int, sweeps: int) -> pd.DataFrame:
    """A fifth of the columns have an effect, rho .6: the scenes of Tables C.1 and C.2."""
    rows = {}
    for p in columns:
        k = p // 5
        target = spike_and_slab(p=p, rho=0.6, effects=k)
        if p <= 20:
            exact, error, spent, by = target.inclusion, 0.0, math.nan, "enumeration"
        else:
            exact, error, spent = gibbs(target, chains, sweeps)
            by = f"{chains} Gibbs chains"
        rows[f"p {p}"] = {
            "reference": by,
            **sampler_row(target, seconds, exact, error),
            "Gibbs, cpu/s": spent,
            "printed: Gibbs MF FAVI, s": " ".join(map(str, PRINTED_SECONDS.get(p, ()))),
            "printed AUC-PR": PRINTED_AUC.get(p, math.nan),
            "k / (k + 1)": k / (k + 1),
        }
    return pd.DataFrame(rows).T


def claims(sets: int) -> str:
    """What exact answers of many data sets say of published statements."""
    make = spike_and_slab
    chance = [1 - float(make(rho=0.6, effects=1, seed=s).inclusion[2]) for s in range(sets)]
    floor = [best_product(make(rho=0.8, effects=2, seed=s))[0] for s in range(sets)]
    return CLAIMS.format(
        sets=sets,
        median=float(np.median(chance)),
        below=float(np.mean(np.array(chance) < 0.2)),
        floor=float(np.median(floor)),
        most=float(np.max(floor)),
    )


# ---- figures -------------------------------------------------------------------------------------


def squared_error(beta: np.ndarray, target: Any) -> np.ndarray:
    return np.square(beta - target.beta_true.numpy()).sum(1)


def coefficients(code: Tensor, theta: Tensor, p: int) -> np.ndarray:
    """Coefficients with zeros where columns are out, shape (n, p)."""
    return torch.where(code.bool(), theta[:, :p], 0.0).numpy()


def drawn(found: Any, target: Any) -> np.ndarray:
    """Coefficients of an answer's draws, shape (n, p)."""
    sample = found.sample
    code = torch.stack([target.space.code_of(label) for label in sample.models])[sample.model]
    return coefficients(code, sample.theta, code.shape[1])


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """Largest difference of two empirical distribution functions."""
    both = np.sort(np.concatenate([a, b]))
    each = [np.searchsorted(np.sort(v), both, side="right") / len(v) for v in (a, b)]
    return float(np.abs(each[0] - each[1]).max())


def errors_figure(
    scenes: list[tuple[int, float, tuple[int, ...]]],
    answers: dict[str, tuple[Any, Any]],
    seconds: float,
    path: Path,
) -> pd.DataFrame:
    """Distribution of |theta - theta*|^2, and distances from the exact one."""
    figure, axes = plt.subplots(1, len(scenes), figsize=(4 * len(scenes), 3.4), squeeze=False)
    rows = {}
    for ax, (p, rho, effects) in zip(axes[0], scenes, strict=True):
        target = spike_and_slab(p=p, rho=rho, effects=list(effects))
        scene = f"p {p}, rho {rho:g}, {positions(effects, p)}"
        _, beta = target.exact_draws(EXACT, torch.Generator().manual_seed(2))
        exact = squared_error(beta.numpy(), target)
        result, _ = quiet(
            lambda t=target: trj.TRJSampler(t, seed=1).run(max_seconds=seconds, progress=False)
        )
        code, theta = result.raw.flat()
        every = max(1, len(code) // 10_000)
        ours = {"run()": coefficients(code[::every], theta[::every], p)}
        for kind in ("Made, flow", "Made", "one Gumbel"):
            if f"{scene}: {kind}" in answers:
                ours[kind] = drawn(answers[f"{scene}: {kind}"][1], target)
        ax.plot(*ecdf(exact), color="k", lw=2.5, alpha=0.4, label="exact, 100 000 draws")
        for name, values in ours.items():
            error = squared_error(values, target)
            ax.plot(*ecdf(error), "-" if name == "run()" else "--", lw=1.2, label=name)
            rows[f"{scene}: {name}"] = {
                "distance": distance(error, exact),
                "1 % point by chance": 1.63 / math.sqrt(len(error)),
                "draws": len(error),
            }
        ax.set(title=scene, xlabel="squared error of the coefficients", xscale="log")
        ax.set_ylim(0, 1)
    axes[0, 0].legend(fontsize=7)
    axes[0, 0].set_ylabel("share of draws")
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return pd.DataFrame(rows).T


def ecdf(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    levels = np.linspace(0.001, 0.999, 999)
    return np.quantile(values, levels), levels


def inclusion_figure(answers: dict[str, tuple[Any, Any]], path: Path) -> None:
    """Inclusion probabilities of draws against exact ones."""
    kinds = list(dict.fromkeys(name.split(": ")[1] for name in answers))
    figure, axes = plt.subplots(1, len(kinds), figsize=(3 * len(kinds), 3.4), sharey=True)
    for ax, kind in zip(axes, kinds, strict=True):
        for name, (target, found) in answers.items():
            if name.endswith(": " + kind):
                mark = "o" if found.ok else "x"
                exact = target.inclusion.numpy()
                ax.plot(exact, np.asarray(found.inclusion), mark, ms=4, mfc="none", color="C0")
        ax.plot([0, 1], [0, 1], color="0.7", lw=1, zorder=0)
        ax.set(title=kind, xlabel="exact inclusion probability")
    axes[0].set_ylabel("of the answer's draws (x: it doubts itself)")
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a scene of three columns, and p = 8")
    parser.add_argument("--columns", type=int, nargs="*", default=[5, 10, 15, 20])
    parser.add_argument("--widest", type=int, help="columns of a scene judged by Gibbs chains")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each run of the sampler")
    parser.add_argument("--chains", type=int, default=10)
    parser.add_argument("--sweeps", type=int, default=4000, help="of each Gibbs chain")
    parser.add_argument("--sets", type=int, default=40, help="data sets that claims are judged by")
    parser.add_argument("--flows", type=int, default=4, help="scenes that flows are trained for")
    parser.add_argument("--steps", type=int, help="of reverse KL; the default if omitted")
    parser.add_argument("--figures", type=Path, default=Path("output/variational_spike_and_slab"))
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.figures.mkdir(parents=True, exist_ok=True)
    first = [tuple(range(k)) for k in (1, 2, 3)]
    three = [(rho, effects) for rho in (0.0, 0.6, 0.8) for effects in first]
    every = [c for k in (1, 2) for c in combinations(range(3), k)]
    three += [(0.6, effects) for effects in every if effects not in first]
    scenes = [(3, 0.6, (0,)), (3, 0.8, (0, 1)), (5, 0.6, (0,)), (10, 0.6, (0, 1))]
    columns, settings = options.columns, {"steps": options.steps}
    if options.quick:
        three, scenes, columns = three[3:4], scenes[:1], [8]
    show = {"float_format": lambda v: f"{v:.4g}", "na_rep": ""}

    print("Three columns, eight models: one call of trj.variational")
    print(three_columns(three, **settings).to_string(**show), "\n")

    table, answers = learnt_models(scenes, options.flows, **settings)
    print("q(z) that is learnt, given normals that are exact (or a flow), nats")
    print(table.to_string(**show), "\n")
    for name, (_, found) in answers.items():
        if name.endswith("one Gumbel"):
            print(f"planted error, {name}: {'; '.join(map(str, found.doubts)) or 'NOT FLAGGED'}")

    print("\nA fifth of the columns have an effect: run() beside enumeration or Gibbs")
    wide = [*columns, *([options.widest] if options.widest else [])]
    found = many_columns(wide, options.seconds, options.chains, options.sweeps)
    print(found.to_string(**show), "\n")
    print(claims(options.sets), "\n")
    scenes = scenes[:1] + scenes[-1:] if len(scenes) > 1 else scenes
    distances = errors_figure(scenes, answers, options.seconds, options.figures / "errors.png")
    print("Largest difference of the distributions of |theta - theta*|^2 from the exact one")
    print(distances.to_string(**show))
    inclusion_figure(answers, options.figures / "inclusion.png")
    print(f"figures: {options.figures}")


if __name__ == "__main__":
    main()
