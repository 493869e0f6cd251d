"""How precise a run is so far, and whether that is enough."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..promises import MODELS_ONE_BY_ONE
from ..space.base import Space
from .mean import mean_error

LEAST_DRAWS = 20  # draws a chain before precision is looked at

FORGOTTEN = 20.0  # autocorrelation times that a precise run must be long: R-hat 1.05

COMMON = 0.01  # probability of a model from which its Bayes factor is watched


def features(space: Space, code: Tensor) -> Tensor:
    """Indicators whose means are watched: one a model, or in a large space one a unit or item.

    Of a long list or range, the models that occur most have one each, the rest one together.

    Arguments:
        space: The space.
        code: Models, shape (..., L).

    Returns:
        Shape (..., F), float64.
    """
    if space.size == 1:
        return torch.ones(*code.shape[:-1], 1, dtype=torch.float64, device=code.device)
    if space.units and not space.few:
        return code.double()
    if space.size is None or (space.has_named_items and not space.few):
        return space.items(code.flatten(0, -2)).unflatten(0, code.shape[:-1]).double()
    index = space.index(code.reshape(-1, code.shape[-1]))
    size = int(space.size or 0)
    if size > MODELS_ONE_BY_ONE:
        often = torch.bincount(index, minlength=size).argsort(descending=True)
        watched = MODELS_ONE_BY_ONE - 1  # and all others together
        rank = torch.full_like(often, watched)
        rank[often[:watched]] = torch.arange(watched, device=index.device)
        index, size = rank[index], MODELS_ONE_BY_ONE
    return torch.nn.functional.one_hot(index.reshape(code.shape[:-1]), size).double()


class Progress(NamedTuple):
    """How far a run has come.

    Attributes:
        error: Largest standard error of an indicator's mean, a bound where nothing has changed.
        time: Largest autocorrelation time of an indicator, or the log joint, in kept draws.
        log_error: Largest standard error of the log Bayes factor of a model of more than one
            percent to the most probable one; 0 where there is none.
        rhat: Largest R-hat of a model, the log joint or a parameter; NaN where it was not asked
            for.
    """

    error: float
    time: float
    log_error: float = 0.0
    rhat: float = math.nan

    def of(self, kind: str) -> float:
        """The error of a kind: ``"probability"`` or ``"log_bayes_factor"``."""
        return {"probability": self.error, "log_bayes_factor": self.log_error}[kind]


def progress_of(space: Space, code: Tensor, log_joint: Tensor | None = None) -> Progress:
    """Precision of the models' probabilities, or the units', in a record so far.

    Arguments:
        space: The space, on the CPU.
        code: Models, shape (draw, chain, L), on the CPU.
        log_joint: Shape (draw, chain): chains have to forget where they were inside models too.
    """
    seen = features(space, code)
    found = [mean_error(seen[..., f].T.numpy()) for f in range(seen.shape[-1])]
    known = [(error, seen[..., 0].numel() / ess) for error, ess in found if not math.isnan(error)]
    ess = math.nan if log_joint is None else mean_error(log_joint.double().T.numpy())[1]
    memory = 1.0 if math.isnan(ess) else code[..., 0].numel() / ess
    if space.size == 1:
        return Progress(0.0, memory)
    if not known:  # one model throughout: the rule of three, a draw in twenty counted
        bound = min(1.0, 3 * FORGOTTEN / code[..., 0].numel())
        return Progress(bound, memory, 0.0 if bound < COMMON else math.inf)
    times = (memory, *(t for _, t in known))
    return Progress(max(e for e, _ in known), max(times), _log_error(seen))


def _log_error(seen: Tensor) -> float:
    """Largest error of the log ratio of an indicator's mean to the largest one."""
    share = seen.mean((0, 1))
    best = int(share.argmax())
    others = [f for f in range(len(share)) if f != best and float(share[f]) > COMMON]
    if not others:
        return 0.0
    first = seen[..., best] / share[best]
    errors = [mean_error((seen[..., f] / share[f] - first).T.numpy())[0] for f in others]
    return max(math.inf if math.isnan(e) else e for e in errors)
