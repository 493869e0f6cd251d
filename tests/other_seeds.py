"""Every seed of a test moved: what a statistical test says has to hold for any of them.

``pytest --other-seeds 1`` adds a number to the seed of each generator of torch and NumPy that a
test, or the package under it, makes. Other rounding sends a chain another way just as another
seed does, so that this finds on any machine what would fail on another processor. Seeds of
simulated data stay (``DATA``): these problems have their answers written beside them. So do those
of initial weights (``trjmcmc.rng.seeded``) and of docstrings, whose answers are printed.
"""

import sys

import numpy as np
import torch

# whose answers belong to their seeds
DATA = ("trjmcmc.problems", "trjmcmc.graphs.simulate", "benchmarks.")
APART = 1_000_003  # how far seeds move: farther than those of one test lie apart

_real, _rng, _moved = torch.Generator, np.random.default_rng, 0


def move_by(number: int) -> None:
    """From now on move every seed so many times; zero leaves them as they are."""
    global _moved
    _moved = number * APART


def install() -> None:
    """Let torch and NumPy make generators whose seeds can be moved."""
    torch.Generator, np.random.default_rng = Generator, default_rng


def _move(depth: int) -> int:
    caller = sys._getframe(depth).f_globals.get("__name__", "")
    return 0 if caller.startswith(DATA) else _moved


class _Either(type(_real)):
    def __instancecheck__(cls, it):
        return isinstance(it, _real)


class Generator(_real, metaclass=_Either):
    """``torch.Generator``, whose seed may be moved."""

    def manual_seed(self, seed):
        return super().manual_seed((seed + _move(2)) % 2**63)


def default_rng(seed=None):
    """``numpy.random.default_rng``, whose seed may be moved."""
    if isinstance(seed, int | np.integer):
        seed = int(seed) + _move(2)
    elif isinstance(seed, list | tuple) and _move(2):
        seed = [*seed, _move(2)]
    return _rng(seed)
