"""Equations of which more is known than a density: linear ones, and networks of one layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.distributions import Normal

from ..target.equations import Equations, NodeDensity
from ..target.prior import PriorSpec
from ..target.scores import LocalScores


class LinearEquations(Equations):
    """Equations :math:`x_j = \\sum_i w_{ij} x_i + e_j`, known by the products of their data.

    Arguments:
        names: One name a node.
        density: As for :class:`~trjmcmc.graphs.Equations`.
        rows: Data, (n, d), float64.
        free: Rows in which each node was not set from outside, (n, d), bool.
        noise: Variance of the noise.
        weight_sd: Prior standard deviation of the weights.

    Attributes:
        products: Sums of products of columns, (d, d); where nodes were set from outside, by
            node, (d, d, d). Float64.
        rows_of_node: Number of rows that say something of each node, (d,).
    """

    def __init__(
        self,
        names: Sequence[str],
        density: NodeDensity,
        rows: Tensor,
        free: Tensor,
        *,
        noise: float,
        weight_sd: float,
    ) -> None:
        super().__init__(names, density, edges={"w": Normal(0.0, weight_sd)})
        self.noise, self.weight_sd = noise, weight_sd
        self.rows_of_node = free.sum(0)
        if bool(free.all()):
            self.products = rows.T @ rows
        else:
            self.products = torch.einsum("nj,ni,nk->jik", free.to(rows), rows, rows)


class HiddenEquations(Equations):
    """Networks of one hidden layer with noise of known variance.

    Arguments:
        names: One name a node.
        density: As for :class:`~trjmcmc.graphs.Equations`.
        rows: Data, (n, d), float64.
        free: Rows in which each node was not set from outside, (n, d), bool.
        noise: Variance of the noise.
        activation: "relu", "tanh" or "sigmoid".
        layer: Prior of the weights into a hidden unit, one a unit.
        nodes: Priors of ``c``, ``v`` and ``b``, as :func:`~trjmcmc.graphs.network` names them.
        scores: As for :class:`~trjmcmc.graphs.Equations`.
    """

    def __init__(
        self,
        names: Sequence[str],
        density: NodeDensity,
        rows: Tensor,
        free: Tensor,
        *,
        noise: float,
        activation: str,
        layer: PriorSpec,
        nodes: Mapping[str, PriorSpec],
        scores: LocalScores,
    ) -> None:
        super().__init__(names, density, edges={"w": layer}, nodes=nodes, scores=scores)
        self.rows, self.free, self.noise, self.activation = rows, free, noise, activation
