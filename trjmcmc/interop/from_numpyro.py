"""Models that are functions in NumPyro."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..errors import TargetError
from ..priors.foreign import read_with
from .check import checked
from .extras import needed
from .foreign import ForeignModel, check_data, check_name, copied
from .jax_batches import in_float64
from .numpyro_compiled import Compiled
from .numpyro_priors import is_numpyro, of_numpyro
from .numpyro_trace import NumPyroProgram


def from_numpyro(
    name: str,
    function: Callable[..., Any] | None = None,
    *args: Any,
    rename: Mapping[str, str] | None = None,
    check: bool = True,
    **kwargs: Any,
) -> ForeignModel:
    """A model in NumPyro as one of a target's list.

    What it draws are parameters with their priors; observed sites and factors are the likelihood.
    Names, supports, constants and prior draws are NumPyro's. JAX computes value and gradient of
    both in one call, compiled for two sizes of batches.

    Arguments:
        name: Shown in every table.
        function: A model function of NumPyro.
        args, kwargs: Its arguments, data among them; copied.
        rename: By NumPyro's name another one here. Parameters of one name share coordinates
            across models of one target.
        check: Try priors, batches and gradients; False is for models that have been.

    Returns:
        A :class:`trjmcmc.Model` that can draw from its posterior by NUTS, ``pilot``, and predict
        through NumPyro's ``Predictive``, ``predict``.

    Raises:
        TargetError: A site that can't be sampled here, or whose density is not that of the model:
            discrete, improper, scaled, drawn at some calls only; no data. The message says what
            to do.
        ConfigurationError: NumPyro is not installed.

    Computes in the precision that JAX is set to: float32, unless
    ``jax.config.update("jax_enable_x64", True)`` was called before. Prefer float64.

    Example:
        >>> import numpy as np
        >>> import numpyro
        >>> import numpyro.distributions as dist
        >>> import trjmcmc as trj
        >>> def one(y):
        ...     mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        ...     numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)
        >>> target = trj.Target([trj.from_numpyro("one", one, np.array([0.1, 0.4]))])
        >>> target.slot_names
        ['mu']
    """
    needed("numpyro", "numpyro", "from_numpyro")
    check_name(name, "from_numpyro")
    if not callable(function):
        raise TargetError(f"model {name!r}: expected a function of NumPyro, got {function!r}")
    program = NumPyroProgram(f"model {name!r}", function, copied(args), copied(kwargs))
    compiled = Compiled(program, x64=in_float64())
    check_data(program.owner, compiled.data)
    model = ForeignModel(
        name,
        compiled.priors(),
        compiled.log_likelihood,
        fused=compiled.fused if compiled.latents else None,
        dtype=compiled.dtype,
        dims={s.name: s.dims for s in compiled.latents if s.dims},
        coords={k: range(n) for k, n in compiled.plates.items()},
        language="NumPyro",
        sampler=compiled.pilot,
        predictor=compiled.predictions,
        data_dims={k: dims for k, dims in compiled.data.items() if dims},
    )
    model = model.renamed(rename or {})
    return checked(model) if check else model


read_with(is_numpyro, of_numpyro)
