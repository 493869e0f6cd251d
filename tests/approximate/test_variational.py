"""Variational answers: every family, what they say of themselves, and what they refuse."""

import math
import warnings

import numpy as np
import pytest
import torch
import zuko
from intervals import coverage, quantiles
from scipy.stats import norm
from torch.distributions import Normal

import trjmcmc as trj
from trjmcmc.approximate import NAMES, ApproximationPolicy
from trjmcmc.errors import ConfigurationError, ConvergenceWarning, NonFiniteError, TRJError
from trjmcmc.transport import Gaussians

SMALL = ApproximationPolicy(
    particles=100, tried_steps=5, first_round=5000, rounds=2, searched_draws=8000
)

QUICK = {"seed": 1, "progress": False, "policy": SMALL}


def correlated(rho, p=2):
    """A normal posterior of unit variances and equal correlations, log evidence 0."""
    covariance = (1 - rho) * torch.eye(p, dtype=torch.float64) + rho
    prior = Normal(torch.zeros(p, dtype=torch.float64), 3.0)
    exact = torch.distributions.MultivariateNormal(torch.zeros(p).double(), covariance)

    def log_likelihood(params):
        x = params["x"].double()
        return exact.log_prob(x) - prior.log_prob(x).sum(-1)

    truth = trj.problems.Truth({"normal": 1.0}, {"normal": 0.0}, "by construction")
    return trj.Target([trj.Model("normal", {"x": prior}, log_likelihood)], truth=truth)


def doubted(target, family, *matches, **settings):
    """The answer, which must have warned of one of these."""
    with pytest.warns(ConvergenceWarning) as caught:
        answer = trj.variational(target, family, **{**QUICK, **settings})
    said = [str(w.message) for w in caught]
    assert any(match in each for match in matches for each in said), said
    return answer


MEAN_FIELD = {"objective": "reverse", "steps": 300, "batch": 256, "learning_rate": 0.005}


def two_models():
    """Normal means with and without a shift: everything is known."""
    y = torch.tensor([0.3, 1.1, 0.7, 0.2, 0.9], dtype=torch.float64)
    fixed = trj.Model("zero", {}, lambda p: Normal(0.0, 1.0).log_prob(y).sum())
    free = trj.Model(
        "free",
        {"mu": Normal(0.0, 1.0)},
        lambda p: Normal(p["mu"][:, None], 1.0).log_prob(y).sum(-1),
    )
    n, total = len(y), float(y.sum())
    log_bayes = -0.5 * math.log(1 + n) + 0.5 * total**2 / (1 + n)
    return trj.Target([fixed, free]), 1 / (1 + math.exp(-log_bayes)), total / (1 + n)


# ---- families -----------------------------------------------------------------------------------


SLOW = {"ddsf", "naf", "spline"}
FAMILIES = [
    pytest.param(name, marks=[pytest.mark.whole] if name in SLOW else [])
    for name in NAMES
    if name != "mean-field"
]


@pytest.mark.whole
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_finds_a_correlated_normal(family):
    answer = trj.variational(correlated(0.6), family, steps=60, batch=64, **QUICK)
    kl = answer.kl()
    assert kl.value < 0.03 + 5 * kl.std_error and kl.std_error < 0.01, family
    assert answer.ok and answer.ess_share > 0.9
    assert abs(answer.log_evidence.value) < 5 * answer.log_evidence.std_error + 1e-6


@pytest.mark.whole
def test_mean_field_finds_its_optimum_and_not_the_posterior():
    answer = doubted(correlated(0.9), "mean-field", "Pareto k", **MEAN_FIELD)
    kl, best = answer.kl(), -0.5 * math.log(1 - 0.9**2)
    assert abs(kl.value - best) < 5 * kl.std_error + 0.005
    sd = answer.summary()["sd"]
    assert (sd - math.sqrt(1 - 0.9**2)).abs().max() < 0.02
    assert not answer.ok


def test_coverage_of_mean_field_is_the_closed_form():
    rho = 0.6
    settings = {"draws": 40_000, **MEAN_FIELD}
    said = "% smaller under q", "Pareto k"  # weights of shape .6, which some seeds take for .7
    answer = doubted(correlated(rho), "mean-field", *said, **settings)
    found = coverage(answer, {"x[0]": norm, "x[1]": norm}, level=0.9)
    exact = 1 - 2 * norm.sf(norm.ppf(0.95) * math.sqrt(1 - rho**2))
    assert exact == pytest.approx(0.8118, abs=5e-5)
    assert (found["covered"] - exact).abs().max() < 0.015
    assert (found["covered"] < 0.85).all()  # it is not what it claims


@pytest.mark.parametrize(
    "family", [pytest.param(zuko.flows.NSF, marks=pytest.mark.whole), zuko.flows.MAF]
)
@pytest.mark.parametrize("inverse", [False, True])
def test_flows_of_zuko_in_either_direction(family, inverse):
    answer = trj.variational(
        correlated(0.6), family, transforms=1, inverse=inverse, steps=60, batch=128, **QUICK
    )
    assert answer.kl().value < 0.05 and answer.family == family.__name__


@pytest.mark.whole
def test_a_map_of_the_users():
    target = correlated(0.6)
    for family in (trj.transport.Affine(target.space), trj.transport.Affine):
        answer = trj.variational(target, family, steps=200, **QUICK)
        assert answer.kl().value < 0.05


def test_a_stated_number_of_units():
    answer = trj.variational(
        correlated(0.6),
        "iaf",
        hidden=2,
        blocks=1,
        layers=1,
        activation="relu",
        residual=False,
        steps=100,
        batch=128,
        **QUICK,
    )
    units = answer.transport.flow.steps[0].net[0].weight.shape[0]
    assert units == 2 and answer.kl().value < 0.02


@pytest.mark.whole
def test_the_recommended_family_covers_four_modes():
    target = trj.problems.energy("U4")
    answer = trj.variational(target, **QUICK)
    assert answer.kl().value < 0.05 and answer.ok and answer.audited
    exact = target.exact_draws(10_000, torch.Generator().manual_seed(0)).numpy()
    covered = coverage(answer, {"z": exact})["covered"]
    assert (covered - 0.9).abs().max() < 0.03


# ---- what it says -------------------------------------------------------------------------------


def test_several_models_and_one_without_parameters():
    target, probability, mean = two_models()
    answer = trj.variational(target, steps=100, **QUICK)
    assert answer.probabilities["free"] == pytest.approx(probability, abs=0.01)
    table = answer.models
    assert list(table.index) == ["zero", "free"]
    gap = table["log_evidence"]["free"] - table["log_evidence"]["zero"]
    assert gap == pytest.approx(math.log(probability / (1 - probability)), abs=0.01)
    assert answer.summary("free").loc["mu", "mean"] == pytest.approx(mean, abs=0.02)
    assert len(answer.summary("zero")) == 0
    with pytest.raises(TRJError, match="models that were drawn"):
        answer.draws("neither")


@pytest.mark.whole
def test_draws_quantiles_and_correction():
    settings = {"draws": 20_000, **MEAN_FIELD}
    answer = doubted(correlated(0.4), "mean-field", "under q are short", **settings)
    assert answer.draws()["x"].shape == (20_000, 2)
    assert answer.draws(n=7)["x"].shape == (7, 2)
    found = quantiles(answer, [0.1, 0.9])
    narrow = norm.ppf(0.9) * (1 - 0.4**2) ** 0.5
    assert found.loc["x[1]", 0.9] == pytest.approx(narrow, abs=0.05)
    right = quantiles(answer, [0.1, 0.9], corrected=True)
    assert right.loc["x[1]", 0.9] == pytest.approx(norm.ppf(0.9), abs=0.1)
    drawn = answer.draws(corrected=True, seed=3)["x"]
    assert np.corrcoef(drawn.T)[0, 1] == pytest.approx(0.4, abs=0.08)


def test_files_arviz_and_pictures(tmp_path):
    answer = trj.variational(correlated(0.3), "laplace", draws=500, **QUICK)
    answer.save(tmp_path / "q.pt")
    again = trj.approximate.Variational.load(tmp_path / "q.pt")
    assert again.elbo == answer.elbo and str(again) == str(answer)
    assert again.summary().equals(answer.summary())
    assert again.models.equals(answer.models)
    posterior = answer.to_arviz().posterior
    assert posterior["x"].shape == (1, 500, 2)
    axes = answer.plot(reference={"x": np.random.default_rng(0).normal(size=(300, 2))})
    assert [ax.get_xlabel() for ax in axes] == ["x[0]", "x[1]"]
    (tmp_path / "other.pt").write_bytes(b"nothing of ours")
    with pytest.raises(TRJError, match="not a"):
        trj.approximate.Variational.load(tmp_path / "other.pt")


@pytest.mark.whole
def test_a_run_says_how_far_off_it_was():
    target = correlated(0.6)
    sampler = trj.TRJSampler(target, seed=1, dtype=torch.float64)
    assert sampler.variational is None
    sampler.fit(steps=100, audit=20_000, progress=False)
    answer = sampler.variational
    assert answer is sampler.variational and len(answer.draws()["x"]) == len(answer.sample.theta)
    result = sampler.run(draws=100, chains=64, progress=False)
    assert abs(result.report.variational.divergence) < 0.2
    assert result.report.variational.sample is None
    with pytest.raises(TRJError, match=r"sampler\.variational"):
        result.report.variational.draws()


@pytest.mark.whole
def test_an_answer_starts_an_exact_run():
    target = correlated(0.6)
    answer = doubted(target, "mean-field", "% smaller under q", steps=100)
    sampler = trj.TRJSampler(target, answer.transport, seed=2, dtype=torch.float64)
    result = sampler.run(draws=200, chains=64, progress=False)
    drawn = result.draws("normal")["x"]
    assert np.corrcoef(drawn.T)[0, 1] == pytest.approx(0.6, abs=0.06)


# ---- planted failures ---------------------------------------------------------------------------


def fixed(normals):
    """A family that is what it is."""

    def make(space):
        loc = torch.tensor(normals, dtype=torch.float64)[None]
        scale = math.sqrt(1.5) / 2 * torch.eye(2, dtype=torch.float64)
        parts = Gaussians(space, loc, scale.expand(1, len(normals), 2, 2))
        log_weights = torch.tensor([[0.1, 0.3, 0.4, 0.2]], dtype=torch.float64).log()
        keep = log_weights[:, -len(normals) :]
        return trj.transport.MixtureOfMaps(parts, log_weights=keep).requires_grad_(False)

    return make


MODES = [[-2.5, 0.0], [2.5, 0.0], [0.0, 2.5], [0.0, -2.5]]


@pytest.mark.whole
def test_a_dropped_mode_is_flagged_and_all_four_are_not():
    target = trj.problems.energy("U4")
    whole = trj.variational(target, fixed(MODES), **QUICK)
    assert whole.ok and whole.kl().value < 0.01
    for seed in range(3):
        doubted(target, fixed(MODES[1:]), "misses a part", seed=seed)


def test_a_narrow_mode_that_tempering_loses_is_climbed_to():
    prior = Normal(torch.zeros(5, dtype=torch.float64), 5.0)

    def log_likelihood(params):
        x = params["x"].double()
        wide = math.log(0.7) + Normal(-5.0, 1.0).log_prob(x).sum(-1)
        narrow = math.log(0.3) + Normal(5.0, 0.3).log_prob(x).sum(-1)
        return torch.logaddexp(wide, narrow) - prior.log_prob(x).sum(-1)

    target = trj.Target([trj.Model("two", {"x": prior}, log_likelihood)])
    answer = trj.variational(target, **QUICK)
    assert abs(answer.log_evidence.value) < 0.05  # without it, log .7
    assert (answer.draws()["x"][:, 0] > 0).mean() == pytest.approx(0.3, abs=0.05)


def test_a_collapsed_wave_is_flagged():
    target = trj.problems.energy("U5")

    def narrow(space):
        loc, scale = torch.tensor([[0.0, 0.0]]).double(), torch.tensor([0.3, 0.4]).double()
        return trj.transport.Affine(space, loc, scale.diag_embed()[None]).requires_grad_(False)

    doubted(target, narrow, "misses a part")


@pytest.mark.parametrize("wide", [1.5, 1.0])
def test_a_model_that_q_fits_worse_than_another_is_doubted_by_its_probability(wide):
    flat = lambda p: 0.0 * p["x"].sum(-1)  # noqa: E731
    models = [trj.Model(n, {"x": Normal(torch.zeros(2), 1.0)}, flat) for n in ("a", "b")]

    def family(space):
        tril = torch.eye(2) * torch.tensor([1.0, wide])[:, None, None]
        return trj.transport.Affine(space, torch.zeros(2, 2), tril).requires_grad_(False)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        answer = trj.variational(trj.Target(models), family, audit=False, **QUICK)
    kl = wide**2 - 1 - 2 * math.log(wide)
    assert answer.probabilities["a"] == pytest.approx(1 / (1 + math.exp(-kl)), abs=0.03)
    assert any("probability of" in str(doubt) for doubt in answer.doubts) == (wide > 1)
    assert answer.ok == (wide == 1)


# ---- what it refuses, and edges -----------------------------------------------------------------


def test_no_and_one_parameter():
    nothing = trj.Target([trj.Model("a", {}, lambda p: torch.tensor(-3.0))])
    answer = trj.variational(nothing, draws=10, **QUICK)
    assert answer.elbo.value == pytest.approx(-3.0) and len(answer.summary()) == 0
    with pytest.raises(TRJError, match="no parameters"):
        answer.plot()
    for family in ("recommended", "coupling"):
        one = trj.variational(trj.problems.beta_bernoulli(), family, steps=100, **QUICK)
        assert one.kl().value < 0.02


@pytest.mark.parametrize("family", ["recommended", "mean-field"])
def test_models_of_double_precision_without_a_single_parameter(family):
    models = [trj.Model(n, {}, lambda p, v=v: torch.tensor(v)) for n, v in (("a", -3.0), ("b", -4))]
    answer = trj.variational(trj.Target(models), family, draws=10, **QUICK)
    assert answer.probabilities["a"] == pytest.approx(1 / (1 + math.exp(-1.0)), rel=1e-6)


def test_mean_field_has_a_place_and_scale_for_each_of_two_models():
    target, probability, _ = two_models()
    answer = trj.variational(target, "mean-field", audit=False, steps=60, batch=64, **QUICK)
    assert answer.probabilities["free"] == pytest.approx(probability, abs=0.05)


def test_a_likelihood_without_gradients_learns_from_tempered_draws():
    def log_likelihood(params):
        return -0.5 * params["x"] ** 2

    target = trj.Target(
        [trj.Model("m", {"x": Normal(0.0, 2.0)}, trj.BlackBox(log_likelihood, vectorized=True))]
    )
    assert not target.differentiable
    answer = trj.variational(target, **QUICK)
    assert answer.ok and answer.summary().loc["x", "sd"] == pytest.approx(2 / 5**0.5, abs=0.04)
    with pytest.raises(ConfigurationError, match="no gradients"):
        trj.variational(target, "laplace", **QUICK)


def test_regions_without_density():
    prior = torch.distributions.Exponential(torch.tensor(1.0, dtype=torch.float64))

    def log_likelihood(params):
        return torch.where(params["x"] < 1.5, 0.0, -math.inf)

    target = trj.Target([trj.Model("m", {"x": prior}, log_likelihood)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # by how much normals reach over
        answer = trj.variational(target, steps=20, **QUICK)
    exact = math.log1p(-math.exp(-1.5))
    assert abs(answer.log_evidence.value - exact) < 5 * answer.log_evidence.std_error + 1e-3
    reached = float((answer.sample.log_weight == -math.inf).double().mean())
    assert (reached > 0.01) == any("no density" in str(doubt) for doubt in answer.doubts)


def test_an_unknown_evidence():
    answer = trj.variational(two_models()[0], "laplace", **QUICK)
    with pytest.raises(TRJError, match="evidence is unknown"):
        answer.kl()
    assert answer.kl(answer.log_evidence).value < 0.01


def test_nowhere_finite():
    target = correlated(0.0)

    def far(space):
        loc, scale = torch.full((1, 2), 1e200, dtype=torch.float64), torch.eye(2).double()[None]
        return trj.transport.Affine(space, loc, scale).requires_grad_(False)

    with pytest.raises(NonFiniteError):
        trj.variational(target, far, audit=False, **QUICK)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"family": "gaussian"}, "expected one of"),
        ({"family": "coupling", "layers": -1}, "layers"),
        ({"family": "iaf", "petals": 3}, "petals"),
        ({"family": 3}, "expected a name"),
        ({"family": lambda space: 3}, "no Transport"),
        ({"family": zuko.flows.NSF, "bones": 3}, "NSF"),
        ({"objective": "forward"}, "objective"),
        ({"objective": "cover", "audit": False}, "no tempered draws"),
        ({"gradient": "steep"}, "gradient"),
        ({"steps": -1}, "steps"),
        ({"batch": 1}, "batch"),
        ({"draws": 1}, "draws"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"max_evaluations": 0}, "max_evaluations"),
        ({"seed": "one"}, "seed"),
    ],
)
def test_settings_out_of_range(settings, match):
    with pytest.raises(ConfigurationError, match=match):
        trj.variational(correlated(0.0), **{"progress": False, **settings})


def test_references_and_levels_out_of_range():
    answer = trj.variational(correlated(0.0), "laplace", draws=100, **QUICK)
    with pytest.raises(ValueError, match="knows none"):
        coverage(answer, {"y": np.zeros(9)})
    with pytest.raises(ValueError, match="finite"):
        coverage(answer, {"x": np.full((9, 2), np.nan)})
    for level in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match="level"):
            coverage(answer, {"x": np.zeros((9, 2))}, level=level)
        with pytest.raises(ValueError, match="levels"):
            quantiles(answer, [level])
    with pytest.raises(ConfigurationError, match="n:"):
        answer.draws(n=0)
    with pytest.raises(ConfigurationError, match="parameters"):
        answer.plot(parameters=["y"])


def test_policies_are_checked():
    with pytest.raises(ConfigurationError, match="particles"):
        ApproximationPolicy(particles=0)
