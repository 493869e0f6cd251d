"""The user's model over other data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Generator

from ..errors import ConfigurationError, TRJError
from ..simulate.simulator import Simulator
from ..target.target import Target

Make = Callable[[Any], Target]  # gives the target over other data


class Simulation(NamedTuple):
    """A target, and all that it takes to look at it over simulated data.

    Attributes:
        target: The models.
        simulator: Draws data.
        make: Gives a target over other data.
        generator: Source of randomness.
        over: Whether there is no time left.
    """

    target: Target
    simulator: Simulator
    make: Make
    generator: Generator
    over: Callable[[], bool] = lambda: False


@dataclass(frozen=True)
class Again:
    """The user's ``make``, whose mistakes are told apart from those of the model.

    Attributes:
        make: Function of data that returns a target.
        slots: Names of the coordinates that it must have.
    """

    make: Make
    slots: tuple[str, ...]

    def __call__(self, data: Any) -> Target:
        """The target over these data.

        Raises:
            ConfigurationError: ``make`` fails, or returns another kind of model.
        """
        try:
            made = self.make(data)
        except TRJError:
            raise
        except Exception as error:
            raise ConfigurationError(
                f"make failed over simulated data, {type(error).__name__}: {error}; it is given "
                "one data set as `simulate` returns it"
            ) from error
        if not isinstance(made, Target) or tuple(made.slot_names) != self.slots:
            raise ConfigurationError(
                f"make: expected a trj.Target with the parameters of the one at hand, got {made!r}"
            )
        return made
