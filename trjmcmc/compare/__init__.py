"""Samplers side by side on one target."""

from ..errors import renamed as _renamed

__getattr__ = _renamed(  # these folders were modules up to version 0.10
    __name__,
    {
        "Comparison": "trjmcmc.Comparison",
        "compare_samplers": "trjmcmc.compare_samplers",
        "ClassicalSampler": "trjmcmc.ClassicalSampler",
        "METHODS": "trjmcmc.compare.classical.METHODS",
    },
)
