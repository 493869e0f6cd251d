"""Regressions by variational inference, beside published figures and exact answers.

Sections 2.6.1, 2.6.3 and 2.6.4 of Premchandar (2024), Normalizing flows aided variational inference
(FAVI), thesis, Michigan State University: two conjugate toys, then linear and logistic regressions
of 2 to 100 columns. "n" there counts rows before a fifth is held back, so that n = 50 means 40.
Every linear answer is exact here, for p >= n too: closed form given the variance of the errors,
quadrature over that. Table by table:

* average posterior sd of the coefficients and error of prediction, published and exact, and how
  far off the families of `trj.variational` are; the mean field must end at its own best answer,
  which is known, or flows would win against a straw man;
* nats between bound and evidence, Pareto k, evaluations and processor seconds;
* for some cells the exact sampler.

    python examples/variational_regressions.py --quick
    python examples/variational_regressions.py --folder regressions --gold variational.json
    python examples/variational_regressions.py --cells lin_n50_p50 log_n100_p100 --run lin_n50_p50

The folder holds `lin_n50_p2.npz`, `log_n50_p2.npz` and so on, each with X, y, X_test and y_test;
without it data are simulated by the same recipe, and published figures belong to other data. `gold`
holds average sds by long HMC runs for logistic cells. Answers are kept in `--figures`, so that a
second call measures only what is missing and prints all.

* sds.png: average posterior sd over the exact one, by cell.
* variance.png: the variance of the errors where p >= n: exact, flow, mean field.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from solved import linear_regression, logistic_regression, normal_unknown_variance
from torch import Tensor

import trjmcmc as trj
from trjmcmc import clock

SIZES = [(n, p) for n in (50, 100, 200) for p in (2, 20, 50, 100)]
FAMILIES = ("recommended", "mean-field", "full-rank", "laplace")
QUICK = ["lin_n50_p2", "lin_n50_p50", "log_n50_p2"]
SHOWN = 5000  # draws of the variance in the figure
SLICES = 20  # of independent draws, whose spread is the Monte Carlo error
NODES = 24  # of Gauss-Hermite quadrature
NAN = math.nan

# Table 2.2: error of prediction, average sd, seconds, each by Gibbs, FAVI, mean field
LINEAR = {
    "n50_p2": (1.06, 1.06, 1.06, 0.17, 0.17, 0.16, 55, 252, 22),
    "n50_p20": (0.88, 0.92, 0.88, 0.24, 0.23, 0.17, 79, 374, 23),
    "n50_p50": (NAN, 3.06, 3.41, NAN, 0.47, 0.46, NAN, 606, 122),
    "n50_p100": (NAN, 2.93, 2.64, NAN, 0.77, 0.78, NAN, 1055, 922),
    "n100_p2": (1.04, 1.04, 1.04, 0.11, 0.11, 0.11, 59, 267, 24),
    "n100_p20": (1.05, 1.05, 1.05, 0.14, 0.14, 0.12, 85, 383, 24),
    "n100_p50": (1.93, 1.90, 1.93, 0.17, 0.16, 0.11, 953, 549, 36),
    "n100_p100": (NAN, 2.64, 2.92, NAN, 0.46, 0.47, NAN, 1087, 778),
    "n200_p2": (1.07, 1.07, 1.07, 0.08, 0.09, 0.08, 57, 254, 23),
    "n200_p20": (1.10, 1.09, 1.10, 0.09, 0.09, 0.08, 80, 568, 23),
    "n200_p50": (1.26, 1.26, 1.26, 0.10, 0.10, 0.08, 997, 567, 24),
    "n200_p100": (1.86, 1.87, 1.86, 0.14, 0.13, 0.09, 833, 1011, 35),
}
# Table 2.3: average sd, seconds, each by random-walk Metropolis-Hastings, FAVI, mean field
LOGISTIC = {
    "n50_p2": (0.41, 0.40, 0.39, 43, 169, 155),
    "n50_p20": (0.56, 0.55, 0.47, 206, 265, 158),
    "n50_p50": (0.77, 0.73, 0.61, 423, 371, 157),
    "n50_p100": (0.88, 0.85, 0.74, 853, 496, 151),
    "n100_p2": (0.36, 0.36, 0.32, 44, 183, 161),
    "n100_p20": (0.40, 0.39, 0.34, 227, 294, 166),
    "n100_p50": (0.59, 0.55, 0.44, 876, 380, 160),
    "n100_p100": (0.77, 0.71, 0.56, 1167, 472, 167),
    "n200_p2": (0.25, 0.25, 0.25, 45, 183, 164),
    "n200_p20": (0.25, 0.25, 0.25, 233, 276, 172),
    "n200_p50": (0.40, 0.38, 0.31, 921, 375, 157),
    "n200_p100": (0.61, 0.54, 0.42, 1223, 471, 172),
}
CLAIMS = """What is published and can't stand:
* "Gibbs breaks down for p >= n": no. (I / tau^2 + X'X / sigma^2) has no eigenvalue below
  1 / tau^2; what was singular is the least-squares start. The starred cells are exact above, and
  {sweeps:,} sweeps from another start, {cell}, took {seconds:.1f} s: average sd {gibbs:.4f},
  exact {exact:.4f}.
* "The mean field's sd exceeds FAVI's by .01, insubstantial", p >= n: it is right by accident. The
  same mean field puts the variance of the errors at {variances}.
* Accuracies of FAVI in Table 2.3 are computed, in the public code, from the draws of
  Metropolis-Hastings: that column does not judge a flow, nor do 10 to 40 test rows.
* Table 2.3's mean field at (200, 2) and (200, 20), .25, is not the mean-field optimum: {means}.
* Errors are those of one data set and one seed; seconds compare loops in Python with batches."""


@dataclass(frozen=True)
class Cell:
    """A regression: its target and the rows held back."""

    name: str
    target: Any
    x: np.ndarray
    y: np.ndarray

    @property
    def linear(self) -> bool:
        return self.name.startswith("lin")

    @property
    def size(self) -> str:
        return self.name[4:]

    def error(self, beta: np.ndarray) -> float:
        """Root mean square error of prediction, or share of wrong predictions."""
        mean = self.x @ beta.mean(0)
        if self.linear:
            return float(np.sqrt(np.square(self.y - mean).mean()))
        chance = 1 / (1 + np.exp(-self.x @ beta.T))
        return float(((chance.mean(1) > 0.5) != (self.y > 0.5)).mean())


def cell_of(name: str, folder: Path | None) -> Cell:
    """A cell from its file, or simulated by the problem's recipe."""
    found = re.fullmatch(r"(lin|log)_n(\d+)_p(\d+)", name)
    if found is None:
        raise SystemExit(f"no cell {name!r}; they are called lin_n50_p2, log_n200_p100 and so on")
    problems = {"lin": linear_regression, "log": logistic_regression}
    make, n, p = problems[found[1]], int(found[2]), int(found[3])
    if folder is not None:
        data = np.load(folder / f"{name}.npz")
        return Cell(name, make(data["X"], data["y"]), data["X_test"], data["y_test"])
    whole, rows = make(n=n, p=p, seed=0), 4 * n // 5
    x, y = whole.x.numpy(), whole.y.numpy()
    return Cell(name, make(x[:rows], y[:rows]), x[rows:], y[rows:])


def with_error(statistic: Any, draws: np.ndarray) -> tuple[float, float]:
    """A statistic of independent draws and its Monte Carlo error."""
    each = [statistic(part) for part in np.array_split(draws, SLICES)]
    return float(statistic(draws)), float(np.std(each, ddof=1) / SLICES**0.5)


def average_sd(beta: np.ndarray) -> float:
    return float(beta.std(0).mean())


def logistic_mean_field(x: Tensor, y: Tensor, prior_sd: float) -> tuple[Tensor, float]:
    """The best product of normals, by quadrature: standard deviations (p,) and bound, nats."""
    nodes, weights = (torch.from_numpy(a) for a in np.polynomial.hermite_e.hermegauss(NODES))
    weights = weights / weights.sum()
    mean = torch.zeros(x.shape[1], dtype=torch.float64, requires_grad=True)
    log_sd = torch.full_like(mean, math.log(prior_sd) - 1).requires_grad_()

    def loss() -> Tensor:
        variance = (2 * log_sd).exp()
        line = (x @ mean)[:, None] + (x.square() @ variance).sqrt()[:, None] * nodes
        fit = ((y - 1)[:, None] * line + torch.nn.functional.logsigmoid(line)) @ weights
        scaled = (mean.square() + variance) / prior_sd**2
        return 0.5 * (scaled - 1 - 2 * log_sd + 2 * math.log(prior_sd)).sum() - fit.sum()

    optimiser = torch.optim.LBFGS(
        [mean, log_sd], max_iter=2000, tolerance_change=1e-13, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimiser.zero_grad()
        value = loss()
        value.backward()
        return value

    optimiser.step(closure)
    return log_sd.detach().exp(), -float(loss().detach())


def reference(cell: Cell, gold: dict[str, Any]) -> dict[str, float]:
    """What is known: exactly for linear cells; by HMC, where it is given, for logistic ones."""
    if cell.linear:
        exact = cell.target.posterior
        best = exact.mean_field
        test = cell.y - cell.x @ exact.mean.numpy()
        return {
            "sd": float(exact.sd.mean()),
            "error": float(np.sqrt(np.square(test).mean())),
            "sigma2": exact.mean_sigma2,
            "log_evidence": exact.log_evidence,
            "best_mean_field": float(best.sd.mean()),
            "best_mean_field_elbo": best.elbo,
            "best_mean_field_sigma2": best.rate / best.shape,
        }
    sd, elbo = logistic_mean_field(cell.target.x, cell.target.y, cell.target.prior_sd)
    known = gold.get("logistic", {}).get("sd_average", {}).get(cell.size, NAN)
    return {"sd": known, "best_mean_field": float(sd.mean()), "best_mean_field_elbo": elbo}


def answer(cell: Cell, family: str, draws: int, seed: int, **settings: Any) -> dict[str, Any]:
    """One family's answer."""
    begun = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", trj.errors.TRJWarning)  # its doubts are in the table
        found = trj.variational(
            cell.target, family, draws=draws, seed=seed, progress=False, **settings
        )
    seconds = time.process_time() - begun
    values = found.draws()
    beta = values["beta"]
    sd, sd_error = with_error(average_sd, beta)
    error, error_error = with_error(cell.error, beta)
    row = {
        "sd": sd,
        "sd_se": sd_error,
        "error": error,
        "error_se": error_error,
        "elbo": found.elbo.value,
        "elbo_se": found.elbo.std_error,
        "ess": found.ess_share,
        "k": found.pareto_k,
        "evaluations": found.cost["evaluations"],
        "cpu/s": seconds,
        "doubts": sum(d.grave for d in found.doubts),
    }
    if "sigma2" in values:
        row["sigma2"] = float(values["sigma2"].mean())
        row["variances"] = values["sigma2"][:SHOWN].tolist()
    return row


def exact_run(cell: Cell, seconds: float, seed: int) -> dict[str, float]:
    """The exact sampler; its seconds are those of the processor, as all others here."""
    begun = time.process_time()
    with (
        clock.read_from(time.process_time),
        warnings.catch_warnings(record=True, category=trj.errors.TRJWarning) as caught,
    ):
        warnings.simplefilter("always")
        sampler = trj.TRJSampler(cell.target, seed=seed)
        result = sampler.run(max_seconds=seconds, progress=False)
    values = result.draws("regression")
    beta = values["beta"]
    chosen = result.evidence().iloc[0]
    row = {
        "sd": average_sd(beta),
        "error": cell.error(beta),
        "doubts": len(caught),
        "rhat": float(result.chains.convergence()["rhat"].max()),
        "elbo": float(chosen["log_evidence"]),
        "elbo_se": float(chosen["se"]),
        "cpu/s": time.process_time() - begun,
    }
    if "sigma2" in values:
        row["sigma2"] = float(values["sigma2"].mean())
    return row


# ---- tables --------------------------------------------------------------------------------------


def toys(families: Sequence[str], draws: int, seed: int, **settings: Any) -> pd.DataFrame:
    """KL(q | p), means and standard deviations of the conjugate toys."""
    rng = np.random.default_rng(0)
    normal = normal_unknown_variance(0.5488 + rng.standard_normal(40))
    chance = trj.problems.beta_bernoulli()
    known = normal.posterior
    targets = {
        "w, Beta(20, 22)": (chance, "w", chance.posterior.mean, chance.posterior.stddev),
        "mu, normal": (normal, "mu", known.mean[0], known.sd[0]),
        "sigma2, normal": (normal, "sigma2", known.mean_sigma2, known.sd_sigma2),
    }
    rows, answers = {}, {}
    for name, (target, parameter, mean, sd) in targets.items():
        for family in families:
            key = (id(target), family)
            if key not in answers:
                answers[key] = trj.variational(
                    target,
                    family,
                    draws=draws,
                    seed=seed,
                    progress=False,
                    **settings,
                )
            found = answers[key]
            said = found.summary().loc[parameter]
            rows[f"{name}: {family}"] = {
                "KL": found.kl().value,
                "KL se": found.kl().std_error,
                "mean": said["mean"],
                "exact mean": float(mean),
                "sd": said["sd"],
                "exact sd": float(sd),
                "evaluations": found.cost["evaluations"],
                "s": found.cost["seconds"],
            }
    return pd.DataFrame(rows).T


def linear_table(cells: dict[str, dict[str, Any]]) -> pd.DataFrame:
    """Published, exact and ours, for the linear cells."""
    rows = {}
    for name, found in cells.items():
        known, printed = found["known"], LINEAR.get(name[4:], (NAN,) * 9)
        row = {
            "sd Gibbs": printed[3],
            "FAVI": printed[4],
            "MF": printed[5],
            "exact": known["sd"],
            **{family: found.get(family, {}).get("sd", NAN) for family in FAMILIES},
            "se": found.get("recommended", {}).get("sd_se", NAN),
            "best MF": known["best_mean_field"],
            "rmse FAVI": printed[1],
            "rmse exact": known["error"],
            "rmse ours": found.get("recommended", {}).get("error", NAN),
            "rmse MF": found.get("mean-field", {}).get("error", NAN),
        }
        rows[name] = row
    return pd.DataFrame(rows).T


def logistic_table(cells: dict[str, dict[str, Any]]) -> pd.DataFrame:
    """The same for the logistic ones."""
    rows = {}
    for name, found in cells.items():
        printed = LOGISTIC.get(name[4:], (NAN,) * 6)
        rows[name] = {
            "sd MH": printed[0],
            "FAVI": printed[1],
            "MF": printed[2],
            "HMC": found["known"]["sd"],
            **{family: found.get(family, {}).get("sd", NAN) for family in FAMILIES},
            "se": found.get("recommended", {}).get("sd_se", NAN),
            "best MF": found["known"]["best_mean_field"],
            "wrong": found.get("recommended", {}).get("error", NAN),
        }
    return pd.DataFrame(rows).T


def cost_table(cells: dict[str, dict[str, Any]]) -> pd.DataFrame:
    """Bounds and costs of every family, and of the exact sampler."""
    rows = {}
    for name, found in cells.items():
        printed = (LINEAR if name.startswith("lin") else LOGISTIC).get(name[4:], (NAN,) * 9)
        for family in (*FAMILIES, "run"):
            if family not in found:
                continue
            one = found[family]
            rows[f"{name}: {family}"] = {
                "bound": one["elbo"],
                "se": one["elbo_se"],
                "nats off": found["known"].get("log_evidence", NAN) - one["elbo"],
                "k": one.get("k", NAN),
                "sigma2": one.get("sigma2", NAN),
                "exact": found["known"].get("sigma2", NAN),
                "evaluations": one.get("evaluations", NAN),
                "cpu/s": one["cpu/s"],
                "FAVI, s": printed[-2] if family == "recommended" else NAN,
                "doubts": one.get("doubts", NAN),
            }
    return pd.DataFrame(rows).T


def verdict(cells: dict[str, dict[str, Any]]) -> dict[str, str]:
    """How many cells meet each bar."""

    def count(test: Any, names: list[str]) -> str:
        met = [bool(test(cells[name])) for name in names]
        short = [name for name, ok in zip(names, met, strict=True) if not ok]
        return f"{sum(met)} of {len(met)}" + (f", not {', '.join(short)}" if short else "")

    def off(found: dict[str, Any], family: str, what: str = "sd") -> float:
        return abs(found[family][what] / found["known"][what] - 1)

    done = [name for name, found in cells.items() if "recommended" in found]
    linear = [name for name in done if name.startswith("lin")]
    logistic = [name for name in done if name.startswith("log")]
    judged = [name for name in logistic if math.isfinite(cells[name]["known"]["sd"])]
    fields = [name for name, found in cells.items() if "mean-field" in found]
    near = [name for name in judged if "laplace" in cells[name]]
    return {
        "linear, sd within 1 % of exact": count(lambda f: off(f, "recommended") < 0.01, linear),
        "linear, error within .5 % of exact": count(
            lambda f: off(f, "recommended", "error") < 0.005, linear
        ),
        "linear, E sigma2 within 2 %": count(
            lambda f: off(f, "recommended", "sigma2") < 0.02, linear
        ),
        "logistic, sd within 2 % of HMC": count(lambda f: off(f, "recommended") < 0.02, judged),
        "logistic, no further off than Laplace": count(
            lambda f: off(f, "recommended") <= off(f, "laplace"), near
        ),
        "mean field within 1 % of its best": count(
            lambda f: abs(f["mean-field"]["sd"] / f["known"]["best_mean_field"] - 1) < 0.01, fields
        ),
        "at most 120 processor seconds": count(lambda f: f["recommended"]["cpu/s"] <= 120, done),
    }


def claims(cells: dict[str, dict[str, Any]], targets: dict[str, Cell]) -> str:
    """What the tables show of published statements."""
    wide = [n for n in cells if n.startswith("lin") and targets[n].target.posterior.p >= 40]
    name = next(
        (n for n in wide if targets[n].target.posterior.p >= targets[n].target.posterior.n), ""
    )
    if not name:
        return "No cell has as many columns as rows; published claims are about those."
    exact = targets[name].target.posterior
    sweeps, begun = 6000, time.process_time()
    beta, _ = exact.gibbs(sweeps)
    seconds = time.process_time() - begun
    variances = [
        f"{cells[n]['known']['best_mean_field_sigma2']:.3g} where it is "
        f"{cells[n]['known']['sigma2']:.3g} ({n})"
        for n in wide
        if targets[n].target.posterior.p >= targets[n].target.posterior.n
    ]
    means = [
        f"{cells[n]['known']['best_mean_field']:.3f}"
        for n in ("log_n200_p2", "log_n200_p20")
        if n in cells
    ]
    return CLAIMS.format(
        sweeps=sweeps,
        cell=name,
        seconds=seconds,
        gibbs=float(beta.std(0).mean()),
        exact=float(exact.sd.mean()),
        variances=", ".join(variances),
        means=" and ".join(means) or "add those cells to see it",
    )


# ---- figures -------------------------------------------------------------------------------------


def sds_figure(cells: dict[str, dict[str, Any]], path: Path) -> None:
    """Average sds over the exact ones."""
    figure, axes = plt.subplots(1, 2, figsize=(11, 3.8), sharey=True)
    kinds = (("lin", LINEAR, (4, 5), "exact"), ("log", LOGISTIC, (1, 2), "HMC"))
    for ax, (kind, table, (flow, field), truth) in zip(axes, kinds, strict=True):
        names = [n for n in cells if n.startswith(kind) and math.isfinite(cells[n]["known"]["sd"])]
        known = np.array([cells[n]["known"]["sd"] for n in names])
        place = np.arange(len(names))
        printed = [table.get(n[4:], (NAN,) * 9) for n in names]
        ax.axhline(1, color="0.6", lw=1)
        ax.plot(place, [r[flow] for r in printed] / known, "x", color="k", label="FAVI, published")
        ax.plot(place, [r[field] for r in printed] / known, "+", color="0.4", label="MF, published")
        for family, mark in zip(FAMILIES, ("o", "v", "s", "^"), strict=True):
            value = np.array([cells[n].get(family, {}).get("sd", NAN) for n in names])
            ax.plot(place, value / known, mark, ms=5, mfc="none", label=family)
        ax.set_xticks(place, [n[4:].replace("_", "\n") for n in names], fontsize=7)
        ax.set(title={"lin": "linear", "log": "logistic"}[kind], ylabel=f"average sd / {truth}")
    axes[0].legend(fontsize=7, loc="lower left")
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def variance_figure(samples: dict[str, tuple[Cell, list[float]]], path: Path) -> None:
    """The variance of the errors: exact, by the flow, by the best mean field."""
    figure, axes = plt.subplots(1, len(samples), figsize=(4 * len(samples), 3.2), squeeze=False)
    for ax, (name, (cell, sigma2)) in zip(axes[0], samples.items(), strict=True):
        exact = cell.target.posterior
        best = exact.mean_field
        _, draws = exact.exact_draws(40_000, torch.Generator().manual_seed(1))
        field = best.rate / np.random.default_rng(1).gamma(best.shape, size=40_000)
        everything = np.concatenate([draws.numpy(), field])
        edges = np.geomspace(*np.quantile(everything, [1e-3, 0.999]), 60)
        show = {"density": True, "histtype": "step"}
        ax.hist(np.log(draws), np.log(edges), color="k", label="exact", **show)
        ax.hist(np.log(sigma2), np.log(edges), color="C0", label="recommended", **show)
        ax.hist(np.log(field), np.log(edges), color="C1", label="best mean field", **show)
        ax.set(title=name, xlabel="log variance of the errors")
    axes[0, 0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    every = [f"{kind}_n{n}_p{p}" for kind in ("lin", "log") for n, p in SIZES]
    parser.add_argument("--quick", action="store_true", help="three cells, 200 steps")
    parser.add_argument("--cells", nargs="+", default=every, metavar="lin_n50_p2")
    parser.add_argument("--families", nargs="+", default=FAMILIES, choices=FAMILIES)
    parser.add_argument("--run", nargs="*", default=[], help="cells for the exact sampler")
    parser.add_argument("--run-seconds", type=float, default=60.0)
    parser.add_argument("--folder", type=Path, help="of the published data sets")
    parser.add_argument("--gold", type=Path, help="JSON of reference values")
    parser.add_argument("--draws", type=int, default=40_000)
    parser.add_argument("--steps", type=int, help="of reverse KL, at most")
    parser.add_argument("--seed", type=int, default=1, help="of the answers; the data stay")
    parser.add_argument("--figures", type=Path, default=Path("output/variational_regressions"))
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.figures.mkdir(parents=True, exist_ok=True)
    names, settings = options.cells, {"steps": options.steps}
    if options.quick:
        names, settings = QUICK, {"steps": options.steps or 200}
        settings |= {"audit": False, "learning_rate": 3e-3}

    kept = options.figures / "toys.json"
    if not kept.exists():
        toys(options.families, options.draws, options.seed, **settings).to_json(
            kept, orient="index"
        )
    print("Conjugate toys, nats and natural units")
    print(pd.read_json(kept, orient="index").round(4).to_string(), "\n")

    gold = json.loads(options.gold.read_text()) if options.gold else {}
    kept = options.figures / "answers.json"
    cells: dict[str, dict[str, Any]] = json.loads(kept.read_text()) if kept.exists() else {}
    targets = {}
    for name in dict.fromkeys([*cells, *names]):
        targets[name] = cell = cell_of(name, options.folder)
        cells.setdefault(name, {})["known"] = reference(cell, gold)
        wanted = options.families if name in names else ()
        for family in wanted:
            if family not in cells[name]:
                cells[name][family] = answer(cell, family, options.draws, options.seed, **settings)
                kept.write_text(json.dumps(cells))
        if name in options.run and "run" not in cells[name]:
            cells[name]["run"] = exact_run(cell, options.run_seconds, options.seed)
            kept.write_text(json.dumps(cells))
    cells = {name: cells[name] for name in [*every, *cells] if name in cells}
    linear = {n: f for n, f in cells.items() if n.startswith("lin")}
    logistic = {n: f for n, f in cells.items() if n.startswith("log")}
    show = {"float_format": lambda v: f"{v:.4g}", "na_rep": ""}
    print("Linear regression: average sd of the coefficients, and error of prediction")
    print(linear_table(linear).to_string(**show), "\n")
    print("Logistic regression: average sd, and the share of wrong predictions of ours")
    print(logistic_table(logistic).to_string(**show), "\n")
    print("Bounds and log evidences, nats; variance of the errors; cost")
    print(cost_table(cells).to_string(**show), "\n")
    for bar, said in verdict(cells).items():
        print(f"{bar}: {said}")
    print("\n" + claims(cells, targets))
    sds_figure(cells, options.figures / "sds.png")
    wide = [
        n
        for n in linear
        if "recommended" in linear[n] and targets[n].target.dim > targets[n].target.posterior.n
    ]
    if wide:
        samples = {n: (targets[n], linear[n]["recommended"]["variances"]) for n in wide}
        variance_figure(samples, options.figures / "variance.png")
    print(f"figures: {options.figures}")


if __name__ == "__main__":
    main()
