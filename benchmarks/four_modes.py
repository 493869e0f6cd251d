"""A mixture of four normals far apart: does a map, or a chain, have them at their weights?"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributions import Normal

import trjmcmc as trj
from trjmcmc.errors import TargetError

WEIGHTS = (0.1, 0.3, 0.4, 0.2)

WIDTHS = (0.8, 1.0, 0.9, 1.2)

CORNERS = ((1.0, 1.0), (-1.0, 1.0), (1.0, -1.0), (-1.0, -1.0))


def four_modes(dim: int) -> trj.Target:
    """One model ``"mixture"`` with parameter ``x`` (dim,): four normals, log evidence 0.

    Arguments:
        dim: Number of coordinates, 2 or more.

    Returns:
        A target whose posterior is the mixture with weights .1 .3 .4 .2 about
        :func:`mode_centres`.

    Raises:
        TargetError: ``dim`` below 2.

    Example:
        >>> target = four_modes(3)
        >>> target.dim, target.truth.log_evidence
        (3, {'mixture': 0.0})
    """
    if dim < 2:
        raise TargetError(f"dim: expected 2 or more, got {dim}")
    centre, width = mode_centres(dim), torch.tensor(WIDTHS)[:, None]
    log_weight = torch.tensor(WEIGHTS).log()
    prior = Normal(torch.zeros(dim), 10.0)

    def log_likelihood(params: dict[str, Tensor]) -> Tensor:
        x = params["x"]
        each = Normal(centre.to(x), width.to(x)).log_prob(x[:, None]).sum(-1)
        return (log_weight.to(x) + each).logsumexp(-1) - prior.log_prob(x).sum(-1)

    truth = trj.problems.Truth({"mixture": 1.0}, {"mixture": 0.0}, "by construction")
    return trj.Target([trj.Model("mixture", {"x": prior}, log_likelihood)], truth=truth)


def mode_centres(dim: int) -> Tensor:
    """Centres of the four normals, shape (4, dim)."""
    corners = torch.tensor(CORNERS).repeat(1, (dim + 1) // 2)[:, :dim]
    return 6 * corners + torch.linspace(-1, 1, dim)
