"""Log evidences by pocoMC, dynesty, nautilus and UltraNest, at their own settings.

`quick` takes small settings, and dynesty and nautilus stop after `most` likelihood calls.
"""

import math
from collections.abc import Callable

import numpy as np

from .problems import Array, Problem


class Counted:
    """A likelihood that counts the points it saw; 2-d arrays or single points."""

    def __init__(self, function: Callable[[Array], Array]) -> None:
        self.function, self.calls = function, 0

    def __call__(self, x: Array) -> Array:
        self.calls += len(x)
        return self.function(x)

    def one(self, x: Array) -> float:
        self.calls += 1
        return float(self.function(x[None])[0])


Evidence = tuple[float, float]


def pocomc(problem: Problem, likelihood: Counted, seed: int, quick: bool) -> Evidence:
    import pocomc

    size = {"n_effective": 256, "n_active": 128} if quick else {}
    sampler = pocomc.Sampler(
        pocomc.Prior(problem.priors), likelihood, vectorize=True, random_state=seed, **size
    )
    sampler.run(progress=False, **({"n_total": 1024, "n_evidence": 1024} if quick else {}))
    return sampler.evidence(full=True)


def dynesty(
    problem: Problem, likelihood: Counted, seed: int, quick: bool, most: int | None = None
) -> Evidence:
    import dynesty

    sampler = dynesty.NestedSampler(
        likelihood.one,
        lambda u: problem.transform(u[None])[0],
        len(problem.priors),
        rstate=np.random.default_rng(seed),
        **({"nlive": 100} if quick else {}),
    )
    sampler.run_nested(maxcall=most, print_progress=False)
    return sampler.results.logz[-1], sampler.results.logzerr[-1]


def nautilus(
    problem: Problem, likelihood: Counted, seed: int, quick: bool, most: int | None = None
) -> Evidence:
    import nautilus

    sampler = nautilus.Sampler(
        problem.transform,
        likelihood,
        n_dim=len(problem.priors),
        vectorized=True,
        pass_dict=False,
        seed=seed,
        **({"n_live": 500} if quick else {}),
    )
    sampler.run(n_like_max=most or math.inf, **({"n_eff": 1000} if quick else {}))
    return sampler.log_z, 1 / math.sqrt(sampler.n_eff)


def ultranest(problem: Problem, likelihood: Counted, seed: int, quick: bool) -> Evidence:
    import ultranest

    np.random.seed(seed)  # noqa: NPY002 it has no generator of its own
    names = [f"x{i}" for i in range(len(problem.priors))]
    sampler = ultranest.ReactiveNestedSampler(
        names, likelihood, problem.transform, vectorized=True, log_dir=None
    )
    few = {"min_num_live_points": 100, "min_ess": 100} if quick else {}
    found = sampler.run(show_status=False, viz_callback=False, **few)
    return found["logz"], found["logzerr"]


PEERS: dict[str, tuple[str, Callable[..., Evidence]]] = {
    "pocoMC": ("pocomc", pocomc),
    "dynesty": ("dynesty", dynesty),
    "nautilus": ("nautilus", nautilus),
    "UltraNest": ("ultranest", ultranest),
}
