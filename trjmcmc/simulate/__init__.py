"""Data drawn from models: before the data, after the data, and held against them."""

from .posterior import PosteriorPredictive, posterior_predictive
from .prior import Simulated, prior, prior_predictive
from .simulator import Simulator

__all__ = [
    "PosteriorPredictive",
    "Simulated",
    "Simulator",
    "posterior_predictive",
    "prior",
    "prior_predictive",
]
