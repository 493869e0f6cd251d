"""Small real problems with known answers, shared by tests, examples and benchmarks."""

from .coal_mining import coal_mining
from .factor_analysis import factor_analysis, loading_matrix
from .four_modes import four_modes, mode_centres
from .quadrature import log_evidence
from .radiata_pine import radiata_pine
from .robust_regression import robust_regression
from .sinh_arcsinh import SinhArcsinhMap, sinh_arcsinh
from .sleep import sleep
from .variable_selection import variable_selection

__all__ = [
    "SinhArcsinhMap",
    "coal_mining",
    "factor_analysis",
    "four_modes",
    "loading_matrix",
    "log_evidence",
    "mode_centres",
    "radiata_pine",
    "robust_regression",
    "sinh_arcsinh",
    "sleep",
    "variable_selection",
]
