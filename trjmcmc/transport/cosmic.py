"""CoSMIC coupling flows: one conditional flow for all models, spare coordinates untouched."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from zuko.nn import MLP
from zuko.transforms import MonotonicAffineTransform, MonotonicRQSTransform

from ..errors import ConfigurationError
from ..rng import seeded
from ..space.base import Space
from .base import zero_last
from .reference import Reference
from .standard import Standardised


class CosmicFlow(Standardised):
    r"""Affine couplings split by rank among the active coordinates, then elementwise splines.

    From the reference outwards: a base affine map, affine couplings, a rational-quadratic
    spline on each coordinate, an output affine map. Every parameter of every layer depends on
    the model and is masked towards the identity on the coordinates that the model does not
    use:

    .. math:: \phi = \mathrm{net}([z \odot A(m), c(m)]) \odot B(m)

    with A and B a split of the *active* coordinates in two, by rank, so that each model is
    split evenly. The density of a model's own coordinates then factorises exactly.

    Arguments:
        space: A bound model space.
        layers: Number of couplings.
        hidden: Widths of the hidden layers of each conditioner.
        bins: Bins of the elementwise splines; 0 leaves them out.
        bound: Half-width of the interval that the splines act on, in standardised units.
        clip: Soft bound of the log-scales of a coupling.
        reference: Standard normal if omitted.
        seed: Seed of the initial weights and of the splits. The map starts as the identity
            (up to :meth:`standardise`) whatever the seed.

    Raises:
        ConfigurationError: A size is not positive.

    Source:
        CoSMIC masking: Davies et al., "Variational transdimensional inference", Prop. 2.2;
        couplings: Dinh et al. (2017), https://arxiv.org/abs/1605.08803; splines: Durkan et al.
        (2019), https://arxiv.org/abs/1906.04032

    Example:
        >>> from trjmcmc import problems
        >>> flow = CosmicFlow(problems.sinh_arcsinh().space, layers=2, hidden=(16,))
        >>> theta, ladj = flow.from_reference(torch.zeros(3, 2), torch.tensor([[0], [1], [1]]))
        >>> theta.shape, ladj.shape
        (torch.Size([3, 2]), torch.Size([3]))
    """

    split: Tensor

    def __init__(
        self,
        space: Space,
        *,
        layers: int = 8,
        hidden: Sequence[int] = (64, 64),
        bins: int = 8,
        bound: float = 6.0,
        clip: float = 3.0,
        reference: Reference | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(space, reference)
        if layers < 0 or bins < 0 or bins == 1 or not all(h > 0 for h in hidden):
            raise ConfigurationError(
                f"layers >= 0, bins 0 or >= 2 and hidden > 0 expected, got layers={layers}, "
                f"bins={bins}, hidden={tuple(hidden)}"
            )
        if not (bound > 0 and clip > 0):
            raise ConfigurationError(f"bound and clip must be positive, got {bound}, {clip}")
        d, c = space.n_slots, space.context_width
        self.bins, self.bound, self.slope = bins, bound, math.exp(-clip)
        self.register_buffer("split", _splits(layers, d, seed))
        with seeded(seed):
            self.base = zero_last(MLP(c, 2 * d, ()))
            self.nets = nn.ModuleList(
                zero_last(MLP(d + c, 2 * d, hidden, activation=nn.SiLU)) for _ in range(layers)
            )
            width = hidden[0] if hidden else 64
            self.spline = None
            if bins:
                self.spline = zero_last(MLP(c, d * (3 * bins - 1), (width,), activation=nn.SiLU))
            self.output = zero_last(MLP(c, 2 * d, ()))

    # Each layer is a pair of (C, D) transforms; both directions walk the same list.

    def _affine(self, phi: Tensor, mask: Tensor) -> MonotonicAffineTransform:
        shift, scale = (phi.unflatten(-1, (2, mask.shape[1])) * mask[:, None]).unbind(1)
        return MonotonicAffineTransform(shift, scale, slope=self.slope)

    def _elementwise(
        self, active: Tensor, context: Tensor
    ) -> tuple[MonotonicAffineTransform, MonotonicRQSTransform | None, MonotonicAffineTransform]:
        spline = None
        if self.spline is not None:
            phi = self.spline(context).unflatten(-1, (active.shape[1], 3 * self.bins - 1))
            phi = phi * active[..., None]
            widths, heights, slopes = phi.split([self.bins, self.bins, self.bins - 1], dim=-1)
            spline = MonotonicRQSTransform(widths, heights, slopes, bound=self.bound)
        base = self._affine(self.base(context), active)
        output = self._affine(self.output(context), active)
        return base, spline, output

    def _masks(self, code: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Active coordinates, context, and the conditioning half A and moving half B by layer."""
        on = self.space.active(code)
        rank = (on.cumsum(-1) - 1).clamp(min=0)
        count = on.sum(-1)
        first = self.split[:, count].gather(-1, rank.expand(len(self.split), -1, -1))
        dtype = self.loc.dtype
        active = on.to(dtype)
        a = first.to(dtype) * active
        return active, self.space.context(code), a, active - a

    def from_reference(self, z: Tensor, code: Tensor) -> tuple[Tensor, Tensor]:
        active, context, a, b = self._masks(code)
        base, spline, output = self._elementwise(active, context)
        loc, scale = self._standard(code, active)
        x, ladj = base.call_and_ladj(z)
        for i, net in enumerate(self.nets):
            phi = net(torch.cat([x * a[i], context], -1))
            x, step = self._affine(phi, b[i]).call_and_ladj(x)
            ladj = ladj + step
        if spline is not None:
            x, step = spline.call_and_ladj(x)
            ladj = ladj + step
        x, step = output.call_and_ladj(x)
        # rounding inside the layers must not touch spare coordinates
        theta = torch.where(active > 0, loc + scale * x, z)
        return theta, ((ladj + step + scale.log()) * active).sum(-1)

    def to_reference(self, theta: Tensor, code: Tensor) -> tuple[Tensor, Tensor]:
        active, context, a, b = self._masks(code)
        base, spline, output = self._elementwise(active, context)
        loc, scale = self._standard(code, active)
        x, ladj = output.inv.call_and_ladj((theta - loc) / scale)
        if spline is not None:
            x, step = spline.inv.call_and_ladj(x)
            ladj = ladj + step
        for i in reversed(range(len(self.nets))):
            phi = self.nets[i](torch.cat([x * a[i], context], -1))
            x, step = self._affine(phi, b[i]).inv.call_and_ladj(x)
            ladj = ladj + step
        x, step = base.inv.call_and_ladj(x)
        z = torch.where(active > 0, x, theta)
        return z, ((ladj + step - scale.log()) * active).sum(-1)


def _splits(layers: int, d: int, seed: int) -> Tensor:
    """For each layer, number of active coordinates and rank: is it in the first half?

    Layers come in pairs of a random even split and its complement, shape (layers, D + 1, D).
    """
    generator = torch.Generator().manual_seed(seed)
    split = torch.zeros(layers, d + 1, d, dtype=torch.bool)
    for i in range(layers):
        for n in range(1, d + 1):
            if i % 2:
                split[i, n, :n] = ~split[i - 1, n, :n]
            else:
                split[i, n, torch.randperm(n, generator=generator)[: n // 2]] = True
    return split
