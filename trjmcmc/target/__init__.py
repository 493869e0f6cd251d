"""What is sampled: priors and likelihoods as one log density over padded coordinates."""

from ..errors import renamed as _renamed

__getattr__ = _renamed(  # these folders were modules up to version 0.10
    __name__,
    {
        "Target": "trjmcmc.Target",
        "Model": "trjmcmc.Model",
        "Truth": "trjmcmc.Truth",
    },
)
