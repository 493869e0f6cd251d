"""One model of a list, and what a target may know of the truth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .likelihood import LogLikelihood
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

    name: str
    priors: Mapping[str, PriorSpec]
    log_likelihood: LogLikelihood
    vectorized: bool = True
    surrogate: LogLikelihood | None = None
