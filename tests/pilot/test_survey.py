import math
import time

import pytest
import torch

import trjmcmc as trj
from tests import toys
from trjmcmc.errors import ConvergenceWarning
from trjmcmc.pilot.audit import REPLICATES, usual_particles
from trjmcmc.pilot.survey import OVERHEAD, TEMPERATURES, PilotRuns

pytestmark = pytest.mark.planned


@pytest.fixture
def pilot(generator):
    return PilotRuns(toys.gaussians(), generator)


def test_particles_are_shared_within_bounds():
    assert [usual_particles(m) for m in (1, 10, 100)] == [1000, 600, 100]


def test_an_expensive_likelihood_gets_fewer_particles(pilot, monkeypatch):
    codes = pilot.target.space.enumerate()
    before = pilot.generator.get_state()
    cheap = pilot.planned(codes, deadline=time.monotonic() + 1e6)
    assert torch.equal(pilot.generator.get_state(), before)
    monkeypatch.setattr(pilot, "price", lambda codes: 0.1)
    costly = pilot.planned(codes, deadline=time.monotonic() + 6000)
    assert cheap.particles == usual_particles(3)
    evaluations = REPLICATES * 3 * costly.particles * (1 + costly.moves) * TEMPERATURES
    assert costly.particles < cheap.particles and evaluations * 0.1 * OVERHEAD <= 6000


def test_an_audit_goes_on_unless_another_size_is_asked_for(pilot):
    codes = pilot.target.space.enumerate()
    audit = pilot.planned(codes, particles=100, moves=20)
    assert pilot.grow(audit, 0) and pilot.planned(codes) is audit
    assert pilot.planned(codes, particles=100, moves=20) is audit
    assert pilot.planned(codes, particles=50) is not audit
    assert pilot.planned(codes[:2]) is not audit


def test_a_posterior_out_of_reach_has_no_audit(generator):
    nowhere = trj.Model(
        "m", {"x": torch.distributions.Normal(0.0, 1.0)}, lambda p: p["x"] - math.inf
    )
    pilot = PilotRuns(trj.Target([nowhere]), generator)
    with pytest.warns(ConvergenceWarning, match="no pilot run and no audit"):
        assert not pilot.grow(pilot.planned(pilot.target.space.enumerate()), 0)
