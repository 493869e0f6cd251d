"""Flows that act in standardised units: one location and scale a coordinate, by model."""

from __future__ import annotations

import torch
from torch import Tensor

from ..space.base import Space
from .base import Bijection
from .reference import Reference

TABLE = 4096  # largest space with a location and scale of its own for each model


class Standardised(Bijection):
    """A bijection that ends in theta = loc + scale x, set by :meth:`standardise`.

    Spaces of up to 4096 models have a location and scale of their own for each; in larger ones
    all models share those of a coordinate.

    Arguments:
        space: A bound model space.
        reference: Standard normal if omitted.
    """

    loc: Tensor
    scale: Tensor

    def __init__(self, space: Space, reference: Reference | None = None) -> None:
        super().__init__(space, reference)
        tables = space.size if space.size is not None and space.size <= TABLE else 1
        self.register_buffer("loc", torch.zeros(tables, space.n_slots))
        self.register_buffer("scale", torch.ones(tables, space.n_slots))

    def _standard(self, code: Tensor, active: Tensor) -> tuple[Tensor, Tensor]:
        """Location and scale, shape (C, D): 0 and 1 in spare slots."""
        index = self.space.index(code) if len(self.loc) > 1 else code.new_zeros(len(code))
        return self.loc[index] * active, torch.where(active > 0, self.scale[index], 1.0)

    @torch.no_grad()
    def standardise(self, code: Tensor, loc: Tensor, scale: Tensor) -> None:
        on = self.space.active(code).to(loc.dtype)
        weight = on / on.sum(0).clamp(min=1)
        self.loc.copy_((weight * loc).sum(0).expand_as(self.loc))
        self.scale.copy_((weight * scale.log()).sum(0).exp().expand_as(self.scale))
        if len(self.loc) > 1:  # the pooled values are for models that are not given
            index = self.space.index(code)
            self.loc[index], self.scale[index] = loc.to(self.loc), scale.to(self.scale)
