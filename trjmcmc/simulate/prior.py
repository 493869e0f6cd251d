"""Models, parameters and data as they are expected before any data are seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..arviz_bridge import groups
from ..errors import ConfigurationError, TargetError
from ..rng import stream
from ..target.target import Target
from .simulator import Simulate, Simulator, stacked

if TYPE_CHECKING:
    import pandas as pd

TRIES = 100  # times that draws on the boundary of the support are drawn again


@dataclass(frozen=True, repr=False)
class Simulated:
    """Draws of models and parameters, and of data where they were asked for.

    Attributes:
        models: Label of the model of each draw.
        parameters: By name, shape (n, *shape), NaN where a model does not use it.
        data: Shape (n, *data), a dict of such arrays, or a list of n; None without data.
        code: Models, shape (n, L).
        theta: Padded unconstrained coordinates, shape (n, D).
    """

    models: list[str]
    parameters: dict[str, NDArray[Any]]
    data: Any
    code: Tensor
    theta: Tensor

    def __len__(self) -> int:
        return len(self.models)

    def __repr__(self) -> str:
        names = ", ".join(self.parameters) or "none"
        seen = "" if self.data is None else ", with data"
        return f"Simulated({len(self)} draws of {len(set(self.models))} models: {names}{seen})"

    def summary(self) -> pd.DataFrame:
        """Mean, standard deviation and 5, 50, 95 % quantiles of each number, NaN left out."""
        import pandas as pd

        rows = {}
        for name, x in self.parameters.items():
            flat = x.reshape(len(x), -1)
            for i in range(flat.shape[1]):
                there = flat[~np.isnan(flat[:, i]), i]
                label = name if x.ndim == 1 else f"{name}[{i}]"
                cuts = np.quantile(there, [0.05, 0.5, 0.95]) if len(there) else [np.nan] * 3
                rows[label] = {
                    "share": len(there) / len(x),
                    "mean": there.mean() if len(there) else np.nan,
                    "sd": there.std() if len(there) else np.nan,
                    **dict(zip(["5%", "50%", "95%"], cuts, strict=True)),
                }
        return pd.DataFrame.from_dict(rows, orient="index")

    def to_arviz(self) -> Any:
        """Groups ``prior`` and ``prior_predictive`` of an InferenceData (0.2x) or DataTree (1.x).

        ``model`` numbers the models in the order of their first draws.
        """
        names = {name: i for i, name in enumerate(dict.fromkeys(self.models))}
        number = np.array([names[m] for m in self.models])
        found: dict[str, dict[str, NDArray[Any]]] = {"prior": {"model": number, **self.parameters}}
        data = self.data if isinstance(self.data, dict) else {"data": self.data}
        arrays = {k: v for k, v in data.items() if isinstance(v, np.ndarray)}
        if arrays:
            found["prior_predictive"] = arrays
        return groups(found)


def prior(target: Target, n: int = 1000, *, seed: int = 0) -> Simulated:
    """Models and parameters drawn from their prior.

    Arguments:
        target: The models; its data play no part.
        n: Number of draws.
        seed: Any integer.

    Raises:
        ConfigurationError: Less than one draw.
        TargetError: Draws fall outside the support of a prior again and again.

    Example:
        >>> import trjmcmc as trj
        >>> drawn = prior(trj.problems.sleep(), 200)
        >>> len(drawn), sorted(set(drawn.models)), drawn.parameters["delta"].shape
        (200, ['H0', 'H1'], (200,))
    """
    code, theta = drawn_from_prior(target, n, stream(seed, 0))
    return _simulated(target, code, theta, None)


def prior_predictive(
    target: Target, simulate: Simulate | None = None, n: int = 1000, *, seed: int = 0
) -> Simulated:
    """Models and parameters drawn from their prior, and data drawn given these.

    Arguments:
        target: The models.
        simulate: As of :class:`~trjmcmc.simulate.Simulator`; not needed where likelihoods are
            ``trj.Observed``.
        n: Number of draws.
        seed: Any integer.

    Raises:
        ConfigurationError: There is nothing to simulate by, or it fails.

    Example:
        >>> import trjmcmc as trj
        >>> from torch.distributions import Normal
        >>> seen = trj.Observed(lambda p: Normal(p["mu"][:, None], 1.0), [0.1, 1.2, 0.4])
        >>> target = trj.Target([trj.Model("a", {"mu": Normal(0.0, 1.0)}, seen)])
        >>> prior_predictive(target, n=50).data.shape
        (50, 3)
    """
    generator = stream(seed, 0)
    simulator = Simulator(target, simulate)
    code, theta = drawn_from_prior(target, n, generator)
    return _simulated(target, code, theta, simulator.draw(code, theta, generator))


def drawn_from_prior(target: Target, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Codes (n, L) and finite padded coordinates (n, D) from the prior.

    Raises:
        ConfigurationError: Less than one draw.
        TargetError: Some stay on the boundary of the support.
    """
    if n < 1:
        raise ConfigurationError(f"n: expected 1 or more, got {n}")
    code = target.space.sample_prior(n, generator)
    theta = target.sample_prior(code, generator)
    for _ in range(TRIES):
        bad = ~theta.isfinite().all(-1)
        if not bool(bad.any()):
            return code, theta
        theta[bad] = target.sample_prior(code[bad], generator)
    raise TargetError(
        f"prior: {int(bad.sum())} of {n} draws fall on the boundary of the support again and "
        "again; state the prior in units in which its draws are neither 0 nor infinite"
    )


def _simulated(target: Target, code: Tensor, theta: Tensor, data: list[Any] | None) -> Simulated:
    values = {k: v.cpu().numpy() for k, v in target.padded_values(code, theta).items()}
    return Simulated(
        target.space.label(code), values, None if data is None else stacked(data), code, theta
    )
