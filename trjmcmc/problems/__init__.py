"""Small real problems with known answers, shared by tests, examples and benchmarks."""

from .coal_mining import coal_mining
from .conjugate import SolvedTarget, beta_bernoulli, normal_unknown_variance
from .conjugate_selection import ConjugateSelection, conjugate_selection
from .energies import ENERGIES, Energy, energy
from .factor_analysis import factor_analysis, loading_matrix
from .linear_posterior import FactorisedNormal, LinearPosterior
from .linear_regression import LinearRegression, linear_regression
from .logistic_regression import LogisticTarget, logistic_regression
from .mixtures import gaussian_mixture_2d, mixture_1d
from .pulses import pulses
from .quadrature import log_evidence
from .radial_velocity import QuasiPeriodic, radial_velocity
from .regression import RegressionTarget
from .robust_regression import robust_regression
from .robust_selection import robust_selection
from .sinh_arcsinh import SinhArcsinhMap, sinh_arcsinh
from .sleep import sleep
from .spike_and_slab import gibbs_spike_and_slab, spike_and_slab
from .variable_selection import variable_selection

__all__ = [
    "ENERGIES",
    "ConjugateSelection",
    "Energy",
    "FactorisedNormal",
    "LinearPosterior",
    "LinearRegression",
    "LogisticTarget",
    "QuasiPeriodic",
    "RegressionTarget",
    "SinhArcsinhMap",
    "SolvedTarget",
    "beta_bernoulli",
    "coal_mining",
    "conjugate_selection",
    "energy",
    "factor_analysis",
    "gaussian_mixture_2d",
    "gibbs_spike_and_slab",
    "linear_regression",
    "loading_matrix",
    "log_evidence",
    "logistic_regression",
    "mixture_1d",
    "normal_unknown_variance",
    "pulses",
    "radial_velocity",
    "robust_regression",
    "robust_selection",
    "sinh_arcsinh",
    "sleep",
    "spike_and_slab",
    "variable_selection",
]
