"""Small real problems with known answers, shared by tests, examples and benchmarks."""

from .coal_mining import coal_mining
from .quadrature import log_evidence
from .robust_regression import robust_regression
from .sinh_arcsinh import SinhArcsinhMap, sinh_arcsinh

__all__ = [
    "SinhArcsinhMap",
    "coal_mining",
    "log_evidence",
    "robust_regression",
    "sinh_arcsinh",
]
