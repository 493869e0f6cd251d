"""From the draws of a run to evidences by every route, and to its result."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
from torch import Tensor

from ..draws import Draws, Pool
from ..estimate.estimate import Estimate
from ..estimate.importance import pareto_k
from ..result.report import RunReport, Started
from ..result.result import Result
from ..space.base import Space
from ..target.target import Target

Routes = dict[str, dict[str, Estimate]]  # by route and model, log of p(model) times evidence


def made_result(
    target: Target,
    draws: Draws,
    report: RunReport,
    routes: Routes,
    log_weights: Mapping[str, Tensor],
    crossings: tuple[Tensor, Tensor] | None = None,
) -> Result:
    """The result of a run, on the CPU.

    Arguments:
        target: The target.
        draws: What the chains kept.
        report: How the run went.
        routes, log_weights: Of :func:`routes_of`.
        crossings: As of :class:`~trjmcmc.Result`.
    """
    host = target.to(device="cpu", probe=False)
    code, theta = draws.flat()
    shape = (draws.n_chains, draws.n_draws)

    def values() -> dict[str, Tensor]:
        padded = host.padded_values(code, theta).items()
        return {name: value.reshape(*shape, *value.shape[1:]) for name, value in padded}

    return Result(
        copy.deepcopy(target.space).cpu(),
        draws,
        values,
        routes,
        report,
        target.truth,
        crossings=crossings,
        pareto_k={label: pareto_k(w) for label, w in log_weights.items()},
        target=host,
        slot_names=host.slot_names,
    )


def compared(space: Space, pool: Pool, record: Draws) -> Started:
    """Points that chains started at beside the draws that came of them."""

    def shares(code: Tensor) -> Tensor:
        if space.few:
            return torch.bincount(space.index(code), minlength=space.size or 0) / len(code)
        return space.items(code).double().mean(0)

    there, here = shares(pool.code.cpu()).double(), shares(record.flat()[0]).double()
    gap = float(record.log_joint.double().mean() - pool.log_joint.double().mean())
    if not len(there):
        return Started(len(pool.code), "nothing", 1.0, 1.0, gap)
    worst = int((there - here).abs().argmax())
    name = space.label(space.enumerate()[worst][None])[0] if space.few else space.names[worst]
    return Started(len(pool.code), name, float(there[worst]), float(here[worst]), gap)
