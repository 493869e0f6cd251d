"""Named values of parameters from padded coordinates, and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..errors import NonFiniteError, ShapeError
from ..space.base import Space
from ..space.codes import distinct
from .densities import Densities
from .density import undefined_values
from .likelihood import Array, Quantity
from .support import unchecked


class NamedParameters:
    """What tells parameters of all models by name and in the user's units: a part of targets."""

    _densities: Densities
    space: Space
    dtype: torch.dtype
    device: torch.device

    def _items(self, code: Tensor, n: int) -> Tensor | None:
        """Items in use at ``n`` points of one model, (n, n_items)."""
        items = self._densities.items(code[None])
        return None if items is None else items.expand(n, -1)

    def values(self, code: Tensor, theta: Tensor) -> dict[str, dict[str, Tensor]]:
        """Constrained parameters by model label.

        Arguments:
            code: Models, shape (C, L).
            theta: Padded coordinates, shape (C, D).

        Returns:
            For each model that occurs, its parameters in the user's names, each with leading
            size the number of rows of that model, in their order. Per-item parameters hold
            the items in use only.
        """
        result: dict[str, dict[str, Tensor]] = {}
        models, which, _ = distinct(code)
        for m, label in enumerate(self.space.label(models)):
            result[label] = self.constrain(models[m], theta[which == m])
        return result

    def constrain(self, code: Tensor, theta: Tensor) -> dict[str, Tensor]:
        """Constrained parameters of points of one model.

        Arguments:
            code: One model, shape (L,).
            theta: Padded coordinates, shape (n, D).

        Returns:
            By name, shape (n, *shape); per-item parameters hold the items in use only.
        """
        density, items = self._densities.of(code), self._items(code, len(theta))
        with unchecked():
            values = density.constrain(theta, items)
        if items is not None:
            used = self.space.items(code[None])[0]
            for block in density.blocks:
                if block.items is not None:
                    values[block.prior.name] = values[block.prior.name][:, used[block.items]]
        return values

    def padded_values(self, code: Tensor, theta: Tensor) -> dict[str, Tensor]:
        """Constrained parameters of points of any models, padded to the largest with NaN.

        Arguments:
            code: Models, shape (N, L).
            theta: Padded coordinates, shape (N, D).

        Returns:
            By name, shape (N, *largest shape).
        """
        result: dict[str, Tensor] = {}
        for density, rows in self._densities.rows(code):
            some, items = theta[rows], self._densities.items(code[rows])
            with unchecked():
                values = density.constrain(some, items) if len(some) else {}
            for block in density.blocks:
                name, shape = block.prior.name, block.prior.shape
                old = result.get(name)
                if old is None:
                    old = theta.new_full((len(code), *shape), math.nan)
                elif grow := [max(a, b) - a for a, b in zip(old.shape[1:], shape, strict=True)]:
                    pad = [n for extra in reversed(grow) for n in (0, extra)]
                    old = torch.nn.functional.pad(old, pad, value=math.nan)
                result[name] = old
                if not len(some):
                    continue
                value = values[name]
                if items is not None and block.items is not None:
                    on = items[:, block.items].reshape(value.shape[:2] + (1,) * (value.dim() - 2))
                    value = torch.where(on, value, math.nan)
                where: tuple[Any, ...] = (rows, *(slice(n) for n in shape))
                result[name][where] = value
        return result

    def unconstrain(self, model: Any, params: Mapping[str, Any]) -> Tensor:
        """Padded coordinates of constrained values of one model.

        Arguments:
            model: Label of the model.
            params: By name, arrays of shape (n, *shape); per-item parameters hold the items
                in use only, as :meth:`constrain` returns them.

        Returns:
            Shape (n, D).

        Raises:
            ShapeError: Other names, other shapes, or different numbers of draws.
        """
        code = self.space.code_of(model)
        density = self._densities.of(code)
        names = [block.prior.name for block in density.blocks]
        if not isinstance(params, Mapping) or set(names) != set(params):
            got = list(params) if isinstance(params, Mapping) else type(params).__name__
            raise ShapeError(
                f"params of model {model!r}: expected a dict with the parameters {names}, got {got}"
            )
        values = {
            name: torch.as_tensor(params[name], dtype=self.dtype, device=self.device)
            for name in names
        }
        if len({len(v) if v.dim() else 0 for v in values.values()}) > 1:
            shapes = {name: tuple(v.shape) for name, v in values.items()}
            raise ShapeError(
                f"params of model {model!r}: expected as many draws of each, got {shapes}"
            )
        for block in density.blocks:
            name, value = block.prior.name, values[block.prior.name]
            expected = block.prior.shape[block.items is not None :]
            if value.shape[1 + (block.items is not None) :] != expected:
                raise ShapeError(
                    f"{name!r} of model {model!r}: expected draws of shape "
                    f"{('n', *block.prior.shape)}, got {tuple(value.shape)}; chains and draws "
                    "belong into one leading dimension"
                )
        code = code.to(self.device)
        n = len(next(iter(values.values()))) if values else 1
        items = self._items(code, n)
        if items is not None:
            for block in density.blocks:
                if block.items is not None:
                    given = values[block.prior.name]
                    full = block.prior.constrain(
                        given.new_zeros(len(given), block.prior.size), values
                    ).clone()
                    full[:, items[0, block.items]] = given
                    values[block.prior.name] = full
        theta = density.unconstrain(values, items, self._densities.dim)
        return torch.where(self.space.active(code[None]), theta, 0.0)

    def apply(self, function: Any, code: Tensor, theta: Tensor) -> Array:
        """A function called as the likelihood is, at points of one model.

        Arguments:
            function: Of named parameters, and in a space of items of what is active; gives one
                value a point, or a number for all of them.
            code: One model, shape (L,).
            theta: Padded coordinates, shape (n, D).

        Returns:
            Shape (n, ...).

        Raises:
            ConfigurationError: The function failed, or returned values of another shape.
        """
        density, items = self._densities.of(code), self._items(code, len(theta))
        quantity = Quantity(function, f"model {self.space.label(code[None])[0]!r}", "predict: f")
        if items is None:
            return quantity(self.constrain(code, theta), len(theta))
        with unchecked():
            shown = density.shown(theta, items)
        return quantity(shown, len(theta), self.space.by_kind(items))

    def layout(self, code: Tensor) -> dict[str, tuple[slice, str, int]]:
        """Where the parameters of a model lie, shape (L,) -> by name slots, kind and length.

        The kind is ``"entries"`` (a vector of numbers with densities of their own),
        ``"simplex"`` (a vector on the simplex) or ``"other"``; the length is that of the vector.
        """
        return {
            b.prior.name: (b.slots, b.prior.kind, b.prior.shape.numel())
            for b in self._densities.of(code).blocks
        }

    def bounded(self, code: Tensor) -> set[str]:
        """Parameters of a model, shape (L,), that have a largest or a smallest value."""
        return {b.prior.name for b in self._densities.of(code).blocks if b.prior.bounded}

    def positive_slots(self, code: Tensor) -> Tensor:
        """Slots of parameters on the half-line above zero, of one model, shape (D,), bool."""
        active = self.space.active(code.to(self.device)[None])[0]
        positive = torch.zeros_like(active)
        for block in self._densities.of(code).blocks:
            positive[block.slots] = block.prior.positive
        return positive & active

    @property
    def periodic_slots(self) -> Tensor:
        """Slots of parameters on a circle (:class:`trjmcmc.priors.Periodic`), (D,), bool."""
        here = self.space.slot_item.new_zeros(self._densities.dim, dtype=torch.bool)
        elsewhere = here.clone()
        for density in self._densities.each:
            for block in density.blocks:
                (here if block.prior.periodic else elsewhere)[block.slots] = True
        return here & ~elsewhere

    @property
    def turns(self) -> dict[str, tuple[float, float]]:
        """Where the circles of periodic parameters begin and end, by name, in their units."""
        blocks = [block for density in self._densities.each for block in density.blocks]
        flat = {block.prior.name for block in blocks if block.prior.turn is None}
        return {b.prior.name: t for b in blocks if (t := b.prior.turn) and b.prior.name not in flat}

    # ---- points in words --------------------------------------------------------------------

    def describe(self, code: Tensor, theta: Tensor) -> str:
        """One point in words: model label and constrained values."""
        label = self.space.label(code[None])[0]
        values = self.constrain(code, theta[None])
        shown = ", ".join(f"{n}={_short(v[0])}" for n, v in values.items())
        return f"model {label!r}" + (f" with {shown}" if shown else "")

    def check_finite(self, code: Tensor, theta: Tensor, log_joint: Tensor) -> None:
        """Raise if any log joint is NaN or +inf, naming a model and its parameter values."""
        bad = undefined_values(log_joint)
        if bool(bad.any()):
            first = int(bad.nonzero()[0, 0])
            raise self.non_finite(code[first], theta[first], int(bad.sum()))

    def non_finite(self, code: Tensor, theta: Tensor, count: int) -> NonFiniteError:
        """The error that describes a point with a NaN or infinite density."""
        where = self.describe(code, theta)
        density, items = self._densities.of(code), self._densities.items(code[None])
        if known := density.undefined_prior(theta[None], items):
            return NonFiniteError(
                f"{known}; this happened in {where}. Return -inf from log_prob where values are "
                "impossible, or state the support.",
                count=count,
                where=where,
            )
        return NonFiniteError(
            f"log density is NaN or +inf at {count} point(s), one of them {where}. "
            f"Return -inf from {density.likelihood.what} where "
            f"{'a point is' if density.on_reference else 'the data are'} impossible, and mend "
            "the rest.",
            count=count,
            where=where,
        )


def _short(value: Tensor) -> str:
    flat = [f"{v:.6g}" for v in value.flatten().tolist()]
    return flat[0] if len(flat) == 1 else "[" + ", ".join(flat) + "]"
