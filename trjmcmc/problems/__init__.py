"""Small real problems with known answers, shared by tests, examples and benchmarks."""

from ..target.model import Truth
from .coal_mining import coal_mining
from .conjugate import SolvedTarget, beta_bernoulli
from .conjugate_selection import ConjugateSelection, conjugate_selection
from .energies import ENERGIES, Energy, energy
from .factor_analysis import factor_analysis, loading_matrix
from .known_evidences import SpikeBesideSlab, curved_normal, spike_beside_slab
from .mixtures import gaussian_mixture_2d, mixture_1d, normal_mixture
from .pulses import pulses
from .quadrature import log_evidence
from .radial_velocity import QuasiPeriodic, radial_velocity
from .regression import RegressionTarget
from .robust_regression import robust_regression
from .robust_selection import robust_selection
from .sinh_arcsinh import SinhArcsinhMap, sinh_arcsinh
from .sleep import sleep
from .variable_selection import variable_selection

__all__ = [
    "ENERGIES",
    "ConjugateSelection",
    "Energy",
    "QuasiPeriodic",
    "RegressionTarget",
    "SinhArcsinhMap",
    "SolvedTarget",
    "SpikeBesideSlab",
    "Truth",
    "beta_bernoulli",
    "coal_mining",
    "conjugate_selection",
    "curved_normal",
    "energy",
    "factor_analysis",
    "gaussian_mixture_2d",
    "loading_matrix",
    "log_evidence",
    "mixture_1d",
    "normal_mixture",
    "pulses",
    "radial_velocity",
    "robust_regression",
    "robust_selection",
    "sinh_arcsinh",
    "sleep",
    "spike_beside_slab",
    "variable_selection",
]
