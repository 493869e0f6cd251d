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

COMPONENTS = 8  # t distributions of a proposal at most

TAIL_SCALES, TAIL_SHARES = (1.0, 1.7, 3.5), (0.65, 0.27, 0.08)  # of the normals that stand for one

WIDENING = 1.0  # relative variance by which a fit to n effective points is wider, times n / d

ROUND, AROUND = 1.3, 0.2  # standard deviations of all points, by which a t distribution about them
# is fitted beside parts, which miss bent tails; its share

FITTED_DRAWS = 2000  # resampled ones of a fit

GOOD = 0.7  # effective draws over draws at which a proposal is good enough

POORLY = 2.0  # nats of a weight at a summit over the mean one, from which too few are drawn there

KEPT = 0.3  # share of the draws of what was planted, beside what is fitted

OUTLIERS, OUTLYING = 4, 10.0  # draws; mean weights from which one may tell of a mode

LAST = 0.5  # of the calls of a first refinement, in the last round; of later ones all are


class AdaptiveProposal:
    """A proposal for one model that importance sampling refines, from the prior on.

    A round raises the likelihood to the largest power at which the effective number of points is
    enough for a fit, fits normals to all of them, weighted by the mixture of all that was drawn
    from, and draws from these with heavier tails. The last round weighs the model.

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
        self._fitted: NormalMixture | None = None
        self._planted: NormalMixture | None = None
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
    def plant(self, normals: NormalMixture | None, most: float = math.inf) -> None:
        """Draw from normals, with heavier tails, whose means it would hardly draw.

        Arguments:
            normals: Over the coordinates in use, or None.
            most: Draws.
        """
        if normals is None:
            return
        every, x, weight = normals, normals.mean, normals.weight
        if self.calls:
            log_prior, log_likelihood = self._evaluated(self._padded(x))
            each = [_counted(*drawn, x, log_prior) for drawn in self._drawn]
            log_q = torch.stack(each).logsumexp(0) - math.log(self.calls)
            log_mass = (self._log_joint - self._log_q).logsumexp(0) - math.log(self.calls)
            log_joint = log_prior + log_likelihood + self._log_prior_of_model
            new = log_joint - log_q > log_mass + POORLY
            if not bool(new.any()):
                return
            weight = weight[new] / weight[new].sum()
            normals = NormalMixture(weight, x[new], normals.factor[new])
        found = _with_tails(normals)
        n = int(min(most, DRAWS_A_DIMENSION * (self.dim + 1) * len(weight)))
        if n < 2:
            return
        self._draw(found, n)
        self._planted, self.share = _with_tails(every), 0.0
        self._mix()

    @torch.no_grad()
    def refine(self, calls: int, deadline: float = math.inf, *, fit: bool = True) -> None:
        """Go on until it has taken so many calls in all; once it is good nothing is fitted.

        Arguments:
            calls: Likelihood calls.
            deadline: Time by :func:`trjmcmc.clock.now` after which no further round begins.
            fit: Fit normals to all draws; else draw from those that there are.
        """
        first = max(2 * DRAWS_A_DIMENSION, int(PRIOR_SHARE * calls))
        first -= sum(n for by, n in self._drawn if by is None)
        if (n := min(first, calls - self.calls)) > 0 and (fit or not self.calls):
            self._draw(None, n)
        each = max(DRAWS_A_DIMENSION * (self.dim + 1), calls // ROUNDS)
        fresh = calls if self.normals is not None else LAST * calls
        while self.dim and (left := calls - self.calls) > 0 and clock.now() < deadline:
            if (fit and self.share <= GOOD) or self.normals is None:
                self._fit()
            last = not fit or self.share > GOOD or left <= fresh
            self._draw(self.normals, left if last else min(each, left))

    @property
    def unseen(self) -> int:
        """Draws since normals were last fitted."""
        return sum(n for by, n in self._drawn if by is self.normals)

    @property
    def outliers(self) -> Tensor:
        """Few draws, (k, d), of far more than the mean weight: about modes, it may be, it lacks."""
        weight = (self._log_joint - self._log_q).softmax(0)
        heavy, rows = weight.topk(min(OUTLIERS, len(weight)))
        return self._x[rows[heavy > OUTLYING / len(weight)]]

    def log_weights(self) -> Tensor:
        """Log weights whose mean is p(model) times its evidence, shape (n,), nats.

        Of the draws since normals were last fitted, which no fit has seen: others are some tenths
        of a nat low. Of all where there are none.
        """
        if self.normals is None or not self.unseen:
            return self._log_joint - self._log_q
        draws = torch.tensor([n for _, n in self._drawn], device=self._x.device)
        unseen = torch.tensor([by is self.normals for by, _ in self._drawn], device=self._x.device)
        rows = unseen.repeat_interleave(draws)
        return self._log_joint[rows] - self.normals.log_prob(self._x[rows])

    def resampled(self, n: int) -> tuple[Tensor, Tensor]:
        """Draws of the posterior, as good as the weights: points (n, D), log joints (n,)."""
        weight = (self._log_joint - self._log_q).softmax(0)
        weight = weight.nan_to_num(1.0)  # none where all are impossible
        rows = torch.multinomial(weight, n, True, generator=self.generator)
        return self._padded(self._x[rows]), self._log_joint[rows]

    @property
    def _log_joint(self) -> Tensor:
        return self._log_prior + self._log_likelihood + self._log_prior_of_model

    @property
    def _log_q(self) -> Tensor:
        return self._log_counts - math.log(self.calls)

    def _padded(self, x: Tensor) -> Tensor:
        """Points (n, d) in the target's coordinates, (n, D)."""
        theta = torch.zeros(len(x), self.target.dim, dtype=self.target.dtype, device=x.device)
        theta[:, self._used] = x.to(theta)
        return theta

    def _evaluated(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Log prior, p(model) not included, and log likelihood of points (n, D), (n,) each."""
        codes = self.code.expand(len(theta), -1)
        log_prior, log_likelihood = self.target.log_prior_and_likelihood(codes, theta)
        log_likelihood = torch.where(log_prior > -math.inf, log_likelihood.double(), -math.inf)
        return log_prior.double() - self._log_prior_of_model, log_likelihood

    def _draw(self, proposal: NormalMixture | None, n: int) -> None:
        """Draw n points from a proposal, or the prior, and evaluate them."""
        if proposal is None:
            theta = self.target.sample_prior(self.code.expand(n, -1), self.generator)
            theta = torch.where(theta.isfinite(), theta, 0.0)
        else:
            theta = self._padded(proposal.sample(n, self.generator))
        log_prior, log_likelihood = self._evaluated(theta)
        x = theta[:, self._used].double()
        before = _counted(proposal, n, self._x, self._log_prior)
        self._drawn.append((proposal, n))
        here = torch.stack([_counted(*each, x, log_prior) for each in self._drawn]).logsumexp(0)
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
        self._fitted = _fitted(self._x[pick], distinct_points, self.generator)
        self._mix()

    def _mix(self) -> None:
        """Draw from what is fitted, with a share from what was planted, from now on."""
        a, b = self._fitted, self._planted
        self.normals = _both(a, b, KEPT) if a is not None and b is not None else a or b


def _counted(by: NormalMixture | None, n: int, x: Tensor, log_prior: Tensor) -> Tensor:
    """Log density of n draws of normals, or the prior, together, at points (m, d): (m,)."""
    return math.log(n) + (log_prior if by is None else by.log_prob(x))


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
    wider = (1 + WIDENING * d / max(effective, 1.0)) ** 0.5
    around = _with_tails(NormalMixture.fitted(draws, 1, generator), max(wider, ROUND))
    if k == 1:
        return around
    parts = _with_tails(NormalMixture.fitted(draws, k, generator), wider)
    return _both(parts, around, AROUND)


def _both(a: NormalMixture, b: NormalMixture, share: float) -> NormalMixture:
    """A mixture of two, with a share of the draws of the second."""
    weight = torch.cat([(1 - share) * a.weight, share * b.weight])
    return NormalMixture(weight, torch.cat([a.mean, b.mean]), torch.cat([a.factor, b.factor]))


def _with_tails(normals: NormalMixture, wider: float = 1.0) -> NormalMixture:
    """A t distribution, by a few normals of one shape, for each normal."""
    scales = torch.tensor(TAIL_SCALES, dtype=normals.mean.dtype, device=normals.mean.device)
    shares = torch.tensor(TAIL_SHARES, dtype=normals.mean.dtype, device=normals.mean.device)
    return NormalMixture(
        (normals.weight[:, None] * shares).flatten(),
        normals.mean.repeat_interleave(len(scales), 0),
        (wider * scales[:, None, None] * normals.factor[:, None]).flatten(0, 1),
    )
