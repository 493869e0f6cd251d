"""Where NumPyro's distributions lie, as constraints of torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.distributions import constraints

from ..errors import TargetError
from ..priors.fields import Circle
from ..target.support import OrderedConstraint

FREE: Mapping[str, Any] = {  # by the name of NumPyro's class
    "_Real": constraints.real,
    "_RealVector": constraints.real_vector,
    "_RealMatrix": constraints.independent(constraints.real, 2),
    "_Simplex": constraints.simplex,
    "_CorrCholesky": constraints.corr_cholesky,
    "_OrderedVector": OrderedConstraint(constraints.real),
    "_PositiveOrderedVector": OrderedConstraint(constraints.positive),
    "_Circular": Circle(-math.pi, math.pi),
    "_Positive": constraints.positive,
    "_Nonnegative": constraints.nonnegative,
    "_SoftplusPositive": constraints.positive,
}

INSTEAD: Mapping[str, str] = {
    "_CorrMatrix": "draw LKJCholesky and multiply it by its transpose",
    "_PositiveDefinite": "draw LKJCholesky and scales, and multiply",
    "_PositiveSemiDefinite": "draw LKJCholesky and scales, and multiply",
    "_LowerCholesky": "draw LKJCholesky and scales, and multiply",
    "_SoftplusLowerCholesky": "draw LKJCholesky and scales, and multiply",
    "_ScaledUnitLowerCholesky": "draw LKJCholesky and scales, and multiply",
    "_ZeroSum": "draw one entry less, and multiply by a basis of vectors that add up to zero",
    "_Sphere": "draw a normal vector and divide it by its length, or two angles "
    "(trj.priors.isotropic)",
    "_L1Ball": "draw a simplex and signs",
}


@dataclass(frozen=True)
class Support:
    """Where the values of one site lie.

    Attributes:
        free: A constraint of torch without parameters, or None.
        event_dim: Axes of a value that NumPyro takes as one event, beyond those of the constraint.
        low, high: Whether it ends below, above.
    """

    free: Any = None
    event_dim: int = 0
    low: bool = False
    high: bool = False

    @property
    def ends(self) -> int:
        """How many arrays of ends describe it."""
        return 0 if self.free is not None else self.low + self.high

    def constraint(self, ends: list[Any]) -> Any:
        """As a constraint of torch.

        Arguments:
            ends: The low one and the high one, where it has them: numbers, or tensors of the
                value's shape.
        """
        if self.free is not None:
            found = self.free
        elif self.low and self.high:
            found = constraints.interval(*ends)
        else:
            found = (constraints.greater_than if self.low else constraints.less_than)(*ends)
        return constraints.independent(found, self.event_dim) if self.event_dim else found


def support_of_site(owner: str, name: str, fn: Any) -> Support:
    """The support of a distribution of NumPyro.

    Raises:
        TargetError: No bijection of torch leads there.
    """
    try:
        support, event_dim = _bare(support_of(fn))
    except NotImplementedError as error:
        raise TargetError(
            f"{owner}: where site {name!r} lies is not known here ({error or type(fn).__name__}); "
            "draw what is transformed, and transform it by numpyro.deterministic"
        ) from None
    kind = type(support).__name__
    if (free := FREE.get(kind)) is not None:
        return Support(free, event_dim)
    low, high = has_ends(support)
    if low or high:
        return Support(None, event_dim, low, high)
    hint = INSTEAD.get(kind, "reparametrise it with numpyro.handlers.reparam")
    raise TargetError(
        f"{owner}: site {name!r} lies in {kind.strip('_')}, which has no bijection from the whole "
        f"line here; {hint}, or state the model as trj.Joint on coordinates of your own"
    )


def support_of(fn: Any) -> Any:
    """NumPyro's support; of a transformed distribution that of what it transforms, moved.

    NumPyro takes that of the last transform alone: the exponential of a uniform number would be
    any positive one.
    """
    from numpyro import distributions as dist
    from numpyro.distributions import constraints as theirs

    if isinstance(fn, dist.ExpandedDistribution):
        return support_of(fn.base_dist)
    if isinstance(fn, dist.Independent):
        return theirs.independent(support_of(fn.base_dist), fn.reinterpreted_batch_ndims)
    if type(fn) is not dist.TransformedDistribution:
        return fn.support
    support, _ = _bare(support_of(fn.base_dist))
    for transform in fn.transforms:
        support = _moved(support, transform)
    event_dim = fn.event_dim - support.event_dim
    return theirs.independent(support, event_dim) if event_dim else support


def _moved(support: Any, transform: Any) -> Any:
    """Where a transform leads from numbers that lie in a support."""
    from numpyro.distributions import constraints as theirs
    from numpyro.distributions import transforms

    if isinstance(transform, transforms.IdentityTransform):
        return support
    if isinstance(transform, transforms.AffineTransform):
        if support is theirs.ordered_vector and (np.asarray(_known(transform.scale)) > 0).all():
            return support
        return transforms.AffineTransform(transform.loc, transform.scale, support).codomain
    if isinstance(transform, transforms.ExpTransform):
        if not all(has_ends(support)) and has_ends(support)[1]:
            return theirs.interval(0.0, transform(support.upper_bound))
        return transforms.ExpTransform(support).codomain
    if isinstance(transform, transforms.SigmoidTransform):
        below, above = has_ends(support)
        return theirs.interval(
            transform(support.lower_bound) if below else 0.0,
            transform(support.upper_bound) if above else 1.0,
        )
    domain = _bare(transform.domain)[0]
    if type(support) is type(domain) and not all(has_ends(support)):
        return transform.codomain
    if type(support).__name__ == "_Real" and type(domain).__name__ == "_RealVector":
        return transform.codomain
    raise NotImplementedError(
        f"{type(transform).__name__} of numbers in {type(support).__name__.strip('_')}"
    )


def _known(x: Any) -> Any:
    """A number, where one is traced 1: NumPyro too takes traced scales as positive."""
    import jax

    return 1.0 if isinstance(x, jax.core.Tracer) else x


def has_ends(support: Any) -> tuple[bool, bool]:
    """Whether numbers in a support have a least, and a largest one."""
    from numpyro.distributions import constraints as theirs

    half = isinstance(support, theirs.greater_than | theirs.greater_than_eq)
    both = isinstance(support, theirs.interval)
    return half or both, both or isinstance(support, theirs.less_than | theirs.less_than_eq)


def ends_of(fn: Any, shape: tuple[int, ...]) -> list[Any]:
    """Ends of a site's support, low and high as far as there are, of the value's shape."""
    from jax import numpy as jnp

    support, _ = _bare(support_of(fn))
    there = zip(has_ends(support), ("lower_bound", "upper_bound"), strict=True)
    return [
        jnp.broadcast_to(jnp.asarray(getattr(support, name), float), shape)
        for here, name in there
        if here
    ]


def constant(ends: NDArray[Any]) -> Any:
    """Ends that no parameter changes: a number where all entries have the same, else a tensor."""
    first = ends.reshape(-1)[0] if ends.size else 0.0
    return float(first) if (ends == first).all() else torch.as_tensor(np.array(ends)).double()


def _bare(support: Any) -> tuple[Any, int]:
    """A constraint without the axes that are taken as one event, and how many these are."""
    event_dim = 0
    while type(support).__name__ == "_IndependentConstraint":
        event_dim += support.reinterpreted_batch_ndims
        support = support.base_constraint
    return support, event_dim
