"""Markov kernels: transport jumps, moves inside a model, and their composition."""

from ..transport.base import Point
from .base import Info, Kernel, State, accept, locate, start
from .between.birth_death import BirthDeath
from .between.independence import IndependenceJump, NormalInverseGamma, ProposalDensity
from .between.jump import Jump
from .between.marginals import MarginalJump, MarginalRefresh, Marginals
from .between.saturated import saturated_switch
from .between.split import SplitMerge
from .between.unit_gibbs import UnitGibbs
from .components.births import ComponentBirthDeath
from .components.common import CommonWalk
from .components.exchange import ComponentExchange
from .components.shared import SharedWalk
from .components.split import ComponentSplitMerge
from .components.walk import ComponentWalk
from .compose import Cycle, MixtureKernel
from .graphs.blocks import BlockGibbs
from .graphs.draws import GraphDraws
from .graphs.layers import LayerGibbs
from .graphs.learnt import OrderRefresh
from .graphs.parents import EdgeReversal, ParentGibbs
from .graphs.structure import StructureNeighbours
from .graphs.walk import GraphWalk
from .inside.crank_nicolson import CrankNicolson
from .inside.hmc import HMC
from .inside.random_walk import RandomWalk
from .proposal.base import IndexProposal, Stay
from .proposal.fixed import Fixed, Learnt
from .proposal.mixture import MixtureProposal
from .proposal.neighbours import Neighbours

__all__ = [
    "HMC",
    "BirthDeath",
    "BlockGibbs",
    "CommonWalk",
    "ComponentBirthDeath",
    "ComponentExchange",
    "ComponentSplitMerge",
    "ComponentWalk",
    "CrankNicolson",
    "Cycle",
    "EdgeReversal",
    "Fixed",
    "GraphDraws",
    "GraphWalk",
    "IndependenceJump",
    "IndexProposal",
    "Info",
    "Jump",
    "Kernel",
    "LayerGibbs",
    "Learnt",
    "MarginalJump",
    "MarginalRefresh",
    "Marginals",
    "MixtureKernel",
    "MixtureProposal",
    "Neighbours",
    "NormalInverseGamma",
    "OrderRefresh",
    "ParentGibbs",
    "Point",
    "ProposalDensity",
    "RandomWalk",
    "SharedWalk",
    "SplitMerge",
    "State",
    "Stay",
    "StructureNeighbours",
    "UnitGibbs",
    "accept",
    "locate",
    "saturated_switch",
    "start",
]
