"""The coordinates that a move inside a model is made in: plain ones, or a map's reference."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from ...promises import MODELS_ONE_BY_ONE
from ...target.target import Target
from ...transport.base import Transport, log_weight
from ..base import Memo, State, locate


class Frame:
    """Coordinates x of the chains, and the target's density in them.

    Through a map these are reference coordinates (the choice between the maps of a mixture is
    kept), in which the target has the density nu(x) w(x), with w its importance weight; without
    a map they are the padded coordinates themselves.

    Arguments:
        target: The target.
        transport: A map, or None.
    """

    def __init__(self, target: Target, transport: Transport | None) -> None:
        self.target, self.transport = target, transport

    def active(self, code: Tensor) -> Tensor:
        """Coordinates that a move may change, shape (C, D), bool."""
        active = self.target.space.active(code)
        if self.transport is not None and not self.transport.spares_pass:
            return torch.ones_like(active)
        return active

    def here(self, state: State, generator: torch.Generator) -> tuple[State, Tensor, Tensor]:
        """The state with its memo, its coordinates (C, D) and their log density (C,)."""
        transport = self.transport
        if transport is None:
            return state, state.theta, state.log_joint
        point = locate(state, transport, generator)
        active = self.active(state.code)
        z = torch.where(pad(active, (0, transport.reference.auxiliary), value=True), point.z, 0.0)
        x = z[:, : active.shape[1]]
        state = state._replace(memo=Memo(transport, (z, point.log_weight)))
        return state, x, self._log_nu(x, active) + point.log_weight

    def there(self, state: State, x: Tensor) -> tuple[State, Tensor]:
        """The proposed state at other coordinates, and their log density (C,)."""
        transport = self.transport
        if transport is None:
            log_joint = self.target.log_joint(state.code, x)
            return State(state.code, x, log_joint), log_joint
        z = self._beside(state, x)
        filled, log_q = transport.push(z, state.code)
        theta = torch.where(self.target.space.active(state.code), filled, 0.0)
        log_joint = self.target.log_joint(state.code, theta)
        weight = log_weight(log_joint, log_q, -math.inf)
        log_density = self._log_nu(x, self.active(state.code)) + weight
        return State(state.code, theta, log_joint, Memo(transport, (z, weight))), log_density

    def gradient(self, state: State, x: Tensor) -> Tensor:
        """Gradient of the log density, shape (C, D); of surrogates where models have them."""
        transport, target = self.transport, self.target
        active = self.active(state.code)
        if transport is None:
            gradient = target.log_joint_and_grad(state.code, x, surrogate=True)[1]
        else:
            with torch.enable_grad():
                leaf = x.detach().requires_grad_()
                filled, log_q = transport.push(self._beside(state, leaf), state.code)
                theta = torch.where(target.space.active(state.code), filled, 0.0)
                _, slope = target.log_joint_and_grad(state.code, theta.detach(), surrogate=True)
                value = (theta * slope).sum(-1) + self._log_nu(leaf, active) - log_q
                (gradient,) = torch.autograd.grad(value.sum(), leaf)
        # a broken gradient is none, at every point alike: trajectories stay reversible
        return torch.where(active, gradient, 0.0).nan_to_num(0.0, 0.0, 0.0)

    @property
    def groups(self) -> int:
        """How many groups of chains have settings of their own: one a model, if they are few."""
        size = self.target.space.size
        return size if size is not None and size <= MODELS_ONE_BY_ONE else 1

    def group(self, code: Tensor) -> Tensor:
        """Group of each chain, shape (C,)."""
        if self.groups == 1:
            return torch.zeros(len(code), dtype=torch.long, device=code.device)
        return self.target.space.index(code)

    def _beside(self, state: State, x: Tensor) -> Tensor:
        """Reference points with the auxiliary coordinates that the chains have."""
        known = state.recall(self.transport)
        assert known is not None
        return torch.cat([x, known[0][:, x.shape[1] :]], -1)

    def _log_nu(self, x: Tensor, active: Tensor) -> Tensor:
        assert self.transport is not None
        return self.transport.reference.log_density(x, active)
