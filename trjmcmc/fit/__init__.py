"""Training of transport maps, and the audit of what they have learnt."""

from ..draws import Pool
from ..pilot.audit import Audit, tempered_draws
from ..pilot.modes import Modes, find_modes, mode_map
from ..pilot.particles import Particles
from ..pilot.report import AuditReport, ModelAudit
from ..pilot.screening import screen
from ..pilot.smc import TemperedSMC
from ..transport.normals import NormalMixture, gaussian_mixture
from .fitted import Fitted
from .locate import locate
from .objective import ForwardKL, Objective
from .pathfinder import Pathfinder, pathfinder, pathfinder_map
from .reverse import ReverseKL, reverse_kl
from .stein import SquaredExponential, SteinParticles, svgd
from .trace import FitTrace
from .train import train
from .trainer import Trainer
from .units import calibrate, unwrap

__all__ = [
    "Audit",
    "AuditReport",
    "FitTrace",
    "Fitted",
    "ForwardKL",
    "ModelAudit",
    "Modes",
    "NormalMixture",
    "Objective",
    "Particles",
    "Pathfinder",
    "Pool",
    "ReverseKL",
    "SquaredExponential",
    "SteinParticles",
    "TemperedSMC",
    "Trainer",
    "calibrate",
    "find_modes",
    "gaussian_mixture",
    "locate",
    "mode_map",
    "pathfinder",
    "pathfinder_map",
    "reverse_kl",
    "screen",
    "svgd",
    "tempered_draws",
    "train",
    "unwrap",
]
