"""The model indicator: which model each draw is in, and how fast chains forget it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..draws import Draws
from ..errors import TRJError
from ..promises import MODELS_ONE_BY_ONE
from ..space.base import Space
from ..space.codes import distinct
from .convergence import split_rhats
from .mean import autocorrelation_time, mean_error
from .visits import second_eigenvalue, transition_matrix

if TYPE_CHECKING:
    import pandas as pd

Mask = NDArray[np.bool_]

MODELS_SHOWN = 20  # models in the tables of a large space

MODELS_NUMBERED = 1000  # size of a space up to which draws show the position of their model in it


class ModelIndicator:
    """Which model each draw is in.

    Arguments:
        space: The bound space, on the CPU.
        draws: The record of the run.

    Attributes:
        number_visited: How many models were visited.
        place: Position of each draw's model among :attr:`visited`, shape (chain, draw).
    """

    def __init__(self, space: Space, draws: Draws) -> None:
        self.space, self.draws = space, draws
        codes, inverse, counts = distinct(draws.code.flatten(0, 1))
        order = torch.argsort(counts, descending=True, stable=True)
        place = torch.empty_like(order)
        place[order] = torch.arange(len(order))
        self._codes, self.number_visited = codes[order], len(codes)
        self.place: NDArray[np.int64] = place[inverse].reshape(draws.code.shape[:2]).numpy()

    @cached_property
    def visited(self) -> list[str]:
        """Labels of all models visited, the most frequent first: a string each."""
        return self.space.label(self._codes)

    @cached_property
    def most_visited(self) -> list[str]:
        """The first of :attr:`visited`, as many as tables show."""
        return self.space.label(self._codes[:MODELS_SHOWN])

    @property
    def models(self) -> list[str]:
        """Labels of the models that tables show: all of a small space, else the most frequent."""
        if self.space.size is not None and self.space.size <= MODELS_SHOWN:
            return self.space.label(self.space.enumerate())
        return self.most_visited

    def label(self, model: Any) -> str:
        """The label of a model as users may name it.

        Raises:
            UnknownModelError: There is no such model.
        """
        return self.space.label(self.space.code_of(model)[None])[0]

    def log_prior(self, labels: Sequence[str]) -> list[float]:
        """Log prior probabilities of models, nats."""
        codes = torch.stack([self.space.code_of(m) for m in labels])
        found: list[float] = self.space.log_prior(codes).tolist()
        return found

    def inside(self, label: str) -> Mask:
        """Whether each draw is in a model, shape (chain, draw)."""
        among = self.most_visited if label in self.most_visited else self.visited
        if label not in among:
            return np.zeros(self.place.shape, dtype=bool)
        found: Mask = self.place == among.index(label)
        return found

    def inside_any(self, labels: Sequence[str]) -> Mask:
        """Whether each draw is in one of some models, shape (chain, draw)."""
        among = self.most_visited if set(labels) <= set(self.most_visited) else self.visited
        found: Mask = np.isin(self.place, np.flatnonzero(np.isin(among, labels)))
        return found

    def items(self) -> tuple[Sequence[str], Mask]:
        """Names of the items, and which are in the model, shape (chain, draw, items).

        Raises:
            TRJError: The space is a list of models.
        """
        if not self.space.has_items:
            raise TRJError("inclusion_probabilities: a list of models has no items to include")
        code = self.draws.code
        flat = self.space.items(code.flatten(0, 1))
        return self.space.names, flat.reshape(*code.shape[:2], -1).numpy()

    @cached_property
    def ess(self) -> float:
        """Effective draws of the indicator of the visited model that mixes worst."""
        inside = (self.inside(m).astype(float) for m in self.most_visited)
        found = [mean_error(series)[1] for series in inside]
        return min((e for e in found if math.isfinite(e)), default=0.0)

    def rhat_of(self, series: NDArray[Any]) -> float:
        """Split R-hat of a series, (chain, draw)."""
        return float(split_rhats(series[..., None])[0])

    def autocorrelation_time(self) -> float:
        """Integrated autocorrelation time of the model's position in the space, in kernel steps.

        With 32 chains or more from the spread of the chains' means, which counts slow modes
        that emcee's estimator (used for fewer chains) misses; it is never the more flattering.
        Infinite where the model never changes.

        Source:
            Goodman & Weare (2010), https://doi.org/10.2140/camcos.2010.5.65
        """
        return autocorrelation_time(self.position().astype(float)) * self.draws.thin

    @property
    def _numbered(self) -> bool:
        return self.space.size is not None and self.space.size <= MODELS_NUMBERED

    def position(self) -> NDArray[np.int64]:
        """Position of each draw's model among :attr:`names`, shape (chain, draw)."""
        if not self._numbered:
            return self.place.astype(np.int64)
        code = self.draws.code
        flat = self.space.index(code.reshape(-1, code.shape[2]))
        found: NDArray[np.int64] = flat.reshape(code.shape[:2]).numpy()
        return found

    @property
    def names(self) -> list[str]:
        """Models in the order of the space if that is small, else of the most frequent."""
        return self.space.label(self.space.enumerate()) if self._numbered else self.visited

    def _few_models(self, what: str) -> Tensor:
        if not self.space.few:
            raise TRJError(f"{what}: this is for up to {MODELS_ONE_BY_ONE} models")
        return self.space.enumerate()

    @cached_property
    def transitions(self) -> pd.DataFrame:
        """Chance of the next draw's model given this one's, by the draws.

        Raises:
            TRJError: There are more than 64 models.
        """
        import pandas as pd

        labels = self.space.label(self._few_models("transitions"))
        return pd.DataFrame(
            transition_matrix(self.position(), len(labels)),
            index=pd.Index(labels, name="from"),
            columns=pd.Index(labels, name="to"),
        )

    def mixing(self) -> pd.Series:
        """How fast the model indicator forgets.

        Returns:
            ``ess`` and ``rhat`` (split, between chains) of the model that has the worst,
            ``autocorrelation_time`` in kernel steps, and for small spaces
            ``second_eigenvalue`` of the transition matrix between models: its power is the
            share of the memory that is left after so many draws.
        """
        import pandas as pd

        rhat = [self.rhat_of(self.inside(m)) for m in self.most_visited]
        found = {
            "ess": self.ess,
            "rhat": max((r for r in rhat if not math.isnan(r)), default=math.nan),
            "autocorrelation_time": self.autocorrelation_time(),
        }
        if self.space.few:
            found["second_eigenvalue"] = second_eigenvalue(self.transitions.to_numpy())
        return pd.Series(found)
