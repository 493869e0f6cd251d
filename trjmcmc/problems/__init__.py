"""Small real problems with known answers, shared by tests, examples and benchmarks."""

from .coal_mining import coal_mining
from .conjugate_selection import ConjugateSelection, conjugate_selection
from .factor_analysis import factor_analysis, loading_matrix
from .four_modes import four_modes, mode_centres
from .logistic_selection import logistic_selection
from .mixtures import gaussian_mixture_2d, mixture_1d
from .pulses import pulses
from .quadrature import log_evidence
from .radial_velocity import QuasiPeriodic, radial_velocity
from .radiata_pine import radiata_pine
from .regression import RegressionTarget
from .robust_regression import robust_regression
from .robust_selection import gibbs_robust_selection, robust_selection
from .sinh_arcsinh import SinhArcsinhMap, sinh_arcsinh
from .sleep import sleep
from .spike_and_slab import gibbs_spike_and_slab, spike_and_slab
from .variable_selection import variable_selection

__all__ = [
    "ConjugateSelection",
    "QuasiPeriodic",
    "RegressionTarget",
    "SinhArcsinhMap",
    "coal_mining",
    "conjugate_selection",
    "factor_analysis",
    "four_modes",
    "gaussian_mixture_2d",
    "gibbs_robust_selection",
    "gibbs_spike_and_slab",
    "loading_matrix",
    "log_evidence",
    "logistic_selection",
    "mixture_1d",
    "mode_centres",
    "pulses",
    "radial_velocity",
    "radiata_pine",
    "robust_regression",
    "robust_selection",
    "sinh_arcsinh",
    "sleep",
    "spike_and_slab",
    "variable_selection",
]
