"""Training of transport maps."""

from .locate import locate
from .objective import ForwardKL, Objective, ReverseKL, forward_kl, reverse_kl
from .smc import Particles, tempered_smc
from .train import FitTrace, train

__all__ = [
    "FitTrace",
    "ForwardKL",
    "Objective",
    "Particles",
    "ReverseKL",
    "forward_kl",
    "locate",
    "reverse_kl",
    "tempered_smc",
    "train",
]
