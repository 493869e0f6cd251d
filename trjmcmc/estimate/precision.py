"""What is watched of the models that chains visit."""

from __future__ import annotations

import torch
from torch import Tensor

from ..promises import MODELS_ONE_BY_ONE
from ..space.base import Space


def features(space: Space, code: Tensor) -> Tensor:
    """Indicators whose means are watched: one a model, or in a large space one a unit or item.

    Of a long list or range, the models that occur most have one each, the rest one together.

    Arguments:
        space: The space.
        code: Models, shape (..., L).

    Returns:
        Shape (..., F), float64.
    """
    if space.size == 1:
        return torch.ones(*code.shape[:-1], 1, dtype=torch.float64, device=code.device)
    if space.units and not space.few:
        return code.double()
    if space.size is None or (space.has_named_items and not space.few):
        return space.items(code.flatten(0, -2)).unflatten(0, code.shape[:-1]).double()
    index = space.index(code.reshape(-1, code.shape[-1]))
    size = int(space.size or 0)
    if size > MODELS_ONE_BY_ONE:
        often = torch.bincount(index, minlength=size).argsort(descending=True)
        watched = MODELS_ONE_BY_ONE - 1  # and all others together
        rank = torch.full_like(often, watched)
        rank[often[:watched]] = torch.arange(watched, device=index.device)
        index, size = rank[index], MODELS_ONE_BY_ONE
    return torch.nn.functional.one_hot(index.reshape(code.shape[:-1]), size).double()
