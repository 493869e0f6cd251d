"""What kind of sampler a run is: how its map is fitted, and what kernel it makes of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
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
    """How a sampler fits; its runs measure moves of their own.

    Attributes:
        weighs: Whether evidences are estimated with the map, by importance sampling and bridges.
        fit_share: Share of the time of a run that its fit may take.
    """

    weighs = True
    fit_share = FIT_SHARE

    def fit(self, trainer: Trainer, **settings: Any) -> Fitted:
        """Fit the map; settings as of :meth:`~trjmcmc.fit.trainer.Trainer.fit`."""
        return trainer.fit(**settings)


class WithKernel(Strategy, ABC):
    """A sampler of one kernel.

    Attributes:
        trains: Whether the kernel goes through the map, which is then trained first.
    """

    trains = True

    @abstractmethod
    def kernel(self, target: Target, transport: Transport, fitted: Fitted) -> Kernel:
        """The kernel, of the map as it is.

        Arguments:
            target: The target.
            transport: The map.
            fitted: What is known of the target.
        """


class GivenKernel(WithKernel):
    """The user's kernel, or what the user's function makes of the target and the map."""

    def __init__(self, kernel: Kernel | MakeKernel) -> None:
        self._given, self.trains = kernel, not isinstance(kernel, Kernel)

    def kernel(self, target: Target, transport: Transport, fitted: Fitted) -> Kernel:
        return self._given if isinstance(self._given, Kernel) else self._given(target, transport)


def with_kernel(kernel: Kernel | MakeKernel | WithKernel) -> WithKernel:
    """A sampler of what a user gives as its kernel.

    Raises:
        ConfigurationError: Neither a kernel nor a function.
    """
    if isinstance(kernel, WithKernel):
        return kernel
    if not isinstance(kernel, Kernel) and not callable(kernel):
        raise ConfigurationError(
            "kernel: expected a trj.kernel.Kernel, or a function of (target, transport) that "
            f"makes one, got {kernel!r}; several kernels in turn are a trj.kernel.Cycle"
        )
    return GivenKernel(kernel)


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
