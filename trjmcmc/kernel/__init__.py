"""Markov kernels: transport jumps, moves inside a model, and their composition."""

from .base import Info, Kernel, Point, State, accept, locate, start
from .compose import Cycle
from .index import Fixed, IndexProposal, Neighbours, Stay
from .jump import Jump
from .within import CrankNicolson, RandomWalk

__all__ = [
    "CrankNicolson",
    "Cycle",
    "Fixed",
    "IndexProposal",
    "Info",
    "Jump",
    "Kernel",
    "Neighbours",
    "Point",
    "RandomWalk",
    "State",
    "Stay",
    "accept",
    "locate",
    "start",
]
