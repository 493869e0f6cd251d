"""What is tried of a new target before anybody samples it: shapes, NaN, points mixed up."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..errors import ShapeError, TargetError, TRJError
from .account import Account
from .blackbox import each_kind
from .counting import Counting, rows_in_cache
from .densities import Densities
from .density import PROBES, Density
from .parameters import NamedParameters
from .support import unchecked

SAME = 1e-3  # relative change of a log likelihood up to which two values of it are the same


def probe(target: NamedParameters, account: Account) -> tuple[Tensor, list[float]]:
    """Call every likelihood once at prior draws, from torch's global generator.

    Arguments:
        target: What is new.
        account: Where the evaluations are counted.

    Returns:
        A point of each density that is finite there, if one was met, shape (len(each), D), and
        the rows of its fastest batches on a CPU.

    Raises:
        NonFiniteError: A density is NaN or +inf.
        ShapeError: A value depends on the other points of its batch.
        TargetError: A value depends on components that are not there.
    """
    densities, space = target._densities, target.space
    anchors, rows = list[Tensor](), list[float]()
    for density, code in densities.examples(PROBES, target.device):
        theta = torch.zeros(PROBES, densities.dim, dtype=target.dtype, device=target.device)
        items = densities.items(code)
        if density.blocks:
            draws = density.sample(PROBES, items)
            theta = density.unconstrain(draws, items, densities.dim).to(theta)
        theta = torch.where(theta.isfinite() & space.active(code), theta, 0.0)
        for surrogate in (False, True) if density.surrogate else (False,):
            what = "surrogate" if surrogate else density.likelihood.what
            first = items[:1] if items is not None else None
            with unchecked():
                batch = density.evaluate(theta, items, surrogate)
                one = density.evaluate(theta[:1], first, surrogate)
            account.add(evaluations=batch.calls + one.calls)
            if not surrogate:
                finite = (batch.log_prior + batch.log_likelihood).isfinite()
                anchors.append(theta[finite.int().argmax()])
            impossible = batch.log_prior == -math.inf
            counted = torch.where(
                impossible, batch.log_prior, batch.log_prior + batch.log_likelihood
            )
            target.check_finite(code, theta, counted)
            _check_alone(counted[0], batch.log_likelihood[0], one.log_likelihood[0], density, what)
            if densities.padded is not None:
                with unchecked():
                    longer = densities.evaluate(code, theta, surrogate)
                account.add(evaluations=longer.calls)
                _check_zeros(batch.log_likelihood, longer.log_likelihood, density, what)
            if space.counts and items is not None:
                _check_padding(densities, density, theta, items, what)
        rows.append(_rows(density, theta, items, account))
    return torch.stack(anchors), rows


def _rows(density: Density, theta: Tensor, items: Tensor | None, account: Account) -> float:
    """Rows of the fastest batches of a likelihood on a CPU; arguments as of :func:`probe`."""
    if density.likelihood.foreign or density.fused is not None or theta.device.type != "cpu":
        return math.inf
    whole, n = density.likelihood.cut(math.inf), len(theta)
    shown, on = density.shown(theta, items), None if items is None else items.bool()
    with unchecked(), Counting() as batch:
        whole(shown, n, density.by_kind(on))
    shown, on = {name: v[:1] for name, v in shown.items()}, None if on is None else on[:1]
    with unchecked(), Counting() as one:
        whole(shown, 1, density.by_kind(on))
    account.add(evaluations=n + 1)
    return rows_in_cache(one, batch, n)


def _check_alone(
    log_joint: Tensor, batch: Tensor, alone: Tensor, density: Density, what: str
) -> None:
    """Compare the first of a batch with itself alone."""
    tolerance = SAME * (1 + batch.abs())
    if bool(log_joint.isfinite()) and not bool((batch - alone).abs() <= tolerance):
        raise ShapeError(
            f"{what} of {density.owner}: point 0 gives {float(alone):.6g} alone and "
            f"{float(batch):.6g} in a batch; the function mixes the points of a batch"
        )


def _check_zeros(stated: Tensor, longer: Tensor, density: Density, what: str) -> None:
    """Compare a likelihood with itself where vectors end with zeros."""
    other = ~torch.isclose(stated, longer, rtol=SAME, atol=SAME, equal_nan=True)
    if bool(other.any()):
        row = int(other.int().argmax())
        alone, there = float(stated[row]), float(longer[row])
        raise TargetError(
            f"{what} of {density.owner}: a point gives {alone:.6g} alone and {there:.6g} with "
            "zeros at the end of its vectors, which padded=True says are the same"
        )


def _check_padding(
    densities: Densities, density: Density, theta: Tensor, items: Tensor, what: str
) -> None:
    """Compare a likelihood with itself where arrays end with the last component."""
    space = densities.space
    function = density.surrogate if what == "surrogate" else density.likelihood
    assert function is not None
    if function.foreign or density.additive is not None:
        return
    with unchecked():
        shown = density.shown(theta, items)
        padded = function(shown, len(theta), space.by_kind(items))
        for row in items.sum(1).argsort(descending=True).tolist():  # one alone would broadcast
            on = items[row]
            cut = {name: v[row : row + 1] for name, v in shown.items()}
            for kind in space.kinds:
                cut |= {name: cut[name][:, on[kind.items]] for name in kind.of}
            active = each_kind(space.by_kind(on[None]), lambda x: x[:, x[0]])
            try:
                alone = float(function(cut, 1, active)[0])
            except TRJError:
                if bool(on.any()):  # it insists on arrays of full length
                    return
                continue  # it can't do with none
            there, k = float(padded[row]), int(on.sum())
            if not math.isclose(alone, there, rel_tol=SAME, abs_tol=SAME):
                raise TargetError(
                    f"{what} of {density.owner}: {k} component(s) give {alone:.6g} alone and "
                    f"{there:.6g} beside {items.shape[1] - k} that are not there and read as "
                    "zero. Leave those out: torch.where(active, ..., 0), or write it as "
                    "trj.Additive"
                )
