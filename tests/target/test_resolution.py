"""Numbers against what they are to tell apart: in targets, in fitted normals, in warnings."""

import math
import re
import warnings

import pytest
import torch
from torch.distributions import (
    Beta,
    Cauchy,
    Dirichlet,
    Gamma,
    HalfCauchy,
    LKJCholesky,
    LogNormal,
    Normal,
    Uniform,
)

import trjmcmc as trj
from benchmarks.resolution import against_null
from trjmcmc.errors import PrecisionWarning
from trjmcmc.fit import Pool
from trjmcmc.rng import seeded
from trjmcmc.target.prior import Prior
from trjmcmc.target.resolution import WIDE, resolution_doubts, resolved, spacing
from trjmcmc.transport.normals import gaussian_mixture

FLOAT32 = torch.finfo(torch.float32)


def prior_of(distribution, dtype=torch.float32):
    with seeded(0):  # as targets are made
        prior = Prior("x", distribution, items=None, example=({}, {}), owner="model 'm'")
    return prior.to(dtype, torch.device("cpu"))


def prior_alone(distribution, dtype=torch.float32):
    model = trj.Model("m", {"x": distribution}, lambda p: torch.zeros(len(p["x"])))
    return trj.Target([model], dtype=dtype)


def doubts_of_prior(distribution, dtype=torch.float32, n=20_000):
    target = prior_alone(distribution, dtype)
    code = torch.zeros(n, 1, dtype=torch.long)
    theta = target.sample_prior(code, torch.Generator().manual_seed(1))
    theta = theta[target.log_joint(code, theta).isfinite()]
    theta = theta[: len(theta) // 10 * 10].reshape(10, -1, target.dim)
    which = torch.zeros(theta.shape[:2], dtype=torch.long)
    return resolution_doubts(target, code[:1], which, theta).get("m", "")


# ---- the target --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "distribution",
    [
        Uniform(0.0, 1.0),
        Uniform(-1.0, 1.0),
        Uniform(1e4, 1e4 + 1),
        Beta(0.05, 0.05),
        Dirichlet(torch.full((3,), 0.05)),
        LKJCholesky(3, 1.0),
        Gamma(0.1, 0.1),
        trj.Ordered(Uniform(0.0, 1.0), 2),
    ],
    ids=lambda d: type(d).__name__,
)
def test_no_density_where_a_bijection_has_stopped_changing(distribution, dtype):
    prior = prior_of(distribution, dtype)
    x = torch.zeros(400, prior.size, dtype=dtype)
    x[:, -1] = torch.linspace(-1500, 1500, 400).to(dtype)
    value, log_density = prior.evaluate(x, {})
    assert value.isfinite().all() and not log_density.isnan().any()
    some = log_density > -math.inf
    value = value.reshape(400, -1).double()
    # wherever there is a density, different coordinates have different values nearby
    for step in (-5.0, 5.0):
        moved = prior.constrain((x + step)[some], {}).reshape(int(some.sum()), -1).double()
        apart = ((moved - value[some]).abs() > 0).any(-1)
        inside = prior.evaluate((x + step)[some], {})[1] > -math.inf
        assert bool(apart[inside].all())
    assert log_density[0] == log_density[-1] == -math.inf


def test_a_prior_keeps_digits_that_one_precision_does_not_hold():
    loc = torch.tensor(1e8 + 3, dtype=torch.float64)
    single = prior_of(Normal(loc, torch.ones_like(loc)))
    double = single.to(torch.float64, torch.device("cpu"))
    assert single.spec.loc.dtype == torch.float32 and single.spec.loc != loc
    assert double.spec.loc == loc  # was 1e8


def test_the_simplex_is_reached_in_logarithms():
    prior = prior_of(Dirichlet(torch.full((4,), 0.05)))
    exact = prior_of(Dirichlet(torch.full((4,), 0.05)), torch.float64)
    x = 25 * torch.randn(2000, 3, generator=torch.Generator().manual_seed(3))
    value, log_density = prior.evaluate(x, {})
    known = log_density > -math.inf
    their_value, theirs = exact.evaluate(x.double(), {})
    assert known.double().mean() > 0.8
    torch.testing.assert_close(log_density[known].double(), theirs[known], atol=1e-3, rtol=1e-5)
    torch.testing.assert_close(value[known].double(), their_value[known], atol=0, rtol=2e-5)
    back = prior.unconstrain(value, {})
    gap = (back - x).abs()[known]
    assert gap.max() < 1e-3  # torch's own is off by tens where entries are next to 0 or 1


def test_the_simplex_is_torchs_where_torchs_is_exact():
    prior = prior_of(Dirichlet(torch.ones(4)), torch.float64)
    theirs = torch.distributions.biject_to(torch.distributions.constraints.simplex)
    x = torch.randn(100, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    value, log_density = prior.evaluate(x, {})
    torch.testing.assert_close(value, theirs(x))
    jacobian = theirs.log_abs_det_jacobian(x, theirs(x))
    torch.testing.assert_close(log_density, math.log(6) + jacobian)


# ---- fitted normals ----------------------------------------------------------------------------


def test_normals_are_wider_than_the_numbers_they_emit():
    """Their density, summed over the numbers that they emit, is that of what they emit."""
    generator = torch.Generator().manual_seed(0)
    space = prior_alone(Normal(0.0, 1e4)).space
    theta = (
        5000.3 + 0.0005 * torch.randn(2000, 1, dtype=torch.float64, generator=generator)
    ).float()
    pool = Pool(torch.zeros(2000, 1).long(), theta, torch.zeros(2000))
    flow = gaussian_mixture(space, pool, generator, components=4)
    code = torch.zeros(40_000, 1).long()
    z = flow.reference.sample((len(code), flow.space.n_slots), generator, torch.float32)
    x, log_q = flow.push(z, code)
    assert (log_q < math.inf).all()  # none is disowned: a move back would find no way
    numbers = x.unique()
    step = float(numbers.diff().min())
    total = flow.log_prob(numbers[:, None], code[: len(numbers)]).double().exp().sum() * step
    assert float(total) == pytest.approx(1, abs=0.01)
    often = torch.bincount(torch.searchsorted(numbers, x[:, 0])) / len(x)
    stated = flow.log_prob(numbers[:, None], code[: len(numbers)]).double().exp() * step
    assert float((often - stated).abs().sum()) < 0.1  # was 1.3, all on a few numbers


def test_normals_that_are_wide_enough_stay_as_they_are():
    generator = torch.Generator().manual_seed(0)
    tril = torch.randn(5, 3, 3, dtype=torch.float64, generator=generator).tril()
    tril = tril + 3 * torch.eye(3, dtype=torch.float64)
    loc = torch.randn(5, 3, dtype=torch.float64, generator=generator)
    assert resolved(loc, tril, torch.float32) is tril
    narrow = tril.clone()
    narrow[0, 2] *= 1e-8
    found = resolved(loc, narrow, torch.float32)
    assert torch.equal(found[1:], narrow[1:])
    unit = found[0] / (WIDE * spacing(loc[0], torch.float32))[:, None]
    assert torch.linalg.svdvals(unit).min() > 1


@pytest.mark.whole
def test_jumps_through_normals_are_right_where_numbers_are_few():
    """1.1 numbers a standard deviation; jumps alone. Before: p(one) below .01 for .5."""
    target = against_null(Normal(0.0, 1e4), 5000.3, 0.0005)
    generator = torch.Generator().manual_seed(1)
    theta = torch.zeros(4000, 1)
    theta[:, 0] = 5000.3 + 0.0005 * torch.randn(4000, generator=generator)
    pool = Pool(torch.ones(4000, 1).long(), theta, torch.zeros(4000))
    flow = gaussian_mixture(target.space, pool, generator, components=3)
    kernel = trj.kernel.Jump(target, flow, trj.kernel.Fixed(target.space), rho=0.0)
    code = torch.arange(2000)[:, None] % 2
    state = trj.kernel.start(target, code, theta[:2000] * code)
    share = []
    for i in range(600):
        state, _ = kernel.step(state, generator)
        if i >= 200:
            share.append(float(state.code.double().mean()))
    assert sum(share) / len(share) == pytest.approx(0.5, abs=0.03)


# ---- the alarm ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "distribution",
    [
        Normal(0.0, 1.0),
        Normal(2000.0, 1.0),
        Normal(1e-6, 1e-9),
        Uniform(0.0, 1.0),
        Uniform(-1e4, 1e4),
        HalfCauchy(1.0),
        Cauchy(0.0, 1.0),
        LogNormal(0.0, 5.0),
        Gamma(2.0, 2.0),
        Gamma(0.1, 0.1),
        Beta(0.5, 0.5),
        Dirichlet(torch.ones(4)),
        Dirichlet(torch.full((3,), 0.3)),
        trj.Ordered(Normal(0.0, 1.0), 4),
        trj.Ordered(Uniform(0.0, 1.0), 6),
        LKJCholesky(4, 1.0),
    ],
    ids=str,
)
def test_ordinary_priors_raise_no_alarm(distribution, dtype):
    assert not doubts_of_prior(distribution, dtype)


@pytest.mark.parametrize(
    ("distribution", "dtype", "said"),
    [
        (Normal(55000.0, 0.01), torch.float32, "float32 numbers near x = 55000 lie"),
        (Normal(55000.0, 0.01), torch.float64, ""),
        (Normal(1e9, 1e-7), torch.float64, "state it as an offset from 1e+09"),
        (Uniform(2.4e6, 2.4e6 + 10), torch.float32, "use dtype=torch.float64"),
        (LogNormal(12.0, 1e-7), torch.float32, "lie"),
        (Beta(0.05, 0.05), torch.float32, "logarithm of its distance"),
        (Beta(0.05, 0.05), torch.float64, "logarithm of its distance"),
        (Beta(0.3, 0.3), torch.float32, "end of the range of x than float32 numbers do: use dtype"),
        (Beta(0.3, 0.3), torch.float64, ""),
        (Dirichlet(torch.full((3,), 0.05)), torch.float64, ""),
    ],
    ids=str,
)
def test_what_numbers_do_not_resolve_is_said(distribution, dtype, said):
    found = doubts_of_prior(distribution, dtype)
    assert said in found if said else not found


def test_a_bounded_parameter_may_have_a_bracket_in_its_name():
    """Its remedy is that of a bounded one: a prior much narrower."""
    start = {"t[days]": Uniform(0.0, 1e6)}
    model = trj.Model("m", start, lambda p: Normal(5e5, 0.02).log_prob(p["t[days]"].double()))
    target = trj.Target([model])
    code = torch.zeros(2000, 1, dtype=torch.long)
    near = 5e5 + 0.02 * torch.randn(2000, generator=torch.Generator().manual_seed(1))
    theta = target.unconstrain("m", {"t[days]": near})
    said = resolution_doubts(target, code[:1], code.view(10, 200), theta.view(10, 200, 1))["m"]
    assert "near t[days] = 500000" in said and "a prior much narrower" in said


def test_chains_that_stand_still_raise_no_alarm():
    target = prior_alone(Normal(torch.zeros(2), 1.0))
    where = torch.randn(12, 1, 2, generator=torch.Generator().manual_seed(0))
    crowd = where.repeat(20, 1, 1)  # of 12 ancestors
    code = torch.zeros(1, 1, dtype=torch.long)
    for theta in (crowd.expand(-1, 50, -1), crowd, where[:1].expand(100, 200, -1)):
        which = torch.zeros(theta.shape[:2], dtype=torch.long)
        doubts = resolution_doubts(target, code, which, theta.contiguous())
        assert not doubts


@pytest.mark.whole
def test_a_run_names_model_parameter_precision_and_remedy():
    target = against_null(Uniform(-1e4, 1e4), 3.2, 0.001)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        result = trj.TRJSampler(target, seed=1).run(draws=200, progress=False)
    said = " ".join(str(w.message) for w in heard if w.category is PrecisionWarning)
    assert re.search(r"'one' \(float32 .* height = 3\..*use dtype=torch.float64", said)
    assert [d.subject for d in result.doubts if d.kind == "resolution"] == ["one"]
    target = against_null(Uniform(-1e4, 1e4), 3.2, 0.001, dtype=torch.float64)
    result = trj.TRJSampler(target, seed=1, dtype=torch.float64).run(draws=200, progress=False)
    assert not any(d.kind == "resolution" for d in result.doubts)
    found = result.model_probabilities(full=True).loc["one"]
    assert found["visits"] == pytest.approx(0.5, abs=5 * found["visits_se"] + 0.005)


def test_chains_that_all_begin_at_one_point_say_nothing_of_numbers():
    """One draw of each chain; as many of the prior, which is too narrow, are the control."""
    target = trj.Target(
        [
            trj.Model(
                "m",
                {"x": Normal(torch.full((2,), 55_000.0), 0.01)},
                lambda p: torch.zeros(len(p["x"])),
            )
        ],
        dtype=torch.float32,
    )
    code = torch.zeros(200, 1, dtype=torch.long)
    draws = target.sample_prior(code, torch.Generator().manual_seed(0))[:, None]
    assert "float32" in resolution_doubts(target, code[:1], code, draws)["m"]
    assert resolution_doubts(target, code[:1], code, draws[:1].expand(200, -1, -1)) == {}
    few = draws.median(0).values + 55_000 * 2.0**-23 * torch.arange(-6.0, 6.0)[:, None, None]
    few = few[:, :, :1].expand(-1, -1, 2).repeat(20, 1, 1)  # twelve numbers next to each other
    assert "float32" in resolution_doubts(target, code[:1], code[:1].expand(240, -1), few)["m"]
    bare = trj.Target([trj.Model("bare", {}, lambda p: torch.tensor(0.0))])
    assert resolution_doubts(bare, code[:1], code, torch.zeros(200, 1, 0)) == {}
