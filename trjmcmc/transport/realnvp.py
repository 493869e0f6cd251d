"""Conditional RealNVP as Yin & Jiao write it: spare coordinates move like all the others."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from zuko.nn import MLP
from zuko.transforms import MonotonicAffineTransform

from ..errors import ConfigurationError
from ..rng import seeded
from ..space.base import Space
from .base import Bijection, zero_last
from .reference import Gaussian


class ConditionalRealNVP(Bijection):
    r"""Affine couplings of all D coordinates, over a normal base that depends on the model.

    .. math:: x_A = z_A, \quad x_B = z_B \odot \exp s(z_A, m) + t(z_A, m), \quad
              z \sim N(\mu(m), \Sigma(m))

    with A and B the two halves of the coordinates, which change places from one coupling to
    the next. Coordinates that a model does not use are transformed too: the map is fitted to
    posterior times reference, and a chain draws its spare coordinates afresh before each jump.
    :class:`CosmicFlow` leaves them out exactly; this one is here to be compared with.

    Log-scales are bent towards a bound of 6.9; the paper's have none.

    Arguments:
        space: A bound model space.
        layers: Number of couplings.
        hidden: Widths of the hidden layers of each conditioner, and of the base.
        seed: Seed of the initial weights. The map starts as the identity whatever the seed.

    Raises:
        ConfigurationError: A size is not positive.

    Source:
        Yin & Jiao, eqs. 18 and 19 and Appendix A; couplings: Dinh et al. (2017),
        https://arxiv.org/abs/1605.08803

    Example:
        >>> from trjmcmc import problems
        >>> flow = ConditionalRealNVP(problems.sinh_arcsinh().space, layers=2)
        >>> theta, ladj = flow.from_reference(torch.zeros(3, 2), torch.tensor([[0], [1], [1]]))
        >>> theta.shape, ladj.shape
        (torch.Size([3, 2]), torch.Size([3]))
    """

    spares_pass = False
    first: Tensor

    def __init__(
        self, space: Space, *, layers: int = 8, hidden: Sequence[int] = (256,), seed: int = 0
    ) -> None:
        super().__init__(space, Gaussian())
        if layers < 0 or not all(h > 0 for h in hidden):
            raise ConfigurationError(
                f"layers >= 0 and hidden > 0 expected, got layers={layers}, hidden={tuple(hidden)}"
            )
        d, c = space.n_slots, space.context_width
        self.register_buffer("first", torch.arange(d) < d // 2)
        with seeded(seed):
            self.base = zero_last(MLP(c, 2 * d, hidden, activation=nn.LeakyReLU))
            self.nets = nn.ModuleList(
                zero_last(MLP(d + c, 2 * d, hidden, activation=nn.LeakyReLU)) for _ in range(layers)
            )

    def _coupling(self, i: int, x: Tensor, context: Tensor) -> MonotonicAffineTransform:
        """The i-th coupling given the half that passes; that half is the same there and back."""
        passing = self.first if i % 2 == 0 else ~self.first
        phi = self.nets[i](torch.cat([torch.where(passing, x, 0.0), context], -1))
        shift, scale = torch.where(passing, 0.0, phi.unflatten(-1, (2, x.shape[1]))).unbind(1)
        return MonotonicAffineTransform(shift, scale)

    def _base(self, context: Tensor) -> MonotonicAffineTransform:
        shift, scale = self.base(context).unflatten(-1, (2, len(self.first))).unbind(1)
        return MonotonicAffineTransform(shift, scale)

    def from_reference(self, z: Tensor, code: Tensor) -> tuple[Tensor, Tensor]:
        context = self.space.context(code)
        x, ladj = self._base(context).call_and_ladj(z)
        for i in range(len(self.nets)):
            x, step = self._coupling(i, x, context).call_and_ladj(x)
            ladj = ladj + step
        return x, ladj.sum(-1)

    def to_reference(self, theta: Tensor, code: Tensor) -> tuple[Tensor, Tensor]:
        context = self.space.context(code)
        x, ladj = theta, torch.zeros_like(theta)
        for i in reversed(range(len(self.nets))):
            x, step = self._coupling(i, x, context).inv.call_and_ladj(x)
            ladj = ladj + step
        x, step = self._base(context).inv.call_and_ladj(x)
        return x, (ladj + step).sum(-1)
