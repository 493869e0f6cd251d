"""Climbs of each model of a small space, and the normals that they found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from ..doubts.doubt import Doubt
from ..doubts.of_search import of_climbs
from ..errors import TRJError
from ..fit.pathfinder import Pathfinder, pathfinder
from ..pilot.parts import Part
from ..pilot.report import LOST_NATS
from ..target.target import Target
from ..transport.base import Transport
from ..transport.mixture import MixtureOfMaps
from ..transport.parts import Gaussians

LIGHT = 0.01  # mass of a posterior that climbs may find and q may lack

RAREST = math.log(1e-4)  # weight of a normal that is left out

APART = 4.0  # standard deviations of a squared length by which normals of climbs differ


class ClimbsByModel:
    """Climbs of each model, made when they are first asked for.

    Arguments:
        target: The target, with gradients.
        codes: All models, shape (M, L).
        generator: Source of randomness.
    """

    def __init__(self, target: Target, codes: Tensor, generator: torch.Generator) -> None:
        self.target, self.codes, self.generator = target, codes, generator

    @property
    def made(self) -> bool:
        """Whether somebody has asked for them."""
        return "found" in self.__dict__

    @cached_property
    def found(self) -> list[Pathfinder | None]:
        """Climbs of each model; None of one where all failed."""
        found: list[Pathfinder | None] = []
        for code in self.codes:
            try:
                found.append(pathfinder(self.target, code, self.generator))
            except TRJError:
                found.append(None)
        return found

    def distinct(self, parts: Sequence[Part] = ()) -> MixtureOfMaps:
        """Normals of climbs that ended in different places, and of parts found by other means."""
        each = []
        for m, found in enumerate(self.found):
            assert found is not None
            kept: list[int] = []
            for k in found.elbo.argsort(descending=True).tolist():
                if not any(self._near(found, k, other) for other in kept):
                    kept.append(k)
            normals = [(found.elbo[k].double(), found.loc[k], found.scale_tril[k]) for k in kept]
            normals += [n for p in parts if (n := self._normal_of(p, m)) is not None]
            log_w = torch.stack([n[0] for n in normals]).log_softmax(0)
            each.append([(w, *n[1:]) for w, n in zip(log_w, normals, strict=True) if w > RAREST])
        like, most = each[0][0][1], max(map(len, each))
        m, d = len(each), self.target.dim
        loc = like.new_zeros(m, most, d)
        tril = torch.eye(d, dtype=like.dtype, device=like.device).repeat(m, most, 1, 1)
        log_weights = like.new_full((m, most), -math.inf)
        for i, normals in enumerate(each):
            for k, (log_w, centre, factor) in enumerate(normals):
                loc[i, k], tril[i, k], log_weights[i, k] = centre, factor, log_w
        made = MixtureOfMaps(Gaussians(self.target.space, loc, tril), log_weights=log_weights)
        return made.requires_grad_(False).to(self.target.device, self.target.dtype)

    def _normal_of(self, part: Part, m: int) -> tuple[Tensor, Tensor, Tensor] | None:
        """Log mass, mean and factor of a part, if it is one of model ``m``."""
        if not torch.equal(part.code, self.codes[m]):
            return None
        slots = part.place.used.nonzero()[:, 0]
        x, weight = part.theta[:, slots].double(), part.log_weight.exp()
        centre = weight @ x
        gap = x - centre
        covariance = gap.mT @ (weight[:, None] * gap)
        loc = x.new_zeros(self.target.dim)
        factor = torch.eye(self.target.dim, dtype=x.dtype, device=x.device)
        loc[slots] = centre
        ridge = 1e-9 * covariance.diagonal().mean() * torch.eye(len(slots)).to(x)
        factor[slots[:, None], slots] = torch.linalg.cholesky(covariance + ridge)
        return torch.as_tensor(part.log_mass, dtype=x.dtype), loc, factor

    def _near(self, found: Pathfinder, k: int, other: int) -> bool:
        """Whether a normal's centre lies in the bulk of another."""
        gap = (found.loc[k] - found.loc[other]).double()[:, None]
        z = torch.linalg.solve_triangular(found.scale_tril[other].double(), gap, upper=False)
        d = self.target.dim
        return float(z.square().sum()) < d + APART * math.sqrt(2 * d)

    def missed(self, transport: Transport, log_evidence: list[float]) -> list[Doubt]:
        """Parts of posteriors that climbs have found and a map lacks.

        Arguments:
            transport: The map.
            log_evidence: Of each model, p(model) included, nats, by importance sampling.
        """
        found = []
        if not self.made:
            return []
        for m, climbs in enumerate(self.found):
            if climbs is None or not bool(self.target.space.active(self.codes[m : m + 1]).any()):
                continue
            code = self.codes[m].expand(len(climbs), -1)
            loc = climbs.loc.to(self.target.dtype)
            with torch.no_grad():
                short = self.target.log_joint(code, loc).double() - log_evidence[m]
                filled = transport.with_spares(loc, code)
                short = short - transport.log_prob(filled, code).double()
            mass = climbs.elbo.double() - log_evidence[m]
            lost = (short > LOST_NATS) & (mass > math.log(LIGHT))
            if bool(lost.any()):
                (label,) = self.target.space.label(self.codes[m : m + 1])
                found.append(of_climbs(label, float(mass[lost].max().exp())))
        return found
