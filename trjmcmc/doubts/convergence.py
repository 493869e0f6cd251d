"""Whether chains have forgotten where they began: R-hat and effective draws of all quantities."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from ..draws import Draws, odd
from ..estimate.between import run_gaps
from ..estimate.convergence import TAIL_RHAT, effective_draws, nested_rhats, rank_rhats, slow_tails
from ..estimate.indicator import Mask, ModelIndicator
from ..space.base import Space
from .doubt import EVERY

if TYPE_CHECKING:
    import pandas as pd

REST = "(other models)"  # label of those of all rare models together

IN, INCLUDES = "in model ", "includes "  # first words of the indicators' names

LISTED_SHARE = 0.01  # share of the draws from which a model's parameters are listed one by one

QUICK_NUMBERS = 1_000_000  # that runs are compared by, of so many chains

QUICK_CHAINS, QUICK_DRAWS = 128, 100  # chains that tails are told from, and draws per chain at most

QUICK_LEAST_DRAWS = 20  # draws per chain that runs are compared by, at least

BETWEEN_NUMBERS = 10_000_000  # that runs are compared by, all quantities together

TAIL_NUMBERS = 4_000_000  # numbers that tails are told from, all chains and quantities together

TAILS_KEPT = 8  # tails of a model that errors count

GROUPS = 8  # of chains, whose means nested R-hat compares

WATCHED_CHAINS = 128  # chains by which a run watches R-hat

WATCHED_NUMBERS = 1_000_000  # numbers of all quantities together that it takes for that

WATCHED_DRAWS = 200  # draws a chain that it takes in any case

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Group:
    """Quantities that exist in the same draws.

    Attributes:
        model: The model that they belong to, or :data:`EVERY`, or :data:`REST`.
        names: Of the quantities.
        x: Shape (chain, draw, Q).
        inside: Draws at which they exist, shape (chain, draw).
    """

    model: str
    names: list[str]
    x: Array
    inside: Mask

    @property
    def share(self) -> float:
        """Share of the draws."""
        return float(self.inside.mean())


@dataclass(frozen=True)
class Tail:
    """A tail of a quantity in a model that chains hardly enter, or hardly leave.

    Attributes:
        model: The model's label.
        quantity: Its log joint, or the name of a coordinate.
        chain, draw: Positions of the tail's draws, shape (n,) each.
        mass: Share of the model's draws by which it may be off.
        off: The same, as a share of the tail.
        rhat: Of being in it.
    """

    model: str
    quantity: str
    chain: NDArray[np.intp] = field(repr=False)
    draw: NDArray[np.intp] = field(repr=False)
    mass: float
    off: float
    rhat: float

    def shift(self, series: NDArray[np.floating], every: int = 1) -> float:
        """How far the mean of a series of mean zero may be off.

        Arguments:
            series: What draws add to a mean, shape (chain, draw).
            every: It is of every so many-th draw.
        """
        there = self.draw % every == 0
        tail = series[self.chain[there], self.draw[there] // every]
        return self.off * abs(float(tail.sum())) / series.size


def worst_rhat(space: Space, draws: Draws, limit: float) -> float:
    """The largest R-hat of all that some chains pass; NaN where nothing has changed.

    Arguments:
        space: The space, on the CPU.
        draws: The record of a run so far.
        limit: That it is held against: if fewer draws can't tell, all are taken.
    """
    few = draws.some(WATCHED_CHAINS, draws.n_draws)
    return Convergence(ModelIndicator(space, few), [""] * draws.theta.shape[2]).worst(limit)


class Convergence:
    """R-hat and effective draws of all that chains pass: models, log joint, parameters.

    Components of an unknown number have no names, so that it is the smallest, the mean and the
    largest of their parameters that are looked at.

    Arguments:
        indicator: Which model each draw is in.
        names: Names of the coordinates, D.
    """

    def __init__(self, indicator: ModelIndicator, names: Sequence[str]) -> None:
        self.indicator, self.names = indicator, names
        self.space, self.draws = indicator.space, indicator.draws
        self.labels = indicator.most_visited

    def table(self) -> pd.DataFrame:
        """As :meth:`~trjmcmc.Result.convergence`."""
        import pandas as pd

        rows, index = [], []
        for part in self.parts(slice(None), 1):
            rhat = rank_rhats(part.x, part.inside)
            nested = nested_rhats(part.x, part.inside, self.group)
            bulk, tail = effective_draws(part.x, part.inside)
            for q, name in enumerate(part.names):
                rows.append((rhat[q], nested[q], bulk[q], tail[q], part.share))
                index.append((part.model, name))
        columns = ["rhat", "nested_rhat", "ess_bulk", "ess_tail", "share"]
        multi = pd.MultiIndex.from_tuples(index, names=["model", "quantity"])
        return pd.DataFrame(rows, columns=columns, index=multi)

    @property
    def group(self) -> NDArray[np.integer]:
        """Of each chain, as of a run in rounds."""
        return np.arange(self.draws.n_chains) % GROUPS

    def between_runs(self) -> pd.DataFrame:
        """Do the runs that were merged agree? See :func:`trjmcmc.merge`.

        Returns:
            Indexed by model and quantity as :meth:`trjmcmc.Result.convergence`; ``p``, the
            probability of gaps as large between the means of runs that sample the same;
            ``apart``, how far the run that is furthest off is from the mean of all, in standard
            deviations. Empty of one run.

        Source:
            Welch (1951), https://doi.org/10.1093/biomet/38.3-4.330
        """
        import pandas as pd

        rows, index, run = [], [], self.draws.run
        numbers = self.draws.n_chains * self.draws.n_draws * self._quantities
        n = self.draws.n_chains
        chains = len(range(0, n, -(-n // QUICK_CHAINS)))
        each = max(QUICK_LEAST_DRAWS, QUICK_NUMBERS // (chains * self._quantities))
        step = max(self.draws.n_draws // min(QUICK_DRAWS, each), numbers // BETWEEN_NUMBERS)
        step = odd(min(step, self.draws.n_draws))
        for part in self.parts(slice(None), step) if run is not None else ():
            assert run is not None
            gaps = run_gaps(part.x, part.inside, run.numpy())
            rows += list(zip(gaps.p, gaps.apart, strict=True))
            index += [(part.model, name) for name in part.names]
        multi = pd.MultiIndex.from_tuples(index or [], names=["model", "quantity"])
        return pd.DataFrame(rows, columns=["p", "apart"], index=multi)

    def tails(self, renewed: float = TAIL_RHAT) -> list[Tail]:
        """The tails that chains renew least, model by model, by fewer draws.

        A rare tail is in few chains, so that draws are left out first.

        Arguments:
            renewed: R-hat of being in a tail up to which it counts as renewed.
        """
        step, n = odd(self.draws.n_draws // QUICK_DRAWS), self.draws.n_chains
        draws = -(-self.draws.n_draws // step)
        chains = max(QUICK_CHAINS, TAIL_NUMBERS // (draws * self._quantities))
        some = slice(None, None, -(-n // chains))
        found = []
        for part in () if self.space.counts else self.parts(some, step):
            if part.model in {EVERY, REST}:
                continue
            slow = slow_tails(part.x, part.inside, renewed)
            mass = np.abs(slow.share) * slow.off
            for q in np.argsort(-mass)[:TAILS_KEPT]:
                if mass[q] > 0:
                    where = self._beyond(part.model, int(q), float(slow.cut[q]), slow.share[q] > 0)
                    told = (float(x[q]) for x in (mass, slow.off, slow.rhat))
                    found.append(Tail(part.model, part.names[q], *where, *told))
        return found

    def _beyond(
        self, model: str, quantity: int, cut: float, above: bool
    ) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Chains and draws of a model beyond a value of its log joint, or of a coordinate."""
        slots = self.space.active(self.space.code_of(model)[None])[0].nonzero()[:, 0]
        draws = self.draws
        x = draws.theta[..., slots[quantity - 1]] if quantity else draws.log_joint
        beyond = (x >= cut if above else x <= cut).numpy() & self.indicator.inside(model)
        chain, draw = np.nonzero(beyond)
        return chain, draw

    def worst(self, limit: float) -> float:
        """The largest R-hat; NaN where nothing has changed.

        Of fewer draws it looks lower by the variance that these leave out, which is added again;
        where even they are nearly independent that is too much.

        Arguments:
            limit: That it is held against: where fewer draws can't tell, more are taken.
        """
        quantities = 1 + len(self.labels) + self.draws.theta.shape[2]
        each, n = WATCHED_NUMBERS / (quantities * self.draws.n_chains), self.draws.n_draws
        step = odd(int(n / max(each, WATCHED_DRAWS)))
        while True:
            lowest = self._largest(step)
            found = math.sqrt(lowest**2 + 2 * (1 / -(-n // step) - 1 / n))
            if step == 1 or not lowest <= limit < found:
                return found
            step = odd(step // 2)

    def _largest(self, step: int) -> float:
        """The largest R-hat of every ``step``-th draw."""
        parts = self.parts(slice(None), step)
        found = np.concatenate([rank_rhats(part.x, part.inside) for part in parts])
        return float(np.nanmax(found, initial=-math.inf)) if (found == found).any() else math.nan

    @property
    def _quantities(self) -> int:
        """How many there are of all models that may be shown, about."""
        shown = min(len(self.labels), round(1 / LISTED_SHARE))
        return 1 + shown + self.draws.theta.shape[2] * shown

    def parts(self, chains: slice, step: int) -> Iterator[Group]:
        """Quantities of every ``step``-th draw of some chains."""
        code = self.draws.code[:, ::step][chains]
        theta = self.draws.theta[:, ::step][chains].double().numpy()
        height = self.draws.log_joint[:, ::step][chains].double().numpy()[..., None]
        model = self.indicator.place[:, ::step][chains]
        everywhere = np.ones(model.shape, dtype=bool)
        yield Group(EVERY, ["log joint"], height, everywhere)
        if self.space.counts:
            yield from self._components(self.space, code, theta)
            return
        rest = everywhere
        for place, label in enumerate(self.labels):
            inside = model == place
            if inside.mean() <= LISTED_SHARE:
                break  # the most frequent come first
            slots = self.space.active(self.space.code_of(label)[None])[0].numpy()
            names = ["log joint", *(n for n, on in zip(self.names, slots, strict=True) if on)]
            yield Group(label, names, np.concatenate([height, theta[..., slots]], 2), inside)
            if not inside.all():
                yield Group(EVERY, [IN + label], inside[..., None] * 1.0, everywhere)
            rest = rest & ~inside
        if rest.mean() > LISTED_SHARE:
            yield Group(EVERY, [IN + REST], rest[..., None] * 1.0, everywhere)
            yield from self._by_slot(code, theta, rest)
        if self.space.has_named_items:
            on = self.space.items(code.flatten(0, 1)).view(*code.shape[:2], -1).numpy()
            yield Group(EVERY, [INCLUDES + n for n in self.space.names], on * 1.0, everywhere)

    def _by_slot(self, code: torch.Tensor, theta: Array, inside: Mask) -> Iterator[Group]:
        """Coordinates of some draws, wherever they are in use."""
        active = self.space.active(code.flatten(0, 1)).view(*code.shape[:2], -1).numpy()
        for slot, name in enumerate(self.names):
            here = inside & active[..., slot]
            if here.mean() > LISTED_SHARE:
                yield Group(REST, [name], theta[..., slot : slot + 1], here)

    def _components(self, space: Space, code: torch.Tensor, theta: Array) -> Iterator[Group]:
        """Numbers of components, what they have in common, and the ends of what they have not."""
        everywhere = np.ones(theta.shape[:2], dtype=bool)
        there = space.items(code.flatten(0, 1)).view(*code.shape[:2], -1).numpy()
        shared = np.ones(theta.shape[2], dtype=bool)
        for place, kind in enumerate(space.kinds):
            of = kind.name if len(space.kinds) > 1 else "components"
            yield Group(EVERY, [f"number of {of}"], code[..., [place]].double().numpy(), everywhere)
            slots = space.slots_of(kind).numpy()
            shared[slots.ravel()] = False
            on: Mask = there[..., kind.items]
            some: Mask = np.any(on, axis=-1)
            if not slots.size or not some.mean() > LISTED_SHARE:
                continue
            x, off = theta[:, :, slots], ~on[..., None]
            ends = [
                np.where(off, math.inf, x).min(2),
                np.where(off, 0.0, x).sum(2) / np.maximum(on.sum(-1), 1)[..., None],
                np.where(off, -math.inf, x).max(2),
            ]
            names = [self.names[s].partition("[")[0] for s in slots[0]]
            titles = [f"{word} {n}" for word in ("smallest", "mean", "largest") for n in names]
            yield Group(EVERY, titles, np.concatenate(ends, 2), some)
        if shared.any():
            names = [n for n, mine in zip(self.names, shared, strict=True) if mine]
            yield Group(EVERY, names, theta[..., shared], everywhere)
