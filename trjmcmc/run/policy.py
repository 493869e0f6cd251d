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
from ..estimate.importance import FIRST_DRAWS, MOST_DRAWS
from ..fit.policy import TrainerPolicy

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class StartPolicy(Checked):
    """Where chains start.

    Attributes:
        candidates: Prior draws tried for each chain that starts from the prior.
        least_possible_draws: Prior draws of finite density a chain from which no more are made.
    """

    candidates: int = 64
    least_possible_draws: float = 0.1


@dataclass(frozen=True)
class SharePolicy(Checked):
    """What parts of a limited run its stages may take.

    Attributes:
        fit: Of the time, or the evaluations, of a run with ``fit=True``, for the fit.
        fit_before_choice: The same of the time where moves are chosen after it, by ``fit="vi"``.
        warm_up: Of the time left, for the warm-up by a standard or the user's kernel, and for
            weighing models before it.
    """

    fit: float = 0.75
    fit_before_choice: float = 0.4
    warm_up: float = 0.1


@dataclass(frozen=True)
class KernelPolicy(Checked):
    """What the kernels of a run are made of.

    Attributes:
        births_a_walk: Births or deaths a walk of a component: two are jointly best on pulses and
            galaxies.
        walks: Random walks a step: cheap, and four halve the autocorrelation time.
        swap_share: Share of the proposals among neighbours that exchange two items.
        local_share: Share of births and deaths that lead to neighbours, where models are few.
        marginal_components: Normals by which each coordinate's marginal is fitted.
        kinds_of_models: Kinds of sets of units that jumps far away come from.
        marginal_shares: Shares of births and deaths by marginals, of such jumps, of new values.
    """

    births_a_walk: int = 2
    walks: int = 4
    swap_share: float = 0.3
    local_share: float = 0.5
    marginal_components: int = 4
    kinds_of_models: int = 4
    marginal_shares: tuple[float, float, float] = (0.4, 0.2, 0.4)


@dataclass(frozen=True)
class MapPolicy(Checked):
    """Which map a sampler takes where none is given.

    Attributes:
        most_laplace_coordinates: Coordinates up to which many models are mapped by Laplace's
            method: curvatures cost their cube.
        layers: Couplings of the flow elsewhere.
        hidden: Widths of the layers of each of its conditioners.
        layers_in_laplace: Couplings of the flow inside Laplace's map.
    """

    most_laplace_coordinates: int = 64
    layers: int = 8
    hidden: tuple[int, ...] = (64, 64)
    layers_in_laplace: int = 4


@dataclass(frozen=True)
class WeighingPolicy(Checked):
    """Importance draws by which models are weighed; fewer if they bring .005 nats.

    Attributes:
        most_draws: Most draws of a map, of each of few models.
        most_of_many: The same of each visited model of many.
    """

    most_draws: int = MOST_DRAWS
    most_of_many: int = 2 * FIRST_DRAWS


@dataclass(frozen=True)
class SummingUpPolicy(Checked):
    """How a run that is limited by time keeps some for its result.

    Attributes:
        priced_draws: Draws of a map whose price is taken.
        interrupted_seconds: Seconds of sampling where the user has interrupted what comes
            before it.
    """

    priced_draws: int = 64
    interrupted_seconds: float = 1.0


@dataclass(frozen=True)
class Policy(Checked):
    """How maps are fitted; how a run in rounds is planned says :class:`~trjmcmc.run.plan.Plan`.

    Attributes:
        shares: What parts of a limited run its stages may take.
        kernels: What the kernels are made of.
        maps: Which map is the default.
        weighing: How many draws weigh a model.
        summing_up: What time is kept for the result.
        fit: What a fit spends where, pilot runs and audits included.

    Example:
        >>> policy = Policy(shares=SharePolicy(fit=0.5))
        >>> policy.table().loc["shares.fit", "value"]
        0.5
    """

    shares: SharePolicy = field(default_factory=SharePolicy)
    kernels: KernelPolicy = field(default_factory=KernelPolicy)
    maps: MapPolicy = field(default_factory=MapPolicy)
    weighing: WeighingPolicy = field(default_factory=WeighingPolicy)
    summing_up: SummingUpPolicy = field(default_factory=SummingUpPolicy)
    fit: TrainerPolicy = field(default_factory=TrainerPolicy)

    def table(self) -> pd.DataFrame:
        """Every number of the policy.

        Returns:
            Indexed by name, such as ``"shares.fit"``, with the columns ``value`` and
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
