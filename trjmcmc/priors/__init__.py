"""Priors that fields use beside those of torch.distributions.

All are :class:`torch.distributions.Distribution`: they broadcast, take tensors for parameters, and
go wherever a prior is expected. So does any frozen distribution of scipy.stats, as it is, and any
of PyMC and NumPyro: ``pm.Normal.dist(0, 1)``, ``numpyro.distributions.Normal(0, 1)``.

    >>> import trjmcmc as trj
    >>> import scipy.stats
    >>> priors = {
    ...     "period": trj.priors.LogUniform(1.25, 1e4),
    ...     "amplitude": trj.priors.ModifiedJeffreys(1.0, 999.0),
    ...     "eccentricity": trj.priors.Rayleigh(0.2, high=1.0),
    ...     "jitter": scipy.stats.halfnorm(scale=2.0),
    ... }
    >>> target = trj.Target([trj.Model("planet", priors, lambda p: -p["jitter"])])
    >>> target.dim
    4
"""

from .fields import (
    KIPPING,
    Latitude,
    LogUniform,
    ModifiedJeffreys,
    Periodic,
    PolarAngle,
    Rayleigh,
    TruncatedNormal,
    isotropic,
    kipping_beta,
)
from .foreign import from_scipy
from .shrinkage import HalfStudent, horseshoe

__all__ = [
    "KIPPING",
    "HalfStudent",
    "Latitude",
    "LogUniform",
    "ModifiedJeffreys",
    "Periodic",
    "PolarAngle",
    "Rayleigh",
    "TruncatedNormal",
    "from_scipy",
    "horseshoe",
    "isotropic",
    "kipping_beta",
]
