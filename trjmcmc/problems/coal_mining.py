"""British coal-mining disasters: a Poisson process whose rate steps at unknown times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import scipy
import torch
from torch import Tensor
from torch.distributions import Dirichlet, Gamma
from torch.nn.functional import pad

from ..errors import TargetError
from ..target.likelihood import LogLikelihood
from ..target.model import Model, Truth
from ..target.target import Target

LENGTH = 40907.0  # days from 1 January 1851 to 31 December 1962

POISSON_MEAN = 3.0  # prior mean number of change points

GAMMA_RATE = 200.0  # days; heights have a Gamma(1, 200) prior, events a day

# Days of the 191 disasters: Jarrett (1979), https://doi.org/10.1093/biomet/66.1.191
# fmt: off
DAYS = (
    73, 230, 353, 355, 479, 491, 495, 505, 721, 801, 813, 846, 912, 1144, 1970, 2010, 2022, 2051,
    2241, 2338, 2403, 2589, 2612, 2704, 2901, 3332, 3348, 3502, 3597, 3622, 3641, 3719, 3921,
    3957, 4067, 4343, 4359, 4447, 4672, 4725, 4742, 5280, 5467, 5501, 5602, 5643, 5782, 5824,
    5825, 6075, 6155, 6158, 6482, 6538, 6569, 6665, 6735, 6776, 6869, 6893, 6984, 7127, 7143,
    7170, 7314, 7359, 7365, 7573, 7602, 7714, 7757, 7950, 8084, 8504, 8599, 8724, 8758, 8885,
    9103, 9105, 9105, 9483, 9519, 9534, 9565, 9780, 9791, 9928, 9932, 9947, 10019, 10115, 10239,
    10289, 10409, 10612, 10788, 10843, 10936, 10995, 11310, 11369, 11430, 11431, 11444, 11633,
    11978, 11998, 12079, 12365, 12479, 12587, 12775, 13008, 13036, 13058, 13119, 13197, 13296,
    13622, 13897, 13951, 14168, 14281, 14313, 14701, 14852, 15213, 15525, 15879, 16186, 16461,
    16539, 16556, 17761, 18405, 18872, 19743, 19791, 19914, 20370, 20868, 20917, 21048, 21230,
    21485, 21679, 21903, 22469, 22931, 23159, 23965, 24482, 26125, 26179, 26505, 27817, 28165,
    28910, 29127, 29247, 29522, 29542, 29608, 29900, 29904, 30272, 30579, 30915, 30934, 31263,
    31593, 31905, 32441, 32586, 32661, 33025, 33062, 33081, 33237, 33284, 33413, 35043, 35072,
    35289, 35296, 35314, 36672, 39038, 39990, 40622,
)
# fmt: on


def coal_mining(
    k_min: int = 1, k_max: int = 6, *, days: Sequence[float] | Tensor | None = None
) -> Target:
    """Green's change-point model of the 191 coal-mining disasters, 1851 to 1962.

    The rate is a step function with k change points; k is Poisson(3), truncated to the range;
    the spacings of the change points are Dirichlet(2, ..., 2) (the even order statistics of
    2k + 1 uniforms); heights are Gamma(1, rate 200 days), *not* integrated out.

    Arguments:
        k_min: Fewest change points, 0 or more.
        k_max: Most change points.
        days: Days of other events between 0 and 40907, simulated ones say; no truth then.

    Returns:
        A target with models ``"k=1"``, ``"k=2"``, ... and parameters ``spacing`` (k + 1
        fractions of the period, absent at k = 0) and ``height`` (k + 1 rates, events a day).
        The truth has the heights integrated out analytically and the change points by
        piecewise Gauss-Legendre quadrature.

    Raises:
        TargetError: Not 0 <= k_min <= k_max, or days outside the period.

    Source:
        Green (1995), https://doi.org/10.1093/biomet/82.4.711, section 4

    Example:
        >>> target = coal_mining()
        >>> target.dim
        13
        >>> {k: round(p, 4) for k, p in target.truth.probabilities.items()}["k=3"]
        0.2958
    """
    if not 0 <= k_min <= k_max:
        raise TargetError(f"expected 0 <= k_min <= k_max, got {k_min}, {k_max}")
    counts = range(k_min, k_max + 1)
    log_prior = torch.tensor([k * math.log(POISSON_MEAN) - math.lgamma(k + 1) for k in counts])
    prior = log_prior.double().softmax(0)
    events = torch.as_tensor(DAYS if days is None else days, dtype=torch.float64).sort().values
    if len(events) and (float(events[0]) <= 0 or float(events[-1]) >= LENGTH):
        raise TargetError(f"days: expected days between 0 and {LENGTH:.0f}")
    exact, smooth = _StepRate(events, smooth=False), _StepRate(events, smooth=True)
    models = [_model(k, exact, smooth) for k in counts]
    if days is not None:
        return Target(models, model_prior=prior)
    log_evidence = dict(zip([m.name for m in models], _log_evidence(k_max)[k_min:], strict=True))
    log_z = torch.tensor(list(log_evidence.values()), dtype=torch.float64)
    posterior = (log_z + prior.log()).softmax(0).tolist()
    truth = Truth(
        probabilities=dict(zip(log_evidence, posterior, strict=True)),
        log_evidence=log_evidence,
        source="heights integrated analytically, change points by quadrature; below 1e-6 nats",
    )
    return Target(models, model_prior=prior, truth=truth)


def _model(k: int, exact: LogLikelihood, smooth: LogLikelihood) -> Model:
    priors: dict[str, Any] = {"spacing": Dirichlet(torch.full((k + 1,), 2.0))} if k else {}
    priors["height"] = Gamma(1.0, GAMMA_RATE).expand(torch.Size([k + 1]))
    return Model(f"k={k}", priors, exact, surrogate=smooth, padded=True)


class _StepRate:
    """Log-likelihood of a step rate, from the counting process or from its smooth version.

    The smooth one joins the middles of the steps of the counting process by straight lines,
    so that it has a gradient with respect to the change points.
    """

    def __init__(self, days: Tensor | None = None, *, smooth: bool) -> None:
        days = torch.tensor(DAYS, dtype=torch.float64) if days is None else days
        self.smooth, self._number = smooth, float(len(days))
        knots, counts = torch.unique(days, return_counts=True)
        total = counts.cumsum(0)
        ends = torch.tensor([0.0, LENGTH], dtype=torch.float64)
        if smooth:
            self.knots = torch.cat([ends[:1], knots, ends[1:]])
            middle = total - counts / 2
            self.heights = torch.cat([ends[:1], middle, ends[:1] + len(days)])
        else:
            self.knots, self.heights = knots, torch.cat([ends[:1], total.double()])
        self._whole = not smooth and bool((days == days.floor()).all())
        if self._whole:  # looked up by the day: a sixth of the time of a search
            every = torch.arange(LENGTH + 1, dtype=torch.float64)
            self.heights = self.heights[torch.searchsorted(knots, every, right=True)]
        self._cast: dict[Any, tuple[Tensor, Tensor]] = {}

    def _count(self, time: Tensor) -> Tensor:
        """Events up to each time."""
        key = (time.dtype, time.device)
        if key not in self._cast:
            self._cast[key] = (self.knots.to(time), self.heights.to(time))
        knots, heights = self._cast[key]
        if self._whole:
            return heights[time.detach().clamp(0, LENGTH).nan_to_num().long()]
        if not self.smooth:
            return heights[torch.searchsorted(knots, time.detach().contiguous(), right=True)]
        right = torch.searchsorted(knots, time.detach().contiguous(), right=True)
        right = right.clamp(1, len(knots) - 1)
        x0, x1, y0, y1 = knots[right - 1], knots[right], heights[right - 1], heights[right]
        return y0 + (time - x0) * (y1 - y0) / (x1 - x0)

    def __call__(self, params: dict[str, Tensor]) -> Tensor:
        height = params["height"]
        spacing = params.get("spacing", torch.ones_like(height))
        days = LENGTH * spacing
        edges = self._count(days[:, :-1].cumsum(-1))
        counts = pad(edges, (0, 1), value=self._number) - pad(edges, (1, 0))
        rate = torch.where(height > 0, height, 1.0)  # behind the last step are no events
        return (counts * rate.log() - height * days).sum(-1)


@cache
def _log_evidence(k_max: int, nodes: int = 6, widest: float = 300.0) -> tuple[float, ...]:
    """Log evidences for 0 to ``k_max`` change points, heights integrated out.

    With F_1(t) = g(0, t) and F_{j+1}(t) = int_0^t F_j(s) g(s, t) ds the evidence is
    (2k+1)! L^-(2k+1) F_{k+1}(L), where g holds one spacing and the marginal likelihood of one
    step. g is smooth between events, so each cell between events (split to at most ``widest``
    days) carries its own Gauss-Legendre nodes; an integral that ends inside a cell has nodes
    of its own there, at which F is interpolated.
    """
    days = np.asarray(DAYS, dtype=float)
    events = np.unique(np.concatenate([[0.0], days, [LENGTH]]))
    pieces = [np.linspace(a, b, int((b - a) // widest) + 2) for a, b in pairwise(events)]
    edges = np.unique(np.concatenate(pieces))
    x, w = np.polynomial.legendre.leggauss(nodes)
    half = np.diff(edges) / 2
    time = (edges[:-1, None] + half[:, None] * (x + 1)).ravel()
    weight = (half[:, None] * w).ravel()
    count = np.searchsorted(days, time, side="right")
    cell = np.repeat(np.arange(len(half)), nodes)
    log_step = scipy.special.gammaln(1.0 + np.arange(len(days) + 1)) + math.log(GAMMA_RATE)

    def log_g(length: Any, m: Any) -> Any:
        return np.log(length) + log_step[m] - (1.0 + m) * np.log(GAMMA_RATE + length)

    before = cell[:, None] < cell
    length = np.where(before, time - time[:, None], 1.0)
    log_kernel = np.where(before, log_g(length, np.maximum(count - count[:, None], 0)), -np.inf)
    # Own cell: F is interpolated at (1 + x_i)(1 + x_q) / 2 - 1, the nodes of [-1, x_i]
    inner = (1 + x[:, None]) * (1 + x) / 2 - 1
    interpolate = np.polynomial.legendre.legvander(inner, nodes - 1) @ np.linalg.inv(
        np.polynomial.legendre.legvander(x, nodes - 1)
    )
    to_end = half[:, None, None] * (x[:, None] - inner)
    own = np.exp(log_g(to_end, 0)) * (half[:, None, None] * (1 + x[:, None]) / 2 * w)
    own_cell = np.einsum("ciq,iqr->cir", own, interpolate)

    log_f, step_to_end = log_g(time, count), log_g(LENGTH - time, len(days) - count)
    result = [float(log_g(LENGTH, len(days))) - math.log(LENGTH)]
    for k in range(1, k_max + 1):
        terms = log_f + step_to_end
        normaliser = math.lgamma(2 * k + 2) - (2 * k + 1) * math.log(LENGTH)
        result.append(float(scipy.special.logsumexp(terms, b=weight)) + normaliser)
        column = log_f[:, None] + log_kernel
        in_cell = np.repeat(log_f.reshape(-1, nodes).max(1), nodes)
        top = np.maximum(column.max(0), in_cell)  # each column has its own scale
        earlier = weight @ np.exp(column - top)
        scaled = np.exp(log_f.reshape(-1, 1, nodes) - top.reshape(-1, nodes, 1))
        total = earlier + (own_cell * scaled).sum(-1).ravel()
        log_f = np.log(np.maximum(total, 1e-300)) + top  # rounding may go below 0 near t = 0
    return tuple(result)
