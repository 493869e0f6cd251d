"""Sigmoidal networks, plain conditioners of few units, and zuko flows turned round."""

import math

import pytest
import torch
import zuko
from torch.distributions import MultivariateNormal, Normal

import trjmcmc as trj
from tests.maps import shaken
from tests.transport.test_transport import mixed_space
from trjmcmc.errors import ConfigurationError
from trjmcmc.fit.standardise import calibrate
from trjmcmc.transport import sigmoidal as module
from trjmcmc.transport.sigmoidal import parameters, sigmoidal

NODES = 6
PRECISE = {torch.float32: 1e-4, torch.float64: 1e-9}

depths = pytest.mark.parametrize("depth", [1, 2, 3])
dtypes = pytest.mark.parametrize("dtype", list(PRECISE))


def network(depth, n, generator, dtype=torch.float64, by=0.7):
    phi = by * torch.randn(n, parameters(NODES, depth), generator=generator, dtype=torch.float64)
    return phi.to(dtype), sigmoidal(phi.to(dtype), NODES, depth)


def space_of(d):
    prior = {"a": Normal(torch.zeros(d), 1.0)}
    return trj.Target([trj.Model("m", prior, lambda p: torch.zeros(len(p["a"])))]).space


@depths
@dtypes
def test_networks_lead_there_and_back(depth, dtype, generator):
    """Up to 50 on either side; values and log-derivatives of float32 are those of float64."""
    x = torch.linspace(-50, 50, 2001, dtype=torch.float64)
    phi, step = network(depth, len(x), generator, dtype)
    y, ladj = step.call_and_ladj(x.to(dtype))
    assert y.dtype == ladj.dtype == dtype
    assert float(((step.inv(y) - x) / (1 + x.abs())).abs().max()) < PRECISE[dtype]
    exact, slope = sigmoidal(phi.double(), NODES, depth).call_and_ladj(x)
    assert float(((y - exact) / (1 + exact.abs())).abs().max()) < 1e-5
    assert torch.allclose(ladj.double(), slope, atol=1e-4)
    assert torch.allclose(step.inv.log_abs_det_jacobian(y, x.to(dtype)), -ladj)


@depths
def test_log_derivatives_are_those_of_autograd(depth, generator):
    x = torch.linspace(-50, 50, 401, dtype=torch.float64).requires_grad_()
    _, step = network(depth, len(x), generator)
    y, ladj = step.call_and_ladj(x)
    (slope,) = torch.autograd.grad(y.sum(), x)
    assert torch.allclose(ladj, slope.log(), atol=1e-8)


def test_a_sum_of_sigmoids_is_lost_in_float32_where_logarithms_are_not():
    x = torch.tensor([50.0])
    step = sigmoidal(torch.zeros(1, parameters(NODES, 1)), NODES, 1)
    (layer,) = step.layers
    plain = (layer.log_weight[0].exp() * torch.sigmoid(x + layer.shift)).sum().logit()
    assert float(plain) != pytest.approx(50, abs=10)  # 16 at most, or infinite
    assert float(step(x)) == pytest.approx(50, abs=0.1)


@dtypes
def test_tails_are_straight(dtype, generator):
    """The flattest node has the last word on both sides; nothing overflows far out."""
    _, step = network(1, 50, generator, dtype)
    (layer,) = step.layers
    flattest = layer.slope.amin(-1).log()
    for far in (-1e6, 1e6):
        y, ladj = step.call_and_ladj(torch.full((50,), far, dtype=dtype))
        assert bool(y.isfinite().all())
        assert torch.allclose(ladj, flattest, atol=0.3 if dtype == torch.float32 else 1e-3)
    least = sigmoidal(torch.full((1, parameters(NODES, 2)), -1e3, dtype=dtype), NODES, 2)
    assert float(least.log_abs_det_jacobian(torch.ones(1), None)) > 2.1 * math.log(module.FLOOR)


@depths
def test_the_inverse_has_the_gradient_of_the_implicit_function(depth, generator):
    phi, _ = network(depth, 3, generator)
    y = torch.tensor([-9.0, 0.3, 2.0], dtype=torch.float64)

    def back(phi, y):
        step = sigmoidal(phi, NODES, depth)
        x = step.inv(y)
        return x, step.log_abs_det_jacobian(x, y)

    assert torch.autograd.gradcheck(
        back, (phi.requires_grad_(), y.requires_grad_()), fast_mode=True
    )


@dtypes
def test_steep_and_flat_networks_are_searched_alike_on_any_device(dtype, generator, monkeypatch):
    """What comes back leads to the same point, even where it is flat: with early end or without."""
    _, step = network(2, 2000, generator, dtype, by=4.0)
    y = torch.linspace(-30, 30, 2000, dtype=dtype)
    for host in (True, False):
        monkeypatch.setattr(module, "on_host", lambda x, host=host: host)
        error = (step(step.inv(y)) - y).abs() / (1 + y.abs())
        assert float(error.max()) < 1e3 * torch.finfo(dtype).eps


def test_nodes_start_apart(monkeypatch):
    """From one place they would have one gradient; there the network is the identity."""
    x = torch.linspace(-3, 3, 50)
    for spread, least in ((module.SPREAD, 1e-3), (0.0, -1.0)):
        monkeypatch.setattr(module, "SPREAD", spread)
        phi = torch.zeros(parameters(NODES, 1), requires_grad=True)
        y = sigmoidal(phi.expand(50, -1), NODES, 1)(x)
        assert float((y - x).detach().abs().max()) < 0.07 * spread + 1e-5
        (gradient,) = torch.autograd.grad((y - x.sinh()).square().mean(), phi)
        shifts = gradient[NODES : 2 * NODES]
        apart = float(shifts.max() - shifts.min()) / max(float(shifts.abs().max()), 1e-30)
        assert apart > least
    assert apart < 1e-4


@dtypes
@pytest.mark.parametrize("kind", ["dsf", "ddsf"])
def test_neural_flows_lead_there_and_back_at_eight_deviations(kind, dtype):
    space = mixed_space()
    options = {"layers": 2, "blocks": 1, "hidden": 8, "nodes": 4}
    flow = shaken(
        trj.transport.CosmicAutoregressive(space, transform=kind, **options).to(dtype), 0.03
    )
    code = space.enumerate()
    for far in (-50.0, -8.0, 8.0, 50.0):
        z = torch.full((len(code), space.n_slots), far, dtype=dtype)
        theta, ladj = flow.from_reference(z, code)
        back, other = flow.to_reference(theta, code)
        assert float(((back - z) / far).detach().abs().max()) < PRECISE[dtype]
        assert torch.allclose(ladj, -other, atol=1e-3 if dtype == torch.float32 else 1e-8)
        assert torch.equal(theta[0], z[0])  # the model without coordinates


def few_units(k, d=2, **options):
    return trj.transport.CosmicAutoregressive(
        space_of(d), layers=1, blocks=1, hidden=k, activation="relu", residual=False, **options
    )


def fitted(k, seed, correlation, steps=500):
    """A flow of k rectifiers after a short fit to two correlated normals, and its KL ± error."""
    flow = few_units(k, seed=seed)
    covariance = torch.tensor([[1.0, correlation], [correlation, 1.0]])
    exact = MultivariateNormal(torch.tensor([0.5, -0.3]), covariance)
    optimiser = torch.optim.Adam(flow.parameters(), lr=2e-2)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda i: min(1, 2 - 2 * i / steps))
    generator = torch.Generator().manual_seed(seed)
    code = torch.zeros(50_000, 1, dtype=torch.long)
    for _ in range(steps):
        theta, log_q = flow.push(torch.randn(256, 2, generator=generator), code[:256])
        optimiser.zero_grad()
        (log_q - exact.log_prob(theta)).mean().backward()
        optimiser.step()
        schedule.step()
    with torch.no_grad():
        theta, log_q = flow.push(torch.randn(50_000, 2, generator=generator), code)
    gap = log_q - exact.log_prob(theta)
    return flow, float(gap.mean()), float(gap.std()) / len(code) ** 0.5


def shift_slopes(flow, far):
    """Derivative of the second coordinate by the first, at -far and far."""
    z = torch.tensor([[-far, 0.0], [far, 0.0]], requires_grad=True)
    theta, _ = flow.from_reference(z, torch.zeros(2, 1, dtype=torch.long))
    return torch.autograd.grad(theta[:, 1].sum(), z)[0][:, 0]


@pytest.mark.whole
def test_two_rectifiers_are_exact_on_two_correlated_normals_and_one_is_not():
    correlation = -0.8
    flow, kl, error = fitted(2, 0, correlation)
    assert kl < 1e-3
    assert torch.allclose(shift_slopes(flow, 4.0), torch.tensor(correlation), atol=0.1)
    flow, kl, error = fitted(1, 0, correlation)
    assert kl > 5 * error
    assert float(shift_slopes(flow, 1e3).abs().min()) == 0  # one side of a rectifier is flat


@pytest.mark.parametrize("correlation", [0.3, 0.9])
def test_two_rectifiers_hold_the_exact_posterior(correlation):
    """Set by hand, not trained: KL zero, and without the second unit more."""
    flow = few_units(2, clip=20.0).double()
    exact = torch.linalg.cholesky(torch.tensor([[1.0, correlation], [correlation, 1.0]]).double())
    inner, _, outer = flow.steps[0].net
    with torch.no_grad():
        inner.weight.copy_(torch.tensor([[1.0, 0, 0], [-1.0, 0, 0]]))
        outer.weight[2] = torch.tensor([correlation, -correlation])
        log_scale = exact[1, 1].log()
        outer.bias[3] = log_scale / (1 - abs(log_scale) / 20)
    z = torch.randn(200, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    code = torch.zeros(200, 1, dtype=torch.long)
    assert torch.allclose(flow.from_reference(z, code)[0], z @ exact.T, atol=1e-7)
    with torch.no_grad():
        outer.weight[2, 1] = 0.0
    assert not torch.allclose(flow.from_reference(z, code)[0], z @ exact.T, atol=1e-2)


@pytest.mark.parametrize(("k", "d"), [(1, 2), (2, 2), (1, 3), (4, 3), (5, 1)])
def test_plain_conditioners_have_the_units_that_are_asked_for(k, d):
    inner, activation, outer = few_units(k, d).steps[0].net
    assert isinstance(activation, torch.nn.ReLU)
    assert inner.weight.shape == (k, d + 1) and outer.weight.shape == (2 * d, k)
    seen = [1 + i % (d - 1) for i in range(k)] if d > 1 else [1] * k  # or else the constant
    assert inner.mask.sum(1).tolist() == seen
    assert bool((inner.weight * inner.mask).norm(dim=1).isclose(torch.ones(())).all())


@pytest.mark.parametrize("flow", ["NSF", "NAF", "UNAF", "SOSPF"])
@pytest.mark.parametrize("inverse", [False, True])
def test_zuko_flows_either_way(flow, inverse, generator):
    """Standardised units, one density both ways, spares pass."""
    space = mixed_space()
    make = {"NSF": {"hidden_features": (8,)}}.get(flow, {"transforms": 1, "hidden_features": (8,)})
    maps = trj.transport.PerModel(
        space, lambda d: getattr(zuko.flows, flow)(d, **make), inverse=inverse
    )
    maps = maps.double()
    code = space.enumerate()
    loc = torch.randn(len(code), space.n_slots, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        start = maps.from_reference(torch.ones_like(loc), code)[0]
    calibrate(maps, code, loc, (0.3 * loc).exp())
    z = torch.ones_like(loc)
    theta, log_q = maps.push(z, code)
    active = space.active(code)
    assert torch.allclose(theta, torch.where(active, loc + (0.3 * loc).exp() * start, z))
    back, again = maps.pull(theta, code, generator)
    assert torch.allclose(back, z, atol=1e-4)
    assert torch.allclose(again, log_q, atol=1e-3)


@pytest.mark.parametrize("inverse", [False, True])
def test_points_out_of_a_neural_flows_range_are_no_points(inverse, generator):
    """Eight deviations come back; farther out, zuko's search ends at its edge without a word."""
    space = space_of(2)
    maps = trj.transport.PerModel(
        space, lambda d: zuko.flows.NAF(d, transforms=1), inverse=inverse
    ).double()
    code = torch.zeros(2, 1, dtype=torch.long)
    there, back = maps.from_reference, maps.to_reference
    if inverse:
        there, back = back, there
    x = torch.tensor([[8.0, -8.0], [14.0, -14.0]], dtype=torch.float64)
    y, _ = back(x, code)  # the quick direction knows no bounds
    found, ladj = there(y, code)
    assert torch.allclose(found[0], x[0], atol=1e-4)
    assert ladj.isfinite().tolist() == [True, False]
    raw = maps.flows[0]().transform.inv(y[1])
    assert float(raw.detach().abs().max()) < 10.01 and bool(raw.isfinite().all())
    if inverse:
        assert maps.log_prob(y, code).isfinite().tolist() == [True, False]
        assert float(maps.log_prob(y, code)[1].detach()) == -math.inf
    else:
        assert float(maps.push(y, code)[1][1].detach()) == math.inf


def test_a_map_that_is_no_zuko_flow_is_told_how_to_be_one():
    with pytest.raises(ConfigurationError, match=r"write flow=lambda d: zuko\.flows\.NSF\(d\)"):
        trj.transport.PerModel(space_of(2), lambda d: torch.nn.Linear(d, d), inverse=True)


def evaluations(step, y, monkeypatch):
    """How often a search evaluates a network."""
    (layer,), made = step.layers, []
    plain = type(layer).plain
    monkeypatch.setattr(type(layer), "plain", lambda self, x: made.append(x) or plain(self, x))
    error = (step(step.inv(y)) - y).abs() / (1 + y.abs())
    assert float(error.max()) < 1e3 * torch.finfo(y.dtype).eps
    monkeypatch.undo()
    return len(made)


@dtypes
def test_searches_are_short_where_references_lie(dtype, generator, monkeypatch):
    """A flat node puts an end of the bracket far out: halving it from there takes twice as long."""
    _, step = network(1, 2000, generator, dtype, by=1.5)
    y, _ = step.call_and_ladj(torch.randn(2000, generator=generator, dtype=dtype))
    free = evaluations(step, y, monkeypatch)
    monkeypatch.setattr(module, "FREE_STEPS", 0)
    halving = evaluations(step, y, monkeypatch)
    assert free <= 12 and halving > 1.3 * free


@dtypes
def test_plain_sums_give_way_to_logarithms_far_out(dtype, generator, monkeypatch):
    """Where a sum of sigmoids underflows the search asks for logarithms, and finds the point."""
    _, step = network(1, 50, generator, dtype)
    x = torch.full((50,), 5.0 * -math.log(torch.finfo(dtype).tiny), dtype=dtype)
    y = step(x)
    assert float(((step.inv(y) - x) / x).abs().max()) < PRECISE[dtype]
    monkeypatch.setattr(module, "PLAIN", math.inf)
    assert not float(((step.inv(y) - x) / x).abs().max()) < PRECISE[dtype]


@pytest.mark.parametrize("kind", ["affine", "spline", "dsf", "ddsf"])
def test_the_way_of_an_only_model_is_that_of_many(kind, generator):
    """Nothing to leave out, and one row for the first coordinate: the same map and gradients."""
    options = {"layers": 2, "blocks": 1, "hidden": 8}
    flow = shaken(
        trj.transport.CosmicAutoregressive(space_of(3), transform=kind, **options).double(), 0.2
    )
    code = torch.zeros(40, 1, dtype=torch.long)
    theta = torch.randn(40, 3, generator=generator, dtype=torch.float64)
    found = []
    for whole in (True, False):
        assert flow.steps[0].whole  # as it was made
        for step in flow.steps:
            step.whole = whole
        log_q = flow.log_prob(theta, code)
        gradients = torch.autograd.grad(log_q.sum(), list(flow.parameters()))
        found.append([log_q, *flow.from_reference(theta, code), *gradients])
        for step in flow.steps:
            step.whole = True
    for one, many in zip(*found, strict=True):
        torch.testing.assert_close(one, many)
    assert not trj.transport.CosmicAutoregressive(mixed_space(), **options).steps[0].whole
