"""Where runs in rounds begin: a likelihood that is 0 nearly everywhere, groups that differ."""

import math

import pytest
import torch
from scipy.stats import norm
from torch.distributions import Normal, Uniform

import trjmcmc as trj
from trjmcmc.errors import UnreachableError
from trjmcmc.run.plan import Plan
from trjmcmc.run.recipes.base import Limit
from trjmcmc.run.recipes.choose import recipe_of
from trjmcmc.run.recipes.lists import Lists, differ


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


def comb(peaks):
    """A list of a broad normal and of many narrow ones along a line."""
    generator = torch.Generator().manual_seed(2)
    places = torch.linspace(-9.5, 9.5, peaks)
    log_share = (4 * torch.randn(peaks, generator=generator)).log_softmax(0)

    def narrow(p):
        each = log_share + Normal(places, 0.01).log_prob(p["x"][:, None])
        return each.logsumexp(1) + Normal(0.0, 0.01).log_prob(p["y"])

    box = {"x": Uniform(-10.0, 10.0), "y": Uniform(-10.0, 10.0)}

    def broad(p):
        return Normal(0.0, 1.0).log_prob(torch.stack([p["x"], p["y"]], 1)).sum(1)

    return trj.Target([trj.Model("broad", box, broad), trj.Model("narrow", box, narrow)])


@pytest.mark.parametrize(("peaks", "grow"), [(1, False), (200, True)])
def test_populations_that_price_made_small_grow_while_groups_differ(
    peaks, grow, generator, monkeypatch
):
    sizes, populations = [], Lists._populations

    def written(self, particles):
        sizes.append(particles)
        return populations(self, particles)

    monkeypatch.setattr(Lists, "share", 0.11)
    monkeypatch.setattr(Lists, "_populations", written)
    recipe_of(comb(peaks), Plan(), generator).begin()
    assert sizes[0] == 62 and (len(sizes) > 1) == grow and max(sizes) <= 187


def test_populations_that_time_cut_short_replace_none(generator, monkeypatch):
    limit, sizes, populations = Limit(), [], Lists._populations

    def pressed(self, particles):
        sizes.append(particles)
        if len(sizes) > 1:
            limit.press()
        return populations(self, particles)

    monkeypatch.setattr(Lists, "share", 0.11)
    monkeypatch.setattr(Lists, "_populations", pressed)
    known, _ = recipe_of(comb(200), Plan(), generator, limit=limit).begin()
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
