"""A model of which only the joint density is known."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..errors import TargetError
from ..target.additive import Additive
from ..target.blackbox import BlackBox
from ..target.model import Model
from .check import checked_joint
from .foreign import old_names, renamed_parts
from .reference import reference_priors


class Joint(Model):
    r"""A joint density whose prior and likelihood are not separate, in a target's list of models.

    A normalised reference stands in for the prior, and what is left of the joint for the
    likelihood:

    .. math:: p(y, \theta) = q_0(\theta) \times \frac{p(y, \theta)}{q_0(\theta)}

    p(model | data) and evidences are those of the joint, whatever the reference. Pilot runs and
    births start from it: it decides how much work they have, and a mode beyond its tails can be
    missed as one beyond a prior's.

    Arguments:
        name: Shown in every table.
        shapes: Shape of each parameter by name: ``()``, ``3`` for (3,), or a tuple. May be empty.
        log_joint: Function of a dict of batched parameters, each of shape (C, \*shape), that
            returns log p(data, parameters) of shape (C,), nats, with every constant: a density
            on unconstrained coordinates, the whole line each, the Jacobian of any constraint
            inside. -inf means impossible; NaN is an error. :class:`BlackBox` and
            :func:`with_gradient` wrap functions from outside PyTorch.
        reference: A normalised density on the whole line by parameter (a distribution, or a
            function of the parameters before it); or draws of all parameters by name, (n,
            \*shape) or (chain, draw, \*shape), on the same coordinates, that a Student-t
            distribution is fitted to, correlations included. With one parameter, without the
            dict. Default: Student-t with 4 degrees of freedom and scale 2 of each coordinate.
        vectorized: False if the function takes one point and returns one number (it must then
            be one that ``torch.func.vmap`` can map).
        dtype, dims, coords: As of :class:`Model`.
        check: Try batches against points alone, and gradients against differences, at five
            draws of the reference; False is for joints that have been, or are slow.

    Raises:
        TargetError: A reference with other names or shapes, or with bounds; batches that differ
            from their points, wrong gradients.

    There is no prior to change: ``result.reweight(priors=...)`` refuses its parameters.
    Parameters of the same name share coordinates across models of one target, where rank and
    support agree; else one of them gets its model's name behind its own, unless the joint is a
    :class:`BlackBox`.

    Example:
        >>> import math
        >>> import torch
        >>> import trjmcmc as trj
        >>> joint = trj.Joint(
        ...     "normal", {"x": 2}, lambda p: -0.5 * (p["x"] - 1).square().sum(-1)
        ... )
        >>> target = trj.Target([joint], dtype=torch.float64)
        >>> code, theta = torch.tensor([[0]]), torch.ones(1, 2, dtype=torch.float64)
        >>> bool(target.log_joint(code, theta).abs() < 1e-12)
        True
    """

    on_reference: ClassVar[bool] = True

    def __init__(
        self,
        name: str,
        shapes: Mapping[str, int | Sequence[int]],
        log_joint: Callable[..., Tensor],
        reference: Any = None,
        *,
        vectorized: bool = True,
        dtype: torch.dtype | None = None,
        dims: Mapping[str, tuple[str, ...]] | None = None,
        coords: Mapping[str, Sequence[Any]] | None = None,
        check: bool = True,
    ) -> None:
        if isinstance(log_joint, Additive) or not callable(log_joint):
            raise TargetError(
                f"log_joint of {name!r}: expected a function of a dict of parameters, got "
                f"{type(log_joint).__name__}"
            )
        if not isinstance(shapes, Mapping):
            raise TargetError(
                f"shapes of {name!r}: expected a dict of shapes by parameter, got {shapes!r}"
            )
        sized = {k: (s,) if isinstance(s, int) else tuple(s) for k, s in shapes.items()}
        super().__init__(
            name,
            reference_priors(sized, reference),
            log_joint,
            vectorized,
            dtype=dtype,
            dims=dims or {},
            coords=coords or {},
        )
        if check:
            checked_joint(self, "the function")

    @property
    def own_names(self) -> Mapping[str, str]:
        """By a parameter's name here that of ``shapes``, where it is another."""
        found: Mapping[str, str] = vars(self).get("_own_names", {})
        return found

    def renamed(self, names: Mapping[str, str]) -> Joint | None:
        """The same joint with other names for some parameters; None of black boxes.

        Raises:
            TargetError: A name is not there, or would be there twice.
        """
        old_of = old_names(self, names)
        if isinstance(self.log_likelihood, BlackBox):
            return None
        new, own = copy.copy(self), self.own_names
        fields = renamed_parts(self, old_of) | {
            "_own_names": {k: own.get(old, old) for k, old in old_of.items()}
        }
        for name, value in fields.items():
            object.__setattr__(new, name, value)
        return new
