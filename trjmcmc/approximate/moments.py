"""Draws of q that Hamiltonian steps have moved, and maps that are given their moments."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ..kernel.base import Kernel, State, start
from ..kernel.inside.hmc import HMC
from ..target.target import Target
from ..transport.base import Bijection, Identity, Transport
from ..transport.mixture import MixtureOfMaps
from ..transport.whitened import Whitened
from .policy import ApproximationPolicy

SETTLING = 5  # steps of the chains before their draws count

LEAPS = 6  # of a step: a quarter of an orbit in 100 coordinates, after which squares are forgotten

STEP = 0.9  # of a leap in one coordinate; in more it falls with the fourth root of their number

LEAST = 0.1  # variance along a direction, over that of q

JUDGES = 4  # one chain in so many has no say in what it judges

FEWEST_STEPS = 5  # that count, if there are evaluations for fewer than the policy's

FEWEST_CHAINS = 40  # that start where there is a density

SHARES = (1.0, 0.5)  # of the way to the moments of the chains that are tried

LOSS = 0.5  # nats off KL(p | q) that a nat of the bound is worth


@dataclass(frozen=True)
class Moved:
    """Draws of one model's q, and where chains that started at some of them went.

    Attributes:
        before: Draws of q, shape (N, d), in the model's own coordinates.
        after: Draws of the chains, shape (R, C, d).
    """

    before: Tensor
    after: Tensor


@dataclass(eq=False, repr=False)
class Widening:
    """Gives q the means and covariances of posteriors, as far as short chains can tell.

    Reverse KL ends at maps that are too narrow where a family can't follow a posterior, most so in
    many coordinates. Chains that start at draws of q and take Hamiltonian steps are nearer to the
    posterior than q is, however uneven importance weights are. How their moments differ from those
    of q is signal and noise: half of the chains say in which directions, the other half how much.

    Arguments:
        target: A target with gradients.
        codes: Its models, shape (M, L), in the order of ``space.enumerate()``.
        generator: Source of randomness.
        policy: Numbers of draws, chains and steps.

    Source:
        Maps that learn from chains started at their draws: Naesseth, Lindsten & Blei (2020),
        https://arxiv.org/abs/2003.10374; directions by one half, variances by the other: Lam
        (2016), https://doi.org/10.1214/15-AOS1393
    """

    target: Target
    codes: Tensor
    generator: torch.Generator
    policy: ApproximationPolicy

    @cached_property
    def active(self) -> Tensor:
        """Coordinates that each model uses, shape (M, D), bool."""
        return self.target.space.active(self.codes)

    def of(self, transport: Transport, which: list[int], most: float = math.inf) -> Transport:
        """The map with the moments of the posteriors of some models, by position.

        The whole way, or half of it, or nothing: the first that takes more off KL(p | q), by chains
        that had no say in it, than half of what it takes off the bound, by fresh draws. A family
        that can't follow a posterior has one divergence at the cost of the other; intervals of the
        right width are preferred.

        Arguments:
            transport: A map that :func:`can_be_followed`.
            which: Positions of models.
            most: Evaluations at most, about.
        """
        d = self.target.dim
        loc = torch.zeros(len(self.codes), d, dtype=self.target.dtype, device=self.codes.device)
        factor = torch.eye(d).to(loc).repeat(len(loc), 1, 1)
        for m in which:
            steps = self._steps(most / len(which))
            if steps < FEWEST_STEPS:
                break
            slots = self.active[m].nonzero()[:, 0]
            moved = self.moved(transport, m, steps)
            if moved is None:
                continue
            says = torch.arange(moved.after.shape[1], device=loc.device) % JUDGES > 0
            judges = moved.after[:, ~says].flatten(0, 1)
            shift, matrix = difference(moved.before, moved.after[:, says])
            for share in SHARES:
                there, by = loc.clone(), factor.clone()
                there[m, slots] = share * shift.to(loc)
                by[m, slots[:, None], slots] += share * (matrix - eye_like(matrix)).to(loc)
                if self._gain(transport, followed(transport, there, by), m, judges) > 0:
                    loc, factor = there, by
                    break
        return followed(transport, loc, factor)

    def _steps(self, most: float) -> int:
        """Steps that count for so many evaluations."""
        p = self.policy
        each = p.moved_chains * (LEAPS + 2)
        return int(min(p.moved_steps, (most - 6 * p.moved_judges) / each - SETTLING))

    @torch.no_grad()
    def moved(self, transport: Transport, m: int, steps: int) -> Moved | None:
        """Draws of a model, and what chains make of them in so many steps.

        None where the draws have no covariance, or few of them a density.
        """
        p, target, slots = self.policy, self.target, self.active[m].nonzero()[:, 0]
        theta = self._draws(transport, m, p.moved_draws)[0]
        theta = theta[theta.isfinite().all(-1)]
        x = theta[:, slots].double()
        if len(x) <= 2 * len(slots):
            return None
        root, failed = torch.linalg.cholesky_ex(torch.atleast_2d(torch.cov(x.mT)))
        state = start(
            target, self.codes[m].expand(p.moved_chains, -1)[: len(x)], theta[: p.moved_chains]
        )
        inside = state.log_joint.isfinite()
        if bool(failed) or int(inside.sum()) < FEWEST_CHAINS:
            return None
        state = State(state.code[inside], state.theta[inside], state.log_joint[inside])
        table = torch.eye(target.dim, dtype=x.dtype, device=x.device).repeat(len(self.codes), 1, 1)
        table[m, slots[:, None], slots] = root
        centre = x.new_zeros(len(self.codes), target.dim)
        centre[m, slots] = x.mean(0)
        frame = Whitened(Identity(target.space), centre.to(theta), table.to(theta))
        size = STEP * len(slots) ** -0.25
        kernel: Kernel = HMC(target, frame, leaps=LEAPS, step_size=size)
        found = []
        for i in range(SETTLING + steps):
            kernel, state, _ = kernel.adapt(state, self.generator)
            if i >= SETTLING:
                found.append(state.theta[:, slots].double())
        return Moved(x, torch.stack(found))

    def _draws(self, transport: Transport, m: int, n: int) -> tuple[Tensor, Tensor]:
        """Draws of a model, spare slots zero, shape (n, D), and log q, shape (n,)."""
        z = transport.reference.sample((n, self.target.dim), self.generator, self.target.dtype)
        theta, log_q = transport.push(z, self.codes[m].expand(n, -1))
        return torch.where(self.active[m], theta, 0.0), log_q.double()

    @torch.no_grad()
    def _gain(self, before: Transport, after: Transport, m: int, judges: Tensor) -> float:
        """What another map takes off KL(p | q), nats, less what it takes off the bound."""
        n, target = self.policy.moved_judges, self.target
        some = torch.randperm(len(judges), generator=self.generator, device=judges.device)[:n]
        x = judges.new_zeros(len(some), target.dim).to(target.dtype)
        x[:, self.active[m]] = judges[some].to(target.dtype)
        code = self.codes[m].expand(len(x), -1)
        gained = (after.log_prob(x, code) - before.log_prob(x, code)).double().mean()
        state, bounds = self.generator.get_state(), []
        for transport in (before, after):
            self.generator.set_state(state)  # both meet the same draws
            theta, log_q = self._draws(transport, m, n)
            log_joint = target.log_joint(self.codes[m].expand(n, -1), theta).double()
            bounds.append((log_joint - log_q).mean())
        return float(gained - LOSS * (bounds[0] - bounds[1]))


def difference(before: Tensor, after: Tensor) -> tuple[Tensor, Tensor]:
    """The affine map x -> loc + factor x that takes the moments of q to those of a posterior.

    What differs by as much along all directions is taken as it is. The rest of the difference of
    covariances is turned to the directions that one half of all draws shows, as large along these
    as the other half says, and shrunk as far as the halves disagree; so is that of means.

    Arguments:
        before: Independent draws of q, shape (N, d).
        after: Draws of chains, shape (R, C, d).

    Returns:
        loc, shape (d,), and factor, lower triangular, shape (d, d).
    """
    centre = before.mean(0)
    frame = torch.linalg.cholesky(torch.atleast_2d(torch.cov(before.mT)))
    halves = []
    for i in (0, 1):
        q, p = (
            torch.linalg.solve_triangular(frame, (x - centre).mT, upper=False).mT
            for x in (before[i::2], after[:, i::2].flatten(0, 1))
        )
        covariances = [torch.atleast_2d(torch.cov(x.mT)) for x in (p, q)]
        halves.append((p.mean(0) - q.mean(0), covariances[0] - covariances[1]))
    shifts, gaps = zip(*halves, strict=True)
    eye = eye_like(frame)
    widths = [gap.diagonal().mean() * eye for gap in gaps]
    rests = [gap - width for gap, width in zip(gaps, widths, strict=True)]
    rest = torch.zeros_like(eye)
    for shows, says in (rests, rests[::-1]):
        turn = torch.linalg.eigh(shows).eigenvectors
        rest = rest + (turn * (turn * (says @ turn)).sum(0)) @ turn.mT / 2
    covariance = eye + sum(widths) / 2 + agreement(*rests) * rest
    values, turn = torch.linalg.eigh(covariance)
    covariance = (turn * values.clamp(min=LEAST)) @ turn.mT
    shift = agreement(*shifts) * sum(shifts) / 2
    inner = frame @ torch.linalg.cholesky(covariance)
    factor = torch.linalg.solve_triangular(frame, inner, upper=False, left=False)
    return centre + frame @ shift - factor @ centre, factor.tril()


def agreement(one: Tensor, other: Tensor) -> Tensor:
    """What share of two estimates of the same is signal, as far as both show it; 0 to 1."""
    total = (one + other).square().sum() / 4
    return ((one * other).sum() / total).nan_to_num(0.0).clamp(0, 1)


def eye_like(matrix: Tensor) -> Tensor:
    return torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)


def can_be_followed(transport: Transport) -> bool:
    """Whether an affine map can follow a map."""
    if isinstance(transport, MixtureOfMaps):
        return transport.outer is not None
    return isinstance(transport, Bijection) and transport.spares_pass


def followed(transport: Transport, loc: Tensor, factor: Tensor) -> Transport:
    """A map, and then an affine one of each model.

    Arguments:
        transport: One that :func:`can_be_followed`.
        loc, factor: Of x -> loc + factor x, shapes (M, D) and (M, D, D).
    """
    if isinstance(transport, MixtureOfMaps):
        assert transport.outer is not None
        outer = Whitened(transport.outer, loc, factor)
        log_weights = transport.log_weights.detach()
        made = MixtureOfMaps(transport.components, outer, log_weights=log_weights)
        made.log_weights.requires_grad_(transport.log_weights.requires_grad)
        return made.to(loc)
    assert isinstance(transport, Bijection)
    return Whitened(transport, loc, factor).to(loc)
