"""Variable selection in a conjugate regression: every evidence is exact."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.distributions import Normal

from ..errors import TargetError
from ..space import Subsets
from ..target import Target, Truth

OBSERVATIONS = 60
CORRELATION = 0.7  # between neighbouring columns
EFFECTS = (1.0, 0.0, -0.6, 0.0, 0.4, 0.0, 0.0, 0.25)  # of the first columns; the rest have none
CHUNK = 4096  # models whose evidences are computed at once


def variable_selection(
    p: int = 10, x: Tensor | None = None, y: Tensor | None = None, *, seed: int = 0
) -> Target:
    """All subsets of p correlated columns in a Gaussian regression of known variance.

    y ~ N(X b, I), b_j ~ N(0, 1), each column in with probability 1/2. The evidences follow from
    the Gram matrix, all 2^p of them.

    Arguments:
        p: Columns, where data are simulated; at most 20.
        x: Columns of your own, shape (n, p).
        y: Response of your own, shape (n,).
        seed: Of the simulated data.

    Raises:
        TargetError: Only one of x and y, or more than 20 columns.

    Source:
        Conjugate regression: Raftery, Madigan & Hoeting (1997),
        https://doi.org/10.1080/01621459.1997.10473615

    Example:
        >>> target = variable_selection(3)
        >>> target.space.size, round(sum(target.truth.probabilities.values()), 6)
        (8, 1.0)
    """
    if (x is None) != (y is None):
        raise TargetError("variable_selection: give both x and y, or neither")
    if x is None or y is None:
        x, y = _simulated(p, seed)
    x, y = torch.as_tensor(x, dtype=torch.float64), torch.as_tensor(y, dtype=torch.float64)
    p = x.shape[1]
    if p > 20:
        raise TargetError(f"variable_selection: expected at most 20 columns, got {p}")
    gram, moment, total = x.T @ x, x.T @ y, float(y.square().sum())
    constant = -0.5 * len(y) * math.log(2 * math.pi)

    def log_likelihood(params: dict[str, Tensor], active: Tensor) -> Tensor:
        b = params["beta"]
        fit = ((b @ gram.to(b)) * b).sum(-1) - 2 * b @ moment.to(b)
        return constant - 0.5 * (total + fit)

    space = Subsets([f"x{j + 1}" for j in range(p)], of="beta", prior=0.5)
    codes = space.enumerate()
    log_z = torch.cat([_log_evidence(c.bool(), gram, moment) for c in codes.split(CHUNK)])
    log_z = log_z + constant - 0.5 * total
    labels = space.label(codes)
    truth = Truth(
        probabilities=dict(zip(labels, log_z.softmax(0).tolist(), strict=True)),
        log_evidence=dict(zip(labels, log_z.tolist(), strict=True)),
        source="conjugate, exact",
    )
    return Target(space, {"beta": Normal(0.0, 1.0)}, log_likelihood, truth=truth)


def _simulated(p: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(OBSERVATIONS, p + 1, generator=generator, dtype=torch.float64)
    columns = [noise[:, 0]]
    for j in range(1, p):
        fresh = math.sqrt(1 - CORRELATION**2) * noise[:, j]
        columns.append(CORRELATION * columns[-1] + fresh)
    x = torch.stack(columns, 1)
    x = (x - x.mean(0)) / x.std(0)
    effects = torch.tensor(EFFECTS[:p], dtype=torch.float64)
    y = x[:, : len(effects)] @ effects + noise[:, p]
    return x, y - y.mean()


def _log_evidence(on: Tensor, gram: Tensor, moment: Tensor) -> Tensor:
    """Log evidences less their common part, models (M, p) -> (M,), nats."""
    both = on[:, :, None] & on[:, None, :]
    eye = torch.eye(on.shape[1], dtype=gram.dtype)
    precision = torch.where(both, gram, 0.0) + eye  # posterior precision; 1 for columns left out
    factor = torch.linalg.cholesky(precision)
    z = torch.linalg.solve_triangular(factor, torch.where(on, moment, 0.0)[..., None], upper=False)[
        ..., 0
    ]
    log_det = factor.diagonal(dim1=1, dim2=2).log().sum(-1)
    return 0.5 * z.square().sum(-1) - log_det
