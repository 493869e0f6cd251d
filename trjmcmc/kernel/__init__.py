"""Markov kernels: transport jumps, moves inside a model, and their composition."""

from .base import Info, Kernel, Point, State, accept, adapting, locate, start
from .compose import Cycle, DelayedRejection, Mixture
from .hmc import HMC
from .index import Fixed, IndexProposal, Informed, MixtureProposal, Neighbours, Stay
from .jump import Jump
from .within import CrankNicolson, RandomWalk, Stretch

__all__ = [
    "HMC",
    "CrankNicolson",
    "Cycle",
    "DelayedRejection",
    "Fixed",
    "IndexProposal",
    "Info",
    "Informed",
    "Jump",
    "Kernel",
    "Mixture",
    "MixtureProposal",
    "Neighbours",
    "Point",
    "RandomWalk",
    "State",
    "Stay",
    "Stretch",
    "accept",
    "adapting",
    "locate",
    "start",
]
