"""The sum over components that an additive likelihood lets moves carry along."""

from __future__ import annotations

from torch import Tensor

from ...target.exchangeable import Components
from ..base import Memo, State


def known_total(parts: Components, state: State) -> Tensor | None:
    """What the components add up to, as in ``Components.total``: remembered, or added up now."""
    known = state.recall(parts.target)
    return parts.total(state.code, state.theta, None if known is None else known[0])


def memo_of(parts: Components, total: Tensor | None) -> Memo | None:
    """The memo of a sum, if there is one."""
    return None if total is None else Memo(parts.target, (total,))
