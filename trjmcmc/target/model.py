"""One model of a list, and what a target may know of the truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from ..checks import checked_dtype, spelled
from ..errors import TargetError
from .likelihood import LogLikelihood, LogPriorAndLikelihood
from .prior import PriorSpec


@dataclass(frozen=True)
class Truth:
    """Known answers of a problem.

    Attributes:
        probabilities: Posterior probability by model label.
        log_evidence: Log evidence by model label, nats, p(model) not included.
        source: How they were computed, and to what accuracy.
    """

    probabilities: Mapping[str, float]
    log_evidence: Mapping[str, float] = field(default_factory=dict)
    source: str = ""


@dataclass(frozen=True)
class Model:
    """One model: named parameters with priors, and a likelihood.

    Arguments:
        name: Shown in every table.
        priors: For each parameter a ``torch.distributions`` distribution (its batch and event
            shape together are the parameter's shape), or a function of the parameters before
            it that returns one. May be empty.
        log_likelihood: Function of a dict of batched parameters, each of shape (C, *shape),
            that returns (C,), nats; -inf means impossible, NaN is an error. Data it uses must
            live on the device and in the dtype that the sampler runs in.
        vectorized: False if the function takes one point and returns one number (it must
            then be one that ``torch.func.vmap`` can map).
        surrogate: A smooth surrogate of ``log_likelihood``, whose gradients train maps and steer
            proposals; the answer never depends on it.
        fused: Log prior and log likelihood in one call, for models where two cost more: a
            function of the parameters' values as ``log_likelihood`` has them that returns both,
            (C,) each, nats, and is the same as what ``priors`` and ``log_likelihood`` say.
        padded: Whether ``log_likelihood`` and ``surrogate`` say the same where zeros are added at
            the end of every vector. A list of such models with one function, and priors of numbers
            or of Dirichlet vectors that differ in length alone, is evaluated in one batch.
        dtype: Precision that its functions compute in; a target with no other takes it.
        dims: By parameter, names of its axes, for :meth:`trjmcmc.Result.to_arviz`.
        coords: By axis, what its places are called.

    Parameters of the same name share coordinates across models of one target.

    Example:
        >>> import torch
        >>> from torch.distributions import Gamma, Normal
        >>> y = torch.tensor([0.1, 1.2, 0.4])
        >>> model = Model(
        ...     "shifted",
        ...     priors={"mu": Normal(0.0, 1.0), "tau": Gamma(2.0, 2.0)},
        ...     log_likelihood=lambda p: Normal(p["mu"][:, None], p["tau"][:, None] ** -0.5)
        ...     .log_prob(y).sum(-1),
        ... )
        >>> list(model.priors)
        ['mu', 'tau']
    """

    # whether log_likelihood is of the whole joint, and the priors only what that is compared with
    on_reference: ClassVar[bool] = False

    name: str
    priors: Mapping[str, PriorSpec]
    log_likelihood: LogLikelihood
    vectorized: bool = True
    surrogate: LogLikelihood | None = None
    fused: LogPriorAndLikelihood | None = field(default=None, kw_only=True)
    padded: bool = field(default=False, kw_only=True)
    dtype: torch.dtype | None = field(default=None, kw_only=True)
    dims: Mapping[str, tuple[str, ...]] = field(default_factory=dict, kw_only=True)
    coords: Mapping[str, Sequence[Any]] = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        check_priors(self.priors, f"priors of model {self.name!r}")
        checked_dtype(self.dtype)

    @property
    def own_names(self) -> Mapping[str, str]:
        """By a parameter's name here that where the model comes from, where it is another."""
        return {}

    def renamed(self, names: Mapping[str, str]) -> Model | None:
        """The same model with other names for some parameters; None where it can't be had."""
        return None


Model.__init__ = spelled(Model.__init__)  # type: ignore[method-assign]


def check_priors(priors: object, what: str) -> None:
    """Refuse priors without names.

    Raises:
        TargetError: They are no dict.
    """
    if not isinstance(priors, Mapping):
        raise TargetError(
            f'{what}: expected a dict of distributions by parameter, such as {{"x": Normal(0.0, '
            f"1.0)}}, got {priors!r}"
        )


def stated_dtype(models: object, function: object = None) -> torch.dtype | None:
    """The widest precision that models of a list, or likelihoods by ``dtype``, state, or None."""
    some = models if isinstance(models, list | tuple) else ()
    known = [m for m in some if isinstance(m, Model)]
    each = [x.dtype for x in known] + [_stated_by(x.log_likelihood) for x in known]
    stated = [dtype for dtype in [*each, _stated_by(function)] if dtype is not None]
    return max(stated, key=lambda dtype: dtype.itemsize, default=None)


def _stated_by(function: object) -> torch.dtype | None:
    found = getattr(function, "dtype", None)
    return found if isinstance(found, torch.dtype) else None
