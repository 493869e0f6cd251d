"""Likelihoods of what components add up to: one component can change without the others' cost."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from .errors import ConfigurationError

Params = Mapping[str, Tensor]

CELLS = 2**24  # numbers that the contributions of a batch may take


class Additive:
    r"""A log-likelihood that sees its components through a sum.

    .. math:: \log p(y \mid x_1, \ldots, x_k, s) = g\Bigl(\sum_{j=1}^k f(x_j, s), s\Bigr)

    Signals in noise are of this kind (f is a component's signal), and mixtures (f is a
    component's weight times its density at every observation, and the weight itself). It is
    called as any likelihood of a space of components; padding and masks are its own affair.
    Moves that change one component then cost one or two calls of f, however many there are.

    Arguments:
        contribution: f. Function of the parameters of N components: those that a component
            has of its own, each of shape (N, *shape of one), and the shared ones, (N, *shape).
            Returns (N, *data).
        combine: g. Function of the sum, shape (C, *data), zero where there is no component, in
            double precision, so that what was added can be taken away; and of the shared
            parameters, (C, *shape). Returns (C,), nats.

    Example:
        >>> import trjmcmc as trj
        >>> from torch.distributions import Normal, Uniform
        >>> t, y = torch.linspace(0, 1, 50), torch.ones(50)
        >>> target = trj.Target(
        ...     trj.Counts(3, of=("height", "start")),
        ...     {"height": Normal(0.0, 1.0), "start": Uniform(0.0, 1.0)},
        ...     trj.Additive(
        ...         lambda p: p["height"][:, None] * (t > p["start"][:, None]),
        ...         lambda total, p: Normal(total, 0.5).log_prob(y).sum(-1),
        ...     ),
        ... )
        >>> target.log_joint(torch.tensor([[0], [2]]), torch.zeros(2, 6)).shape
        torch.Size([2])
    """

    def __init__(
        self,
        contribution: Callable[[Params], Tensor],
        combine: Callable[[Tensor, Params], Tensor],
    ) -> None:
        self.contribution, self.combine = contribution, combine
        self.of: tuple[str, ...] | None = None

    def bound(self, of: Sequence[str]) -> Additive:
        """The same with the names of what each component has of its own."""
        new = copy.copy(self)
        new.of = tuple(of)
        return new

    def shared(self, params: Params) -> dict[str, Tensor]:
        return {k: v for k, v in params.items() if k not in self._names()}

    def of_one(self, params: Params, item: int = 0) -> Tensor:
        """What one component of each point adds, (C, *data)."""
        row = torch.arange(len(next(iter(params.values()))))
        return self._of_rows(params, row, torch.full_like(row, item))

    def total(self, params: Params, active: Tensor) -> Tensor:
        """The sum over the active components, float64, (C, *data)."""
        row, item = active.nonzero(as_tuple=True)
        first = torch.zeros(1, dtype=torch.long, device=active.device)
        with torch.no_grad():  # a component that is not counted tells the shape of the data
            like = self._of_rows(params, first, first)[0]
        total = like.new_zeros(len(active), *like.shape, dtype=torch.float64)
        size = max(1, CELLS // max(1, like.numel()))
        for rows, items in zip(row.split(size), item.split(size), strict=True):
            if len(rows):
                total = total.index_add(0, rows, self._of_rows(params, rows, items).double())
        return total

    def _of_rows(self, params: Params, row: Tensor, item: Tensor) -> Tensor:
        own = {k: v[row, item] if k in self._names() else v[row] for k, v in params.items()}
        return self._checked(self.contribution(own), len(row))

    def __call__(self, params: Params, active: Tensor) -> Tensor:
        return self.combine(self.total(params, active), self.shared(params))

    def _names(self) -> tuple[str, ...]:
        if self.of is None:
            raise ConfigurationError("Additive: pass it to a Target over trj.Counts or trj.Subsets")
        return self.of

    def _checked(self, value: Tensor, n: int) -> Tensor:
        if not isinstance(value, Tensor) or value.shape[:1] != (n,):
            got = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise ConfigurationError(
                f"Additive: contribution: expected a tensor of shape ({n}, *data) for {n} "
                f"components, got {got}"
            )
        return value
