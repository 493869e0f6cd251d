"""Several runs as one: what is joined, what is refused, and what only several runs can see."""

import math
import warnings

import numpy as np
import pytest
import torch
from torch.distributions import Normal

import trjmcmc as trj
from tests.small import small_plan
from trjmcmc.draws import Draws
from trjmcmc.errors import ConfigurationError
from trjmcmc.estimate.between import run_gaps
from trjmcmc.estimate.estimate import Estimate
from trjmcmc.result.merge import pooled
from trjmcmc.result.report import RunReport

QUIET = {"progress": False}


def of_run(seed, share=0.5, shift=0.0, chains=64, draws=40, part=1.0):
    """A result of independent draws of two models, so that errors are known.

    Of its parameter a share is at 4 + shift, in another mode, the rest around 0.
    """
    target = trj.problems.sinh_arcsinh()
    g = torch.Generator().manual_seed(seed)
    code = (torch.rand(chains, draws, 1, generator=g) < share).long()
    theta = torch.randn(chains, draws, target.dim, generator=g)
    away = torch.rand(chains, draws, 1, generator=g) > part
    theta = torch.where(away, theta + 4 + shift, theta)
    theta = torch.where(target.space.active(code.flatten(0, 1)).view(theta.shape), theta, 0.0)
    record = Draws(code, theta, -0.5 * theta.square().sum(-1))
    values = {"theta": theta}
    names = [f"t{i}" for i in range(target.dim)]
    return trj.Result(target.space, record, values, {}, RunReport(seed=seed), slot_names=names)


def merged(*runs):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = trj.merge(runs)
    return found, " ".join(str(w.message) for w in said)


def test_chains_stand_beside_each_other_and_errors_shrink():
    runs = [of_run(seed) for seed in range(4)]
    found, said = merged(*runs)
    assert found.raw.theta.shape == (256, 40, 2) and "differ" not in said
    assert found.raw.run.tolist() == np.repeat(range(4), 64).tolist()
    table, one = found.model_probabilities(full=True), runs[0].model_probabilities(full=True)
    ratio = table["visits_se"] / one["visits_se"]
    assert ((ratio > 0.4) & (ratio < 0.6)).all()  # a half, by errors of 64 and of 256 chains
    assert torch.equal(found.raw.theta[64:128], runs[1].raw.theta)


def test_runs_of_different_thinning_and_length_are_thinned_alike():
    a, b = of_run(1, draws=40), of_run(2, draws=15)
    b.raw.__dict__["thin"] = 2
    found, _ = merged(a, b)
    assert found.raw.thin == 2 and found.raw.n_draws == 15
    assert torch.equal(found.raw.theta[:64], a.raw.theta[:, 11::2])  # its last fifteen


def test_a_mode_that_a_run_has_lost_is_seen_between_runs_alone():
    """A mode of twelve percent: R-hat of all chains does not see that half of them lack it."""
    good, lost = of_run(1, part=0.88, chains=128), of_run(2, part=1.0, chains=128)
    found, said = merged(good, lost)
    assert "runs differ in" in said and "has not converged" in said
    assert (found.convergence()["rhat"] < 1.05).all()
    table = found.chains.between_runs()
    assert table["p"].min() < 1e-5 and table["apart"].max() > 0.05
    both, said = merged(good, of_run(3, part=0.88, chains=128))
    assert "differ" not in said and both.chains.between_runs()["p"].min() > 1e-5


def test_runs_planted_in_different_modes_raise_the_warning():
    """Two runs of the sampler: walks that cannot cross the gap between two modes."""

    def log_likelihood(p):
        return torch.logaddexp(
            Normal(-9.0, 0.5).log_prob(p["x"]), Normal(9.0, 0.5).log_prob(p["x"])
        )

    target = trj.Target([trj.Model("one", {"x": Normal(0.0, 10.0)}, log_likelihood)])
    runs = []
    for seed, mode in ((1, -9.0), (2, 9.0)):
        kernel = trj.kernel.RandomWalk(target)
        start = trj.fit.Pool(
            torch.zeros(32, 1, dtype=torch.long), torch.full((32, 1), mode / 10), torch.zeros(32)
        )
        sampler = trj.TRJSampler(target, kernel=kernel, seed=seed, plan=small_plan())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theta = target.unconstrain("one", {"x": torch.full((32,), mode)})
            start = trj.fit.Pool(start.code, theta.view(32, 1), start.log_joint)
            runs.append(
                sampler.run(draws=100, chains=32, warmup=50, fit=False, start=start, **QUIET)
            )
    low, high = (float(np.median(r.draws("one")["x"])) for r in runs)
    assert abs(low + 9) < 2 and abs(high - 9) < 2
    found, said = merged(*runs)
    assert "the run has not converged" in said and "runs differ in x" in said
    assert found.target is not None and not found.summary()["sd"].isna().all()


def test_equal_runs_differ_as_often_as_chance_says():
    """p values of runs that sample the same are spread as they should be, of others small."""
    rng = np.random.default_rng(5)
    run, everywhere = np.repeat(range(3), 20), np.ones((60, 30), bool)
    means = rng.normal(size=(60, 1, 400)) * 0.3  # chains that differ among themselves
    p = run_gaps(means + rng.normal(size=(60, 30, 400)), everywhere, run).p
    seen = np.array([(p < t).mean() for t in (0.1, 0.5)])
    assert (seen < np.array([0.2, 1.0])).all() and seen[1] > 0.3  # the smaller of two, doubled
    few = run_gaps(rng.normal(size=(6, 64, 400)), np.ones((6, 64), bool), np.repeat([0, 1, 2], 2))
    assert (few.p < 1e-5).sum() == 0
    still = np.zeros((60, 30, 1))
    still[:20] = rng.random((20, 30, 1)) < 0.4
    assert run_gaps(still, everywhere, run).p < 1e-5  # two runs without any variance


def test_runs_are_compared_in_whatever_order_their_chains_stand():
    rng = np.random.default_rng(6)
    run, x, everywhere = (
        np.repeat([3, 0, 7], 20),
        rng.normal(size=(60, 40, 4)),
        np.ones((60, 40), bool),
    )
    x[run == 7] += 0.1
    mixed = rng.permutation(60)
    found = run_gaps(x, everywhere, run), run_gaps(x[mixed], everywhere, run[mixed])
    assert all(np.allclose(a, b, rtol=1e-9) for a, b in zip(*found, strict=True))
    assert not np.allclose(found[0].p, run_gaps(x, everywhere, run[mixed]).p)


def test_estimates_of_several_runs_have_the_weights_of_their_errors():
    found = pooled([Estimate(0.0, 0.1, 5.0), Estimate(0.2, 0.2, 6.0)])
    assert math.isclose(found.value, 0.04) and math.isclose(
        found.std_error, 0.04**0.5 * 5**-0.5 * 1
    )
    assert found.ess == 11 and not found.warning
    assert pooled([Estimate(0.0, 0.1), Estimate(0.0, 0.1)], related=True).std_error == 0.1
    flagged = pooled([Estimate(0.0, 0.1), Estimate(0.1, 0.1, warning="doubtful")])
    assert flagged.value == 0 and not flagged.warning and flagged.std_error == 0.1
    far = pooled([Estimate(0.0, 0.1), Estimate(5.0, 0.1)])
    assert far.std_error >= 2.5 and "runs disagree: 0 to 5" in far.warning
    lost = pooled([Estimate(math.nan, math.inf), Estimate(5.0, 0.1)])
    assert lost.value == 5 and lost.std_error == 0.1


@pytest.mark.whole
@pytest.mark.parametrize(
    ("other", "what"),
    [
        (lambda: of_run(1), "same draws"),
        (
            lambda: short(trj.problems.variable_selection(3), 2),
            "spaces of models",
        ),
    ],
)
def test_what_does_not_belong_together_is_refused_by_name(other, what):
    with pytest.raises(ConfigurationError, match=what):
        trj.merge([of_run(1), other()])
    with pytest.raises(ConfigurationError, match="two results"):
        trj.merge([of_run(1)])


def counts(y, dtype=torch.float32):
    def log_likelihood(p):
        return Normal(p["a"], 1.0).log_prob(torch.tensor(y, dtype=dtype))

    prior = Normal(torch.tensor(0.0, dtype=dtype), torch.tensor(1.0, dtype=dtype))
    models = [trj.Model(n, {"a": prior}, log_likelihood) for n in ("u", "v")]
    return trj.Target(models, dtype=dtype)


def short(target, seed):
    sampler = trj.TRJSampler(target, seed=seed, plan=small_plan())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sampler.run(draws=30, chains=32, warmup=10, fit=False, **QUIET)


@pytest.mark.whole
def test_other_data_another_precision_and_files(tmp_path):
    first = short(counts(0.3), 1)
    with pytest.raises(ConfigurationError, match="different priors or likelihoods"):
        trj.merge([first, short(counts(0.4), 2)])
    with pytest.raises(ConfigurationError, match="different precisions"):
        trj.merge([first, short(counts(0.3, torch.float64), 2)])
    second = short(counts(0.3), 2)
    second.save(tmp_path / "second.trj")
    found, _ = merged(first, trj.load(tmp_path / "second.trj"))
    assert found.chains.crossings[0].shape[0] == 64 and found.report.evaluations > 0
    for route in found.evidences.routes.values():  # weighed by maps of their own
        assert all(math.isfinite(e.value) for e in route.values())
    errors = [r.evidences.routes["importance"]["u"].std_error for r in (first, second, found)]
    apart = abs(
        first.evidences.routes["importance"]["u"].value
        - second.evidences.routes["importance"]["u"].value
    )
    both = math.hypot(*errors[:2])
    # by precision, and larger by as much as they differ by more than that
    assert errors[2] == pytest.approx(math.prod(errors[:2]) / both * max(1, apart / both), rel=0.01)
    found.save(tmp_path / "both.trj")
    again = trj.load(tmp_path / "both.trj")
    assert torch.equal(again.raw.run, found.raw.run)
    assert again.evidence(full=True).equals(found.evidence(full=True))
