"""Kernels made of kernels."""

from __future__ import annotations

import copy
from bisect import bisect
from collections.abc import Sequence
from itertools import accumulate

import torch

from ..errors import ConfigurationError
from ..rng import host_number
from .base import Info, Kernel, State
from .proposal.base import check_weights


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

    def parts(self) -> list[Kernel]:
        return [part for kernel, _ in self.kernels for part in kernel.parts()]

    def step(self, state: State, generator: torch.Generator) -> tuple[State, list[Info]]:
        infos: list[Info] = []
        for kernel, repeats in self.kernels:
            for _ in range(repeats):
                state, info = kernel.step(state, generator)
                infos += info
        return state, infos

    def adapt(self, state: State, generator: torch.Generator) -> tuple[Cycle, State, list[Info]]:
        infos, kernels = [], []
        for kernel, repeats in self.kernels:
            for _ in range(repeats):
                kernel, state, info = kernel.adapt(state, generator)
                infos += info
            kernels.append(kernel)
        return self._of(kernels), state, infos

    def frozen(self) -> Cycle:
        return self._of([kernel.frozen() for kernel, _ in self.kernels])

    def _of(self, kernels: list[Kernel]) -> Cycle:
        found = copy.copy(self)
        repeats = [repeats for _, repeats in self.kernels]
        found.kernels = list(zip(kernels, repeats, strict=True))
        return found


class MixtureKernel(Kernel):
    """At each step one kernel, drawn by weight, for all chains.

    Arguments:
        kernels: Kernels.
        weights: Probability of each, equal if omitted.

    Raises:
        ConfigurationError: No kernel, weights that are negative or do not sum to 1.

    Source:
        Mixtures of kernels: Tierney (1994), https://doi.org/10.1214/aos/1176325750

    Example:
        >>> from trjmcmc import problems
        >>> from trjmcmc.kernel import Fixed, Jump, RandomWalk
        >>> target = problems.sinh_arcsinh()
        >>> flow = problems.SinhArcsinhMap(target.space)
        >>> kernel = MixtureKernel(
        ...     [Jump(target, flow, Fixed(target.space)), RandomWalk(target)], [0.7, 0.3]
        ... )
        >>> kernel.between, kernel.within
        (True, True)
    """

    name = "mixture"

    def __init__(self, kernels: Sequence[Kernel], weights: Sequence[float] | None = None) -> None:
        if not kernels:
            raise ConfigurationError("kernels: expected at least one, got none")
        self.kernels = list(kernels)
        self.weights = check_weights(weights, len(kernels))
        used = [k for k, w in zip(self.kernels, self.weights, strict=True) if w]
        self.between = any(k.between for k in used)
        self.within = any(k.within for k in used)

    def parts(self) -> list[Kernel]:
        return [part for kernel in self.kernels for part in kernel.parts()]

    def step(self, state: State, generator: torch.Generator) -> tuple[State, list[Info]]:
        return self.kernels[self._drawn(generator)].step(state, generator)

    def adapt(
        self, state: State, generator: torch.Generator
    ) -> tuple[MixtureKernel, State, list[Info]]:
        i = self._drawn(generator)
        kernel, state, infos = self.kernels[i].adapt(state, generator)
        return self._of([*self.kernels[:i], kernel, *self.kernels[i + 1 :]]), state, infos

    def frozen(self) -> MixtureKernel:
        return self._of([kernel.frozen() for kernel in self.kernels])

    def _drawn(self, generator: torch.Generator) -> int:
        """The place of the kernel that moves all chains now."""
        edges = list(accumulate(self.weights))
        drawn = bisect(edges, host_number(generator) * 2.0**-62 * edges[-1])
        return min(drawn, len(edges) - 1)  # the largest numbers are rounded to 1

    def _of(self, kernels: list[Kernel]) -> MixtureKernel:
        found = copy.copy(self)
        found.kernels = kernels
        return found
