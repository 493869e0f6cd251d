"""Jumps in a space that is padded to one dimension."""

from __future__ import annotations

from ...target.target import Target
from ...transport.base import Identity
from ...transport.reference import Gaussian
from ..proposal.base import IndexProposal
from .jump import Jump


def saturated_switch(
    target: Target, proposal: IndexProposal, *, scale: float = 1.0, name: str = "switch"
) -> Jump:
    """Switch parameters on and off in the saturated space.

    Parameters that a model lacks are normal there, and fresh at each step; a jump changes the
    model and no coordinate.

    Arguments:
        target: The target.
        proposal: Proposal of the next model.
        scale: Standard deviation of the normal, in unconstrained coordinates.
        name: Shown in tables.

    Source:
        Brooks, Giudici & Roberts (2003), https://doi.org/10.1111/1467-9868.03711, section 6

    Example:
        >>> from trjmcmc import problems
        >>> from trjmcmc.kernel import Neighbours
        >>> target = problems.robust_regression()
        >>> saturated_switch(target, Neighbours(target.space), scale=10.0).between
        True
    """
    return Jump(target, Identity(target.space, Gaussian(scale)), proposal, name=name)
