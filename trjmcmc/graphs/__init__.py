"""Bayesian networks: scores, exact answers, and what draws of graphs say."""

from ..space.dag_prior import (
    DagPrior,
    edge_penalty,
    erdos_renyi,
    fair,
    scale_free,
    uniform,
)
from ..space.dags import Dags
from ..space.ordered_dags import OrderedDags
from ..target.equations import Equations
from ..target.scores import LocalScores
from .dibs import dibs
from .equations import equations, network
from .evidences import evidences
from .exact import ExactGraphs, exact
from .metrics import metrics
from .ordered import ordered
from .particles import GraphParticles, bootstrap
from .posterior import GraphPosterior
from .scores import bdeu, bge, linear
from .simulate import SimulatedNetwork, random_graph, simulate
from .target import target

__all__ = [
    "DagPrior",
    "Dags",
    "Equations",
    "ExactGraphs",
    "GraphParticles",
    "GraphPosterior",
    "LocalScores",
    "OrderedDags",
    "SimulatedNetwork",
    "bdeu",
    "bge",
    "bootstrap",
    "dibs",
    "edge_penalty",
    "equations",
    "erdos_renyi",
    "evidences",
    "exact",
    "fair",
    "linear",
    "metrics",
    "network",
    "ordered",
    "random_graph",
    "scale_free",
    "simulate",
    "target",
    "uniform",
]
