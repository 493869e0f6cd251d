"""Bayesian networks: scores, exact answers, and what draws of graphs say."""

from ..space.dag_prior import (
    DagPrior,
    edge_penalty,
    erdos_renyi,
    fair,
    scale_free,
    uniform,
)
from ..target.scores import LocalScores
from .exact import ExactGraphs, exact
from .metrics import metrics
from .posterior import GraphPosterior
from .scores import bdeu, bge, linear
from .target import target

__all__ = [
    "DagPrior",
    "ExactGraphs",
    "GraphPosterior",
    "LocalScores",
    "bdeu",
    "bge",
    "edge_penalty",
    "erdos_renyi",
    "exact",
    "fair",
    "linear",
    "metrics",
    "scale_free",
    "target",
    "uniform",
]
