"""Fits on a device: it is waited for once a step or a round, however many particles there are."""

from collections import Counter

import pytest
import torch

import trjmcmc as trj
from tests import toys
from tests.emulated import DEVICE, Emulated, carried
from trjmcmc.fit import ForwardKL, ReverseKL
from trjmcmc.fit.train import train
from trjmcmc.pilot.audit import Audit
from trjmcmc.pilot.smc import TemperedSMC
from trjmcmc.transport.laplace import ITERATIONS

USERS = ("tests/", "trjmcmc/problems")


def trained(n, target, generator, forward=False):
    flow = carried(trj.transport.CosmicFlow(toys.gaussians().space, layers=2, hidden=(8,)))
    objective = ReverseKL(target)
    if forward:
        code = target.space.enumerate().repeat(n, 1)
        theta = torch.randn(len(code), target.dim, generator=generator, device=DEVICE)
        log_joint = target.log_joint(code, theta)
        objective = ForwardKL(code, theta, log_joint=log_joint, generator=generator)
    train(flow, objective, steps=4, batch=n, generator=generator, progress=False)
    return 4


def trained_on_draws(n, target, generator):
    return trained(n, target, generator, forward=True)


def tempered(n, target, generator):
    smc = TemperedSMC(
        target, target.space.enumerate(), particles=n, moves=3, gradients=True, generator=generator
    )
    smc.run()
    return smc.temperatures * (3 + smc.polish)


def audited(n, target, generator):
    audit = Audit(target, target.space.enumerate(), particles=n, moves=2, generator=generator)
    audit.grow(limit=0)
    audit.pool(most=n)
    return 2 * len(target.space.enumerate())


def expanded(n, target, generator):
    """Modes, curvatures and evidences of all models by Newton's steps, here of n subsets."""
    made = carried(trj.problems.variable_selection(8))
    flow = trj.transport.LaplaceMap(made)
    flow.log_evidence(made.space.enumerate()[:n])
    return ITERATIONS


def waited(function, n):
    """Steps or rounds, and what was waited for in them."""
    made = toys.gaussians()
    with Emulated() as device:
        target, generator = carried(made), torch.Generator(DEVICE).manual_seed(1)
        device.clear()
        steps = function(n, target, generator)
        found = Counter()
        for (_, op, place), times in device.counts().items():
            if not place.startswith(USERS):
                found[op, place] += times
    return steps, found


# by what is done: what is waited for in a step or round, and once
MOST = {
    trained: (2, 1),
    trained_on_draws: (1, 16),
    tempered: (2, 12),
    audited: (8, 0),
    expanded: (2, 30),
}


@pytest.mark.planned
@pytest.mark.parametrize("function", MOST)
def test_a_step_waits_as_often_however_many_particles_there_are(function):
    each, once = MOST[function]
    (steps, few), (more_steps, many) = (waited(function, n) for n in (40, 160))
    assert 0 < sum(few.values()) <= each * steps + once, few
    assert sum(many.values()) <= each * more_steps + once, many


def test_what_looks_at_each_particle_is_caught():
    with Emulated() as device:
        x = torch.ones(40, device=DEVICE)
        assert not any(bool(y > 2) for y in x)
    assert sum(device.counts("wait").values()) == 40
