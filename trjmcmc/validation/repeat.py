"""One repeat: a truth from the prior, its data, a run on these, and where the truth ranks."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import TRJWarning
from ..result.result import Result
from ..rng import host_number, stream
from ..run.sampler import TRJSampler
from ..simulate.prior import drawn_from_prior
from ..simulate.simulator import Simulate, Simulator
from ..space.codes import distinct
from ..target.target import Target
from .remake import Make

DRAWS = 1000  # of a run among which the truth is ranked, evenly spaced

FEWEST = 20  # draws that have a parameter, below which it is not ranked

MOST_QUANTITIES = 40  # entries of parameters that are ranked at most

SECONDS = 2.0  # of a run, where nothing else is asked for

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Setup:
    """What every repeat is made of, the same for all; it can be sent to workers.

    Attributes:
        target: The models, for their prior.
        make: Gives a target over other data.
        simulate: As of :class:`~trjmcmc.simulate.Simulator`.
        run: Arguments of each run.
        sampler: Makes a sampler of a target and a seed.
        quantities: Functions of parameters that are ranked too, by name.
        seed: Of all repeats.
    """

    target: Target
    make: Make
    simulate: Simulate | None
    run: Mapping[str, Any] = field(default_factory=dict)
    sampler: Callable[..., Any] | None = None
    quantities: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    seed: int = 0


def one_repeat(given: Setup, number: int) -> dict[str, Any]:
    """What one repeat has found, as plain data.

    Returns:
        ``repeat``, ``model``, ``seconds``; ``u``: by quantity the rank of the truth in (0, 1);
        ``names``, ``p`` and ``true`` of models or items; ``draws``, how many independent draws
        the shares come from at least; ``warned``, by kind of warning the first of it. Of a repeat
        that failed ``repeat`` and ``error``.
    """
    begun = time.process_time()
    generator = stream(given.seed, 1000 + number)
    try:
        code, theta = drawn_from_prior(given.target, 1, generator)
        (data,) = Simulator(given.target, given.simulate).draw(code, theta, generator)
        target = given.make(data)
        sampler = (given.sampler or TRJSampler)(target, seed=host_number(generator))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", TRJWarning)
            how = given.run or {"max_seconds": SECONDS}
            result = sampler.run(**{"progress": False, **how})
        if getattr(getattr(result, "report", None), "interrupted", False):
            raise KeyboardInterrupt
        found = judged(target, result, code, theta, given.quantities, generator)
    except Exception as error:
        return {"repeat": number, "error": f"{type(error).__name__}: {error}"}
    warned: dict[str, str] = {}
    for warning in said:
        warned.setdefault(warning.category.__name__, str(warning.message)[:200])
    label = given.target.space.label(code)[0]
    spent = time.process_time() - begun
    return {"repeat": number, "model": label, "seconds": spent, "warned": warned, **found}


def judged(
    target: Target,
    result: Result,
    code: Tensor,
    theta: Tensor,
    quantities: Mapping[str, Callable[..., Any]],
    generator: torch.Generator,
) -> dict[str, Any]:
    """Ranks of a truth, (1, L) and (1, D), among the draws of a run; shares of models or items."""
    all_codes, all_theta = result.raw.flat()
    spaced = torch.linspace(0, len(all_codes) - 1, min(DRAWS, len(all_codes))).round().long()
    codes = all_codes[spaced].to(target.device)
    draws = all_theta[spaced].to(target.device, target.dtype)
    whole_code, whole_theta = torch.cat([code, codes]), torch.cat([theta.to(draws), draws])
    series = _series(target, whole_code, whole_theta, quantities)
    same = (codes == code).all(-1).cpu().numpy()
    u = {}
    for name, x in series.items():
        truth, rest = x[0], x[1:]
        if name in GLOBAL:
            there = np.ones(len(rest), dtype=bool)
        else:  # within the true model, or where models are many within all that have it
            there = ~np.isnan(rest) & (same if target.space.few else True)
        if np.isnan(truth) or there.sum() < FEWEST:
            continue
        u[name] = _rank(truth, rest[there], generator)
    names, shares, true = _events(target, result, code)
    independent = result.raw.n_chains
    return {"u": u, "names": names, "p": shares, "true": true, "draws": independent}


GLOBAL = ("log likelihood", "log joint", "size")  # quantities of all models together


def _rank(truth: float, draws: Array, generator: torch.Generator) -> float:
    """Share of draws below the truth, ties and the place between two draws at random."""
    below, equal = int((draws < truth).sum()), int((draws == truth).sum())
    spread = float(torch.rand((), generator=generator, dtype=torch.float64))
    return (below + spread * (equal + 1)) / (len(draws) + 1)


def _series(
    target: Target, code: Tensor, theta: Tensor, quantities: Mapping[str, Callable[..., Any]]
) -> dict[str, Array]:
    """Numbers that are ranked, of the truth first, NaN where a model has none, (1 + draws,)."""
    found: dict[str, Array] = {}
    with torch.no_grad():
        prior, likelihood = target.log_prior_and_likelihood(code, theta)
    found["log likelihood"] = likelihood.double().cpu().numpy()
    found["log joint"] = (prior + likelihood).double().cpu().numpy()
    if target.space.has_items:
        found["size"] = target.space.items(code).sum(1).double().cpu().numpy()
    for name, value in target.padded_values(code, theta).items():
        x = value.double().cpu().numpy().reshape(len(code), -1)
        if target.space.counts and target.space.items_of(name) is not None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # models without components
                found[f"mean of {name}"] = np.nanmean(x, axis=1)
                found[f"largest {name}"] = np.nanmax(x, axis=1)
            continue
        for i in range(x.shape[1]):
            if len(found) < MOST_QUANTITIES:
                found[name if x.shape[1] == 1 else f"{name}[{i}]"] = x[:, i]
    models, which, _ = distinct(code)
    for name, function in quantities.items():
        out = np.full(len(code), math.nan)
        for m, model in enumerate(models):
            rows = (which == m).nonzero()[:, 0]
            values = np.asarray(target.apply(function, model, theta[rows]), dtype=float)
            out[rows.cpu().numpy()] = values.reshape(len(rows), -1)[:, 0]
        found[name] = out
    return found


def _events(
    target: Target, result: Result, code: Tensor
) -> tuple[list[str], list[float], list[bool]]:
    """Names of models, or in a space of many of items; shares of the draws; what is true."""
    space = target.space
    if not space.several:
        return [], [], []
    if space.few:
        every = space.enumerate()
        all_codes, _ = result.raw.flat()
        place = space.index(all_codes.to(every.device))
        share = torch.bincount(place, minlength=len(every)).double() / len(place)
        names = space.label(every)
        true = [i == int(space.index(code)[0]) for i in range(len(names))]
        return names, share.tolist(), true
    if space.counts:  # numbers of several kinds, too many for a table: their ranks are judged
        return [], [], []
    codes, _ = result.raw.flat()
    on = torch.stack([space.items(part).double().mean(0) for part in codes.split(20_000)])
    size = torch.tensor([len(part) for part in codes.split(20_000)]).double()
    share = (on * size[:, None]).sum(0) / size.sum()
    return list(space.names), share.tolist(), space.items(code)[0].tolist()
