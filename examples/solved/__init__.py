"""Regressions whose posteriors are known, for the examples on variational answers."""

from .linear_posterior import FactorisedNormal, LinearPosterior
from .linear_regression import LinearRegression, linear_regression
from .logistic_regression import LogisticRegression, LogisticTarget, logistic_regression, yes_and_no
from .normal_mean import normal_unknown_variance
from .spike_and_slab import gibbs_spike_and_slab, spike_and_slab

__all__ = [
    "FactorisedNormal",
    "LinearPosterior",
    "LinearRegression",
    "LogisticRegression",
    "LogisticTarget",
    "gibbs_spike_and_slab",
    "linear_regression",
    "logistic_regression",
    "normal_unknown_variance",
    "spike_and_slab",
    "yes_and_no",
]
