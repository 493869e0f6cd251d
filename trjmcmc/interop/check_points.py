"""Densities at single points: alone and in batches, their parts, gradients against differences."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from ..errors import TargetError
from ..target.density import Density, Evaluation

SAME = {torch.float64: 1e-8, torch.float32: 1e-3}  # relative, of log densities

SLOPES = {  # steps of differences, and relative errors of gradients: right by one is right
    torch.float64: ((1e-6, 1e-4), (1e-3, 1e-3)),  # the other: of what computes in float32 inside
    torch.float32: ((1e-2, 5e-2),),
}


def check_points(density: Density, theta: Tensor, language: str) -> None:
    """Refuse batches that differ from their points alone, and two answers to one question.

    Arguments:
        density: Of the model.
        theta: Points (n, D).
        language: Which the model was written in, for messages.

    Raises:
        TargetError: They do, or are in another precision than the points.
    """
    dtype = theta.dtype
    with torch.no_grad():
        batch = density.evaluate(theta, None, False)
        alone = [density.evaluate(theta[i : i + 1], None, False) for i in range(len(theta))]
        _, shown, log_densities = density._entries(theta, None)
        log_prior = torch.stack([x.reshape(len(theta), -1).sum(-1) for x in log_densities]).sum(0)
        value = density.likelihood(shown, len(theta))
    if not value.dtype == dtype:
        raise TargetError(
            f"{density.owner} computes in {value.dtype}, not in {dtype} as {language} says; see "
            "its settings of precision"
        )
    possible = batch.log_prior > -math.inf
    mixed = "alone; the model mixes the points of a batch"
    more = "by its parts; the model has terms that are neither prior nor likelihood"
    by_parts = {"joint": value} if density.on_reference else {"prior": log_prior}
    by_parts |= {} if density.on_reference else {"likelihood": value}
    points = [parts_of(density, x) for x in alone]
    for what, x in parts_of(density, batch).items():
        for other, why in ((torch.cat([p[what] for p in points]), mixed), (by_parts[what], more)):
            gap = torch.where(possible & (x != other), (x - other).abs(), 0.0)
            if not bool((gap <= SAME[dtype] * (1 + x.abs())).all()):
                row = int((gap / (1 + x.abs())).nan_to_num(math.inf).argmax())
                raise TargetError(
                    f"log {what} of {density.owner}: point {row} of a batch is "
                    f"{float(x[row]):.10g}, and {float(other[row]):.10g} {why}"
                )


def check_slopes(
    density: Density, theta: Tensor, language: str, items: Tensor | None = None
) -> None:
    """Refuse gradients that differ from central differences along a random direction.

    Arguments are those of :func:`check_points`; ``items`` (n, n_items) are those in use, where
    there are any.

    Raises:
        TargetError: More than half of them do.
    """
    generator = torch.Generator().manual_seed(0)
    along = torch.randn(theta.shape, generator=generator, dtype=theta.dtype)
    along = along / along.norm(dim=-1, keepdim=True)

    def parts(x: Tensor) -> Mapping[str, Tensor]:
        return parts_of(density, density.evaluate(x, items, False))

    with torch.enable_grad():
        leaf = theta.detach().requires_grad_()
        values = parts(leaf)
        slopes = {k: _slope(value, leaf) for k, value in values.items()}
    got = {k: (slope * along).sum(-1) for k, slope in slopes.items()}
    size = {k: v.detach().abs() + slopes[k].norm(dim=-1) + 1 for k, v in values.items()}
    refusal = ""
    for step, tolerance in SLOPES[theta.dtype]:
        with torch.no_grad():
            above, below = parts(theta + step * along), parts(theta - step * along)
        there = {k: (above[k] - below[k]) / (2 * step) for k in values}
        off = {k: (got[k] - there[k]).abs() > tolerance * size[k] for k in values}
        wrong = {k: there[k].isfinite() & (off[k] | got[k].isnan()) for k in values}
        what = max(wrong, key=lambda k: int(wrong[k].sum()))
        if int(wrong[what].sum()) <= len(theta) // 2:
            return
        row = int(wrong[what].int().argmax())
        refusal = refusal or (
            f"the gradient of the log {what} of {density.owner} is {float(got[what][row]):.6g} "
            f"along a line where differences give {float(there[what][row]):.6g}; {language} "
            "differentiates one of its functions wrongly, or the model jumps: state it as "
            "trj.BlackBox, without gradients"
        )
    raise TargetError(refusal)


def parts_of(density: Density, found: Evaluation) -> dict[str, Tensor]:
    """What a model is judged by, (C,) each, nats: its two parts.

    Of one on a reference the joint: the reference is not the model's own.
    """
    if density.on_reference:
        return {"joint": found.log_prior + found.log_likelihood}
    return {"prior": found.log_prior, "likelihood": found.log_likelihood}


def _slope(value: Tensor, leaf: Tensor) -> Tensor:
    if not value.requires_grad:
        return torch.zeros_like(leaf)
    (slope,) = torch.autograd.grad(value.sum(), leaf, retain_graph=True, allow_unused=True)
    return torch.zeros_like(leaf) if slope is None else slope
