"""Training of transport maps, and the audit of what they have learnt."""

from ..draws import Pool
from ..pilot.audit import tempered_draws
from .objective import ForwardKL, Objective
from .pathfinder import Pathfinder, pathfinder
from .reverse import ReverseKL
from .stein import SquaredExponential
from .trace import FitTrace
from .train import train

__all__ = [
    "FitTrace",
    "ForwardKL",
    "Objective",
    "Pathfinder",
    "Pool",
    "ReverseKL",
    "SquaredExponential",
    "pathfinder",
    "tempered_draws",
    "train",
]
