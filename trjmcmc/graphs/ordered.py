"""Posteriors over graphs with an order of their nodes, for variational inference."""

from __future__ import annotations

from typing import cast

from ..errors import TargetError
from ..space.dags import Dags
from ..space.ordered_dags import OrderedDags
from ..target.target import Target


def ordered(target: Target, *, prior: str = "graphs") -> Target:
    """The same posterior over graphs with an order of their nodes.

    Its codes can be drawn place by place, so that an autoregressive network and a map are fitted
    to it: ``trj.TRJSampler(graphs.ordered(target), models=trj.weights.Made).fit()``. The answer of
    the fit alone is ``sampler.variational``; ``run()`` proposes graphs from it, whatever their
    present one, and is exact.

    Arguments:
        target: Over :class:`~trjmcmc.graphs.Dags`.
        prior: ``"graphs"``: graphs have the probabilities that they have in ``target``;
            ``"orders"``: each counts once for each of its orders, as in the source.

    Raises:
        TargetError: Another target; as of :class:`~trjmcmc.graphs.OrderedDags`.

    Source:
        Davies et al., "Variational transdimensional inference", section 5.2

    Example:
        >>> import torch
        >>> import trjmcmc as trj
        >>> from trjmcmc import graphs
        >>> x = torch.randn(50, 2, generator=torch.Generator().manual_seed(0)).cumsum(1)
        >>> target = graphs.ordered(graphs.target(graphs.bge(x, names=["a", "b"])))
        >>> sampler = trj.TRJSampler(target, models=trj.weights.Made, seed=0)
        >>> trace = sampler.fit(steps=200, progress=False)
        >>> sampler.variational.inclusion.round(1).tolist()
        [0.5, 0.5]
    """
    if not target.space.graphs:
        raise TargetError("ordered: expected a target over Dags, as of graphs.target or network")
    space = OrderedDags(cast("Dags", target.space), prior=prior)
    return target.over(space)
