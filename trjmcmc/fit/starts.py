"""Which of several starts of a training goes on."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import clock
from ..errors import ConfigurationError
from ..estimate.importance import log_weights
from ..target.target import Target
from ..transport.base import Transport
from ..transport.per_model import PerModel
from .locate import located
from .standardise import standardise
from .trace import FitTrace

STEPS_SHARE = 0.05  # of the steps, for each of the trainings: 100 of 2000 tell on factor models,
# whose bounds of .3 and 1.6 nats below the evidence after these end at .27 and 1.55

FEWEST_STEPS = 100  # of each

BUDGET_SHARE = 0.25  # of the time and of the evaluations; with less they are left out

DRAWS = 512  # by which a bound is estimated: to a tenth of a nat where the map is far off


class Limits(NamedTuple):
    """What a fit may take.

    Attributes:
        begun: Time by :func:`trjmcmc.clock.now` when it began to look for where models are.
        deadline: The same by which it is to be done.
        evaluations: That it may make.
    """

    begun: float
    deadline: float = math.inf
    evaluations: float = math.inf


def start_better(
    transport: Transport,
    target: Target,
    codes: Tensor,
    place: tuple[Tensor, Tensor],
    train: Callable[..., FitTrace],
    settings: Mapping[str, Any],
    generator: torch.Generator,
    limits: Limits,
) -> FitTrace:
    """Give a map the best of three short trainings: from standard units, and from located ones.

    Reverse KL stays with the modes that it begins at, and one search for them may end at a lesser
    one. Of a map per model each takes its own best. Where time or evaluations are short the map
    takes the units that are known, without a training.

    Arguments:
        transport: The map, changed in place.
        target: The target.
        codes: All models, shape (M, L).
        place: Locations and scales that one search has found, each (M, D).
        train: Trains a map: a function of settings, and of the map by the name ``transport``;
            returns a trace.
        settings: Of the training ahead.
        generator: Source of randomness.
        limits: Of the whole fit.

    Returns:
        The trace of the last of them; ``stopped`` tells whether Ctrl-C has ended it.
    """
    steps = max(FEWEST_STEPS, int(STEPS_SHARE * settings["steps"]))
    steps, found = min(steps, settings["steps"]), FitTrace()
    dear = 3 * steps * settings["batch"] > BUDGET_SHARE * limits.evaluations
    late = clock.now() - limits.begun > BUDGET_SHARE * (limits.deadline - limits.begun)
    if dear or late:
        standardise(transport, codes, *place)
        return found
    until = clock.part_of_the_time_left(BUDGET_SHARE, limits.deadline)
    tried, again = [], located(target, codes, generator, until)
    for start in (None, place, again):
        trial = copy.deepcopy(transport)
        if start is not None:
            standardise(trial, codes, *start)
        until = clock.part_of_the_time_left(BUDGET_SHARE / 3, limits.deadline)
        short = {**settings, "steps": steps, "progress": False, "deadline": until}
        with suppress(ConfigurationError):  # no draw has a density: it can't be reached from there
            found = train(short, transport=trial)
            tried.append(trial)
        if found.stopped == "interrupted":
            break
    if tried:
        bounds = [lower_bounds(target, trial, codes, generator) for trial in tried]
        keep_better(transport, tried, torch.stack(bounds))
    return found


def lower_bounds(
    target: Target, transport: Transport, codes: Tensor, generator: torch.Generator
) -> Tensor:
    """Evidence lower bounds of models through a map, p(model) included, (M,), nats.

    -inf where the map has draws outside the support.

    Arguments:
        target: The target.
        transport: The map.
        codes: Models, shape (M, L).
        generator: Source of randomness.

    Source:
        Yin & Jiao, https://arxiv.org/abs/2512.12742, eq. 9
    """
    with torch.no_grad():
        found = [log_weights(target, transport, code, DRAWS, generator).mean() for code in codes]
    return torch.stack(found).double().nan_to_num(-torch.inf, neginf=-torch.inf)


@torch.no_grad()
def keep_better(transport: Transport, tried: Sequence[Transport], bounds: Tensor) -> None:
    """Give a map the parameters of the best of several: of each model, where it has its own.

    A reference that learns is that of the best map, and flows trained before another are not its.

    Arguments:
        transport: The map, changed in place.
        tried: Copies of it that were trained.
        bounds: Evidence lower bounds of the models through each, shape (len(tried), M), nats.
    """
    best = int(bounds.nan_to_num(neginf=torch.finfo(bounds.dtype).min / 1e6).sum(1).argmax())
    transport.load_state_dict(tried[best].state_dict())
    if isinstance(transport, PerModel) and not [*transport.reference.parameters()]:
        for model, k in enumerate(bounds.argmax(0).tolist()):
            each = tried[k]
            assert isinstance(each, PerModel)
            transport.copy_map(model, each)
