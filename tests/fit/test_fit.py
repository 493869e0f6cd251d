import math
import warnings

import pytest
import torch
from torch.distributions import Cauchy, Gamma, Normal

import trjmcmc as trj
from tests import toys
from trjmcmc.errors import ConfigurationError, ConvergenceWarning, InterruptedWarning
from trjmcmc.estimate import log_mean_weight, log_weights
from trjmcmc.fit import ForwardKL, ReverseKL
from trjmcmc.fit.locate import locate
from trjmcmc.fit.reverse import reverse_kl
from trjmcmc.fit.train import train


def evidence(target, transport, label, generator, n=4000):
    code = target.space.code_of(label)
    estimate = log_mean_weight(log_weights(target, transport, code, n, generator))
    prior = float(target.space.log_prior(code[None])[0])
    return estimate.value - prior, estimate


def test_the_reverse_kl_of_an_exact_map_is_minus_the_log_evidence(generator):
    target = toys.gaussians()
    code = torch.arange(3).repeat(20)[:, None]
    z = torch.randn(60, 3, generator=generator)
    value, finite = reverse_kl(target, toys.gaussian_map(target), code, z)
    assert bool(finite.all())
    log_mass = torch.tensor(list(target.truth.log_evidence.values()))
    log_mass = log_mass + target.space.log_prior_table
    assert torch.allclose(value, -log_mass.repeat(20), atol=1e-4)


def test_gradients_of_the_reverse_kl_equal_those_of_plain_autograd(generator):
    target = toys.gaussians()
    transport = trj.transport.Affine(target.space, 0.1 * torch.ones(3, 3))
    code = torch.arange(3).repeat(20)[:, None]
    z = torch.randn(60, 3, generator=generator)
    reverse_kl(target, transport, code, z, temper=0.6).value.mean().backward()
    got = transport.loc.grad.clone()
    transport.zero_grad()
    theta, ladj = transport.from_reference(z, code)
    log_prior, log_likelihood = target.log_prior_and_likelihood(code, theta)
    (-ladj - log_prior - 0.6 * log_likelihood).mean().backward()
    assert torch.allclose(got, transport.loc.grad, atol=1e-6)


@pytest.mark.whole
@pytest.mark.parametrize("kind", ["reverse", "reverse, mixture", "forward", "covering"])
def test_training_reaches_gaussian_posteriors(kind, generator):
    target = toys.gaussians()
    components = 3 if "mixture" in kind else 1
    flow = trj.transport.mixture_flow(target.space, components=components, layers=4, hidden=(32,))
    objective = ReverseKL(target)
    if "reverse" not in kind:
        code = torch.arange(3).repeat(4000)[:, None]
        z = torch.randn(len(code), 3, generator=generator)
        draws = toys.gaussian_map(target).from_reference(z, code)[0].detach()
        log_joint = target.log_joint(code, draws) if kind == "covering" else None
        objective = ForwardKL(code, draws, log_joint=log_joint, generator=generator)
        assert objective.order == (1.5 if kind == "covering" else 1)
    trace = train(flow, objective, steps=500, batch=256, generator=generator, progress=False)
    assert trace.step[-1] <= 500
    for label, log_z in target.truth.log_evidence.items():
        value, estimate = evidence(target, flow, label, generator)
        assert estimate.ess > 0.9 * 4000
        assert abs(value - log_z) < 5 * estimate.std_error + 1e-4


def test_weighted_draws_and_models_of_few_draws(generator):
    """Weights count as draws, and a model of three draws does not dominate a batch."""
    target = toys.gaussians()
    flow = toys.gaussian_map(target)
    code = torch.tensor([1] * 1000 + [2] * 3)[:, None]
    theta = torch.zeros(1003, 3)
    theta[:1000, 0] = torch.arange(1000) % 2 + 1.0  # 1 and 2
    log_weight = torch.where(theta[:, 0] == 2, math.log(3.0), 0.0)
    objective = ForwardKL(code, theta, log_weight=log_weight, hold_out=0.0, generator=generator)
    seen = []
    for _ in range(40):
        u = torch.rand(500, generator=generator, dtype=torch.float64)
        seen.append(objective.draw_rows(u))
    rows = torch.cat(seen)
    first = rows[code[rows, 0] == 1]
    assert abs(float((theta[first, 0] == 2).double().mean()) - 0.75) < 0.02
    assert float((code[rows, 0] == 2).double().mean()) < 0.02
    assert bool(objective.losses(flow, 1.0, 8, generator).finite.all())


def test_a_covering_order_is_renyis_divergence(generator):
    """Its value on many draws equals the divergence of two normals in closed form."""
    target = trj.Target([trj.Model("m", {"x": Normal(0.0, 1.0)}, lambda p: 0 * p["x"])])
    flow = trj.transport.Affine(target.space, torch.tensor([[0.5]]))
    theta = torch.randn(40_000, 1, generator=generator)
    code = torch.zeros(40_000, 1, dtype=torch.long)
    log_joint = target.log_joint(code, theta)
    objective = ForwardKL(code, theta, log_joint=log_joint, hold_out=0.5, generator=generator)
    renyi = 1.5 * 0.5**2 / 2  # order * distance^2 / 2 between unit normals
    entropy = 0.5 * math.log(2 * math.pi * math.e)  # added so that it reads as a log density
    assert objective.validate(flow) == pytest.approx(renyi + entropy, abs=0.05)


@pytest.mark.whole
def test_a_plateau_ends_the_fit_early_and_the_best_map_is_kept(generator):
    target = toys.gaussians()
    exact = toys.gaussian_map(target)
    before = exact.loc.detach().clone()
    trace = train(
        exact,
        ReverseKL(target),
        steps=5000,
        batch=64,
        learning_rate=1e-3,
        patience=3,
        generator=generator,
        progress=False,
    )
    assert trace.stopped == "plateau"
    assert trace.step[-1] < 4000
    assert trace.temper[0] < 1 == trace.temper[-1]
    assert torch.allclose(exact.loc, before, atol=0.05)
    best = trace.objective[trace.step.index(trace.best_step)]
    full = [o for o, t in zip(trace.objective, trace.temper, strict=True) if t == 1]
    assert best == min(full)


@pytest.mark.whole
def test_draws_without_a_finite_density_are_counted_and_reported(generator):
    wall = trj.Target(
        [
            trj.Model(
                "m",
                {"x": Normal(0.0, 1.0)},
                lambda p: torch.where(p["x"] > 0, -p["x"], -math.inf),
            )
        ]
    )
    flow = trj.transport.CosmicFlow(wall.space, layers=0)
    with pytest.warns(ConvergenceWarning, match="had no finite log density or gradient"):
        trace = train(flow, ReverseKL(wall), steps=400, generator=generator, progress=False)
    assert 0 < sum(trace.non_finite) < trace.draws
    assert trace.non_finite[-1] < 0.1 * trace.draws / len(trace.step)  # it learns the wall
    for p in flow.parameters():
        assert bool(p.isfinite().all())


def test_a_broken_gradient_spoils_only_its_own_draw(generator):
    spiky = trj.Target(
        [
            trj.Model(
                "m",
                {"x": Normal(0.0, 1.0)},
                # value finite, gradient 0 * inf at x < 0
                lambda p: torch.where(p["x"] > 0, -(p["x"] * (p["x"] > 0)).sqrt(), 0.0),
            )
        ]
    )
    flow = trj.transport.CosmicFlow(spiky.space, layers=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        trace = train(flow, ReverseKL(spiky), steps=60, generator=generator, progress=False)
    assert 0 < sum(trace.non_finite) < trace.draws
    for p in flow.parameters():
        assert bool(p.isfinite().all())


def test_nothing_finite_at_all_is_an_error(generator):
    nowhere = trj.Target([trj.Model("m", {"x": Normal(0.0, 1.0)}, lambda p: p["x"] * 0 - math.inf)])
    with pytest.raises(ConfigurationError, match="no finite log density among"):
        train(
            trj.transport.CosmicFlow(nowhere.space, layers=0),
            ReverseKL(nowhere),
            steps=60,
            generator=generator,
            progress=False,
        )


@pytest.mark.parametrize(
    ("loc", "scale"), [(0.0, 1.0), (3000.0, 50.0), (-0.01, 1e-4), (12.0, 2000.0), (1e6, 1.0)]
)
def test_posteriors_far_away_are_located_without_prior_moments(loc, scale, generator):
    y = loc + scale * torch.randn(50, generator=generator)

    def log_likelihood(p):
        return Normal(p["mu"][:, None], p["tau"][:, None] ** -0.5).log_prob(y).sum(-1)

    target = trj.Target(
        [trj.Model("m", {"mu": Cauchy(0.0, 1e4), "tau": Gamma(1e-4, 1e-4)}, log_likelihood)]
    )
    where, width = locate(target, target.space.enumerate(), generator)
    mu, log_tau = where[0].tolist()
    # given the other, tau is Gamma(25 + 1e-4, 1e-4 + S / 2) and mu has precision 50 tau
    expected = math.log(25 / (1e-4 + 0.5 * float((y - y.mean()).square().sum())))
    standard = (50 * math.exp(expected)) ** -0.5
    assert abs(mu - float(y.mean())) < standard
    assert abs(log_tau - expected) < 0.3
    assert 0.5 * standard < float(width[0, 0]) < 2 * standard


@pytest.mark.slow
def test_a_heavy_tailed_problem_is_fitted_by_default(generator):
    """Pilot, standardisation and start must not rest on prior moments."""
    y = 300.0 + 20.0 * torch.randn(40, generator=generator)

    def log_likelihood(p):
        return Normal(p["mu"][:, None], p["tau"][:, None] ** -0.5).log_prob(y).sum(-1)

    target = trj.Target(
        [
            trj.Model("free", {"mu": Cauchy(0.0, 100.0), "tau": Gamma(1e-4, 1e-4)}, log_likelihood),
            trj.Model(
                "fixed",
                {"tau": Gamma(1e-4, 1e-4)},
                lambda p: log_likelihood({"mu": torch.full_like(p["tau"], 300.0), **p}),
            ),
        ]
    )
    double = target.to(dtype=torch.float64)
    z = [
        trj.problems.log_evidence(
            lambda x, m=m, d=d: double.log_joint(
                torch.full((len(x), 1), m),
                x if d == 2 else torch.cat([torch.zeros(len(x), 1).double(), x], 1),
            ),
            torch.tensor([[300.0, -6.0]] if d == 2 else [[-6.0]]),
        )
        for m, d in ((0, 2), (1, 1))
    ]
    truth = torch.tensor(z).softmax(0)
    for pilot in (True, False):
        sampler = trj.TRJSampler(target, seed=2)
        sampler.fit(steps=400, batch=256, pilot=pilot, progress=False)
        table = sampler.run(300, chains=128, progress=False).model_probabilities(full=True)
        gap = (table["visits"] - truth.numpy()).abs()
        assert bool((gap < 5 * table["visits_se"]).all())
        assert bool((table["visits_se"] < 0.02).all())


def test_interrupting_a_fit_keeps_the_best_map(generator):
    class Stops(ReverseKL):
        calls = 0

        def losses(self, *arguments):
            self.calls += 1
            if self.calls > 120:
                raise KeyboardInterrupt
            return super().losses(*arguments)

    target = toys.gaussians()
    flow = trj.transport.CosmicFlow(target.space, layers=0)
    with pytest.warns(InterruptedWarning, match="fit interrupted"):
        trace = train(
            flow, Stops(target, anneal=0.0), steps=500, generator=generator, progress=False
        )
    assert trace.stopped == "interrupted"
    assert trace.best_step in {50, 100}


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda t, g: train(
                trj.transport.CosmicFlow(t.space), ReverseKL(t), batch=0, generator=g
            ),
            ConfigurationError,
            "batch=0",
        ),
        (
            lambda t, g: train(
                trj.transport.CosmicFlow(t.space), ReverseKL(t), learning_rate=-1, generator=g
            ),
            ConfigurationError,
            "learning_rate=-1",
        ),
        (lambda t, g: ReverseKL(t, anneal=1.0), ConfigurationError, "anneal"),
        (
            lambda t, g: ForwardKL(
                torch.zeros(2, 1).long(), torch.zeros(2, 3), order=2.0, generator=g
            ),
            ConfigurationError,
            "order: expected 1, or more with log_joint",
        ),
        (
            lambda t, g: ForwardKL(torch.zeros(1, 1), torch.zeros(1, 3), generator=g),
            ConfigurationError,
            "2 draws or more",
        ),
    ],
)
def test_wrong_settings_say_what_is_wrong(make, error, message, generator):
    with pytest.raises(error, match=message):
        make(toys.gaussians(), generator)


def test_six_plateaus_end_a_training_at_halved_rates():
    from trjmcmc.fit.schedule import Halving

    rate, told = Halving(10_000), []
    while not rate.done(100):
        told.append(rate(100))
        rate.plateau(100)
    assert told == [1, 0.5, 0.25, 0.125, 0.0625, 0.03125]


def test_an_unknown_schedule_is_refused_at_once():
    sampler = trj.TRJSampler(trj.problems.sinh_arcsinh(), seed=1)
    with pytest.raises(ConfigurationError, match="schedule: expected one of"):
        sampler.fit(by="vi", schedule="Plateau")
    assert sampler.account.evaluations == 0
