"""What the regressions share: data at the door, simulated columns, a truth found when asked for."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions import Normal

from ..errors import ShapeError, TargetError
from ..space.base import Space
from ..target.likelihood import LogLikelihood
from ..target.model import Truth
from ..target.target import Target
from .quadrature import log_evidence

COEFFICIENTS = 4  # most coefficients that the lattice of the truth is laid in

LATTICE_SOURCE = "trapezoid rule on a lattice, error below 1e-5 nats"


class LazyTarget(Target):
    """A target whose truth is computed on first use, by its own ``_exact``; it may be set."""

    _truth: Truth | None = None

    @property
    def truth(self) -> Truth | None:
        if self._truth is None:
            self._truth = self._exact()
        return self._truth

    @truth.setter
    def truth(self, value: Truth | None) -> None:
        self._truth = value

    def _exact(self) -> Truth | None:
        return None


class RegressionTarget(LazyTarget):
    """A regression on a space of columns, with coefficients ``beta`` ~ N(0, prior_sd^2).

    Its truth is computed on first use: by quadrature where the largest model has no more than
    four coefficients, and None beyond; it may be set.

    Arguments:
        space: Which columns a model uses, with one item a coefficient.
        log_likelihood: Function of ``beta``, (C, coefficients) -> (C,), nats.
        prior_sd: Of every coefficient.
        x: Columns, shape (n, p), float64.
        y: Response, shape (n,), float64.
        beta_true: Coefficients that the data were simulated with, if they were.
        gamma_true: Which of the selectable columns then had an effect, shape (p,), bool.
    """

    def __init__(
        self,
        space: Space,
        log_likelihood: LogLikelihood,
        prior_sd: float,
        x: Tensor,
        y: Tensor,
        beta_true: Tensor | None = None,
        gamma_true: Tensor | None = None,
    ) -> None:
        super().__init__(space, {"beta": Normal(0.0, prior_sd)}, log_likelihood)
        self.log_likelihood, self.prior_sd = log_likelihood, prior_sd
        self.x, self.y, self.beta_true, self.gamma_true = x, y, beta_true, gamma_true

    def _exact(self) -> Truth | None:
        """Evidences of all models by quadrature."""
        if self.space.n_items > COEFFICIENTS:
            return None
        codes = self.space.enumerate()
        columns = torch.eye(self.space.n_items, dtype=torch.float64)
        log_z = []
        for on in self.space.items(codes).cpu():
            value = lattice_evidence(self.log_likelihood, self.prior_sd, columns[on])
            if value is None:
                return None
            log_z.append(value)
        return truth_of(self.space, torch.tensor(log_z, dtype=torch.float64), LATTICE_SOURCE)


def lattice_evidence(
    log_likelihood: LogLikelihood, prior_sd: float, columns: Tensor
) -> float | None:
    """Log evidence of a few coefficients ~ N(0, prior_sd^2), nats, error below 1e-5.

    Arguments:
        log_likelihood: Function of ``beta``, (C, p) -> (C,), nats.
        prior_sd: Of every coefficient.
        columns: Rows of the identity, of the coefficients in use, shape (d, p), float64.

    Returns:
        None where the data's posterior is too wide for a lattice.
    """

    def log_joint(b: Tensor) -> Tensor:
        value = log_likelihood({"beta": b @ columns})
        return value + Normal(0.0, prior_sd).log_prob(b).sum(-1)

    generator = torch.Generator().manual_seed(0)
    starts = 3 * torch.randn(8, len(columns), generator=generator, dtype=torch.float64)
    try:
        return log_evidence(log_joint, starts)
    except RuntimeError:
        return None


def truth_of(space: Space, log_evidences: Tensor, source: str) -> Truth:
    """The truth that belongs to evidences of all models.

    Arguments:
        space: One that can be enumerated.
        log_evidences: In the order of :meth:`Space.enumerate`, shape (size,), nats.
        source: How they were computed.
    """
    codes = space.enumerate()
    labels = space.label(codes)
    p = (log_evidences + space.log_prior(codes).double().cpu()).softmax(0)
    return Truth(
        probabilities=dict(zip(labels, p.tolist(), strict=True)),
        log_evidence=dict(zip(labels, log_evidences.tolist(), strict=True)),
        source=source,
    )


class Constants:
    """Tensors of a likelihood in the precision and on the device of its parameters.

    Arguments:
        tensors: Data; each precision is converted to once.
    """

    def __init__(self, *tensors: Tensor) -> None:
        self.tensors = tensors
        self._cast: dict[Any, tuple[Tensor, ...]] = {}

    def like(self, values: Tensor) -> tuple[Tensor, ...]:
        key = (values.dtype, values.device)
        if key not in self._cast:
            self._cast[key] = tuple(tensor.to(values) for tensor in self.tensors)
        return self._cast[key]


class ResidualSquares:
    """Sum of squared residuals of y - X b, in two parts, from the triangular factor of X.

    Costs p^2 a point whatever n, and sums squares only, so that single precision suffices.

    Arguments:
        x: Design, shape (n, p), of any rank, float64.
        y: Response, shape (n,), float64.

    Attributes:
        rest: The part that no coefficients explain.

    Example:
        >>> squares = ResidualSquares(torch.ones(2, 1).double(), torch.tensor([1.0, 3.0]).double())
        >>> round(squares.rest, 6), squares(torch.tensor([[2.0], [1.0]])).round(decimals=4).tolist()
        (2.0, [0.0, 2.0])
    """

    def __init__(self, x: Tensor, y: Tensor) -> None:
        q, r = torch.linalg.qr(x)
        rotated = q.T @ y
        self.rest = float((y - q @ rotated).square().sum())
        self.data = Constants(r.T.contiguous(), rotated)

    def __call__(self, beta: Tensor) -> Tensor:
        """The other part, at coefficients (C, p), shape (C,)."""
        factor, rotated = self.data.like(beta)
        return (rotated - beta @ factor).square().sum(-1)


def regression_data(x: Any, y: Any) -> tuple[Tensor, Tensor]:
    """Copies of somebody's columns and response, checked.

    Arguments:
        x: Columns, shape (n, p), n and p at least 1.
        y: Response, shape (n,).

    Returns:
        Both as float64 on the CPU.

    Raises:
        ShapeError: They are no numbers, or do not fit together.
        TargetError: One of them is missing, or a number is NaN or infinite.

    Example:
        >>> x, y = regression_data([[1, 2], [3, 4], [5, 6]], [1, 0, 1])
        >>> x.shape, y.dtype
        (torch.Size([3, 2]), torch.float64)
    """
    if x is None or y is None:
        raise TargetError("x, y: give both, or neither for simulated data")
    columns, response = _numbers(x, "x"), _numbers(y, "y")
    if columns.dim() != 2 or response.shape != columns.shape[:1]:
        raise ShapeError(
            "x, y: expected shapes (n, p) and (n,), got "
            f"{tuple(columns.shape)} and {tuple(response.shape)}"
        )
    if not columns.numel():
        raise ShapeError(
            f"x: expected at least one row and one column to select, got {tuple(columns.shape)}; "
            "with nothing to select, state the one model as trj.Target([trj.Model(...)])"
        )
    for name, values in (("x", columns), ("y", response)):
        if bad := int((~values.isfinite()).sum()):
            raise TargetError(
                f"{name}: {bad} of {values.numel()} numbers are NaN or infinite; "
                "drop those rows or fill them in"
            )
    return columns, response


def _numbers(values: Any, name: str) -> Tensor:
    if isinstance(values, Tensor):
        return values.detach().to("cpu", torch.float64, copy=True)
    try:
        return torch.tensor(np.asarray(values, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise ShapeError(f"{name}: expected an array of numbers; {error}") from error


def correlated_columns(rng: np.random.Generator, n: int, p: int, rho: float) -> NDArray[np.float64]:
    """Rows of N(0, R), R_ij = rho^|i - j|, the columns then centred and scaled.

    Arguments:
        rng: Where the numbers come from.
        n: Rows, at least 2.
        p: Columns, at least 1.
        rho: Correlation of neighbouring columns, between -1 and 1.

    Returns:
        Shape (n, p); every column has mean 0 and mean square 1.

    Raises:
        TargetError: n, p or rho is out of range.

    Example:
        >>> x = correlated_columns(np.random.default_rng(0), 50, 3, 0.9)
        >>> x.shape, np.round((x**2).mean(0), 6).tolist()
        ((50, 3), [1.0, 1.0, 1.0])
    """
    if p < 1 or n < 2 or not -1 < rho < 1:
        raise TargetError(
            f"p, n, rho: expected p >= 1, n >= 2 and -1 < rho < 1, got {p}, {n}, {rho}"
        )
    lags = np.abs(np.subtract.outer(np.arange(p), np.arange(p)))
    x = rng.standard_normal((n, p)) @ np.linalg.cholesky(rho ** lags.astype(float)).T
    result: NDArray[np.float64] = (x - x.mean(0)) / x.std(0)
    return result


def alternating(effects: tuple[float, ...], p: int) -> NDArray[np.float64]:
    """Effects of the columns 0, 2, 4, ..., as many as fit, and of no other, shape (p,)."""
    beta = np.zeros(p)
    places = beta[: 2 * len(effects) : 2]
    places[:] = effects[: len(places)]
    return beta


def check_scales(**values: float) -> None:
    """Refuse scales that are not above 0."""
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise TargetError(f"{name}: expected a number above 0, got {value}")
