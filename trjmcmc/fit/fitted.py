"""What is known of a target once a map of it has been fitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..pilot.audit import Audit
from ..pilot.modes import Modes
from ..pilot.report import Score
from ..transport.base import Transport
from ..weights.base import ModelWeights
from .trace import FitTrace


@dataclass(frozen=True)
class Fitted:
    """A map, and what was found out when it was fitted.

    It does not change; what is learnt later makes a new one, by ``dataclasses.replace``.

    Attributes:
        map: The map; a later fit trains the same one further.
        few: Whether the space has so few models that each is audited.
        trace: Of the last training, or None.
        audit: Of the models of a small space, or None.
        score: What shares of the audited posteriors the map covers, or None.
        mended: How often the last fit was repeated because of the audit.
        modes: Modes of each audited model.
        weights: The distribution over models that was learnt beside the map, or None.
        seconds: Wall time by stage.
    """

    map: Transport
    few: bool
    trace: FitTrace | None = None
    audit: Audit | None = None
    score: Score | None = None
    mended: int = 0
    modes: tuple[Modes, ...] = ()
    weights: ModelWeights | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
