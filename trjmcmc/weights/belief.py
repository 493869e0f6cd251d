"""Distributions over models by a Gaussian belief about the evidence lower bound of each."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..errors import ConfigurationError
from ..space.base import Space, check_enumerable
from .base import ModelWeights, draw_models

MOST_MODELS = 4096  # whose full covariance is kept

LEAST, MOST = 1e-10, 1e6  # variances, in units of the scale squared

DRIFT = 1e4  # variance by which beliefs age, in units of the map's mean square step


class GaussianSurrogateWeights(ModelWeights):
    r"""An independent normal belief about each model's bound, with conjugate updates.

    Minus a loss is a noisy observation of u(m), the evidence lower bound with log p(m); then
    q(m) is proportional to exp(u(m)), u the mean of the belief. Models to learn from are drawn
    in proportion to the exponential of an optimistic bound or of a draw of the belief. As the
    map learns, beliefs age: their variances grow. Bounds are counted in units of ``scale``.

    It stands in for the bound as a function of the model (a surrogate in the source's words); the
    smooth surrogate of a likelihood, ``Model(surrogate=...)``, is another thing.

    Arguments:
        space: A bound space of up to 65 536 models.
        acquisition: ``"ucb"``, mean plus ``beta`` standard deviations, or ``"thompson"``.
        beta: Width of both, in standard deviations.
        scale: Nats; if omitted, the spread of the first batch.
        prior_sd: Of the belief at the start, in scales around the first batch's mean.
        noise: Standard deviation of an observation, in scales, at the start; then learned.
        most_gain: Largest information from one observation, nats.

    Raises:
        ConfigurationError: An acquisition that is not known, a size that is not positive.
        ShapeError: The space is too large.

    Source:
        Davies et al., "Variational transdimensional inference", eqs. 11, 12 and 23-25;
        upper confidence bounds: Srinivas et al. (2010), https://arxiv.org/abs/0912.3995

    Example:
        >>> from trjmcmc import problems
        >>> q = GaussianSurrogateWeights(problems.variable_selection(2).space)
        >>> code = torch.tensor([[0, 0], [1, 0], [0, 1], [1, 1]]).repeat(200, 1)
        >>> for _ in range(3):
        ...     q.learn(code, -2.0 * code[:, 0])
        >>> round(float(q.log_prob(torch.tensor([[1, 0]])).exp()), 2)
        0.44
    """

    mean: Tensor
    variance: Tensor
    possible: Tensor
    by_position = False

    def __init__(
        self,
        space: Space,
        *,
        acquisition: str = "ucb",
        beta: float = 2.0,
        scale: float | None = None,
        prior_sd: float = 10.0,
        noise: float = 1.0,
        most_gain: float = 1.0,
    ) -> None:
        check_enumerable(space)
        super().__init__(space)
        if acquisition not in {"ucb", "thompson"}:
            raise ConfigurationError(
                f'acquisition: expected "ucb" or "thompson", got {acquisition!r}'
            )
        sizes = (beta, prior_sd, noise, most_gain, 1.0 if scale is None else scale)
        if not min(sizes) > 0:
            raise ConfigurationError("expected beta, scale, prior_sd, noise, most_gain > 0")
        self.acquisition, self.beta, self.scale = acquisition, beta, scale
        self.noise, self.most_gain = noise**2, most_gain
        self.prior_variance, self._batches = prior_sd**2, 0
        device, size = self.low.device, int(space.size or 1)
        self.register_buffer("mean", torch.zeros(size, dtype=torch.float64, device=device))
        self.register_buffer("variance", torch.full_like(self.mean, self.prior_variance))
        self.register_buffer("possible", self.space.log_prior(self.space.enumerate()) > -math.inf)

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        return draw_models(self.space, self._nats(self.mean), n, generator)

    def log_prob(self, code: Tensor) -> Tensor:
        log_p = self._nats(self.mean).log_softmax(0)[self.space.index(code)]
        return log_p.to(torch.get_default_dtype())

    def explore(self, n: int, generator: torch.Generator) -> Tensor:
        if not self._batches:
            return self.space.sample_prior(n, generator)
        sd = self.variance.sqrt()
        if self.acquisition == "thompson":
            sd = sd * torch.randn(sd.shape, generator=generator, dtype=sd.dtype, device=sd.device)
        return draw_models(self.space, self._nats(self.mean + self.beta * sd), n, generator)

    def _nats(self, utility: Tensor) -> Tensor:
        return torch.where(self.possible, (self.scale or 1.0) * utility, -math.inf)

    @torch.no_grad()
    def learn(self, code: Tensor, loss: Tensor) -> None:
        value = -self.sound(loss).double()
        if not self._batches:
            self.scale = self.scale or max(1.0, float(value.std(correction=0).nan_to_num(1.0)))
            self.mean.fill_(float(value.mean()) / self.scale)
        assert self.scale is not None
        index, value = self.space.index(code), value / self.scale
        residual = (value - self.mean[index]).square() - self.variance[index]
        self._observe(index, value)
        if self._batches:  # what a belief does not explain is noise
            seen = float(residual.clamp(min=0).mean())
            self.noise = max(LEAST, 0.9 * self.noise + 0.1 * min(seen, MOST))
        self._batches += 1

    def _observe(self, index: Tensor, value: Tensor) -> None:
        noise = self.variance[index] / math.expm1(2 * self.most_gain)
        precision = 1 / noise.clamp(min=self.noise)
        weight = torch.zeros_like(self.mean).index_add(0, index, precision)
        total = torch.zeros_like(self.mean).index_add(0, index, precision * value)
        after = 1 / (1 / self.variance + weight)
        self.mean.copy_(after * (self.mean / self.variance + total))
        self.variance.copy_(after.clamp(LEAST, MOST))

    @torch.no_grad()
    def moved(self, step: float) -> None:
        grown = self.variance + DRIFT * step**2
        self.variance.copy_(grown.clamp(LEAST, self.prior_variance))


class GaussianProcessWeights(GaussianSurrogateWeights):
    r"""A Gaussian-process belief: a model informs about similar ones.

    .. math:: \mu_t = \mu_{t-1} + k^\top (K + \sigma^2 I)^{-1} (y - \mu_{t-1}), \qquad
              \kappa_t = \kappa_{t-1} - k^\top (K + \sigma^2 I)^{-1} k

    over all models, so that a step costs M^2 n. The kernel is a squared exponential in the
    positions of the codes, each scaled to [0, 1] (one-hot for a list of models), its length scale
    the square root of their number.

    Arguments:
        space: A bound space of up to 4096 models.
        options: As for :class:`GaussianSurrogateWeights`.

    Raises:
        ConfigurationError: The space is too large.

    Source:
        Davies et al., "Variational transdimensional inference", eqs. 21 and 22

    Example:
        >>> from trjmcmc import problems
        >>> q = GaussianProcessWeights(problems.variable_selection(3).space)
        >>> q.covariance.shape
        torch.Size([8, 8])
    """

    covariance: Tensor
    prior: Tensor

    def __init__(self, space: Space, **options: float | str | None) -> None:
        if space.size is None or space.size > MOST_MODELS:
            raise ConfigurationError(
                f"GaussianProcessWeights: expected a space of at most {MOST_MODELS} models, got "
                f"{space.size or 'uncounted'}; use GaussianSurrogateWeights or Made"
            )
        super().__init__(space, **options)  # type: ignore[arg-type]
        code = space.enumerate()
        if space.code_width == 1 and self.levels[0] == space.context_width:
            x = space.context(code).double()
        else:
            spread = torch.tensor(self.levels, device=code.device).sub(1).clamp(min=1)
            x = (code - self.low).double() / spread
        length = max(1.0, x.shape[1] ** 0.5)
        prior = self.prior_variance * (-0.5 * torch.cdist(x, x).square() / length**2).exp()
        self.register_buffer("prior", prior)
        self.register_buffer("covariance", prior.clone())

    def _observe(self, index: Tensor, value: Tensor) -> None:
        noise = (self.variance[index] / math.expm1(2 * self.most_gain)).clamp(min=self.noise)
        k = self.covariance[:, index]
        inside = k[index] + torch.diag(noise)
        factor = torch.linalg.cholesky(inside)
        root = torch.linalg.solve_triangular(factor, k.mT, upper=False)  # (n, M)
        gap = (value - self.mean[index])[:, None]
        self.mean += (root.mT @ torch.linalg.solve_triangular(factor, gap, upper=False))[:, 0]
        self.covariance -= root.mT @ root
        self.variance.copy_(self.covariance.diagonal().clamp(LEAST, MOST))

    @torch.no_grad()
    def moved(self, step: float) -> None:
        grown = DRIFT * step**2 / self.prior_variance
        self.covariance.copy_((self.covariance + grown * self.prior) / (1 + grown))
        self.variance.copy_(self.covariance.diagonal().clamp(LEAST, MOST))
