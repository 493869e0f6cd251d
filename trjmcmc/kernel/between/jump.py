"""Transport reversible jumps: one formula for TRJ, CTP, pCN and independence moves."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ...errors import ConfigurationError
from ...target.target import Target
from ...transport.base import Transport, log_weight
from ..base import Info, Kernel, Memo, State, accept, locate
from ..proposal.base import IndexProposal, Stay

Rho = float | tuple[float, float]


class Jump(Kernel):
    r"""Propose through reference space, in another model or in the same.

    The current point goes to the reference, spare slots are filled with fresh reference
    noise, the whole reference point is refreshed by a kernel that leaves the reference
    invariant, and is carried into the proposed model. With the importance weight

    .. math:: \log w = \log\pi(\theta, m) - \log q(\theta | m),

    the log acceptance ratio is log w' - log w + log q(m | m') - log q(m' | m): the refresh is
    reversible for the reference, so that it cancels.

    Arguments:
        target: The target.
        transport: A map; exactness does not depend on its quality.
        proposal: Proposal of the next model; None stays in the model.
        rho: Correlation of the refresh, in [0, 1]: 1 is the plain transport jump, 0 an
            independence proposal. A pair (low, high) draws it uniformly, chain by chain.
        fresh: Share of the proposals that are independent, rho = 0, whatever ``rho``: they
            keep a poor map from blocking the chain.
        name: Shown in tables.

    Raises:
        ConfigurationError: rho or fresh out of range.

    Source:
        Davies et al. (2023), https://arxiv.org/abs/2210.12572, Prop. 1 (TRJ) and section 4
        (CTP); Yin & Jiao, https://arxiv.org/abs/2512.12742, Algorithm 3; the refresh: Cotter et
        al. (2013)

    Example:
        >>> from trjmcmc import problems
        >>> from trjmcmc.kernel import Fixed, start
        >>> target = problems.sinh_arcsinh()
        >>> exact = problems.SinhArcsinhMap(target.space)
        >>> kernel = Jump(target, exact, Fixed(target.space))
        >>> state = start(target, torch.zeros(5, 1, dtype=torch.long), torch.zeros(5, 2))
        >>> state, (info,) = kernel.step(state, torch.Generator().manual_seed(0))
        >>> info.accepted.shape
        torch.Size([5])
    """

    def __init__(
        self,
        target: Target,
        transport: Transport,
        proposal: IndexProposal | None = None,
        *,
        rho: Rho = 1.0,
        fresh: float = 0.0,
        name: str = "jump",
    ) -> None:
        low, high = rho if isinstance(rho, tuple) else (rho, rho)
        if not 0 <= low <= high <= 1:
            raise ConfigurationError(f"rho: expected 0 <= rho <= 1, got {rho}")
        if not 0 <= fresh <= 1:
            raise ConfigurationError(f"fresh: expected a share in [0, 1], got {fresh}")
        self.target, self.transport, self.name = target, transport, name
        self.proposal = proposal if proposal is not None else Stay(target.space)
        self.rho, self.fresh = (low, high), fresh
        self.between = proposal is not None and not isinstance(proposal, Stay)
        self.within = low < 1 or fresh > 0

    def _refresh(self, z: Tensor, generator: torch.Generator) -> Tensor:
        low, high = self.rho
        if low == 1 and not self.fresh and not self.transport.reference.auxiliary:
            return z
        rho: Tensor | float = low
        if low < high or self.fresh:
            u, v = torch.rand(2, len(z), 1, generator=generator, device=z.device, dtype=z.dtype)
            rho = torch.where(v < self.fresh, 0.0, low + (high - low) * u)
        return self.transport.reference.refresh(z, rho, generator)

    def locate(self, state: State, generator: torch.Generator) -> State:
        """The state with its reference point and log importance weight as memo."""
        point = locate(state, self.transport, generator)
        return state._replace(memo=Memo(self.transport, (point.z, point.log_weight)))

    def propose(self, state: State, generator: torch.Generator) -> tuple[State, Tensor]:
        """From a located state to a proposal and its log acceptance ratio, shape (C,)."""
        target, transport, known = self.target, self.transport, state.recall(self.transport)
        assert known is not None
        z, weight_here = known
        if transport.spares_pass:
            theta, reference = state.theta, transport.reference
            spare = reference.sample(tuple(theta.shape), generator, theta.dtype)
            active = target.space.active(state.code)
            used = torch.nn.functional.pad(active, (0, reference.auxiliary), value=True)
            z = torch.where(used, z, spare)
        code, log_ratio = self.proposal.propose(state.code, generator)
        z = self._refresh(z, generator)
        filled, log_q = transport.push(z, code)
        theta = torch.where(target.space.active(code), filled, 0.0)
        log_joint = target.log_joint(code, theta)
        weight = log_weight(log_joint, log_q, -math.inf)
        proposed = State(code, theta, log_joint, Memo(transport, (z, weight)))
        return proposed, weight - weight_here + log_ratio

    def step(self, state: State, generator: torch.Generator) -> tuple[State, list[Info]]:
        state = self.locate(state, generator)
        proposed, log_ratio = self.propose(state, generator)
        return accept(self.name, state, proposed, log_ratio, generator)
