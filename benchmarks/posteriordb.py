"""Posteriors of posteriordb, one model each, beside its reference draws.

    python -m benchmarks.posteriordb --folder posteriordb
    python -m benchmarks.posteriordb --folder posteriordb --only garch-garch11 --seconds 60
    python -m benchmarks.posteriordb --folder posteriordb --variational --seeds 1 2 3

``--folder`` holds a JSON a posterior, named as in the database (``arK-arK.json``), with ``data``,
as the Stan program takes them, and ``reference``: by quantity ``mean`` and ``sd`` of the reference
draws. Columns of the table: how far a run's means lie from those (in reference standard
deviations), and by how much standard deviations differ, for the quantity that is worst.

With ``--variational`` it is the answer of ``trj.variational``, by the recommended family or by
those that are named; columns ``corrected_...`` have its draws weighted by importance. Beside it
stand PyMC's, if ``--peers-python`` is an interpreter that has PyMC: see
``benchmarks/peers/variational.py``.

Checked against reference draws: arK, earn_height, logearn_height, logearn_height_male,
logearn_interaction, logearn_logheight_male, eight_schools_noncentered, garch11, gp_regr,
kidscore_momhs, kidscore_momiq, kidscore_momhsiq, kidscore_interaction, kidscore_interaction_z,
kilpisjarvi, low_dim_gauss_mix, mesquite, logmesquite, logmesquite_logvas, nes (1972, 1980, 1996),
blr (two data sets). The other programs of ``benchmarks/stan_programs.py`` were not.
Of the database's posteriors with reference draws three programs are missing: ``accel_gp``,
``lotka_volterra``, ``one_comp_mm_elim_abs``.

Source:
    Magnusson et al. (2025), posteriordb: Testing, benchmarking and developing Bayesian inference
    algorithms, https://proceedings.mlr.press/v258/magnusson25a.html
"""

import argparse
import itertools
import json
import math
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

import trjmcmc as trj
from benchmarks.peers.graphs import called
from benchmarks.stan_programs import MODELS, Values
from trjmcmc.errors import TRJWarning

AT_ONCE = 100_000  # draws of which reported quantities are computed


@dataclass(frozen=True)
class Posterior:
    """A target with what is known of it.

    Attributes:
        name: As in the database, data set and Stan program.
        target: One model of this name, float64.
        reference: By quantity its ``mean`` and ``sd``.
        reported: Those quantities, (C,), of parameters in natural units, leading size C.
        data: As the Stan program takes them.
        regression: Of a normal regression its outcomes, (N,), and columns, (N, P).
    """

    name: str
    target: trj.Target
    reference: Mapping[str, Mapping[str, float]]
    reported: Callable[[Values], dict[str, Tensor]]
    data: Mapping[str, Any]
    regression: tuple[Tensor, Tensor] | None


def of_data(
    name: str,
    data: Mapping[str, Any],
    reference: Mapping[str, Mapping[str, float]] | None = None,
) -> Posterior:
    """A posterior of data at hand.

    Arguments:
        name: Data set and Stan program, as ``"arK-arK"``; the program is one of ``MODELS``.
        data: As the Stan program takes them.
        reference: By quantity its ``mean`` and ``sd``.
    """
    tensors = {key: torch.as_tensor(x, dtype=torch.float64) for key, x in data.items()}
    program = MODELS[name.split("-", 1)[1]](tensors)
    target, reported = program.target(name), program.reported
    return Posterior(name, target, reference or {}, reported, data, program.regression)


def posteriors(folder: Path) -> list[str]:
    """Names of the posteriors of a folder whose Stan programs are written here."""
    names = sorted(path.stem for path in Path(folder).glob("*-*.json"))
    return [name for name in names if name.split("-", 1)[1] in MODELS]


def posterior(folder: Path, name: str) -> Posterior:
    """A posterior of a folder, by its name."""
    found = json.loads((Path(folder) / f"{name}.json").read_text())
    return of_data(name, found["data"], found["reference"])


# ---- beside the reference ------------------------------------------------------------------------


def compare(posterior: Posterior, draws: Mapping[str, Any], weights: Any = None) -> pd.DataFrame:
    """How far draws are from the reference, one row a quantity.

    Arguments:
        posterior: What they are draws of.
        draws: By parameter, natural units, leading size n.
        weights: Of each draw, of sum one, (n,); equal if omitted.

    Returns:
        ``mean_gap``, in reference standard deviations, and ``sd_ratio``, theirs over the
        reference's.
    """
    values = {name: torch.as_tensor(np.asarray(x)).double() for name, x in draws.items()}
    parts = zip(*(value.split(AT_ONCE) for value in values.values()), strict=True)
    found = [posterior.reported(dict(zip(values, part, strict=True))) for part in parts]
    rows = {}
    for name, known in posterior.reference.items():
        x = torch.cat([part[name] for part in found]).numpy()
        mean = np.average(x, weights=weights)
        sd = math.sqrt(np.average((x - mean) ** 2, weights=weights))
        rows[name] = {
            "mean_gap": abs(mean - known["mean"]) / known["sd"],
            "sd_ratio": sd / known["sd"],
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def worst(table: pd.DataFrame) -> dict[str, float]:
    """Of :func:`compare`, the quantity that is worst."""
    gap = (table["sd_ratio"] - 1).abs()
    return {"mean_gap": table["mean_gap"].max(), "sd_gap": gap.max()}


def by_default(posterior: Posterior, seconds: float, seed: int) -> dict[str, Any]:
    """A default run, as columns of the table."""
    begun = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sampler = trj.TRJSampler(posterior.target, seed=seed)
        result = sampler.run(max_seconds=seconds, progress=False)
    gaps = compare(posterior, result.draws(posterior.name))
    warned = [str(w.message) for w in caught if issubclass(w.category, TRJWarning)]
    return {
        "seconds": time.perf_counter() - begun,
        "evaluations": result.report.evaluations,
        "gradients": result.report.gradients,
        **worst(gaps),
        "warnings": len(warned),
        "said": " | ".join(warned),
    }


def by_variational(posterior: Posterior, family: str, seed: int) -> dict[str, Any]:
    """A variational answer, as columns of the table."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TRJWarning)
        answer = trj.variational(posterior.target, family, seed=seed, progress=False)
    draws = answer.draws()
    assert answer.sample is not None
    corrected = worst(compare(posterior, draws, answer.sample.weights(corrected=True)))
    return {
        "family": answer.family,
        **answer.cost,
        "pareto_k": answer.pareto_k,
        "ess_share": answer.ess_share,
        **worst(compare(posterior, draws)),
        **{f"corrected_{name}": value for name, value in corrected.items()},
        "warnings": sum(d.grave for d in answer.doubts),
        "said": " | ".join(str(d) for d in answer.doubts if d.grave),
    }


# ---- peers ---------------------------------------------------------------------------------------


def by_peers(posterior: Posterior, python: Path, seed: int) -> list[dict[str, Any]]:
    """Answers by PyMC when another interpreter runs it, as rows of the table."""
    case = {"program": posterior.name.split("-", 1)[1], "data": posterior.data, "seed": seed}
    if posterior.regression is not None:
        y, x = posterior.regression
        case |= {"y": y.tolist(), "x": x.tolist()}
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "settings").write_text(json.dumps(case))
        script = Path(__file__).parent / "peers" / "variational.py"
        called(
            [python.absolute(), script, folder / "settings", folder], name, torch.get_num_threads()
        )
        for said in sorted(folder.glob("*.json")):
            row = {"family": said.stem, **json.loads(said.read_text())}
            if said.with_suffix(".npz").exists():
                draws = dict(np.load(said.with_suffix(".npz")))
                row |= worst(compare(posterior, draws))
            rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--only", nargs="+", help="names of posteriors; all if omitted")
    parser.add_argument("--seconds", type=float, default=20.0, help="of a run at most")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.add_argument(
        "--variational",
        nargs="*",
        metavar="FAMILY",
        help="and no run; recommended if none is named",
    )
    parser.add_argument("--peers-python", type=Path, help="an interpreter that has PyMC")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    families = options.variational
    rows = []
    for name, seed in itertools.product(options.only or posteriors(options.folder), options.seeds):
        found = posterior(options.folder, name)
        if families is None:
            made = [by_default(found, options.seconds, seed)]
        else:
            made = [by_variational(found, family, seed) for family in families or ["recommended"]]
        if options.peers_python:
            made += by_peers(found, options.peers_python, seed)
        for row in made:
            rows.append({"posterior": name, "parameters": found.target.dim, "seed": seed} | row)
            print(json.dumps(rows[-1]), flush=True)
    table = pd.DataFrame(rows).set_index("posterior").drop(columns="said", errors="ignore")
    print(table.to_string(float_format="{:.3g}".format))


if __name__ == "__main__":
    main()
