"""Mixtures of maps: several components, one density, still one reference."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from ..errors import ConfigurationError
from ..space.base import Space
from .base import Bijection, Choosing, Standardisable, Transport
from .cosmic import CosmicFlow
from .parts import ASTRAY, Diagonals, Maps, Parts
from .reference import Extended, Reference
from .standard import TABLE

COMPONENTS = 4  # maps in the default mixture: as good as 8, better than 1 on several modes


class MixtureOfMaps(Choosing):
    r"""A weighted mixture of maps, optionally seen through one outer map.

    .. math:: q(\theta | m) = \sum_c w_c(m) \, q_c(T^{-1}(\theta) | m) \, |\det dT^{-1}/d\theta|

    One more reference coordinate chooses the component: the reference is cut into intervals of
    probability w_c. A point of theta is pulled back through a component drawn in proportion to
    w_c q_c, so that (theta, choice) is a point of an enlarged space on which moves through the
    reference stay exact. A move that keeps the reference point and changes the choice leads
    from one mode to another.

    Arguments:
        components: Bijections of one space that pass spare coordinates, with one reference; or
            a :class:`Parts` that evaluates them together.
        outer: A bijection T that all components share; the identity if omitted.
        log_weights: Shape (M, K) by model, or (1, K); not normalised; equal if omitted.
        sticky: Whether small moves tend to keep the component; otherwise each proposal
            draws it afresh.

    Raises:
        ConfigurationError: No component, or a map that moves spare coordinates.

    Source:
        Mixture bases: Izmailov et al. (2020), https://arxiv.org/abs/1912.13025

    Example:
        >>> from trjmcmc import problems
        >>> space = problems.sinh_arcsinh().space
        >>> maps = [CosmicFlow(space, layers=2, hidden=(8,), seed=i) for i in range(2)]
        >>> flow = MixtureOfMaps(maps)
        >>> z = flow.reference.sample((5, 2), torch.Generator().manual_seed(0), torch.float32)
        >>> theta, log_q = flow.push(z, torch.tensor([[0], [1], [0], [1], [1]]))
        >>> z.shape, theta.shape, log_q.shape
        (torch.Size([5, 3]), torch.Size([5, 2]), torch.Size([5]))
    """

    def __init__(
        self,
        components: Parts | Sequence[Bijection],
        outer: Bijection | None = None,
        *,
        log_weights: Tensor | None = None,
        sticky: bool = True,
    ) -> None:
        if not isinstance(components, Parts):
            if not components or not all(c.spares_pass for c in components):
                raise ConfigurationError("components: expected maps that pass spare coordinates")
            components = Maps(components)
        if outer is not None and not outer.spares_pass:
            raise ConfigurationError("outer: expected a map that passes spare coordinates")
        super().__init__(components.space, Extended(components.reference, 1, sticky=sticky))
        self.components, self.outer = components, outer
        size = self.space.size
        tables = size if size is not None and size <= TABLE else 1
        k = components.number
        table = torch.zeros(tables, k) if log_weights is None else torch.as_tensor(log_weights)
        self.log_weights = nn.Parameter(table.expand(tables, k).clone())

    def _of(self, table: Tensor, code: Tensor) -> Tensor:
        """Rows of a table (M, ...) or (1, ...) by model, (C, ...)."""
        if len(table) == 1:
            return table.expand(len(code), *table.shape[1:])
        return table.index_select(0, self.space.index(code))

    def _weights(self, code: Tensor) -> Tensor:
        """Log weights of the components, shape (C, K)."""
        return self._of(self.log_weights.log_softmax(-1), code)

    def _edges(self) -> Tensor:
        """Upper ends of the intervals of the components, (M, K), in float64; the last is 1."""
        edges = self.log_weights.detach().log_softmax(-1).double().exp().cumsum(-1)
        return edges / edges[:, -1:]

    def _choice(self, z: Tensor, code: Tensor) -> Tensor:
        """The component that each reference point stands for, shape (C,)."""
        edges = self._of(self._edges()[:, :-1], code)
        return (torch.special.ndtr(z.detach()[:, -1:].double()) > edges).sum(-1)

    def log_choice(self, z: Tensor, code: Tensor) -> Tensor:
        return self._weights(code).gather(1, self._choice(z, code)[:, None])[:, 0]

    def push(self, z: Tensor, code: Tensor) -> tuple[Tensor, Tensor]:
        pick = self._choice(z, code)
        x = self.components.push(z[:, :-1], pick, code)
        log_q = (self.components.log_prob(x, code) + self._weights(code)).logsumexp(-1)
        if not self.components.faithful:
            with torch.no_grad():  # rounding may hide where the point is from
                astray = (self.components.pull(x, pick, code) - z[:, :-1]).abs()
                lost = astray > ASTRAY * (1 + z[:, :-1].abs())
            lost = (lost & self.space.active(code)).any(-1)
            log_q = torch.where(lost, math.inf, log_q)
        if self.outer is None:
            return x, log_q
        theta, ladj = self.outer.from_reference(x, code)
        return theta, log_q - ladj

    def log_shares(self, z: Tensor, code: Tensor, log_ratio: Callable[[Tensor], Tensor]) -> Tensor:
        """Of each component its share of the density at a pushed point, times a function there.

        Arguments:
            z: Reference points, shape (C, D + 1).
            code: Models, shape (C, L).
            log_ratio: Log of a function of a component's reference points, (C, D) -> (C,). With
                the ratio of another density to the reference's, the sum over components is that
                of the mixture whose components have the other one.

        Returns:
            Shape (C, K), nats.
        """
        pick = self._choice(z, code)
        x = self.components.push(z[:, :-1], pick, code)
        shares = (self.components.log_prob(x, code) + self._weights(code)).log_softmax(-1)
        each = [
            log_ratio(self.components.pull(x, torch.full_like(pick, k), code))
            for k in range(self.components.number)
        ]
        return shares + torch.stack(each, 1)

    def _inwards(self, theta: Tensor, code: Tensor) -> tuple[Tensor, Tensor | float]:
        return (theta, 0.0) if self.outer is None else self.outer.to_reference(theta, code)

    def pull(
        self, theta: Tensor, code: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        x, ladj = self._inwards(theta, code)
        terms = self.components.log_prob(x, code) + self._weights(code)
        log_q = terms.logsumexp(-1)
        u = torch.rand(2, len(x), 1, generator=generator, device=x.device, dtype=torch.float64)
        sums = (terms.double() - log_q[:, None]).exp().cumsum(-1)
        pick = (sums <= u[0] * sums[:, -1:]).sum(-1)
        edges = torch.nn.functional.pad(self._edges(), (1, 0))
        low, high = (self._of(edges[:, i:][:, : terms.shape[1]], code) for i in (0, 1))
        low, high = (ends.gather(1, pick[:, None]) for ends in (low, high))
        tiny = torch.finfo(edges.dtype).eps
        place = (high - (high - low) * u[1]).clamp(tiny, 1 - tiny)
        z = self.components.pull(x, pick, code)
        return torch.cat([z, torch.special.ndtri(place).to(z)], -1), log_q + ladj

    def log_prob(self, theta: Tensor, code: Tensor) -> Tensor:
        x, ladj = self._inwards(theta, code)
        terms = self.components.log_prob(x, code) + self._weights(code)
        return terms.logsumexp(-1) + ladj

    def standardise(self, code: Tensor, loc: Tensor, scale: Tensor) -> None:
        inside = self.components if self.outer is None else self.outer
        if isinstance(inside, Standardisable):
            inside.standardise(code, loc, scale)


def mixture_flow(
    space: Space,
    *,
    components: int = COMPONENTS,
    reference: Reference | None = None,
    seed: int = 0,
    **options: object,
) -> Transport:
    """The default map: a :class:`CosmicFlow` on a base of several diagonal normals.

    Arguments:
        space: A bound model space.
        components: Normals in the base, spread at random to begin with; 1 is the plain flow.
        reference: Standard normal if omitted.
        seed: Seed of the initial weights.
        options: Further arguments of :class:`CosmicFlow`.

    Example:
        >>> from trjmcmc import problems
        >>> flow = mixture_flow(problems.sinh_arcsinh().space, layers=2, hidden=(8,))
        >>> flow.components.number
        4
    """
    if components < 1:
        raise ConfigurationError(f"components: expected 1 or more, got {components}")
    flow = CosmicFlow(space, reference=reference, seed=seed, **options)  # type: ignore[arg-type]
    if components == 1 or not space.n_slots:
        return flow
    return MixtureOfMaps(Diagonals(space, flow.reference, components, seed), flow)
