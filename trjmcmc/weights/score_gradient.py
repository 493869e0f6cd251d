"""q(m) that learns by the score of its draws, and the one with a weight a model."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..errors import ConfigurationError
from ..space.base import Space, check_enumerable
from .base import ModelWeights, draw_models

SLOWEST = 0.05  # of the learning rate, at the end of a fit

# Adam's: with .999 for the squares one draw of a bad model, in a batch of good ones, makes ten long
# steps, which took an entry to where no draw brings it back in 2 of 8 fits; with .99 in none of 20
BETAS = (0.9, 0.99)

HALVINGS = 20  # of a step that changes the entropy too much

# nats: spread of tempered losses over the first half of a fit. Untempered, losses hundreds of nats
# apart teach nothing of models some nats apart, and an entry that is wrong early has no draws that
# bring it back: with three correlated columns, two of them in, q was 1.3 to 1.8 nats from p(z | y)
SPREAD = 5.0


class ScoreGradient(ModelWeights):
    r"""A parametric q, learnt by score-function gradients.

    .. math:: \nabla = \mathrm{E}_q [(\ell + \log q(m) - \varsigma) \nabla \log q(m)]

    with the control variate \varsigma of a draw the mean of the *other* draws of its batch, so
    that the gradient is unbiased. Each Adam step is halved until it changes the entropy of q,
    estimated with importance weights, by no more than ``entropy_step``. Over the first half of a
    fit losses are tempered: divided by what brings the standard deviation of a batch's to 5 nats.

    Arguments:
        space: A bound model space.
        learning_rate: Of Adam; it falls over the last half of a fit.
        entropy_step: Nats.

    Source:
        Davies et al., "Variational transdimensional inference", eqs. 14, 15, 47-53; mean of the
        others: Kool, van Hoof & Welling (2019), https://openreview.net/forum?id=r1lgTGL5DE
    """

    def __init__(
        self,
        space: Space,
        *,
        learning_rate: float,
        entropy_step: float = 0.1,
    ) -> None:
        super().__init__(space)
        if not learning_rate > 0 or not entropy_step > 0:
            raise ConfigurationError(
                f"expected learning_rate > 0, entropy_step > 0, got {learning_rate}, {entropy_step}"
            )
        self.learning_rate, self.entropy_step = learning_rate, entropy_step
        self._pace, self._tempers = 1.0, False
        self._optimiser: torch.optim.Optimizer | None = None

    def learn(self, code: Tensor, loss: Tensor) -> None:
        parameters = [p for p in self.parameters() if p.requires_grad]
        if not parameters or not code.numel():
            return
        if self._optimiser is None:
            self._optimiser = torch.optim.Adam(parameters, lr=self.learning_rate, betas=BETAS)
        log_q, gradient = self.gradient(code, loss)
        for p, g in zip(parameters, gradient, strict=True):
            p.grad = g
        before = [p.detach().clone() for p in parameters]
        for group in self._optimiser.param_groups:
            group["lr"] = self._pace * self.learning_rate
        self._optimiser.step()
        self._limit(code, log_q, parameters, before)

    def gradient(self, code: Tensor, loss: Tensor) -> tuple[Tensor, list[Tensor]]:
        """log q of a batch and the gradient from it."""
        parameters = [p for p in self.parameters() if p.requires_grad]
        with torch.enable_grad():
            log_q = self.log_prob(code)
            gain = self._tempered(self.sound(loss).to(log_q)) + log_q.detach()
            objective = ((gain - self._baseline(gain)) * log_q).mean()
            found = torch.autograd.grad(objective, parameters, allow_unused=True)
        pairs = zip(found, parameters, strict=True)
        return log_q.detach(), [torch.zeros_like(p) if g is None else g for g, p in pairs]

    def reached(self, progress: float) -> None:
        self._pace = min(1.0, max(SLOWEST, 2 * (1 - progress)))
        self._tempers = 0 < progress < 0.5

    def _tempered(self, loss: Tensor) -> Tensor:
        if not self._tempers or len(loss) < 2:
            return loss
        return loss * (SPREAD / loss.std()).clamp(max=1.0)

    def _baseline(self, gain: Tensor) -> Tensor:
        return (gain.sum() - gain) / max(1, len(gain) - 1)

    @torch.no_grad()
    def _limit(
        self, code: Tensor, old: Tensor, parameters: list[nn.Parameter], before: list[Tensor]
    ) -> None:
        """Shorten the step just made until the entropy changes by little enough."""
        steps = [p - b for p, b in zip(parameters, before, strict=True)]
        for i in range(HALVINGS):
            new = self.log_prob(code)
            change = ((new - old).exp() * new - old).mean()
            if bool(change.abs() <= self.entropy_step):
                return
            for p, b, step in zip(parameters, before, steps, strict=True):
                p.copy_(b + 0.5 ** (i + 1) * step)
        for p, b in zip(parameters, before, strict=True):
            p.copy_(b)


class CategoricalWeights(ScoreGradient):
    """One logit a model, for spaces that can be listed; uniform at the start.

    Arguments:
        space: A bound space of up to 65 536 models.
        options: As for :class:`ScoreGradient`.

    Raises:
        ShapeError: The space is too large.

    Example:
        >>> from trjmcmc import problems
        >>> q = CategoricalWeights(problems.variable_selection(3).space)
        >>> q.sample(5, torch.Generator().manual_seed(0)).shape
        torch.Size([5, 3])
    """

    by_position = False

    def __init__(self, space: Space, *, learning_rate: float = 0.1, **options: Any) -> None:
        check_enumerable(space)
        super().__init__(space, learning_rate=learning_rate, **options)
        self.logits = nn.Parameter(torch.zeros(int(space.size or 1), device=self.low.device))

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        return draw_models(self.space, self.logits.detach(), n, generator)

    def log_prob(self, code: Tensor) -> Tensor:
        return self.logits.log_softmax(0)[self.space.index(code)]
