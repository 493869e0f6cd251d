"""Model probabilities from the acceptance probabilities of jumps."""

from __future__ import annotations

import math

import scipy
import torch
from torch import Tensor

from .estimate import Estimate

FEW_CROSSINGS = 10.0  # expected crossings between a model and all others

LEAST_BATCHES = 8  # below which an error by batches says little

ROUNDING = 1e-9  # of a probability

UNLINKED = "no jump leads there and back"


def stationary(rates: Tensor) -> Tensor:
    """Probabilities that rates between models balance, (..., M, M) -> (..., M).

    Arguments:
        rates: From row to column; the diagonal is ignored.

    Returns:
        NaN where not all models lead to each other.
    """
    m = rates.shape[-1]
    rates = rates - torch.diag_embed(rates.diagonal(dim1=-2, dim2=-1))
    balance = rates.transpose(-1, -2) - torch.diag_embed(rates.sum(-1))
    # one balance equation follows from the others: the sum stands in its place
    balance = torch.cat([balance[..., :-1, :], torch.ones_like(balance[..., :1, :])], -2)
    right = torch.zeros(*rates.shape[:-2], m, 1, dtype=rates.dtype, device=rates.device)
    right[..., -1, :] = 1.0
    p, failed = torch.linalg.solve_ex(balance, right)
    p = torch.where((failed != 0)[..., None, None], math.nan, p)[..., 0]
    return torch.where((p > -ROUNDING).all(-1, keepdim=True), p.clamp(min=0), math.nan)


def bartolucci(crossings: Tensor, stays: Tensor) -> list[Estimate]:
    """Probabilities of all models by the acceptance probabilities of the jumps between them.

    Whether a jump was taken is chance that its acceptance probability does not have. The rates
    of crossing from each model to each other one, averaged over the draws, have the posterior
    as their stationary distribution.

    Arguments:
        crossings: Sums of acceptance probabilities of jumps from row to column, by batch of
            chains, shape (batch, M, M).
        stays: Numbers of draws that jumps were proposed from, shape (batch, M).

    Returns:
        One estimate a model; errors by the jackknife over batches; ESS as of independent
        draws of the model.

    Source:
        Bartolucci, Scaccia & Mira (2006), https://doi.org/10.1093/biomet/93.1.41; all pairs at
        once as in a continuous-time chain

    Example:
        >>> crossings = torch.tensor([[[0.0, 30.0], [30.0, 0.0]]]).repeat(20, 1, 1)
        >>> [e.value for e in bartolucci(crossings, torch.tensor([[300.0, 100.0]]).repeat(20, 1))]
        [0.75, 0.25]
    """
    crossings, stays = crossings.double().cpu(), stays.double().cpu()
    total = crossings.sum(0).fill_diagonal_(0)
    linked = _linked(total, stays.sum(0))
    if len(linked) < 2:
        return [Estimate(math.nan, math.inf, 0.0, UNLINKED) for _ in total]
    crossings, stays = crossings[:, linked][..., linked], stays[:, linked]
    crossings = crossings - torch.diag_embed(crossings.diagonal(dim1=1, dim2=2))
    rates = crossings.sum(0) / stays.sum(0)[:, None]
    p = stationary(rates)
    without = (crossings.sum(0) - crossings) / (stays.sum(0) - stays).clamp(min=1)[..., None]
    # a model that one batch alone has left: its own rates are all that is known
    left_out = stationary(torch.where(without.sum(-1, keepdim=True) > 0, without, rates))
    b = len(crossings)
    lean = left_out.mean(0) - left_out
    error = ((b - 1) / b * lean.square().sum(0)).sqrt()
    error = error.nan_to_num(math.inf)  # all rests on one batch
    found = [Estimate(0.0, math.inf, 0.0, UNLINKED) for _ in total]
    columns = linked.tolist(), p.tolist(), error.tolist(), lean.T.tolist()
    for i, value, se, parts in zip(*columns, strict=True):
        moves = float(total[i].sum() + total[:, i].sum())
        warning = f"only {moves:.1f} crossings expected" if moves < 2 * FEW_CROSSINGS else ""
        if b < LEAST_BATCHES or math.isinf(se):
            se, warning = math.inf, warning or "too few batches for an error"
        ess = value * (1 - value) / se**2 if se**2 > 0 else math.inf
        found[i] = Estimate(value, se, ess, warning, tuple(parts))
    return found


def _linked(total: Tensor, stays: Tensor) -> Tensor:
    """Positions of the models that lead to the most visited one and back, all of them."""
    _, label = scipy.sparse.csgraph.connected_components(total.numpy() > 0, connection="strong")
    return torch.as_tensor(label == label[int(stays.argmax())]).nonzero()[:, 0]


def bartolucci_odds(crossings: Tensor, stays: Tensor, a: int, b: int) -> Estimate:
    """Log of the ratio of two models' probabilities, by the jumps between the two alone.

    Arguments:
        crossings, stays: As of :func:`bartolucci`.
        a, b: Positions of the two models.

    Returns:
        The estimate in nats; error by the jackknife over batches.

    Source:
        Bartolucci, Scaccia & Mira (2006), eq. 10
    """

    def odds(c: Tensor, s: Tensor) -> Tensor:
        there = c[..., b, a].log() - s[..., b].log()
        return there - (c[..., a, b].log() - s[..., a].log())

    whole = odds(crossings.sum(0), stays.sum(0))
    if not math.isfinite(float(whole)):
        return Estimate(math.nan, math.inf, 0.0, "no jump between the two")
    replicates = odds(crossings.sum(0) - crossings, stays.sum(0) - stays)
    n = len(crossings)
    error = ((n - 1) / n * (replicates - replicates.mean()).square().sum()).sqrt()
    moves = float(crossings[:, a, b].sum() + crossings[:, b, a].sum())
    warning = f"only {moves:.1f} crossings expected" if moves < 2 * FEW_CROSSINGS else ""
    if n < LEAST_BATCHES or not math.isfinite(float(error)):
        return Estimate(float(whole), math.inf, 0.0, warning or "too few batches for an error")
    return Estimate(float(whole), float(error), moves, warning)
