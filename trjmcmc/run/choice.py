"""What came of choosing the kernel of a run."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..draws import Pool
from ..kernel.base import Kernel, State
from ..result.report import Plan
from ..transport.base import Transport
from .policy import Policy
from .request import Request
from .segment import Segment


@dataclass(frozen=True)
class Choice:
    """The kernel of a run, and where its chains are.

    Attributes:
        kernel: The kernel.
        state: Chains, at least as many as were asked for.
        ancestor: The independent draw that each descends from, as a number, shape (C,).
        plan: What was measured and chosen.
        steps: Steps made so far.
        burn_in: Further steps by the chosen kernel until the chains have forgotten their models.
        segment: What was measured of the kernel; None where there was nothing to choose.
        map: The normals that its jumps go through, if any were fitted.
        seen: Points that the chains have passed.
        hoped_seconds: Predicted seconds of sampling to the precision.
        trainable: Whether there are models to move between, and a map that could still learn to.
    """

    kernel: Kernel
    state: State
    ancestor: Tensor
    plan: Plan
    steps: int
    burn_in: int
    segment: Segment | None
    map: Transport | None
    seen: Pool | None
    hoped_seconds: float
    trainable: bool

    def ends_sooner(self, than: Kernel, seconds: float, request: Request, policy: Policy) -> bool:
        """Whether it has other moves and promises to be done well within some seconds.

        Arguments:
            than: The kernel that the seconds are of.
            seconds: That sampling on by it would take.
            request: What the user asks of the run.
            policy: The policy.
        """
        names = {part.name for part in self.kernel.parts()}
        if self.segment is None or names == {part.name for part in than.parts()}:
            return False
        return policy.choice.broken_promise * request.until_done(self.segment) < seconds
