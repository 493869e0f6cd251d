import json
import math
from functools import cache

import pytest
import torch

from tests.places import SHARED, shared_only
from trjmcmc.errors import TargetError
from trjmcmc.problems import ENERGIES, energies, energy

LIMIT = 5.0  # standard errors


def moments(z, log_p):
    """Functions whose means tell a density, (n, k)."""
    x, y = z.unbind(-1)
    return torch.stack([x, y, x**2, x * y, (3 * x).sin(), (3 * y).cos(), log_p], -1)


@cache
def by_quadrature(name):
    """Their means by the trapezoid rule on a lattice of another step."""
    target = energy(name)
    axes = [torch.linspace(-26, 28, 901).double(), torch.linspace(-12, 12, 401).double()]
    z = torch.cartesian_prod(*axes)
    weight = target.log_density(z).softmax(0)
    return weight @ moments(z, target.log_prob(z))


def errors(target, draws):
    """How far their means over draws are from these, in standard errors."""
    each = moments(draws, target.log_prob(draws)) - by_quadrature(target.name)
    return (each.mean(0) / (each.std(0) / len(each) ** 0.5)).abs().max().item()


@shared_only
def test_constants_against_the_shared_reference_answers():
    found = json.loads((SHARED / "gold" / "variational.json").read_text())["energies"]
    assert set(found["normalisers"]) == set(ENERGIES)
    for name, value in found["normalisers"].items():
        assert math.exp(energy(name).log_evidence) == pytest.approx(value, abs=6e-6)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("U4", math.exp(2.5) / 4),
        ("U5", 0.4 * math.sqrt(2 * math.pi) * math.sqrt(10 * math.pi)),
        ("U6", 2 * 0.35 * math.sqrt(2 * math.pi) * math.sqrt(20 * math.pi)),
        ("U7", 2 * 0.35 * math.sqrt(2 * math.pi) * math.sqrt(10 * math.pi)),
    ],
)
def test_constants_in_closed_form(name, value):
    assert energy(name).log_evidence == pytest.approx(math.log(value), abs=1e-10)


@pytest.mark.parametrize("name", ENERGIES)
def test_draws_are_from_the_density(name, generator):
    target = energy(name)
    draws = target.exact_draws(40_000, generator)
    assert draws.shape == (40_000, 2) and draws.dtype == torch.float64
    assert errors(target, draws) < LIMIT
    assert errors(target, 1.05 * draws) > LIMIT  # a slight stretch is seen
    # the density nowhere exceeds what draws are thinned from
    near = draws + 0.1 * torch.randn(draws.shape, generator=generator).double()
    place = (near - torch.tensor(energies.LOW)) / energies.STEP
    interpolated = energies._interpolated(energies._lattice(name), place)
    assert (target.log_density(near).exp() / interpolated).max() < energies.BOUND


def test_thinning_makes_draws_of_a_coarse_lattice_right(monkeypatch, generator):
    monkeypatch.setattr(energies, "STEP", 0.2)
    monkeypatch.setattr(energies, "BOUND", 3.0)
    energies._lattice.cache_clear()
    try:
        target = energy("U6")
        assert errors(target, target.exact_draws(40_000, generator)) < LIMIT
        monkeypatch.setattr(energies, "_interpolated", lambda lattice, place: 1e-300)
        assert errors(target, target.exact_draws(40_000, generator)) > LIMIT
    finally:
        energies._lattice.cache_clear()


@pytest.mark.parametrize("name", ENERGIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_targets_have_the_density(name, dtype, generator):
    target = energy(name).to(dtype=dtype)
    assert target.truth.log_evidence == {name: target.log_evidence}
    z = 2 * torch.randn(200, 2, generator=generator).to(dtype)
    z[0] = 0.0
    code = torch.zeros(200, 1, dtype=torch.long)
    value, gradient = target.log_joint_and_grad(code, z)
    assert value.dtype == dtype and gradient.isfinite().all()
    expected = energy(name).log_density(z.double())
    torch.testing.assert_close(
        value.double(), expected, rtol=1e-5, atol=1e-4 if dtype == torch.float32 else 1e-10
    )


def test_other_energies_are_refused():
    with pytest.raises(TargetError, match=r"expected one of U1, U2, .*got 'U10'"):
        energy("U10")
