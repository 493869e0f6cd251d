"""Posteriors from few likelihood calls: mixtures of t distributions, refined by importance."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .. import clock
from ..target.target import Target
from ..transport.normals import NormalMixture

PRIOR_SHARE = 0.15  # of the calls of a model, for draws of its prior

ROUNDS = 30  # in which the rest is spent

DRAWS_A_DIMENSION = 4  # of a round at least, a dimension and one

POINTS_A_FIT, POINTS_A_COMPONENT = 2.0, 15.0  # effective ones, a dimension and one, from which a
# proposal is fitted; the same for each further component

COMPONENTS = 4  # t distributions of a proposal at most

TAIL_SCALES, TAIL_SHARES = (1.0, 1.7, 3.5), (0.75, 0.2, 0.05)  # of the normals that stand for one

WIDENING = 1.0  # relative variance by which a fit to n effective points is wider, times n / d

FITTED_DRAWS = 2000  # resampled ones of a fit

GOOD = 0.7  # effective draws over draws at which a proposal is good enough

ALONE = 400  # draws of it from which these alone weigh its model: a fit to what it weighs itself is
# .04 nats off


class AdaptiveProposal:
    """A proposal for one model that importance sampling refines, from the prior on.

    Every point counts to the end, weighted by the mixture of all that was drawn from. A round
    raises the likelihood to the largest power at which the effective number of points is enough
    for a fit, fits normals to them, and draws from these with heavier tails.

    Arguments:
        target: The target.
        code: A model with parameters, shape (L,).
        generator: Source of randomness.

    Attributes:
        dim: Coordinates in use.
        normals: Over the coordinates in use; each t distribution as a few normals of one shape.
            None before the first fit.
        share: Effective draws of the last round over its draws, importance weights at the
            posterior itself; 0 where it has not come that far.

    Source:
        Cornuet, Marin, Mira & Robert (2012), https://doi.org/10.1111/j.1467-9469.2011.00756.x;
        powers: Neal (2001), https://doi.org/10.1023/A:1008923215028

    Example:
        >>> from trjmcmc import problems
        >>> target = problems.sinh_arcsinh()
        >>> generator = torch.Generator().manual_seed(0)
        >>> proposal = AdaptiveProposal(target, torch.tensor([0]), generator)
        >>> proposal.refine(500)
        >>> proposal.calls <= 500, proposal.share > 0.5
        (True, True)
    """

    def __init__(
        self,
        target: Target,
        code: Tensor,
        generator: torch.Generator,
    ) -> None:
        self.target, self.code, self.generator = target, code, generator
        self.share = 0.0
        self.normals: NormalMixture | None = None
        self._used = target.space.active(code[None])[0]
        self.dim = int(self._used.sum())
        self._log_prior_of_model = float(target.space.log_prior(code[None])[0])
        self._drawn: list[tuple[NormalMixture | None, int]] = []  # None: the prior
        none = torch.zeros(0, dtype=torch.float64, device=target.device)
        self._x = none.view(0, self.dim)
        self._log_prior = self._log_likelihood = none
        self._log_counts = none  # log of the densities that each was drawn from, times their draws

    @property
    def calls(self) -> int:
        """Likelihood calls that it took."""
        return len(self._x)

    @torch.no_grad()
    def refine(self, calls: int, deadline: float = math.inf) -> None:
        """Go on until it has taken so many calls in all; once it is good nothing is fitted.

        Arguments:
            calls: Likelihood calls.
            deadline: Time by :func:`trjmcmc.clock.now` after which no further round begins.
        """
        first = max(2 * DRAWS_A_DIMENSION, int(PRIOR_SHARE * calls))
        first -= sum(n for by, n in self._drawn if by is None)
        if (n := min(first, calls - self.calls)) > 0:
            self._draw(None, n)
        each = max(DRAWS_A_DIMENSION * (self.dim + 1), calls // ROUNDS)
        while self.dim:
            if self.share <= GOOD:
                self._fit()
            left = calls - self.calls
            if left < 2 or clock.now() > deadline:
                return
            self._draw(self.normals, left if self.share > GOOD else min(each, left))

    def log_weights(self) -> Tensor:
        """Log weights whose mean is p(model) times its evidence, shape (n,), nats.

        Of the draws since normals were last fitted, once these are good and such draws many: no
        fit has seen them. Else of all, by the mixture of what they come from.
        """
        draws = torch.tensor([n for _, n in self._drawn], device=self._x.device)
        unseen = torch.tensor([by is self.normals for by, _ in self._drawn], device=self._x.device)
        if self.normals is None or draws[unseen].sum() < ALONE:
            return self._log_joint - self._log_q
        rows = unseen.repeat_interleave(draws)
        return self._log_joint[rows] - self.normals.log_prob(self._x[rows])

    def resampled(self, n: int) -> tuple[Tensor, Tensor]:
        """Draws of the posterior, as good as the weights: points (n, D), log joints (n,)."""
        weight = (self._log_joint - self._log_q).softmax(0)
        weight = weight.nan_to_num(1.0)  # none where all are impossible
        rows = torch.multinomial(weight, n, True, generator=self.generator)
        theta = torch.zeros(n, self.target.dim, dtype=self.target.dtype, device=self._x.device)
        theta[:, self._used] = self._x[rows].to(theta)
        return theta, self._log_joint[rows]

    @property
    def _log_joint(self) -> Tensor:
        return self._log_prior + self._log_likelihood + self._log_prior_of_model

    @property
    def _log_q(self) -> Tensor:
        return self._log_counts - math.log(self.calls)

    def _draw(self, proposal: NormalMixture | None, n: int) -> None:
        """Draw n points from a proposal, or the prior, and evaluate them."""
        target, codes = self.target, self.code.expand(n, -1)
        if proposal is None:
            theta = target.sample_prior(codes, self.generator)
            theta = torch.where(theta.isfinite(), theta, 0.0)
        else:
            theta = torch.zeros(n, target.dim, dtype=target.dtype, device=target.device)
            theta[:, self._used] = proposal.sample(n, self.generator).to(target.dtype)
        log_prior, log_likelihood = target.log_prior_and_likelihood(codes, theta)
        log_likelihood = torch.where(log_prior > -math.inf, log_likelihood.double(), -math.inf)
        log_prior = log_prior.double() - self._log_prior_of_model
        x = theta[:, self._used].double()

        def counted(by: NormalMixture | None, n: int, x: Tensor, log_prior: Tensor) -> Tensor:
            return math.log(n) + (log_prior if by is None else by.log_prob(x))

        before = counted(proposal, n, self._x, self._log_prior)
        self._drawn.append((proposal, n))
        here = torch.stack([counted(*each, x, log_prior) for each in self._drawn]).logsumexp(0)
        self._log_counts = torch.cat([torch.logaddexp(self._log_counts, before), here])
        self._x = torch.cat([self._x, x])
        self._log_prior = torch.cat([self._log_prior, log_prior])
        self._log_likelihood = torch.cat([self._log_likelihood, log_likelihood])

    def _fit(self) -> None:
        """Fit normals to all points, weighted, at the largest power that these suffice for."""
        by, n = self._drawn[-1]
        enough = POINTS_A_FIT * (self.dim + 1)
        log_ratio = self._log_prior - self._log_q
        power = _power(log_ratio, self._log_likelihood, enough)
        tempered = power * self._log_likelihood if power else torch.zeros_like(log_ratio)
        weight = (log_ratio + tempered).softmax(0)
        pick = torch.multinomial(weight, FITTED_DRAWS, True, generator=self.generator)
        distinct_points = 1 / float(weight.square().sum())
        self.share = 0.0
        if power == 1 and by is not None:
            log_joint = (self._log_prior + self._log_likelihood)[-n:]
            self.share = _effective(log_joint - by.log_prob(self._x[-n:])) / n
        self.normals = _fitted(self._x[pick], distinct_points, self.generator)


def _effective(log_w: Tensor) -> float:
    """Effective number of weighted points."""
    if not bool((log_w > -math.inf).any()):
        return 0.0
    return float(torch.exp(2 * log_w.logsumexp(0) - (2 * log_w).logsumexp(0)))


def _power(log_ratio: Tensor, log_likelihood: Tensor, enough: float) -> float:
    """The largest power of the likelihood, up to 1, with enough effective points; 0 if none has."""
    if not bool((log_likelihood > -math.inf).any()):
        return 0.0
    likelihood = torch.where(log_likelihood > -math.inf, log_likelihood, -1e300)
    if _effective(log_ratio + likelihood) >= enough:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2 if low else high / 10
        if _effective(log_ratio + middle * likelihood) >= enough:
            low = middle
        else:
            high = middle
        if low and high - low < 1e-3 * high:
            break
    return low


def _fitted(draws: Tensor, effective: float, generator: torch.Generator) -> NormalMixture:
    """A mixture of t distributions by a few normals each, from resampled draws (n, d)."""
    d = draws.shape[1]
    affordable = int(effective / (POINTS_A_COMPONENT * (d + 1)))
    k = max(1, min(COMPONENTS, affordable))
    base = NormalMixture.fitted(draws, k, generator)
    scales = torch.tensor(TAIL_SCALES, dtype=base.mean.dtype, device=base.mean.device)
    shares = torch.tensor(TAIL_SHARES, dtype=base.mean.dtype, device=base.mean.device)
    wider = (1 + WIDENING * d / max(effective, 1.0)) ** 0.5
    return NormalMixture(
        (base.weight[:, None] * shares).flatten(),
        base.mean.repeat_interleave(len(scales), 0),
        (wider * scales[:, None, None] * base.factor[:, None]).flatten(0, 1),
    )
