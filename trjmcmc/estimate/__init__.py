"""Estimates from draws and log densities, each with an error."""

from .agreement import disagreements
from .estimate import Estimate
from .importance import log_mass, log_mean_weight, log_weights, probabilities
from .mean import autocorrelation_time, mean_error
from .visits import log_odds, visit_probability

__all__ = [
    "Estimate",
    "autocorrelation_time",
    "disagreements",
    "log_mass",
    "log_mean_weight",
    "log_odds",
    "log_weights",
    "mean_error",
    "probabilities",
    "visit_probability",
]
