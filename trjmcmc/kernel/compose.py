"""Kernels made of kernels."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..errors import ConfigurationError
from .base import Info, Kernel, State


class Cycle(Kernel):
    """Apply kernels one after the other, each a number of times.

    Arguments:
        kernels: Kernels, or pairs of a kernel and its number of repeats.

    Raises:
        ConfigurationError: No kernel, or a repeat below 1.

    Example:
        >>> from trjmcmc import problems
        >>> from trjmcmc.kernel import CrankNicolson, Fixed, Jump
        >>> target = problems.sinh_arcsinh()
        >>> flow = problems.SinhArcsinhMap(target.space)
        >>> kernel = Cycle([Jump(target, flow, Fixed(target.space)),
        ...                 (CrankNicolson(target, flow), 2)])
        >>> kernel.between, kernel.within
        (True, True)
    """

    name = "cycle"

    def __init__(self, kernels: Sequence[Kernel | tuple[Kernel, int]]) -> None:
        pairs = [k if isinstance(k, tuple) else (k, 1) for k in kernels]
        if not pairs or any(repeats < 1 for _, repeats in pairs):
            raise ConfigurationError(f"kernels: expected at least one, each repeated, got {pairs}")
        self.kernels = pairs
        self.between = any(k.between for k, _ in pairs)
        self.within = any(k.within for k, _ in pairs)

    def step(self, state: State, generator: torch.Generator) -> tuple[State, list[Info]]:
        infos: list[Info] = []
        for kernel, repeats in self.kernels:
            for _ in range(repeats):
                state, info = kernel.step(state, generator)
                infos += info
        return state, infos
