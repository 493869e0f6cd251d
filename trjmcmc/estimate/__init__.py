"""Estimates from draws and log densities, each with an error."""

from .agreement import Clash, clashes, combine, shares_of, shares_of_sets, usable
from .bartolucci import bartolucci, bartolucci_odds
from .bridge import bridge
from .estimate import Estimate
from .importance import (
    enough_weights,
    log_mean_weight,
    log_weights,
    pareto_k,
    probabilities,
    rounded,
    smoothed,
)
from .mean import autocorrelation_time, batch_shares, mean_error, mean_error_where, share_covariance
from .precision import features
from .visits import log_odds, second_eigenvalue, transition_matrix, visit_probability

__all__ = [
    "Clash",
    "Estimate",
    "autocorrelation_time",
    "bartolucci",
    "bartolucci_odds",
    "batch_shares",
    "bridge",
    "clashes",
    "combine",
    "enough_weights",
    "features",
    "log_mean_weight",
    "log_odds",
    "log_weights",
    "mean_error",
    "mean_error_where",
    "pareto_k",
    "probabilities",
    "rounded",
    "second_eigenvalue",
    "share_covariance",
    "shares_of",
    "shares_of_sets",
    "smoothed",
    "transition_matrix",
    "usable",
    "visit_probability",
]
