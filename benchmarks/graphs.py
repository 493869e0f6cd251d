"""Who knows the edges of a Bayesian network best after so many processor seconds?

    python -m benchmarks.graphs                       # ours alone; ten minutes
    python -m benchmarks.graphs --sumu-python sumu/bin/python --dibs-python dibs/bin/python \\
        --gibby gibby/gibby --seconds 2 6 10 --seeds 0 1 2
    python -m benchmarks.graphs --case simulated --nodes 20 37 --long 120

Cases: Sachs et al. (2005), the 853 rows without interventions and all 7466, which mix conditions
and leave a posterior of far modes (``--sachs``: a CSV of 11 columns; left out without it); and
linear networks of Erdos and Renyi with two edges a node and 100 rows, from seeds. Columns are
standardised. All programs have the BGe score.

An error is the largest difference of an edge probability from the exact one, which sums over all
graphs give up to 16 nodes (``--most-exact``: of twenty they take minutes a prior), under the prior
of the program: uniform, but fair for sumu, which knows no other. Shown are the median and the worst
of the seeds. Above there is no exact answer: ``--long`` gives two unlike kernels of ours so many
processor seconds each, says by how much they differ and takes their mean; without it the programs
are held against each other.

Budgets are processor seconds of sampling, everything in but the table of scores, whose seconds
stand beside the case and in notes. Up to twenty nodes ours draws graphs from the posterior itself;
"moves" are its untempered moves alone, at any number. Others run in interpreters that have them
(``--sumu-python``, ``--dibs-python``), or where they were compiled (``--gibby``), and are left out
otherwise. DiBS keeps to no budget: it takes ``--dibs-steps`` once a seed, compilation in.
"""

import argparse
import json
import platform
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import trjmcmc as trj
from benchmarks.peers.graphs import (
    Answer,
    Array,
    Case,
    Program,
    all_moves,
    blocks,
    dibs,
    gibby,
    others,
    ours,
    sumu,
)

SACHS = Path(__file__).parents[2] / "shared" / "data" / "sachs.csv"
OBSERVED = 853  # rows of Sachs without interventions, the first ones
ROWS = 100

Row = dict[str, Any]


# ---- cases --------------------------------------------------------------------------------------


def standardised(x: Array) -> Array:
    return (x - x.mean(0)) / x.std(0)


def network(d: int, seed: int, n: int = ROWS) -> tuple[Array, Array]:
    """Rows of a linear Gaussian network, and its edges (d, d), parents in rows.

    Any order of the nodes, each edge that it allows with the probability that makes two a node,
    weights of .5 to 2 with either sign, noise of standard deviation one.
    """
    rng = np.random.default_rng(seed)
    order = rng.permutation(d)
    edges = np.zeros((d, d))
    edges[np.ix_(order, order)] = np.triu(rng.random((d, d)) < 4 / (d - 1), 1)
    weights = edges * rng.uniform(0.5, 2.0, (d, d)) * rng.choice([-1, 1], (d, d))
    x = rng.standard_normal((n, d))
    for j in order:  # parents come before
        x[:, j] += x @ weights[:, j]
    return x, edges


def cases(options: argparse.Namespace) -> Iterator[Case]:
    if "sachs" in options.case:
        if options.sachs.is_file():
            x = pd.read_csv(options.sachs).to_numpy(dtype=float)
            for n in (OBSERVED, len(x)):
                yield Case(f"Sachs, {n} rows", standardised(x[:n]))
        else:
            print(f"Sachs is left out: no file {options.sachs}; give one by --sachs")
    if "simulated" in options.case:
        for d in options.nodes:
            for seed in options.networks:
                name = f"simulated, {d} nodes, {ROWS} rows, network {seed}"
                yield Case(name, standardised(network(d, seed)[0]))


# ---- what is held to be true --------------------------------------------------------------------


@dataclass
class Reference:
    """Edge probabilities by prior, and where they come from; none where nobody knows."""

    edges: dict[str, Array]
    source: str


def reference(case: Case, priors: list[str], long: float, most_exact: int) -> Reference:
    d = len(case.scores.names)
    if d <= most_exact:
        found, begun = {}, time.process_time()
        for prior in priors:
            found[prior] = trj.graphs.exact(case.scores, prior).edges.to_numpy()
        seconds = (time.process_time() - begun) / len(priors)
        return Reference(found, f"exact answer, {seconds:.2g} s")
    if not long:
        return Reference({}, "no exact answer: programs beside each other")
    found, parts = {}, []
    for prior in priors:
        both = [
            ours("long run", prior, kernel).run(case, long, 99)["long run"].edges
            for kernel in (blocks, others)
        ]
        found[prior] = (both[0] + both[1]) / 2
        parts.append(f"{prior} {largest(both[0] - both[1]):.3f}")
    differ = ", ".join(parts)
    return Reference(found, f"no exact answer: {long:g} s of two kernels, which differ by {differ}")


def largest(gap: Array) -> float:
    return float(np.abs(gap).max())


# ---- the race -----------------------------------------------------------------------------------


def race(case: Case, programs: list[Program], options: argparse.Namespace) -> list[Row]:
    """A row a program, budget and seed, with its edge probabilities."""
    found: list[Row] = []
    for program in programs:
        budgets = options.seconds if program.timed else [float("nan")]
        for budget in budgets:
            for seed in options.seeds:
                try:
                    answers = program.run(case, budget, seed)
                except (OSError, RuntimeError) as error:
                    print(f"{program.name} is left out: {error}")
                    break
                found += [
                    row(case, program, name, budget, seed, answer)
                    for name, answer in answers.items()
                ]
    return found


def row(case: Case, program: Program, name: str, budget: float, seed: int, answer: Answer) -> Row:
    about = {"case": case.name, "program": name, "prior": program.prior, "budget": budget}
    about |= {"seed": seed, "seconds": answer.seconds, "note": answer.note}
    return about | {"edges": answer.edges}


def shown(rows: list[Row], known: Reference) -> str:
    """Errors by program and budget; without a reference the spread of each and the gaps between."""
    frame = pd.DataFrame(rows)
    for_each = ["program", "prior", "budget"]
    if known.edges:
        frame["error"] = [
            largest(e - known.edges[p]) for e, p in zip(frame["edges"], frame["prior"], strict=True)
        ]
    else:  # from the mean of the program's other seeds
        frame["error"] = np.nan
        for _, group in frame.groupby(for_each, dropna=False):
            every, k = np.stack(list(group["edges"])), len(group)
            if k > 1:
                apart = [largest(e - every.mean(0)) * k / (k - 1) for e in every]
                frame.loc[group.index, "error"] = apart
    label = "error" if known.edges else "spread"
    groups = frame.groupby(for_each, dropna=False, sort=False)
    table = groups["error"].agg(["median", "max"])
    table.columns = pd.Index([f"{label}, median", "worst"])
    table["seconds used"] = groups["seconds"].median().round(1)
    table["last note"] = groups["note"].last()
    text = table.to_string(float_format="{:.4g}".format)
    return text if known.edges else f"{text}\n\n{gaps(frame)}"


def gaps(frame: pd.DataFrame) -> str:
    """Largest differences between the means of programs of one prior, each at its longest."""
    parts = []
    for prior, mine in frame.groupby("prior", sort=False):
        means = {}
        for name, one in mine.groupby("program", sort=False):
            last = one[one["budget"].isna() | (one["budget"] == one["budget"].max())]
            means[name] = np.mean(np.stack(list(last["edges"])), 0)
        table = pd.DataFrame({a: {b: largest(means[a] - means[b]) for b in means} for a in means})
        parts.append(f"Between programs, {prior} prior:\n{table.round(4).to_string()}")
    return "\n".join(parts)


def chosen(options: argparse.Namespace) -> list[Program]:
    found = [ours(), ours("trjmcmc, moves", kernel=all_moves)]
    if options.sumu_python:
        found += [ours("trjmcmc, fair", "fair"), ours("trjmcmc, moves, fair", "fair", all_moves)]
        found.append(sumu(options.sumu_python, options.threads))
    if options.gibby:
        found.append(gibby(options.gibby, options.threads))
    if options.dibs_python:
        steps, particles = options.dibs_steps, options.dibs_particles
        found.append(dibs(options.dibs_python, steps, particles, options.threads))
    wanted = options.program
    return [p for p in found if not wanted or p.name in wanted]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", choices=["sachs", "simulated"], nargs="+")
    parser.add_argument("--sachs", type=Path, default=SACHS, help="CSV, 7466 rows of 11 columns")
    parser.add_argument("--nodes", type=int, nargs="+", default=[10, 15, 20, 37])
    parser.add_argument("--networks", type=int, nargs="+", default=[0], help="seeds of data")
    parser.add_argument("--seconds", type=float, nargs="+", default=[2.0, 6.0, 10.0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of programs")
    parser.add_argument("--long", type=float, default=0.0, help="seconds of each long run")
    parser.add_argument("--most-exact", type=int, default=16, help="nodes, at most 20")
    parser.add_argument("--program", nargs="+", help="only these, by the names of the table")
    parser.add_argument("--sumu-python", type=Path, help="an interpreter with sumu")
    parser.add_argument("--dibs-python", type=Path, help="an interpreter with dibs-lib")
    parser.add_argument("--dibs-steps", type=int, default=300)
    parser.add_argument("--dibs-particles", type=int, default=10)
    parser.add_argument("--gibby", type=Path, help="the compiled program")
    parser.add_argument("--threads", type=int, default=1, help="of torch, and of others")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    options.case = options.case or ["sachs", "simulated"]
    torch.set_num_threads(options.threads)
    programs = chosen(options)
    machine = f"{platform.machine()}, torch {torch.__version__}, {options.threads} thread(s)"
    print(machine)
    rows: list[Row] = []
    for case in cases(options):
        priors = list(dict.fromkeys(program.prior for program in programs))
        known = reference(case, priors, options.long, options.most_exact)
        print(f"\n{case.name} (scores {case.scored:.2g} s; {known.source})", flush=True)
        mine = race(case, programs, options)
        if mine:
            print(shown(mine, known), flush=True)
        rows += mine
        if options.json:
            plain = [r | {"edges": np.asarray(r["edges"]).tolist()} for r in rows]
            options.json.write_text(json.dumps({"machine": machine, "rows": plain}, indent=1))


if __name__ == "__main__":
    main()
