"""Importance sampling from a map whose tails are made longer: what its own draws can't show."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..promises import PARETO_K_RELIABLE
from ..target.target import Target
from ..transport.base import Bijection, Transport
from ..transport.mixture import MixtureOfMaps
from ..transport.reference import Extended, Gaussian
from .estimate import Estimate
from .importance import CHUNK, EVEN, pareto_k

PLAIN = 0.5  # share of the draws that are the map's own, so that no weight is more than doubled

DF = 2.0  # degrees of freedom of the others: they come from farther out than most posteriors reach

MOST_PARTS = 16  # of a mixture, each of which every draw is pulled through


class FarDraws(NamedTuple):
    """Draws of a map with longer tails.

    Attributes:
        log_w: Log joint minus log density of the longer tails, shape (n,), float64, nats; -inf
            where there is no density.
        log_ratio: Log density of the longer tails minus that of the map, shape (n,), nats.
        theta: Coordinates that the model uses, shape (n, d).
    """

    log_w: Tensor
    log_ratio: Tensor
    theta: Tensor

    def spread_missed(self) -> tuple[Tensor, Tensor]:
        """How much larger standard deviations are than under the map, and errors of that.

        Of each coordinate, shapes (d,), as a share; both by the same draws, weighed for the
        posterior and for the map, so that what the two have in common has no error. Zero, and an
        infinite error, of what can't be weighed.
        """
        theta = self.theta.double()
        variances, influences = [], []
        for log_weight in (self.log_w, -self.log_ratio):
            w = log_weight.softmax(0)[:, None]
            squares = (theta - (w * theta).sum(0)).square()
            variance = (w * squares).sum(0)
            variances.append(variance)
            influences.append(w * (squares / variance - 1))
        gap = (variances[0] / variances[1]).sqrt() - 1
        error = 0.5 * (1 + gap) * (influences[0] - influences[1]).square().sum(0).sqrt()
        known = gap.isfinite() & error.isfinite()
        return torch.where(known, gap, 0.0), torch.where(known, error, math.inf)

    def log_evidence(self) -> Estimate:
        r"""The log of p(model) times the evidence, nats; flagged where Pareto k is high.

        The map's own density over the longer one, whose mean is one, is a control variate: where
        the map is right, the weights are proportional to it, and nothing is left of their noise.

        Source:
            Owen & Zhou (2000), https://doi.org/10.1080/01621459.2000.10473909
        """
        k, top = pareto_k(self.log_w), self.log_w.max()
        w, control = (self.log_w - top).exp(), (-self.log_ratio).exp()
        gap = control - control.mean()
        slope = (gap * w).sum() / gap.square().sum().clamp(min=1e-300)
        found = w - slope * (control - 1)
        mean, error = float(found.mean()), float(found.std()) / len(found) ** 0.5
        if not mean > 0:
            return Estimate(math.nan, math.nan, 0.0, "no draw in the support")
        error, n = error / mean, len(found)
        ess = n / (1 + n * error**2)
        flawed = k > PARETO_K_RELIABLE and ess <= EVEN * n
        return Estimate(
            math.log(mean) + float(top), error, ess, f"Pareto k {k:.2f}" if flawed else ""
        )


def far_draws(
    target: Target, transport: Transport, code: Tensor, n: int, generator: torch.Generator
) -> FarDraws | None:
    r"""Weigh draws of a map with longer tails.

    Half of the reference points are the map's own. A quarter have one coordinate from Student's
    t, a quarter all of them, by a common factor:

    .. math:: \nu'(z) = \nu(z) \left(\frac12 + \frac14 \frac1d \sum_j \frac{t(z_j)}{\phi(z_j)}
        + \frac14 \frac{t_d(z)}{\nu(z)}\right)

    A posterior with longer tails than q has a mass out there that q never draws from: weights of
    q's own draws look even, and their mean is too low by that mass.

    Arguments:
        target: The target.
        transport: The map.
        code: One model, shape (L,).
        n: Number of draws.
        generator: Source of randomness.

    Returns:
        The draws; None of a model without parameters, and of maps whose reference point does not
        tell their density.

    Source:
        Defensive mixtures: Hesterberg (1995), https://doi.org/10.1080/00401706.1995.10484303
    """
    slots = target.space.active(code[None])[0].nonzero()[:, 0]
    if not _has_normal_reference(transport) or not len(slots):
        return None
    weights, ratios, drawn = [], [], []
    with torch.no_grad():
        for size in [CHUNK] * (n // CHUNK) + ([n % CHUNK] if n % CHUNK else []):
            codes = code.expand(size, -1)
            z = transport.reference.sample((size, target.dim), generator, target.dtype)
            z[:, slots] = _further(z[:, slots], generator)
            theta, log_q = transport.push(z, codes)
            if isinstance(transport, MixtureOfMaps):
                each = transport.log_shares(z, codes, lambda z: _log_ratio(z[:, slots]))
                log_ratio = each.logsumexp(1)
            else:
                log_ratio = _log_ratio(z[:, slots])
            log_w = (target.log_joint(codes, theta) - log_q - log_ratio).double()
            weights.append(log_w.nan_to_num(-math.inf, -math.inf, -math.inf))
            ratios.append(log_ratio.double())
            drawn.append(theta[:, slots])
    return FarDraws(torch.cat(weights), torch.cat(ratios), torch.cat(drawn))


def _has_normal_reference(transport: Transport) -> bool:
    if isinstance(transport, MixtureOfMaps):
        inner = transport.reference.inner if isinstance(transport.reference, Extended) else None
        few = transport.components.number <= MOST_PARTS
        return few and isinstance(inner, Gaussian) and inner.scale == 1
    reference = transport.reference
    normal = isinstance(reference, Gaussian) and reference.scale == 1
    return isinstance(transport, Bijection) and transport.spares_pass and normal


def _further(z: Tensor, generator: torch.Generator) -> Tensor:
    """Standard normal points (n, d), some of which are moved out."""
    n, d = z.shape
    u = torch.rand(n, generator=generator, device=z.device, dtype=z.dtype)[:, None]
    chi_square = -2 * torch.rand(n, generator=generator, device=z.device, dtype=z.dtype).log()
    which = torch.randint(d, (n,), generator=generator, device=z.device)
    one = torch.nn.functional.one_hot(which, d).bool()
    moved = torch.where(u < (1 + PLAIN) / 2, one, u >= (1 + PLAIN) / 2) & (u >= PLAIN)
    return torch.where(moved, z * (DF / chi_square).sqrt()[:, None], z)


def _log_ratio(z: Tensor) -> Tensor:
    """Log density of such points (n, d) relative to the standard normal, shape (n,)."""
    d = z.shape[1]
    one = (_log_t(z.square(), 1) - _log_normal(z.square(), 1)).logsumexp(1) - math.log(d)
    squares = z.square().sum(1)
    every = _log_t(squares, d) - _log_normal(squares, d)
    rest = math.log((1 - PLAIN) / 2)
    plain = torch.full_like(one, math.log(PLAIN))
    return torch.stack([plain, one + rest, every + rest]).logsumexp(0)


def _log_normal(squares: Tensor, d: int) -> Tensor:
    return -0.5 * squares - 0.5 * d * math.log(2 * math.pi)


def _log_t(squares: Tensor, d: int) -> Tensor:
    constant = math.lgamma((DF + d) / 2) - math.lgamma(DF / 2) - d / 2 * math.log(DF * math.pi)
    return constant - (DF + d) / 2 * torch.log1p(squares / DF)
