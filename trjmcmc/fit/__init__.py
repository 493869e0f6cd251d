"""Training of transport maps, and the audit of what they have learnt."""

from .audit import Audit, AuditReport, ModelAudit, Pool, tempered_draws
from .gaussians import NormalMixture, gaussian_mixture
from .locate import locate
from .model_weights import Categorical, Made, MeanField, ModelWeights, Uniform
from .modes import Modes, find_modes, mode_map
from .objective import ForwardKL, Objective, ReverseKL, forward_kl, reverse_kl
from .pilot import emcee_pool, user_pool
from .recipe import FEW_MODELS, Recipe
from .screening import Screening, screen
from .smc import Particles, TemperedSMC
from .surrogates import GaussianProcess, GaussianSurrogate
from .train import FitTrace, train

__all__ = [
    "FEW_MODELS",
    "Audit",
    "AuditReport",
    "Categorical",
    "FitTrace",
    "ForwardKL",
    "GaussianProcess",
    "GaussianSurrogate",
    "Made",
    "MeanField",
    "ModelAudit",
    "ModelWeights",
    "Modes",
    "NormalMixture",
    "Objective",
    "Particles",
    "Pool",
    "Recipe",
    "ReverseKL",
    "Screening",
    "TemperedSMC",
    "Uniform",
    "emcee_pool",
    "find_modes",
    "forward_kl",
    "gaussian_mixture",
    "locate",
    "mode_map",
    "reverse_kl",
    "screen",
    "tempered_draws",
    "train",
    "user_pool",
]
