"""Estimates from draws and log densities, each with an error."""

from .bartolucci import bartolucci
from .bridge import bridge
from .estimate import Estimate
from .importance import log_mean_weight, log_weights, pareto_k, smoothed
from .mean import autocorrelation_time, mean_error
from .visits import visit_probability

__all__ = [
    "Estimate",
    "autocorrelation_time",
    "bartolucci",
    "bridge",
    "log_mean_weight",
    "log_weights",
    "mean_error",
    "pareto_k",
    "smoothed",
    "visit_probability",
]
