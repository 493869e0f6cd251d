"""Climbs of each model of a small space, and the normals that they found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from ..errors import TRJError
from ..pilot.parts import Part
from ..pilot.report import LOST_NATS
from ..target.exchangeable import Components, components_of
from ..target.target import Target
from ..transport.base import Identity, Transport
from ..transport.labelled_components import LabelledComponents
from ..transport.mixture import MixtureOfMaps
from ..transport.parts import Gaussians
from .pathfinder import Pathfinder, pathfinder

LIGHT = 0.01  # mass of a posterior that climbs may find and q may lack

RAREST = math.log(1e-4)  # weight of a normal that is left out

PATHS = 8  # climbs of a model

HOPELESS, GIVEN_UP = 30.0, 4  # nats below the best count, and such counts in a row, that end it

UNLIKELY = 8.0  # nats below the best bound from which a count of like components does not matter

BIRTHS, TRIED_BIRTHS = 4, 64  # of them that begin with a newborn component, and newborns for each

Normal = tuple[Tensor, Tensor, Tensor]  # log mass, mean (D,), triangular factor (D, D)

APART = 4.0  # standard deviations of a squared length by which normals of climbs differ


class ClimbsByModel:
    """Climbs of each model, made when they are first asked for.

    Of more than 64 counts of like components, from the smallest on, as long as they gain.

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
        best, behind = -math.inf, 0
        for code in self.codes:
            starts = self._births(code, found[-1]) if found else None
            paths = PATHS if starts is None else PATHS - len(starts)
            try:
                one = pathfinder(self.target, code, self.generator, paths=paths, starts=starts)
            except TRJError:
                one = None
            found.append(one)
            if self.like is not None and not self.target.space.few:
                height = -math.inf if one is None else _of_every_labelling(one)
                best, behind = max(best, height), behind + 1 if height < best - HOPELESS else 0
                if behind == GIVEN_UP:
                    break
        return found

    @property
    def likely(self) -> Tensor:
        """Of like components the counts whose best bound is not hopeless, else all, (M,) bool."""
        if self.like is None:
            return torch.ones(len(self.codes), dtype=torch.bool)
        bounds = [-math.inf if f is None else _of_every_labelling(f) for f in self.found]
        height = torch.tensor(bounds)
        return height > height.max() - UNLIKELY

    @cached_property
    def like(self) -> Components | None:
        """The like components that the models count, where that is all that they differ in."""
        parts = components_of(self.target)
        return parts[0] if len(parts) == 1 == len(self.target.space.kinds) else None

    def _births(self, code: Tensor, fewer: Pathfinder | None) -> Tensor | None:
        """The best normal of one component fewer, with the newborns that fit best, (n, D).

        From prior draws alone climbs of many components end where two of them share what belongs
        to one.
        """
        if self.like is None or fewer is None:
            return None
        slots = self.like.slots[int(code[0]) - 1]
        codes = code.expand(BIRTHS * TRIED_BIRTHS, -1)
        theta = fewer.loc[fewer.elbo.argmax()].to(self.target.dtype).repeat(len(codes), 1)
        theta[:, slots] = self.target.sample_prior(codes, self.generator)[:, slots].to(theta)
        with torch.no_grad():
            height = self.target.log_joint(codes, theta).nan_to_num(-math.inf, -math.inf, -math.inf)
        best = height.view(BIRTHS, -1).argmax(1)
        return theta.view(BIRTHS, -1, theta.shape[1])[torch.arange(BIRTHS), best]

    def distinct(self, parts: Sequence[Part] = ()) -> Transport:
        """Normals of climbs that ended in different places, and of parts found by other means.

        Of like components in one labelling: the posterior has a copy of it for every other.
        """
        each = []
        for m, found in enumerate(self.found):
            assert found is not None
            rows = zip(found.elbo.double(), found.loc, found.scale_tril, strict=True)
            each.append([*rows, *(n for p in parts if (n := self._normal_of(p, m)) is not None)])
        if self.like is not None:
            each = [self._in_places(n, self.like, m) for m, n in enumerate(each)]
        each = [self._apart(normals) for normals in each]
        like, most = each[0][0][1], max(map(len, each))
        m, d = len(self.codes), self.target.dim
        loc = like.new_zeros(m, most, d)
        tril = torch.eye(d, dtype=like.dtype, device=like.device).repeat(m, most, 1, 1)
        log_weights = like.new_full((m, most), -math.inf)
        log_weights[:, 0] = 0.0  # of counts that were given up
        for i, normals in enumerate(each):
            for k, (log_w, centre, factor) in enumerate(normals):
                loc[i, k], tril[i, k], log_weights[i, k] = centre, factor, log_w
        made = MixtureOfMaps(Gaussians(self.target.space, loc, tril), log_weights=log_weights)
        transport: Transport = made.requires_grad_(False)
        if self.like is not None:  # places of the components are those of the best normal
            slots, each_tril = self.like.slots, tril[:, 0]
            variance = each_tril.square().sum(-1)[:, slots]
            transport = LabelledComponents(made, loc[:, 0][:, slots], variance)
        return transport.to(self.target.device, self.target.dtype)

    def _in_places(self, normals: list[Normal], like: Components, m: int) -> list[Normal]:
        """Normals with components in the places that they have in the best one."""
        best, code = max(normals, key=lambda n: float(n[0])), self.codes[m : m + 1]
        mean, variance = (x[like.slots] for x in (best[1], best[2].square().sum(-1)))
        shape = (int(self.target.space.size or 1), *mean.shape)
        places = LabelledComponents(
            Identity(self.target.space), mean.expand(shape), variance.expand(shape)
        )
        slots, found = like.slots, []
        for log_mass, loc, tril in normals:
            order = torch.arange(len(loc), device=loc.device)
            order[slots] = slots[places.places(loc[None], code)[0]]
            covariance = (tril.double() @ tril.double().mT)[order[:, None], order]
            found.append((log_mass, loc[order], torch.linalg.cholesky(covariance).to(tril)))
        return found

    def _apart(self, normals: list[Normal]) -> list[Normal]:
        """The best of normals at each place, with log weights."""
        kept: list[Normal] = []
        for normal in sorted(normals, key=lambda n: -float(n[0])):
            if not any(self._near(normal, other) for other in kept):
                kept.append(normal)
        log_w = torch.stack([n[0] for n in kept]).log_softmax(0)
        return [(w, *n[1:]) for w, n in zip(log_w, kept, strict=True) if w > RAREST]

    def _normal_of(self, part: Part, m: int) -> Normal | None:
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

    def _near(self, normal: Normal, other: Normal) -> bool:
        """Whether a normal's centre lies in the bulk of another."""
        gap = (normal[1] - other[1]).double()[:, None]
        z = torch.linalg.solve_triangular(other[2].double(), gap, upper=False)
        d = self.target.dim
        return float(z.square().sum()) < d + APART * math.sqrt(2 * d)

    def missed(
        self, transport: Transport, log_evidence: Sequence[float]
    ) -> list[tuple[str, float]]:
        """Parts of posteriors that climbs have found and a map lacks.

        Arguments:
            transport: The map.
            log_evidence: Of each model with climbs, nats, by importance sampling.

        Returns:
            Models, and how heavy what was found is at least, beside what the map has.
        """
        found, known = [], torch.tensor([*log_evidence], dtype=torch.float64)
        known = known + self.target.space.log_prior(self.codes[: len(known)]).double().cpu()
        total, log_mass = float(known.nan_to_num(-math.inf).logsumexp(0)), known.tolist()
        for m, climbs in enumerate(self.found):
            if climbs is None or not bool(self.target.space.active(self.codes[m : m + 1]).any()):
                continue
            code = self.codes[m].expand(len(climbs), -1)
            loc = climbs.loc.to(self.target.dtype)
            with torch.no_grad():
                short = self.target.log_joint(code, loc).double() - log_mass[m]
                filled = transport.with_spares(loc, code)
                short = short - transport.log_prob(filled, code).double()
            mass = climbs.elbo.double() - log_mass[m]
            of_note = climbs.elbo.double() - total > math.log(LIGHT)
            lost = (short > LOST_NATS) & (mass > math.log(LIGHT)) & of_note
            if bool(lost.any()):
                (label,) = self.target.space.label(self.codes[m : m + 1])
                found.append((label, float(mass[lost].max().exp())))
        return found


def _of_every_labelling(found: Pathfinder) -> float:
    """The best bound of climbs of like components, times k!, nats."""
    return float(found.elbo.max()) + math.lgamma(int(found.code[0]) + 1)


def grown(target: Target, generator: torch.Generator) -> ClimbsByModel | None:
    """Climbs of more than 64 counts of like components, if each of the first ones has some."""
    space = target.space
    if space.few or not space.enumerable or not target.differentiable or not target.dim:
        return None
    climbs = ClimbsByModel(target, space.enumerate(), generator)
    if climbs.like is None or any(found is None for found in climbs.found):
        return None
    return climbs


def lacking(
    target: Target, transport: Transport, log_evidence: Sequence[float], generator: torch.Generator
) -> list[tuple[str, float]]:
    """What climbs of each count of like components find that a map lacks; nothing of other models.

    A map that has settled on a wrong count fits it well, and all its weights say so.

    Arguments:
        log_evidence: Of each model by the map, nats.
    """
    climbs = ClimbsByModel(target, target.space.enumerate(), generator)
    if climbs.like is None or not target.differentiable:
        return []
    return climbs.missed(transport, log_evidence)
