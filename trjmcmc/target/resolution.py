"""Spacing of floating-point numbers against the spread of what they are to tell apart."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import TRJError
from .target import Target

COARSE = 1 / 20  # spacing of numbers, posterior standard deviations, that is too coarse

WIDE = 64.0  # least standard deviation of a fitted normal, in spacings of numbers

LOST_SHARE = 1e-3  # share of a posterior beyond the last number that is reported

MOST = 2000  # most draws of a model that are examined

PRIOR_DRAWS = 256  # draws from which the spread of a prior is computed

LEAST_DRAWS = 20  # fewest draws whose spread is computed

NEAR = 0.1  # share of a model's draws in the neighbourhood of a draw

SHARE = 0.25  # width of a normal's central tenth, standard deviations, about

FULL = 4.0  # distance of neighbouring draws, spacings, up to which no number lies unused

REACH = 4.0  # units of a coordinate next to its end in which draws are counted

SLOWEST = 0.02  # least rate at which a density falls towards an end, nats a unit

PART = 0.2  # share of the draws among too few numbers that is reported

NAMED = 3  # most parameters of a model that a message names

SLOPE = 3.0  # units of a coordinate over which the fall of a density is measured

FURTHER = (16.0, 100.0)  # units of a coordinate that double precision may reach beyond single

EXAMINED = 20  # most frequent models that are examined

RARE = 0.01  # share of all draws up to which a model is not examined


def spacing(x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Distance between neighbouring numbers of a precision near ``x``, at most; same shape."""
    return torch.finfo(dtype or x.dtype).eps * x.abs()


def resolved(loc: Tensor, tril: Tensor, dtype: torch.dtype) -> Tensor:
    """Factors of normals widened where they are narrower than a few dozen numbers.

    What such a normal proposes is rounded to one of few numbers, and is then more probable than
    its density says.

    Arguments:
        loc: Means, shape (..., D).
        tril: Lower factors of the covariances, float64, shape (..., D, D).
        dtype: Of the numbers that are drawn.

    Returns:
        Factors of the same shape, unchanged where normals are wide enough.
    """
    sd = tril.square().sum(-1).sqrt()
    least = WIDE * spacing(loc.abs() + 4 * sd, dtype) + torch.finfo(dtype).tiny
    unit = tril / least[..., None]
    eye = torch.eye(loc.shape[-1], dtype=tril.dtype, device=tril.device)
    inverse = torch.linalg.solve_triangular(unit, eye.expand_as(unit), upper=False)
    narrow = inverse.square().sum((-1, -2))[..., None] > 1
    if not bool(narrow.any()):
        return tril
    covariance = unit @ unit.mT + eye
    wide = least[..., None] * torch.linalg.cholesky(covariance)
    return torch.where(narrow[..., None], wide, tril)


class Coarse(NamedTuple):
    """A number of a model that its floating-point neighbours do not resolve.

    Attributes:
        name: The parameter, with its entry.
        size: What its typical values are like.
        gap: Distance between neighbouring numbers, where they are too few.
        spread: Standard deviation of the posterior there.
        prior: Standard deviation of its prior.
        bounded: Whether it has a largest or a smallest value.
    """

    name: str
    size: float
    gap: float
    spread: float
    prior: float
    bounded: bool

    def in_words(self, dtype: torch.dtype) -> str:
        """What is not resolved and its remedy, in a sentence, for draws of a precision."""
        much = f"{self.gap / self.spread:.2g}" if self.spread else "many"
        remedies = ["use dtype=torch.float64"] * (dtype != torch.float64)
        if self.bounded:  # its values are reckoned from the bound: near zero they are as coarse
            remedies.append(f"give it a prior much narrower than {self.prior:.2g}")
        else:
            remedies.append(f"state it as an offset from {self.size:.6g}")
        remedy = ", or ".join(remedies)
        return (
            f"{_short(dtype)} numbers near {self.name} = {self.size:.6g} lie {self.gap:.2g} apart, "
            f"{much} standard deviations of its posterior: {remedy}"
        )


class Beyond(NamedTuple):
    """A coordinate with a part of the posterior beyond the last number of its bijection.

    Attributes:
        name: The parameter, with its slot.
        share: How much of the posterior is lost, about.
        finer: How much would be in double precision, about.
    """

    name: str
    share: float
    finer: float

    def in_words(self, dtype: torch.dtype) -> str:
        """What is not resolved and its remedy, in a sentence, for draws of a precision."""
        remedy = (
            "use dtype=torch.float64"
            if self.finer < LOST_SHARE
            else "let the parameter be the logarithm of its distance from that end, or choose a "
            "prior with less there"
        )
        return (
            f"about {self.share:.1%} of the posterior lies closer to an end of the range of "
            f"{self.name} than {_short(dtype)} numbers do: {remedy}"
        )


def resolution_doubts(
    target: Target, codes: Tensor, which: Tensor, theta: Tensor
) -> dict[str, str]:
    """Models with a parameter that the working precision does not resolve, and what to do.

    Two conditions are checked. Neighbouring numbers must lie closer than a twentieth of the
    posterior's standard deviation where a fifth of the draws are, both in the unconstrained
    coordinate and in the value that it becomes (whose rounding is measured against double
    precision). And next to nothing of the posterior may lie beyond the last number at which a
    bijection still changes: by the draws in front of it, and how fast they get fewer.

    Arguments:
        target: The target, where the draws are.
        codes: Models, the most frequent ones first, shape (M, L).
        which: Row of ``codes`` of each draw, shape (chain, draw).
        theta: Padded unconstrained coordinates, shape (chain, draw, D).

    Returns:
        By model label a sentence that names parameter, precision and remedy.

    Example:
        >>> from torch.distributions import Normal
        >>> from trjmcmc import Model
        >>> zero = lambda p: torch.zeros(len(p["day"]))
        >>> target = Target([Model("m", {"day": Normal(55000.0, 0.01)}, zero)])
        >>> code, g = torch.zeros(100, 1).long(), torch.Generator().manual_seed(0)
        >>> theta = target.sample_prior(code, g)
        >>> resolution_doubts(target, code[:1], code.T, theta[None])["m"][:32]
        'float32 numbers near day = 55000'
    """
    found, flat = {}, theta.flatten(0, 1)
    other = torch.float32 if target.dtype == torch.float64 else torch.float64
    twin = target.to(dtype=other, probe=False)
    for m, code in enumerate(codes[:EXAMINED]):
        rows = (which.flatten() == m).nonzero()[:, 0]
        if len(rows) < max(LEAST_DRAWS, RARE * which.numel()):
            continue
        if len(rows) > MOST:
            rows = rows[torch.linspace(0, len(rows) - 1, MOST).long()]
        # a chain that stays where it is says nothing of the numbers around it
        before = (rows - 1).clamp(min=0)
        first = rows % which.shape[1] == 0
        moved = first | (flat[rows] != flat[before]).any(-1)
        used = target.space.active(code[None])[0].nonzero()[:, 0]
        if int(moved.sum()) >= LEAST_DRAWS:
            rows = rows[moved]
        elif len(used) != 1 or len(which) == 1:  # else all chains may have one number to go to
            continue
        if not len(used):
            continue
        if which.shape[1] == 1 and len(flat[rows][:, used].unique(dim=0)) == 1:
            continue  # chains that have not moved yet may all begin at one point
        doubts: list[Coarse | Beyond] = [*_coarse(target, twin, code, flat[rows], used)]
        doubts += _beyond(target, twin, code, flat[rows], used)
        if doubts:
            text = "; ".join(d.in_words(target.dtype) for d in doubts[:NAMED])
            more = f"; and {len(doubts) - NAMED} more" if len(doubts) > NAMED else ""
            found[target.space.label(code[None])[0]] = text + more
    return found


def _coarse(
    target: Target, twin: Target, code: Tensor, theta: Tensor, used: Tensor
) -> list[Coarse]:
    """Parameters of a model whose values, or coordinates, are too few for their spread."""
    columns, error = _columns(target, code, theta, used), _rounding(target, twin, code, theta)
    gaps = [spacing(theta[:, used]).double()]
    # a rounded number is off by half a spacing at most, and by a fourth of it on average
    gaps += [4 * error[name].reshape(len(theta), -1).double() for name in columns.parameters]
    coarse, gap, spread = _local(columns.values, torch.cat(gaps, 1))
    if not bool(coarse.any()):
        return []
    generator = torch.Generator(theta.device).manual_seed(0)
    draws = target.sample_prior(code.expand(PRIOR_DRAWS, -1), generator)
    prior = _columns(target, code, draws, used).values.std(0)
    found: dict[str, Coarse] = {}
    bounded = target.bounded(code)
    for i in coarse.nonzero()[:, 0].tolist():  # values after coordinates: they say more
        name, size = columns.names[i], float(columns.values[:, i].median())
        ends = columns.owners[i] in bounded
        found[name] = Coarse(name, size, float(gap[i]), float(spread[i]), float(prior[i]), ends)
    return list(found.values())


class _Columns(NamedTuple):
    """Coordinates of points in a model, and the values they stand for.

    Attributes:
        names: Of the columns, K.
        owners: The parameter that each column belongs to, K.
        parameters: Those whose values are among the columns.
        values: Shape (n, K), float64.
    """

    names: list[str]
    owners: list[str]
    parameters: list[str]
    values: Tensor


def _columns(target: Target, code: Tensor, theta: Tensor, used: Tensor) -> _Columns:
    """Coordinates in use, then the values of parameters, those on a simplex left out."""
    layout, parameters = target.layout(code), []
    owner = {j: name for name, (at, _, _) in layout.items() for j in range(at.start, at.stop)}
    names = [target.slot_names[j] for j in used.tolist()]
    owners, values = [owner[j] for j in used.tolist()], [theta[:, used].double()]
    for name, value in target.constrain(code, theta).items():
        if layout[name][1] == "simplex":  # what is next to one is known by the rest
            continue
        v = value.reshape(len(value), -1).double()
        values.append(v)
        parameters.append(name)
        names += [f"{name}[{i}]" if v.shape[1] > 1 else name for i in range(v.shape[1])]
        owners += [name] * v.shape[1]
    return _Columns(names, owners, parameters, torch.cat(values, 1))


def _rounding(target: Target, twin: Target, code: Tensor, theta: Tensor) -> dict[str, Tensor]:
    """Errors of the values of draws, by name, from those in the other precision.

    Where the other one is single precision, its own error, scaled.
    """
    double = target.dtype == torch.float64
    fine, rough = (target, twin) if double else (twin, target)
    x = theta.float()
    rounded = rough.constrain(code, x)
    try:
        exact = fine.constrain(code, x.double())
    except (TRJError, RuntimeError, TypeError, ValueError):  # the user's prior is of one precision
        return {name: spacing(value).double() / 4 for name, value in rounded.items()}
    unit = torch.finfo(torch.float64).eps / torch.finfo(torch.float32).eps if double else 1.0
    return {name: unit * (v.double() - exact[name]).abs() for name, v in rounded.items()}


def _local(x: Tensor, gap: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Where columns of draws (n, K) are too coarse, (K,), bool, with gap and spread there.

    Draws that share a number because chains descend from one another are told from those that
    have no other number to go to by their neighbours: these lie next to each other.
    """
    n = len(x)
    k = max(2, round(NEAR * n))
    x, order = x.sort(0)
    total = torch.nn.functional.pad(gap.gather(0, order).cumsum(0), (0, 0, 1, 0))
    gap = (total[k + 1 :] - total[: -k - 1]) / (k + 1)
    spread = (x[k:] - x[:-k]) / SHARE
    middle = x[k // 2 : k // 2 + len(spread)].T.contiguous()
    sheet = torch.nn.functional.pad(x.T, (1, 1), value=math.inf)
    sheet[:, 0] = -math.inf
    above = sheet.gather(1, torch.searchsorted(x.T.contiguous(), middle, right=True) + 1) - middle
    below = middle - sheet.gather(1, torch.searchsorted(x.T.contiguous(), middle))
    nearest = torch.minimum(above, below).T
    full = (nearest <= FULL * gap) | (nearest == math.inf)
    bad = full & (gap > COARSE * spread)
    one = bad.double()
    count = one.sum(0).clamp(min=1)
    where = (one * gap).sum(0) / count, (one * spread).sum(0) / count
    return bad.double().mean(0) > PART, *where


def _beyond(
    target: Target, twin: Target, code: Tensor, theta: Tensor, used: Tensor
) -> list[Beyond]:
    """Coordinates of a model with too many draws in front of where a bijection ends.

    What is beyond follows from how many draws are in front of the end and from the rate at which
    the prior's density falls there, as that of a power of the distance does. The likelihood
    hardly changes any more.
    """
    found = []
    for sign in (1.0, -1.0):
        unit = sign * torch.eye(theta.shape[1], dtype=theta.dtype, device=theta.device)
        outmost = (sign * theta[:, used]).argmax(0)
        ends = _ended(target, code, theta[outmost], REACH * unit[used])
        for j in used[ends].tolist():
            near = theta[_ended(target, code, theta, REACH * unit[j])]
            rate = _rate(target, code, near, unit[j])
            odds = 1 / torch.expm1(REACH * rate)  # of what is beyond to what is in front
            share = float(odds.sum()) / len(theta)
            if share > LOST_SHARE:
                more = 0.0
                if target.dtype != torch.float64:
                    row, step = theta[outmost[used == j]].double(), unit[j].double()
                    gains = [x for x in FURTHER if not _ended(twin, code, row, x * step)]
                    more = max(gains, default=0.0)
                less = float((odds * torch.exp(-more * rate)).sum()) / len(theta)
                found.append(Beyond(target.slot_names[j], min(share, 1.0), less))
    return found


def _rate(target: Target, code: Tensor, theta: Tensor, step: Tensor) -> Tensor:
    """How fast the log prior falls over the last units that have a density, by unit, (n,)."""
    window = round(2 * SLOPE)
    sizes = 0.5 * torch.arange(-window, 2 * REACH, dtype=theta.dtype, device=theta.device)
    points = (theta + sizes[:, None, None] * step).flatten(0, 1)
    log_prior = target.prior_by_slot(code.expand(len(points), -1), points).sum(-1)
    log_prior = log_prior.view(len(sizes), -1).double()
    falls = (log_prior[:-window] - log_prior[window:]) / SLOPE
    last = falls.isfinite().cumsum(0).argmax(0)
    return falls.gather(0, last[None])[0].nan_to_num(0.0).clamp(SLOWEST, 50.0)


def _ended(target: Target, code: Tensor, theta: Tensor, step: Tensor) -> Tensor:
    """Whether there is no density a step further, and no change in values beyond it, (n,)."""
    codes, there = code.expand(len(theta), -1), theta + step
    nothing = (target.prior_by_slot(codes, there) == -math.inf).any(-1)
    if not bool(nothing.any()):
        return nothing
    limits = torch.finfo(theta.dtype)
    same = torch.ones_like(nothing)
    further = target.constrain(code, there + step)
    for name, value in target.constrain(code, there).items():
        change = (further[name] - value).abs() > 2 * limits.eps * value.abs() + limits.tiny
        same &= ~change.reshape(len(there), -1).any(-1)  # inf - inf is none
    return nothing & same


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
