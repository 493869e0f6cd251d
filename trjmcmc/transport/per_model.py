"""One zuko flow a model."""

from __future__ import annotations

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


class PerModel(Bijection):
    """An independent zuko flow for each model of a small space.

    Arguments:
        space: A bound space of few models.
        flow: Constructor of an unconditional zuko flow from the number of coordinates, such as
            ``lambda d: zuko.flows.NSF(d, transforms=3)``. Only its bijection is used.
        reference: Standard normal if omitted.
        seed: Seed of the initial weights.

    Raises:
        ConfigurationError: ``flow`` does not build a zuko flow.

    Example:
        >>> import zuko
        >>> from trjmcmc import problems
        >>> space = problems.sinh_arcsinh().space
        >>> flow = PerModel(space, lambda d: zuko.flows.NSF(d, transforms=2))
        >>> flow.to_reference(torch.zeros(2, 2), torch.tensor([[0], [1]]))[0].shape
        torch.Size([2, 2])
    """

    loc: Tensor
    scale: Tensor

    def __init__(
        self,
        space: Space,
        flow: Callable[[int], nn.Module],
        *,
        reference: Reference | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(space, reference)
        check_enumerable(space)
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
                    f"flow({len(s)}): expected a zuko flow, got {type(built).__name__}"
                )

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> PerModel:
        self.slots = [fn(s) for s in self.slots]
        super()._apply(fn, recurse)
        return self

    def _one(self, m: int, x: Tensor, inverse: bool) -> tuple[Tensor, Tensor]:
        slots = self.slots[m]
        if not len(slots):
            return x, x.new_zeros(len(x))
        transform = self.flows[m]().transform
        loc, scale = self.loc[m, slots], self.scale[m, slots]
        if inverse:
            y, ladj = transform.inv.call_and_ladj(x[:, slots])
            return x.index_copy(1, slots, loc + scale * y), ladj + scale.log().sum()
        y, ladj = transform.call_and_ladj((x[:, slots] - loc) / scale)
        return x.index_copy(1, slots, y), ladj - scale.log().sum()

    def _all(self, x: Tensor, code: Tensor, inverse: bool) -> tuple[Tensor, Tensor]:
        anchors = x.new_zeros(len(self.slots), x.shape[1])
        y, ladj = apply_by_group(
            self.space.index(code),
            [partial(self._one, m, inverse=inverse) for m in range(len(self.slots))],
            x,
            anchors,
        )
        return y, ladj

    @torch.no_grad()
    def standardise(self, code: Tensor, loc: Tensor, scale: Tensor) -> None:
        index = self.space.index(code)
        self.loc[index], self.scale[index] = loc, scale

    def to_reference(self, theta: Tensor, code: Tensor) -> tuple[Tensor, Tensor]:
        return self._all(theta, code, inverse=False)

    def from_reference(self, z: Tensor, code: Tensor) -> tuple[Tensor, Tensor]:
        return self._all(z, code, inverse=True)
