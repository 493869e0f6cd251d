import dataclasses

import pytest
import torch

import trjmcmc as trj
from tests import toys
from tests.small import train
from trjmcmc.draws import Pool
from trjmcmc.fit import trainer as training
from trjmcmc.fit.standardise import moments
from trjmcmc.fit.trainer import Trainer
from trjmcmc.pilot import audit, survey


@pytest.fixture
def trainer(generator, monkeypatch):
    for module, name, value in (
        (training, "MOST_MENDS", 0),
        (train, "WINDOW", 10),
        (survey, "MODE_DRAWS", 100),
        (audit, "MOST_PARTICLES", 100),
        (audit, "SCORED_DRAWS", 200),
        (audit, "DRAWS_PER_MODEL", 2000),
    ):
        monkeypatch.setattr(module, name, value)
    target = toys.gaussians()
    return Trainer(target, trj.transport.CosmicFlow(target.space, seed=1), generator)


def quick(trainer, **settings):
    return trainer.fit(steps=20, batch=64, audit=1, progress=False, **settings)


def test_what_was_fitted_does_not_change(trainer):
    first = quick(trainer)
    assert first is trainer.fitted and first.map is trainer.transport
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.score = None
    before = dataclasses.replace(first)
    second = quick(trainer)
    assert second is not first and second.trace is not first.trace
    assert second.audit is first.audit  # it is kept
    for field in dataclasses.fields(first):
        assert getattr(first, field.name) is getattr(before, field.name)
    kept = trainer.keep(dataclasses.replace(second, score=None))
    assert trainer.fitted is kept and kept.score is None and second.score is not None


def test_numbers_of_a_fit_are_those_of_its_constants(trainer):
    fitted = quick(trainer)
    assert fitted.trace.step == [10, 20]
    assert fitted.audit.particles == 100
    shortfall = fitted.audit.shortfall(trainer.transport)
    assert shortfall.shape == (3, 200)


def test_too_few_draws_tell_no_scale():
    code = torch.zeros(40, 1, dtype=torch.long)
    theta = torch.arange(40.0)[:, None].repeat(1, 2)
    active = torch.tensor([[True, False]])
    pool = Pool(code, theta, torch.zeros(40))
    loc, scale = moments(pool, code[:1], active)
    assert loc.tolist() == [[19.5, 0.0]]
    assert scale.tolist() == [[pytest.approx(float(theta[:, 0].std())), 1.0]]
    few = Pool(code, theta.div(4, rounding_mode="floor"), torch.zeros(40))
    assert moments(few, code[:1], active)[1].tolist() == [[1.0, 1.0]]
    none = code[:1] + 1
    assert moments(pool, none, active)[0].tolist() == [[0.0, 0.0]]
