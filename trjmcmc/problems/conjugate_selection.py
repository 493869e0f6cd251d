"""Variable selection in a conjugate regression: every evidence is exact, of millions of models."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import ShapeError, TargetError
from ..space.subsets import Subsets
from ..target.model import Truth
from .regression import (
    RegressionTarget,
    ResidualSquares,
    alternating,
    correlated_columns,
    regression_data,
    truth_of,
)

EFFECTS = (1.0, -0.6, 0.35, 0.2)  # of the simulated columns 1, 3, 5, 7; the others have none

LISTED = 22  # most columns whose subsets are all evaluated: four million models, 0.3 GB

CHUNK = 4096  # models whose evidences are computed at once, where they are picked


def conjugate_selection(
    p: int = 10,
    n: int = 60,
    rho: float = 0.7,
    seed: int = 0,
    *,
    x: Any = None,
    y: Any = None,
) -> ConjugateSelection:
    """All subsets g of p correlated columns in a Gaussian regression of known variance.

    y = X_g b_g + e with e ~ N(0, I) and b_j ~ N(0, 1), each column in with probability 1/2 and
    no intercept. Every evidence is N(y; 0, I + X_g X_g') in closed form.

    Simulated rows are N(0, R), R_ij = rho^|i - j|. Columns are centred and scaled to mean square
    1; columns 1, 3, 5 and 7, as many as there are, have the effects 1, -0.6, 0.35 and 0.2, the
    others none; noise is N(0, 1) and y is centred.

    Arguments:
        p: Columns, where data are simulated; any number.
        n: Rows, where data are simulated.
        rho: Correlation of neighbouring columns, where data are simulated.
        seed: Of the simulated data.
        x: Columns of your own, shape (n, p), used as they are; they may be collinear, zero, or
            more than there are rows.
        y: Response of your own, shape (n,).

    Returns:
        A target with models ``"(none)"``, ``"x1"``, ``"x2"``, ``"x1+x2"``, ... and parameter
        ``beta``; see :class:`ConjugateSelection` for its exact answers.

    Raises:
        ShapeError: x and y do not fit together, or there is no column.
        TargetError: Only one of x and y, a number in them is not finite, or p, n or rho is out
            of range.

    Source:
        Raftery, Madigan & Hoeting (1997), https://doi.org/10.1080/01621459.1997.10473615

    Example:
        >>> target = conjugate_selection(12)
        >>> target.log_evidences.shape, target.inclusion.shape
        (torch.Size([4096]), torch.Size([12]))
        >>> sum(target.inclusion > 0.5).item() < 12
        True
    """
    beta = None
    if x is None and y is None:
        rng = np.random.default_rng(seed)
        x = correlated_columns(rng, n, p, rho)
        beta = alternating(EFFECTS, p)
        y = x @ beta + rng.standard_normal(n)
        y -= y.mean()
    return ConjugateSelection(*regression_data(x, y), beta_true=beta)


class ConjugateSelection(RegressionTarget):
    """Subsets of columns in y ~ N(X b, I), b_j ~ N(0, slab_sd^2) where in, with exact answers.

    ``truth`` names every model and so is None beyond 16 columns; the tensors below and
    :meth:`exact_draws` go up to 22, and :meth:`log_evidence` to any number. All are computed on
    first use.

    Arguments:
        x: Columns, shape (n, p), float64.
        y: Response, shape (n,), float64.
        slab_sd: Prior standard deviation of the coefficients.
        weight: Prior probability that a column is in.
        beta_true: Coefficients that the data were simulated with, shape (p,), if they were.

    Attributes:
        x, y: The data.
        beta_true: Shape (p,), float64, or None.
        gamma_true: Which columns have an effect, shape (p,), bool, or None.
        truth: Probabilities and evidences by label.
        log_evidences: Log evidence of every model, shape (2^p,), nats; column j (from 0) is in
            model m where the bit of 2^j is set in m, as in ``target.space.enumerate()``.
        log_evidence_total: Log evidence of all models together, p(y), nats.
        inclusion: Posterior probability that each column is in, shape (p,).

    Raises:
        TargetError: slab_sd or weight is out of range, or all models of more than 22 columns
            are asked for.

    Error:
        Rounding only, about 1e-12 nats for columns and responses of ordinary size.

    Source:
        George & McCulloch (1997), Statistica Sinica 7:339

    Example:
        >>> x, y = torch.eye(3, dtype=torch.float64), torch.tensor([3.0, 0.0, 0.5]).double()
        >>> target = ConjugateSelection(x, y, slab_sd=2.0, weight=0.2)
        >>> target.inclusion.round(decimals=3).tolist()
        [0.804, 0.101, 0.11]
    """

    def __init__(
        self,
        x: Tensor,
        y: Tensor,
        slab_sd: float = 1.0,
        weight: float = 0.5,
        beta_true: Any = None,
    ) -> None:
        check_spike_and_slab(slab_sd, weight)
        self.slab_sd, self.weight = float(slab_sd), float(weight)
        beta = None if beta_true is None else torch.as_tensor(beta_true, dtype=torch.float64)
        super().__init__(
            Subsets([f"x{j + 1}" for j in range(x.shape[1])], of="beta", prior=self.weight),
            GaussianRegression(x, y),
            self.slab_sd,
            x,
            y,
            beta,
            None if beta is None else beta != 0,
        )
        # in units of the prior's standard deviation
        self._gram = self.slab_sd**2 * (x.T @ x)
        self._moment = self.slab_sd * (x.T @ y)
        self._null = -0.5 * (len(y) * math.log(2 * math.pi) + float(y.square().sum()))

    def log_evidence(self, code: Tensor) -> Tensor:
        """Exact log evidences of some models, of any number of columns.

        Arguments:
            code: Models, shape (C, p), ones and zeros.

        Returns:
            Shape (C,), float64, nats.

        Raises:
            ShapeError: The codes have another width.

        Example:
            >>> target = conjugate_selection(60)
            >>> code = target.space.code_of(["x1", "x60"])
            >>> target.log_evidence(code[None]).shape
            torch.Size([1])
        """
        p = len(self._moment)
        if code.dim() != 2 or code.shape[1] != p:
            raise ShapeError(f"code: expected shape (C, {p}), got {tuple(code.shape)}")
        parts = [
            _evidence_gain(c, self._gram, self._moment) for c in code.cpu().bool().split(CHUNK)
        ]
        return self._null + torch.cat(parts)

    @cached_property
    def log_evidences(self) -> Tensor:
        p = len(self._moment)
        if p > LISTED:
            raise TargetError(
                f"the 2^{p} models of {p} columns are too many to list (limit {LISTED} columns); "
                "log_evidence(code) gives single ones"
            )
        return self._null + _all_evidence_gains(self._gram, self._moment)

    @cached_property
    def _log_joint(self) -> Tensor:
        """log p(model) p(y | model) of every model, shape (2^p,)."""
        log_z = self.log_evidences
        log_prior = log_z.new_zeros(1)
        for _ in range(len(self._moment)):
            log_prior = torch.cat(
                [log_prior + math.log1p(-self.weight), log_prior + math.log(self.weight)]
            )
        return log_z + log_prior

    @property
    def log_evidence_total(self) -> float:
        return float(self._log_joint.logsumexp(0))

    @cached_property
    def inclusion(self) -> Tensor:
        p = self._log_joint.softmax(0)
        return torch.stack([p.view(-1, 2, 2**j)[:, 1].sum() for j in range(len(self._moment))])

    def exact_draws(self, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Independent draws from the posterior over models and coefficients, up to 22 columns.

        Every model is a normal: a draw is one of the 2^p models, then a point of its normal.

        Arguments:
            n: How many.
            generator: Of the draws, on the CPU.

        Returns:
            Models, shape (n, p), int64, and coefficients, shape (n, p), float64, exact zeros
            where a column is out.

        Raises:
            TargetError: More than 22 columns.

        Example:
            >>> target = conjugate_selection(4)
            >>> code, beta = target.exact_draws(1000, torch.Generator().manual_seed(0))
            >>> code.shape, bool(((beta != 0) == (code == 1)).all())
            (torch.Size([1000, 4]), True)
        """
        cumulative = self._log_joint.softmax(0).cumsum(0)
        uniform = torch.rand(n, generator=generator, dtype=torch.float64)
        model = torch.searchsorted(cumulative, uniform * cumulative[-1], right=True)
        code = model[:, None] >> torch.arange(len(self._moment)) & 1
        parts = [self._coefficients(c, generator) for c in code.split(CHUNK)]
        return code, torch.cat(parts) if parts else code.double()

    def _coefficients(self, code: Tensor, generator: torch.Generator) -> Tensor:
        """One draw of the coefficients of each model, (C, p) -> (C, p)."""
        on = code.bool()
        factor = _factors(on, self._gram)
        m = torch.where(on, self._moment, 0.0)[..., None]
        z = torch.randn(m.shape, generator=generator, dtype=m.dtype)
        whitened = torch.linalg.solve_triangular(factor, m, upper=False) + z
        beta = torch.linalg.solve_triangular(factor.mT, whitened, upper=True)[..., 0]
        return torch.where(on, self.slab_sd * beta, 0.0)

    def _exact(self) -> Truth | None:
        if not self.space.enumerable:
            return None
        return truth_of(self.space, self.log_evidences, "conjugate, exact")


class GaussianRegression:
    """Log-likelihood of y ~ N(X b, I).

    Arguments:
        x: Design, shape (n, p), of any rank.
        y: Response, shape (n,).
    """

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.squares = ResidualSquares(x, y)
        self.constant = -0.5 * (len(y) * math.log(2 * math.pi) + self.squares.rest)

    def __call__(self, params: dict[str, Tensor], active: Tensor | None = None) -> Tensor:
        return self.constant - 0.5 * self.squares(params["beta"])


def check_spike_and_slab(slab_sd: float, weight: float) -> None:
    """Refuse a slab without width and a weight that decides everything."""
    if not 0 < slab_sd < math.inf:
        raise TargetError(f"slab_sd: expected a number above 0, got {slab_sd}")
    if not 0 < weight < 1:
        raise TargetError(f"weight: expected a probability between 0 and 1, got {weight}")


def _all_evidence_gains(gram: Tensor, moment: Tensor) -> Tensor:
    """Log evidence of every subset over that of none, (p, p), (p,) -> (2^p,), nats.

    Gaussian elimination on the posterior precision I + gram, as a tree: each column in turn is
    left out, or eliminated from those still to come. After j columns there are 2^j remainders
    of size p - j, so that all levels together cost about 6 * 2^p operations, and models share
    what they have in common.
    """
    p = len(moment)
    rest = (gram + torch.eye(p, dtype=gram.dtype))[None]
    m, gain = moment[None], moment.new_zeros(1)
    for _ in range(p):
        pivot = rest[:, 0, 0].clamp(min=1)  # at least the prior precision, rounding or not
        gain = torch.cat([gain, gain + 0.5 * (m[:, 0].square() / pivot - pivot.log())])
        factor = rest[:, 1:, 0] / pivot[:, None]
        m = torch.cat([m[:, 1:], m[:, 1:] - factor * m[:, :1]])
        out = rest[:, 1:, 1:]
        rest = torch.cat([out, out - factor[:, :, None] * rest[:, :1, 1:]])
    return gain


def _evidence_gain(on: Tensor, gram: Tensor, moment: Tensor) -> Tensor:
    """The same of some subsets, (C, p) bool -> (C,), nats."""
    factor = _factors(on, gram)
    m = torch.where(on, moment, 0.0)[..., None]
    z = torch.linalg.solve_triangular(factor, m, upper=False)[..., 0]
    log_det = factor.diagonal(dim1=1, dim2=2).log().sum(-1)
    return 0.5 * z.square().sum(-1) - log_det


def _factors(on: Tensor, gram: Tensor) -> Tensor:
    """Lower Cholesky factors of the posterior precisions of some subsets, (C, p) -> (C, p, p)."""
    both = on[:, :, None] & on[:, None, :]
    eye = torch.eye(on.shape[1], dtype=gram.dtype)
    return torch.linalg.cholesky(torch.where(both, gram, 0.0) + eye)  # 1 for columns left out
