"""Models written in Pyro."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..rng import seeded
from ..target.support import unchecked
from .check import checked
from .foreign import ForeignModel, check_data, check_name
from .pyro_priors import priors_of
from .pyro_program import PyroLatent, PyroProgram, default_precision, load_pyro


def from_pyro(
    name: str,
    function: Callable[..., Any] | None = None,
    *args: Any,
    rename: Mapping[str, str] | None = None,
    dtype: torch.dtype | None = None,
    vectorized: bool = True,
    check: bool = True,
    **kwargs: Any,
) -> ForeignModel:
    r"""A Pyro model, in a target's list of models.

    Latent sites are the parameters, with their distributions as priors; observed sites and
    ``pyro.factor`` are the likelihood. The model is read once: data that change later do not
    change it. Needs ``pip install 'trjmcmc[pyro]'``.

    Arguments:
        name: Shown in every table.
        function: The model: a function with ``pyro.sample``, as for ``pyro.infer.MCMC``.
        \*args, \*\*kwargs: What it is called with: data.
        rename: By site, another name; parameters of one name share coordinates across models.
        dtype: Precision of the parameters. Default: that of the joint, so that data in float64
            make it double.
        vectorized: False if the model branches on values in Python; it is then called point by
            point, which is slow.
        check: Try priors, batches and gradients; False is for models that have been.

    Returns:
        A model whose ``pilot`` runs ``pyro.infer.MCMC`` with NUTS, and whose ``predict`` is
        ``pyro.infer.Predictive``.

    Raises:
        TargetError: Discrete or masked latent sites, scales and mini-batches, improper priors,
            ``pyro.param``, sites that come and go, no data, a batch that the model can't be called
            with.
        ConfigurationError: Pyro is not installed.
    """
    load_pyro()
    check_name(name, "from_pyro")
    program = PyroProgram(f"Pyro model {name!r}", function, args, kwargs, dtype, vectorized)
    check_data(program.owner, program.observed)
    program.check_batches()

    def log_likelihood(params: dict[str, Tensor]) -> Tensor:
        return _evaluate(program, params)[1]

    model = ForeignModel(
        name,
        priors_of(program),
        log_likelihood,
        fused=partial(_evaluate, program),
        dtype=program.dtype,
        dims=_dims(program.latents),
        data_dims=_dims(program.observed),
        language="Pyro",
        sampler=_sampler(program),
        predictor=_predictor(program),
    )
    model = model.renamed(rename or {})
    return checked(model) if check else model


def _evaluate(program: PyroProgram, params: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Log prior and log likelihood of a batch, (C,) each; of one point without latent sites."""
    if program.latents:
        return program.batch(params)
    with unchecked():
        return program.point({})


def _dims(sites: Mapping[str, PyroLatent]) -> dict[str, tuple[str, ...]]:
    """Names of the axes of sites that stand in plates."""
    found = {}
    for name, latent in sites.items():
        batch = len(latent.fn.batch_shape)
        axes = [latent.plates.get(i - batch, f"{name}_dim_{i}") for i in range(batch)]
        axes += [f"{name}_dim_{batch + i}" for i in range(len(latent.fn.event_shape))]
        if latent.plates:
            found[name] = tuple(axes)
    return found


def _sampler(program: PyroProgram) -> Callable[..., dict[str, Any]]:
    """Posterior draws by Pyro's NUTS."""

    def sampler(
        draws: int, seed: int, *, warmup: int | None = None, **options: Any
    ) -> dict[str, Any]:
        from pyro.infer import MCMC, NUTS

        settings = {"disable_progbar": True, **options}
        kernel = NUTS(program.f)
        with unchecked(), default_precision(program.dtype), seeded(seed):
            chain = MCMC(kernel, draws, warmup_steps=warmup or max(200, draws // 2), **settings)
            chain.run(*program.args, **program.kwargs)
            found = chain.get_samples()
        return {k: np.asarray(v.detach().cpu()) for k, v in found.items()}

    return sampler


def _predictor(program: PyroProgram) -> Callable[..., dict[str, Any]]:
    """Posterior predictive draws by Pyro's ``Predictive``, with nothing observed."""

    def predictor(
        values: Mapping[str, Any],
        seed: int,
        *,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        from pyro import poutine
        from pyro.infer import Predictive

        samples = {k: torch.as_tensor(v) for k, v in values.items()}
        predictive = Predictive(poutine.uncondition(program.f), samples, **options)
        quiet = unchecked(), default_precision(program.dtype), seeded(seed), torch.no_grad()
        with quiet[0], quiet[1], quiet[2], quiet[3]:
            found = predictive(
                *(program.args if args is None else args),
                **(program.kwargs if kwargs is None else kwargs),
            )
        return {k: np.asarray(v.detach().cpu()) for k, v in found.items()}

    return predictor
