"""Data as the posterior expects them, averaged over models, and held against those at hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..arviz_bridge import predictions
from ..errors import ConfigurationError
from ..result.result import Result
from ..rng import stream
from ..target.observed import Observed
from ..target.target import Target
from .simulator import Simulate, Simulator, stacked

if TYPE_CHECKING:
    import pandas as pd

Statistic = Callable[[Any], Any]

USUAL: dict[str, Statistic] = {"mean": np.mean, "sd": np.std, "smallest": np.min, "largest": np.max}


@dataclass(frozen=True, repr=False)
class PosteriorPredictive:
    """Data drawn at posterior draws of all models, in proportion to their probabilities.

    Attributes:
        models: Label of the model that each data set was drawn from.
        data: Shape (n, *data), a dict of such arrays, or a list of n.
        values: By test quantity, its value of each data set, shape (n,).
        observed: By test quantity, its value of the data at hand; empty where they are not known.
    """

    models: list[str]
    data: Any
    values: dict[str, NDArray[np.float64]]
    observed: dict[str, float]

    def __repr__(self) -> str:
        return f"PosteriorPredictive({len(self.models)} data sets, {len(set(self.models))} models)"

    def checks(self, model: str | None = None) -> pd.DataFrame:
        """Test quantities of the data beside those of data that the posterior expects.

        Arguments:
            model: Label of one model; all, averaged, if omitted.

        Returns:
            By quantity ``observed``, ``mean``, ``sd``, ``5%``, ``95%`` of the simulated ones and
            ``p``, the share of these that reach the observed one, ties counted half. Near 0 or 1
            the model does not make data like these. As data are used twice p is not uniform
            under a right model, but crowded around one half.

        Raises:
            ConfigurationError: No data set was drawn from that model.
        """
        import pandas as pd

        inside = np.array([model is None or m == model for m in self.models])
        if not inside.any():
            raise ConfigurationError(
                f"checks: no data were drawn from {model!r}; there are {sorted(set(self.models))}"
            )
        rows = {}
        for name, x in self.values.items():
            some, seen = x[inside], self.observed.get(name, np.nan)
            p = (some > seen).mean() + 0.5 * (some == seen).mean()
            low, high = np.quantile(some, [0.05, 0.95])
            rows[name] = {
                "observed": seen,
                "mean": some.mean(),
                "sd": some.std(),
                "5%": low,
                "95%": high,
                "p": p if np.isfinite(seen) else np.nan,
            }
        return pd.DataFrame.from_dict(rows, orient="index")

    def to_arviz(self) -> Any:
        """Group ``posterior_predictive`` of an InferenceData (0.2x) or DataTree (1.x)."""
        data = self.data if isinstance(self.data, dict) else {"data": self.data}
        return predictions({k: v for k, v in data.items() if isinstance(v, np.ndarray)})


def posterior_predictive(
    result: Result,
    simulate: Simulate | None = None,
    n: int = 1000,
    *,
    statistics: Mapping[str, Statistic] | None = None,
    observed: Any = None,
    target: Target | None = None,
    seed: int = 0,
) -> PosteriorPredictive:
    """Data drawn at posterior draws, averaged over models, and test quantities of them.

    Arguments:
        result: Of a run.
        simulate: As of :class:`~trjmcmc.simulate.Simulator`; not needed where likelihoods are
            ``trj.Observed``.
        n: Number of data sets, at evenly spaced draws.
        statistics: Test quantities by name, functions of one data set that return a number.
            Mean, standard deviation, smallest and largest number if omitted and data are arrays.
        observed: The data at hand, as ``simulate`` returns one data set; those of ``trj.Observed``
            if omitted.
        target: Of a result that was loaded.
        seed: Any integer.

    Raises:
        ConfigurationError: There is nothing to simulate by, or it fails; no target.

    Example:
        >>> import trjmcmc as trj
        >>> from torch.distributions import Normal
        >>> seen = trj.Observed(lambda p: Normal(p["mu"][:, None], 1.0), [0.1, 1.2, 0.4, 9.0])
        >>> target = trj.Target([trj.Model("a", {"mu": Normal(0.0, 1.0)}, seen)])
        >>> result = trj.TRJSampler(target, seed=1).run(draws=50, chains=64, fit=False,
        ...                                             progress=False)
        >>> table = posterior_predictive(result, n=500).checks()
        >>> bool(table.loc["largest", "p"] < 0.01)
        True
    """
    target = target or result.target
    if target is None:
        raise ConfigurationError("target: a loaded result has none; pass target=")
    if n < 1:
        raise ConfigurationError(f"n: expected 1 or more, got {n}")
    simulator, generator = Simulator(target, simulate), stream(seed, 1)
    code, theta = result.raw.flat()
    spaced = torch.linspace(0, len(code) - 1, min(n, len(code))).round().long()
    code, theta = code[spaced].to(target.device), theta[spaced].to(target.device)
    drawn = simulator.draw(code, theta.to(target.dtype), generator)
    if observed is None and target.is_observed:
        known = target.densities.each[0].likelihood.function
        assert isinstance(known, Observed)
        observed = known.data
    arrays = not isinstance(drawn[0], list | tuple | dict | str)
    of = statistics if statistics is not None else (USUAL if arrays else {})
    values = {name: np.array([_number(name, f, data) for data in drawn]) for name, f in of.items()}
    seen = {} if observed is None else {k: _number(k, f, observed) for k, f in of.items()}
    return PosteriorPredictive(target.space.label(code), stacked(drawn), values, seen)


def _number(name: str, function: Statistic, data: Any) -> float:
    """A test quantity of one data set, which it gets as NumPy arrays where it is tensors."""
    try:
        return float(np.asarray(function(_arrays(data)), dtype=float).item())
    except Exception as error:
        raise ConfigurationError(
            f"statistics: {name!r} failed, {type(error).__name__}: {error}; it is given one data "
            "set and returns one number"
        ) from error


def _arrays(data: Any) -> Any:
    if isinstance(data, torch.Tensor):
        return data.detach().cpu().numpy()
    if isinstance(data, Mapping):
        return {k: _arrays(v) for k, v in data.items()}
    return data
