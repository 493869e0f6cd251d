"""RealNVP as Yin & Jiao write it: one per model, or one for all that moves spare coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn
from zuko.flows import NSF
from zuko.flows import RealNVP as Couplings
from zuko.flows.gaussianization import ElementWiseTransform
from zuko.lazy import Flow, UnconditionalTransform
from zuko.nn import MLP
from zuko.transforms import MonotonicAffineTransform

from ..errors import ConfigurationError
from ..rng import seeded
from ..space.base import Space
from .base import zero_last
from .loft import LogSoftExtension
from .per_model import PerModel
from .reference import Reference
from .standard import Standardised


class RealNVP(PerModel):
    """A RealNVP of its own for each model of a small space: affine couplings of two halves.

    All start as the identity. A model of one coordinate has nothing to couple, and an affine map
    would be all that is left: it gets a rational-quadratic spline between two of these. (Yin &
    Jiao take planar flows there, which have no inverse in closed form; zuko has none.) Log-scales
    of a coupling are bent towards a bound of 6.9; the paper's have none.

    Arguments:
        space: A bound space of few models.
        layers: Couplings of each; the paper takes 8 or 9 on its toy, 16 on factor models.
        hidden: Widths of the hidden layers of each conditioner.
        reference: Standard normal if omitted; :class:`~trjmcmc.transport.TrainableStudentT` learns
            degrees of freedom of each coordinate.
        loft: Distance in standardised units from which coordinates grow logarithmically
            (:class:`~trjmcmc.transport.loft.LogSoftExtension`), such as 100; None leaves it out.
        seed: Seed of the initial weights.

    Raises:
        ConfigurationError: A size is not positive.

    Source:
        Yin & Jiao, https://arxiv.org/abs/2512.12742, eq. 11 and Appendix A; couplings: Dinh et al.
        (2017), https://arxiv.org/abs/1605.08803

    Example:
        >>> from trjmcmc import problems
        >>> flow = RealNVP(problems.sinh_arcsinh().space, layers=2)
        >>> theta, ladj = flow.from_reference(torch.ones(2, 2), torch.tensor([[0], [1]]))
        >>> theta.tolist(), ladj.tolist()
        ([[1.0, 1.0], [1.0, 1.0]], [0.0, 0.0])
    """

    sequential = False  # couplings take one pass either way

    def __init__(
        self,
        space: Space,
        *,
        layers: int = 8,
        hidden: Sequence[int] = (256,),
        reference: Reference | None = None,
        loft: float | None = None,
        seed: int = 0,
    ) -> None:
        _check(layers, hidden, loft)
        flow = partial(_one, layers=layers, hidden=tuple(hidden), loft=loft)
        super().__init__(space, flow, reference=reference, seed=seed)


def _one(d: int, *, layers: int, hidden: tuple[int, ...], loft: float | None) -> Flow:
    """A zuko flow of d coordinates that starts as the identity."""
    if d > 1:
        flow = Couplings(d, transforms=layers, hidden_features=hidden, activation=nn.LeakyReLU)
    else:
        affine = partial(ElementWiseTransform, 1, univariate=MonotonicAffineTransform)
        flow = NSF(1, transforms=1)
        flow = Flow([affine(), *flow.transform.transforms, affine()], flow.base)
    for module in flow.modules():
        if isinstance(module, MLP):
            zero_last(module)
        elif isinstance(module, nn.ParameterList):  # of coordinates without a conditioner
            for parameter in module:
                nn.init.zeros_(parameter)
    bend = [] if loft is None else [UnconditionalTransform(LogSoftExtension, loft)]
    return Flow([*bend, *flow.transform.transforms], flow.base)


def _check(layers: int, hidden: Sequence[int], loft: float | None) -> None:
    if layers < 0 or not all(h > 0 for h in hidden) or not (loft is None or loft > 0):
        raise ConfigurationError(
            f"layers >= 0, hidden > 0 and loft > 0 expected, got layers={layers}, "
            f"hidden={tuple(hidden)}, loft={loft}"
        )


class ConditionalRealNVP(Standardised):
    r"""Affine couplings of all D coordinates, over a normal base that depends on the model.

    .. math:: x_A = z_A, \quad x_B = z_B \odot \exp s(z_A, m) + t(z_A, m), \quad
              z \sim N(\mu(m), \Sigma(m))

    with A and B the two halves of the coordinates, which change places from one coupling to
    the next. Coordinates that a model does not use are transformed too: the map is fitted to
    posterior times reference, and a chain draws its spare coordinates afresh before each jump.
    :class:`CosmicFlow` leaves them out exactly.

    Log-scales are bent towards a bound of 6.9, and parameters have units of their own
    (:meth:`standardise`), the identity at the start; the paper's have neither.

    Arguments:
        space: A bound model space.
        layers: Number of couplings.
        hidden: Widths of the hidden layers of each conditioner, and of the base.
        reference: Standard normal if omitted; see :class:`RealNVP`.
        loft: As of :class:`RealNVP`.
        seed: Seed of the initial weights. The map starts as the identity whatever the seed.

    Raises:
        ConfigurationError: A size is not positive.

    Source:
        Yin & Jiao, https://arxiv.org/abs/2512.12742, eqs. 18 and 19 and Appendix A; couplings:
        Dinh et al. (2017), https://arxiv.org/abs/1605.08803

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
        self,
        space: Space,
        *,
        layers: int = 8,
        hidden: Sequence[int] = (256,),
        reference: Reference | None = None,
        loft: float | None = None,
        seed: int = 0,
    ) -> None:
        _check(layers, hidden, loft)
        super().__init__(space, reference)
        d, c = space.n_slots, space.context_width
        self.register_buffer("first", torch.arange(d) < d // 2)
        self.bend = None if loft is None else LogSoftExtension(loft)
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
        loc, scale = self._standard(code, self.space.active(code).to(z.dtype))
        x, ladj = self._base(context).call_and_ladj(z)
        for i in range(len(self.nets)):
            x, step = self._coupling(i, x, context).call_and_ladj(x)
            ladj = ladj + step
        if self.bend is not None:
            x, inner = self.bend.inv(x), x
            ladj = ladj - self.bend.log_abs_det_jacobian(x, inner)
        return loc + scale * x, (ladj + scale.log()).sum(-1)

    def to_reference(self, theta: Tensor, code: Tensor) -> tuple[Tensor, Tensor]:
        context = self.space.context(code)
        loc, scale = self._standard(code, self.space.active(code).to(theta.dtype))
        x, ladj = (theta - loc) / scale, -scale.log()
        if self.bend is not None:
            x, outer = self.bend(x), x
            ladj = ladj + self.bend.log_abs_det_jacobian(outer, x)
        for i in reversed(range(len(self.nets))):
            x, step = self._coupling(i, x, context).inv.call_and_ladj(x)
            ladj = ladj + step
        x, step = self._base(context).inv.call_and_ladj(x)
        return x, (ladj + step).sum(-1)
