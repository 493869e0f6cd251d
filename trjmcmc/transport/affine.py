"""Affine maps, one a model: exact on Gaussian posteriors, hence the oracle of the tests."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..errors import ShapeError
from ..space.base import Space, check_enumerable
from .base import Bijection
from .reference import Reference


class Affine(Bijection):
    """theta = loc + L z in the coordinates of each model, spare coordinates untouched.

    Arguments:
        space: A bound space of few models.
        loc: Locations, shape (M, D), in the order of ``space.enumerate()``; zero if omitted.
        scale_tril: Lower-triangular factors, shape (M, D, D); identity if omitted. Rows and
            columns of spare coordinates are ignored.
        reference: Standard normal if omitted.

    Raises:
        ShapeError: Tables of the wrong shape, or a space too large for tables.

    Example:
        >>> from trjmcmc import problems
        >>> space = problems.sinh_arcsinh().space
        >>> flow = Affine(space)
        >>> z, ladj = flow.to_reference(torch.ones(1, 2), torch.tensor([[0]]))
        >>> z.tolist()
        [[1.0, 1.0]]
    """

    def __init__(
        self,
        space: Space,
        loc: Tensor | None = None,
        scale_tril: Tensor | None = None,
        *,
        reference: Reference | None = None,
    ) -> None:
        super().__init__(space, reference)
        check_enumerable(space)
        active = space.active(space.enumerate())
        m, d = active.shape
        eye = torch.eye(d).expand(m, d, d)
        loc = torch.zeros(m, d) if loc is None else torch.as_tensor(loc)
        scale_tril = eye if scale_tril is None else torch.as_tensor(scale_tril)
        for name, table, shape in (("loc", loc, (m, d)), ("scale_tril", scale_tril, (m, d, d))):
            if tuple(table.shape) != shape:
                raise ShapeError(f"{name}: expected shape {shape}, got {tuple(table.shape)}")
        self.loc = nn.Parameter(loc.clone())
        self.scale_tril = nn.Parameter(scale_tril.clone())

    def _tables(self, code: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        index = self.space.index(code)
        active = self.space.active(code)
        both = active[:, :, None] & active[:, None, :]
        tril = torch.where(both, self.scale_tril[index].tril(), 0.0)
        tril = tril + torch.diag_embed((~active).to(tril.dtype))
        ladj = tril.diagonal(dim1=1, dim2=2).abs().log().sum(-1)
        return torch.where(active, self.loc[index], 0.0), tril, ladj

    def to_reference(self, theta: Tensor, code: Tensor) -> tuple[Tensor, Tensor]:
        loc, tril, ladj = self._tables(code)
        z = torch.linalg.solve_triangular(tril, (theta - loc)[..., None], upper=False)[..., 0]
        return z, -ladj

    def from_reference(self, z: Tensor, code: Tensor) -> tuple[Tensor, Tensor]:
        loc, tril, ladj = self._tables(code)
        return loc + (tril @ z[..., None])[..., 0], ladj

    @torch.no_grad()
    def standardise(self, code: Tensor, loc: Tensor, scale: Tensor) -> None:
        index = self.space.index(code)
        self.loc[index] = loc
        self.scale_tril[index] = torch.diag_embed(scale)
