"""Data sets at given models and parameters, from the likelihood itself or from the user."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import ConfigurationError, TRJError
from ..rng import host_number, seeded
from ..target.density import Density
from ..target.observed import Observed
from ..target.support import unchecked
from ..target.target import Target

Simulate = Callable[..., Any]


class Simulator:
    """Draws data at given models and parameters.

    Arguments:
        target: The models.
        simulate: Function of (model, params, generator) that returns as many data sets as
            ``params`` hold points: an array of shape (n, *data), a dict of such arrays, or a list
            of n of anything. ``model`` is the name of the model; in a space of items it is
            ``active``, as the likelihood has it. ``params`` are as the likelihood has them; of a
            model without any, one data set a call. Torch's global generator is seeded meanwhile;
            for NumPy seed one by ``torch.randint(2**31, (), generator=generator)``. If omitted,
            likelihoods that are ``trj.Observed`` draw themselves.

    Raises:
        ConfigurationError: Neither is there.
    """

    def __init__(self, target: Target, simulate: Simulate | None = None) -> None:
        if simulate is None and not target.is_observed:
            raise ConfigurationError(
                "simulate: the likelihood is a function, which cannot draw data: give "
                "simulate(model, params, generator) -> data, or state the likelihood as "
                "trj.Observed(distribution, data)"
            )
        if simulate is not None and not callable(simulate):
            raise ConfigurationError(f"simulate: expected a function, got {simulate!r}")
        self.target, self.simulate = target, simulate

    def draw(self, code: Tensor, theta: Tensor, generator: torch.Generator) -> list[Any]:
        """A data set for each point.

        Arguments:
            code: Models, shape (C, L).
            theta: Padded coordinates, shape (C, D).
            generator: Source of randomness.

        Returns:
            C data sets.

        Raises:
            ConfigurationError: The user's function fails, or returns another number of them.
        """
        found: list[Any] = [None] * len(code)
        densities, numbers = self.target.densities, torch.arange(len(code))
        with seeded(host_number(generator), self.target.device), torch.no_grad(), unchecked():
            for place, (density, rows) in enumerate(densities.rows(code)):
                which = numbers[rows]
                if not len(which):
                    continue
                items = densities.items(code[rows])
                own = dict(density.shown(theta[rows], items))
                active = density.by_kind(items)
                model = densities.models[place].name if active is None else active
                batched = bool(own) or active is not None
                # without parameters nothing tells how many data sets are wanted
                calls, each = (1, len(which)) if batched else (len(which), 1)
                parts: list[Any] = []
                for _ in range(calls):
                    batch = self._batch(density, model, own, active, generator)
                    parts += self._split(batch, each, density)
                for i, data in zip(which.tolist(), parts, strict=True):
                    found[i] = data
        return found

    def _batch(
        self, density: Density, model: Any, params: dict[str, Tensor], active: Any, generator: Any
    ) -> Any:
        if self.simulate is None:
            known = density.likelihood.function
            assert isinstance(known, Observed)
            return known.sample(params) if active is None else known.sample(params, active)
        try:
            return self.simulate(model, params, generator)
        except TRJError:
            raise
        except Exception as error:
            shapes = ", ".join(f"{k}: {tuple(v.shape)}" for k, v in params.items())
            raise ConfigurationError(
                f"simulate of {density.owner} failed at {shapes or 'no parameters'}, "
                f"{type(error).__name__}: {error}; it is called with (model, params, generator), "
                "and params hold a batch of points"
            ) from error

    def _split(self, batch: Any, n: int, density: Density) -> list[Any]:
        if isinstance(batch, Mapping):
            parts = {k: self._split(v, n, density) for k, v in batch.items()}
            return [{k: v[i] for k, v in parts.items()} for i in range(n)]
        got = type(batch).__name__
        if isinstance(batch, list | tuple) or (
            isinstance(batch, Tensor | np.ndarray) and batch.ndim
        ):
            if len(batch) == n:
                return [batch[i] for i in range(n)]
            got = f"{len(batch)}"
        raise ConfigurationError(
            f"simulate of {density.owner}: expected {n} data sets for {n} points, an array of "
            f"shape ({n}, *data), a dict of them or a list, got {got}"
        )


def stacked(data: Sequence[Any]) -> Any:
    """Data sets as one array (n, *data) or a dict of arrays where they are of one shape."""
    first = data[0]
    if isinstance(first, Mapping):
        return {k: stacked([d[k] for d in data]) for k in first}
    if isinstance(first, list | tuple | str) or first is None:
        return list(data)
    shapes = {np.shape(d) for d in data}
    if len(shapes) > 1:
        return list(data)
    return np.stack([np.asarray(torch.as_tensor(d).cpu()) for d in data])
