import math
import time

import pytest
import torch

import trjmcmc as trj
from tests import toys
from trjmcmc.errors import ConvergenceWarning
from trjmcmc.pilot.audit import REPLICATES
from trjmcmc.pilot.policy import AuditPolicy, SurveyPolicy, TemperingPolicy
from trjmcmc.pilot.survey import PilotRuns

POLICY = SurveyPolicy(
    particles_in_all=1200, audit=AuditPolicy(tempering=TemperingPolicy(polish_rounds=1))
)


@pytest.fixture
def pilot(generator):
    return PilotRuns(toys.gaussians(), generator, POLICY)


def test_particles_are_shared_within_bounds():
    policy = SurveyPolicy(particles_in_all=1200, fewest_particles=25, most_particles=300)
    assert [policy.particles(REPLICATES * m) for m in (1, 3, 100)] == [300, 100, 25]


def test_an_expensive_likelihood_gets_fewer_particles(pilot, monkeypatch):
    codes = pilot.target.space.enumerate()
    cheap = pilot.planned(codes, deadline=time.monotonic() + 1e6)
    monkeypatch.setattr(pilot, "price", lambda codes: 0.1)
    costly = pilot.planned(codes, deadline=time.monotonic() + 6000)
    assert cheap.particles == AuditPolicy().particles(REPLICATES * 3)
    evaluations = (
        REPLICATES * 3 * costly.particles * (1 + costly.moves) * POLICY.planned_temperatures
    )
    assert costly.particles < cheap.particles and evaluations * 0.1 * POLICY.overhead <= 6000


def test_an_audit_goes_on_unless_another_size_is_asked_for(pilot):
    codes = pilot.target.space.enumerate()
    audit = pilot.survey(codes)
    assert audit.particles == 100 and audit.moves == POLICY.moves
    assert pilot.interrupted() is audit and pilot.planned(codes) is audit
    assert pilot.planned(codes, particles=100, moves=POLICY.moves) is audit
    assert pilot.planned(codes, particles=50) is not audit
    assert pilot.planned(codes[:2]) is not audit


def test_a_posterior_out_of_reach_has_no_audit(generator):
    nowhere = trj.Model(
        "m", {"x": torch.distributions.Normal(0.0, 1.0)}, lambda p: p["x"] - math.inf
    )
    pilot = PilotRuns(trj.Target([nowhere]), generator)
    with pytest.warns(ConvergenceWarning, match="no pilot run and no audit"):
        assert pilot.survey(pilot.target.space.enumerate()) is None
    assert pilot.interrupted() is None
