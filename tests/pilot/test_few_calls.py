"""Posteriors from few likelihood calls: evidences, limits, and what is said where they fail."""

import math
import time

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import norm
from torch.distributions import Normal, Uniform

import trjmcmc as trj
from trjmcmc import clock
from trjmcmc.errors import ConvergenceWarning, UnreachableError
from trjmcmc.estimate.importance import smoothed
from trjmcmc.pilot.few_calls import AdaptiveProposal
from trjmcmc.pilot.screening import PARTS, _Search
from trjmcmc.transport.normals import NormalMixture

pytestmark = pytest.mark.filterwarnings("ignore::trjmcmc.errors.TRJWarning")


def skewed(seed, dim=4):
    """A skewed, correlated posterior of known evidence under a wide prior, as a black box."""
    generator = torch.Generator().manual_seed(seed)
    centre = torch.randn(dim, generator=generator, dtype=torch.float64)
    factor = torch.randn(dim, dim, generator=generator, dtype=torch.float64).tril(-1) * 0.5
    factor += torch.eye(dim, dtype=torch.float64)
    skew = torch.rand(dim, generator=generator, dtype=torch.float64) - 0.5

    def log_density(x):
        inner = torch.asinh(x - centre) - skew
        z = torch.linalg.solve_triangular(factor, inner.sinh().T, upper=False).T
        slope = inner.cosh().log() - 0.5 * torch.log1p((x - centre).square())
        return Normal(0.0, 1.0).log_prob(z).sum(-1) + slope.sum(-1)

    return log_density


def two_skewed(calls=None, share=0.7, seconds=0.0):
    """Two models of exact probabilities; ``calls`` counts points, which take ``seconds`` each."""
    prior = Normal(torch.zeros(4, dtype=torch.float64), 5.0)

    def model(name, seed, mass):
        log_density = skewed(seed)

        def function(q):
            x = torch.as_tensor(q["x"])
            time.sleep(seconds * len(x))
            if calls is not None:
                calls.append(len(x))
            return (math.log(mass) + log_density(x) - prior.log_prob(x).sum(-1)).numpy()

        return trj.Model(name, {"x": prior}, trj.BlackBox(function, vectorized=True))

    models = [model("a", 1, share), model("b", 2, 1 - share)]
    return trj.Target(models, dtype=torch.float64)


@pytest.mark.parametrize("calls", [700, 2800])
def test_evidences_by_refined_proposals_are_right(calls):
    """By importance sampling of draws that were not used to refine."""
    target = two_skewed()
    generator = torch.Generator().manual_seed(calls)
    for code, mass in zip(target.space.enumerate(), (0.7, 0.3), strict=True):
        proposal = AdaptiveProposal(target, code, generator)
        proposal.refine(calls)
        assert proposal.calls <= calls and proposal.share > 0.2
        x = proposal.normals.sample(2000, generator)
        log_prior, log_likelihood = target.log_prior_and_likelihood(code.expand(2000, -1), x)
        log_w = log_prior + log_likelihood - proposal.normals.log_prob(x) - math.log(0.5)
        ratio = log_w.exp()
        error = float(ratio.std()) / math.sqrt(2000)
        assert abs(float(ratio.mean()) - mass) < 5 * error
        assert error < 0.1 * mass


def test_a_proposal_of_far_too_few_calls_says_that_it_is_poor():
    target = two_skewed()
    code = target.space.enumerate()[0]
    proposal = AdaptiveProposal(target, code, torch.Generator().manual_seed(0))
    proposal.refine(30)
    assert proposal.calls <= 30 and proposal.share == 0
    assert not smoothed(proposal.log_weights()).std_error < 0.15


@pytest.mark.parametrize(
    "steps", [[2400], pytest.param([300, 600, 1200, 2400], marks=pytest.mark.whole)]
)
def test_draws_that_no_fit_has_seen_weigh_a_model(steps):
    """As well as their errors say, refined at once or by and by."""
    target, z = two_skewed(), []
    for seed in range(12):
        generator = torch.Generator().manual_seed(seed)
        proposal = AdaptiveProposal(target, target.space.enumerate()[0], generator)
        for calls in steps:
            proposal.refine(calls)
        found = smoothed(proposal.log_weights())
        assert proposal.calls == 2400 and found.std_error < 0.1
        z.append((found.value - math.log(0.5 * 0.7)) / found.std_error)
    assert abs(np.mean(z)) < 4.4 / math.sqrt(12) and np.std(z) < 2.2


def test_draws_of_a_refined_proposal_are_those_of_the_posterior():
    target = two_skewed()
    code = target.space.enumerate()[0]
    proposal = AdaptiveProposal(target, code, torch.Generator().manual_seed(1))
    proposal.refine(4000)
    theta, log_joint = proposal.resampled(500)
    assert torch.allclose(log_joint, target.log_joint(code.expand(500, -1), theta))


def test_a_model_without_parameters_takes_few_calls():
    none = trj.Model("none", {}, trj.BlackBox(lambda p: -3.0))
    target = trj.Target([none, trj.Model("some", {"a": Normal(0.0, 1.0)}, lambda p: -p["a"])])
    proposal = AdaptiveProposal(target, target.space.enumerate()[0], torch.Generator())
    proposal.refine(90)
    found = smoothed(proposal.log_weights())
    assert proposal.calls < 20 and found.std_error == 0
    assert abs(found.value - (math.log(0.5) - 3.0)) < 1e-6


def test_an_impossible_model_without_parameters_ends_in_no_error():
    """However many calls it may take."""
    none = trj.Model("none", {}, trj.BlackBox(lambda p: -math.inf))
    target = trj.Target([none, trj.Model("some", {"a": Normal(0.0, 1.0)}, lambda p: -p["a"])])
    proposal = AdaptiveProposal(target, target.space.enumerate()[0], torch.Generator())
    proposal.refine(4000)
    assert not bool(proposal.log_weights().isfinite().any())


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_run_that_is_late_before_chains_have_moved_answers_by_its_proposals(seed):
    """A hundredth of a second a call, by a clock that counts calls."""
    calls = []
    target = two_skewed(calls)
    with clock.read_from(lambda: 0.01 * sum(calls)):
        result = trj.TRJSampler(target, seed=seed).run(max_seconds=30.0, progress=False)
        assert 0.01 * sum(calls) < 36
    row = result.model_probabilities().loc["a"]
    assert result.raw.n_draws < 5 and result.report.out_of_time
    assert abs(row["probability"] - 0.7) < 4.4 * row["se"] < 0.7


@pytest.mark.parametrize("limit", [3000, 8000])
def test_a_run_of_few_calls_keeps_to_them_and_is_right(limit):
    calls = []
    target = two_skewed(calls)
    before = sum(calls)
    result = trj.TRJSampler(target, seed=2).run(max_evaluations=limit, progress=False)
    assert sum(calls) - before <= limit
    assert result.report.fit is None  # no flow was trained
    table = result.model_probabilities(full=True)
    value, error = table.loc["a", ["combined", "combined_se"]]
    assert abs(value - 0.7) < 5 * error and error < 0.03


def test_few_calls_say_what_they_may_have_lost():
    result = trj.TRJSampler(two_skewed(), seed=2).run(max_evaluations=4000, progress=False)
    assert 0.05 < result.report.judged.detection < 0.5
    assert result.model_probabilities()["note"].str.contains("detection limit").all()


def lists(*log_likelihoods):
    """Black boxes of a standard normal ``a`` each, named m0, m1, ..."""
    models = [
        trj.Model(f"m{i}", {"a": Normal(0.0, 1.0)}, trj.BlackBox(lambda p, f=f: f(float(p["a"]))))
        for i, f in enumerate(log_likelihoods)
    ]
    return trj.Target(models)


def test_few_possible_prior_draws_are_enough_for_a_beginning():
    """One in forty-four: fewer of the first than a fit needs."""
    target = lists(lambda a: 0.0 if a > 2 else -math.inf, lambda a: -0.5 * a * a - 3)
    result = trj.TRJSampler(target, seed=1).run(draws=300, max_seconds=60, progress=False)
    odds = norm.sf(2.0) / (math.exp(-3.0) * math.sqrt(0.5))
    row = result.model_probabilities(full=True).loc["m0"]
    assert abs(row["combined"] - odds / (1 + odds)) < 5 * row["combined_se"] < 0.1


def test_where_no_model_is_possible_few_calls_say_so():
    target = lists(lambda a: -math.inf, lambda a: -math.inf)
    with pytest.raises(UnreachableError, match="in every model"):
        trj.TRJSampler(target, seed=1).run(max_evaluations=2000, progress=False)


def test_a_model_without_a_possible_draw_counts_as_0_and_that_is_said():
    target = lists(lambda a: -math.inf, lambda a: -0.5 * a * a)
    with pytest.warns(ConvergenceWarning, match="no draw of 'm0' .* counts as 0"):
        result = trj.TRJSampler(target, seed=1).run(max_evaluations=2000, progress=False)
    table = result.model_probabilities(full=True)
    assert table.loc["m1", "visits"] == 1 and table.loc["m0", "combined"] == 0


@pytest.mark.whole
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_black_boxes_of_two_modes_are_right_and_say_that_nothing_searched(seed):
    """Two repeats lost one of them together in three of twelve such runs."""
    centres, width, weight = np.array([[3.0] * 6, [-3.0] * 6]), 0.5, np.array([0.7, 0.3])
    prior = Normal(torch.zeros(6), 4.0)

    def log_likelihood(p):
        x = np.asarray(p["x"], dtype=float)
        square = ((x[:, None] - centres) ** 2).sum(-1) / width**2
        parts = np.log(weight) - 6 * math.log(width * math.sqrt(2 * math.pi)) - 0.5 * square
        return np.logaddexp(*parts.T) - prior.log_prob(torch.as_tensor(x)).sum(-1).numpy()

    box = trj.BlackBox(log_likelihood, vectorized=True)
    null = trj.Model("null", {}, lambda p: torch.tensor(0.0))
    target = trj.Target([null, trj.Model("modes", {"x": prior}, box)])
    row = trj.TRJSampler(target, seed=seed).run(progress=False).model_probabilities().loc["modes"]
    assert abs(row["probability"] - 0.5) < 5 * row["se"] and row["se"] < 0.02
    assert "no search for lost modes" in row["note"]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_black_boxes_are_searched_for_lost_modes(seed):
    """Of two modes in five dimensions proposals lose one in every other run."""
    centres, widths = np.array([[2.5] * 5, [-2.5] * 5]), np.array([0.5, 0.35])

    def log_likelihood(p):
        log_modes = norm.logpdf((np.asarray(p["x"])[:, None] - centres) / widths[:, None]).sum(-1)
        log_modes -= 5 * np.log(widths) + math.log(2)
        return logsumexp(log_modes, axis=1) - norm.logpdf(p["x"], scale=4.0).sum(-1)

    box = trj.BlackBox(log_likelihood, vectorized=True)
    null = trj.Model("null", {"a": Normal(0.0, 1.0)}, lambda p: torch.zeros(len(p["a"])))
    target = trj.Target([null, trj.Model("modes", {"x": Normal(torch.zeros(5), 4.0)}, box)])
    result = trj.TRJSampler(target, seed=seed).run(max_seconds=60.0, progress=False)
    row = result.model_probabilities().loc["null"]
    assert abs(row["probability"] - 0.5) < 4.4 * row["se"] < 0.1
    assert "detection limit" in row["note"]


def test_slopes_of_black_boxes_are_gradients(generator):
    """By differences, in float64."""
    box = trj.BlackBox(lambda p: -(np.asarray(p["x"]) ** 4), vectorized=True)
    boxed, inside = (
        trj.Target([trj.Model("m", {"x": Uniform(-3.0, 2.0)}, f)], dtype=torch.float64)
        for f in (box, lambda p: -(p["x"] ** 4))
    )
    code = boxed.space.enumerate()
    theta, scale = torch.randn(40, 1, generator=generator).double(), torch.ones(1).double()
    search = _Search(boxed, code[0], 0.0, None, generator, PARTS, math.inf)
    height, gradient = search.slope(theta, scale)
    right = inside.log_joint_and_grad(code.expand(40, -1), theta)
    assert torch.allclose(height, right[0]) and torch.allclose(gradient, right[1], atol=1e-3)


def far_mode():
    """Evidence 1, four fifths of it in a narrow mode that no prior draw meets."""
    prior = Normal(torch.zeros(3, dtype=torch.float64), 3.0)
    wide, narrow = Normal(0.0, 1.0), Normal(4.0, 0.05)

    def log_likelihood(p):
        each = [wide.log_prob(p["x"]).sum(-1) + math.log(0.2)]
        each += [narrow.log_prob(p["x"]).sum(-1) + math.log(0.8)]
        return torch.stack(each).logsumexp(0) - prior.log_prob(p["x"]).sum(-1)

    return trj.Target([trj.Model("m", {"x": prior}, log_likelihood)], dtype=torch.float64)


def about(mean, width):
    one = torch.ones(1, dtype=torch.float64)
    return NormalMixture(one, one * torch.full((1, 3), mean), width * torch.eye(3)[None].double())


def test_what_is_planted_is_drawn_from_and_what_is_known_is_not(generator):
    target = far_mode()
    proposal = AdaptiveProposal(target, target.space.enumerate()[0], generator)
    proposal.refine(600)
    lacking = smoothed(proposal.log_weights())
    assert abs(lacking.value - math.log(0.2)) < 5 * lacking.std_error < 0.5  # the control
    calls = proposal.calls
    proposal.plant(about(0.0, 1.0))
    assert proposal.calls == calls
    proposal.plant(about(4.0, 0.06))
    assert proposal.calls > calls
    proposal.refine(proposal.calls + 1000, fit=False)
    found = smoothed(proposal.log_weights())
    assert proposal.unseen >= 400 and abs(found.value) < 5 * found.std_error < 0.5


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(k, marks=pytest.mark.whole) for k in range(2, 6))]
)
def test_modes_of_a_few_percent_of_climbs_are_in_the_answer(seed):
    """Two normals in three dimensions as a function in NumPy, 4000 calls; right, and so said."""
    random = np.random.default_rng([7, seed])
    mean, sd = random.normal(0, 2, (2, 3)), np.exp(random.uniform(np.log(0.3), 0, (2, 1)))
    log_share = np.log(random.dirichlet([3, 3]))

    def density(x):
        z = (x - mean) / sd
        return logsumexp(log_share - 0.5 * (z**2).sum(1) - 3 * np.log(sd[:, 0]))

    def two(p):
        x = np.asarray(p["x"])
        return density(x) + 0.5 * ((x / 2) ** 2).sum() + 3 * math.log(2)

    models = [
        trj.Model("two", {"x": Normal(torch.zeros(3), 2.0)}, trj.BlackBox(two)),
        trj.Model("one", {"a": Normal(0.0, 1.0)}, trj.BlackBox(lambda p: 0.0)),
    ]
    result = trj.TRJSampler(trj.Target(models), seed=seed).run(max_evaluations=4000, progress=False)
    row = result.model_probabilities().loc["two"]
    assert abs(row["probability"] - 0.5) < 5 * row["se"] < 0.1
