"""Units of a target's coordinates: median and spread of their prior."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..errors import ConfigurationError
from ..rng import seeded
from .target import Target

STEP = 0.02  # step of a finite difference of gradients, prior standard deviations

WIDEST = 4.0  # largest standard deviation assumed of a posterior, prior standard deviations

PRIOR_DRAWS = 1024  # draws from which median and spread of the prior are computed


def prior_units(target: Target) -> tuple[Tensor, Tensor]:
    """Median and spread of prior draws by slot, (D,) each.

    With all items together, in a space of items; elsewhere over the models that use the slot.

    They depend on the target alone: the draws have a seed of their own.
    """
    generator = torch.Generator(target.device).manual_seed(0)
    code = target.space.largest(PRIOR_DRAWS, generator)
    with seeded(0, target.device), torch.no_grad():
        theta = target.sample_prior(code, generator)
    theta = torch.where(target.space.active(code) & theta.isfinite(), theta, math.nan)
    low, location, high = theta.nanquantile(
        torch.tensor([0.16, 0.5, 0.84], dtype=theta.dtype, device=theta.device), 0
    )
    location = location.nan_to_num(0.0)
    scale = (0.5 * (high - low)).nan_to_num(1.0)
    return location, torch.where(scale > 0, scale, 1.0)


def check_absent_is_zero(target: Target) -> None:
    """Refuse targets for which an absent item is not an item at zero; calls no likelihood.

    Raises:
        ConfigurationError: No model has all items, or absent is not the same as zero.
    """
    space = target.space
    code = space.together()
    absent = torch.zeros(1, target.dim, dtype=target.dtype, device=target.device)
    shown = target.constrain(code[0], absent)
    of_items = [v for name, v in shown.items() if name in space.of]
    possible = space.graphs or bool(space.log_prior(code).isfinite())
    if not possible or any(bool(v.any()) for v in of_items):
        raise ConfigurationError(
            "absent items are not items at zero: a model of all items must be possible, and "
            "parameters of items be real numbers (zero where their coordinate is)"
        )
