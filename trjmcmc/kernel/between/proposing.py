"""Kernels that draw the next model from a proposal, and let it learn."""

from __future__ import annotations

import copy
from typing import Any, Self

import torch

from ..base import Info, Kernel
from ..proposal.base import IndexProposal


class Proposing(Kernel):
    """A kernel whose ``proposal`` learns in warm-up from the models that chains are in.

    Attributes:
        proposal: Proposal of the next model.
    """

    proposal: IndexProposal

    def adapted_to(self, infos: list[Info], generator: torch.Generator) -> Self:
        proposal = self.proposal.adapted_to(infos[-1].code)
        if proposal is self.proposal:
            return self
        found = copy.copy(self)
        found.proposal = proposal
        return found

    def adapted(self) -> dict[str, Any]:
        return self.proposal.learnt()
