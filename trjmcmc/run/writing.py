"""Writes into the folder of a run: when, what of each draw, and what is done where that fails."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor

from .. import clock
from ..checkpoint.events import Events
from ..checkpoint.folder import Folder
from ..errors import CheckpointError, CheckpointWarning, warn_user
from ..target.target import Target

SAVE_SECONDS = 30.0  # between two heads

SAVE_SHARE = 0.01  # of the time, that writing may take

WHOLE_SEGMENT = 2**20  # bytes from which a segment is not written again with later draws


class Writer:
    """Writes a run into a folder, now and then.

    Arguments:
        folder: The folder.
        spent: Seconds that the run took before.
        saved: Draws of each chain that the folder holds.

    Attributes:
        folder, saved: As above.
    """

    def __init__(self, folder: Folder, spent: float, saved: int = 0) -> None:
        self.folder, self.saved, self._begun = folder, saved, clock.now() - spent
        self._due, self._looked, self._warned = -math.inf, -math.inf, False
        self._host: Target | None = None
        self._events = Events(folder.path)

    @property
    def spent(self) -> float:
        """Seconds that the run has taken."""
        return max(0.0, clock.now() - self._begun)

    def tell(self, event: str, **found: Any) -> None:
        """Append a line to the events of the folder, with the seconds that the run has taken."""
        self._events.add(event, spent=round(self.spent, 3), **found)

    @property
    def is_due(self) -> bool:
        """Whether it is time to write."""
        now = clock.now()
        return now >= self._due or now < self._looked  # a clock that was set back

    def wait(self) -> None:
        """Write nothing for a while."""
        self._due = clock.now() + SAVE_SECONDS

    def guarded(self, write: Callable[[], object], **told: Any) -> None:
        """Write, and tell it; where that fails say so once, and let the run go on."""
        begun = clock.now()
        try:
            write()
            self.tell("saved", kept=self.saved, seconds=round(clock.now() - begun, 4), **told)
        except (OSError, CheckpointError) as error:
            self.tell("unsaved", why=str(error))
            if not self._warned:
                warn_user(
                    f"checkpoint: nothing more is saved in {self.folder.path} ({error}); the run "
                    "goes on, and tries again",
                    CheckpointWarning,
                )
            self._warned = True
        self._looked = now = clock.now()
        self._due = now + max(SAVE_SECONDS, (now - begun) / SAVE_SHARE)

    def values(self, target: Target, code: Tensor, theta: Tensor) -> dict[str, Tensor]:
        """Parameters as users know them, (draw, chain, ...)."""
        if self._host is None:
            self._host = target.to(device="cpu", probe=False)
        if not len(code):
            return {}
        found = self._host.padded_values(code.flatten(0, 1), theta.flatten(0, 1))
        return {
            name: value.reshape(*code.shape[:2], *value.shape[1:]) for name, value in found.items()
        }
