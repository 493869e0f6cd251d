"""Mixtures of maps: several components, one density, still one reference."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..errors import ConfigurationError
from ..space import Space
from .base import Bijection, Gaussian, Reference, Transport
from .cosmic import TABLE, CosmicFlow

COMPONENTS = 4  # of the default map: measured as good as 8, better than 1 on several modes


class Mixture(Transport):
    r"""A weighted mixture of maps, optionally seen through one outer map.

    .. math:: q(\theta | m) = \sum_c w_c(m) \, q_c(T^{-1}(\theta) | m) \, |\det dT^{-1}/d\theta|

    One more reference coordinate chooses the component: the reference is cut into intervals of
    probability w_c. A point of theta is pulled back through a component drawn in proportion to
    w_c q_c, so that (theta, choice) is a point of an enlarged space on which moves through the
    reference stay exact. A move that keeps the reference point and changes the choice leads
    from one mode to another.

    Arguments:
        components: Bijections of one space that pass spare coordinates, with one reference.
        outer: A bijection T that all components share; the identity if omitted.
        log_weights: Shape (M, K) by model, or (1, K); not normalised; equal if omitted.
        sticky: Whether small moves tend to keep the component; otherwise each proposal
            draws it afresh.

    Raises:
        ConfigurationError: No component, or one that moves spare coordinates.

    Source:
        Mixture bases: Izmailov et al. (2020), https://arxiv.org/abs/1912.13025

    Example:
        >>> from trjmcmc import problems
        >>> space = problems.sinh_arcsinh().space
        >>> flow = Mixture([CosmicFlow(space, layers=2, hidden=(8,), seed=i) for i in range(2)])
        >>> z = flow.sample_reference(5, torch.Generator().manual_seed(0), torch.float32)
        >>> theta, log_q = flow.push(z, torch.tensor([[0], [1], [0], [1], [1]]))
        >>> z.shape, theta.shape, log_q.shape
        (torch.Size([5, 3]), torch.Size([5, 2]), torch.Size([5]))
    """

    auxiliary = 1

    def __init__(
        self,
        components: Sequence[Bijection],
        outer: Bijection | None = None,
        *,
        log_weights: Tensor | None = None,
        sticky: bool = True,
    ) -> None:
        if not components or not all(c.spares_pass for c in components):
            raise ConfigurationError("Mixture: expected components that pass spare coordinates")
        first = components[0]
        super().__init__(first.space, first.reference)
        self.components, self.outer = nn.ModuleList(components), outer
        self.sticky = sticky
        size = self.space.size
        tables = size if size is not None and size <= TABLE else 1
        k = len(components)
        table = torch.zeros(tables, k) if log_weights is None else torch.as_tensor(log_weights)
        self.log_weights = nn.Parameter(table.expand(tables, k).clone())

    def _weights(self, code: Tensor) -> Tensor:
        """Log weights of the components, shape (C, K)."""
        if len(self.log_weights) == 1:
            return self.log_weights.log_softmax(-1).expand(len(code), -1)
        return self.log_weights.log_softmax(-1)[self.space.index(code)]

    def _choice(self, z: Tensor, log_w: Tensor) -> Tensor:
        """The component that each reference point stands for, shape (C,)."""
        u = torch.special.ndtr(z[:, -1:])
        edges = log_w.exp().cumsum(-1)[:, :-1]
        return (u > edges).sum(-1)

    def log_choice(self, z: Tensor, code: Tensor) -> Tensor:
        log_w = self._weights(code)
        return log_w.gather(1, self._choice(z, log_w)[:, None])[:, 0]

    def _terms(self, x: Tensor, code: Tensor) -> tuple[Tensor, Tensor]:
        """Reference points (C, K, D) and log densities times weights (C, K) of all components."""
        found = [c.to_reference(x, code) for c in self.components]
        z = torch.stack([z for z, _ in found], 1)
        active = self.space.active(code)[:, None]
        log_nu = torch.where(active, self.reference.log_prob(z), 0.0).sum(-1)
        return z, log_nu + torch.stack([ladj for _, ladj in found], 1) + self._weights(code)

    def push(self, z: Tensor, code: Tensor) -> tuple[Tensor, Tensor]:
        pick = self._choice(z.detach(), self._weights(code).detach())
        inner = z[:, :-1]
        pushed = torch.stack([c.from_reference(inner, code)[0] for c in self.components], 1)
        x = _pick(pushed, pick)
        log_q = self._terms(x, code)[1].logsumexp(-1)
        if self.outer is None:
            return x, log_q
        theta, ladj = self.outer.from_reference(x, code)
        return theta, log_q - ladj

    def _inwards(self, theta: Tensor, code: Tensor) -> tuple[Tensor, Tensor | float]:
        return (theta, 0.0) if self.outer is None else self.outer.to_reference(theta, code)

    def pull(
        self, theta: Tensor, code: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        x, ladj = self._inwards(theta, code)
        z, terms = self._terms(x, code)
        u, v = torch.rand(
            2, *terms.shape, generator=generator, device=theta.device, dtype=theta.dtype
        )
        pick = (terms - torch.log(-torch.log(u))).argmax(-1)
        log_w = self._weights(code)
        upper = log_w.exp().cumsum(-1).gather(1, pick[:, None])[:, 0]
        width = log_w.gather(1, pick[:, None])[:, 0].exp()
        tiny = torch.finfo(theta.dtype).eps
        place = (upper - width * v[:, 0]).clamp(tiny, 1 - tiny)
        chooser = torch.special.ndtri(place)[:, None]
        return torch.cat([_pick(z, pick), chooser], -1), terms.logsumexp(-1) + ladj

    def log_prob(self, theta: Tensor, code: Tensor) -> Tensor:
        x, ladj = self._inwards(theta, code)
        return self._terms(x, code)[1].logsumexp(-1) + ladj

    def sample_reference(self, n: int, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
        z = super().sample_reference(n, generator, dtype)
        return torch.cat([z, Gaussian().sample((n, 1), generator, dtype)], -1)

    def refresh(self, z: Tensor, rho: Tensor | float, generator: torch.Generator) -> Tensor:
        inner = self.reference.refresh(z[:, :-1], rho, generator)
        chooser = Gaussian().refresh(z[:, -1:], rho if self.sticky else 0.0, generator)
        return torch.cat([inner, chooser], -1)

    def calibrate(self, code: Tensor, loc: Tensor, scale: Tensor) -> None:
        for shell in self.components if self.outer is None else [self.outer]:
            shell.calibrate(code, loc, scale)


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
        >>> len(flow.components)
        4
    """
    if components < 1:
        raise ConfigurationError(f"components: expected 1 or more, got {components}")
    flow = CosmicFlow(space, reference=reference, seed=seed, **options)  # type: ignore[arg-type]
    if components == 1 or not space.n_slots:
        return flow
    generator = torch.Generator().manual_seed(seed)
    bases = []
    for i in range(components):
        base = CosmicFlow(space, layers=0, bins=0, reference=flow.reference, seed=seed + i)
        # apart from each other, or they would never learn to differ
        where = torch.randn(space.n_slots, generator=generator)
        base.loc.copy_(where.expand_as(base.loc))
        bases.append(base)
    return Mixture(bases, flow)


def _pick(x: Tensor, which: Tensor) -> Tensor:
    """Row by row one of K, (C, K, D) and (C,) -> (C, D)."""
    return x.gather(1, which[:, None, None].expand(-1, 1, x.shape[-1]))[:, 0]
