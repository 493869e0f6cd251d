"""Kernels made of kernels."""

from __future__ import annotations

import copy
import math
from bisect import bisect
from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from ..errors import ConfigurationError
from ..rng import host_number
from .base import Info, Kernel, State, accept
from .between.jump import Jump
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


class DelayedRejection(Kernel):
    r"""A second jump from where a first was rejected, bolder or more careful.

    With the first jump's random numbers omega kept, let alpha_1(y | omega) be the chance that
    the first jump would be accepted from y. The second proposal y is accepted with
    probability min(1, r (1 - alpha_1(y | omega)) / (1 - alpha_1(x | omega))), where r is its
    own ratio: what is accepted at the second stage must have been refused at the first, there
    and back.

    Arguments:
        first: A jump.
        second: Another through the same map.

    Raises:
        ConfigurationError: The jumps have different maps, or one whose spare slots move.

    Source:
        Tierney & Mira (1999),
        https://doi.org/10.1002/(SICI)1097-0258(19990915/30)18:17/18<2507::AID-SIM272>3.0.CO;2-J;
        across dimensions: Green & Mira (2001), https://doi.org/10.1093/biomet/88.4.1035

    Example:
        >>> from trjmcmc import problems
        >>> from trjmcmc.kernel import Fixed, Jump
        >>> target = problems.sinh_arcsinh()
        >>> flow = problems.SinhArcsinhMap(target.space)
        >>> bold = Jump(target, flow, Fixed(target.space, other=True), rho=0.0)
        >>> careful = Jump(target, flow, Fixed(target.space, other=True), name="careful")
        >>> DelayedRejection(bold, careful).between
        True
    """

    name = "delayed rejection"

    def __init__(self, first: Jump, second: Jump) -> None:
        if not isinstance(first, Jump) or not isinstance(second, Jump):
            raise ConfigurationError("DelayedRejection: expected two jumps, trj.kernel.Jump")
        if first.transport is not second.transport or not first.transport.spares_pass:
            raise ConfigurationError(
                "DelayedRejection: both jumps must go through one map that passes spare coordinates"
            )
        self.first, self.second = first, second
        self.between = first.between or second.between
        self.within = first.within or second.within

    def parts(self) -> list[Kernel]:
        return [self.first, self.second]

    def step(self, state: State, generator: torch.Generator) -> tuple[State, list[Info]]:
        state = self.first.locate(state, generator)
        again = torch.Generator(generator.device)
        again.set_state(generator.get_state())
        proposed, log_ratio = self.first.propose(state, generator)
        after, first = accept(self.first.name, state, proposed, log_ratio, generator)
        accepted = first[0].accepted
        second, second_ratio = self.second.propose(state, generator)
        _, ghost_ratio = self.first.propose(second, again)  # the same random numbers from there
        second_ratio = second_ratio + _log_refused(ghost_ratio) - _log_refused(log_ratio)
        second_ratio = torch.where(accepted, -math.inf, second_ratio)
        after, infos = accept(self.second.name, after, second, second_ratio, generator)
        return after, first + infos


def _log_refused(log_ratio: Tensor) -> Tensor:
    """Log chance that a proposal is refused; a proposal of no density always is."""
    taken = log_ratio.nan_to_num(-math.inf, math.inf, -math.inf).double().clamp(max=0).exp()
    return torch.log1p(-taken)
