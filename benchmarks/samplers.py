"""Effective draws of the model indicator a second, fit included: ours and the published samplers.

Every sampler has the same wall time, pilot run and training included. Each runs in a process of
its own, so that its peak memory is its own. Counted in effective draws are indicators of models
(of inclusion in a large space), the one that has fewest; each chain's start is subtracted.
"""

import resource
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

import trjmcmc as trj

CASES: dict[str, Callable[[], trj.Target]] = {
    "sinh-arcsinh": trj.problems.sinh_arcsinh,
    "factors": trj.problems.factor_analysis,
    "robust": trj.problems.robust_regression,
    "coal": lambda: trj.problems.coal_mining(1, 6),
    "selection-10": lambda: trj.problems.variable_selection(10),
    "selection-15": lambda: trj.problems.variable_selection(15),
}
QUICK = ("default", "birth-death", "affine TRJ")
TAKEN = ("ess", "ess_per_s", "ess_per_evaluation", "between", "error", "z", "rhat", "note")


def long_run(case: str) -> dict[str, float]:
    """Probabilities of the models by a fit in full and a long run (three minutes)."""
    sampler = trj.TRJSampler(CASES[case](), seed=2**20)
    sampler.fit(progress=False)
    found = sampler.run(draws=1500, chains=512, progress=False).model_probabilities(full=True)
    return {str(label): float(p) for label, p in found["combined"].items()}


def row(
    case: str,
    sampler: str,
    *,
    budget: float,
    chains: int | None = None,
    seed: int = 0,
    threads: int = 1,
    truth: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """One sampler on one problem, as a row of the table.

    Arguments:
        case: A name in ``CASES``.
        sampler: ``"default"`` or a name that :class:`trj.compare.ClassicalSampler` knows.
        budget: Seconds of wall time.
        chains: Chains; 512 if omitted.
        seed: Of the sampler.
        threads: Of torch.
        truth: Probabilities of the models, where the problem does not know them.

    Returns:
        ``fit_s``, ``sample_s``, ``chain_steps_per_s``, ``evaluations``, ``peak_memory_mb``
        of the process (Python and torch alone take some 300), and those of
        :func:`trj.compare_samplers`.
    """
    torch.set_num_threads(threads)
    target = CASES[case]()
    if truth is not None:
        target.truth = trj.problems.Truth(dict(truth), source="long run")
    comparison = trj.compare_samplers(
        target, [sampler], budget=budget, chains=chains, seed=seed, progress=False
    )
    found = comparison.table.loc[sampler]
    result = comparison.results[sampler]
    measured: dict[str, Any] = {"case": case, "sampler": sampler, "budget_s": budget}
    if result is not None:
        seconds = result.report.seconds
        measured |= {
            "fit_s": found["fit_s"],
            "sample_s": seconds.get("sample", 0.0),
            "chain_steps_per_s": result.raw.n_chains * result.report.steps / seconds["sample"],
            "evaluations": result.report.evaluations,
            "peak_memory_mb": _peak_memory(),
        }
    return measured | {name: found[name] for name in TAKEN}


def _peak_memory() -> float:
    """In MiB, of this process alone: a parent's peak would count among ru_maxrss on Linux."""
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (x for x in status.read_text().splitlines() if x.startswith("VmHWM"))
        return int(line.split()[1]) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
