"""Posterior probabilities of models, items and numbers of components, in tables."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import TRJError
from ..estimate.estimate import Estimate
from .evidences import UNCHECKED, Evidences

if TYPE_CHECKING:
    import pandas as pd

OTHERS = "(other models)"  # label of the row of models that a table does not show


class Probabilities:
    """Tables of probabilities by the visits and by the evidences.

    Arguments:
        evidences: Evidences by several routes, and the visits that they are compared with.
    """

    def __init__(self, evidences: Evidences) -> None:
        self.evidences = evidences
        self.indicator, self.chains = evidences.indicator, evidences.chains

    def of_models(self) -> pd.DataFrame:
        """One row per model; see :meth:`trjmcmc.Result.model_probabilities`."""
        import pandas as pd

        labels, space = self.indicator.models, self.indicator.space
        visits = [self.chains.visits(label) for label in labels]
        importance, combined = self.evidences.importance(labels), self.evidences.shares(labels)
        unsearched = [d.words for d in self.chains.doubted.found if d.kind in {"modes", "search"}]
        table = pd.DataFrame(
            {
                "visits": [v.value for v in visits],
                "visits_se": [v.std_error for v in visits],
                "visits_ess": [v.ess for v in visits],
                "importance": [i.value for i in importance],
                "importance_se": [i.std_error for i in importance],
                "combined": [c.value for c in combined],
                "combined_se": [c.std_error for c in combined],
                "note": [
                    "; ".join(dict.fromkeys(filter(None, (v.warning, i.warning, *unsearched))))
                    for v, i in zip(visits, importance, strict=True)
                ],
            },
            index=pd.Index(labels, name="model"),
        )
        if space.size is None or len(labels) < space.size:
            other = self.chains.share(~self.indicator.inside_any(labels))
            found = other.value, other.std_error, other.ess
            table.loc[OTHERS] = [*found, *[math.nan] * 4, other.warning]
        return table

    def of_models_in_short(self) -> pd.DataFrame:
        """By the best route alone; see :meth:`trjmcmc.Result.model_probabilities`."""
        full, labels = self.of_models(), self.indicator.models
        of_visits = {"visits": "probability", "visits_se": "se", "visits_ess": "ess"}
        table = in_short(full.rename(columns=of_visits))
        with np.errstate(divide="ignore", invalid="ignore"):
            log_mass = np.log(table.loc[labels, "probability"].to_numpy())
            log_evidence = log_mass - np.array(self.indicator.log_prior(labels))
        table.insert(3, "bayes_factor", math.nan)
        table.loc[labels, "bayes_factor"] = beside_best(log_evidence)
        return table

    def of_evidence(self) -> pd.DataFrame:
        """By the best route alone; see :meth:`trjmcmc.Result.evidence`."""
        if not self.evidences.weighed:
            table = self.of_models_in_short().loc[self.indicator.models, ["bayes_factor"]]
            table.insert(0, "log_evidence", math.nan)
            table.insert(1, "se", math.nan)
            counts = "; see trj.evidences_of_counts" if self.indicator.space.counts else ""
            return table.assign(verdict=UNCHECKED, note=f"by visits alone{counts}")
        full = self.evidences.table().rename(columns={"combined": "log_evidence"})
        full["se"], full["bayes_factor"] = full["combined_se"], beside_best(full["log_evidence"])
        return full[["log_evidence", "se", "bayes_factor", "verdict", "note"]]

    def of_items(self) -> pd.DataFrame:
        """One row an item; see :meth:`trjmcmc.Result.inclusion_probabilities`.

        Raises:
            TRJError: The space is a list of models.
        """
        import pandas as pd

        names, _ = self.indicator.items()
        always, never = self.indicator.space.certain()
        index = pd.Index(names, name="item")
        return self._of_sets(self.indicator.space.items, always, never, index)

    def of_counts(self) -> pd.DataFrame:
        """One row a kind and number; see :meth:`trjmcmc.Result.counts`.

        Raises:
            TRJError: The space has no counts.
        """
        import pandas as pd

        space = self.indicator.space
        if not space.counts:
            raise TRJError(f"counts: expected a space of Counts, got {type(space).__name__}")
        _, levels = space.levels()
        possible = [table > -math.inf for table in space.log_priors]
        rows = [(kind.name, n) for kind in space.kinds for n in range(kind.min, kind.max + 1)]
        number = torch.tensor([n for _, n in rows])
        table = self._of_sets(
            lambda code: code.repeat_interleave(levels, dim=1) == number,
            torch.cat([p & (p.sum() == 1) for p in possible]),
            ~torch.cat(possible),
            pd.MultiIndex.from_tuples(rows, names=["kind", "count"]),
        )
        table["prior"] = torch.cat(space.log_priors).exp().numpy()
        return table

    def to_draw(self) -> pd.DataFrame:
        """What a picture shows: models, or of one kind of components the numbers visited."""
        space = self.indicator.space
        if not space.counts or len(space.kinds) > 1:
            return self.of_models()
        table = self.of_counts().droplevel("kind")
        seen = table.index[table["probability"] > 0]
        table = table.loc[seen.min() : seen.max()]
        if self.evidences.flagged:
            table[["combined", "combined_se"]] = np.nan
        return table.rename(columns={"probability": "visits", "se": "visits_se"})

    def _of_sets(
        self, sets: Callable[[Tensor], Tensor], always: Tensor, never: Tensor, index: pd.Index
    ) -> pd.DataFrame:
        """Probabilities of sets of models.

        Arguments:
            sets: Codes, (N, L), to which of S sets hold them, (N, S) bool.
            always, never: Sets that hold all models, and none, shape (S,) bool.
            index: Of the table, S.
        """
        import pandas as pd

        code = self.indicator.draws.code
        on = sets(code.flatten(0, 1)).reshape(*code.shape[:2], -1).numpy()
        known = (always | never).tolist()
        sure = [Estimate(float(p), 0.0, math.inf) for p in always]
        visits, rhat = self.chains.shares_of(on)
        found = [sure[i] if yes else visits[i] for i, yes in enumerate(known)]
        combined = self.evidences.shares_of_sets(sets, on)
        combined = [sure[i] if yes else combined[i] for i, yes in enumerate(known)]
        return pd.DataFrame(
            {
                "probability": [e.value for e in found],
                "se": [e.std_error for e in found],
                "ess": [e.ess for e in found],
                "rhat": rhat,
                "combined": [e.value for e in combined],
                "combined_se": [e.std_error for e in combined],
                "note": [e.warning for e in found],
            },
            index=index,
        )


def in_short(table: pd.DataFrame) -> pd.DataFrame:
    """Probabilities by the combination of routes where it has an error, else by the visits.

    ``ess`` is of the same route: the number of independent draws that have this error.
    """
    known = np.isfinite(table["combined_se"])
    p = table["combined"].where(known, table["probability"])
    se = table["combined_se"].where(known, table["se"])
    ess = (p * (1 - p) / se**2).where(known & (p * (1 - p) * se > 0), table["ess"]).round()
    shown = ["probability", "se", "ess", "prior", "note"]
    return table.assign(probability=p, se=se, ess=ess).filter(shown)


def beside_best(log_evidence: NDArray[np.float64]) -> NDArray[np.float64]:
    """Bayes factors beside the largest of some log evidences in nats; NaN of what is not known.

    Example:
        >>> beside_best(np.array([0.0, math.log(4.0), math.nan])).tolist()
        [0.25, 1.0, nan]
    """
    known = np.where(log_evidence < math.inf, log_evidence, math.nan)
    return np.exp(known - np.nanmax(known, initial=-math.inf))
