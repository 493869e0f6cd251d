"""Runs in rounds: right answers, one seed one answer, and what ends them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.distributions import Normal, Uniform

import trjmcmc as trj
from tests.emulated import DEVICE, Emulated
from tests.rounds import rounds
from trjmcmc import clock
from trjmcmc.draws import Draws, Pool
from trjmcmc.estimate.mixing import ChainSums, mixing
from trjmcmc.kernel.base import Kernel
from trjmcmc.run.asked import Limit, Stated
from trjmcmc.run.plan import Plan
from trjmcmc.run.recipes import subsets
from trjmcmc.run.recipes.base import Moves, Route, gain
from trjmcmc.run.recipes.choose import recipe_of
from trjmcmc.run.recipes.cooled import CooledRecipe
from trjmcmc.run.recipes.counts import CountsRecipe
from trjmcmc.run.recipes.lists import Lists
from trjmcmc.run.recipes.subsets import SubsetsRecipe
from trjmcmc.run.recorded import Recorded
from trjmcmc.run.rounds import looks
from trjmcmc.run.summary import apart, combined, summed_up
from trjmcmc.transport.normals import gaussian_mixture

QUICK = Plan(particles=1600, moves=6, climbs=2000)
KINDS = {
    "list": trj.problems.sinh_arcsinh,
    "subset": lambda: trj.problems.variable_selection(10),
    "count": lambda: trj.problems.pulses(points=20, true=1, most=2, seed=1),
}
FAR = 4.4  # standard errors, of alpha 1e-5


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def run(target, seed=1, plan=QUICK, deadline=math.inf, climbs=0, **settings):
    generator, stated = torch.Generator().manual_seed(seed), Stated(climbs=climbs)
    recipe = recipe_of(target, plan, generator, limit=Limit(deadline), stated=stated)
    return rounds(recipe, **settings)


def truth_of(target):
    return torch.tensor([*target.truth.probabilities.values()], dtype=torch.float64)


# ---- what is learned ----------------------------------------------------------------------------


def test_moves_are_held_against_each_other_only_where_one_forgets_too_slowly():
    """Of a toy the first suffices; of coal mining, the control, all are measured."""
    worth = []
    for target in (trj.problems.sinh_arcsinh(), trj.problems.coal_mining(1, 3)):
        recipe = recipe_of(target, QUICK, torch.Generator().manual_seed(1))
        known, state = recipe.begin()
        chains = Recorded(recipe, state)
        seen = chains.measure(recipe.all_moves(known))
        assert seen is not None
        worth.append([*chains.worth.values()])
    assert worth[0][0] > 0 == worth[0][1] and min(worth[1]) > 0


class Idle(Kernel):
    """Leaves chains where they are."""

    name, between = "idle", True

    def step(self, state, generator):
        return state, []


def test_a_move_that_moves_nobody_gets_the_least_share():
    """By their spread its chains have a time as long as the record; they remember its beginning."""
    recipe = recipe_of(trj.problems.coal_mining(1, 3), QUICK, torch.Generator().manual_seed(1))
    known, state = recipe.begin()
    moves = recipe.all_moves(known)
    moves = moves._replace(between={"splits": moves.between["splits"], "idle": Idle()})
    chains = Recorded(recipe, state)
    chains.measure(moves)
    chains.mixture(moves)
    assert chains.shares["idle"] < 0.05 < 0.2 < chains.worth["splits"] / max(chains.worth.values())


@pytest.mark.parametrize(
    ("judged", "mapped"),
    [(True, False), pytest.param(True, True, marks=pytest.mark.whole), (False, False)],
)
def test_worse_normals_never_replace_better_ones(judged, mapped, monkeypatch):
    """Chains that teach nonsense, beside a map of the user too; the control keeps the last."""
    lesson = Lists.learn

    def misled(recipe, known, seen, first):
        new = lesson(recipe, known, seen, first)
        far = replace(new.draws, theta=new.draws.theta + 50.0)
        return new if first else new._replace(draws=far)

    monkeypatch.setattr(Lists, "learn", misled)
    if not judged:
        monkeypatch.setattr("trjmcmc.run.rounds.gain", lambda *_: 0.0)
    recipe = recipe_of(trj.problems.sinh_arcsinh(), QUICK, torch.Generator().manual_seed(1))
    if mapped:
        recipe.take_map(trj.transport.RealNVP(recipe.target.space))
    found = next(run for run in looks(recipe) if run.steps == 2 * QUICK.first)
    flat = (found.draws.theta.flatten(0, 1), found.draws.code.flatten(0, 1))
    here = float(found.moves.through.log_prob(*flat).mean())
    assert (here > -5) is judged
    assert (float(found.known.draws.theta.mean()) < 10) is judged


def test_a_gain_fills_spare_coordinates_and_no_draw_decides_alone():
    """Records hold zeros there, which a map that moves them takes for a point."""
    target = trj.problems.sinh_arcsinh()
    flow = trj.transport.ConditionalRealNVP(target.space)
    with torch.no_grad():
        for p in flow.parameters():
            p += 0.03 * torch.randn(p.shape, generator=torch.Generator().manual_seed(0))
    code = target.space.enumerate().repeat(500, 1)
    theta = torch.randn(1000, target.dim, generator=torch.Generator().manual_seed(1))
    theta = theta * target.space.active(code)
    draws = Pool(code, theta, torch.zeros(1000))
    normal = gaussian_mixture(target.space, draws, torch.Generator().manual_seed(2), components=1)
    there = flow.log_prob(flow.with_spares(theta, code), code) - normal.log_prob(theta, code)
    assert gain(flow, normal, draws) == pytest.approx(float(there.detach().mean()), rel=1e-4)
    assert gain(normal, flow, draws) == pytest.approx(-gain(flow, normal, draws))
    zeros = flow.log_prob(theta, code) - normal.log_prob(theta, code)  # the control
    assert abs(float(zeros.detach().mean()) - gain(flow, normal, draws)) > 1e-3
    assert gain(normal, normal, draws) == gain(normal, None, draws) == 0

    class Impossible:
        """Of one draw."""

        with_spares = normal.with_spares

        def log_prob(self, theta, code):
            return normal.log_prob(theta, code).index_fill(0, torch.tensor([3]), -math.inf)

    assert gain(Impossible(), normal, draws) == pytest.approx(-50 / 1000)


# ---- answers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "problem", ["sleep", pytest.param("robust_regression", marks=pytest.mark.whole)]
)
def test_lists_are_right(problem):
    target = getattr(trj.problems, problem)()
    found = run(target)
    assert found.done and float(found.error.max()) <= 0.01
    z = (found.p - truth_of(target)).abs() / (found.error + 1e-6)
    assert float(z.max()) < FAR
    z = (found.visits - truth_of(target)).abs() / (found.visits_error + 1e-6)
    assert float(z.max()) < FAR


def test_evidences_are_right():
    target = trj.problems.sinh_arcsinh()
    found = run(target)
    gap = found.route.log_mass - truth_of(target).log()
    assert float((gap.abs() / found.route.log_mass_error).max()) < FAR
    assert found.draws.n_draws == found.steps - found.steps // 4


def test_subsets_are_right():
    target = trj.problems.variable_selection(10)
    found = run(target)
    labels = [*target.truth.probabilities]
    on = target.space.items(torch.stack([target.space.code_of(m) for m in labels])).double()
    exact = truth_of(target) @ on
    assert found.done and float(((found.p - exact).abs() / (found.error + 1e-6)).max()) < FAR


def spikes(items=5):
    """Coefficients that are in with probability 1/2, half of that in a narrow spike each."""
    prior, spike, bump = Normal(0.0, 3.0), Normal(2.0, 0.02), Normal(-2.0, 1.0)

    def log_likelihood(p, active):
        beta = p["beta"]
        posterior = torch.logaddexp(spike.log_prob(beta), bump.log_prob(beta)) - math.log(2)
        return torch.where(active, posterior - prior.log_prob(beta), 0.0).sum(-1)

    names = [f"v{j}" for j in range(items)]
    return trj.Target(trj.Subsets(names, of="beta"), {"beta": prior}, log_likelihood)


@pytest.mark.whole
@pytest.mark.parametrize("learned", [True, False])
def test_births_learn_where_coefficients_are(learned, monkeypatch):
    """Without that chains forget ten to twenty times as slowly."""
    if not learned:
        monkeypatch.setattr(subsets, "marginals_fit", lambda target: False)
    found = run(spikes(), plan=replace(QUICK, most=400))
    assert ("marginals" in found.shares) == learned
    assert (found.mixing.tau < 40) == learned
    assert float(((found.p[:5] - 0.5).abs() / found.error[:5]).max()) < FAR or not found.done


def two_that_need_each_other(items=6):
    """The first two are in together with probability .7, and never alone, in a narrow mode."""
    prior, wide, narrow = Normal(0.0, 3.0), Normal(0.0, 1.0), Normal(3.0, 0.05)

    def log_likelihood(p, active):
        beta, n = p["beta"], active[:, :2].sum(-1, keepdim=True)
        gain = wide.log_prob(beta) - prior.log_prob(beta)
        pair = narrow.log_prob(beta[:, :2]) - prior.log_prob(beta[:, :2])
        gain = torch.cat([torch.where(n == 2, pair, gain[:, :2]), gain[:, 2:]], 1)
        odds = torch.tensor([0.0, -14.0, math.log(0.7 / 0.3)])
        return odds.to(beta)[n[:, 0]] + torch.where(active, gain, 0.0).sum(-1)

    names = [f"v{j}" for j in range(items)]
    return trj.Target(trj.Subsets(names, of="beta"), {"beta": prior}, log_likelihood)


@pytest.mark.whole
@pytest.mark.parametrize("climbs", [True, False])
def test_climbs_begin_in_narrow_modes_of_rare_models(climbs, monkeypatch):
    """Cooling alone loses them."""
    if not climbs:
        monkeypatch.setattr(CooledRecipe, "_climbed", lambda self, code, theta: (code, theta))
    found = run(two_that_need_each_other(), plan=replace(QUICK, most=800))
    assert bool((found.p[:2] > 0.5).all()) == climbs
    assert bool((found.p[:2] < 0.01).all()) != climbs


def all_together(most=4):
    """Three or four components, all of them in a narrow mode, or none."""
    odds = torch.tensor([-1.0, -14.0, -14.0, 0.0, -0.5])
    prior, narrow = Uniform(-10.0, 10.0), Normal(3.0, 0.05)

    def log_likelihood(p, active):
        gain = narrow.log_prob(p["x"]) - prior.log_prob(p["x"])
        return odds.to(gain)[active.sum(-1)] + torch.where(active, gain, 0.0).sum(-1)

    return trj.Target(trj.Counts(most, of="x"), {"x": prior}, log_likelihood), odds.softmax(0)


@pytest.mark.whole
@pytest.mark.parametrize("climbs", [True, False])
def test_climbs_begin_in_narrow_modes_of_many_components(climbs, monkeypatch):
    """Cooling alone leaves all chains without components."""
    if not climbs:
        monkeypatch.setattr(CountsRecipe, "_climbed", lambda self, code, theta: (code, theta))
    target, p = all_together()
    found = run(target, plan=replace(QUICK, most=800))
    assert found.done or not climbs
    assert bool(((found.p - p).abs() < FAR * found.error).all()) == climbs


def test_climbs_begin_in_models_of_all_sizes():
    """Of items that a prior calls rare, many together are no help: these are not begun in."""
    names = [f"v{j}" for j in range(40)]
    for prior, dense in ((0.5, 5), (0.01, 0)):
        target = trj.Target(
            trj.Subsets(names, of="b", prior=prior),
            {"b": Normal(0.0, 1.0)},
            lambda q, active: q["b"][:, 0],
        )
        recipe = recipe_of(target, QUICK, torch.Generator().manual_seed(1))
        on = recipe._of_all_sizes(64).sum(1)
        assert int((on > 30).sum()) >= dense and bool((on < 15).any())
        assert prior == 0.5 or int(on.max()) < 10


@pytest.mark.parametrize("stuck", [True, False])
def test_a_chain_that_never_leaves_a_rare_model_keeps_a_run_from_being_done(stuck):
    """Its share is far too small to be judged by its variance."""
    recipe = recipe_of(sums()[0], QUICK, torch.Generator().manual_seed(1))
    code = torch.zeros(512, 40, 1, dtype=torch.long)
    code[-1, 0 if stuck else 1 :] = 3
    draws = Draws(code, torch.zeros(512, 40, 4), torch.randn(512, 40, generator=recipe.generator))
    found = summed_up(recipe, draws, recipe.begin()[0], Moves({}, []), None)
    assert (found.mixing.tau == 40) == stuck and ("long" in found.doubt) == stuck


def sums(most=4, seen=3.0, sd=0.5, least=0):
    """A number seen with noise that is the sum of standard normals: how many of them?"""

    def log_likelihood(p, active):
        total = (p["a"] * active).sum(-1)
        return Normal(total, sd).log_prob(torch.tensor(seen))

    space = trj.Counts(most, of="a", min=least)
    target = trj.Target(space, {"a": Normal(0.0, 1.0)}, log_likelihood)
    sd_of = (sd**2 + torch.arange(least, most + 1.0, dtype=torch.float64)).sqrt()
    return target, Normal(0.0, sd_of).log_prob(torch.tensor(seen)).softmax(0)


@pytest.mark.whole
@pytest.mark.parametrize("seen", [0.2, 3.0])
def test_counts_are_right(seen):
    target, exact = sums(seen=seen)
    found = run(target)
    assert found.done and float(((found.p - exact).abs() / found.error).max()) < FAR


@pytest.mark.whole
def test_every_kind_of_components_is_asked_for():
    target = trj.Target(
        trj.Counts(2, of="a") + trj.Counts(1, of="b"),
        {"a": Normal(0.0, 1.0), "b": Normal(0.0, 1.0)},
        lambda p, on: 0.5 * (on["a"].sum(-1) + on["b"].sum(-1)),
    )
    found = run(target)
    n = torch.arange(3.0, dtype=torch.float64) / 2
    exact = torch.cat([n.softmax(0), n[:2].softmax(0)])
    assert found.done and float(((found.p - exact).abs() / found.error).max()) < FAR


def with_a_hidden_mode():
    """One of a fivehundredth of the prior, with its share of the model's evidence, .92."""

    def likelihood(p):
        wide, narrow = (Normal(m, s).log_prob(p["x"]).sum(-1) for m, s in ((0.0, 1.0), (10.0, 0.1)))
        return torch.logaddexp(wide, narrow + 4.0)

    prior = {"x": Normal(torch.zeros(2), 8.0)}
    flat = trj.Model("flat", {}, lambda p: torch.tensor(-9.0))
    target = trj.Target([trj.Model("two", prior, likelihood), flat])
    return target, 1 / (1 + math.exp(100 / 64 - 4.0))  # the prior is flat where it is not


def test_a_mode_that_groups_lose_is_searched_for():
    target, exact = with_a_hidden_mode()
    found = run(target, plan=Plan(particles=400, moves=2, climbs=300), climbs=15_000)
    assert found.detection <= 2e-4
    inside = found.draws.code[..., 0] == 0
    there = float(found.draws.theta[..., 0][inside].gt(5).double().mean())
    assert there == pytest.approx(exact, abs=0.1)


@pytest.mark.parametrize(("seen", "lost"), [("wide", True), ("none", True), ("there", False)])
def test_what_chains_visit_is_not_lost_and_what_they_never_saw_is(seen, lost):
    target, _ = with_a_hidden_mode()
    recipe = recipe_of(target, Plan(particles=400, moves=2), torch.Generator().manual_seed(1))
    known, _ = recipe.begin()
    is_flat = known.draws.code[:, 0] == 1
    flat, two = known.draws.at(is_flat), known.draws.at(~is_flat)
    wide = replace(two, theta=torch.randn(len(two.code), 2, generator=recipe.generator))
    known = known._replace(draws=wide.joined(flat), log_mass=torch.zeros_like(known.log_mass) - 8)
    draws = {
        "wide": wide,
        "none": replace(wide, code=1 + wide.code),
        "there": replace(wide, theta=10 + 0.1 * wide.theta),
    }[seen]
    _, met = recipe.search(known, recipe.all_moves(known), draws, 20_000)
    assert (met is not None) == lost


def test_the_search_goes_on_with_the_run():
    target, looks = trj.problems.sinh_arcsinh(), []
    plan = Plan(particles=400, moves=2, climbs=500, sought=2.0, most=100)
    run(target, plan=plan, error=1e-5, said=looks.append)
    limits = [look.detection for look in looks]
    assert limits[0] == pytest.approx(3 / 500)
    assert limits == sorted(limits, reverse=True) and limits[-1] < 0.9 * limits[0]


@pytest.mark.whole
@pytest.mark.parametrize("kind", KINDS)
def test_on_a_device(kind):
    """What is learned stays there, what is judged leaves it."""
    plan = Plan(particles=200, moves=1, climbs=100, chains=16, first=8, measured=6, most=12)
    with Emulated():
        target = KINDS[kind]().to(device=DEVICE)
        found = rounds(recipe_of(target, plan, torch.Generator(DEVICE).manual_seed(1)))
        assert found.known.draws.theta.device == DEVICE
        assert found.draws.theta.device.type == found.p.device.type == "cpu"
    assert bool(found.p.isfinite().all())


def test_right_on_the_chosen_device(device):
    """On the CPU unless pytest is called with --device=cuda."""
    target = trj.problems.sinh_arcsinh().to(device=device)
    found = rounds(recipe_of(target, QUICK, torch.Generator(device).manual_seed(1)))
    z = (found.p - truth_of(target)).abs() / (found.error + 1e-6)
    assert found.done and float(z.max()) < FAR


def narrow(dtype=None):
    """A day known to three minutes, which float32 does not tell from the next; p is a half."""

    def likelihood(p):
        return Normal(54321.0, 0.002).log_prob(p["day"]) + math.log(1e5)

    models = [
        trj.Model("day", {"day": Uniform(0.0, 1e5)}, likelihood),
        trj.Model("null", {}, lambda p: torch.tensor(0.0)),
    ]
    return trj.Target(models, dtype=dtype)


@pytest.mark.whole
def test_begun_anew_in_float64_where_float32_does_not_resolve_it():
    found = run(narrow())
    assert found.draws.theta.dtype == torch.float64 and not any(found.unresolved)
    assert abs(float(found.p[0]) - 0.5) < FAR * float(found.error[0])
    stated = run(narrow(torch.float32), plan=Plan(particles=400, moves=2, climbs=200, most=50))
    assert "near day = 54321" in stated.unresolved.coarse
    stated = trj.Target([trj.Model("m", {"x": Normal(0.0, 1.0)}, lambda p: 0 * p["x"])])
    assert run(stated, plan=Plan(particles=400, moves=2, climbs=200)).unresolved == ("", "")


def test_evaluations_of_both_precisions_count():
    target = narrow()
    recipe, before = recipe_of(target, QUICK, torch.Generator().manual_seed(1)), target.evaluations
    recipe.begin()
    spent = target.evaluations - before
    assert recipe.evaluations == spent > 0
    assert recipe.finer("it").evaluations == spent


@pytest.mark.parametrize(
    ("target", "recipe"),
    [
        (lambda: trj.problems.variable_selection(4), Lists),
        (lambda: trj.problems.variable_selection(5), SubsetsRecipe),
        (lambda: trj.problems.pulses(points=20, true=1, most=2, seed=1), CountsRecipe),
        (lambda: trj.Target([constant(str(i)) for i in range(128)]), Lists),
    ],
)
def test_recipes_by_space(target, recipe):
    made = recipe_of(target(), Plan(), torch.Generator())
    assert type(made) is recipe
    code = made.host.enumerate()
    models = made.asked(code[None])[0][:, -len(code) :]
    if recipe is not CountsRecipe:  # which are asked for by their number
        assert torch.equal(models, torch.eye(len(code), dtype=torch.float64))


def constant(name):
    return trj.Model(name, {"x": Normal(0.0, 1.0)}, lambda p: 0 * p["x"])


# ---- one seed, one answer ------------------------------------------------------------------------


def same(a, b):
    return torch.equal(a.draws.theta, b.draws.theta) and torch.equal(a.p, b.p)


@pytest.mark.whole
@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_has_one_answer_whatever_a_clock_says(kind):
    target = KINDS[kind]
    plan = Plan(particles=400, moves=2, climbs=500, chains=32, most=60)
    first = run(target(), plan=plan)
    now = [0.0]

    def jumping():
        now[0] += 1e6
        return now[0]

    for reader in (lambda: 0.0, jumping):
        with clock.read_from(reader):
            assert same(first, run(target(), plan=plan))
    assert not torch.equal(first.p, run(target(), seed=2, plan=plan).p)


@pytest.mark.whole
def test_a_run_with_a_limit_is_the_beginning_of_the_run_without_one():
    """Wherever it ends: in the groups, in a search, while moves are measured, between two looks."""
    target, plan = trj.problems.sinh_arcsinh(), Plan(particles=400, moves=2, climbs=500, chains=64)
    looks, ticks = [], [0.0]

    def ticking():
        ticks[0] += 1.0
        return ticks[0]

    with clock.read_from(ticking):
        whole = run(target, plan=plan, deadline=1e9, said=looks.append)
        all_ticks, lengths = ticks[0], set()
        for share in (0.0, 0.5, 0.98):
            ticks[0] = 0.0
            early = run(target, plan=plan, deadline=share * all_ticks)
            n = early.draws.n_draws
            lengths.add(n)
            assert n < whole.draws.n_draws
            assert bool((early.error > 0).all()) and bool(early.p.isfinite().all())
            assert float(((early.p - truth_of(target)).abs() / early.error).max()) < 2 * FAR
    assert same(whole, looks[-1]) and 1 in lengths
    first = whole.steps // 4  # of the record that is kept
    theirs = early.draws.theta[:, first - early.steps // 4 :]
    assert torch.equal(theirs, whole.draws.theta[:, : early.steps - first])
    assert early.steps > first


# ---- the rule -----------------------------------------------------------------------------------


def autoregressive(rng, chains, draws, tau, shift=None):
    """Stationary chains of autocorrelation time tau, (chain, draw, 1)."""
    rho = (tau - 1) / (tau + 1)
    x = rng.normal(size=(chains, draws))
    for i in range(1, draws):
        x[:, i] = rho * x[:, i - 1] + math.sqrt(1 - rho**2) * x[:, i]
    return x[..., None]


def test_tau_by_spread(rng):
    for tau in (1.0, 5.0, 20.0):
        found = ChainSums.of(autoregressive(rng, 512, 400, tau)).times[0]
        assert found == pytest.approx(tau, rel=0.3)


def test_level_and_power_of_the_tests(rng):
    """Of 2000 stationary sets at most 2 % warn; a wrong group of eight or a drift always does."""
    level, warned = 0.005, 0
    for _ in range(20):
        sets = autoregressive(rng, 6400, 60, 3.0).reshape(100, 64, 60, 1)
        for fair in sets:
            found = mixing(fair, 8)
            warned += min(found.trend, found.alike) <= level
    assert warned <= 40  # 20 expected, Poisson: 2e-5
    for _ in range(20):
        x = autoregressive(rng, 64, 60, 3.0)
        wrong, drifting = x.copy(), x.copy()
        wrong[::8] += 1.5
        drifting += np.linspace(0, 1, 60)[None, :, None]
        assert mixing(wrong, 8).alike <= level and mixing(drifting, 8).trend <= level


def test_one_group_of_sixteen_in_a_wrong_mode_is_seen(rng):
    """A mode that holds three tenths, that all chains of one group are in and never leave."""
    seen = 0
    for _ in range(300):
        normal = autoregressive(rng, 256, 60, 3.0)
        inside = (normal < -0.524).astype(float)
        inside[::16] = 1.0
        seen += mixing(inside, 16, indicators=1).alike <= 0.005
    assert seen >= 297


def test_tau_that_grows_with_the_record(rng):
    """Chains that never leave where they are: their tau is as long as the record."""
    stuck = np.repeat(rng.integers(0, 2, size=(64, 1, 1)), 80, 1).astype(float)
    stuck = np.abs(stuck - (rng.random((64, 80, 1)) < 0.01))
    assert mixing(stuck, 8, indicators=1).grown > 1.6
    fair = (rng.random((64, 80, 1)) < 0.5).astype(float)
    assert mixing(fair, 8, indicators=1).grown < 1.6


def test_rare_quantities_are_not_judged():
    assert mixing(np.zeros((16, 10, 2)), 8) == (1.0,) * 5


def test_routes_are_combined_where_they_agree():
    p, error = torch.tensor([0.3, 0.7]).double(), torch.tensor([0.01, 0.01]).double()
    near = Route(torch.tensor([0.31, 0.69]).double(), error / 10, p.log(), error)
    assert apart(p, error, near) < 1
    best, its_error = combined(p, error, near)
    assert torch.allclose(best, near.p, atol=2e-4) and bool((its_error < error / 9).all())
    zero = near._replace(error=0 * error)
    assert torch.equal(combined(p, 0 * error, zero)[0].isfinite(), torch.ones(2).bool())
    assert apart(p, error, near._replace(p=torch.tensor([0.5, 0.5]).double())) > 10


@pytest.mark.parametrize(
    "gap", [0.2, *(pytest.param(x, marks=pytest.mark.whole) for x in (0.0, math.nan))]
)
def test_a_run_is_not_done_where_a_second_route_says_something_else(gap, monkeypatch):
    weigh = Lists.weigh

    def wrong(self, known, moves):
        route = weigh(self, known, moves)
        error = torch.full_like(route.error, math.inf if math.isnan(gap) else 0.003)
        return route._replace(p=route.p if math.isnan(gap) else route.p + gap, error=error)

    monkeypatch.setattr(Lists, "weigh", wrong)
    plan = Plan(particles=400, moves=2, climbs=200, most=100)
    found = run(trj.problems.sinh_arcsinh(), plan=plan)
    assert found.done == (found.doubt == "") == (gap != 0.2)
    assert torch.equal(found.p, found.visits) == (gap != 0.0)


# ---- beginnings ---------------------------------------------------------------------------------


def test_groups_share_nothing():
    """Chains of a group descend from chains of that group alone."""
    recipe = recipe_of(
        trj.problems.variable_selection(10), Plan(), torch.Generator().manual_seed(0)
    )
    assert isinstance(recipe, CooledRecipe)
    weights = torch.rand(64, 8, dtype=torch.float64, generator=recipe.generator)
    rows = recipe._resampled(weights / weights.sum(0))
    assert torch.equal(rows % 8, torch.arange(512) % 8)
    counts = torch.bincount(rows, minlength=512).view(64, 8)
    assert bool(((counts - 64 * weights / weights.sum(0)).abs() <= 1).all())


def test_evidence_by_groups():
    target = trj.problems.variable_selection(10)
    known, _ = recipe_of(target, Plan(), torch.Generator().manual_seed(3)).begin()
    labels, exact = zip(*target.truth.log_evidence.items(), strict=True)
    prior = target.space.log_prior(torch.stack([target.space.code_of(m) for m in labels]))
    total = (torch.tensor(exact).double() + prior.double()).logsumexp(0)
    error = known.log_evidence.std() / 8**0.5
    assert abs(float(known.log_evidence.logsumexp(0) - math.log(8) - total)) < FAR * float(error)


def test_graphs_are_drawn_and_orders_of_them_are_walked(rng):
    for nodes in (3, 5):
        graph = trj.graphs.target(trj.graphs.bge(rng.normal(size=(30, nodes))))
        assert recipe_of(graph, Plan(), torch.Generator()).exact
        assert (
            type(recipe_of(trj.graphs.ordered(graph), Plan(), torch.Generator())) is SubsetsRecipe
        )


def test_few_chains_do_not_look_as_if_they_drifted():
    """Sixteen chains of independent draws: a normal in place of t: 17 % at level .05."""
    rng = np.random.default_rng(0)
    p = [mixing(rng.normal(size=(16, 60, 20)), 8).trend for _ in range(400)]
    assert np.mean(np.array(p) < 0.05) < 0.1


def test_a_list_without_parameters_can_lose_no_mode():
    models = [trj.Model(n, {}, lambda p, x=x: torch.tensor(x)) for n, x in (("a", 0.0), ("b", 1.0))]
    until = {"probability": 0.01, "detection": 1e-4}
    result = trj.TRJSampler(trj.Target(models), seed=1).run(until=until, progress=False)
    assert result.report.judged.detection == 0 and not result.report.missed
    assert not result.model_probabilities()["note"].any()
