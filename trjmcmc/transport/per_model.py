"""One zuko flow a model."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from ..errors import ConfigurationError
from ..grouping import apply_by_group
from ..rng import seeded
from ..space.base import Space, check_enumerable
from .base import Bijection
from .reference import Reference

ASTRAY = 0.01  # largest error of there and back, relative to 1 + |x|


class PerModel(Bijection):
    """An independent zuko flow for each model of a small space.

    zuko's flows lead from parameters to their base. Masked autoregressive and neural ones are
    quick that way, and slow from the base to parameters, which is what reverse KL and each jump
    ask for: ``inverse=True`` turns them round, inverse autoregressive flows, and makes the
    density of a given point the slow one.

    Neural flows, sums of squares and other flows whose inverse is a search find points in a
    bounded interval only, [-10, 10] in units of :meth:`standardise` for ``NAF``, ``UNAF`` and
    ``SOSPF``. Whatever goes through the inverse is therefore carried back (0 to 10 percent of a
    training step, 30 for couplings): where it does not come back, the log density is inf for
    pushed points and -inf for given ones, and samplers refuse them. The quick direction knows no
    bounds: what it makes out there has its right density, but no way back.

    Arguments:
        space: A bound space of few models.
        flow: Constructor of an unconditional zuko flow from the number of coordinates, such as
            ``lambda d: zuko.flows.NSF(d, transforms=3)``. Only its bijection is used.
        inverse: Whether the flow's bijection leads from the reference to parameters.
        reference: Standard normal if omitted.
        seed: Seed of the initial weights.

    Raises:
        ConfigurationError: ``flow`` does not build a zuko flow.

    Source:
        Inverse autoregressive flows as masked ones turned round: Papamakarios et al. (2017),
        https://arxiv.org/abs/1705.07057, section 3.4

    Example:
        >>> import zuko
        >>> from trjmcmc import problems
        >>> space = problems.sinh_arcsinh().space
        >>> flow = PerModel(space, lambda d: zuko.flows.NSF(d, transforms=2))
        >>> flow.to_reference(torch.zeros(2, 2), torch.tensor([[0], [1]]))[0].shape
        torch.Size([2, 2])
        >>> neural = PerModel(space, lambda d: zuko.flows.NAF(d, transforms=1), inverse=True)
        >>> theta, log_q = neural.push(torch.zeros(2, 2), torch.tensor([[0], [1]]))
    """

    sequential = True  # one of its ways may take a pass per coordinate
    loc: Tensor
    scale: Tensor

    def __init__(
        self,
        space: Space,
        flow: Callable[[int], nn.Module],
        *,
        inverse: bool = False,
        reference: Reference | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(space, reference)
        check_enumerable(space)
        self.inverse = inverse
        active = space.active(space.enumerate())
        self.register_buffer("loc", torch.zeros(active.shape))
        self.register_buffer("scale", torch.ones(active.shape))
        self.slots = [torch.nonzero(row)[:, 0] for row in active]
        with seeded(seed):
            self.flows = nn.ModuleList(
                flow(len(s)) if len(s) else nn.Identity() for s in self.slots
            )
        for s, built in zip(self.slots, self.flows, strict=True):
            if len(s) and not hasattr(built, "transform"):
                raise ConfigurationError(
                    f"flow({len(s)}): expected a zuko flow, got {type(built).__name__}; write "
                    "flow=lambda d: zuko.flows.NSF(d), and inverse=True to turn a flow round"
                )

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> PerModel:
        self.slots = [fn(s) for s in self.slots]
        super()._apply(fn, recurse)
        return self

    def _one(self, m: int, x: Tensor, out: bool) -> tuple[Tensor, Tensor]:
        """Rows (n, D) of a model to parameters (``out``) or to the reference."""
        slots = self.slots[m]
        if not len(slots):
            return x, x.new_zeros(len(x))
        loc, scale = self.loc[m, slots], self.scale[m, slots]
        inner = x[:, slots] if out else (x[:, slots] - loc) / scale
        transform = self.flows[m]().transform
        if out == self.inverse:
            y, ladj = transform.call_and_ladj(inner)
        else:
            y, ladj = transform.inv.call_and_ladj(inner)
            with torch.no_grad():  # a search may have ended at the edge of its range
                near = (transform(y) - inner).abs() <= ASTRAY * (1 + inner.abs())
            ladj = torch.where(near.all(-1), ladj, -math.inf)
        if out:
            return x.index_copy(1, slots, loc + scale * y), ladj + scale.log().sum()
        return x.index_copy(1, slots, y), ladj - scale.log().sum()

    def _all(self, x: Tensor, code: Tensor, out: bool) -> tuple[Tensor, Tensor]:
        anchors = x.new_zeros(len(self.slots), x.shape[1])
        y, ladj = apply_by_group(
            self.space.index(code),
            [partial(self._one, m, out=out) for m in range(len(self.slots))],
            x,
            anchors,
        )
        return y, ladj

    @torch.no_grad()
    def standardise(self, code: Tensor, loc: Tensor, scale: Tensor) -> None:
        index = self.space.index(code)
        self.loc[index], self.scale[index] = loc, scale

    @torch.no_grad()
    def copy_map(self, model: int, other: PerModel) -> None:
        """Take the map of one model from another of the same shape.

        Arguments:
            model: The model's number.
            other: A map over the same space, of the same flows.
        """
        self.flows[model].load_state_dict(other.flows[model].state_dict())
        self.loc[model], self.scale[model] = other.loc[model], other.scale[model]

    def to_reference(self, theta: Tensor, code: Tensor) -> tuple[Tensor, Tensor]:
        return self._all(theta, code, out=False)

    def from_reference(self, z: Tensor, code: Tensor) -> tuple[Tensor, Tensor]:
        return self._all(z, code, out=True)
