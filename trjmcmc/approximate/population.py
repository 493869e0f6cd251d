"""Population Monte Carlo: normals fitted again and again to weighted draws of their own."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..estimate.importance import pareto_smoothed
from ..pilot.audit import Audit
from ..promises import PARETO_K_RELIABLE
from ..target.target import Target
from ..transport.mixture import MixtureOfMaps
from ..transport.normals import NormalMixture
from ..transport.parts import Gaussians
from .policy import ApproximationPolicy

GROWTH = 3  # of the rounds

COMPARED = 60_000  # draws by which numbers of normals are compared

REFITTED = 120_000  # draws that normals are fitted to at most, in one round

EVALUATED = 50_000  # points at once

JUDGES = 4000  # draws of the pilot run that choose the number of normals at first

HELD_OUT = 0.2  # share of weighted draws that do later


class PopulationMonteCarlo:
    """Mixtures of normals of each model of a small space, in few dimensions.

    Normals are fitted to draws of a pilot run, as many as predict its held-out draws best; then,
    round by round, to their own draws by importance weights. Each round lowers the divergence
    KL(p | q) from the posterior p, which covers what the pilot run has found.

    Arguments:
        target: The target; no gradients are asked for.
        audit: The pilot run.
        generator: Source of randomness.
        policy: Numbers of normals, rounds and draws.

    Attributes:
        evaluations: That were made.

    Source:
        Cappe, Douc, Guillin, Marin & Robert (2008), https://doi.org/10.1007/s11222-008-9059-x
    """

    def __init__(
        self,
        target: Target,
        audit: Audit,
        generator: torch.Generator,
        policy: ApproximationPolicy,
    ) -> None:
        self.target, self.audit, self.generator, self.policy = target, audit, generator, policy
        self.codes = target.space.enumerate()
        self.slots = [row.nonzero()[:, 0] for row in target.space.active(self.codes)]
        self.normals = [self._first(m) for m in range(len(self.codes))]
        self.evaluations = 0
        self._found: dict[int, tuple[Tensor, Tensor, Tensor]] = {}

    def weighted(self, m: int) -> tuple[Tensor, Tensor, Tensor] | None:
        """All draws of a model in its own coordinates, (n, d), their log weights and log joints.

        None if there were no rounds, or the weights can't be averaged.
        """
        if m not in self._found:
            return None
        x, log_w, log_joint = self._found[m]
        smooth, k = pareto_smoothed(log_w)
        return (x, smooth, log_joint) if k < PARETO_K_RELIABLE else None

    def run(self, most: float = math.inf) -> MixtureOfMaps:
        """The rounds, with at most so many evaluations; models share them alike."""
        each = most / len(self.codes)
        for m, slots in enumerate(self.slots):
            if len(slots):
                self._adapt(m, each)
        return self.map()

    def map(self) -> MixtureOfMaps:
        """The mixtures as a map."""
        all_normals = [_with_tails(n, self.policy) for n in self.normals]
        d, k = self.target.dim, max(len(n.weight) for n in all_normals)
        like = self.normals[0].mean
        loc = like.new_zeros(len(self.codes), k, d)
        tril = torch.eye(d, dtype=like.dtype, device=like.device).repeat(len(loc), k, 1, 1)
        log_weights = like.new_full((len(loc), k), -math.inf)
        for m, (slots, normals) in enumerate(zip(self.slots, all_normals, strict=True)):
            n = len(normals.weight)
            log_weights[m, :n] = normals.weight.log()
            loc[m, :n, slots] = normals.mean
            tril[m, :n, slots[:, None], slots] = normals.factor
        parts = Gaussians(self.target.space, loc, tril)
        found = MixtureOfMaps(parts, log_weights=log_weights).requires_grad_(False)
        return found.to(self.target.device, self.target.dtype)

    # ---- one model ----------------------------------------------------------------------------

    def _first(self, m: int) -> NormalMixture:
        """Normals fitted to the pilot run, as many as predict held-out draws best."""
        slots, device = self.slots[m], self.target.device
        if not len(slots):
            one = torch.ones(1, dtype=torch.float64, device=device)
            return NormalMixture(one, one.new_zeros(1, 0), one.new_zeros(1, 0, 0))
        place = torch.full((self.policy.first_round,), m, device=device)
        train = self.audit.draw(place, range(3))[0][:, slots].double()
        judge = self.audit.draw(place[:JUDGES], [3])[0][:, slots].double()
        k, best, score = self.policy.fewest_normals, None, -math.inf
        while k <= self.policy.most_normals:
            found = NormalMixture.fitted(train, k, self.generator, draws=len(train))
            now = float(found.log_prob(judge).mean())
            if best is not None and now < score + self.policy.predicted:
                break
            best, score, k = found, now, 4 * k
        assert best is not None
        return best

    def _adapt(self, m: int, most: float) -> None:
        draws, log_w, joints = [], [], []
        size, spent = self.policy.first_round, 0
        for _ in range(self.policy.rounds):
            size = int(min(size, most - spent))
            if size < self.policy.first_round:
                return
            spent += size
            x, w, joint = self._weighted(m, size)
            draws.append(x)
            log_w.append(w)
            joints.append(joint)
            self._found[m] = torch.cat(draws), torch.cat(log_w), torch.cat(joints)
            tilted = self.policy.order * torch.cat(log_w)
            together = pareto_smoothed(tilted)[0].softmax(0)
            ess = 1 / float(together.square().sum())
            each = ess / (len(self.slots[m]) + 1)
            k = len(self.normals[m].weight)
            if not math.isfinite(ess) or each < 25 * k:  # too few to learn from
                return
            self.normals[m] = self._refitted(m, torch.cat(draws), together)
            size *= GROWTH

    def _refitted(self, m: int, x: Tensor, weight: Tensor) -> NormalMixture:
        """The normals of a model, or more of them if these predict draws kept back better."""
        policy, best = self.policy, self.normals[m]
        some = torch.randperm(len(x), generator=self.generator, device=x.device)[:REFITTED]
        x, weight = x[some], weight[some]
        if 4 * len(best.weight) <= policy.most_normals:
            best = self._compared(best, x[:COMPARED], weight[:COMPARED])
        best = best.refitted(x, weight)
        # moments are exact, where several normals of nearly a normal creep towards their best
        one = _one_of(best).refitted(x, weight)
        short = float(weight @ (best.log_prob(x) - one.log_prob(x)) / weight.sum())
        return best if short > policy.predicted / 10 else one

    def _compared(self, best: NormalMixture, x: Tensor, weight: Tensor) -> NormalMixture:
        """The normals, or four times as many, and so on, by draws that are kept back."""
        policy = self.policy
        kept = torch.rand(len(x), generator=self.generator, device=x.device) < HELD_OUT
        judges = weight[kept] / weight[kept].sum()
        best = best.refitted(x[~kept], weight[~kept])
        score = float(judges @ best.log_prob(x[kept]))
        while (k := 4 * len(best.weight)) <= policy.most_normals:
            some = torch.multinomial(
                weight * ~kept, policy.first_round, True, generator=self.generator
            )
            more = NormalMixture.fitted(x[some], k, self.generator, draws=len(some))
            more = more.refitted(x[~kept], weight[~kept])
            now = float(judges @ more.log_prob(x[kept]))
            if now < score + policy.predicted:
                break
            best, score = more, now
        return best

    def _weighted(self, m: int, n: int) -> tuple[Tensor, Tensor, Tensor]:
        """Draws of the normals of a model, (n, d), log weights and log joint densities, (n,)."""
        normals, slots = self.normals[m], self.slots[m]
        x = normals.sample(n, self.generator)
        log_joint = torch.empty(n, dtype=torch.float64, device=x.device)
        log_q = torch.empty_like(log_joint)
        for rows in torch.arange(n, device=x.device).split(EVALUATED):
            theta = x.new_zeros(len(rows), self.target.dim)
            theta[:, slots] = x[rows]
            code = self.codes[m].expand(len(rows), -1)
            with torch.no_grad():
                log_joint[rows] = self.target.log_joint(code, theta.to(self.target.dtype)).double()
            log_q[rows] = normals.log_prob(x[rows])
        self.evaluations += n
        return x, (log_joint - log_q).nan_to_num(-math.inf, -math.inf, -math.inf), log_joint


def _one_of(normals: NormalMixture) -> NormalMixture:
    """The first of some normals, alone."""
    return NormalMixture(torch.ones_like(normals.weight[:1]), normals.mean[:1], normals.factor[:1])


def _with_tails(normals: NormalMixture, policy: ApproximationPolicy) -> NormalMixture:
    """A share of each normal made wider, so that weights in the tails stay small.

    The rest is made narrower, so that both together have the covariance that was fitted.
    """
    share, width = policy.tail_share, policy.tail_width
    narrow = (1 + share * (width**2 - 1)) ** -0.5
    return NormalMixture(
        torch.cat([(1 - share) * normals.weight, share * normals.weight]),
        normals.mean.repeat(2, 1),
        torch.cat([narrow * normals.factor, narrow * width * normals.factor]),
    )
