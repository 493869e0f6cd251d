"""Sigmoidal networks of one variable, the coordinates of neural autoregressive flows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Transform, constraints
from torch.nn.functional import logsigmoid, softplus

from ..grouping import on_host

FLOOR = 1e-3  # least slope of a node: the inverse divides by it
SPREAD = 0.3  # of nodes at the start: those that are alike have one gradient, and stay alike
CLOSE = 0.7  # power of the precision: Newton steps so short leave an error of about their square
FREE_STEPS = 8  # Newton steps of a search that need not halve
PLAIN = 0.8  # share of the largest logit of a number down to which plain sums of sigmoids are exact
SPARE_STEPS = 16  # of a search, beyond one for each bit of a number


class SigmoidalLayer(NamedTuple):
    r"""One layer of a sigmoidal network.

    .. math:: h'_o = \mathrm{logit} \sum_k w_{ok}\, \sigma\Big(a_k \sum_i u_{ki} h_i + b_k\Big)

    Attributes:
        slope: a > 0, shape (..., H).
        shift: b, shape (..., H).
        log_weight: log w, shape (..., O, H), normalised over H.
        log_mix: log u, shape (..., H, I), normalised over I; None where I = 1.
    """

    slope: Tensor
    shift: Tensor
    log_weight: Tensor
    log_mix: Tensor | None = None

    def forward(self, h: Tensor, log_rise: Tensor) -> tuple[Tensor, Tensor]:
        """Units (..., I) and their log-derivatives to those of the next layer, (..., O)."""
        if self.log_mix is not None:
            h = (self.log_mix.exp() @ h[..., None])[..., 0]
            log_rise = (self.log_mix + log_rise[..., None, :]).logsumexp(-1)
        node = self.slope * h + self.shift
        above, below = logsigmoid(node), logsigmoid(-node)
        log_rise = self.slope.log() + log_rise + above + below
        # a sum and what it lacks to 1, each in logarithms: neither cancels, however large h
        up, down, log_rise = (
            (self.log_weight + part[..., None, :]).logsumexp(-1)
            for part in (above, below, log_rise)
        )
        return up - down, log_rise - up - down

    def plain(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The logit and its slope at single inputs (...), by sums that may underflow far out."""
        node = self.slope * x[..., None] + self.shift
        weight = self.log_weight[..., 0, :].exp()
        above, below = node.sigmoid(), (-node).sigmoid()
        up, down = (weight * above).sum(-1), (weight * below).sum(-1)
        rise = (weight * self.slope * above * below).sum(-1)
        return up.log() - down.log(), rise / (up * down)

    def bracket(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """Bounds (...) of some inputs, from bounds (...) of the outputs.

        An output lies between the least and the largest of the nodes, whatever the weights.
        """
        ends = [(end[..., None] - self.shift) / self.slope for end in (low, high)]
        return ends[0].amin(-1), ends[1].amax(-1)


class SigmoidalTransform(Transform):
    """An increasing network of one variable, onto the whole line; its tails are straight.

    The inverse is searched for by Newton steps inside a bracket, by bisection where they do
    not close in. Its gradient is that of the implicit function; second derivatives of it are
    not available.

    Arguments:
        layers: One or more, with parameters for each point; the first takes one unit and the
            last gives one.

    Source:
        Huang et al. (2018), https://arxiv.org/abs/1804.00779, eqs. 8 and 9

    Example:
        >>> half = torch.tensor([0.5, 0.5]).log()[None]
        >>> layer = SigmoidalLayer(torch.ones(2), torch.tensor([-3.0, 3.0]), half)
        >>> step = SigmoidalTransform([layer])
        >>> y = step(torch.tensor([-50.0, 50.0]))  # log 2 beyond the node that lags
        >>> [round(float(value), 2) for value in y]
        [-47.69, 47.69]
    """

    domain = constraints.real
    codomain = constraints.real
    bijective = True
    sign = +1

    def __init__(self, layers: Sequence[SigmoidalLayer]) -> None:
        super().__init__()
        self.layers = layers

    def call_and_ladj(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h, log_rise = x[..., None], torch.zeros_like(x)[..., None]
        for layer in self.layers:
            h, log_rise = layer.forward(h, log_rise)
        return h[..., 0], log_rise[..., 0]

    def _call(self, x: Tensor) -> Tensor:
        return self.call_and_ladj(x)[0]

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return self.call_and_ladj(x)[1]

    def _inverse(self, y: Tensor) -> Tensor:
        with torch.no_grad():
            x = self._search(y)
            slope = self.call_and_ladj(x)[1].exp()
            slope = slope.clamp(min=torch.finfo(y.dtype).eps ** 2)  # may round to zero
        gap = self._call(x) - y
        return x - (gap - gap.detach()) / slope

    def _search(self, y: Tensor) -> Tensor:
        """Newton steps inside a bracket from 0, near which most points of a reference lie.

        The first may go wherever the bracket lets them: halving it, whose ends can lie far out,
        would lead astray. Later ones must halve, or bisection takes their place.
        """
        low = high = y
        for layer in reversed(self.layers):
            low, high = layer.bracket(low, high)
        x, last = torch.clamp(torch.zeros_like(y), low, high), high - low
        eps = torch.finfo(y.dtype).eps
        value_and_slope, done = self._evaluation(y), torch.zeros_like(y, dtype=torch.bool)
        for i in range(SPARE_STEPS - round(math.log2(eps))):
            value, slope = value_and_slope(x)
            low, high = torch.where(value < y, x, low), torch.where(value < y, high, x)
            newton = (y - value) / slope
            good = (x + newton >= low) & (x + newton <= high)
            if i >= FREE_STEPS:
                good &= newton.abs() <= last / 2
            step = torch.where(good, newton, (low + high) / 2 - x)
            done |= (y - value).abs() <= 2 * eps * (1 + y.abs())
            x, last = torch.where(done, x, x + step), step.abs()
            done |= last <= torch.where(good, eps**CLOSE, eps) * (1 + x.abs())  # stays there
            if on_host(x) and bool(done.all()):
                break
        return x

    def _evaluation(self, y: Tensor) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        """The network and its slope; of one layer by plain sums, unless outputs are large."""
        if len(self.layers) == 1 and on_host(y) and y.numel():
            (layer,) = self.layers
            if float(y.abs().max()) < PLAIN * -math.log(torch.finfo(y.dtype).tiny):
                return layer.plain

        def by_logarithms(x: Tensor) -> tuple[Tensor, Tensor]:
            value, log_slope = self.call_and_ladj(x)
            return value, log_slope.exp()

        return by_logarithms


def parameters(nodes: int, depth: int) -> int:
    """How many parameters :func:`sigmoidal` takes."""
    return 3 * nodes * depth + (depth - 1) * (2 * nodes * nodes - nodes)


def sigmoidal(phi: Tensor, nodes: int, depth: int) -> SigmoidalTransform:
    """A network of ``depth`` layers from parameters (..., :func:`parameters`).

    At 0 all slopes are 1 and the nodes lie close together: nearly the identity. Units of hidden
    layers weigh their own node more, or all would stay alike.

    Arguments:
        phi: Shape (..., P).
        nodes: H, of each layer and of what lies between them.
        depth: Layers.
    """
    eye = torch.eye(nodes, dtype=phi.dtype, device=phi.device)
    spread = torch.linspace(-SPREAD, SPREAD, nodes, dtype=phi.dtype, device=phi.device)
    layers = []
    for i in range(depth):
        outputs, inputs = (1 if i == depth - 1 else nodes), (nodes if i else 0)
        sizes = [nodes, nodes, outputs * nodes, nodes * inputs]
        slope, shift, weight, mix, phi = phi.split([*sizes, phi.shape[-1] - sum(sizes)], -1)
        weight, mix = weight.unflatten(-1, (outputs, nodes)), mix.unflatten(-1, (nodes, inputs))
        layers.append(
            SigmoidalLayer(
                FLOOR + softplus(slope + math.log(math.expm1(1 - FLOOR))),
                shift + spread,
                (weight + eye if outputs > 1 else weight).log_softmax(-1),
                (mix + eye).log_softmax(-1) if inputs else None,
            )
        )
    return SigmoidalTransform(layers)
