"""Transport maps from every model's posterior to one reference distribution."""

from torch.distributions import Distribution as _Distribution

_validate = _Distribution._validate_args  # importing zuko switches the process-wide checks off
from .affine import Affine  # noqa: E402
from .autoregressive import CosmicAutoregressive  # noqa: E402
from .base import Bijection, Identity, Transport  # noqa: E402
from .cosmic import CosmicFlow  # noqa: E402
from .laplace import LaplaceMap  # noqa: E402
from .mixture import MixtureOfMaps, mixture_flow  # noqa: E402
from .parts import Gaussians  # noqa: E402
from .per_model import PerModel  # noqa: E402
from .realnvp import ConditionalRealNVP, RealNVP  # noqa: E402
from .reference import Gaussian, Reference, StudentT, TrainableStudentT  # noqa: E402
from .sorted_components import SortedComponents  # noqa: E402

_Distribution.set_default_validate_args(_validate)

__all__ = [
    "Affine",
    "Bijection",
    "ConditionalRealNVP",
    "CosmicAutoregressive",
    "CosmicFlow",
    "Gaussian",
    "Gaussians",
    "Identity",
    "LaplaceMap",
    "MixtureOfMaps",
    "PerModel",
    "RealNVP",
    "Reference",
    "SortedComponents",
    "StudentT",
    "TrainableStudentT",
    "Transport",
    "mixture_flow",
]
