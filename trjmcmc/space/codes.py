"""Codes of models as rows of integers."""

from __future__ import annotations

import math

import torch
from torch import Tensor

ENUMERABLE = 1 << 16  # largest space that anything in the package lists model by model


def distinct(code: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Distinct codes (U, L), which of them each row is (N,), and how often each occurs (U,)."""
    if not code.shape[1]:  # a space of one model has nothing to tell apart
        which = torch.zeros(len(code), dtype=torch.long, device=code.device)
        return code[:1], which, torch.bincount(which, minlength=1)
    radix = code.amax(0).add(1).tolist() if len(code) else [1]
    if bool((code >= 0).all()) and math.prod(radix) < 2**62:  # one number each sorts much faster
        place = [math.prod(radix[i + 1 :]) for i in range(len(radix))]
        weight = torch.tensor(place, device=code.device)
        row = (code * weight).sum(-1)
        if math.prod(radix) <= ENUMERABLE:  # counting is faster still
            number = torch.bincount(row)
            key = number.nonzero()[:, 0]
            which, counts = (number > 0).cumsum(0).sub_(1)[row], number[key]
        else:
            key, which, counts = torch.unique(row, return_inverse=True, return_counts=True)
        modulus = torch.tensor(radix, device=code.device)
        return key[:, None] // weight % modulus, which, counts
    key, most = torch.zeros_like(code[:, 0]), 1
    for column in code.unbind(1):  # far faster than torch's comparison of whole rows
        values, place = torch.unique(column, return_inverse=True)
        if most * len(values) >= 2**62:
            found, key = torch.unique(key, return_inverse=True)
            most = len(found)
        key, most = key * len(values) + place, most * len(values)
    found, which, counts = torch.unique(key, return_inverse=True, return_counts=True)
    first = torch.zeros_like(found).scatter_(0, which, torch.arange(len(code), device=code.device))
    return code[first], which, counts
