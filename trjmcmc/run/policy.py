"""Every number by which a run is planned, with its unit, what it does and what chose it.

None of them touches what is right: a run is exact whatever they are. They trade time for precision
and memory. Where a field names a problem or a figure, that has chosen its number; the others were
set by judgement and kept while the benchmarks were run with them. Guards against rounding stand
where they are used; thresholds that users were told stand in :mod:`trjmcmc.promises`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any

from ..checks import Checked
from ..fit.policy import TrainerPolicy

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class MapPolicy(Checked):
    """Which map a sampler takes where none is given.

    Attributes:
        layers: Couplings of the flow, but inside Laplace's map.
        hidden: Widths of the layers of each of its conditioners.
        layers_in_laplace: Couplings of the flow inside Laplace's map.
    """

    layers: int = 8
    hidden: tuple[int, ...] = (64, 64)
    layers_in_laplace: int = 4


@dataclass(frozen=True)
class Policy(Checked):
    """How maps are fitted; how a run in rounds is planned says :class:`~trjmcmc.run.plan.Plan`.

    Attributes:
        maps: Which map is the default.
        fit: What a fit spends where, pilot runs and audits included.

    Example:
        >>> policy = Policy(maps=MapPolicy(layers=6))
        >>> policy.table().loc["maps.layers", "value"]
        6
    """

    maps: MapPolicy = field(default_factory=MapPolicy)
    fit: TrainerPolicy = field(default_factory=TrainerPolicy)

    def table(self) -> pd.DataFrame:
        """Every number of the policy.

        Returns:
            Indexed by name, such as ``"maps.layers"``, with the columns ``value`` and
            ``meaning``.
        """
        import pandas as pd

        rows = {name: (value, text) for name, value, text in _numbers(self, "")}
        return pd.DataFrame.from_dict(rows, orient="index", columns=["value", "meaning"])


def _numbers(policy: Any, prefix: str) -> Iterator[tuple[str, Any, str]]:
    """Names, values and meanings of a policy's numbers and of those nested in it."""
    text = inspect.getdoc(type(policy)) or ""
    listed = re.search(r"^Attributes:\n((?:    .*\n?|\n)+)", text, re.MULTILINE)
    entries = re.findall(r"^    (\w+): ((?:.|\n     )+)", listed[1] if listed else "", re.MULTILINE)
    meaning = {name: " ".join(words.split()) for name, words in entries}
    for item in fields(policy):
        value = getattr(policy, item.name)
        if is_dataclass(value):
            yield from _numbers(value, f"{prefix}{item.name}.")
        else:
            yield f"{prefix}{item.name}", value, meaning[item.name]
