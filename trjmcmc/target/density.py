"""Priors and likelihood of one model, or of all models of a large space, on padded coordinates."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..errors import TargetError
from ..grouping import on_host, surely
from ..space.base import Space
from .additive import Additive
from .blackbox import each_kind
from .equations import Equations
from .likelihood import Active, Fused, Likelihood, LogLikelihood, LogPriorAndLikelihood
from .observed import Observed
from .prior import Prior, PriorSpec
from .scores import LocalScores
from .support import log_density_of, unchecked, within_support

PROBES = 5  # prior draws at which priors and likelihoods are tried at construction

FAR = 30.0  # log prior below that of typical draws, nats, where overflow is not an error

FAR_IN_REFERENCE = 10.0  # the same of any one entry of a reference, whose tails reach far: at
# twenty scales of the default one, where exp(x) has left single precision


@dataclass(frozen=True)
class Block:
    """One parameter of one model (or of all, in a large space) and its slots."""

    prior: Prior
    start: int
    typical: Tensor  # log density of a typical prior draw, by batch entry; -inf if unknown
    items: slice | None = None  # those that have an entry each

    @property
    def slots(self) -> slice:
        return slice(self.start, self.start + self.prior.size)

    @property
    def entry_size(self) -> int:
        """Slots of one entry: of what has a density of its own."""
        return max(1, self.prior.size // max(1, math.prod(self.prior.batch_shape)))


class Evaluation(NamedTuple):
    """What a density is at C points.

    Attributes:
        log_prior: Of the parameters, with the Jacobian, shape (C,), nats.
        log_likelihood: Shape (C,), nats; without meaning where the log prior is -inf.
        calls: Evaluations of the likelihood that this took; none of its smooth surrogate.
        forgiven: At how many points numbers overflowed, which count as impossible.
    """

    log_prior: Tensor
    log_likelihood: Tensor
    calls: int
    forgiven: Tensor | int = 0


class Density:
    """Blocks and likelihood of one model, or of all models of a large space.

    Where it is ``on_reference``, priors are a reference and the function is the joint's: what
    counts as the likelihood is the joint over the reference.
    """

    _reach: Tensor | None = None  # of each slot's prior, infinite where nobody knows it

    def __init__(
        self,
        owner: str,
        priors: Mapping[str, PriorSpec],
        log_likelihood: LogLikelihood,
        vectorized: bool,
        surrogate: LogLikelihood | None,
        space: Space | None = None,
        fused: LogPriorAndLikelihood | None = None,
        on_reference: bool = False,
        padded: bool = False,
    ) -> None:
        self.owner, self.on_reference, self.padded = owner, on_reference, padded
        if isinstance(log_likelihood, Additive):
            kinds = () if space is None else space.kinds
            log_likelihood = log_likelihood.bound({kind.name: kind.of for kind in kinds})
        self.blocks: list[Block] = []
        example: tuple[dict[str, Tensor], dict[str, Tensor]] = ({}, {})
        start = 0
        for name, spec in priors.items():
            items = None if space is None else space.items_of(name)
            number = None if items is None else items.stop - items.start
            prior = Prior(name, spec, items=number, example=example, owner=owner)
            for values, n in zip(example, (3, PROBES), strict=True):
                values[name] = prior.sample(n, values)
            self.blocks.append(Block(prior, start, prior.typical(example[1]), items))
            start += prior.size
        self.width = start
        self.space = space
        what = "log_joint" if on_reference else "log_likelihood"
        self.likelihood = Likelihood(log_likelihood, vectorized, owner, what)
        self.surrogate = (
            None if surrogate is None else Likelihood(surrogate, vectorized, owner, "surrogate")
        )
        self.fused = None if fused is None or not self.blocks else Fused(fused, owner, "fused")

    @property
    def differentiable(self) -> bool:
        return bool(getattr((self.surrogate or self.likelihood).function, "differentiable", True))

    def by_kind(self, items: Tensor | None) -> Active | None:
        """Items in use as the likelihood sees them."""
        return None if items is None or self.space is None else self.space.by_kind(items)

    # A prior sees zero for the unused items of the parameters before it; the prior of an item
    # sees the values of its own kind as they are.

    def _given(
        self, block: Block, values: dict[str, Tensor], items: Tensor | None
    ) -> dict[str, Tensor]:
        if items is None:
            return values
        masked = {b.prior.name: b.items for b in self.blocks if b.items not in (None, block.items)}
        return {k: _masked(v, items[:, masked[k]]) if k in masked else v for k, v in values.items()}

    def sample(self, n: int, items: Tensor | None) -> dict[str, Tensor]:
        """``n`` prior draws from torch's global generator, by name (n, *shape).

        Items that are not in use, (n, n_items), hold draws too.
        """
        values: dict[str, Tensor] = {}
        for block in self.blocks:
            prior = block.prior
            values[prior.name] = prior.sample(n, self._given(block, values, items))
        return values

    def constrain(self, theta: Tensor, items: Tensor | None) -> dict[str, Tensor]:
        """Values by name, (C, *shape), of coordinates (C, D) with items (C, n_items) in use."""
        values: dict[str, Tensor] = {}
        for block in self.blocks:
            prior = block.prior
            given = self._given(block, values, items)
            values[prior.name] = prior.constrain(theta[:, block.slots], given)
        return values

    def shown(self, theta: Tensor, items: Tensor | None) -> dict[str, Tensor]:
        """Values by name, (C, *shape), as the likelihood sees them: unused items are zero."""
        return self._entries(theta, items, dense=False)[1]

    def unconstrain(self, values: dict[str, Tensor], items: Tensor | None, dim: int) -> Tensor:
        """Padded coordinates (C, dim) of values (C, *shape) with items (C, n_items) in use."""
        first = next(iter(values.values())) if values else torch.zeros(1)
        theta = first.new_zeros(len(first), dim)
        for block in self.blocks:
            prior = block.prior
            given = self._given(block, values, items)
            theta[:, block.slots] = prior.unconstrain(values[prior.name], given)
        return theta

    def _sure(self, theta: Tensor) -> bool:
        """Whether no coordinate is beyond the reach of its prior, where that costs nothing."""
        if not on_host(theta):
            return False
        if self._reach is None or len(self._reach) != theta.shape[1]:
            self._reach = theta.new_full(theta.shape[1:], math.inf)
            for block in self.blocks:
                if block.prior.reach is not None:
                    self._reach[block.slots] = block.prior.reach
        return bool((theta.detach().abs() < self._reach).all())

    def _entries(
        self, theta: Tensor, items: Tensor | None, *, dense: bool = True
    ) -> tuple[dict[str, Tensor], dict[str, Tensor], list[Tensor]]:
        """Values, values with unused items zero, and by block log densities of its entries.

        Not ``dense``: without the log densities.
        """
        values: dict[str, Tensor] = {}
        shown: dict[str, Tensor] = {}
        log_densities, sure = [], self._sure(theta)
        for block in self.blocks:
            prior, given = block.prior, values
            if items is not None and not prior.fixed:
                own = [b.prior.name for b in self.blocks if b.items == block.items]
                given = {k: (values if k in own else shown)[k] for k in values}
            here, known = theta[:, block.slots], sure and prior.reach is not None
            value, *log_density = (
                prior.evaluate(here, given, known) if dense else (prior.value(here, given, known),)
            )
            values[prior.name] = shown[prior.name] = value
            if items is not None and block.items is not None:
                used = items[:, block.items]
                log_density = [_masked(x, used) for x in log_density]
                shown[prior.name] = _masked(value, used)
            log_densities += log_density
        return values, shown, log_densities

    def undefined_prior(self, theta: Tensor, items: Tensor | None) -> str:
        """Which prior is NaN at a point (1, D), and where, in words; empty if none is."""
        with unchecked(), torch.no_grad():
            values, _, log_densities = self._entries(theta, items)
        for block, log_density in zip(self.blocks, log_densities, strict=True):
            if bool(log_density.isnan().any()):
                return block.prior.undefined_at(values[block.prior.name][0])
        return ""

    def prior_by_slot(self, theta: Tensor, items: Tensor | None) -> Tensor:
        """Log prior density of each entry of each parameter, on its first slot, (C, D)."""
        result = torch.zeros_like(theta)
        for block, log_density in zip(self.blocks, self._entries(theta, items)[2], strict=True):
            flat = log_density.reshape(len(theta), -1)
            if flat.shape[1]:
                result[:, block.slots.start : block.slots.stop : block.entry_size] = flat
        return result

    def log_prior_change(
        self, theta: Tensor, items: Tensor | None, priors: Mapping[str, PriorSpec]
    ) -> Tensor:
        """Log of other priors over the present ones of some parameters, shape (C,), nats."""
        change = theta.new_zeros(len(theta))
        values = self.constrain(theta, items)
        for block in self.blocks:
            prior = block.prior
            if prior.name not in priors:
                continue
            if self.on_reference:
                raise TargetError(
                    f"priors: {prior.name!r} has no prior of its own in {self.owner}, which is a "
                    "joint density on a reference; write the other prior into its log_joint and "
                    "run again, or state prior and likelihood apart (trj.Model)"
                )
            given = self._given(block, values, items)
            old = prior.distribution(given, len(theta))
            new = Prior.called(priors[prior.name], given)
            value = values[prior.name]
            if not bool(within_support(new, old)):
                raise TargetError(
                    f"priors: the new one of {prior.name!r} reaches beyond the support of the old "
                    "one, where there are no draws; run again with it"
                )
            gap = log_density_of(new, value) - log_density_of(old, value)
            gap = gap.expand(len(theta), *prior.batch_shape)
            if items is not None and block.items is not None:
                gap = torch.where(items[:, block.items], gap, 0.0)
            change = change + gap.reshape(len(theta), -1).sum(-1)
        return change

    def sample_missing(self, theta: Tensor, keep: Tensor, items: Tensor | None) -> Tensor:
        """Draw entries afresh from their priors, given those that are kept; global generator.

        Arguments:
            theta: Shape (C, D).
            keep: Slots to keep, whole entries of them, shape (C, D), bool.
        """
        theta = theta.clone()
        values: dict[str, Tensor] = {}
        for block in self.blocks:
            prior, slots = block.prior, block.slots
            given = self._given(block, values, items)
            fresh = prior.unconstrain(prior.sample(len(theta), given), given).to(theta)
            theta[:, slots] = torch.where(keep[:, slots], theta[:, slots], fresh)
            values[prior.name] = prior.constrain(theta[:, slots], given)
        return theta

    @property
    def additive(self) -> Additive | None:
        """The likelihood, if it is a function of what components add up to."""
        function = self.likelihood.function
        return function if isinstance(function, Additive) else None

    @property
    def scores(self) -> LocalScores | None:
        """The likelihood, if it is a sum of local scores of a graph."""
        function = self.likelihood.function
        return function if isinstance(function, LocalScores) else None

    @property
    def equations(self) -> Equations | None:
        """The likelihood, if it is a sum over the nodes of a graph."""
        function = self.likelihood.function
        return function if isinstance(function, Equations) else None

    def evaluate(
        self, theta: Tensor, items: Tensor | None, surrogate: bool, total: Tensor | None = None
    ) -> Evaluation:
        """The density at C points.

        Arguments:
            theta: Padded coordinates, shape (C, D).
            items: Items in use, shape (C, n_items), where models share the density.
            surrogate: Take the smooth surrogate of the likelihood, if there is one.
            total: What the components in use add up to, where that is known.
        """
        if self.fused is not None and not (surrogate and self.surrogate):
            return self._at_once(theta, self.fused)
        return self._evaluate(theta, items, surrogate, total)

    def _at_once(self, theta: Tensor, fused: Fused) -> Evaluation:
        """Prior and likelihood by one call; rows where it overflows, one by one of both."""
        values: dict[str, Tensor] = {}
        log_slope = theta.new_zeros(len(theta))
        for block in self.blocks:
            value, slope = block.prior.placed(theta[:, block.slots], values)
            values[block.prior.name], log_slope = value, log_slope + slope
        log_prior, log_likelihood = (x.to(theta) for x in fused(values, len(theta)))
        log_prior = torch.where(log_slope > -math.inf, log_prior + log_slope, -math.inf)
        log_likelihood = torch.where(log_prior > -math.inf, log_likelihood, 0.0)
        undefined = undefined_values(log_prior + log_likelihood)
        if surely(~undefined) or not len(rows := undefined.nonzero()[:, 0]):
            return Evaluation(log_prior, log_likelihood, len(theta))
        with torch.no_grad():  # impossible, or an error: without slopes
            slowly = self._evaluate(theta[rows], None, False)
        return Evaluation(
            log_prior.index_put((rows,), slowly.log_prior),
            log_likelihood.index_put((rows,), slowly.log_likelihood),
            len(theta) + slowly.calls,
            slowly.forgiven,
        )

    def _evaluate(
        self, theta: Tensor, items: Tensor | None, surrogate: bool, total: Tensor | None = None
    ) -> Evaluation:
        """Prior by prior, then the likelihood; arguments as of :meth:`evaluate`."""
        values, shown, log_densities = self._entries(theta, items)
        items = None if items is None else items.bool()  # from here on present is present
        n = len(theta)
        sums = [x if x.dim() == 1 else x.reshape(n, -1).sum(-1) for x in log_densities]
        log_prior = sum(sums[1:], sums[0]) if sums else theta.new_zeros(n)
        function = self.surrogate if surrogate and self.surrogate else self.likelihood
        calls = n
        if total is not None:
            log_likelihood = function.of_total(total, shown, n).to(theta.dtype)
        elif function.foreign:
            active = self.by_kind(items)
            log_likelihood, calls = _where_possible(function, shown, active, log_prior)
        else:
            value = function(shown, n, self.by_kind(items))
            log_likelihood = value.to(theta.dtype) if shown else _constant(value, theta)
        calls *= function is self.likelihood
        if self.on_reference:
            log_likelihood = torch.where(
                log_prior.isfinite(), log_likelihood - log_prior, log_likelihood
            )
        if surely(log_prior + log_likelihood < math.inf):  # the usual case
            return Evaluation(log_prior, log_likelihood, calls)
        sound, typical = self._soundness(log_densities, items, theta)
        undefined = undefined_values(log_likelihood)
        broken = undefined_values(log_prior)  # a density's own arithmetic overflows
        extreme = _extreme(values, undefined)
        far = undefined & ((log_prior < typical - FAR) | extreme)
        if self.on_reference:
            far = far | (undefined & self._beyond(log_densities, undefined))
        lost = broken & (extreme | (sound < typical - FAR))
        log_prior = torch.where(lost, -math.inf, log_prior)
        far = far | (undefined & lost)
        log_likelihood = torch.where(far, -math.inf, log_likelihood)
        return Evaluation(log_prior, log_likelihood, calls, (far | lost).sum())

    def _beyond(self, log_densities: list[Tensor], like: Tensor) -> Tensor:
        """Points far out in the tail of the reference of some entry, (C,)."""
        found = torch.zeros_like(like)
        for block, each in zip(self.blocks, log_densities, strict=True):
            low = each < block.typical - FAR_IN_REFERENCE
            found = found | low.reshape(len(low), -1).any(-1)
        return found

    def _soundness(
        self, log_densities: list[Tensor], items: Tensor | None, theta: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The part of the log prior whose arithmetic holds, and its usual size, (C,)."""
        sound, typical = theta.new_zeros(len(theta)), theta.new_zeros(len(theta))
        for block, log_density in zip(self.blocks, log_densities, strict=True):
            usual = block.typical.expand_as(log_density)
            if items is not None and block.items is not None:
                usual = torch.where(items[:, block.items], usual, 0.0)
            each = log_density.reshape(len(theta), -1)
            sound = sound + torch.where(undefined_values(each), 0.0, each).sum(-1)
            typical = typical + usual.reshape(len(theta), -1).sum(-1)
        return sound, typical

    def to(self, dtype: torch.dtype, device: torch.device) -> Density:
        """A copy whose priors are in another precision or on another device."""
        return self._holding(
            replace(b, prior=b.prior.to(dtype, device), typical=b.typical.to(device, dtype))
            for b in self.blocks
        )

    def _holding(self, blocks: Iterable[Block]) -> Density:
        """A copy with other blocks."""
        new = copy.copy(self)
        new.blocks, new._reach = list(blocks), None
        return new

    def cut(self, rows: float) -> Density:
        """A copy whose likelihood sees batches of so many rows at most, on a CPU."""
        new = copy.copy(self)
        new.likelihood = self.likelihood.cut(rows)
        return new

    def given(self, data: Any) -> Density:
        """A copy over other data, of a likelihood that is :class:`Observed`.

        Raises:
            TargetError: It is another.
        """
        known = self.likelihood.function
        if not isinstance(known, Observed):
            raise TargetError(
                f"{self.owner}: its likelihood is a function, which holds its data itself; state "
                "it as trj.Observed(distribution, data), or give a function make(data) -> Target"
            )
        new = copy.copy(self)
        likelihood = Likelihood(known.given(data), True, self.owner, self.likelihood.what)
        new.likelihood = likelihood.cut(self.likelihood.rows)
        new.surrogate = new.fused = None
        return new

    def of_one(self, items: slice) -> Density:
        """The density of one item of a kind and of what all share, without the other items.

        Arguments:
            items: The kind's items.

        Raises:
            TargetError, ShapeError: A prior is stated for each of them.
            Exception: What a prior raises that asks for other items.
        """
        new = self._holding([])
        new.space, new.width = None, 0
        example: tuple[dict[str, Tensor], dict[str, Tensor]] = ({}, {})
        for block in self.blocks:
            if block.items not in (None, items):
                continue
            number = None if block.items is None else 1
            spec = block.prior.spec
            prior = Prior(block.prior.name, spec, items=number, example=example, owner=self.owner)
            for values, n in zip(example, (3, PROBES), strict=True):
                values[prior.name] = prior.sample(n, values)
            some = None if number is None else slice(0, 1)
            new.blocks.append(Block(prior, new.width, prior.typical(example[1]), some))
            new.width += prior.size
        return new

    def placed(self, starts: Mapping[str, int]) -> Density:
        """A copy whose parameters begin at given slots, by name."""
        return self._holding(replace(b, start=starts[b.prior.name]) for b in self.blocks)


def _where_possible(
    function: Likelihood, shown: dict[str, Tensor], active: Active | None, log_prior: Tensor
) -> tuple[Tensor, int]:
    """A likelihood called only inside the prior's support, 0 elsewhere; and the calls made."""
    rows = (log_prior > -math.inf).nonzero()[:, 0]
    if not len(rows):
        return torch.zeros_like(log_prior), 0
    some = {k: v[rows] for k, v in shown.items()}
    active = None if active is None else each_kind(active, lambda on: on[rows])
    value = function(some, len(rows), active)
    return torch.zeros_like(log_prior).index_put((rows,), value.to(log_prior)), len(rows)


def _constant(value: Tensor, like: Tensor) -> Tensor:
    """Values (C,) of a model without parameters, often one number of the host."""
    if on_host(value) and not on_host(like) and value.stride() == (0,):
        return like.new_full(value.shape, float(value[0]))  # nothing is copied to the device
    return value.to(like)


def _masked(value: Tensor, items: Tensor) -> Tensor:
    """Per-item values (C, I, ...) with unused items zero; times their presence, if that is it."""
    items = items.reshape(items.shape + (1,) * (value.dim() - 2))
    return torch.where(items, value, 0.0) if items.dtype == torch.bool else value * items


def _extreme(values: dict[str, Tensor], like: Tensor) -> Tensor:
    """Points of which some parameter is so large or small that its square is inf or 0, (C,)."""
    found = torch.zeros_like(like)
    for v in values.values():
        limits, size = torch.finfo(v.dtype), v.abs().reshape(len(v), -1)
        beyond = (size > limits.max**0.5) | ((size < limits.tiny**0.5) & (size > 0))
        found = found | beyond.any(-1)
    return found


def undefined_values(x: Tensor) -> Tensor:
    """Where it is NaN or +inf."""
    return ~(x < math.inf)
