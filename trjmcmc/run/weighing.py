"""The evidences that importance sampling through one map gives."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..estimate.estimate import Estimate
from ..estimate.importance import enough_weights, log_mean_weight, rounded
from ..target.target import Target
from ..transport.base import Transport


class Weighing:
    """Evidences of models by importance sampling through a map as it is now.

    Training the map makes it invalid, see :meth:`is_of`.

    Arguments:
        target: The target.
        transport: The map.
        generator: Source of randomness.
        most: Most draws a model.

    Attributes:
        log_mass: By model, log evidence plus log prior, in nats.
        log_weights: By model, log importance weights of the map's draws, shape (n,).
    """

    def __init__(
        self,
        target: Target,
        transport: Transport,
        generator: torch.Generator,
        most: int,
    ) -> None:
        self.target, self.transport, self.generator = target, transport, generator
        self.most = most
        self.log_mass: dict[str, Estimate] = {}
        self.log_weights: dict[str, Tensor] = {}
        self._map_as_weighed = fingerprint(transport)

    def is_of(self, transport: Transport) -> bool:
        """Whether this is a weighing of a map, and the map has not changed since."""
        return transport is self.transport and fingerprint(transport) == self._map_as_weighed

    def weigh(self, code: Tensor, label: str, draws: int | None = None) -> None:
        """Weigh a model, unless that has been done.

        Arguments:
            code: The model, shape (L,).
            label: Its label.
            draws: Draws at most, if fewer than otherwise.
        """
        if label in self.log_mass:
            return
        most = self.most if draws is None else min(self.most, draws)
        log_w = enough_weights(self.target, self.transport, code, self.generator, most=most)
        self.log_weights[label] = log_w.cpu()
        self.log_mass[label] = rounded(log_mean_weight(log_w), self.target.dtype)


def fingerprint(transport: Transport) -> tuple[Any, ...]:
    """Something that differs once a parameter was changed, in place too."""
    tensors = [*transport.parameters(), *transport.buffers()]
    with torch.no_grad():
        sums = [float(t.double().sum()) for t in tensors if t.is_floating_point()]
    return (*sums, *(t._version for t in tensors))
