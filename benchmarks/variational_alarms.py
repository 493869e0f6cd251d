"""Does a variational answer say so when it is wrong, and keep quiet when it is right?

Planted failures: a wave (U5) on which q sits in one trough; four modes (U4) of which q has three,
the lightest missing; mean field where two parameters have correlation .9; and q(z) of a spike and
slab with weak effects that is drawn with one Gumbel variable in place of a logistic one, as
1 - exp(-r / (1 - r)) for r. Each must be flagged every time.

Good fits: `trj.variational(target)` with its defaults on problems from seeds, whose answers are
known or are checked by the evidence: energies, linear and logistic regressions, mixtures of
normals. They should be flagged once in a hundred at most; a flag is a false one if the divergence
KL(q | p), where it is known, is below .05.

    python -m benchmarks.variational_alarms --repeats 20 --good 100
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pandas as pd
import torch
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal, Normal

import trjmcmc as trj
from examples.solved import linear_regression, logistic_regression, spike_and_slab
from trjmcmc.fit.climbs_by_model import ClimbsByModel
from trjmcmc.result.answer import best_weights, variational
from trjmcmc.transport import Gaussians
from trjmcmc.weights.base import ModelWeights

CLOSE = 0.05  # nats from the posterior that are a good fit


# ---- planted failures ---------------------------------------------------------------------------


def trough(seed: int) -> trj.approximate.Variational:
    """U5 by a normal that sits in one trough, as a collapsed training leaves it."""

    def make(space: trj.space.Space) -> trj.transport.Transport:
        scale = torch.tensor([0.5, 0.4], dtype=torch.float64).diag_embed()[None]
        loc = torch.tensor([[-1.0, -1.0]], dtype=torch.float64)
        return trj.transport.Affine(space, loc, scale).requires_grad_(False)

    return trj.variational(trj.problems.energy("U5"), make, seed=seed, progress=False)


def three_of_four(seed: int) -> trj.approximate.Variational:
    """U4 exactly, but for its lightest mode."""

    def make(space: trj.space.Space) -> trj.transport.Transport:
        loc = torch.tensor([[[2.5, 0.0], [0.0, 2.5], [0.0, -2.5]]], dtype=torch.float64)
        eye = torch.eye(2, dtype=torch.float64).expand(1, 3, 2, 2)
        log_weights = torch.tensor([[0.3, 0.4, 0.2]], dtype=torch.float64).log()
        parts = Gaussians(space, loc, math.sqrt(1.5) / 2 * eye)
        return trj.transport.MixtureOfMaps(parts, log_weights=log_weights).requires_grad_(False)

    return trj.variational(trj.problems.energy("U4"), make, seed=seed, progress=False)


def independent(seed: int) -> trj.approximate.Variational:
    """Mean field where two parameters have correlation .9."""
    target = normal_posterior(torch.zeros(2), torch.tensor([[1.0, 0.9], [0.9, 1.0]]))
    return trj.variational(target, "mean-field", steps=300, seed=seed, progress=False)


class OneGumbel(ModelWeights):
    """Independent units of probabilities r that are drawn with 1 - exp(-r / (1 - r))."""

    def __init__(self, space: trj.space.Space, r: torch.Tensor) -> None:
        super().__init__(space)
        self.register_buffer("r", r)

    def sample(self, n: int, generator: torch.Generator) -> torch.Tensor:
        u = torch.rand(n, len(self.r), generator=generator, dtype=self.r.dtype)
        return (u < -torch.expm1(-self.r / (1 - self.r))).long()

    def log_prob(self, code: torch.Tensor) -> torch.Tensor:
        return torch.where(code > 0, self.r.log(), (-self.r).log1p()).sum(-1)

    def learn(self, code: torch.Tensor, loss: torch.Tensor) -> None:
        """Nothing."""


def one_gumbel(seed: int) -> trj.approximate.Variational:
    """The right r of a spike and slab with weak effects, drawn with one Gumbel variable."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((30, 5))
    y = x @ np.full(5, 0.4) + rng.standard_normal(30)
    target = spike_and_slab(x, y)
    weights = OneGumbel(target.space, target.inclusion.double().clamp(1e-6, 1 - 1e-6))
    generator = torch.Generator().manual_seed(seed)
    target = target.to(dtype=torch.float64)
    return variational(target, weights, trj.transport.LaplaceMap(target), generator)


class Settled(trj.weights.CategoricalWeights):
    """q(m) that is not learnt."""

    def learn(self, code: torch.Tensor, loss: torch.Tensor) -> None:
        """Nothing."""


def counts(seed: int, settled: bool) -> trj.approximate.Variational:
    """Three sources of five at most: normals of each count, and the q(m) that fits them best.

    If ``settled`` q(m) has settled on two sources: these are fitted as well as can be, and other
    counts are where training began.
    """
    target = trj.problems.gaussian_mixture_2d(
        true=3, points=100, most=5, side=8.0, seed=seed, dtype=torch.float64
    )
    climbs = ClimbsByModel(target, target.space.enumerate(), torch.Generator().manual_seed(seed))
    transport = climbs.distinct()
    weights = Settled(target.space)
    with torch.no_grad():
        if settled:
            parts = transport.base.components
            others = [0, 2, 3, 4]
            parts.loc[others] = 0.0
            parts.tril[others] = torch.eye(target.dim).to(parts.tril)
            weights.logits.copy_(torch.tensor([-40.0, 0.0, -40.0, -40.0, -40.0]))
        else:
            table, _ = best_weights(
                target, transport, climbs.codes, torch.Generator().manual_seed(seed), 5000
            )
            log_prior = target.space.log_prior(climbs.codes)
            weights.logits.copy_(torch.tensor(table["elbo"].to_numpy()) + log_prior)
    sampler = trj.TRJSampler(target, transport, models=weights, seed=seed)
    sampler.fit(pilot=False, audit=False, steps=1, progress=False)
    return sampler.variational


PLANTED: dict[str, Callable[[int], trj.approximate.Variational]] = {
    "collapsed wave": trough,
    "dropped mode": three_of_four,
    "mean field at .9": independent,
    "one Gumbel variable": one_gumbel,
    "settled on two of three": partial(counts, settled=True),
}


# ---- good fits ----------------------------------------------------------------------------------


def normal_posterior(
    mean: torch.Tensor, covariance: torch.Tensor, weights: torch.Tensor | None = None
) -> trj.Target:
    """A target whose posterior is a normal, or a mixture of normals, with evidence one."""
    loc, cov = torch.atleast_2d(mean).double(), covariance.double().expand(1, -1, -1)
    weights = torch.ones(len(loc)).double() if weights is None else weights.double()
    exact = MixtureSameFamily(
        Categorical(weights), MultivariateNormal(loc, cov.expand(len(loc), -1, -1))
    )
    prior = Normal(torch.zeros(loc.shape[1]).double(), 4.0)

    def log_likelihood(params: dict[str, torch.Tensor]) -> torch.Tensor:
        x = params["x"].double()
        return exact.log_prob(x) - prior.log_prob(x).sum(-1)

    truth = trj.problems.Truth({"normals": 1.0}, {"normals": 0.0}, "by construction")
    return trj.Target([trj.Model("normals", {"x": prior}, log_likelihood)], truth=truth)


def good(n: int) -> Iterator[tuple[str, trj.Target]]:
    """Problems from seeds."""
    kinds = ["energy", "linear regression", "logistic regression", "mixture of normals"]
    for seed in range(n):
        g = torch.Generator().manual_seed(seed)
        kind = kinds[seed % len(kinds)]
        p = int(torch.randint(1, 7, (), generator=g))
        rho = 0.8 * float(torch.rand((), generator=g))
        if kind == "energy":
            yield kind, trj.problems.energy(f"U{1 + seed // len(kinds) % 9}")
        elif kind == "linear regression":
            yield kind, linear_regression(n=20 + 10 * p, p=p, rho=rho, seed=seed)
        elif kind == "logistic regression":
            yield kind, logistic_regression(n=20 + 10 * p, p=p, rho=rho, seed=seed)
        else:
            d = min(p, 4)
            mean = 2.5 * torch.randn(3, d, generator=g)
            root = torch.eye(d) + 0.3 * torch.randn(d, d, generator=g)
            weights = 0.2 + torch.rand(3, generator=g)
            yield kind, normal_posterior(mean, 0.3 * root @ root.T + 0.05 * torch.eye(d), weights)


# ---- tables -------------------------------------------------------------------------------------


def planted_table(repeats: int) -> pd.DataFrame:
    """How often each planted failure is flagged, and what flagged it."""
    rows = {}
    for name, fail in PLANTED.items():
        answers = [fail(seed) for seed in range(repeats)]
        said = pd.Series([" ".join(str(a.doubts[0]).split()[:4]) for a in answers if not a.ok])
        rows[name] = {
            "runs": repeats,
            "flagged": sum(not a.ok for a in answers),
            "first of the doubts": said.mode()[0] if len(said) else "",
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def good_table(n: int) -> pd.DataFrame:
    """One row a good fit."""
    rows = []
    for kind, target in good(n):
        begun = time.perf_counter()
        answer = trj.variational(target, seed=len(rows), progress=False)
        rows.append(
            {
                "kind": kind,
                "d": target.dim,
                "kl": answer.kl().value if answer.exact is not None else math.nan,
                "k": answer.pareto_k,
                "share": answer.ess_share,
                "audited": answer.audited,
                "seconds": time.perf_counter() - begun,
                "doubts": "; ".join(str(d) for d in answer.doubts if d.grave),
            }
        )
        print(len(rows), rows[-1], flush=True)
    return pd.DataFrame(rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=20, help="of each planted failure")
    parser.add_argument("--good", type=int, default=100, help="good fits")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    if options.repeats:
        print(planted_table(options.repeats).to_string(), "\n", flush=True)
    if options.good:
        table = good_table(options.good)
        close = ~(table["kl"] > CLOSE)
        false = table[(table["doubts"] != "") & close]
        print(f"\n{len(false)} of {int(close.sum())} good fits were flagged")
        print(false.to_string())
        known = table["kl"].dropna()
        print(f"KL(q | p) where it is known: median {known.median():.4f}, worst {known.max():.4f}")
        bad = table[~close]
        print(f"{len(bad)} were no good fits; {int((bad['doubts'] != '').sum())} of them said so")
        print(bad.to_string())


if __name__ == "__main__":
    main()
