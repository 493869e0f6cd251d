"""What the draws of a run say against it: chains that have not forgotten where they began."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from ..draws import Draws
from ..estimate.convergence import (
    FEW_STARTS,
    LEAST_DRAWS,
    effective_draws,
    families,
    rank_rhats,
    start_error,
)
from ..space.base import Space

EVERY = "(all models)"

REST = "(other models)"

IN, INCLUDES = "in model ", "includes "

WORTH = 0.01  # share of the draws from which a model's parameters are looked at one by one

SLOW_RHAT = 1.1  # of a parameter, from where its model is in doubt

NUMBERS = 1_000_000  # that a quick look takes R-hat of, all quantities together

CHAINS, DRAWS, LEAST = 128, 100, 20  # chains and draws of it at most, draws at least

Array = NDArray[np.float64]

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Doubt:
    """A reason not to trust what chains say of a model.

    Attributes:
        model: Label, or :data:`EVERY`.
        note: In words.
        size: By how much the log evidence, in nats, or any mean, in standard deviations, may be
            off; NaN where nothing tells.
        everywhere: Whether what was fitted to the same draws is in doubt with the chains.
        said: Whether it has a warning of its own.
        remedy: What helps against this above all, if that is known.
    """

    model: str
    note: str
    size: float
    everywhere: bool = False
    said: bool = False
    remedy: str = ""


@dataclass(frozen=True)
class Part:
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


class Convergence:
    """R-hat and effective draws of all that chains pass: models, log joint, parameters.

    Components of an unknown number have no names, so that it is the smallest, the mean and the
    largest of their parameters that are looked at.

    Arguments:
        space: The space, on the CPU.
        draws: The record.
        model: Each draw's position among ``labels``, shape (chain, draw).
        labels: Models that were visited, the most frequent first.
        names: Of the coordinates.
    """

    def __init__(
        self,
        space: Space,
        draws: Draws,
        model: NDArray[np.integer],
        labels: Sequence[str],
        names: Sequence[str],
    ) -> None:
        self.space, self.labels, self.names = space, labels, names
        self.draws, self.model = draws, model
        ancestor = None if draws.ancestor is None else draws.ancestor.numpy()
        self.first = families(ancestor, draws.n_chains)
        self.ancestor = ancestor

    def table(self, quick: bool = False) -> pd.DataFrame:
        """Indexed by model and quantity; ``rhat``, ``ess_bulk``, ``ess_tail``, ``share``.

        Arguments:
            quick: Of fewer draws, and R-hat alone.
        """
        rows, index = [], []
        for part in self.parts(self._few() if quick else slice(None), self._step(quick)):
            chains = slice(None) if quick else self.first
            rhat = rank_rhats(part.x[chains], part.inside[chains])
            if quick:
                bulk = tail = np.full(len(rhat), math.nan)
            else:
                bulk, tail = effective_draws(part.x, part.inside, self.ancestor)
            for q, name in enumerate(part.names):
                rows.append((rhat[q], bulk[q], tail[q], part.share))
                index.append((part.model, name))
        columns = ["rhat", "ess_bulk", "ess_tail", "share"]
        multi = pd.MultiIndex.from_tuples(index, names=["model", "quantity"])
        return pd.DataFrame(rows, columns=columns, index=multi)

    def _few(self) -> NDArray[np.intp]:
        """Chains of a quick look, of independent starts."""
        return self.first[:: -(-len(self.first) // CHAINS)]

    def _step(self, quick: bool) -> int:
        if not quick:
            return 1
        shown = min(len(self.labels), round(1 / WORTH))
        each = NUMBERS // (len(self._few()) * (1 + shown + self.draws.theta.shape[2] * shown))
        return max(1, self.draws.n_draws // min(DRAWS, max(LEAST, each)))

    def parts(self, chains: slice | NDArray[np.intp], step: int) -> Iterator[Part]:
        """Quantities of every ``step``-th draw of some chains."""
        code = self.draws.code[chains][:, ::step]
        theta = self.draws.theta[chains][:, ::step].double().numpy()
        height = self.draws.log_joint[chains][:, ::step].double().numpy()[..., None]
        model = self.model[chains][:, ::step]
        everywhere = np.ones(model.shape, dtype=bool)
        yield Part(EVERY, ["log joint"], height, everywhere)
        if self.space.counts:
            yield from self._components(code, theta)
            return
        rest = everywhere
        for place, label in enumerate(self.labels):
            inside = model == place
            if inside.mean() <= WORTH:
                break  # the most frequent come first
            slots = self.space.active(self.space.code_of(label)[None])[0].numpy()
            names = ["log joint", *(n for n, on in zip(self.names, slots, strict=True) if on)]
            yield Part(label, names, np.concatenate([height, theta[..., slots]], 2), inside)
            if not inside.all():
                yield Part(EVERY, [IN + label], inside[..., None] * 1.0, everywhere)
            rest = rest & ~inside
        if rest.mean() > WORTH:
            yield Part(EVERY, [IN + REST], rest[..., None] * 1.0, everywhere)
            yield from self._by_slot(code, theta, rest)
        if self.space.has_named_items:
            on = self.space.items(code.flatten(0, 1)).view(*code.shape[:2], -1).numpy()
            yield Part(EVERY, [INCLUDES + n for n in self.space.names], on * 1.0, everywhere)

    def _by_slot(self, code: torch.Tensor, theta: Array, inside: Mask) -> Iterator[Part]:
        """Coordinates of some draws, wherever they are in use."""
        active = self.space.active(code.flatten(0, 1)).view(*code.shape[:2], -1).numpy()
        for slot, name in enumerate(self.names):
            here = inside & active[..., slot]
            if here.mean() > WORTH:
                yield Part(REST, [name], theta[..., slot : slot + 1], here)

    def _components(self, code: torch.Tensor, theta: Array) -> Iterator[Part]:
        """Numbers of components, what they have in common, and the ends of what they have not."""
        space, everywhere = self.space, np.ones(theta.shape[:2], dtype=bool)
        there = space.items(code.flatten(0, 1)).view(*code.shape[:2], -1).numpy()
        shared = np.ones(theta.shape[2], dtype=bool)
        for place, kind in enumerate(space.kinds):
            of = kind.name if len(space.kinds) > 1 else "components"
            yield Part(EVERY, [f"number of {of}"], code[..., [place]].double().numpy(), everywhere)
            slots = space.slots_of(kind).numpy()
            shared[slots.ravel()] = False
            on: Mask = there[..., kind.items]
            some: Mask = np.any(on, axis=-1)
            if not slots.size or not some.mean() > WORTH:
                continue
            x, off = theta[:, :, slots], ~on[..., None]
            ends = [
                np.where(off, math.inf, x).min(2),
                np.where(off, 0.0, x).sum(2) / np.maximum(on.sum(-1), 1)[..., None],
                np.where(off, -math.inf, x).max(2),
            ]
            names = [self.names[s].partition("[")[0] for s in slots[0]]
            said = [f"{word} {n}" for word in ("smallest", "mean", "largest") for n in names]
            yield Part(EVERY, said, np.concatenate(ends, 2), some)
        if shared.any():
            names = [n for n, mine in zip(self.names, shared, strict=True) if mine]
            yield Part(EVERY, names, theta[..., shared], everywhere)

    def doubts(self) -> list[Doubt]:
        """Reasons not to trust the chains, by model the quantity that remembers its start best.

        Shares of models and items have R-hats of their own.
        """
        found: list[Doubt] = []
        chains, draws = self.draws.n_chains, self.draws.n_draws
        if draws < LEAST_DRAWS:
            return [Doubt(EVERY, f"{draws} draws a chain tell nothing of their error", math.nan)]
        if len(self.first) < min(FEW_STARTS, chains / 2):
            of = "one draw" if len(self.first) == 1 else f"{len(self.first)} draws"
            note = f"all {chains} chains descend from {of} of the prior"
            remedy = f"more chains (chains={4 * chains})"
            found.append(Doubt(EVERY, note, math.nan, everywhere=True, remedy=remedy))
        stuck = (self.model == self.model[:, :1]).all() and np.ptp(self.model) > 0
        if stuck and chains > 1:
            return [*found, Doubt(EVERY, "no chain has ever left its model", math.nan)]
        table = self.table(quick=True)
        shares = table.index.get_level_values("quantity").str.startswith((IN, INCLUDES))
        table = table[~shares & (table["rhat"] > SLOW_RHAT)]
        for model, rows in table.groupby(level="model"):
            _, name = worst = rows["rhat"].idxmax()
            rhat = float(rows.loc[worst, "rhat"])
            said = "" if model in {EVERY, REST} else f" in {model!r}"
            label = EVERY if model == REST else str(model)
            found.append(Doubt(label, f"R-hat {rhat:.2f} of {name}{said}", start_error(rhat)))
        return found
