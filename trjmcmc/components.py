"""The components of a target over counts, one by one."""

from __future__ import annotations

import torch
from torch import Tensor

from .errors import ConfigurationError
from .space import Counts
from .target import Target

ALIKE = 1e-3  # nats by which a log density may change where components trade places


class Components:
    """Rows of coordinates, one a component, of a target over :class:`~trjmcmc.Counts`.

    Components are exchangeable: which of them is called the first means nothing. That is
    checked at a few prior draws.

    Arguments:
        target: The target.

    Attributes:
        slots: Slots of each component's coordinates, shape (K, P).
        additive: Whether one component can change without the cost of the others.
        shared: Whether there are parameters beside the components'.

    Raises:
        ConfigurationError: Another space, no component, components that are not alike.

    Example:
        >>> import trjmcmc as trj
        >>> from torch.distributions import Normal
        >>> target = trj.Target(trj.Counts(3, of=("a", "b")),
        ...                     {"a": Normal(0.0, 1.0), "b": Normal(0.0, 1.0)},
        ...                     lambda p, active: p["a"].sum(-1))
        >>> Components(target).slots.tolist()
        [[0, 3], [1, 4], [2, 5]]
    """

    def __init__(self, target: Target) -> None:
        space = target.space
        if not isinstance(space, Counts) or not space.max or not target.dim:
            raise ConfigurationError("expected a space of Counts with components to count")
        self.target, self.space, self.number = target, space, space.max
        item = space.slot_item
        rows = [(item == i).nonzero()[:, 0] for i in range(space.max)]
        self.slots = torch.stack(rows)
        self.width = self.slots.shape[1]
        self.additive = target.additive is not None
        self.shared = self.slots.numel() < target.dim
        self._full = torch.full((1, 1), space.max, device=item.device)
        if not self._alike():
            raise ConfigurationError(
                "components are not exchangeable: the log density changes where they trade places"
            )

    def _alike(self) -> bool:
        generator = torch.Generator(self.target.device).manual_seed(0)
        code = self._full.expand(8, -1)
        theta = self.target.sample_prior(code, generator)
        theta = torch.where(theta.isfinite(), theta, 0.0)
        moved = self.shuffled(code, theta, generator)
        turned = self.of(theta).roll(1, dims=1).flatten(1)  # chance may leave all where they are
        moved[::2, self.slots.flatten()] = turned[::2]
        with torch.no_grad():
            before = self.target.log_joint(code, theta)
            after = self.target.log_joint(code, moved)
        both = before.isfinite() & after.isfinite()
        gap = torch.where(both, (before - after).abs(), 0.0)
        return bool((gap <= ALIKE * (1 + before.abs())).all())

    def of(self, theta: Tensor) -> Tensor:
        """Coordinates by component, (C, D) -> (C, K, P)."""
        return theta[:, self.slots]

    def one(self, theta: Tensor, index: Tensor) -> Tensor:
        """Coordinates of one component of each chain, (C, P)."""
        return theta.gather(1, self.slots[index])

    def put(self, theta: Tensor, index: Tensor, x: Tensor | float) -> Tensor:
        """Coordinates with one component of each chain replaced, (C, D)."""
        slots = self.slots[index]
        if not isinstance(x, Tensor):
            x = torch.full_like(slots, x, dtype=theta.dtype)
        return theta.scatter(1, slots, x)

    def shuffled(self, code: Tensor, theta: Tensor, generator: torch.Generator) -> Tensor:
        """Components in random order, (C, D): the same point under other names."""
        noise = torch.rand(len(code), self.number, generator=generator, device=code.device)
        order = torch.where(self.space.items(code), noise, 2.0).argsort(dim=1, stable=True)
        rows = self.of(theta).gather(1, order[:, :, None].expand(-1, -1, self.width))
        moved = theta.clone()
        moved[:, self.slots.flatten()] = rows.flatten(1)
        return moved

    def some(self, code: Tensor, generator: torch.Generator) -> Tensor:
        """Index of a random component of each chain, (C,); 0 where there is none."""
        u = torch.rand(len(code), generator=generator, device=code.device)
        return (u * code[:, 0]).long().minimum(code[:, 0] - 1).clamp(min=0)

    def sample_prior(self, theta: Tensor, seed: int) -> Tensor:
        """A component of each chain from the prior, given what all share, (C, P)."""
        keep = torch.ones_like(theta, dtype=torch.bool)
        keep[:, self.slots[0]] = False
        code = self._full.expand(len(theta), -1)
        return self.target.refill(code, theta, keep, seed)[:, self.slots[0]]

    def log_prior(self, theta: Tensor, x: Tensor) -> Tensor:
        """Log prior density of one component of each chain, given what all share, (C,)."""
        first = torch.zeros(len(x), dtype=torch.long, device=x.device)
        code = self._full.expand(len(x), -1)
        by_slot = self.target.prior_by_slot(code, self.put(theta, first, x))
        return by_slot[:, self.slots[0]].sum(-1)

    def contribution(self, theta: Tensor, x: Tensor) -> Tensor:
        """What one component adds, float64, (C, *data); the likelihood must be additive."""
        first = torch.zeros(len(x), dtype=torch.long, device=x.device)
        return self.target.contribution(self.put(theta, first, x))

    def total(self, code: Tensor, theta: Tensor) -> Tensor | None:
        """What all components add up to, float64, (C, *data), if the likelihood is additive."""
        return self.target.total(code, theta) if self.additive else None
