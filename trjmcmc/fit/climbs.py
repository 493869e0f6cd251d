"""Quasi-Newton climbs of the posterior of one model, many at once, and what they teach of it."""

from __future__ import annotations

import math
from functools import cached_property

import torch
from torch import Tensor

from ..pilot.slopes import slopes
from ..target.target import Target

STARTS = 20  # draws of a start, at most, until one has a density and a gradient

AROUND = 2.0  # half-width of the cube that every other draw of a start is from

RISES = 1e-4  # least gain of a step, as a share of what the slope at its start promises

LEVELS = 0.1  # largest slope at the end of a step, as a share of that at its start

TRIALS = 25  # lengths of a step that are tried, at most

SETTLED = 1e-8  # nats: steps that promise less end a climb

DIFFERENCE = 1e-4  # of prior standard deviations: steps of differences

PRIOR_DRAWS, SMALLEST = 200, 1e-6  # that tell these standard deviations; least of them

ROUNDED = 4.0  # the same, in spacings of numbers of the log joint's size

CURVED = 1e-10  # least s'y / |s| |y| of a step that curvature is learnt from

WIDER = 10.0  # most by which a refinement widens a direction

SHARES = (1.0, 0.3)  # of the Newton step of a refinement that are tried

COMPARED = 50  # draws by which a refinement is compared with what was before


class Posterior:
    """The log joint of one model in the coordinates that it uses, float64.

    Arguments:
        target: The target; of one without gradients slopes are differences.
        code: The model, shape (L,).
        generator: Source of randomness.

    Attributes:
        dim: Number of these coordinates, d.
        evaluations: So far.
    """

    def __init__(self, target: Target, code: Tensor, generator: torch.Generator) -> None:
        self.target, self.code, self.generator = target, code, generator
        self.used = target.space.active(code[None])[0].nonzero()[:, 0]
        self.dim, self.evaluations = len(self.used), 0

    def rounded(self, x: Tensor) -> Tensor:
        """Points that the target's precision knows, so that differences of them are exact."""
        return x.to(self.target.dtype).double()

    def _codes(self, n: int) -> Tensor:
        self.evaluations += n
        return self.code.expand(n, -1)

    def _padded(self, x: Tensor) -> Tensor:
        theta = torch.zeros(
            len(x), self.target.dim, dtype=self.target.dtype, device=self.target.device
        )
        theta[:, self.used] = x.to(theta)
        return theta

    def padded_normals(self, loc: Tensor, tril: Tensor) -> tuple[Tensor, Tensor]:
        """Means (K, D) and factors (K, D, D) in the target's coordinates and precision."""
        mean = self._padded(loc)
        factor = torch.eye(self.target.dim).to(mean).repeat(len(loc), 1, 1)
        factor[:, self.used[:, None], self.used] = tril.to(factor)
        return mean, factor

    def with_gradient(self, x: Tensor, least: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Values (n,), -inf where value or gradient is no number, and gradients (n, d).

        Arguments:
            x: Points, shape (n, d).
            least: Values, (n,), below which no gradient is asked for.
        """
        if not self.target.differentiable:
            return self._with_differences(x, least)
        value, gradient = self.target.log_joint_and_grad(
            self._codes(len(x)), self._padded(x), surrogate=True
        )
        gradient = gradient[:, self.used].double()
        fine = value.isfinite() & gradient.isfinite().all(-1)
        return torch.where(fine, value.double(), -math.inf), gradient

    def _with_differences(self, x: Tensor, least: Tensor | None) -> tuple[Tensor, Tensor]:
        """The same by d more evaluations of each point that is high enough."""
        value, gradient = self._value(x), torch.zeros_like(x)
        rows = (value > -math.inf if least is None else value >= least).nonzero()[:, 0]
        if not len(rows):
            return value, gradient
        step = DIFFERENCE * self.prior_scale
        slope = slopes(self._value, x[rows], value[rows], step.diag_embed())
        gradient[rows] = slope.nan_to_num(0.0, 0.0, 0.0)
        value[rows[~slope.isfinite().all(1)]] = -math.inf
        return value, gradient

    @torch.no_grad()
    def _value(self, x: Tensor) -> Tensor:
        """Log joints of points (n, d), -inf where they are no numbers, (n,)."""
        value = self.target.log_joint(self._codes(len(x)), self._padded(x)).double()
        return torch.where(value.isfinite(), value, -math.inf)

    @cached_property
    def prior_scale(self) -> Tensor:
        """Standard deviations of prior draws, shape (d,); takes no evaluations."""
        codes = self.code.expand(PRIOR_DRAWS, -1)
        draws = self.target.sample_prior(codes, self.generator)[:, self.used].double()
        draws = draws[draws.isfinite().all(1)]
        spread = draws.std(0) if len(draws) > 1 else torch.ones_like(draws[:1].sum(0))
        return spread.clamp(min=SMALLEST)

    def starts(self, paths: int) -> tuple[Tensor, Tensor, Tensor]:
        """Points (paths, d) with values and gradients; the value is -inf where none was found.

        Prior draws, and where these have no density uniform ones around the origin.
        """
        like = torch.zeros(paths, self.dim, dtype=torch.float64, device=self.target.device)
        x, value, gradient = like, like.new_full((paths,), -math.inf), like.clone()
        for i in range(STARTS):
            rows = (value == -math.inf).nonzero()[:, 0]
            if not len(rows):
                break
            if i % 2:
                there = torch.rand(
                    len(rows), self.dim, generator=self.generator, device=x.device, dtype=x.dtype
                )
                there = AROUND * (2 * there - 1)
            else:
                codes = self.code.expand(len(rows), -1)
                there = self.target.sample_prior(codes, self.generator)[:, self.used].double()
                there = torch.where(there.isfinite(), there, 0.0)
            x[rows] = self.rounded(there)
            value[rows], gradient[rows] = self.with_gradient(x[rows])
        return x, value, gradient

    def elbo(self, loc: Tensor, tril: Tensor, draws: int) -> Tensor:
        """Evidence lower bounds of normals, (k, d) and (k, d, d) -> (k,), nats; never NaN.

        All by the same standard normal draws and their opposites, so that they compare well.
        """
        (k, d), n = loc.shape, draws // 2
        z = torch.randn(n, d, generator=self.generator, dtype=loc.dtype, device=loc.device)
        if n > 2 * d > 0:  # of covariance one: quadratics have no error
            spread = torch.linalg.cholesky(z.mT @ z / n)
            z = torch.linalg.solve_triangular(spread, z.mT, upper=False).mT
        x = loc[:, None] + torch.cat([z, -z]) @ tril.mT
        with torch.no_grad():
            value = self.target.log_joint(
                self._codes(2 * k * n), self._padded(x.flatten(0, 1))
            ).double()
        entropy = 0.5 * z.square().sum(-1).mean() + 0.5 * d * math.log(2 * math.pi)
        entropy = entropy + tril.diagonal(dim1=1, dim2=2).log().sum(-1)
        bound = value.view(k, 2 * n).mean(1) + entropy
        return torch.where(bound.isfinite(), bound, -math.inf)

    def refined(self, loc: Tensor, tril: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Normals after the share of a Newton step that raises their bound most.

        With what the bounds gained, (k,), nats.
        """
        k, d = loc.shape
        z = torch.randn(k, d, d, generator=self.generator, dtype=loc.dtype, device=loc.device)
        z = math.sqrt(d) * torch.linalg.qr(z)[0]
        x = loc[:, None] + torch.cat([z, -z], 1) @ tril.mT
        value, gradient = self.with_gradient(x.flatten(0, 1))
        slope = gradient.view(k, 2 * d, d) @ tril  # in coordinates where the normal is standard
        bend = z.mT @ (slope[:, d:] - slope[:, :d]) / (2 * d)
        bend, slope = 0.5 * (bend + bend.mT), slope.mean(1)
        known = (value.view(k, 2 * d) > -math.inf).all(-1)
        known &= bend.isfinite().all(-1).all(-1) & slope.isfinite().all(-1)
        eye = torch.eye(d).to(bend)
        values, vectors = torch.linalg.eigh(torch.where(known[:, None, None], bend, eye))
        means, factors = [loc], [tril]
        for share in SHARES:
            precision = (1 - share + share * values).clamp(min=WIDER**-2)
            half = vectors * precision.rsqrt()[:, None]
            root = tril @ half
            step = (root @ (half.mT @ slope[..., None]))[..., 0]
            factor = torch.linalg.qr(root.mT).R.mT
            factor = factor * factor.diagonal(dim1=1, dim2=2).sign()[:, None]
            means.append(torch.where(known[:, None], loc + share * step, loc))
            factors.append(torch.where(known[:, None, None], factor, tril))
        bound = self.elbo(torch.cat(means), torch.cat(factors), COMPARED).view(-1, k)
        best, rows = bound.argmax(0), torch.arange(k, device=loc.device)
        gain = (bound[best, rows] - bound[0]).nan_to_num(0.0)  # neither has a bound: none
        return torch.stack(means)[best, rows], torch.stack(factors)[best, rows], gain


class Climbs:
    """Quasi-Newton climbs, all at once: each call takes one evaluation of each that goes on.

    The length of a step is bracketed until the value has risen and the slope has levelled off.

    Arguments:
        posterior: What they climb.
        x, value, gradient: Where they start, shapes (K, d), (K,) and (K, d).
        history: Steps from which curvature is learnt.
        scale: Standard deviations before anything is, shape (d,) or one number.
        settled: Nats: steps that promise less end a climb.

    Attributes:
        x: Where the climbs are, shape (K, d).
        going: Which of them go on, shape (K,), bool.
        nowhere: Those that had no start.
    """

    def __init__(
        self,
        posterior: Posterior,
        x: Tensor,
        value: Tensor,
        gradient: Tensor,
        history: int,
        scale: float | Tensor = 1.0,
        settled: float = SETTLED,
    ) -> None:
        self.posterior, self.settled = posterior, settled
        self.x, self.value, self.gradient = x, value, gradient
        self.diagonal = (
            torch.ones_like(x) * scale**2
        )  # of the covariance without what the last steps taught
        self.s = x.new_zeros(len(x), history, x.shape[1])  # last steps, the newest last, and
        self.y = torch.zeros_like(self.s)  # how much the gradient fell along them
        self.going = (value > -math.inf) & (x.shape[1] > 0)
        self.nowhere = (value == -math.inf).nonzero()[:, 0].tolist()
        self.direction, self.length = torch.zeros_like(x), torch.zeros_like(value)
        self.low, self.high = torch.zeros_like(value), torch.full_like(value, math.inf)
        self.trials, self.steps = torch.zeros_like(value), torch.zeros_like(value)
        self._aim(self.going.nonzero()[:, 0])

    @property
    def promise(self) -> Tensor:
        """What the next step of each climb would gain of a quadratic, shape (K,), nats."""
        return 0.5 * (self.direction * self.gradient).sum(1)

    def advance(self, most: int) -> tuple[Tensor, Tensor, Tensor]:
        """Try one length of each step: rows that took theirs, means, factors of normals."""
        rows = self.going.nonzero()[:, 0]
        x, length, along = self.x[rows], self.length[rows], self.direction[rows]
        there = self.posterior.rounded(x + length[:, None] * along)
        slope = (along * self.gradient[rows]).sum(1)
        least = self.value[rows] + RISES * length * slope
        value, gradient = self.posterior.with_gradient(there, least)
        rises, new_slope = value >= least, (along * gradient).sum(1)
        self.trials[rows] += 1
        last = self.trials[rows] >= TRIALS
        took = rises & ((new_slope <= LEVELS * slope) | last)
        self.going[rows[last & ~rises]] = False
        even = length * slope / (slope - new_slope)  # where the slope is zero if it falls evenly,
        parabola = 0.5 * slope * length.square() / (self.value[rows] + slope * length - value)
        self._bracket(rows, rises, torch.where(rises, even, parabola))  # seen from the values
        new, rows = took, rows[took]
        self._learn(rows, there[new] - self.x[rows], self.gradient[rows] - gradient[new])
        self.x[rows], self.value[rows], self.gradient[rows] = there[new], value[new], gradient[new]
        mean, factor = self._aim(rows)
        gain = self.promise[rows]
        spacing = torch.finfo(self.posterior.target.dtype).eps * value[new].abs()
        self.steps[rows] += 1
        over = (gain < (ROUNDED * spacing).clamp(min=self.settled)) | (self.steps[rows] >= most)
        self.going[rows[over]] = False
        return rows, mean, factor

    def _bracket(self, rows: Tensor, rises: Tensor, guess: Tensor) -> None:
        """The next length: what was guessed, well inside; anything else is beyond."""
        length = self.length[rows]
        self.low[rows] = low = torch.where(rises, length, self.low[rows])
        self.high[rows] = high = torch.where(rises, self.high[rows], length)
        gap = torch.where(high < math.inf, high - low, 10 * length)
        guess = torch.where(guess >= 0, guess, math.inf)
        self.length[rows] = torch.minimum(torch.maximum(guess, low + 0.1 * gap), low + 0.5 * gap)

    def _learn(self, rows: Tensor, s: Tensor, y: Tensor) -> None:
        """Take steps (n, d) and what the gradient fell along them into account."""
        curved = (s * y).sum(1) > CURVED * s.norm(dim=1) * y.norm(dim=1)
        rows, s, y = rows[curved], s[curved], y[curved]
        self.diagonal[rows] = updated_diagonal(self.diagonal[rows], s, y)
        self.s[rows] = torch.cat([self.s[rows, 1:], s[:, None]], 1)
        self.y[rows] = torch.cat([self.y[rows, 1:], y[:, None]], 1)

    def _aim(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Directions of the next steps; means and factors of the normals that these lead to."""
        covariance = inverse_hessian(self.diagonal[rows], self.s[rows], self.y[rows])
        factor, info = torch.linalg.cholesky_ex(covariance)
        if bool((info > 0).any()):  # rounding: what the last steps taught is forgotten
            lost = rows[info > 0]
            self.s[lost], self.y[lost] = 0.0, 0.0
            covariance[info > 0] = self.diagonal[lost].diag_embed()
            factor[info > 0] = self.diagonal[lost].sqrt().diag_embed()
        step = (covariance @ self.gradient[rows][..., None])[..., 0]
        new = (self.s[rows] == 0).flatten(1).all(1)  # of unknown curvature: a unit at most
        far = (step / self.diagonal[rows].sqrt()).norm(dim=1)
        self.length[rows] = torch.where(new, 1 / far.clamp(min=1.0), 1.0)
        self.direction[rows] = step
        self.low[rows], self.high[rows], self.trials[rows] = 0.0, math.inf, 0
        return self.x[rows] + step, factor


def updated_diagonal(diagonal: Tensor, s: Tensor, y: Tensor) -> Tensor:
    """Diagonal inverse Hessians (n, d) after steps s along which gradients fell by y, (n, d).

    Source:
        Gilbert & Lemarechal (1989), https://doi.org/10.1007/BF01589113, eq. 4.9
    """
    a = (diagonal * y.square()).sum(-1, keepdim=True)
    b = (s * y).sum(-1, keepdim=True)
    c = (s.square() / diagonal).sum(-1, keepdim=True)
    return b / (a / diagonal + y.square() - a * (s / diagonal).square() / c)


def inverse_hessian(diagonal: Tensor, s: Tensor, y: Tensor) -> Tensor:
    """BFGS updates of diagonal inverse Hessians (n, d) by j pairs (n, j, d) -> (n, d, d).

    Pairs stand in the order of time; those that are zero do nothing.

    Source:
        Byrd, Nocedal & Schnabel (1994), https://doi.org/10.1007/BF01582063, eq. 2.6
    """
    empty = (s == 0).all(-1).to(s).diag_embed()
    r = (s @ y.mT).triu() + empty
    w = torch.linalg.solve_triangular(r, s, upper=True)
    scaled = y * diagonal[:, None]
    cross = scaled.mT @ w
    inner = r.diagonal(dim1=1, dim2=2).diag_embed() + scaled @ y.mT
    return diagonal.diag_embed() - cross - cross.mT + w.mT @ inner @ w
