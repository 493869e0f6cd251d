"""Targets over other data than those that they were stated with."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

from .densities import Densities
from .observed import Observed

T = TypeVar("T", bound="Remade")


class Remade:
    """What can put other data in the place of its own, where it knows their distribution."""

    _densities: Densities
    truth: Any

    def given(self: T, data: Any) -> T:
        """The same models over other data; only where every likelihood is ``trj.Observed``.

        Arguments:
            data: Of the shape that each likelihood was stated with.

        Raises:
            TargetError: Some likelihood is a function that holds its data itself.

        Example:
            >>> import trjmcmc as trj
            >>> from torch.distributions import Normal
            >>> seen = trj.Observed(lambda p: Normal(p["mu"][:, None], 1.0), [0.1, 1.2])
            >>> target = trj.Target([trj.Model("a", {"mu": Normal(0.0, 1.0)}, seen)])
            >>> float(target.given([2.0, 3.0]).models[0].log_likelihood.data.sum())
            5.0
        """
        new = copy.copy(self)
        new.truth = None
        new._hold(self._densities.given(data))
        return new

    def _hold(self, densities: Densities) -> None:
        """Take up what a target is made of."""
        raise NotImplementedError

    @property
    def densities(self) -> Densities:
        """Priors and likelihood of each model."""
        return self._densities

    @property
    def is_observed(self) -> bool:
        """Whether every likelihood is a distribution over given data."""
        return all(isinstance(d.likelihood.function, Observed) for d in self._densities.each)
