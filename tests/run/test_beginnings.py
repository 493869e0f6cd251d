"""Where runs in rounds begin, and whether chains have forgotten it."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch.distributions import Normal, Uniform

import trjmcmc as trj
from trjmcmc.errors import LimitWarning, UnreachableError
from trjmcmc.estimate.mixing import mixing
from trjmcmc.run.asked import Limit
from trjmcmc.run.plan import Plan
from trjmcmc.run.recipes.choose import recipe_of
from trjmcmc.run.recipes.climbs import with_another
from trjmcmc.run.recipes.lists import Lists, differ
from trjmcmc.target.exchangeable import components_of


def few_of(items, most, above):
    """At most so many items, each coefficient above a number, and p(an item is in)."""

    def log_likelihood(p, active):
        possible = (active.sum(-1) <= most) & ((p["beta"] > above) | ~active).all(-1)
        return torch.where(possible, 1.5 * active.sum(-1), -math.inf)

    space = trj.Subsets([f"x{i}" for i in range(items)], of="beta")
    target = trj.Target(space, {"beta": Normal(0.0, 1.0)}, log_likelihood)
    odds = math.exp(1.5) * norm.sf(above)
    masses = [math.comb(items, k) * odds**k for k in range(most + 1)]
    return target, sum(k * m for k, m in enumerate(masses)) / sum(masses) / items


def test_subsets_of_which_the_data_forbid_nearly_all():
    """One prior draw in fifty is possible; groups of 64 chains without any never ended."""
    target, p = few_of(9, 3, 0.5)
    result = trj.TRJSampler(target, seed=1).run(progress=False, max_seconds=60.0)
    table = result.inclusion_probabilities()
    z = (table["probability"] - p) / table["se"]
    assert z.abs().max() < 4.9 and table["se"].max() < 0.02


def test_evidence_counts_prior_draws_that_are_impossible(generator):
    """Groups start from what is possible, and know its share of the prior."""
    target, _ = few_of(9, 3, 0.5)
    known, state = recipe_of(target, Plan(chains=4096), generator).begin()
    odds = math.exp(1.5) * norm.sf(0.5)
    exact = math.log(sum(math.comb(9, k) * odds**k for k in range(4)) / 2**9)
    error = float(known.log_evidence.std()) / 8**0.5
    assert bool(state.log_joint.isfinite().all()) and 0 < error < 0.1
    assert abs(float(known.log_evidence.mean()) - exact) < 5.0 * error + 0.02


def test_where_nothing_is_possible_a_run_says_so(generator):
    target = trj.Target(
        trj.Subsets([f"x{i}" for i in range(9)], of="beta"),
        {"beta": Normal(0.0, 1.0)},
        lambda p, active: torch.full_like(p["beta"][:, 0], -math.inf),
    )
    with pytest.raises(UnreachableError, match="at each of 12800 prior draws"):
        recipe_of(target, Plan(), generator).begin()


def test_a_limit_ends_the_search_for_possible_draws(generator):
    target, _ = few_of(9, 0, 5.0)
    limit = Limit()
    limit.press()
    recipe = recipe_of(target, Plan(), generator, limit=limit)
    before = recipe.evaluations
    with pytest.raises(UnreachableError):
        recipe.begin()
    assert recipe.evaluations - before <= 2 * recipe.chains


@pytest.mark.whole
def test_components_that_the_data_confine():
    """Each within .15 of a unit interval: 32 prior draws of five met no density above 0."""
    target = trj.Target(
        trj.Counts(5, 1, of="x"),
        {"x": Uniform(0.0, 1.0)},
        lambda p, active: torch.where(
            ((p["x"] < 0.15) | ~active).all(-1), 1.9 * active.sum(-1), -math.inf
        ),
    )
    table = trj.TRJSampler(target, seed=1).run(progress=False, max_seconds=60.0).counts()
    weights = torch.tensor([(0.15 * math.exp(1.9)) ** k for k in range(1, 6)])
    z = (table["probability"] - (weights / weights.sum()).numpy()) / table["se"]
    assert len(table) == 5 and z.abs().max() < 4.9


@pytest.mark.whole
def test_few_components_that_the_data_forbid():
    """None of less than three is possible: these were taken for not exchangeable."""
    target = trj.Target(
        trj.Counts(6, of="x"),
        {"x": Normal(0.0, 1.0)},
        lambda p, active: torch.where(active.sum(-1) > 2, 0.0, -math.inf),
    )
    with pytest.warns(LimitWarning):
        table = trj.TRJSampler(target, seed=1).run(progress=False, max_seconds=60.0).counts()
    z = (table["probability"] - torch.tensor([0.0] * 3 + [0.25] * 4).numpy()) / table["se"]
    assert z.abs().max() < 4.9 and table["se"].max() < 0.02


def two_models():
    box = {"x": Uniform(-10.0, 10.0)}
    return trj.Target(
        [trj.Model(n, box, lambda p: Normal(0.0, 1.0).log_prob(p["x"])) for n in ("one", "two")]
    )


def apart(monkeypatch, until, limit=None):
    """Populations made small by price, whose evidences groups differ in until they have a size."""
    sizes, populations = [], Lists._populations

    def written(self, particles):
        sizes.append(particles)
        if limit is not None and len(sizes) > 1:
            limit.press()
        run, log_mass = populations(self, particles)
        if particles < until:
            log_mass[:, 1] += torch.linspace(-3.0, 3.0, len(log_mass)).double()
        return run, log_mass

    monkeypatch.setattr(Lists, "share", 0.11)
    monkeypatch.setattr(Lists, "_populations", written)
    return sizes


@pytest.mark.parametrize(
    ("until", "expected"), [(0, [62]), (100, [62, 124]), (1000, [62, 124, 187])]
)
def test_populations_that_price_made_small_grow_while_groups_differ(
    until, expected, generator, monkeypatch
):
    sizes = apart(monkeypatch, until)
    recipe_of(two_models(), Plan(), generator).begin()
    assert sizes == expected


def test_populations_that_time_cut_short_replace_none(generator, monkeypatch):
    limit = Limit()
    sizes = apart(monkeypatch, 1000, limit)
    known, _ = recipe_of(two_models(), Plan(), generator, limit=limit).begin()
    assert sizes == [62, 124]
    assert known.log_mass is not None and float(known.log_mass.min()) > -60


def test_groups_differ_in_what_matters_alone():
    log_mass = torch.zeros(8, 3).double()
    log_mass[:, 2] = -30.0
    log_mass[::2, 2] -= 20.0  # of a model that no group thinks probable
    assert not differ(log_mass)
    log_mass[::2, 1] -= 3.0
    assert differ(log_mass)
    log_mass[0, 1] = -math.inf
    assert differ(log_mass)


def narrow_in_each(width, most=4):
    """Components of two modes of equal mass, one of them narrow; as many of each as of any."""
    prior = Uniform(-10.0, 10.0)

    def log_ratio(p):
        x = torch.stack([p["x"], p["z"]], -1)
        wide, narrow = Normal(-3.0, 1.0).log_prob(x).sum(-1), Normal(4.0, width).log_prob(x).sum(-1)
        return torch.logaddexp(wide, narrow)[:, None] - math.log(2) + 2 * math.log(20.0)

    space = trj.Counts(most, of=("x", "z"))
    likelihood = trj.Additive(log_ratio, lambda total, p: total.sum(-1))
    return trj.Target(space, {"x": prior, "z": prior}, likelihood)


@pytest.mark.parametrize(("draws", "least"), [(128, 4), (1, 0)])
def test_climbs_of_one_component_meet_what_is_narrow_in_each(draws, least, generator):
    """Of 64 chains one prior draw each leads nowhere; a mode of 4e-4 of the prior needs more."""
    target = narrow_in_each(0.02)
    code = torch.full((64, 1), 2)
    theta = target.sample_prior(code, generator)
    (parts,) = components_of(target)
    new, point = with_another(parts, code, theta, draws, generator, bool)
    x = parts.of(10 * torch.tanh(point / 2))
    met = (((x - 4).abs() < 0.1).all(-1) & parts.items(new)).any(1)
    assert int(met.sum()) >= least and (draws > 1 or int(met.sum()) < 4)
    assert bool((target.log_joint(new, point) > target.log_joint(code, theta) - 10.0).all())
    assert bool(((new - code).abs() <= 1).all())


def test_climbs_end_with_their_time(generator):
    target = narrow_in_each(0.02)
    code = torch.full((64, 1), 2)
    theta = target.sample_prior(code, generator)
    (parts,) = components_of(target)
    before = target.account.evaluations
    new, point = with_another(parts, code, theta, 128, generator, lambda: True)
    assert bool((new == code).all()) and bool((point == theta).all())
    assert target.account.evaluations - before == len(code)


@pytest.mark.whole
@pytest.mark.planned
def test_modes_that_are_narrow_in_each_component():
    """p(0) .288 +- .006 for .2 before: no chain had met two components in their narrow mode."""
    table = trj.TRJSampler(narrow_in_each(0.02), seed=3).run(progress=False).counts()
    z = (table["probability"] - 0.2) / table["se"]
    assert z.abs().max() < 4.9 and table["se"].max() < 0.011


def test_chains_that_began_elsewhere_are_told_from_the_others():
    """An eighth of the chains that forget their start slowly moves all groups alike."""
    x = np.random.default_rng(0).normal(size=(256, 40, 2))
    starts = np.arange(256) // 8 % 8 == 0
    assert mixing(x, 8, starts=starts).alike > 0.005
    x[starts, :, 1] += 0.3
    assert mixing(x, 8).alike > 0.005 > mixing(x, 8, starts=starts).alike


def test_what_is_forgotten_at_several_rates_is_not_seen_at_first():
    """tau of a sum of a fast and a slow chain grows with the record; that of either is level."""
    rng = np.random.default_rng(0)

    def remembering(rate, draws=100, chains=256):
        x = rng.normal(size=(chains, draws, 3))
        for t in range(1, draws):
            x[:, t] = rate * x[:, t - 1] + (1 - rate**2) ** 0.5 * x[:, t]
        return x

    fast, slow = remembering(0.5), remembering(0.997)
    assert mixing(fast, 8).slowing < 1.45 < mixing(0.9 * fast + 0.43 * slow, 8).slowing
