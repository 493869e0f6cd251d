"""Markov kernels: transport jumps, moves inside a model, and their composition."""

from .base import Info, Kernel, Point, State, accept, adapting, locate, start
from .baselines import (
    BirthDeath,
    IndependenceJump,
    Independent,
    NormalInverseGamma,
    saturated_switch,
)
from .component_split import ComponentSplitMerge
from .components import ComponentBirthDeath, ComponentWalk
from .compose import Cycle, DelayedRejection, Mixture
from .hmc import HMC
from .index import Fixed, IndexProposal, Informed, Learnt, MixtureProposal, Neighbours, Stay
from .informed import InformedBirthDeath
from .jump import Jump
from .shared_walk import SharedWalk
from .split import SplitMerge
from .surrogate import ScoreWalk
from .sweep import SweepWalk
from .within import CrankNicolson, RandomWalk, Stretch

__all__ = [
    "HMC",
    "BirthDeath",
    "ComponentBirthDeath",
    "ComponentSplitMerge",
    "ComponentWalk",
    "CrankNicolson",
    "Cycle",
    "DelayedRejection",
    "Fixed",
    "IndependenceJump",
    "Independent",
    "IndexProposal",
    "Info",
    "Informed",
    "InformedBirthDeath",
    "Jump",
    "Kernel",
    "Learnt",
    "Mixture",
    "MixtureProposal",
    "Neighbours",
    "NormalInverseGamma",
    "Point",
    "RandomWalk",
    "ScoreWalk",
    "SharedWalk",
    "SplitMerge",
    "State",
    "Stay",
    "Stretch",
    "SweepWalk",
    "accept",
    "adapting",
    "locate",
    "saturated_switch",
    "start",
]
