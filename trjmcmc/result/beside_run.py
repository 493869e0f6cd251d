"""How far a variational answer was from the draws of an exact run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from ..draws import Draws
from ..estimate.estimate import Estimate
from ..estimate.mean import mean_error
from ..transport.base import Transport
from ..weights.base import ModelWeights
from .variational_draws import VariationalDraws

if TYPE_CHECKING:
    import pandas as pd

MOST_DRAWS = 8192  # of the run that are looked at, about


@torch.no_grad()
def beside_run(
    transport: Transport,
    weights: ModelWeights,
    sample: VariationalDraws,
    inclusion: pd.Series | None,
    draws: Draws,
) -> dict[str, Any]:
    """Fields of :class:`~trjmcmc.approximate.Variational` that a run's draws tell.

    Arguments:
        transport, weights: q.
        sample: Its draws.
        inclusion: Inclusion probabilities by item under q, or None.
        draws: Of the run.
    """
    every = max(1, -(-draws.n_chains * draws.n_draws // MOST_DRAWS))
    device = next((t.device for t in (*weights.buffers(),)), torch.device("cpu"))
    kept = (draws.code, draws.theta, draws.log_joint)
    code, theta, log_joint = (x[:, ::every].flatten(0, 1).to(device) for x in kept)
    dtypes = [t.dtype for t in (*transport.parameters(), *transport.buffers())]
    theta = theta.to(next((t for t in dtypes if t.is_floating_point), theta.dtype))
    theta = transport.with_spares(theta, code)
    log_q = (transport.log_prob(theta, code) + weights.log_prob(code)).double()
    by_chain = -log_q.view(draws.n_chains, -1).cpu().numpy()
    log_w = sample.log_weight
    log_evidence = float(log_w.logsumexp(0)) - math.log(len(log_w))
    error = None
    if inclusion is not None and len(inclusion):
        exact = transport.space.items(draws.flat()[0].to(device)).double().mean(0)
        error = float((torch.tensor(inclusion.to_numpy()).to(exact) - exact).abs().max())
    return {
        "cross_entropy": Estimate(float(by_chain.mean()), *mean_error(by_chain)),
        "divergence": float((log_joint.double() - log_q).mean()) - log_evidence,
        "inclusion_error": error,
    }
