"""The variational answer, and how far from the exact one it was."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import pandas as pd
import torch

from ..draws import Draws
from ..estimate.estimate import Estimate
from ..estimate.mean import mean_error
from ..space.codes import distinct
from ..target.target import Target
from ..transport.base import Transport
from ..weights.base import ModelWeights

Q_DRAWS = 8192  # from q that its answer is made of

MODELS_LISTED = 50  # models in the table at most

ITEMS_PRINTED = 8  # items in print at most


@dataclass(frozen=True)
class Variational:
    """q(m) q(theta | m), the fit's own answer: approximate, and with no guarantee.

    Attributes:
        kind: The family of q(m), by name.
        probabilities: q(m) of the models that it draws most, by label, largest first.
        inclusion: Inclusion probability of each item under q, for subsets; else None.
        elbo: Evidence lower bound of all models together, nats, of q where the density is not zero.
        cross_entropy: Minus the mean of log q(m, theta) over a run's exact draws, nats, theta
            in unconstrained coordinates; None before a run.
        divergence: Kullback-Leibler divergence KL(p | q) of q from the posterior p, by the run's
            draws and the evidence that importance sampling from q finds, nats: too large where q
            misses a part of p, whose draws are improbable under q, and no better than the run;
            None before.
        inclusion_error: Largest difference of an inclusion probability from the run's.
    """

    kind: str
    probabilities: pd.Series
    inclusion: pd.Series | None
    elbo: Estimate
    cross_entropy: Estimate | None = None
    divergence: float | None = None
    inclusion_error: float | None = None

    def __str__(self) -> str:
        lines = [
            f"variational answer, approximate, q(m) by {self.kind}",
            f"  evidence lower bound   {self.elbo.value:.3f} +- {self.elbo.std_error:.3f} nats",
        ]
        if self.inclusion is not None:
            top = self.inclusion.nlargest(ITEMS_PRINTED)
            each = ", ".join(f"{item} {p:.3f}" for item, p in top.items())
            more = ", ..." if len(self.inclusion) > ITEMS_PRINTED else ""
            lines.append(f"  inclusion              {each}{more}")
        if self.cross_entropy is None:
            lines.append("  how far off it is, run() will tell")
        else:
            error = self.cross_entropy.std_error
            lines.append(
                f"  cross-entropy of draws {self.cross_entropy.value:.3f} +- {error:.3f} nats"
            )
        if self.divergence is not None:
            lines.append(
                f"  divergence KL(p | q)   {self.divergence:.3f} nats, by q's own evidence"
            )
        if self.inclusion_error is not None:
            lines.append(f"  largest inclusion error {self.inclusion_error:.4f}")
        return "\n".join(lines)

    def to_data(self) -> dict[str, Any]:
        """Plain data from which :meth:`from_data` rebuilds it."""
        data = {**vars(self), "probabilities": self.probabilities.to_dict()}
        data["inclusion"] = None if self.inclusion is None else self.inclusion.to_dict()
        for name in ("elbo", "cross_entropy"):
            data[name] = data[name] and asdict(data[name])
        return data

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Variational:
        """The answer that was turned into plain data."""
        data = dict(data)
        data["probabilities"] = pd.Series(data["probabilities"], name="probability")
        if data["inclusion"] is not None:
            data["inclusion"] = _inclusion(data["inclusion"])
        for name in ("elbo", "cross_entropy"):
            data[name] = data[name] and Estimate(**data[name])
        return cls(**data)


def _inclusion(share: dict[str, float]) -> pd.Series:
    return pd.Series(share, name="probability", dtype=float).rename_axis("item")


@torch.no_grad()
def variational(
    target: Target,
    weights: ModelWeights,
    transport: Transport,
    generator: torch.Generator,
    draws: Draws | None = None,
) -> Variational:
    """Draw from q, and compare it with a run's draws if there are any.

    Arguments:
        target, weights, transport: As fitted.
        generator: Source of randomness.
        draws: Exact draws.

    Source:
        Cross-entropy against draws: Davies et al., "Variational transdimensional inference",
        section 5
    """
    space = target.space
    code = weights.sample(Q_DRAWS, generator)
    z = transport.reference.sample((len(code), target.dim), generator, target.dtype)
    theta, log_q = transport.push(z, code)
    theta = torch.where(space.active(code), theta, 0.0)
    log_w = target.log_joint(code, theta).double() - log_q - weights.log_prob(code)
    finite = log_w[log_w.isfinite()]
    elbo = _mean(finite if len(finite) else log_w)
    share = max(1, len(finite)) / len(log_w)  # of q where the density is not zero
    error = math.hypot(elbo.std_error, math.sqrt((1 - share) / (share * len(log_w))))
    elbo = replace(elbo, value=elbo.value + math.log(share), std_error=error)
    models, _, _ = distinct(code)
    log_p = weights.log_prob(models).double()
    top = log_p.argsort(descending=True)[:MODELS_LISTED]
    probabilities = pd.Series(
        log_p[top].exp().tolist(), index=space.label(models[top]), name="probability"
    )
    inclusion = None
    if space.has_named_items:
        shares = space.items(code).double().mean(0).tolist()
        inclusion = _inclusion(dict(zip(space.names, shares, strict=True)))
    answer = Variational(type(weights).__name__, probabilities, inclusion, elbo)
    if draws is None:
        return answer
    return _compared(answer, target, weights, transport, finite, draws)


def _compared(
    answer: Variational,
    target: Target,
    weights: ModelWeights,
    transport: Transport,
    log_w: torch.Tensor,
    draws: Draws,
) -> Variational:
    every = max(1, -(-draws.n_chains * draws.n_draws // Q_DRAWS))
    kept = (draws.code, draws.theta, draws.log_joint)
    code, theta, log_joint = (x[:, ::every].flatten(0, 1).to(target.device) for x in kept)
    theta, log_joint = theta.to(target.dtype), log_joint.double()
    log_q = (transport.log_prob(theta, code) + weights.log_prob(code)).double()
    by_chain = -log_q.view(draws.n_chains, -1).cpu().numpy()
    cross_entropy = Estimate(float(by_chain.mean()), *mean_error(by_chain))
    log_evidence = float(log_w.logsumexp(0)) - math.log(Q_DRAWS)
    divergence = float((log_joint - log_q).mean()) - log_evidence
    error = None
    if answer.inclusion is not None and len(answer.inclusion):
        exact = target.space.items(draws.flat()[0].to(target.device)).double().mean(0)
        error = float((torch.tensor(answer.inclusion.to_numpy()).to(exact) - exact).abs().max())
    return Variational(
        answer.kind,
        answer.probabilities,
        answer.inclusion,
        answer.elbo,
        cross_entropy,
        divergence,
        error,
    )


def _mean(x: torch.Tensor) -> Estimate:
    return Estimate(float(x.mean()), float(x.std()) / math.sqrt(max(1, len(x))), float(len(x)))
