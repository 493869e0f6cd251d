"""Births and deaths of one component at a time."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor

from ...errors import ConfigurationError
from ...grouping import on_host
from ...rng import categorical, host_number
from ...target.exchangeable import Components, components
from ...target.target import Target
from ...transport.normals import NormalMixture
from ..base import Info, Kernel, State, accept
from ..learning import RecentRows, due
from .sums import known_total, memo_of

NORMALS = 16  # components of the mixture of normals that newborns are drawn from

PRIOR_SHARE = 0.2  # share of the births that are drawn from the prior

THERE = 0.25  # share of the others like components that stay: their modes may be far apart

FEW = 100  # least number of components that a mixture is fitted to

REMEMBERED = 20_000  # components of accepted births and deaths, and present ones, that a fit uses

FIRST_FIT = 16  # warm-up step after which mixtures are fitted first; then after 32, 64, ...

BOLDEST = 5.0  # bound of log d, the log rate at which one component dies beside another


class ComponentBirthDeath(Kernel):
    r"""Births from a learned density, and deaths of the components that come and go.

    Warm-up remembers the components of accepted births and deaths, and those that are there,
    and fits mixtures of normals c and a to them, in unconstrained coordinates. A newborn comes
    from h = s p_0 + (1 - s) f with p_0 the prior, so that nothing is out of reach, and f the
    mixture of three parts of c and one of a: what is there in few chains, and never dies, is born
    too. The component to die is chosen in proportion to d = f / a, at most e^5. With k + 1
    components after a birth of x the ratio is

    .. math:: \frac{\pi(\theta, x)}{\pi(\theta)} \,
              \frac{(k + 1) \, d(x) / \sum_j d(x_j)}{h(x)},

    where k + 1 counts the places that the newborn could have: components are exchangeable, and
    get new names at each step. Where the likelihood is :class:`~trjmcmc.Additive` a step costs
    what one component costs.

    Arguments:
        target: A target over :class:`~trjmcmc.Counts` whose components are exchangeable.
        kind: Name or position of the kind of components, where there are several.
        normals: Of each mixture.
        prior_share: s, in (0, 1]; 1 learns nothing and is the classical move.
        name: Shown in tables, with the kind where there are several.

    Raises:
        ConfigurationError: Another space, components that are not exchangeable, no such kind, a
            setting out of range.

    Source:
        Green (1995), https://doi.org/10.1093/biomet/82.4.711; Stephens (2000), on
        exchangeable components, https://doi.org/10.1214/aos/1016120364

    Example:
        >>> from trjmcmc import problems
        >>> from trjmcmc.kernel import start
        >>> target = problems.pulses(points=50)
        >>> code = torch.tensor([[0], [3]])
        >>> state = start(target, code, torch.zeros(2, target.dim))
        >>> move = ComponentBirthDeath(target)
        >>> state, (info,) = move.step(state, torch.Generator().manual_seed(0))
        >>> info.kernel, info.proposed.code.shape
        ('components', torch.Size([2, 1]))
    """

    between = True

    def __init__(
        self,
        target: Target,
        kind: Components | int | str | None = None,
        *,
        normals: int = NORMALS,
        prior_share: float = PRIOR_SHARE,
        name: str = "components",
    ) -> None:
        if normals < 1 or not 0 < prior_share <= 1:
            raise ConfigurationError(
                "normals, prior_share: expected 1 or more and a share in (0, 1], got "
                f"{normals} and {prior_share}"
            )
        self.target, self.components = target, components(target, kind)
        self.name = self.components.named(name)
        self.normals, self.share = normals, prior_share
        self._born: NormalMixture | None = None  # what comes and goes
        self._there: NormalMixture | None = None  # what is there
        self._changed = self._seen = RecentRows(REMEMBERED)
        self._steps = 0

    def step(self, state: State, generator: torch.Generator) -> tuple[State, list[Info]]:
        parts, space = self.components, self.components.space
        code, k, n = state.code, parts.count(state.code), len(state.code)
        total = known_total(parts, state)
        u = torch.rand(2, n, generator=generator, device=code.device)
        up = u[0] < 0.5
        weights = self._log_weights(code, state.theta)
        chosen = categorical(weights, generator)
        theta = parts.swapped(state.theta, chosen, (k - 1).clamp(min=0))
        state = State(code, theta, state.log_joint, memo_of(parts, total))
        possible = torch.where(up, k < parts.kind.max, k > parts.kind.min)
        index = torch.where(up, k, k - 1).clamp(0, parts.kind.max - 1)
        born = self._newborn(theta, u[1] < self.share, generator)
        x = torch.where(up[:, None], born, parts.one(theta, index))
        possible = possible & x.isfinite().all(-1)
        x = torch.where(possible[:, None], x, 0.0)
        larger = parts.put(theta, index, x)
        sign = torch.where(up, 1, -1)
        new = parts.counted(code, torch.where(possible, k + sign, k))
        moved = torch.where(space.active(new), larger, 0.0)
        moved = torch.where(possible[:, None], moved, theta)
        if total is None:
            log_joint = self.target.log_joint(new, moved)
        else:
            change = parts.times(sign * possible, parts.contribution(theta, x))
            log_joint, total = parts.log_joint(new, moved, state.log_joint, total, change)
        # of the components after a birth, or before a death: which is it that dies?
        log_birth, weight = self._log_birth(theta, x)
        every = weights.logsumexp(1)
        every = torch.where(up, torch.logaddexp(every, weight), every)
        log_choice = weight - every + self._log_places(k, up) - log_birth
        log_ratio = log_joint - state.log_joint + sign * log_choice
        log_ratio = torch.where(possible, log_ratio, -math.inf)
        proposed = State(new, moved, log_joint, memo_of(parts, total))
        after, (info,) = accept(self.name, state, proposed, log_ratio, generator)
        # the last is the likeliest to die: new names, or moves that go by names would be wrong
        after = after._replace(theta=parts.shuffled(after.code, after.theta, generator))
        return after, [info._replace(note=x)]

    # ---- what is born, and what dies --------------------------------------------------------

    def _newborn(self, theta: Tensor, prior: Tensor, generator: torch.Generator) -> Tensor:
        x = self.components.sample_prior(theta, host_number(generator))
        if self._born is None:
            return x
        n = len(theta)
        learned = self._born.sample(n, generator)
        if self._there is not None and self._there is not self._born:
            stays = torch.rand(n, 1, generator=generator, device=x.device) < THERE
            learned = torch.where(stays, self._there.sample(n, generator), learned)
        return torch.where(prior[:, None], x, learned)

    def _log_birth(self, theta: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """log h of a component of each chain, and log d, (C,) each."""
        log_prior = self.components.log_prior(theta, x)
        if self._born is None:
            return log_prior, torch.zeros_like(log_prior)
        learned, weight = self._compared(x)
        learned = math.log1p(-self.share) + learned
        return torch.logaddexp(math.log(self.share) + log_prior, learned), weight

    def _compared(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """log f of components (n, P), and log d: how readily each dies, (n,) each."""
        assert self._born is not None and self._there is not None
        there = self._there.log_prob(x)
        born = torch.logaddexp(math.log1p(-THERE) + self._born.log_prob(x), math.log(THERE) + there)
        weight = (born - there).nan_to_num(0.0)
        return born, weight.clamp(max=BOLDEST)

    def _log_places(self, k: Tensor, up: Tensor) -> Tensor:
        """Log of the places that the last of the components could have, (C,)."""
        return torch.where(up, k + 1, k).log()

    def _log_weights(self, code: Tensor, theta: Tensor) -> Tensor:
        """Log of how readily each component dies, -inf where there is none, (C, K)."""
        items = self.components.items(code)
        weight = torch.where(items, torch.zeros_like(items, dtype=theta.dtype), -math.inf)
        if self._born is None:
            return weight
        every = self.components.of(theta)
        if on_host(theta):
            weight[items] = self._compared(every[items])[1]
            return weight
        compared = self._compared(every.flatten(0, 1))[1].view(items.shape)
        return torch.where(items, compared.to(weight), -math.inf)

    # ---- warm-up ----------------------------------------------------------------------------

    def adapted_to(self, infos: list[Info], generator: torch.Generator) -> Kernel:
        if self.share == 1:
            return self
        (info,) = infos
        found = copy.copy(self)
        found._steps = self._steps + 1
        found._changed = self._changed.plus(info.note[info.accepted])
        if found._steps % FIRST_FIT == 0:
            items = self.components.items(info.code)
            found._seen = self._seen.plus(self.components.of(info.theta)[items])
        if due(found._steps, FIRST_FIT):
            found._fit(generator)
        return found

    def _fit(self, generator: torch.Generator) -> None:
        """Fit the densities of a new kernel to what it has seen."""
        self._changed, self._seen = self._changed.joined(), self._seen.joined()
        came, there = self._changed.rows(), self._seen.rows()
        if len(there) >= FEW:
            self._there = NormalMixture.fitted(there, self.normals, generator)
            self._born = self._there
        if len(there) >= FEW and len(came) >= FEW:
            self._born = NormalMixture.fitted(came, self.normals, generator)

    def adapted(self) -> dict[str, Any]:
        return {} if self._born is None else {"births learned from": len(self._changed)}
