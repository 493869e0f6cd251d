"""Parts of a posterior that plain prior draws meet and no map knows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..target import Target
from ..transport import Transport
from .audit import HOPELESS

CHUNK = 16_384  # draws evaluated at once
TOP = 512  # draws of the most mass that are looked at under the map
MET = 3  # draws in the lost part, below which it must outweigh all that is known
LOST = 0.05  # share of the known mass from which a part matters


@dataclass(frozen=True)
class Screening:
    """What prior draws of one model say of the maps of its posterior.

    Attributes:
        model: Label.
        draws: Prior draws that were looked at. A part of the posterior that holds less than three
            over this number of the prior may have been missed by all.
        met: How many of them lie where no map has anything to speak of although the posterior has.
        share: Their mass over that of the model as it is known.
    """

    model: str
    draws: int
    met: int
    share: float

    @property
    def lost(self) -> bool:
        """Whether a part of the posterior that matters is missing from the maps."""
        return self.share > (LOST if self.met >= MET else 1.0)


@torch.no_grad()
def screen(
    target: Target,
    code: Tensor,
    log_evidence: float,
    transports: Iterable[Transport],
    n: int,
    generator: torch.Generator,
) -> Screening:
    """Look for posterior mass at prior draws, by their likelihood, that all maps have lost.

    Narrow modes that tempering loses between its temperatures lie high: a few among many prior
    draws that land there outweigh all others.

    Arguments:
        target: The target.
        code: One model, shape (L,).
        log_evidence: Of the model as it is known, nats.
        transports: Maps; a part is lost that none of them knows. Later ones are asked only where
            the ones before have lost something.
        n: Prior draws.
        generator: Source of randomness.
    """
    (label,) = target.space.label(code[None])
    log_model = float(target.space.log_prior(code[None])[0])
    kept: list[tuple[Tensor, Tensor, Tensor]] = []
    for size in [CHUNK] * (n // CHUNK) + ([n % CHUNK] if n % CHUNK else []):
        codes = code.expand(size, -1)
        theta = target.sample_prior(codes, generator)
        usable = theta.isfinite().all(-1)
        theta = torch.where(usable[:, None], theta, 0.0)
        log_prior, log_likelihood = target.log_prior_and_likelihood(codes, theta)
        usable &= log_prior > -math.inf
        mass = torch.where(usable, log_likelihood.double(), -math.inf) - log_evidence - math.log(n)
        log_pi = (log_prior - log_model + log_likelihood).double() - log_evidence
        best = mass.topk(min(TOP, size)).indices
        kept.append((theta[best], mass[best], log_pi[best]))
    theta, mass, log_pi = (torch.cat(x) for x in zip(*kept, strict=True))
    best = mass.topk(min(TOP, len(mass))).indices
    theta, mass, log_pi = theta[best], mass[best], log_pi[best]
    lost = mass > math.log(LOST / TOP)
    for transport in transports:
        log_q = transport.log_prob(theta, code.expand(len(theta), -1)).double()
        lost &= log_pi - log_q.nan_to_num(-math.inf) > HOPELESS
        if not bool(lost.any()):
            break
    share = float(mass[lost].exp().sum())
    return Screening(label, n, int(lost.sum()), share)
