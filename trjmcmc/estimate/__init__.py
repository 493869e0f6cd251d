"""Estimates from draws and log densities, each with an error."""

from .agreement import disagreements
from .estimate import Estimate
from .importance import log_mass, log_mean_weight, log_weights, probabilities
from .mean import autocorrelation_time, mean_error
from .precision import Enough, features, progress_of
from .visits import log_odds, visit_probability

__all__ = [
    "Enough",
    "Estimate",
    "autocorrelation_time",
    "disagreements",
    "features",
    "log_mass",
    "log_mean_weight",
    "log_odds",
    "log_weights",
    "mean_error",
    "probabilities",
    "progress_of",
    "visit_probability",
]
