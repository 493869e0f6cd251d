"""Priors and likelihoods of all models of a target, one interface for both ways to state them."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from ..errors import TargetError
from ..grouping import apply_by_group
from ..space.base import Space, check_names
from ..space.model_list import ModelList
from ..space.prior import LogWeights, normalised_log_prior
from .density import Density, Evaluation
from .likelihood import LogLikelihood
from .model import Model, check_priors
from .names import told_apart
from .padded import Padded, padded
from .prior import PriorSpec

RowFunction = Callable[..., tuple[Tensor, ...]]  # of a density, columns of rows, and items in use


class Densities(ABC):
    """Priors and likelihoods of all models: of each its own, or one shared by all.

    Attributes:
        space: The bound model space.
        each: The densities.
        dim: D, padded unconstrained coordinates.
        slot_names: One name a coordinate.
        models: Of a list, as they were stated, their names made different where they must be.
        padded: All models of a list as one, where they differ in length alone.
    """

    space: Space
    each: list[Density]
    dim: int
    slot_names: list[str]
    models: list[Model]
    padded: Padded | None = None

    @abstractmethod
    def of(self, code: Tensor) -> Density:
        """The density of one model, code (L,)."""

    @abstractmethod
    def items(self, code: Tensor) -> Tensor | None:
        """Items in use as a density asks for them, (C, n_items); None where it has none."""

    @abstractmethod
    def rows(self, code: Tensor) -> Iterator[tuple[Density, Tensor | slice]]:
        """The densities, and which rows of a batch of models (C, L) belong to each."""

    @abstractmethod
    def by_row(self, function: RowFunction, code: Tensor, *columns: Tensor) -> tuple[Tensor, ...]:
        """A function of a density, called for every row with the density of its model.

        Arguments:
            function: Of a density, columns of some rows, and items in use there (or None);
                gives a tuple of tensors with as many rows.
            code: Models, shape (C, L).
            columns: Coordinates and what goes with them, shape (C, D) each.

        Returns:
            What the function gives, in the order of the rows.
        """

    def evaluate(
        self, code: Tensor, theta: Tensor, surrogate: bool, total: Tensor | None = None
    ) -> Evaluation:
        """Priors and likelihoods of points of any models; arguments as of ``Density.evaluate``."""
        calls: int = 0
        forgiven: Tensor | int = 0

        def evaluated(density: Density, theta: Tensor, items: Tensor | None) -> tuple[Tensor, ...]:
            nonlocal calls, forgiven
            found = density.evaluate(theta, items, surrogate, total)
            calls, forgiven = calls + found.calls, forgiven + found.forgiven
            return found[:2]

        log_prior, log_likelihood = self.by_row(evaluated, code, theta)
        return Evaluation(log_prior, log_likelihood, calls, forgiven)

    @abstractmethod
    def shared_slots(self, old: Tensor, new: Tensor) -> Tensor:
        """Slots with the same entry of the same parameter in both models, (C, D), bool."""

    @abstractmethod
    def examples(self, n: int, device: torch.device) -> Iterator[tuple[Density, Tensor]]:
        """The densities, and ``n`` models (n, L) at which each is tried when it is new."""

    def tried(self, points: Tensor, rows: Sequence[float]) -> Densities:
        """The same, where a finite point of every density and its batches are known.

        Arguments:
            points: Shape (len(each), D).
            rows: Of a batch on a CPU at most.
        """
        return self.holding([density.cut(n) for density, n in zip(self.each, rows, strict=True)])

    def holding(self, each: list[Density]) -> Densities:
        """The same with other densities."""
        new = copy.copy(self)
        new.each = each
        return new

    def over(self, space: Space) -> Densities:
        """The same of a bound space with the same items and slots."""
        new = copy.copy(self)
        new.space = space
        return new

    def given(self, data: Any) -> Densities:
        """The same over other data, where every likelihood is :class:`Observed`."""
        new = self.holding([density.given(data) for density in self.each])
        new.models = [
            replace(m, log_likelihood=d.likelihood.function, surrogate=None, fused=None)
            for m, d in zip(self.models, new.each, strict=False)
        ]
        return new

    def to(self, dtype: torch.dtype, device: torch.device) -> Densities:
        """A copy in another precision or on another device."""
        new = self.holding([density.to(dtype, device) for density in self.each])
        new.space = copy.deepcopy(self.space).to(device, dtype)
        return new


class Shared(Densities):
    """One density for all models of a space: what a model leaves out counts as zero."""

    def __init__(
        self,
        space: Space,
        priors: Mapping[str, PriorSpec] | None,
        log_likelihood: LogLikelihood | None,
        surrogate: LogLikelihood | None,
        vectorized: bool,
    ) -> None:
        if priors is None or log_likelihood is None:
            raise TargetError("priors, log_likelihood: both are needed with a space")
        check_priors(priors, "priors")
        if missing := [name for name in space.of if name not in priors]:
            raise TargetError(f"priors: {missing}, named by the space's `of`, have no prior")
        self.models = []
        owner = f"the {type(space).__name__} target"
        density = Density(owner, priors, log_likelihood, vectorized, surrogate, space)
        self.each = [density]
        self.dim = density.width
        slot_item = torch.full((self.dim,), space.n_items)
        for block in density.blocks:
            if block.items is not None:
                items = torch.arange(block.items.start, block.items.stop)
                each = block.prior.size // max(len(items), 1)
                slot_item[block.slots] = items.repeat_interleave(each)
        self.slot_names = _slot_names({b.prior.name: b.prior.size for b in density.blocks})
        self.space = space.bind(slot_item)

    def of(self, code: Tensor) -> Density:
        return self.each[0]

    def items(self, code: Tensor) -> Tensor | None:
        return self.space.items(code)

    def rows(self, code: Tensor) -> Iterator[tuple[Density, Tensor | slice]]:
        yield self.each[0], slice(None)

    def by_row(self, function: RowFunction, code: Tensor, *columns: Tensor) -> tuple[Tensor, ...]:
        return function(self.each[0], *columns, self.space.items(code))

    def shared_slots(self, old: Tensor, new: Tensor) -> Tensor:
        return self.space.active(old) & self.space.active(new)

    def examples(self, n: int, device: torch.device) -> Iterator[tuple[Density, Tensor]]:
        yield self.each[0], self.space.examples(n, torch.Generator(device).manual_seed(0))


class ByModel(Densities):
    """A density for each model of a list; parameters of one name share coordinates."""

    def __init__(
        self,
        models: Sequence[Model],
        model_prior: Sequence[float] | Tensor | Distribution | LogWeights | None,
    ) -> None:
        if isinstance(models, Model):
            raise TargetError("models: expected a list of models, got one; write Target([model])")
        models = list(models)
        for model in models:
            if not isinstance(model, Model):
                raise TargetError(
                    f"models: expected trj.Model objects, got {model!r}; trj.from_pymc(name, "
                    "model) and its like make them of models in other languages"
                )
        names = [model.name for model in models]
        check_names(names, "models")
        log_prior = normalised_log_prior(model_prior, len(models), "model_prior")
        self.models, each = told_apart(models)
        width = _widths(each)
        starts, self.dim = {}, 0
        for name, size in width.items():
            starts[name], self.dim = self.dim, self.dim + size
        self.each = [density.placed(starts) for density in each]
        self.padded = padded(self.each)
        self._entry_sizes = torch.zeros(len(models), self.dim, dtype=torch.long)
        slots = torch.zeros(len(models), self.dim, dtype=torch.bool)
        for m, density in enumerate(self.each):
            for block in density.blocks:
                slots[m, block.slots] = True
                self._entry_sizes[m, block.slots] = block.entry_size
        self._anchors = torch.zeros(len(models), self.dim)
        self.slot_names = _slot_names(width)
        self.space = ModelList(names, slots, log_prior)

    def of(self, code: Tensor) -> Density:
        return self.each[int(code[0])]

    def items(self, code: Tensor) -> Tensor | None:
        return None

    def rows(self, code: Tensor) -> Iterator[tuple[Density, Tensor | slice]]:
        for m, density in enumerate(self.each):
            yield density, (code[:, 0] == m).nonzero()[:, 0]

    def by_row(self, function: RowFunction, code: Tensor, *columns: Tensor) -> tuple[Tensor, ...]:
        x, anchors = columns[0], self._anchors
        if len(columns) > 1:
            x = torch.cat([x, *(column.to(x.dtype) for column in columns[1:])], -1)
            anchors = torch.cat([anchors, *(torch.ones_like(anchors) for _ in columns[1:])], -1)

        def called(density: Density, packed: Tensor) -> tuple[Tensor, ...]:
            if len(columns) == 1:
                return function(density, packed, None)
            each = packed.reshape(len(packed), len(columns), self.dim).unbind(1)
            return function(density, *each, None)

        return apply_by_group(code[:, 0], [partial(called, d) for d in self.each], x, anchors)

    def evaluate(
        self, code: Tensor, theta: Tensor, surrogate: bool, total: Tensor | None = None
    ) -> Evaluation:
        if self.padded is not None:
            return self.padded.evaluate(theta, self.space.active(code), surrogate, total)
        return super().evaluate(code, theta, surrogate, total)

    def holding(self, each: list[Density]) -> Densities:
        new = super().holding(each)
        new.padded = padded(each)
        return new

    def shared_slots(self, old: Tensor, new: Tensor) -> Tensor:
        both = self.space.active(old) & self.space.active(new)
        return both & (self._entry_sizes[old[:, 0]] == self._entry_sizes[new[:, 0]])

    def examples(self, n: int, device: torch.device) -> Iterator[tuple[Density, Tensor]]:
        for m, density in enumerate(self.each):
            yield density, torch.full((n, 1), m, device=device)

    def tried(self, points: Tensor, rows: Sequence[float]) -> Densities:
        new = super().tried(points, rows)
        assert isinstance(new, ByModel)
        new._anchors = points
        return new

    def to(self, dtype: torch.dtype, device: torch.device) -> Densities:
        new = super().to(dtype, device)
        assert isinstance(new, ByModel)
        new._anchors = self._anchors.to(device, dtype)
        new._entry_sizes = self._entry_sizes.to(device)
        return new


def _widths(each: Sequence[Density]) -> dict[str, int]:
    """Slots that each parameter takes at most, by name; refuses one of different ranks."""
    width: dict[str, int] = {}
    ranks: dict[str, int] = {}
    for density in each:
        for block in density.blocks:
            name, rank = block.prior.name, len(block.prior.shape)
            if ranks.setdefault(name, rank) != rank:
                raise TargetError(
                    f"prior of {name!r} in {density.owner}: has {rank} dimensions here and "
                    f"{ranks[name]} in another model; give it as many (torch.Size([1]) for a "
                    "vector of one), or another name"
                )
            width[name] = max(width.get(name, 0), block.prior.size)
    return width


def _slot_names(width: Mapping[str, int]) -> list[str]:
    return [f"{name}[{i}]" if n > 1 else name for name, n in width.items() for i in range(n)]
