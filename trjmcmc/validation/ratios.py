r"""Whether the likelihood is the density of the data that the simulator draws.

For data y drawn at parameters θ and for θ' beside θ

.. math:: E\bigl[p(y \mid \theta') / p(y \mid \theta)\bigr] \le 1,

with equality where both can draw the same data. A likelihood that lacks a factor Z(θ), or has one
too many, gives Z(θ') / Z(θ) there, which exceeds 1 in one of two directions; so does one that is of
other data than are drawn. No sampler is needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..doubts.doubt import EVERY, Doubt
from ..simulate.prior import drawn_from_prior
from ..target.density import Density
from ..target.support import unchecked
from ..target.target import Target
from .asked import Skipped
from .remake import Simulation

POINTS = 4  # prior draws around which data are simulated, at least one a model up to twice as many

DATA_SETS = 200  # at each

FIRST = 20  # of these, by which steps are sized

COORDINATES = 10  # of a point that are stepped along at most, in both directions

UPHILL = "the prior"  # name of steps along which its density rises

STEP = 0.05  # the first step, unconstrained

SPREAD = 0.4  # standard deviation of log ratios that a step should give

ERRORS = 5.0  # standard errors beyond which a mean ratio is too large, or several together, and

LEAST = 0.02  # the least excess that is reported


@dataclass(frozen=True)
class Excess:
    """One step from one point.

    Attributes:
        parameter: Name of the slot.
        label: Of the model.
        mean, error: Of the ratios.
        causes: By cause, the log of what the mean would be if that were it.
    """

    parameter: str
    label: str
    mean: float
    error: float
    causes: dict[str, float]

    @property
    def wrong(self) -> bool:
        return self.mean - 1 > max(ERRORS * self.error, LEAST)


def check_ratios(by: Simulation) -> list[Doubt]:
    """Mean likelihood ratios over simulated data, around draws of the prior."""
    found: list[Excess] = []
    code, theta = _points(by.target, by.generator)
    looked = 0
    for i in range(len(code)):
        if by.over():
            break
        steps, impossible = _around(by, code[i], theta[i])
        if impossible:
            return impossible
        found += steps
        looked += 1
    if not looked:
        raise Skipped("no time was left")
    wrong = [x for x in found if x.wrong and x.parameter != UPHILL]
    if not wrong:
        return _twice(found)
    return [
        _said(label, name, [x for x in found if (x.label, x.parameter) == (label, name)])
        for label, name in dict.fromkeys((x.label, x.parameter) for x in wrong)
    ]


def _twice(found: list[Excess]) -> list[Doubt]:
    """What all steps towards a denser prior say together: a prior in the likelihood shows there."""
    up = [x for x in found if x.parameter == UPHILL and x.causes["its prior"] > 0]
    if not up:
        return []
    z = sum((x.mean - 1) / max(x.error, 1e-12) for x in up) / math.sqrt(len(up))
    if z < ERRORS:
        return []
    words = (
        f"over data simulated at {len(up)} points the mean likelihood ratios to points where the "
        f"prior is denser exceed 1, which they can't ({z:.1f} standard errors together): {TWICE}"
    )
    return [Doubt(EVERY, words)]


def _points(target: Target, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Prior draws, of each model of a short list at least one."""
    code, theta = drawn_from_prior(target, POINTS, generator)
    if target.space.few and (target.space.size or 0) <= 2 * POINTS:
        every = target.space.enumerate()
        repeats = max(1, POINTS // len(every))
        code = every.repeat(repeats, 1)
        theta = target.sample_prior(code, generator)
        fine = theta.isfinite().all(-1)
        code, theta = code[fine], theta[fine]
    return code, theta


def _around(by: Simulation, code: Tensor, theta: Tensor) -> tuple[list[Excess], list[Doubt]]:
    """Steps from one point, over data simulated there; or what forbids to make any."""
    target, simulator, make, generator, _ = by
    slots = target.space.active(code[None])[0].nonzero()[:, 0]
    if not len(slots):
        return [], []
    picked = torch.randperm(len(slots), generator=generator)[:COORDINATES]
    slots = slots[picked]
    names = [target.slot_names[s] for s in slots.tolist()]
    moves = torch.eye(len(theta), dtype=theta.dtype)[slots]
    uphill = _uphill(target, code, theta, moves)
    if bool(uphill.isfinite().all()) and float(uphill.norm()) > 0:
        moves = torch.cat([moves, (uphill / uphill.norm())[None]])
        names.append(UPHILL)
    rows = code.expand(DATA_SETS, -1), theta.expand(DATA_SETS, -1)
    data = simulator.draw(*rows, generator)
    label = target.space.label(code[None])[0]
    size = torch.full((len(moves),), STEP, dtype=theta.dtype)
    made = [make(one) for one in data[:FIRST]]
    first = torch.stack([_ratios(t, code, theta, moves, size) for t in made])
    if bool((first[:, 0] == -math.inf).any()):
        return [], [_impossible(label, first[:, 0])]
    spread = _change(first)[:, : len(moves)].std(0)
    size = torch.where(spread > 0, size * (SPREAD / spread).nan_to_num(1.0, 1.0), size)
    size = size.clamp(1e-4, 1.0)
    made += [make(one) for one in data[FIRST:]]
    values = torch.stack([_ratios(t, code, theta, moves, size) for t in made])
    if bool((values[:, 0] == -math.inf).any()):
        return [], [_impossible(label, values[:, 0])]
    w = _change(values).double().clamp(max=50.0).exp()
    mean, error = w.mean(0), w.std(0) / math.sqrt(len(w))
    causes = _causes(target, code, theta, moves, size)
    names = names * 2
    steps = [
        Excess(
            names[j],
            label,
            float(mean[j]),
            float(error[j]),
            {k: float(v[j]) for k, v in causes.items()},
        )
        for j in range(len(names))
        if math.isfinite(float(mean[j]))
    ]
    return steps, []


def _impossible(label: str, first: Tensor) -> Doubt:
    share = float((first == -math.inf).double().mean())
    words = (
        f"model {label!r}: {share:.0%} of the data that are simulated at its parameters have "
        "likelihood zero at these parameters: simulator and likelihood are of different models, "
        "or numbers overflow"
    )
    return Doubt(label, words, share)


def _uphill(target: Target, code: Tensor, theta: Tensor, moves: Tensor) -> Tensor:
    """Where the density of the prior, of the parameters in their units, rises, (D,)."""
    size = torch.full((len(moves),), STEP, dtype=theta.dtype)
    change = _causes(target, code, theta, moves, size)["its prior"]
    return ((change[: len(moves)] - change[len(moves) :])[:, None] * moves).sum(0)


def _stepped(theta: Tensor, moves: Tensor, size: Tensor) -> Tensor:
    """The point, and the points one step up and down along each move, (1 + 2 K, D)."""
    step = size.to(theta)[:, None] * moves.to(theta)
    return torch.cat([theta[None], theta + step, theta - step])


def _ratios(target: Target, code: Tensor, theta: Tensor, moves: Tensor, size: Tensor) -> Tensor:
    """Log likelihoods of the point and its neighbours, (1 + 2 K,)."""
    points = _stepped(theta.to(target.dtype), moves, size)
    with torch.no_grad():
        prior, value = target.log_prior_and_likelihood(code.expand(len(points), -1), points)
    return torch.where(prior > -math.inf, value, -math.inf).double()


def _change(values: Tensor) -> Tensor:
    return values[:, 1:] - values[:, :1]


def _causes(
    target: Target, code: Tensor, theta: Tensor, moves: Tensor, size: Tensor
) -> dict[str, Tensor]:
    """What the log of a mean ratio would be by cause, (2 K,) each."""
    points = _stepped(theta, moves, size)
    codes = code.expand(len(points), -1)
    density: Density = target.densities.of(code)
    items = target.densities.items(codes)
    with torch.no_grad(), unchecked():
        prior = density.evaluate(points, items, False).log_prior
        values = density.constrain(points, items)
        slope = torch.zeros_like(prior)
        for block in density.blocks:
            if block.items is None:
                slope = slope + block.prior.log_slope(points[:, block.slots], values)
    prior = prior - prior[0]
    slope = slope - slope[0]
    return {
        "its prior": (prior - slope)[1:],
        "its prior with the Jacobian": prior[1:],
        "the Jacobian": slope[1:],
        "the inverse of the Jacobian": -slope[1:],
    }


TWICE = "its prior is in the likelihood as well: the prior is used twice"

MEANS = {
    "its prior": TWICE,
    "its prior with the Jacobian": TWICE,
    "the Jacobian": "the Jacobian to unconstrained numbers is in the likelihood, where the target "
    "has it already",
    "the inverse of the Jacobian": "a Jacobian is forgotten, or divided by twice",
}


def _said(label: str, parameter: str, steps: list[Excess]) -> Doubt:
    """Words for what the steps along one parameter of one model have found."""
    worst = max(steps, key=lambda x: (x.mean - 1) / max(x.error, 1e-12))
    cause = _explained(steps)
    words = (
        f"model {label!r}: over data simulated at a point the mean likelihood ratio to a point "
        f"beside it in {parameter!r} is {worst.mean:.4g} ± {worst.error:.1g}, and can't exceed 1. "
    )
    words += (
        f"It changes as {cause} does: {MEANS[cause]}"
        if cause
        else f"The likelihood is no density of these data: a term that depends on {parameter!r} is "
        "missing or one too many (a normalising constant such as -n log(sigma), a mask that is off "
        "by one), or the simulator draws other data"
    )
    return Doubt(parameter, words, worst.mean - 1)


def _explained(steps: list[Excess]) -> str:
    """The cause that all steps agree with, within their errors; none if there is no such."""

    def misfit(log_mean: Callable[[Excess], float]) -> float:
        gaps = [
            (math.log(max(x.mean, 1e-300)) - log_mean(x)) / (x.error / max(x.mean, 1e-12) + 0.01)
            for x in steps
        ]
        return sum(min(g * g, 1e6) for g in gaps) / len(gaps)

    by = {cause: misfit(lambda x, c=cause: x.causes[c]) for cause in MEANS}  # type: ignore[misc]
    best = min(by, key=by.__getitem__)
    none = misfit(lambda x: 0.0)
    return best if by[best] < 5 and by[best] < 0.2 * none else ""
