"""A model that was written in another language."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions import Distribution

from ..arviz_bridge import predictions
from ..errors import ConfigurationError, TargetError
from ..target.model import Model
from ..target.names import as_stated

Draws = dict[str, NDArray[Any]]

Sampler = Callable[..., Mapping[str, NDArray[Any]]]

Predictor = Callable[..., Any]


@dataclass(frozen=True)
class ForeignModel(Model):
    """A model of another language: a :class:`trjmcmc.Model`, and the way back.

    It pickles where its parts do; what a language compiles or closes over often does not.

    Arguments:
        language: Which, for messages.
        sampler: Posterior draws by the language's own sampler: a function of
            ``(draws, seed, **options)`` that returns values by the language's names, (n, *shape).
        predictor: Posterior predictive draws by the language's own model: a function of
            ``(values, seed, **options)``, values by the language's names, (n, *shape), that
            returns arrays (n, ...) by name, or an InferenceData.
        data_dims: By the language's names of data, those of their axes in predictions.
        names: By the language's name that of the parameter here, where it is another.

    The others are those of :class:`trjmcmc.Model`; ``dims`` and ``coords`` have the names here.
    """

    language: str = field(default="", kw_only=True)
    sampler: Sampler | None = field(default=None, kw_only=True, repr=False)
    predictor: Predictor | None = field(default=None, kw_only=True, repr=False)
    data_dims: Mapping[str, tuple[str, ...]] = field(default_factory=dict, kw_only=True)
    names: Mapping[str, str] = field(default_factory=dict, kw_only=True)

    @property
    def own_names(self) -> dict[str, str]:
        """By the name here that of the language, where it is another."""
        return {here: own for own, here in self.names.items()}

    def pilot(self, draws: int = 1000, *, seed: int = 0, **options: Any) -> dict[str, Draws]:
        """Posterior draws by the language's own sampler, for ``sampler.fit(pilot=...)``.

        Of several models: ``fit(pilot=one.pilot() | two.pilot())``. They teach the map and bias
        nothing.

        Arguments:
            draws: How many, of all chains together.
            seed: Of the language's generator.
            options: Further arguments of that sampler.

        Returns:
            By this model's name parameters by name, shape (n, *shape).

        Raises:
            ConfigurationError: The language has no sampler here.
        """
        if self.sampler is None:
            raise ConfigurationError(
                f"pilot: {self.language or 'this language'} has no sampler for model "
                f"{self.name!r}; bring draws of your own: fit(pilot={{{self.name!r}: ...}})"
            )
        found = self.sampler(draws, seed, **options)
        here = {self.names.get(k, k): np.asarray(v) for k, v in found.items()}
        return {self.name: {k: here[k] for k in self.priors}}

    def predict(
        self, result: Any, *, draws: int | None = 1000, seed: int = 0, **options: Any
    ) -> Any:
        """Posterior predictive draws of this model, by the language's own machinery.

        Arguments:
            result: A run's :class:`trjmcmc.Result`.
            draws: Posterior draws to use at most, evenly spaced; None takes all.
            seed: Of the language's generator.
            options: Further arguments of the language's function.

        Returns:
            InferenceData (a DataTree with ArviZ 1), whose group ``posterior_predictive`` has data
            by the language's names, (1, draw, ...).

        Raises:
            ConfigurationError: The model was never visited, or the language can't predict.
        """
        if self.predictor is None:
            raise ConfigurationError(
                f"predict: {self.language or 'this language'} makes no predictions of model "
                f"{self.name!r}; result.predict(f) averages a function of yours"
            )
        if not self.priors:
            raise ConfigurationError(
                f"predict: model {self.name!r} has no parameters to predict by; draw its data in "
                f"{self.language or 'its language'} itself"
            )
        found = result.draws(self.name)
        if not found:
            raise ConfigurationError(f"predict: model {self.name!r} was never visited; run longer")
        found = {as_stated(k, self.name, self.priors): v for k, v in found.items()}
        if set(found) != set(self.priors):
            raise ConfigurationError(
                f"predict: model {self.name!r} has the parameters {list(self.priors)}, and those "
                f"of the result are {list(found)}: is it the one that was run?"
            )
        own = self.own_names
        n = len(next(iter(found.values())))
        rows = np.arange(n)
        if draws is not None and n > draws:
            rows = np.linspace(0, n - 1, draws).round().astype(int)
        values = {own.get(k, k): np.asarray(v)[rows] for k, v in found.items()}
        made = self.predictor(values, seed, **options)
        return predictions(made, self.data_dims) if type(made) is dict else made

    def renamed(self, names: Mapping[str, str]) -> ForeignModel:
        """The same model with other names for some parameters, by their names here.

        Raises:
            TargetError: A name is not there, or would be there twice.
        """
        old_of = old_names(self, names)
        names = {old: new for new, old in old_of.items() if old != new}
        if not names:
            return self
        own = self.own_names
        return replace(
            self,
            **renamed_parts(self, old_of),
            surrogate=None if self.surrogate is None else Renamed(self.surrogate, old_of),
            fused=None if self.fused is None else Renamed(self.fused, old_of),
            names={own.get(k, k): names.get(k, k) for k in self.priors},
        )


def old_names(model: Model, names: Mapping[str, str]) -> dict[str, str]:
    """By the new name of each parameter of a model the old one.

    Arguments:
        model: The model.
        names: By old names, new ones of some.

    Raises:
        TargetError: A name is not there, or would be there twice.
    """
    if missing := sorted(set(names) - set(model.priors)):
        raise TargetError(
            f"rename: no parameter {missing} in model {model.name!r}; there are "
            f"{list(model.priors)}"
        )
    new = [names.get(k, k) for k in model.priors]
    if len(set(new)) < len(new):
        raise TargetError(f"rename: model {model.name!r} would have {new}, a name twice")
    return dict(zip(new, model.priors, strict=True))


@dataclass(frozen=True)
class Renamed:
    """A function of named parameters that are called otherwise outside."""

    function: Callable[[dict[str, Tensor]], Any]
    old_of: Mapping[str, str]

    def __call__(self, values: Mapping[str, Tensor]) -> Any:
        return self.function({self.old_of.get(k, k): v for k, v in values.items()})


def renamed_parts(model: Model, old_of: Mapping[str, str]) -> dict[str, Any]:
    """Priors, likelihood and axes of a model by new names, of which the old ones are known."""
    return {
        "priors": {
            k: v if isinstance(v := model.priors[old], Distribution) else Renamed(v, old_of)
            for k, old in old_of.items()
        },
        "log_likelihood": Renamed(model.log_likelihood, old_of),
        "dims": {k: model.dims[old] for k, old in old_of.items() if old in model.dims},
    }


def check_name(name: Any, front_end: str) -> None:
    """Refuse a model where its name belongs.

    Raises:
        TargetError: It is no name.
    """
    if not isinstance(name, str):
        raise TargetError(
            f"{front_end}: expected a name and then the model, as tables need one, "
            f"{front_end}('pooled', ...); got {type(name).__name__}"
        )


def check_data(owner: str, observed: Collection[str]) -> None:
    """Refuse a model that sees no data: its evidence would be 1.

    Raises:
        TargetError: Nothing is observed.
    """
    if not observed:
        raise TargetError(
            f"{owner}: it has no observed sites and no factors, so that its evidence is 1 whatever "
            "the data; is an argument missing by which it gets them (obs=)?"
        )


def copied(values: Any) -> Any:
    """Arguments of a model, so that what happens to the data later does not change it."""
    try:
        return copy.deepcopy(values)
    except Exception:  # of objects that can't be copied
        return values


def dtype_of(name: str) -> torch.dtype:
    """torch's precision by the name of NumPy's.

    Example:
        >>> dtype_of("float64")
        torch.float64
    """
    found = getattr(torch, name, None)
    if found not in {torch.float32, torch.float64}:
        raise TargetError(f"expected float32 or float64, got {name}")
    return found
