"""Walks around a circle: a phase whose posterior lies on both sides of the seam."""

import math

import pytest
import torch
from scipy.special import iv
from torch.distributions import Normal, Uniform

import trjmcmc as trj
from tests.battery import Case, is_caught, stays_exact
from tests.cases import mean_score, resampled
from trjmcmc.kernel import CommonWalk, ComponentWalk, RandomWalk, SharedWalk, start
from trjmcmc.kernel.steps import Around
from trjmcmc.target.exchangeable import Components

KAPPA = 2.0

TURN = 2 * math.pi

KERNELS = {
    "component walk": ComponentWalk,
    "common walk": CommonWalk,
    "shared walk": SharedWalk,
    "walk": RandomWalk,
}


def phases(prior=None):
    """Components with a phase and a size, and a phase that all share: von Mises about zero."""
    prior = prior or trj.priors.Periodic(0.0, TURN)
    return trj.Target(
        trj.Counts(2, of=("phase", "size"), min=1),
        {"phase": prior, "size": Normal(0.0, 1.0), "shared": prior},
        lambda p, active: (
            KAPPA * ((p["phase"].cos() * active).sum(-1) + p["shared"].cos())
            - math.log(iv(0, KAPPA)) * active.sum(-1)
        ),
    )


def case():
    target = phases()

    def draw(n, generator):
        return resampled(target, n, generator)

    def scores(state):
        parts = Components(target)
        on = parts.items(state.code)
        phase, size = parts.of(state.theta).unbind(-1)
        shared = state.theta[:, target.periodic_slots][:, -1]
        found, mean = [], iv(1, KAPPA) / iv(0, KAPPA)
        second = iv(2, KAPPA) / iv(0, KAPPA)
        for x in (phase[on], shared):
            angle = TURN * x.double().sigmoid()
            for series in (angle.cos() - mean, angle.sin(), (2 * angle).cos() - second):
                found.append(mean_score(series))
        return torch.tensor([*found, mean_score(size[on].double())])

    return Case(target, draw, scores)


@pytest.mark.parametrize("name", KERNELS)
def test_walks_around_the_circle_keep_the_posterior(name, generator):
    problem = case()
    stays_exact(KERNELS[name](problem.target), problem, generator)


@pytest.mark.parametrize("name", KERNELS)
def test_walks_that_forget_the_slope_are_caught(name, generator, monkeypatch):
    step = Around.__call__
    monkeypatch.setattr(Around, "__call__", lambda *a: (step(*a)[0], torch.zeros(len(a[1]))))
    problem = case()
    assert is_caught(KERNELS[name](problem.target), problem, generator)


def test_only_a_periodic_parameter_goes_across_the_seam(generator):
    """Short steps from just below a whole turn end just above none, or stay below."""
    crossed = {}
    for prior in (trj.priors.Periodic(0.0, TURN), Uniform(0.0, TURN)):
        target = phases(prior)
        kernel = RandomWalk(target, scale=0.1, lengths=(0.5, 1.0))
        code = torch.ones(2000, 1, dtype=torch.long)
        theta = torch.where(target.space.active(code), 5.0, 0.0)  # .993 of a turn
        state = start(target, code, theta)
        for _ in range(3):
            state, _ = kernel.step(state, generator)
        shared = target.padded_values(state.code, state.theta)["shared"]
        crossed[type(prior)] = float((shared < 0.5 * math.pi).double().mean())
    assert crossed[trj.priors.Periodic] > 0.05
    assert crossed[Uniform] == 0


def test_what_is_periodic_is_known_by_its_prior():
    target = trj.problems.radial_velocity(most=2)
    names = [target.slot_names[i] for i in target.periodic_slots.nonzero()[:, 0]]
    assert names == ["periastron[0]", "periastron[1]", "anomaly[0]", "anomaly[1]"]
    assert target.to(dtype=torch.float64).periodic_slots.equal(target.periodic_slots)
    models = [
        trj.Model("round", {"x": trj.priors.Periodic(0.0, 1.0)}, lambda p: p["x"]),
        trj.Model("flat", {"x": Uniform(0.0, 1.0)}, lambda p: p["x"]),
    ]
    assert not trj.Target(models).periodic_slots.any()  # one coordinate, two meanings
    assert trj.Target(models[:1]).periodic_slots.all()
