"""A plain run ends when it is done, and says how far it came if it is not."""

import math

import pytest
import torch

import trjmcmc as trj
from trjmcmc.draws import Recorder
from trjmcmc.errors import ConfigurationError
from trjmcmc.estimate.short_runs import memory_of, times_of_means
from trjmcmc.result.convergence import worst_rhat
from trjmcmc.run import in_rounds
from trjmcmc.run.stop import Stop, Verdict


def ar1(times, steps=200, chains=400, seed=0):
    """Stationary chains of given autocorrelation times, shape (step, chain, F)."""
    generator = torch.Generator().manual_seed(seed)
    phi = torch.tensor([(t - 1) / (t + 1) for t in times], dtype=torch.float64)
    x = torch.randn(chains, len(times), generator=generator, dtype=torch.float64)
    found = [x]
    for _ in range(steps - 1):
        noise = torch.randn(x.shape, generator=generator, dtype=torch.float64)
        x = phi * x + (1 - phi.square()).sqrt() * noise
        found.append(x)
    return torch.stack(found)


@pytest.mark.parametrize("steps", [40, 400])
def test_memory_is_known_by_the_spread_of_the_means(steps):
    times = [2.0, 10.0, 40.0]
    found = times_of_means(ar1(times, steps))
    assert found.tolist() == pytest.approx(times, rel=0.35)
    assert times_of_means(torch.ones(20, 30, 1)).tolist() == [1.0]


def test_memory_of_one_chain_is_that_of_its_pieces():
    found = times_of_means(ar1([8.0], 4000, 1))
    assert 3 < float(found) < 16
    assert times_of_means(torch.tensor([0.3, 1.2, -1.0])[:, None, None]).tolist() == [1.0]


def test_memory_is_that_of_the_slowest_of_all():
    """A coordinate counts that no indicator shows; its place or its distance from the middle."""
    space = one_model().space
    steps, chains = 200, 400
    fast, slow = ar1([1.5, 30.0], steps, chains).unbind(-1)
    code = torch.zeros(steps, chains, 1, dtype=torch.long)
    seen = torch.zeros(steps, chains, 1, dtype=torch.float64)
    quick = memory_of(space, seen, code, fast[..., None], fast)
    assert quick < 3
    assert memory_of(space, seen, code, slow[..., None], fast) == pytest.approx(30, rel=0.4)
    size = (fast.sign() * slow.abs())[..., None]  # only its distance from the middle is slow
    assert memory_of(space, seen, code, size, fast) > 5
    assert memory_of(space, seen, code, slow[..., None], fast, exchangeable=True) < 3


def recorder(theta):
    """A record of one model; ``theta`` has shape (step, chain)."""
    steps, chains = theta.shape
    code = torch.zeros(chains, 1, dtype=torch.long)
    found = Recorder(steps, code, theta[0, :, None], 1)
    for row in theta.float():
        found.keep(code, row[:, None], -0.5 * row.square())
    return found


def one_model():
    """A single standard normal."""
    normal = torch.distributions.Normal(0.0, 1.0)
    return trj.Target([trj.Model("one", {"x": normal}, lambda p: 0 * p["x"])])


def test_a_single_model_is_done_by_r_hat():
    space = one_model().space
    fast, slow = ar1([1.0, 30.0], 400, 64).unbind(-1)
    assert Stop(space, {"rhat": 1.01})(recorder(fast)) is Verdict.PRECISE
    stop = Stop(space, {"rhat": 1.01})
    assert stop(recorder(slow)) is Verdict.GO_ON
    words = stop.missed(recorder(slow).draws())
    assert "R-hat 1.0" in words and "more of sampling would do" in words
    slower = ar1([60.0], 400, 64)[..., 0]  # of its square 30: 13 autocorrelation times
    assert Stop(space, {"rhat": 1.2})(recorder(slower)) is Verdict.GO_ON
    assert stop.error is None and stop.times == pytest.approx(2 / (1.01**2 - 1))
    with pytest.raises(ConfigurationError, match="above 1"):
        Stop(space, {"rhat": 1.0})


def test_r_hat_is_of_independent_starts_and_counts_parameters():
    space = one_model().space
    slow = ar1([60.0], 200, 64)[..., 0]
    record = recorder(slow)
    expected = math.sqrt(1 + 2 * 60 / 200)
    assert worst_rhat(space, record.draws(), 1.01) == pytest.approx(expected, abs=0.12)
    assert worst_rhat(space, recorder(ar1([1.0], 400, 64)[..., 0]).draws(), 1.01) < 1.01


def test_a_plain_run_is_done():
    result = trj.TRJSampler(trj.problems.sinh_arcsinh(), seed=4).run(progress=False)
    assert result.report.missed == "" and not result.report.out_of_time
    assert result.model_probabilities(full=True)["visits_se"].max() <= 0.01
    assert result.report.judged.doubt == ""
    assert result.convergence()["rhat"].max() < 1.1  # ten autocorrelation times or more
    p = result.model_probabilities(full=True).loc["2d"]
    assert abs(p["combined"] - 0.75) < 5 * p["combined_se"]
    assert not str(result.report).startswith("ended early")


@pytest.mark.whole
@pytest.mark.filterwarnings("ignore::trjmcmc.errors.TRJWarning")
def test_a_plain_run_that_ends_early_says_so_first(monkeypatch):
    monkeypatch.setattr(in_rounds, "DONE_SECONDS", 4.0)
    result = trj.TRJSampler(trj.problems.coal_mining(), seed=4).run(progress=False)
    first = str(result.report).splitlines()[0]
    assert first.startswith("ended early: ")


@pytest.mark.whole
@pytest.mark.filterwarnings("ignore:the run has not converged")  # a heavy tail, few draws
def test_what_moves_have_promised_is_held_against_what_was_reached():
    result = trj.TRJSampler(trj.problems.sinh_arcsinh(), seed=5).run(
        draws=300, chains=256, progress=False
    )
    report = result.report
    assert 0 < report.expected_error < 0.05 and 0 < report.reached_error < 0.05
    assert report.falls_short == (report.reached_error > 1.5 * report.expected_error)
    assert "expected ±" in str(report)


@pytest.mark.whole
@pytest.mark.planned
def test_slow_coordinates_get_moves_of_their_own():
    """Strongly correlated coordinates, which no indicator shows: random walks alone are slow."""
    sd = torch.tensor([1.0, 0.02])

    def log_likelihood(p):
        u = torch.stack([p["x"].sum(-1), p["x"][:, 0] - p["x"][:, 1]], -1) / 2**0.5
        wide = torch.distributions.Normal(torch.zeros(2), 3.0).log_prob(p["x"]).sum(-1)
        return torch.distributions.Normal(0.0, sd).log_prob(u).sum(-1) - wide

    prior = torch.distributions.Normal(torch.zeros(2), 3.0)
    null = trj.Model("null", {}, lambda p: torch.tensor(0.0))
    target = trj.Target([trj.Model("thin", {"x": prior}, log_likelihood), null])
    result = trj.TRJSampler(target, seed=1).run(progress=False)
    assert result.report.missed == ""
    p = result.model_probabilities(full=True).loc["null"]
    assert abs(p["combined"] - 0.5) < 5 * p["combined_se"]
