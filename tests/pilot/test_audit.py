import math
import warnings

import pytest
import torch
from scipy.stats import kstest, norm
from torch.distributions import Cauchy, Gamma, Normal

import trjmcmc as trj
from benchmarks.four_modes import WEIGHTS, four_modes, mode_centres
from tests import toys
from trjmcmc.errors import ConfigurationError, CoverageWarning, TargetError
from trjmcmc.estimate import log_mean_weight, log_weights
from trjmcmc.pilot.audit import Audit
from trjmcmc.pilot.modes import find_modes
from trjmcmc.pilot.report import ModelAudit
from trjmcmc.pilot.smc import TemperedSMC
from trjmcmc.promises import LOG_EVIDENCES_AGREE, POSTERIOR_COVERED

pytestmark = pytest.mark.planned


def two_modes(weight=0.2, gap=5.0):
    """One parameter, modes at -gap and +gap; the evidence is exact."""

    def log_likelihood(p):
        left = Normal(-gap, 0.3).log_prob(p["x"]) + math.log(weight)
        right = Normal(gap, 0.3).log_prob(p["x"]) + math.log(1 - weight)
        return torch.logaddexp(left, right)

    prior = Normal(0.0, 10.0)
    log_z = float(Normal(0.0, math.hypot(10, 0.3)).log_prob(torch.tensor(gap)))
    return trj.Target([trj.Model("m", {"x": prior}, log_likelihood)]), log_z


def smc(target, code, **options):
    return TemperedSMC(target, code, **options).run()


def shares(theta, centre):
    """Share of points nearest to each centre."""
    nearest = torch.cdist(theta.float(), centre).argmin(1)
    return torch.bincount(nearest, minlength=4) / len(theta)


# ---- tempered sequential Monte Carlo -------------------------------------------------------


@pytest.mark.parametrize("gradients", [True, False])
def test_tempered_smc_finds_evidences_and_moments(gradients, generator):
    target = toys.gaussians(scale=3.0)
    codes = target.space.enumerate()
    run = smc(target, codes.repeat(4, 1), particles=500, gradients=gradients, generator=generator)
    truth = torch.tensor(list(target.truth.log_evidence.values()), dtype=torch.float64)
    log_z = run.log_evidence.view(4, 3)
    assert torch.allclose(log_z[:, 0], truth[0].expand(4), atol=1e-5)  # nothing to integrate
    assert bool(((log_z.logsumexp(0) - math.log(4) - truth).abs() < 0.1).all())
    assert torch.allclose(run.log_weight.exp().new_zeros(12).index_add(
        0, run.row, run.log_weight.exp()), torch.ones(12, dtype=torch.float64))  # fmt: skip
    weight, index = run.log_weight.exp()[:, None], run.row
    mean = torch.zeros(12, 3).double().index_add(0, index, weight * run.theta)
    gap = (run.theta - mean[index]).square()
    sd = torch.zeros(12, 3).double().index_add(0, index, weight * gap).sqrt()
    exact = toys.gaussian_map(target, scale=3.0)
    for m in (1, 2):
        on = target.space.active(codes[m : m + 1])[0]
        spread = (exact.scale_tril[m] @ exact.scale_tril[m].T).diagonal()[on].sqrt()
        got = mean.view(4, 3, -1).mean(0)[m, on].float()
        assert bool(((got - exact.loc[m, on]).abs() < 0.2 * spread).all())
        assert bool((sd.view(4, 3, -1).mean(0)[m, on] / spread - 1).abs().max() < 0.15)
    assert torch.allclose(
        run.log_joint, target.log_joint(codes.repeat(4, 1)[run.row], run.theta).double(), atol=1e-3
    )


def test_weights_of_all_temperatures_give_the_posterior(generator):
    """Drawn by weight, points of all temperatures are draws of the posterior."""
    y = torch.tensor(3.0)
    model = trj.Model("m", {"x": Normal(0.0, 4.0)}, lambda p: Normal(p["x"], 1.0).log_prob(y))
    codes = torch.zeros(64, 1, dtype=torch.long)
    run = smc(trj.Target([model]), codes, particles=100, moves=10, generator=generator)
    index = run.draw(torch.arange(64).repeat_interleave(8), generator)
    precision = 1 / 16 + 1
    z = (run.theta[index, 0].double() - 3 / precision) * precision**0.5
    assert kstest(z.numpy(), norm.cdf).pvalue > 1e-5
    assert len(index.unique()) > 0.9 * len(index)


def test_walls_in_the_likelihood_do_not_bias_it(generator):
    """Impossible regions count as draws of zero weight, in the prior draws and in moves."""
    target = trj.Target(
        [
            trj.Model(
                "m",
                {"x": Normal(0.0, 1.0), "y": Normal(0.0, 1.0)},
                lambda p: torch.where((p["x"] > 1) & (p["y"] > 0), -p["x"], -math.inf),
            )
        ]
    )
    run = smc(target, torch.zeros(8, 1).long(), particles=300, generator=generator)
    exact = 0.5 + norm.logsf(2.0) + math.log(0.5)  # E exp(-x) over x > 1 is e^(1/2) Phi(-2)
    log_z = run.log_evidence
    assert abs(float(log_z.logsumexp(0)) - math.log(8) - exact) < 5 * float(log_z.std() / 8**0.5)
    assert bool((run.theta > 0).all()) and bool((run.theta[:, 0] > 1).all())


def test_gamma_draws_that_pile_up_do_not_count(generator):
    """torch ends gamma draws at the smallest number; under a flat prior nearly all end there."""
    y = 20.0 * torch.randn(40, generator=generator)
    target = trj.Target(
        [
            trj.Model(
                "m",
                {"tau": Gamma(1e-4, 1e-4)},
                lambda p: Normal(0.0, p["tau"][:, None] ** -0.5).log_prob(y).sum(-1),
            )
        ]
    )
    half_n, half_s = 20.0, 0.5 * float(y.square().sum())
    exact = (
        1e-4 * math.log(1e-4) - math.lgamma(1e-4) + math.lgamma(1e-4 + half_n)
        - (1e-4 + half_n) * math.log(1e-4 + half_s) - half_n * math.log(2 * math.pi)
    )  # fmt: skip
    run = smc(target, torch.zeros(4, 1).long(), generator=generator)
    assert abs(float(run.log_evidence.logsumexp(0)) - math.log(4) - exact) < 0.15


def test_gamma_draws_that_pile_up_count_where_they_are_plausible(generator):
    """A variance near zero is as good as any other small one: that mass must not be lost."""
    y = torch.tensor(0.3, dtype=torch.float64)
    prior = Gamma(0.05, 0.05)
    target = trj.Target(
        [
            trj.Model(
                "m",
                {"v": prior},
                lambda p: Normal(0.0, (1 + p["v"]).sqrt()).log_prob(y),
            )
        ]
    ).to(dtype=torch.float64)
    v = torch.cat([torch.logspace(-300, 3, 400_001, dtype=torch.float64)])
    density = 0.05 * v.log() - 0.05 * v + 0.05 * math.log(0.05) - math.lgamma(0.05)
    inside = torch.trapezoid((density + Normal(0.0, (1 + v).sqrt()).log_prob(y)).exp(), v.log())
    below = 1e-300**0.05 * 0.05**0.05 / (0.05 * math.gamma(0.05))
    exact = math.log(float(inside) + below * float(Normal(0.0, 1.0).log_prob(y).exp()))
    run = smc(target, torch.zeros(4, 1).long(), generator=generator)
    assert abs(float(run.log_evidence.logsumexp(0)) - math.log(4) - exact) < 0.02


def test_a_budget_is_kept_and_the_posterior_still_reached(generator):
    target = trj.problems.robust_regression()
    before = target.evaluations
    run = smc(
        target,
        target.space.enumerate(),
        particles=30,
        moves=10,
        gradients=False,
        budget=12_000,
        generator=generator,
    )
    assert run.evaluations == target.evaluations - before <= 12_000 * 1.15
    assert run.evaluations > 6000


@pytest.mark.parametrize("gradients", [False, True])
def test_a_failed_evaluation_is_not_the_end(gradients):
    """After an error run() goes on where it stopped, with nothing evaluated twice."""
    calls, fails_at = [], [0]

    def log_likelihood(p):
        calls.append(len(p["x"]))
        if len(calls) == fails_at[0]:
            raise RuntimeError("node lost")
        return Normal(p["x"], 1.0).log_prob(torch.tensor(1.0))

    def target():
        return trj.Target([trj.Model("m", {"x": Normal(0.0, 3.0)}, log_likelihood)])

    def run_of(t):
        g = torch.Generator().manual_seed(1)
        return TemperedSMC(t, torch.zeros(1, 1).long(), particles=20, moves=6, generator=g,
                           gradients=gradients)  # fmt: skip

    whole = run_of(target()).run()
    n = len(calls)
    for fails_at[0] in range(5, n, 1 + n // 12):  # a target makes four calls to be made
        calls.clear()
        run = run_of(target())
        with pytest.raises(TargetError, match="node lost"):
            run.run()
        resumed = run.run()
        exact = target().log_joint(torch.zeros(len(resumed.row), 1).long(), resumed.theta)
        assert torch.allclose(resumed.log_joint, exact.double(), atol=1e-4)
        assert float(resumed.log_evidence) == pytest.approx(-2.07, abs=0.4)
        if not gradients:  # nothing random was lost: the very same run
            assert resumed.evaluations == whole.evaluations
            assert float(resumed.log_evidence) == float(whole.log_evidence)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda t, g: smc(t, t.space.enumerate(), moves=0, generator=g),
            ConfigurationError,
            "moves >= 1",
        ),
        (
            lambda t, g: smc(impossible(), torch.zeros(1, 1).long(), generator=g),
            TargetError,
            "model 'm': none of 31000 prior draws",
        ),
        (
            lambda t, g: Audit(t, t.space.enumerate(), particles=1, generator=g),
            ConfigurationError,
            "particles: expected 2 or more",
        ),
    ],
)
def test_wrong_settings_say_what_is_wrong(make, error, message, generator):
    with pytest.raises(error, match=message):
        make(toys.gaussians(), generator)


def impossible():
    return trj.Target([trj.Model("m", {"x": Normal(0.0, 1.0)}, lambda p: p["x"] * 0 - math.inf)])


# ---- the audit -----------------------------------------------------------------------------


@pytest.mark.whole
def test_standard_errors_of_the_audit_are_calibrated():
    """Over many small audits the errors' spread is that of Student's t on three degrees."""
    target = toys.gaussians(scale=3.0)
    truth = torch.tensor(list(target.truth.log_evidence.values()), dtype=torch.float64)
    z = []
    for seed in range(40):
        audit = Audit(
            target,
            target.space.enumerate(),
            particles=30,
            moves=8,
            generator=torch.Generator().manual_seed(seed),
        )
        audit.grow(0)
        z.append(((audit.log_evidence - truth) / audit.std_error)[1:])
    z = torch.stack(z).flatten()
    assert 0.4 < float(z.square().median().sqrt()) < 1.2  # 0.76 for Student's t, 0.67 for a normal
    assert float((z.abs() > 6).double().mean()) < 0.05


@pytest.mark.whole
def test_it_grows_until_its_halves_agree(generator):
    target = trj.problems.coal_mining(1, 3)
    audit = Audit(target, target.space.enumerate(), particles=60, moves=10, generator=generator)
    audit.grow(3_000_000)
    assert len(audit.rounds) > 1
    sizes = [size for _, size, _ in audit.rounds]
    assert sizes == [60 * 2**i for i in range(len(sizes))]
    agreed = bool((audit.gap.abs() <= LOG_EVIDENCES_AGREE).all())
    assert agreed or audit.evaluations > 1_000_000
    truth = torch.tensor(list(target.truth.log_evidence.values()), dtype=torch.float64)
    assert bool(((audit.log_evidence - truth).abs() < 6 * audit.std_error + 0.05).all())


def test_a_heavy_run_has_its_proper_say(generator):
    """Replicates are weighed by their evidences: together they have the modes' weights."""
    target, log_z = two_modes(weight=0.2)
    audit = Audit(target, target.space.enumerate(), particles=300, generator=generator)
    audit.grow(10**7)
    assert abs(float(audit.log_evidence[0]) - log_z) < 0.15
    theta, log_joint, _ = audit.draw(torch.zeros(4000, dtype=torch.long))
    assert abs(float((theta < 0).double().mean()) - 0.2) < 0.05
    assert torch.allclose(
        log_joint, target.log_joint(torch.zeros(4000, 1).long(), theta).double(), atol=1e-3
    )
    modes = find_modes(theta, torch.tensor([True]))
    assert len(modes) == 2
    assert modes.loc[:, 0].tolist() == pytest.approx([5, -5], abs=0.1)
    assert modes.scale_tril[:, 0, 0].tolist() == pytest.approx([0.3, 0.3], abs=0.06)


def one_mode(target, n=4000):
    generator = torch.Generator().manual_seed(9)
    return {"m": {"x": 5.0 + 0.3 * torch.randn(n, generator=generator)}}


@pytest.mark.whole
def test_a_lost_mode_is_caught_by_the_audit_and_by_nothing_else():
    target, log_z = two_modes(weight=0.2)
    sampler = trj.TRJSampler(target, seed=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sampler.fit(pilot=one_mode(target), audit=False, steps=300, progress=False)
    code = target.space.enumerate()[0]
    generator = torch.Generator().manual_seed(4)
    blind = log_mean_weight(log_weights(target, sampler.transport, code, 4096, generator))
    assert blind.ess > 0.8 * 4096 and not blind.warning  # every figure of the map looks perfect
    assert blind.value - log_z < -0.15  # and a fifth of the mass is missing
    audit = Audit(sampler.target, target.space.enumerate(), particles=500, generator=generator)
    audit.grow(10**6)
    score = audit.score(sampler.transport)
    covered = float(score.covered[0])
    assert covered < POSTERIOR_COVERED
    assert abs(float(score.lost[0]) - 0.2) < 0.08
    assert abs(covered - 0.8) < 0.08
    tail = audit.shortfall(sampler.transport)[0]
    assert float(tail[tail > 5].median()) > 20 > float(tail[tail < 5].abs().max())


@pytest.mark.slow
def test_the_fit_mends_a_lost_mode_by_itself():
    target, log_z = two_modes(weight=0.2)
    sampler = trj.TRJSampler(target, seed=3)
    sampler.fit(pilot=one_mode(target), steps=400, progress=False)
    report = sampler.audit_report
    assert report.mended >= 1
    (model,) = report.models
    assert (model.verdict, model.modes) == ("covered", 2)
    assert abs(model.map_log_evidence - log_z) < 5 * model.map_std_error + 1e-3
    assert model.map_std_error < 0.02
    result = sampler.run(200, chains=64, progress=False)
    assert abs(float((result.draws("m")["x"] < 0).mean()) - 0.2) < 0.02
    assert result.evidences.audit().loc["m", "covered"] > 0.99


@pytest.mark.slow
def test_reverse_kl_loses_a_mode_and_the_audit_brings_it_back():
    target, log_z = two_modes(weight=0.12, gap=8.0)
    sampler = trj.TRJSampler(target, trj.transport.CosmicFlow, seed=1)
    sampler.fit(pilot=False, steps=400, progress=False)
    (model,) = sampler.audit_report.models
    assert sampler.audit_report.mended >= 1
    assert abs(model.map_log_evidence - log_z) < 5 * model.map_std_error + 1e-3


@pytest.mark.whole
def test_what_can_not_be_mended_is_said_loudly():
    """A map without parameters to train, far from the posterior."""
    target, _ = two_modes()
    sampler = trj.TRJSampler(target, trj.transport.Identity, seed=1)
    with pytest.warns(CoverageWarning, match=r"misses a part of the posterior of 'm' \(covers"):
        sampler.fit(steps=10, progress=False)
    assert sampler.audit_report.models[0].verdict == "uncovered"
    with pytest.warns(CoverageWarning, match="'m'"):
        result = sampler.run(100, chains=128, progress=False)
    # the chains are right all the same
    assert abs(float((result.draws("m")["x"] < 0).mean()) - 0.2) < 0.03


def test_verdicts():
    def verdict(**change):
        facts = {
            "model": "m", "log_evidence": 0.0, "std_error": 0.02, "gap": 0.05,
            "map_log_evidence": 0.03, "map_std_error": 0.01, "covered": 0.99, "lost": 0.0,
            "modes": 1, "matters": True,
        }  # fmt: skip
        return ModelAudit(**{**facts, **change}).verdict

    assert verdict() == "covered"
    assert verdict(covered=0.9) == verdict(lost=0.03) == "uncovered"
    assert verdict(map_log_evidence=5.0, gap=0.2) == "evidences differ"
    assert verdict(gap=-0.2) == verdict(gap=math.nan) == "rough"
    assert verdict(map_log_evidence=-0.3) == "evidences differ"


@pytest.mark.whole
@pytest.mark.parametrize("dim", [2, 5, 10])
def test_four_modes_get_their_weights(dim):
    target, centre = four_modes(dim), mode_centres(dim)
    sampler = trj.TRJSampler(target, seed=1)
    sampler.fit(steps=600, progress=False)
    (model,) = sampler.audit_report.models
    # of ten its weights may be uneven, its shares right
    assert model.verdict in ({"rough", "covered"} if dim == 10 else {"covered"})
    assert model.modes == 4
    assert abs(model.map_log_evidence) < 5 * model.map_std_error + 1e-3
    generator = torch.Generator().manual_seed(2)
    code = torch.zeros(20_000, 1, dtype=torch.long)
    with torch.no_grad():
        z = sampler.transport.reference.sample(
            (len(code), sampler.transport.space.n_slots), generator, torch.float32
        )
        theta, log_q = sampler.transport.push(z, code)
        weight = (target.log_joint(code, theta) - log_q).double().softmax(0)
    nearest = torch.cdist(theta, centre).argmin(1)
    by_map = shares(theta, centre)
    by_importance = torch.zeros(4, dtype=torch.float64).index_add(0, nearest, weight)
    result = sampler.run(150, chains=128, progress=False)
    by_chains = shares(torch.as_tensor(result.draws("mixture")["x"]), centre)
    right = torch.tensor(WEIGHTS)
    if model.verdict == "rough":  # trained on uneven draws, a map covers every mode, no more
        assert bool((by_map > right / 2).all())
    else:
        assert bool(((by_map - right).abs() < 0.08).all())
    for found in (by_importance, by_chains):
        assert bool(((found - right).abs() < 0.02).all()), found
    assert result.report.acceptance["map inside"]["within"] > 0.1


@pytest.mark.whole
def test_chains_start_in_every_mode_and_cross():
    """With a map that knows nothing, starts and mode jumps alone have the weights right."""
    target, centre = four_modes(5), mode_centres(5)
    sampler = trj.TRJSampler(target, trj.transport.Identity, seed=5)
    with pytest.warns(CoverageWarning):
        sampler.fit(steps=1, progress=False)
    with pytest.warns(CoverageWarning):
        result = sampler.run(150, chains=128, progress=False)
    found = shares(torch.as_tensor(result.draws("mixture")["x"]), centre)
    assert bool(((found - torch.tensor(WEIGHTS)).abs() < 0.04).all())


@pytest.mark.whole
@pytest.mark.filterwarnings("ignore::trjmcmc.errors.ConvergenceWarning")  # it is a short run
def test_the_audit_can_be_larger_or_off():
    target = toys.gaussians()
    before = target.evaluations
    sampler = trj.TRJSampler(target, seed=1)
    sampler.fit(steps=20, pilot=False, audit=False, progress=False)
    assert sampler.audit_report is None
    sampler.fit(steps=20, audit=10**7, particles=50, progress=False)
    report = sampler.audit_report
    assert [m.model for m in report.models] == ["none", "one", "three"]
    assert all(m.gap == 0 for m in report.models if m.model == "none")
    result = sampler.run(20, chains=16, progress=False)
    table = result.evidences.audit()
    assert set(table["verdict"]) <= {"covered", "rough"}
    assert (table["difference"] == table["map_log_evidence"] - table["log_evidence"]).all()
    assert result.report.gradients > 0
    assert result.report.evaluations == sampler.target.evaluations - before


def test_a_posterior_out_of_reach_is_said(generator):
    """No prior draw is possible: no audit, training by reverse KL, and a warning."""
    target = trj.Target(
        [
            trj.Model(
                "m",
                {"x": Cauchy(0.0, 1.0)},
                lambda p: torch.where((p["x"] - 1e6).abs() < 1e-3, 0.0, -math.inf) + 0 * p["x"],
            )
        ]
    )
    sampler = trj.TRJSampler(target, seed=1)
    with pytest.warns(Warning, match="no pilot run .*none of"), pytest.raises(ConfigurationError):
        sampler.fit(steps=50, progress=False)


def test_modes_of_awkward_draws():
    on = torch.tensor([True, True])
    assert len(find_modes(torch.zeros(50, 2), on)) == 1  # all the same
    assert len(find_modes(torch.zeros(1, 2), on)) == 1
    generator = torch.Generator().manual_seed(1)
    ring = torch.randn(600, 2, generator=generator)
    ring = 5 * ring / ring.norm(dim=1, keepdim=True)
    assert len(find_modes(ring + 0.1 * torch.randn(600, 2, generator=generator), on)) == 1
    none = find_modes(torch.zeros(50, 2), torch.tensor([False, False]))
    assert len(none) == 1 and torch.equal(none.scale_tril[0], torch.eye(2))
