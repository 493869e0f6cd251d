"""Codes of models as rows of integers."""

from __future__ import annotations

import math

import torch
from torch import Tensor

ENUMERABLE = 1 << 16  # largest space that anything in the package lists model by model

HIGHEST = 2**62  # that numbers of rows stay below


def distinct(code: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Distinct codes (U, L), in order, which each row is (N,), and how often each occurs (U,)."""
    key, most = _numbered(code)
    if most <= ENUMERABLE:  # counting is faster than sorting
        number = torch.bincount(key)
        which, counts = (number > 0).cumsum(0).sub_(1)[key], number[number > 0]
    else:
        _, which, counts = torch.unique(key, return_inverse=True, return_counts=True)
    first = torch.zeros_like(counts)
    first.scatter_(0, which, torch.arange(len(code), device=code.device))
    return code[first], which, counts


def _numbered(code: Tensor) -> tuple[Tensor, int]:
    """One number for each row, in the order of rows, and a bound above them: columns are digits.

    Sorting numbers is far faster than torch's comparison of whole rows. As many columns as fit
    make one number; where further ones do not, what is there is numbered anew.
    """
    key, most = torch.zeros(len(code), dtype=torch.long, device=code.device), 1
    if not code.numel():
        return key, most
    least = code.amin(0)
    spans = [
        high - low + 1 for low, high in zip(least.tolist(), code.amax(0).tolist(), strict=True)
    ]
    start, width = 0, code.shape[1]
    while start < width:
        stop, size = start, 1
        while stop < width and size * spans[stop] < HIGHEST:
            size, stop = size * spans[stop], stop + 1
        if stop == start:
            stop += 1
            part, size = _renumbered(code[:, start])
        else:
            digits = [math.prod(spans[i + 1 : stop]) for i in range(start, stop)]
            weight = torch.tensor(digits, device=code.device)
            part = (code[:, start:stop] * weight).sum(1) - (least[start:stop] * weight).sum()
        if most * size >= HIGHEST:
            (key, most), (part, size) = _renumbered(key), _renumbered(part)
        key, most, start = key * size + part, most * size, stop
    return key, most


def _renumbered(key: Tensor) -> tuple[Tensor, int]:
    """Positions of numbers among those that occur, and how many these are."""
    found, place = torch.unique(key, return_inverse=True)
    return place, len(found)
