"""Structural equations whose weights are sampled: stated by the user, or small networks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Independent, Normal

from ..errors import TargetError
from ..space.dag_prior import DagPrior
from ..space.dags import Dags
from ..target.equations import Equations, NodeDensity
from ..target.ordered import Ordered
from ..target.prior import PriorSpec
from ..target.scores import LocalScores
from ..target.target import Target
from .network_equations import HiddenEquations, LinearEquations
from .scores import bge, checked, free_rows

ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid}


def equations(
    names: Sequence[str],
    density: NodeDensity,
    *,
    edges: Mapping[str, PriorSpec],
    nodes: Mapping[str, PriorSpec] | None = None,
    scores: LocalScores | None = None,
    prior: str | DagPrior = "uniform",
    dtype: torch.dtype | None = None,
    device: Any = None,
    **space: Any,
) -> Target:
    """The posterior over graphs and the parameters of their structural equations.

    Arguments:
        names, density, edges, nodes, scores: Of :class:`~trjmcmc.graphs.Equations`.
        prior: As for :class:`~trjmcmc.graphs.Dags`.
        dtype, device: As for :class:`~trjmcmc.Target`.
        space: Further arguments of :class:`~trjmcmc.graphs.Dags`: edge_odds, required, forbidden,
            max_parents.

    Raises:
        TargetError: As of :class:`~trjmcmc.graphs.Dags` and :class:`~trjmcmc.Target`.

    Example:
        >>> from torch.distributions import HalfNormal
        >>> x = torch.randn(20, 2, generator=torch.Generator().manual_seed(0))
        >>> def density(j, params, parents):  # each node has noise of its own
        ...     return Normal(params["w"] @ x.T, params["sigma"][:, None]).log_prob(x[:, j]).sum(1)
        >>> target = equations(
        ...     ["a", "b"], density, edges={"w": Normal(0.0, 1.0)}, nodes={"sigma": HalfNormal(1.0)}
        ... )
        >>> target.slot_names
        ['w[0]', 'w[1]', 'a.sigma', 'b.sigma']
    """
    likelihood = Equations(names, density, edges=edges, nodes=nodes, scores=scores)
    return _target(likelihood, prior, dtype, device, space)


def _target(
    likelihood: Equations,
    prior: str | DagPrior,
    dtype: torch.dtype | None,
    device: Any,
    space: dict[str, Any],
) -> Target:
    dags = Dags(likelihood.names, of=list(likelihood.edges), prior=prior, **space)
    return Target(dags, likelihood.priors(), likelihood, dtype=dtype, device=device)


def network(
    data: Any,
    *,
    hidden: int = 0,
    activation: str = "relu",
    noise: float = 0.1,
    weight_sd: float = 1.0,
    names: Sequence[str] | None = None,
    interventions: Any = None,
    prior: str | DagPrior = "uniform",
    dtype: torch.dtype | None = None,
    device: Any = None,
    **space: Any,
) -> Target:
    r"""Linear equations, or networks of one hidden layer, with noise of known variance.

    Without hidden units :math:`x_j = \sum_i w_{ij} x_i + e_j`; with them each node is a network of
    its parents, :math:`x_j = b_j + v_j^\top f(\sum_i w_{ij} x_i + c_j) + e_j`. All weights are
    normal with the same standard deviation, and belong to edges (``w``) or nodes (``"a.v"``).
    Hidden units are in rising order of v, for which of them is the first means nothing.

    Arguments:
        data: Rows of d columns, finite; a DataFrame has names. It is not centred.
        hidden: Units of the hidden layer.
        activation: "relu", "tanh" or "sigmoid".
        noise: Variance of the noise.
        weight_sd: Prior standard deviation of the weights.
        names: Of the columns.
        interventions: Where a node was set from outside, shape of the data, bool.
        prior, dtype, device, space: As for :func:`equations`.

    Raises:
        TargetError: Data that are not a table of finite numbers; noise or weights without spread;
            another activation.

    Source:
        DiBS: Lorch et al. (2021), https://arxiv.org/abs/2105.11839, appendix E

    Example:
        >>> x = torch.randn(30, 2, generator=torch.Generator().manual_seed(0))
        >>> network(x, names=["a", "b"]).dim, network(x, names=["a", "b"], hidden=3).dim
        (2, 20)
    """
    rows, names = checked(data, names)
    if not noise > 0 or not weight_sd > 0 or hidden < 0:
        raise TargetError(
            f"network: expected noise, weight_sd > 0 and hidden >= 0, got {noise}, {weight_sd}, "
            f"{hidden}"
        )
    if activation not in ACTIVATIONS:
        raise TargetError(
            f"network: activation: expected one of {list(ACTIVATIONS)}, got {activation!r}"
        )
    bend, free = ACTIVATIONS[activation], free_rows(rows, interventions)
    x = rows.to(device, dtype or torch.get_default_dtype())
    # of each node; a mask on the device would have to be counted in every step
    own = [x if bool(on.all()) else x[on.to(x.device)] for on in free.T]
    constant = -0.5 * math.log(2 * math.pi * noise)

    def density(j: int, params: dict[str, Tensor], parents: Tensor) -> Tensor:
        here = own[j].to(params["w"])
        if hidden:
            units = torch.einsum("ni,cih->cnh", here, params["w"]) + params["c"][:, None]
            mean = (bend(units) @ params["v"][..., None])[..., 0] + params["b"][:, None]
        else:
            mean = params["w"] @ here.T
        return (constant - (here[:, j] - mean).square() / (2 * noise)).sum(1)

    if not hidden:
        linear = LinearEquations(names, density, rows, free, noise=noise, weight_sd=weight_sd)
        return _target(linear, prior, dtype, device, space)
    weight = Normal(0.0, weight_sd)
    layer = Independent(Normal(torch.zeros(hidden), weight_sd), 1)
    of_layer = HiddenEquations(
        names,
        density,
        rows,
        free,
        noise=noise,
        activation=activation,
        layer=layer,
        nodes={"c": layer, "v": Ordered(weight, hidden), "b": weight},
        scores=bge(rows, names=names, interventions=interventions),
    )
    return _target(of_layer, prior, dtype, device, space)
