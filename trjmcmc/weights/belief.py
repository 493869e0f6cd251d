"""Distributions over models by a Gaussian belief about the evidence lower bound of each."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..errors import ConfigurationError
from ..space.base import Space, check_enumerable
from .base import ModelWeights, draw_models

MEMORY = 0.9  # of what is learnt of noise and drift, from a batch to the next

CLIPPED = 5.0  # standard deviations by which an observation may differ from what was believed


class GaussianSurrogateWeights(ModelWeights):
    r"""An independent normal belief about each model's bound, filtered as the map learns.

    Minus a loss is a noisy observation of u(m), the evidence lower bound with log p(m); then
    q(m) is proportional to exp(u(m)), u the mean of the belief. Models to learn from are drawn
    in proportion to the exponential of an optimistic bound or of a draw of the belief.

    Bounds rise while the map learns. What all models of a batch have in common shifts every belief;
    beyond that each is a random walk, and beliefs age by its variance. This drift, and the noise of
    an observation, are measured on the way: the noise by draws of one model in one batch, the drift
    by how much more beliefs are off than they and the noise explain.

    It stands in for the bound as a function of the model (a surrogate in the source's words); the
    smooth surrogate of a likelihood, ``Model(surrogate=...)``, is another thing.

    Arguments:
        space: A bound space of up to 65 536 models.
        acquisition: ``"ucb"``, mean plus ``beta`` standard deviations, or ``"thompson"``.
        beta: Width of both, in standard deviations.
        prior_sd: Of the belief at the start, nats, around the first batch's mean; if omitted, the
            spread of the first batch.

    Raises:
        ConfigurationError: An acquisition that is not known, a size that is not positive.
        ShapeError: The space is too large.

    Source:
        Davies et al., "Variational transdimensional inference", eqs. 11, 12 and 23-25, whose
        beliefs age by the length of the optimiser's step; upper confidence bounds: Srinivas et al.
        (2010), https://arxiv.org/abs/0912.3995

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
        prior_sd: float | None = None,
    ) -> None:
        check_enumerable(space)
        super().__init__(space)
        if acquisition not in {"ucb", "thompson"}:
            raise ConfigurationError(
                f'acquisition: expected "ucb" or "thompson", got {acquisition!r}'
            )
        if not min(beta, 1.0 if prior_sd is None else prior_sd) > 0:
            raise ConfigurationError(f"expected beta, prior_sd > 0, got {beta}, {prior_sd}")
        self.acquisition, self.beta, self.prior_sd = acquisition, beta, prior_sd
        self.noise, self.drift, self._batches = 0.0, 0.0, 0  # nats^2
        device, size = self.low.device, int(space.size or 1)
        self.register_buffer("mean", torch.zeros(size, dtype=torch.float64, device=device))
        self.register_buffer("variance", torch.ones_like(self.mean))
        self.register_buffer("possible", self.space.log_prior(self.space.enumerate()) > -math.inf)

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        return draw_models(self.space, self._possible(self.mean), n, generator)

    def log_prob(self, code: Tensor) -> Tensor:
        log_p = self._possible(self.mean).log_softmax(0)[self.space.index(code)]
        return log_p.to(torch.get_default_dtype())

    def explore(self, n: int, generator: torch.Generator) -> Tensor:
        if not self._batches:
            return self.space.sample_prior(n, generator)
        sd = self.variance.sqrt()
        if self.acquisition == "thompson":
            sd = sd * torch.randn(sd.shape, generator=generator, dtype=sd.dtype, device=sd.device)
        return draw_models(self.space, self._possible(self.mean + self.beta * sd), n, generator)

    def _possible(self, utility: Tensor) -> Tensor:
        return torch.where(self.possible, utility, -math.inf)

    @torch.no_grad()
    def learn(self, code: Tensor, loss: Tensor) -> None:
        value, index = -self.sound(loss).double(), self.space.index(code)
        if not self._batches:
            spread = max(1.0, float(value.std(correction=0)))
            self.prior_sd = self.prior_sd or spread
            self.mean.fill_(float(value.mean()))
            self.variance.fill_(self.prior_sd**2)
            self.noise = spread**2
        sd = CLIPPED * (self.variance[index] + self.noise).sqrt()
        value = self.mean[index] + (value - self.mean[index]).clamp(-sd, sd)
        seen, which, count = index.unique(return_inverse=True, return_counts=True)
        average = torch.zeros_like(count, dtype=value.dtype).index_add(0, which, value) / count
        repeats = len(index) - len(seen)
        if repeats:
            found = float((value - average[which]).square().sum()) / repeats
            self.noise = MEMORY * self.noise + (1 - MEMORY) * found
        self._follow(average - self.mean[seen], self.variance[seen] + self.noise / count)
        gap = average - self.mean[seen]
        gain = self.variance[seen] / (self.variance[seen] + self.noise / count)
        self.mean[seen] += gain * gap
        self.variance[seen] *= 1 - gain
        self._batches += 1

    def _follow(self, gap: Tensor, expected: Tensor) -> None:
        """Shift all beliefs by what the batch has in common, and let them age.

        Arguments:
            gap: Averages of the observations of each model minus what was believed, nats.
            expected: Its variance.
        """
        assert self.prior_sd is not None
        common = float((gap / expected).sum() / (1 / expected).sum())
        self.mean += common
        weight = expected.square().reciprocal()
        more = float((weight * ((gap - common).square() - expected)).sum() / weight.sum())
        self.drift = max(0.0, MEMORY * self.drift + (1 - MEMORY) * more)
        self.variance += self.drift
        self.variance.clamp_(max=self.prior_sd**2)
