"""What kind of sampler a run is: how its map is fitted, and what kernel it makes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import ConfigurationError
from ..fit.fitted import Fitted
from ..fit.trainer import Trainer
from ..kernel.base import Kernel
from ..target.target import Target
from ..transport.base import Transport

MakeKernel = Callable[[Target, Transport], Kernel]

FIT_SHARE = 0.75  # of the time, or the evaluations, of a run with fit=True, for the fit


class Strategy:
    """How a sampler fits; its runs measure moves of their own, or have the kernel of the user.

    Arguments:
        kernel: The user's, or what makes it of the target and the map; None for moves of its own.

    Attributes:
        given: As above.
        trains: Whether the kernel goes through the map, which is then trained first.
        weighs: Whether evidences are estimated with the map, by importance sampling and bridges.
        fit_share: Share of the time of a run that its fit may take.
    """

    weighs = True
    fit_share = FIT_SHARE

    def __init__(self, kernel: Kernel | MakeKernel | None = None) -> None:
        if kernel is not None and not isinstance(kernel, Kernel) and not callable(kernel):
            raise ConfigurationError(
                "kernel: expected a trj.kernel.Kernel, or a function of (target, transport) that "
                f"makes one, got {kernel!r}; several kernels in turn are a trj.kernel.Cycle"
            )
        self.given, self.trains = kernel, not isinstance(kernel, Kernel)

    def fit(self, trainer: Trainer, **settings: Any) -> Fitted:
        """Fit the map; settings as of :meth:`~trjmcmc.fit.trainer.Trainer.fit`."""
        return trainer.fit(**settings)

    def kernel(self, target: Target, transport: Transport) -> Kernel:
        """The kernel that was given, of the map as it is."""
        assert self.given is not None
        return self.given if isinstance(self.given, Kernel) else self.given(target, transport)


def check_kernel(target: Target, kernel: Kernel) -> Kernel:
    """Refuse what is no kernel, or cannot reach everything.

    Raises:
        ConfigurationError: It can't move between models, or inside them.
    """
    if not isinstance(kernel, Kernel):
        raise ConfigurationError(f"kernel: expected a trj.kernel.Kernel, got {kernel!r}")
    if target.space.several and not kernel.between:
        raise ConfigurationError(
            "kernel: nothing in it moves between models; add trj.kernel.Jump with a proposal"
        )
    if target.dim and not kernel.within:
        raise ConfigurationError(
            "kernel: nothing in it moves inside a model, so that the chain can't reach "
            "everything; add trj.kernel.CrankNicolson or RandomWalk, or a Jump with rho < 1"
        )
    return kernel
