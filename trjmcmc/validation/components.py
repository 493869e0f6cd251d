"""Whether components that are counted may trade places, and whether each that is on counts."""

from __future__ import annotations

import torch
from torch import Tensor

from ..doubts.doubt import Doubt
from ..rng import seeded
from ..space.base import Kind
from ..target.likelihood import Active
from ..target.support import unchecked
from .asked import Skipped
from .places import Points

SAME = {torch.float64: 1e-6, torch.float32: 1e-3}  # relative, of log likelihoods

REDRAWN = 4  # times that an item's entries are replaced to see whether they count

MOST_ITEMS = 50  # that are looked at, the first ones

FEWEST = 8  # points with an item on from which its silence means something


def check_exchange(place: Points) -> list[Doubt] | None:
    """Let components of a kind trade places: the likelihood must not change.

    Components that their prior orders are left out.
    """
    items, space = place.items, place.space
    if items is None or not space.counts:
        return None
    found, ordered = [], []
    for kind in space.kinds:
        k = items[:, kind.items].sum(1)
        if not bool((k > 1).any()):
            continue
        order = torch.arange(kind.max).expand(len(k), -1)
        order = torch.where(order < k[:, None], k[:, None] - 1 - order, order)
        slots = space.slots_of(kind)
        turned = place.theta.clone()
        for slot in slots.T:
            turned[:, slot] = place.theta[:, slot].gather(1, order)
        with torch.no_grad(), unchecked():
            old = place.density.evaluate(place.theta, items, False)
            new = place.density.evaluate(turned, items, False)
        close = SAME[place.theta.dtype]
        if _gap(old.log_prior, new.log_prior, close)[0]:
            ordered.append(repr(kind.name))
            continue
        before, after = old.log_likelihood, new.log_likelihood
        differ, row = _gap(before, after, close)
        if differ:
            words = (
                f"components of {kind.name!r} are not exchangeable: with {int(k[row])} of them the "
                f"log likelihood is {float(before[row]):.8g}, and {float(after[row]):.8g} where "
                "they stand in reversed order"
            )
            remedy = "Use sums and products over components, or order them by trj.Ordered"
            found.append(Doubt(kind.name, words, remedy=remedy))
    if len(ordered) == len(space.kinds):
        raise Skipped(f"components of {', '.join(ordered)}: their prior tells them apart")
    return found


def _gap(before: Tensor, after: Tensor, close: float) -> tuple[bool, int]:
    """Whether some number changes by more than rounding, and which changes most."""
    gap = torch.where(before == after, 0.0, (before - after).abs()) / (1 + before.abs())
    gap = gap.nan_to_num(0.0, 0.0)
    return bool((gap > close).any()), int(gap.argmax())


def check_masks(place: Points, seed: int) -> list[Doubt] | None:
    """Replace the entries of one item that is on: the likelihood must notice.

    An item that is on and never noticed, while others of its kind are, is masked by another's
    bit, or the mask ends one too early. Of one that is off entries are zero, which the
    likelihood may rely on.
    """
    density, items, space = place.density, place.items, place.space
    if items is None or not bool(items.any()):
        return None
    shown, active = _shown(place), density.by_kind(items)
    before = _value(place, shown, active)
    per_item = [b for b in density.blocks if b.items is not None]
    if not per_item or not bool(before.isfinite().any()):
        return None
    noticed, looked = torch.zeros_like(items), torch.arange(items.shape[1]) < MOST_ITEMS
    for turn in range(REDRAWN):
        with seeded(seed + turn, place.theta.device), torch.no_grad(), unchecked():
            fresh = density.sample(len(items), items)
        for i in range(min(items.shape[1], MOST_ITEMS)):
            changed = dict(shown)
            for block in per_item:
                own = block.items
                assert own is not None
                if own.start <= i < own.stop:
                    value = shown[block.prior.name].clone()
                    value[:, i - own.start] = fresh[block.prior.name][:, i - own.start].to(value)
                    changed[block.prior.name] = value
            after = _value(place, changed, active)
            noticed[:, i] |= (after != before) & items[:, i]
    found = []
    for kind in space.kinds:
        on, seen = (items & looked)[:, kind.items], noticed[:, kind.items]
        if space.counts and _last_is_silent(on, seen):
            words = (
                f"the last component of {kind.name!r} that is on never changes the likelihood, "
                "the ones before it do: the mask is off by one"
            )
            remedy = "Use `active` as it comes, or arange(max) < k"
            found.append(Doubt(kind.name, words, remedy=remedy))
        else:
            found += _masked_item(place, kind, on, seen)
    return found


def _last_is_silent(on: Tensor, seen: Tensor) -> bool:
    """Whether of components that are on the last one is never noticed, and others are."""
    k = on.sum(1)
    last = (k - 1).clamp(min=0)[:, None]
    some = k > 1
    silent = some & ~seen.gather(1, last)[:, 0]
    if int(some.sum()) < FEWEST or not bool((silent == some).all()):
        return False
    return bool((seen & (torch.arange(on.shape[1]) < last))[some].any())


def _masked_item(place: Points, kind: Kind, on: Tensor, seen: Tensor) -> list[Doubt]:
    """Items that are on and never noticed, and items that are noticed in some models only."""
    space = place.space

    def name(i: int) -> str:
        at = kind.first + i
        return space.names[at] if len(space.names) > at else f"{kind.name} {i}"

    share = torch.where(on, seen.double(), 0.0).sum(0) / on.sum(0).clamp(min=1)
    enough = on.sum(0) >= FEWEST
    if bool((enough & (share == 0)).any()) and bool((enough & (share > 0)).any()):
        i = int((enough & (share == 0)).int().argmax())
        words = (
            f"{name(i)!r} of {kind.name!r} never changes the likelihood where it is on, others "
            "do: the mask is off by one, or its column is missing"
        )
        return [Doubt(kind.name, words)]
    half = enough & (share > 0) & (share < 0.9)
    if space.counts or not bool(half.any()):
        return []
    i = int(half.int().argmax())
    other = _governor(on, seen, i)
    by = "" if other is None else f": it counts only where {name(other)!r} is on"
    words = (
        f"{name(i)!r} of {kind.name!r} changes the likelihood in {float(share[i]):.0%} of the "
        f"models that have it{by}. The mask is off by one, or shifted"
    )
    return [Doubt(kind.name, words, grave=other is not None)]


def _governor(on: Tensor, seen: Tensor, i: int) -> int | None:
    """Another item that is on exactly where this one is noticed."""
    rows = on[:, i]
    for j in range(on.shape[1]):
        if j != i and bool((on[rows, j] == seen[rows, i]).all()):
            return j
    return None


def _shown(place: Points) -> dict[str, Tensor]:
    with torch.no_grad(), unchecked():
        return place.density.shown(place.theta, place.items)


def _value(place: Points, shown: dict[str, Tensor], active: Active | None) -> Tensor:
    with torch.no_grad(), unchecked():
        return place.density.likelihood(shown, len(place.theta), active)
