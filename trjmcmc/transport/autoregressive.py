"""CoSMIC inverse autoregressive flows: one pass to sample, one pass a coordinate to go back."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from zuko.nn import MaskedLinear, MaskedMLP
from zuko.transforms import MonotonicAffineTransform, MonotonicRQSTransform

from ..errors import ConfigurationError
from ..rng import seeded
from ..space.base import Space
from .base import zero_last
from .reference import Reference
from .sigmoidal import parameters as network_parameters
from .sigmoidal import sigmoidal
from .standard import Standardised

Univariate = Callable[[Tensor], Any]  # parameters (..., P) to a transform of coordinates (...)

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "silu": nn.SiLU,
    "relu": nn.ReLU,
    "elu": nn.ELU,
}


class CosmicAutoregressive(Standardised):
    r"""Inverse autoregressive steps over a model's own coordinates, of one of five kinds.

    .. math:: \theta_r = \tau(z_r; \phi_r), \quad
              \phi_r = \mathrm{net}_r(z_1, \ldots, z_{r-1}, c(m)) \cdot [r \le d_m]

    where r is the rank of a coordinate among the d_m active ones, in the order of the slots,
    and tau is the identity at phi = 0, nearly for the neural kinds. The conditioner is a residual
    MADE that sees the context c(m) of the model in every unit. Ranks are reversed from one step to
    the next, among the active coordinates only. Spare coordinates are neither seen nor moved: the
    density of a model's own coordinates factorises exactly.

    :meth:`from_reference` takes one parallel pass a step. :meth:`to_reference` is sequential: a
    step takes as many passes as the largest model of the batch has coordinates (on a GPU: D,
    which needs no look at the batch). :class:`CosmicFlow` takes one pass both ways; a jump needs
    both.

    ================== =================================== =====================================
    kind               each coordinate                     arguments that give the source's
    ================== =================================== =====================================
    ``affine``         autoregressive shift and scale      the defaults: Affine(5,5)
    ``spline``         autoregressive rational-quadratic   ``transform="spline", layers=4,
                       spline; at the end one shift and    blocks=6``: Spline(4,6)
                       scale a coordinate, for all models
    ``dsf``            autoregressive sigmoidal network    ``transform="dsf", layers=2``: NAF
                       of one layer of ``nodes``
    ``ddsf``           the same, ``depth`` dense layers    ``transform="ddsf"``
    ``diagonal``       shift and scale given the model     ``transform="diagonal"``: diagonal
                                                           Gaussian
    ================== =================================== =====================================

    The neural kinds take the place of a neural autoregressive flow turned round: one pass samples.
    All their parameters come from the conditioner, ``3 nodes`` a coordinate, or for ``ddsf``
    ``3 nodes depth + (depth - 1) nodes (2 nodes - 1)``. Their tails are straight lines: right for
    those of normals, not for those of t distributions, which need such a reference.

    The last is one elementwise step: no coordinate depends on another, both directions
    take one pass. Unlike the source's, the blocks have no batch normalisation, log-scales are
    bounded, and the output is in the order of the input whatever the number of steps.

    Arguments:
        space: A bound model space.
        transform: The kind.
        layers: Number of autoregressive steps; the elementwise kind has one.
        blocks: Residual blocks of each conditioner, hidden layers if not ``residual``; none makes
            it linear.
        hidden: Width of each conditioner; raised to D where it is less, so that every
            coordinate can be seen, unless it is not ``residual``.
        activation: Of the conditioners: ``silu``, ``relu`` or ``elu``.
        residual: False gives a plain MADE, of exactly ``hidden`` units a layer. Unit k sees the
            first 1 + k mod (D - 1) coordinates if there is one model, k mod D and the context
            if there are several: with fewer units some coordinates are never seen. Units that
            see the same start in pairs of opposite sign: two rectifiers make a line.
        bins: Bins of each spline.
        bound: Half-width of the interval that splines act on, in standardised units.
        clip: Soft bound of log-scales.
        nodes: Sigmoids in a layer of each sigmoidal network.
        depth: Layers of each sigmoidal network of ``ddsf``.
        reference: Standard normal if omitted.
        seed: Seed of the initial weights. The map starts as the identity (up to
            :meth:`standardise`) whatever the seed.

    Raises:
        ConfigurationError: An unknown kind or activation, or a size that is not positive.

    Source:
        Davies et al., "Variational transdimensional inference", eqs. 4 to 7, Prop. 2.2 and
        Appendix A.2; inverse autoregressive flows: Kingma et al. (2016),
        https://arxiv.org/abs/1606.04934; MADE: Germain et al. (2015),
        https://arxiv.org/abs/1502.03509; splines: Durkan et al. (2019),
        https://arxiv.org/abs/1906.04032; sigmoidal networks: Huang et al. (2018),
        https://arxiv.org/abs/1804.00779, eqs. 8 and 9

    Example:
        >>> from trjmcmc import problems
        >>> space = problems.sinh_arcsinh().space
        >>> flow = CosmicAutoregressive(space, transform="spline", layers=2, blocks=1, hidden=16)
        >>> theta, ladj = flow.from_reference(torch.zeros(3, 2), torch.tensor([[0], [1], [1]]))
        >>> theta.shape, ladj.shape
        (torch.Size([3, 2]), torch.Size([3]))
    """

    def __init__(
        self,
        space: Space,
        *,
        transform: str = "affine",
        layers: int = 5,
        blocks: int = 5,
        hidden: int = 64,
        activation: str = "silu",
        residual: bool = True,
        bins: int = 8,
        bound: float = 6.0,
        clip: float = 3.0,
        nodes: int = 8,
        depth: int = 2,
        reference: Reference | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(space, reference)
        kinds: dict[str, tuple[int, Univariate]] = {
            "affine": (2, partial(affine, clip=clip)),
            "spline": (3 * bins - 1, partial(spline, bound=bound)),
            "dsf": (network_parameters(nodes, 1), partial(sigmoidal, nodes=nodes, depth=1)),
            "ddsf": (
                network_parameters(nodes, depth),
                partial(sigmoidal, nodes=nodes, depth=depth),
            ),
            "diagonal": (2, partial(affine, clip=clip)),
        }
        if transform not in kinds:
            raise ConfigurationError(f"transform: expected one of {list(kinds)}, got {transform!r}")
        if activation not in ACTIVATIONS:
            raise ConfigurationError(
                f"activation: expected one of {list(ACTIVATIONS)}, got {activation!r}"
            )
        if layers < 1 or blocks < 0 or hidden < 1 or bins < 2:
            raise ConfigurationError(
                "layers, hidden >= 1, blocks >= 0 and bins >= 2 expected, got "
                f"layers={layers}, blocks={blocks}, hidden={hidden}, bins={bins}"
            )
        if nodes < 1 or depth < 1:
            raise ConfigurationError(f"nodes and depth must be positive, got {nodes}, {depth}")
        if not (bound > 0 and clip > 0):
            raise ConfigurationError(f"bound and clip must be positive, got {bound}, {clip}")
        d, c = space.n_slots, space.context_width
        parameters, tau = kinds[transform]
        self.numeric = transform in ("dsf", "ddsf")  # inverted by iterations
        self.sequential = transform != "diagonal"
        before = torch.ones(d, d, dtype=torch.bool).tril(-1) & self.sequential
        # the context of an only model is a constant, which no unit of a few should be spent on
        told = residual or space.size != 1 or not bool(before.any())
        seen = torch.cat([before, torch.full((d, c), told)], 1).repeat_interleave(parameters, 0)
        widths = (max(hidden, d) if residual else hidden,) * blocks
        with seeded(seed):
            self.steps = nn.ModuleList(
                Step(
                    seen,
                    widths,
                    tau,
                    activation=ACTIVATIONS[activation],
                    residual=residual,
                    whole=space.size == 1,
                )
                for _ in range(layers if self.sequential else 1)
                if d
            )
        self.outer = nn.Parameter(torch.zeros(d, 2)) if transform == "spline" else None
        self.clip = clip

    def _layers(self, active: Tensor) -> list[tuple[Step, Tensor, Tensor, Tensor]]:
        """Each step with its order of the slots, the way back, and which of it are active."""
        order = torch.arange(active.shape[1], device=active.device).expand(active.shape)
        orders = [(order, order, active)]
        if self.sequential:
            order = left_aligned(active)
            own = active.gather(1, order)
            turned = order.gather(1, reversal(active))
            orders = [(order, order.argsort(-1), own), (turned, turned.argsort(-1), own)]
        steps = [step for step in self.steps if isinstance(step, Step)]
        return [(step, *orders[i % len(orders)]) for i, step in enumerate(steps)]

    def _outer(self, active: Tensor) -> MonotonicAffineTransform | None:
        if self.outer is None:
            return None
        return affine(torch.where(active[..., None], self.outer, 0.0), clip=self.clip)

    def from_reference(self, z: Tensor, code: Tensor) -> tuple[Tensor, Tensor]:
        active, context = self.space.active(code), self.space.context(code)
        loc, scale = self._standard(code, active)
        x, ladj = z, scale.log()
        for step, order, back, own in self._layers(active):
            y, moved = step(x.gather(1, order), context, own)
            x, ladj = y.gather(1, back), ladj + moved.gather(1, back)
        if (outer := self._outer(active)) is not None:
            x, moved = outer.call_and_ladj(x)
            ladj = ladj + moved
        theta = torch.where(active, loc + scale * x, z)
        return theta, (ladj * active).sum(-1)

    def to_reference(self, theta: Tensor, code: Tensor) -> tuple[Tensor, Tensor]:
        active, context = self.space.active(code), self.space.context(code)
        loc, scale = self._standard(code, active)
        passes = self._passes(active)
        x, ladj = (theta - loc) / scale, -scale.log()
        if (outer := self._outer(active)) is not None:
            x, moved = outer.inv.call_and_ladj(x)
            ladj = ladj + moved
        for step, order, back, own in reversed(self._layers(active)):
            y, moved = step.inverse(x.gather(1, order), context, own, passes)
            x, ladj = y.gather(1, back), ladj + moved.gather(1, back)
        z = torch.where(active, x, theta)
        return z, (ladj * active).sum(-1)

    def _passes(self, active: Tensor) -> int | None:
        """Passes that invert a step; None where one pass inverts all coordinates at once."""
        if not self.sequential:
            return None
        if active.is_cpu and len(active):
            return int(active.sum(-1).max())
        return active.shape[1]


class Step(nn.Module):
    """A map of each coordinate whose parameters come from a MADE.

    Arguments:
        seen: Which inputs (coordinates, then context) each parameter may depend on, shape
            (D P, D + c) bool, the P parameters of a coordinate next to each other.
        hidden: Widths of the hidden layers, or residual blocks.
        tau: The map of parameters (..., P); the identity where they are 0.
        activation: Between the layers.
        residual: Whether the layers are residual blocks.
        whole: Whether there is one model, to which all coordinates belong.
    """

    def __init__(
        self,
        seen: Tensor,
        hidden: tuple[int, ...],
        tau: Univariate,
        *,
        activation: Callable[[], nn.Module],
        residual: bool,
        whole: bool,
    ) -> None:
        super().__init__()
        residual = residual and bool(hidden)
        net = MaskedMLP(seen, hidden, activation=activation, residual=residual)
        if hidden and not residual:
            oppose(net[0])
        self.net = zero_last(net)
        self.tau, self.whole = tau, whole

    def phi(self, x: Tensor, context: Tensor, own: Tensor) -> Tensor:
        """Parameters, shape (C, D, P), zero for coordinates that are not the model's own."""
        seen = torch.cat([x if self.whole else torch.where(own, x, 0.0), context], -1)
        phi = self.net(seen).unflatten(-1, (x.shape[1], -1))
        return phi if self.whole else torch.where(own[..., None], phi, 0.0)

    def forward(self, x: Tensor, context: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
        """One pass: (C, D) and log-derivatives (C, D)."""
        y, ladj = self.tau(self.phi(x, context, own)).call_and_ladj(x)
        return torch.where(own, y, x), ladj

    def inverse(
        self, y: Tensor, context: Tensor, own: Tensor, passes: int | None
    ) -> tuple[Tensor, Tensor]:
        """The way back: ``passes`` passes, one coordinate each; None for all in one."""
        if passes is None:
            found, ladj = self.tau(self.phi(y, context, own)).inv.call_and_ladj(y)
            return torch.where(own, found, y), ladj
        x = ladj = torch.zeros_like(y)
        ranks = torch.arange(y.shape[1], device=y.device)
        for r in range(passes):
            if self.whole and r == 0:  # the first coordinate depends on none: one row tells
                phi = self.phi(x[:1], context[:1], own[:1])[:, r].expand(len(x), -1)
            else:
                phi = self.phi(x, context, own)[:, r]
            there = torch.where(own[:, r], y[:, r], 0.0)  # how far out spares are has no say
            found, moved = self.tau(phi).inv.call_and_ladj(there)
            x = torch.where(ranks == r, found[:, None], x)
            ladj = torch.where(ranks == r, moved[:, None], ladj)
        return torch.where(own, x, y), ladj


def oppose(layer: MaskedLinear) -> None:
    """Start a first layer from unit rows, every second of those that see the same an opposite.

    The first two of them bend at 0, so that neither is idle and both add up to any line.
    """
    groups = len(layer.mask.unique(dim=0))  # taken in turn
    unit = torch.arange(groups, len(layer.mask))
    unit = unit[unit // groups % 2 == 1]
    with torch.no_grad():
        layer.weight.copy_(normalize(layer.weight * layer.mask))
        layer.bias[: 2 * groups] = 0.0
        for part in (layer.weight, layer.bias):
            part[unit] = -part[unit - groups]


def affine(phi: Tensor, clip: float) -> MonotonicAffineTransform:
    """Shift and log-scale from parameters (..., 2)."""
    shift, scale = phi.unbind(-1)
    return MonotonicAffineTransform(shift, scale, slope=math.exp(-clip))


def spline(phi: Tensor, bound: float) -> MonotonicRQSTransform:
    """Rational-quadratic spline from parameters (..., 3 bins - 1)."""
    bins = (phi.shape[-1] + 1) // 3
    return MonotonicRQSTransform(*phi.split([bins, bins, bins - 1], dim=-1), bound=bound)


def left_aligned(active: Tensor) -> Tensor:
    """Slots in the order: active ones, then spare ones, each in their own order.

    Arguments:
        active: Which slots each model uses, shape (C, D) bool.

    Returns:
        Indices, shape (C, D): ``x.gather(1, order)`` is left-aligned, ``order.argsort(-1)``
        leads back.

    Source:
        Davies et al., "Variational transdimensional inference", Prop. 2.2

    Example:
        >>> left_aligned(torch.tensor([[False, True, False, True]]))
        tensor([[1, 3, 0, 2]])
    """
    return (~active).to(torch.uint8).argsort(dim=-1, stable=True)


def reversal(active: Tensor) -> Tensor:
    """Ranks with those of the active coordinates in reverse; its own inverse.

    Arguments:
        active: Which slots each model uses, shape (C, D) bool.

    Returns:
        Indices into left-aligned coordinates, shape (C, D).

    Source:
        Davies et al., "Variational transdimensional inference", Appendix A.2

    Example:
        >>> reversal(torch.tensor([[True, True, False, True]]))
        tensor([[2, 1, 0, 3]])
    """
    count = active.sum(-1, keepdim=True)
    rank = torch.arange(active.shape[1], device=active.device)
    return torch.where(rank < count, count - 1 - rank, rank)
