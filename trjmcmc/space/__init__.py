"""Spaces of models: which there are, their prior, and who is next to whom."""

from ..errors import renamed as _renamed

__getattr__ = _renamed(  # these folders were modules up to version 0.10
    __name__,
    {
        "Space": "trjmcmc.Space",
        "Subsets": "trjmcmc.Subsets",
        "Counts": "trjmcmc.Counts",
        "ModelList": "trjmcmc.space.model_list.ModelList",
        "LogWeights": "trjmcmc.LogWeights",
    },
)
