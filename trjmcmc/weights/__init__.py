"""Distributions over models that are learned beside a map: q(m)."""

from torch.distributions import Distribution as _Distribution

_validate = _Distribution._validate_args  # importing zuko switches the process-wide checks off
from .base import ModelWeights, UniformWeights  # noqa: E402
from .belief import GaussianSurrogateWeights  # noqa: E402
from .made import Made  # noqa: E402
from .mean_field import MeanField  # noqa: E402
from .score_gradient import CategoricalWeights  # noqa: E402

_Distribution.set_default_validate_args(_validate)

__all__ = [
    "CategoricalWeights",
    "GaussianSurrogateWeights",
    "Made",
    "MeanField",
    "ModelWeights",
    "UniformWeights",
]
