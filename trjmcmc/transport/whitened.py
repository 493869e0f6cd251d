"""A flow in coordinates in which every model's posterior has about unit covariance."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import ConfigurationError, ShapeError
from ..space.base import check_enumerable
from .base import Bijection
from .parts import times_rows


class Whitened(Bijection):
    r"""A flow followed by an affine map of each model.

    .. math:: T(z \mid m) = \mu_m + L_m f(z \mid m)

    Locations and factors are constants: of draws, or of normals at the modes
    (:meth:`LaplaceMap.normals`). Unlike :class:`LaplaceMap` it has a table of models, and costs one
    matrix product where there is one model.

    Arguments:
        flow: A bijection of a space of few models that passes spare coordinates.
        loc: Shape (M, D), in the order of ``space.enumerate()``.
        factor: Triangular factors of the covariances, lower or upper, shape (M, D, D); rows and
            columns of spare coordinates are ignored.

    Raises:
        ConfigurationError: A flow that moves spare coordinates.
        ShapeError: Tables of the wrong shape, or a space too large for tables.

    Example:
        >>> from trjmcmc import problems
        >>> from trjmcmc.transport import CosmicFlow
        >>> space = problems.sinh_arcsinh().space
        >>> flow = Whitened(CosmicFlow(space), torch.ones(2, 2), 2 * torch.eye(2).expand(2, 2, 2))
        >>> theta, _ = flow.from_reference(torch.ones(2, 2), space.enumerate())
        >>> theta.tolist()  # the first model has no second coordinate: it passes
        [[3.0, 1.0], [3.0, 3.0]]
    """

    loc: Tensor
    factor: Tensor
    inverse: Tensor
    log_det: Tensor

    def __init__(self, flow: Bijection, loc: Tensor, factor: Tensor) -> None:
        if not flow.spares_pass:
            raise ConfigurationError("Whitened: expected a flow that passes spare coordinates")
        space = flow.space
        super().__init__(space, flow.reference)
        check_enumerable(space)
        active = space.active(space.enumerate())
        m, d = active.shape
        for name, table, shape in (("loc", loc, (m, d)), ("factor", factor, (m, d, d))):
            if tuple(table.shape) != shape:
                raise ShapeError(f"{name}: expected shape {shape}, got {tuple(table.shape)}")
        self.flow = flow
        both = active[:, :, None] & active[:, None, :]
        factor = torch.where(both, factor, 0.0)
        factor = factor + torch.diag_embed((~active).to(factor.dtype))
        self.register_buffer("loc", torch.where(active, loc, 0.0))
        self.register_buffer("factor", factor)
        self.register_buffer("inverse", torch.linalg.inv(factor.double()).to(factor.dtype))
        diagonal = factor.diagonal(dim1=1, dim2=2)
        self.register_buffer("log_det", diagonal.abs().log().sum(-1))

    def from_reference(self, z: Tensor, code: Tensor) -> tuple[Tensor, Tensor]:
        index = self.space.index(code)
        x, ladj = self.flow.from_reference(z, code)
        return self.loc[index] + times_rows(self.factor, x, index), ladj + self.log_det[index]

    def to_reference(self, theta: Tensor, code: Tensor) -> tuple[Tensor, Tensor]:
        z, ladj = self.flow.to_reference(self.whiten(theta, code), code)
        return z, ladj - self.log_det[self.space.index(code)]

    def whiten(self, theta: Tensor, code: Tensor) -> Tensor:
        """Parameters in the coordinates of the flow, shape (C, D)."""
        index = self.space.index(code)
        return times_rows(self.inverse, theta - self.loc[index], index)
