"""One prior of a model in another language, as torch knows distributions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

LogProb = Callable[[Tensor, Mapping[str, Tensor]], Tensor]

Sample = Callable[[int, Mapping[str, Tensor], int], Tensor]


class Site(Distribution):
    """A prior whose density and draws the language gives that it was written in.

    Arguments:
        log_prob: Of values (C, *batch, *event) and the parameters before it, (C, *shape) by
            name: log density by batch entry, (C, *batch), nats; differentiable, in all of them.
        sample: Of a number n, parameters before it (n, *shape), and an integer seed: draws
            (n, *batch, *event). Parameters before it are empty where it depends on none.
        support: Constraint of torch.distributions that all values satisfy.
        batch_shape, event_shape: Of one value.
        like: A tensor in the language's precision.
        given: Parameters before it, (C, *shape) by name, where it depends on some: its batch
            shape then starts with C.

    Example:
        >>> def log_prob(value, given):
        ...     return -0.5 * ((value - given["m"]) ** 2 + 1.8378770664093453)
        >>> def sample(n, given, seed):
        ...     g = torch.Generator().manual_seed(seed)
        ...     return given["m"] + torch.randn(n, generator=g)
        >>> site = Site(log_prob, sample, constraints.real, given={"m": torch.zeros(3)})
        >>> site.batch_shape, site.sample().shape, site.log_prob(torch.zeros(3)).shape
        (torch.Size([3]), torch.Size([3]), torch.Size([3]))
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}
    has_rsample = False

    def __init__(
        self,
        log_prob: LogProb,
        sample: Sample,
        support: Any,
        batch_shape: Any = (),
        event_shape: Any = (),
        *,
        like: Tensor | None = None,
        given: Mapping[str, Tensor] | None = None,
    ) -> None:
        self._log_prob, self._sample, self._support = log_prob, sample, support
        self._given = dict(given or {})
        first = next(iter(self._given.values()), None)
        lead = () if first is None else (len(first),)
        if like is None:
            like = torch.zeros(()) if first is None else first
        self.like = like.detach().new_zeros(())
        super().__init__(
            torch.Size((*lead, *batch_shape)), torch.Size(event_shape), validate_args=False
        )

    @property
    def support(self) -> Any:
        """Where values lie."""
        return self._support

    def expand(self, batch_shape: Any, _instance: Any = None) -> Site:
        """Itself: a prior of another language has the shape that it has."""
        if torch.Size(batch_shape) != self.batch_shape:
            raise NotImplementedError(
                f"a prior of another language keeps its batch shape {tuple(self.batch_shape)}"
            )
        return self

    def _rows(self, lead: torch.Size) -> tuple[int, dict[str, Tensor]]:
        """How many rows a call has, and the parameters before it repeated for them."""
        rows = lead.numel()
        if not self._given:
            return rows, {}
        repeat = rows // max(1, self.batch_shape[0])
        if repeat == 1:
            return rows, self._given
        return rows, {k: v.repeat(repeat, *[1] * (v.dim() - 1)) for k, v in self._given.items()}

    def log_prob(self, value: Tensor) -> Tensor:
        """Log density of values (..., *batch, *event), shape (..., *batch), nats."""
        own = len(self.event_shape) + len(self.batch_shape) - bool(self._given)
        lead = value.shape[: value.dim() - own]
        rows, given = self._rows(lead)
        flat = value.reshape(rows, *value.shape[len(lead) :])
        found = self._log_prob(flat, given)
        return found.reshape(*lead, *self.batch_shape[bool(self._given) :])

    def sample(self, sample_shape: Any = torch.Size()) -> Tensor:  # noqa: B008
        """Draws by the language's generator, seeded from torch's, (*sample, *batch, *event)."""
        whole = torch.Size(sample_shape) + self.batch_shape[: bool(self._given)]
        rows, given = self._rows(whole)
        with torch.no_grad():
            seed = int(torch.randint(2**32, ()))  # by the generator that targets seed
            found = self._sample(rows, given, seed).to(self.like)
        return found.reshape(*sample_shape, *self.batch_shape, *self.event_shape)

    def __repr__(self) -> str:
        return f"Site(batch_shape={tuple(self.batch_shape)}, event_shape={tuple(self.event_shape)})"


class Conditional:
    """A prior that depends on parameters before it: a function that makes a :class:`Site`.

    Arguments:
        parents: Names of the parameters that it depends on, in the language's names.
        support: Constraint, or a function of the parents' values that gives it.
        log_prob, sample, batch_shape, event_shape, like: As of :class:`Site`.

    Example:
        >>> prior = Conditional(
        ...     ["m"],
        ...     lambda value, given: -0.5 * ((value - given["m"]) ** 2 + 1.8378770664093453),
        ...     lambda n, given, seed: given["m"] + torch.zeros(n),
        ...     constraints.real,
        ... )
        >>> prior({"m": torch.ones(2), "other": torch.ones(2)})
        Site(batch_shape=(2,), event_shape=())
    """

    def __init__(
        self,
        parents: Any,
        log_prob: LogProb,
        sample: Sample,
        support: Any,
        batch_shape: Any = (),
        event_shape: Any = (),
        *,
        like: Tensor | None = None,
    ) -> None:
        self.parents = list(parents)
        self.log_prob, self.sample, self.support = log_prob, sample, support
        self.batch_shape, self.event_shape, self.like = batch_shape, event_shape, like

    def __call__(self, values: Mapping[str, Tensor]) -> Site:
        given = {name: values[name] for name in self.parents}
        support = self.support
        if not isinstance(support, constraints.Constraint):
            support = support(given)
        return Site(
            self.log_prob,
            self.sample,
            support,
            self.batch_shape,
            self.event_shape,
            like=next(iter(given.values())),
            given=given,
        )
