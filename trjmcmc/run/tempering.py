"""Tempering of chains from the prior to the posterior, through all models at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .. import clock
from ..kernel.base import Kernel, State, start
from ..kernel.tempering import spaced
from ..pilot.generation import systematic
from ..pilot.smc import next_step
from ..space.base import Space
from ..target.tempered import Tempered
from .count import Tally
from .policy import ChainTemperingPolicy
from .policy_of_components import CountedPolicy

KEPT = 128  # chains of each power that replicas may begin from


@dataclass
class Passage:
    """What chains have shown at the powers through which they were carried, from 0 to 1.

    Attributes:
        powers: Of the likelihood.
        barrier: The local barrier at each, half of the mean difference of two chains' log
            likelihoods: by how much the rejection rate of neighbours in a ladder grows with the gap
            between their powers.
        empty: Share of the chains without components at each.
        codes, thetas: Chains at each, shapes (n, L) and (n, D).
        ancestors: The draws of the prior that they descend from, shape (n,).
    """

    powers: list[float] = field(default_factory=list)
    barrier: list[float] = field(default_factory=list)
    empty: list[float] = field(default_factory=list)
    codes: list[Tensor] = field(default_factory=list)
    thetas: list[Tensor] = field(default_factory=list)
    ancestors: list[Tensor] = field(default_factory=list)

    def add(
        self, power: float, value: Tensor, empty: Tensor, state: State, ancestor: Tensor
    ) -> None:
        """Add what chains are like at a power.

        Arguments:
            power: Where they are.
            value: Their log likelihoods to the power 1, shape (C,).
            empty: Whether they have no components, shape (C,).
            state: The chains.
            ancestor: Index of the draw that each descends from, shape (C,).
        """
        known = value[value > -math.inf].double()
        ranked, n = known.sort().values, len(known)
        order = 2 * torch.arange(n, dtype=torch.float64, device=known.device) + 1 - n
        gap = float((ranked * order).sum()) / max(1, n * (n - 1))  # half of the mean difference
        self.powers.append(power)
        self.barrier.append(gap)
        self.empty.append(float(empty.double().mean()))
        self.codes.append(state.code[:KEPT].clone())
        self.thetas.append(state.theta[:KEPT].clone())
        self.ancestors.append(ancestor[:KEPT].clone())

    def at(self, powers: Tensor, n: int) -> tuple[Tensor, Tensor, Tensor]:
        """Some n chains of the power that is nearest to each, and their ancestors.

        Shapes (T, n, L), (T, n, D) and (T, n).
        """
        known = torch.tensor(self.powers).double()
        nearest = [int((known - power).abs().argmin()) for power in powers.tolist()]
        rows = torch.arange(n, device=self.codes[0].device) % len(self.codes[0])
        return (
            torch.stack([self.codes[i][rows] for i in nearest]),
            torch.stack([self.thetas[i][rows] for i in nearest]),
            torch.stack([self.ancestors[i][rows] for i in nearest]),
        )

    def ladder(self, policy: CountedPolicy) -> Tensor:
        """Falling powers from 1 at which neighbours reject alike, shape (T,), float64.

        The last one is 0, or so far below the highest power at which chains often lose all
        components that they soon do: there they start afresh as well as at 0.

        Source:
            Barrier and spacing: Syed et al. (2021), https://doi.org/10.1111/rssb.12464, sections
            3.2 and 5.2
        """
        powers = torch.tensor([*self.powers, 1.0]).double().flip(0)
        rate = torch.tensor([*self.barrier, self.barrier[-1]]).double().flip(0)
        often = [b for b, e in zip(self.powers, self.empty, strict=True) if e > policy.empty_share]
        least = policy.melting * max(often, default=0.0)
        keep = powers > least
        at = torch.cat([powers[keep], powers.new_tensor([least])])
        rate = torch.cat([rate[keep], rate[keep][-1:] if least else rate[-1:]])
        # at 0 the rate may be larger by many powers of ten than a step away
        rejected = (rate[1:] * rate[:-1]).sqrt() * (at[:-1] - at[1:])
        sound = at[:-1] > at[1:]
        at, rejected = torch.cat([at[:-1][sound], at[-1:]]), rejected[sound]
        rungs = 1 + math.ceil(policy.rungs_a_barrier * float(rejected.sum()))
        return spaced(at, rejected, min(max(rungs, policy.least_rungs), policy.most_rungs))


def temper_chains(
    target: Tempered,
    state: State,
    kernel: Kernel,
    generator: torch.Generator,
    tally: Tally,
    deadline: float = math.inf,
    policy: ChainTemperingPolicy | None = None,
    *,
    resample: bool = True,
) -> tuple[Kernel, State, Tensor, Passage]:
    """Raise the likelihood's power from 0 to 1, resampling the chains and moving them.

    Chains that the prior has left in a corner lose their weight and are resampled away. What
    comes out is near the posterior, and a start of a run, no more.

    Arguments:
        target: The target, tempered; its power is 1 afterwards, even if this is interrupted.
        state: Draws from the prior over models and parameters.
        kernel: Moves the chains and is built on the tempered target; it learns at each step.
        generator: Source of randomness.
        tally: Counts what is accepted.
        deadline: Time by :func:`trjmcmc.clock.now` by which the power has to be 1; then it rises as
            fast as it must.
        policy: How many steps each power has.
        resample: Whether chains are resampled by weight; else each goes its own way, which leaves
            more to the moves, and all of their starts apart.

    Returns:
        The kernel that has learned, the chains, the row of ``state`` that each descends from,
        shape (chain,), and what they have shown on the way.

    Source:
        Tempering across dimensions: Jasra, Doucet, Stephens & Holmes (2008),
        https://doi.org/10.1016/j.csda.2007.09.009; steps: Jasra et al. (2011),
        https://doi.org/10.1111/j.1467-9469.2010.00723.x
    """
    policy = ChainTemperingPolicy() if policy is None else policy
    n, power, seconds, steps = len(state.code), 0.0, 0.0, policy.least_steps
    ancestor, passage = torch.arange(n, device=state.code.device), Passage()
    space = target.space
    try:
        with torch.no_grad():
            while power < 1:
                begun = clock.now()
                _, value = target.target.log_prior_and_likelihood(state.code, state.theta)
                passage.add(power, value, _empty(space, state.code), state, ancestor)
                value = value.double()[None]
                now = torch.full_like(value[:, :1], power)
                step = float(
                    next_step(value, (value > -math.inf).double(), now, policy.kept_chains)
                )
                left = (deadline - begun) / seconds if seconds else math.inf
                if left <= 1:
                    step = 1 - power
                elif power:
                    step = max(step, power ** (1 - 1 / left) - power)
                power = 1.0 if power + step > 1 - 1e-9 else power + step
                pick = torch.arange(n, device=ancestor.device)
                if resample:
                    pick = systematic((step * value).softmax(1), n, generator)[0]
                # replicas may begin from the first few
                pick = pick[torch.randperm(n, generator=generator, device=pick.device)]
                ancestor = ancestor[pick]
                target.temper(power)
                state = start(target, state.code[pick], state.theta[pick])
                for _ in range(steps):
                    if clock.now() > deadline:
                        break
                    kernel, state, infos = kernel.adapt(state, generator)
                    tally.add(infos)
                tally.check()
                seconds = clock.now() - begun
                pace, room = seconds / steps, max(0.0, deadline - clock.now())
                least = max(policy.least_steps, room / (policy.planned_powers * max(pace, 1e-12)))
                steps = int(min(policy.steps, least))
                seconds = steps * pace
    finally:
        target.temper(1.0)  # whatever has interrupted it
    return kernel.frozen(), start(target, state.code, state.theta), ancestor, passage


def _empty(space: Space, code: Tensor) -> Tensor:
    """Which chains have no items, or none with parameters where any have, shape (C,)."""
    own = space.slot_item < space.n_items
    has = space.active(code) & own if bool(own.any()) else space.items(code)
    return ~has.any(1)
