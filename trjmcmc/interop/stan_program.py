"""Stan programs through BridgeStan: names, layouts, log densities and their gradients."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import ConfigurationError, TargetError
from .bridge import Computed, by_slopes, differentiable, on_host, tensor_of
from .extras import needed

Array = NDArray[np.float64]


class StanModel(Protocol):
    """What is used of ``bridgestan.StanModel``."""

    def param_names(self, *, include_tp: bool = False, include_gq: bool = False) -> list[str]: ...

    def param_unc_names(self) -> list[str]: ...

    def log_density(
        self, theta_unc: Array, *, propto: bool = True, jacobian: bool = True
    ) -> float: ...

    def log_density_gradient(
        self, theta_unc: Array, *, propto: bool = True, jacobian: bool = True
    ) -> tuple[float, Array]: ...

    def param_constrain(
        self,
        theta_unc: Array,
        *,
        include_tp: bool = False,
        include_gq: bool = False,
        rng: Any = None,
    ) -> Array: ...

    def param_unconstrain(self, theta: Array) -> Array: ...

    def new_rng(self, seed: int) -> Any: ...


CONSTANTS = (
    "it drops the constants of densities, which evidences need. Use BridgeStan: "
    "bridgestan.StanModel('model.stan', data), or from_stan(name, ('model.stan', data), ...)"
)

OTHERS = {"stan": "PyStan", "httpstan": "httpstan", "cmdstanpy": "CmdStanPy", "pystan": "PyStan"}

METHODS = ("log_density", "log_density_gradient", "param_unconstrain", "param_unc_names")


def opened(model: Any, what: str, change: Mapping[str, Any] | None = None) -> StanModel:
    """A model of BridgeStan, from one or from ``(path, data)``, with some data changed.

    Arguments:
        model: As :func:`trjmcmc.from_stan` takes it.
        what: Who asks, for messages.
        change: Data to replace; those must be there.

    Raises:
        TargetError: Objects of other packages, or data that are not there.
        ConfigurationError: BridgeStan is not installed, or can't compile.
    """
    maker = OTHERS.get(type(model).__module__.split(".")[0])
    if maker is not None:
        raise TargetError(f"{what}: got an object of {maker}: {CONSTANTS}")
    if isinstance(model, tuple):
        path, data = model
        make: Any = needed("bridgestan", "stan", what).StanModel
    elif all(hasattr(model, m) for m in METHODS):
        if not change:
            found: StanModel = model
            return found
        path, data, make = model.lib_path, model.data, type(model)
    else:
        raise TargetError(
            f"{what}: expected a bridgestan.StanModel, or (path of a Stan program, data), got "
            f"{type(model).__name__}"
        )
    data = _data_of(data)
    for name, value in (change or {}).items():
        if name not in data:
            raise TargetError(
                f"{what}: the program has no data {name!r}. Declare `int<lower=0, upper=1> "
                f"{name};` in its data, put its likelihood into `if (!{name}) {{ ... }}`, and pass "
                f"{name!r}: 0; or take the whole density: trj.interop.stan_joint"
            )
        data[name] = value
    try:
        opened_model: StanModel = make(str(path), json.dumps(data, default=_as_json), warn=False)
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigurationError(
            f"{what}: BridgeStan could not open {path}: {error}. It compiles programs with a C++ "
            "compiler and its own sources, which it fetches from github.com at the first time; "
            "set BRIDGESTAN to a folder that has them"
        ) from error
    return opened_model


def _data_of(data: Any) -> dict[str, Any]:
    """Data of a program as a dict, from a dict, JSON, or a file of it."""
    if isinstance(data, Mapping):
        return dict(data)
    text = str(data or "{}")
    if text.endswith(".json"):
        with open(text, encoding="utf-8") as file:
            text = file.read()
    found: dict[str, Any] = json.loads(text)
    return found


def _as_json(x: Any) -> Any:
    if isinstance(x, Tensor):
        x = x.detach().cpu().numpy()
    return x.tolist() if hasattr(x, "tolist") else list(x)


class Layout:
    """Which places of Stan's flat arrays hold which entries of which parameter.

    Arguments:
        names: Indexed names, as ``param_names`` gives them: ``beta.2``, ``a.1.3``.

    Attributes:
        shapes: Of each parameter, by name in Stan's order.

    Example:
        >>> layout = Layout(["s", "a.1.1", "a.2.1", "a.1.2", "a.2.2"])
        >>> layout.shapes
        {'s': (), 'a': (2, 2)}
        >>> layout.split(np.arange(5.0)[None])["a"].tolist()
        [[[1.0, 3.0], [2.0, 4.0]]]
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.size = len(names) if list(names) != [""] else 0
        index: dict[str, list[tuple[int, ...]]] = {}
        at: dict[str, list[int]] = {}
        for i, full in enumerate(names[: self.size]):
            name, *places = full.split(".")
            index.setdefault(name, []).append(tuple(int(p) - 1 for p in places))
            at.setdefault(name, []).append(i)
        self.shapes = {k: tuple(max(x) + 1 for x in zip(*v, strict=True)) for k, v in index.items()}
        self.places: dict[str, NDArray[np.int64]] = {}
        for name, shape in self.shapes.items():
            places_of = np.empty(shape, dtype=np.int64)
            for place, i in zip(index[name], at[name], strict=True):
                places_of[place] = i
            self.places[name] = places_of

    def split(self, flat: Any) -> dict[str, Array]:
        """Parameters by name, (n, *shape), of rows (n, size)."""
        return {k: np.asarray(flat)[:, i] for k, i in self.places.items()}

    def flat(self, values: Mapping[str, Any]) -> Array:
        """Rows (n, size) of parameters by name, (n, *shape)."""
        n = len(next(iter(values.values())))
        found = np.empty((n, self.size))
        for name, i in self.places.items():
            found[:, i.reshape(-1)] = np.asarray(values[name], dtype=float).reshape(n, -1)
        return found


class LogDensity:
    """The log density of a program at unconstrained coordinates, every constant kept.

    Where Stan rejects a point it is impossible.

    Arguments:
        model: The program with its data.
        jacobian: Whether the Jacobian of the constraints is in it.
        less: Another program, whose log density is taken off.
    """

    def __init__(self, model: StanModel, *, jacobian: bool, less: StanModel | None = None) -> None:
        self.model, self.less, self.jacobian = model, less, jacobian
        self.said = ""  # by Stan, of the last point that it rejected

    def __call__(self, u: Tensor) -> Tensor:
        """Log density, (C,), nats, of coordinates (C, D); with its gradient."""
        if torch.is_grad_enabled() and u.requires_grad:
            return differentiable(self._computed, [u])[0]
        return tensor_of(self.values(on_host(u)), u)

    def _computed(self, tensors: Sequence[Tensor]) -> Computed:
        (u,) = tensors
        found, slopes = self.with_gradients(on_host(u))
        values = (tensor_of(found, u),)
        return values, by_slopes(values, [[tensor_of(slopes, u)]])

    def values(self, u: Array) -> Array:
        """Of coordinates (C, D), (C,), nats."""
        rows = np.ascontiguousarray(u, dtype=np.float64)
        return np.array([self._value(row) for row in rows])

    def with_gradients(self, u: Array) -> tuple[Array, Array]:
        """Values (C,) and gradients (C, D) of coordinates (C, D)."""
        rows = np.ascontiguousarray(u, dtype=np.float64)
        slopes = np.zeros_like(rows)
        values = np.empty(len(rows))
        for i, row in enumerate(rows):
            values[i], slopes[i] = self._pair(row)
        return values, slopes

    def _value(self, row: Array) -> float:
        settings = {"propto": False, "jacobian": self.jacobian}
        try:
            value = self.model.log_density(row, **settings)
            return value - self.less.log_density(row, **settings) if self.less else value
        except RuntimeError as error:
            self.said = str(error)
            return -np.inf

    def _pair(self, row: Array) -> tuple[float, Array]:
        settings = {"propto": False, "jacobian": self.jacobian}
        try:
            value, slope = self.model.log_density_gradient(row, **settings)
            if self.less is not None:
                other, its_slope = self.less.log_density_gradient(row, **settings)
                value, slope = value - other, slope - its_slope
            return value, slope
        except RuntimeError as error:
            self.said = str(error)
            return -np.inf, np.zeros_like(row)


def generated(model: StanModel, coordinates: Array, seed: int) -> dict[str, Array]:
    """Transformed parameters and generated quantities at coordinates (n, D), (n, *shape)."""
    rng = model.new_rng(seed)
    rows = [
        model.param_constrain(row, include_tp=True, include_gq=True, rng=rng)
        for row in np.ascontiguousarray(coordinates, dtype=np.float64)
    ]
    layout = Layout(model.param_names(include_tp=True, include_gq=True))
    own = Layout(model.param_names()).shapes
    return {k: v for k, v in layout.split(np.stack(rows)).items() if k not in own}
