"""Likelihoods of what components add up to: one component can change without the others' cost."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from ..errors import ConfigurationError
from ..grouping import on_host
from ..priors.foreign import from_elsewhere, is_frozen

Params = Mapping[str, Tensor]

Contribution = Callable[[Params], Tensor]

Active = Tensor | Mapping[str, Tensor]  # what is on, (C, items); by name if there are several kinds

CELLS = 2**24  # most numbers of contributions of components that are held at once


class Additive:
    r"""A log-likelihood that sees its components through a sum.

    .. math:: \log p(y \mid x_1, \ldots, x_k, s) = g\Bigl(\sum_{j=1}^k f(x_j, s), s\Bigr)

    Signals in noise are of this kind (f is a component's signal), and mixtures (f is a
    component's weight times its density at every observation, and the weight itself). It is
    called as any likelihood of a space of components; it handles padding and masks.
    Moves that change one component then cost one or two calls of f, however many there are.

    Arguments:
        contribution: f. Function of the parameters of N components: those that a component
            has of its own, each of shape (N, *shape of one), and the shared ones, (N, *shape).
            Returns (N, *data). With several kinds of components a dict of functions by the
            kinds' names; all add to one sum.
        combine: g. Function of the sum, shape (C, *data), zero where there is no component, in
            double precision, so that what was added can be taken away; and of the shared
            parameters, (C, *shape). Returns (C,), nats.
        linear: Parameters of components that the contribution is linear in, all together; newborns
            get them from their normal given the data. None to find that out, () for none.
        births: By name, densities of parameters of a component from which some of the newborns
            are drawn, as from a periodogram; distributions of torch or frozen ones of SciPy.
            What they leave out is proposed otherwise: the answer does not depend on them.

    Raises:
        ConfigurationError: No component has such a parameter; when the target is built.
        TargetError: A contribution is not linear in what was stated, a density has another shape
            than the parameter; when moves are first made.

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
        contribution: Contribution | Mapping[str, Contribution],
        combine: Callable[[Tensor, Params], Tensor],
        *,
        linear: Sequence[str] | None = None,
        births: Mapping[str, Any] | None = None,
    ) -> None:
        self.contribution, self.combine = contribution, combine
        self.linear = [linear] if isinstance(linear, str) else linear
        self.births: dict[str, Distribution] = {
            name: from_elsewhere(density) if is_frozen(density) else density
            for name, density in (births or {}).items()
        }
        self._of: dict[str, Sequence[str]] | None = None

    def bound(self, of: Mapping[str, Sequence[str]]) -> Additive:
        """The same with the names of what each component has of its own, by kind.

        Raises:
            ConfigurationError: A kind without a function, or a function without a kind.
        """
        kinds = list(of)
        if isinstance(self.contribution, Mapping):
            if missing := [kind for kind in kinds if kind not in self.contribution]:
                raise ConfigurationError(f"Additive: contribution: no function for {missing}")
            if unknown := [kind for kind in self.contribution if kind not in kinds]:
                raise ConfigurationError(
                    f"Additive: contribution: no components are called {unknown}; there are {kinds}"
                )
        elif len(kinds) > 1:
            raise ConfigurationError(
                f"Additive: contribution: expected a dict with a function for each of {kinds}, "
                "got one function"
            )
        own = {name for names in of.values() for name in names}
        if odd := [name for name, d in self.births.items() if not isinstance(d, Distribution)]:
            raise ConfigurationError(
                f"Additive: births: expected distributions, got something else for {odd}"
            )
        if odd := [name for name in [*(self.linear or ()), *self.births] if name not in own]:
            raise ConfigurationError(
                f"Additive: linear, births: no component has {odd}; they have {sorted(own)}"
            )
        new = copy.copy(self)
        new._of = dict(of)
        return new

    def shared(self, params: Params) -> dict[str, Tensor]:
        own = {name for names in self._kinds().values() for name in names}
        return {k: v for k, v in params.items() if k not in own}

    def of_one(self, params: Params, kind: str) -> Tensor:
        """What the first component of a kind adds, at each point, (C, *data)."""
        first = next(iter(params.values()))
        row = torch.arange(len(first), device=first.device)
        return self._of_rows(params, row, torch.zeros_like(row), kind)

    def total(self, params: Params, active: Active) -> Tensor:
        """The sum over the active components, float64, (C, *data)."""
        sums: dict[str, Tensor] = {}
        for kind in self._kinds():
            on = active if isinstance(active, Tensor) else active[kind]
            if on.shape[1]:
                sums[kind] = self._sum(params, on, kind)
        if not sums:
            raise ConfigurationError(
                "Additive: there is never a component, so that nothing says what they would add; "
                "write an ordinary likelihood or let max be 1 or more"
            )
        shapes = {kind: tuple(total.shape[1:]) for kind, total in sums.items()}
        if len(set(shapes.values())) > 1:
            raise ConfigurationError(
                f"Additive: contribution: kinds must add data of one shape, got {shapes}"
            )
        return reduce(torch.add, sums.values())

    def _sum(self, params: Params, on: Tensor, kind: str) -> Tensor:
        if not on_host(on):
            return self._dense_sum(params, on, kind)
        row, item = on.nonzero(as_tuple=True)
        first = torch.zeros(1, dtype=torch.long, device=on.device)
        with torch.no_grad():  # a component that is not counted tells the shape of the data
            like = self._of_rows(params, first, first, kind)[0]
        total = like.new_zeros(len(on), *like.shape, dtype=torch.float64)
        size = max(1, CELLS // max(1, like.numel()))
        for rows, items in zip(row.split(size), item.split(size), strict=True):
            if len(rows):
                found = self._of_rows(params, rows, items, kind)
                total = total.index_add(0, rows, found.double())
        return total

    def _dense_sum(self, params: Params, on: Tensor, kind: str) -> Tensor:
        """The sum over all components, those that are not counted times zero.

        A device is not asked how many there are. In place of one that is not counted stands the
        first of all that are: what it adds is finite, and so are slopes.
        """
        number = on.shape[1]
        flat = torch.arange(on.numel(), device=on.device)
        flat = torch.where(on.flatten(), flat, on.flatten().long().argmax())
        row, item = (x.view(on.shape) for x in (flat // number, flat % number))
        with torch.no_grad():
            like = self._of_rows(params, row[:1, 0], item[:1, 0], kind)[0]
        size = max(1, CELLS // max(1, like.numel() * number))
        sums, parts = [], (x.split(size) for x in (row, item, on))
        for rows, items, here in zip(*parts, strict=True):
            found = self._of_rows(params, rows.flatten(), items.flatten(), kind).double()
            found = found.view(*here.shape, *like.shape)
            counted = here.view(*here.shape, *[1] * like.dim())
            sums.append(torch.where(counted, found, 0.0).sum(1))
        return torch.cat(sums) if sums else like.new_zeros(0, *like.shape, dtype=torch.float64)

    def _of_rows(self, params: Params, row: Tensor, item: Tensor, kind: str) -> Tensor:
        own = self._kinds()[kind]
        given = {k: v[row] for k, v in self.shared(params).items()}
        given |= {k: params[k][row, item] for k in own}
        f = self.contribution
        return self._checked((f[kind] if isinstance(f, Mapping) else f)(given), len(row))

    def __call__(self, params: Params, active: Active) -> Tensor:
        return self.combine(self.total(params, active), self.shared(params))

    def _kinds(self) -> dict[str, Sequence[str]]:
        if self._of is None:
            raise ConfigurationError("Additive: pass it to a Target over trj.Counts or trj.Subsets")
        return self._of

    def _checked(self, value: Tensor, n: int) -> Tensor:
        if not isinstance(value, Tensor) or value.shape[:1] != (n,):
            got = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise ConfigurationError(
                f"Additive: contribution: expected a tensor of shape ({n}, *data) for {n} "
                f"components, got {got}"
            )
        return value
