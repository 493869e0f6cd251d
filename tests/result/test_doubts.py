"""What a run knows against its own answer, in its numbers and aloud."""

import math
import warnings

import arviz
import numpy as np
import pytest
import torch
from torch.distributions import Normal

import trjmcmc as trj
from tests import toys
from tests.result.said import said_by
from trjmcmc.doubts.doubt import EVERY
from trjmcmc.doubts.of_chains import Judged
from trjmcmc.draws import Draws
from trjmcmc.errors import ConvergenceWarning, CoverageWarning, LimitWarning
from trjmcmc.estimate import Estimate, mean_error, visit_probability
from trjmcmc.estimate.convergence import (
    nested_rhats,
    normal_scores,
    rank_rhats,
    split_rhats,
    start_error,
)
from trjmcmc.fit import Pool
from trjmcmc.pilot.audit import Audit
from trjmcmc.pilot.report import AuditReport, ModelAudit, by_audit
from trjmcmc.pilot.screening import search_modes
from trjmcmc.result.evidences import NOTHING
from trjmcmc.result.report import RunReport
from trjmcmc.result.result import Result
from trjmcmc.transport.normals import gaussian_mixture

pytestmark = pytest.mark.planned


def chains_of(x, code=None, log_joint=None):
    """A run of one model, or of a list of three, whose coordinates are x, (chain, draw, D)."""
    x = torch.as_tensor(x, dtype=torch.float32)
    three = toys.gaussians()
    target = trj.Target([trj.Model("only", {"x": Normal(torch.zeros(x.shape[2]), 1.0)}, nothing)])
    space = target.space if code is None else three.space
    code = torch.zeros(*x.shape[:2], 1, dtype=torch.long) if code is None else code
    if space.n_slots > x.shape[2]:
        x = torch.cat([x, torch.zeros(*x.shape[:2], space.n_slots - x.shape[2])], 2)
    height = torch.randn(x.shape[:2]) if log_joint is None else torch.as_tensor(log_joint)
    draws = Draws(code, x, height)
    return Result(
        space, draws, {}, {}, RunReport(), slot_names=[f"u{i}" for i in range(x.shape[2])]
    )


def halves_apart(model):
    """An audit whose halves contradict each other on a model."""
    facts = {"std_error": 0.1, "gap": 5.0, "map_log_evidence": 0.0, "map_std_error": 0.1}
    audit = ModelAudit(model, 0.0, **facts, covered=1.0, lost=0.0, modes=1, matters=True)
    return AuditReport((audit,))


def nothing(p):
    return 0.0 * p["x"].sum(-1)


@pytest.fixture
def rng():
    return np.random.default_rng(3)


@pytest.fixture(autouse=True)
def own_seed():
    with torch.random.fork_rng():
        torch.manual_seed(5)
        yield


# ---- R-hat ----------------------------------------------------------------------------------


def test_rhats_are_those_of_arviz(rng):
    x = rng.normal(size=(12, 101, 2)).cumsum(1)
    everywhere = np.ones(x.shape[:2], dtype=bool)
    for i in range(2):
        plain, rank = (float(arviz.rhat(x[:, :, i], method=m)) for m in ("split", "rank"))
        assert split_rhats(x)[i] == pytest.approx(plain, rel=1e-9)
        assert rank_rhats(x, everywhere)[i] == pytest.approx(rank, rel=5e-3)  # halves of 50


def test_rhats_of_chains_that_are_taken_in_parts(rng, monkeypatch):
    x = rng.normal(size=(13, 40, 2)).cumsum(1)
    inside = rng.random((13, 40, 1)) < 0.3
    whole = split_rhats(x), split_rhats(inside)
    monkeypatch.setattr("trjmcmc.estimate.convergence.AT_ONCE", 3 * 20 * 2)
    assert np.array_equal(whole[0], split_rhats(x)) and np.array_equal(
        whole[1], split_rhats(inside)
    )
    assert np.allclose(whole[1], split_rhats(inside.astype(float)))
    assert not np.array_equal(whole[0], split_rhats(x[:12]))  # the control


def test_rank_rhats_see_what_means_do_not(rng):
    """Chains of one mean and different spreads; chains without a mean."""
    x = rng.normal(size=(64, 200, 2)) * np.where(np.arange(64) % 2, 1.0, 4.0)[:, None, None]
    x[..., 1] = rng.standard_cauchy((64, 200)) + 3 * (np.arange(64) % 2)[:, None]
    assert (split_rhats(x) < 1.02).all()
    assert (rank_rhats(x, np.ones((64, 200), bool)) > 1.1).all()


def test_nested_rhat_is_its_definition_and_sees_groups(rng):
    """A group that stays in another place shows in group means, not in those of single chains."""
    x, group = rng.normal(size=(48, 4, 2)), np.arange(48) % 8
    x[group == 3, :, 1] += 1.5
    everywhere = np.ones((48, 4), bool)
    found = nested_rhats(x, everywhere, group)
    scores = normal_scores(x, everywhere)
    for q in range(2):
        by_group = [scores[group == k, :, q] for k in range(8)]
        between = np.var([g.mean() for g in by_group], ddof=1)
        within = np.mean([g.mean(1).var(ddof=1) + g.var(1, ddof=1).mean() for g in by_group])
        assert found[q] == pytest.approx((1 + between / within) ** 0.5)
    assert found[0] < 1.04 < 1.08 < found[1]
    assert np.isnan(nested_rhats(x, everywhere, np.zeros(48, int))).all()
    few, alone = everywhere[:12], np.arange(12) % 8  # four groups of one chain
    scores = normal_scores(x[:12], few)
    groups = [scores[alone == k, :, 0] for k in range(8)]
    spread = [g.mean(1).var(ddof=1) if len(g) > 1 else 0.0 for g in groups]
    within = np.mean(spread) + np.mean([g.var(1, ddof=1).mean() for g in groups])
    between = np.var([g.mean() for g in groups], ddof=1)
    assert nested_rhats(x[:12], few, alone)[0] == pytest.approx((1 + between / within) ** 0.5)
    assert np.isnan(nested_rhats(x, ~everywhere, group)).all()


def test_what_comes_and_goes_counts_as_zero_elsewhere(rng):
    """Chains that forget while they are elsewhere have converged; those that return have not."""
    inside = rng.random((64, 400)) < 0.5
    fresh = rng.normal(size=(64, 400, 1))
    assert rank_rhats(fresh, inside) < 1.02
    assert rank_rhats(fresh + 2 * (np.arange(64) % 2)[:, None, None], inside) > 1.1
    assert (normal_scores(fresh, inside)[~inside] == 0).all()
    assert math.isnan(rank_rhats(np.ones((4, 20, 1)), np.ones((4, 20), bool))[0])
    assert math.isnan(rank_rhats(fresh, np.zeros_like(inside))[0])
    assert math.isinf(split_rhats(np.arange(4.0)[:, None, None].repeat(20, 1))[0])
    stuck = rng.normal(size=(64, 1, 1)).repeat(99, 1)
    assert stuck.var(1).max() > 0 and math.isinf(split_rhats(stuck)[0])  # in spite of rounding
    assert math.isnan(split_rhats(np.zeros((4, 3, 1)))[0])  # too few draws


def test_errors_cover_starts_that_are_not_forgotten(rng):
    """All chains start on one side of a fair coin that is flipped now and then."""
    flips = (rng.random((256, 200)) < 0.02).cumsum(1) % 2 == 1
    e = visit_probability(flips, 1000.0)
    gap = abs(e.value - 0.5)
    naive, _ = mean_error(flips.astype(float))
    assert gap > 1.5 * naive  # the control
    assert e.warning and (math.isnan(e.std_error) or gap < 2 * e.std_error)
    assert (
        math.isnan(e.ess) or e.ess < 0.25 / naive**2
    )  # nor are draws counted that are not worth it


# ---- ancestors ------------------------------------------------------------------------------


def test_tempering_knows_ancestors(generator):
    """Where one narrow mode takes all, most particles descend from few prior draws."""
    target = trj.Target(
        [
            trj.Model("wide", {"x": Normal(0.0, 1.0)}, lambda p: 0.0 * p["x"]),
            trj.Model(
                "narrow",
                {"x": Normal(0.0, 100.0)},
                lambda p: Normal(0.0, 1e-3).log_prob(p["x"] - 50.0),
            ),
        ]
    )
    audit = Audit(target, target.space.enumerate(), particles=50, moves=5, generator=generator)
    audit.grow(0)
    wide, narrow = audit.ancestors.tolist()
    assert wide > 5 * narrow
    model = torch.zeros(4000, dtype=torch.long)
    _, _, origin = audit.draw(model)
    share = origin.unique(return_counts=True)[1].double() / 4000
    assert float(1 / share.square().sum()) == pytest.approx(wide, rel=0.2)


# ---- what is said, and what numbers carry ---------------------------------------------------


def test_two_modes_that_chains_never_cross_have_no_errors(rng):
    """A single model: half of the chains in each of two modes."""
    x = rng.normal(size=(64, 200, 2))
    x[::2, :, 1] += 10
    result = chains_of(x)
    assert "R-hat" in said_by(result)[ConvergenceWarning]
    table = result.convergence()
    assert table.loc[("only", "u1"), "rhat"] > 1.5 > 1.02 > table.loc[("only", "u0"), "rhat"]
    assert table.loc[("only", "u1"), "ess_bulk"] < 200 < table.loc[("only", "u0"), "ess_bulk"]
    assert math.isnan(result._doubted.widened(0.01, x[..., 1])[0])
    assert not said_by(chains_of(rng.normal(size=(64, 200, 2))))


def test_routes_of_chains_carry_their_doubts(rng):
    """A precise bridge of chains that have not mixed does not beat a vague audit."""
    generator = torch.Generator().manual_seed(0)
    code = torch.randint(0, 3, (64, 200, 1), generator=generator)
    x = rng.normal(size=(64, 200, 1)) + 6.0 * (np.arange(64) % 2)[:, None, None]
    plain = chains_of(x, code)
    labels = plain.space.label(plain.space.enumerate())
    bridge = dict.fromkeys(labels, Estimate(-5.0, 0.001))
    audit = {m: Estimate(v, 0.3) for m, v in zip(labels, (0.0, -1.0, -9.0), strict=True)}
    poor = dict.fromkeys(labels, DOUBTFUL)
    routes = {"bridge": bridge, "audit": audit, "importance": poor}
    result = Result(plain.space, plain.raw, {}, routes, RunReport())
    assert "R-hat" in result.evidences.routes["bridge"][labels[1]].warning
    assert not result.evidences.routes["audit"][labels[1]].warning
    table = result.model_probabilities(full=True)
    assert table["combined"].sum() == pytest.approx(1)
    assert (
        abs(table["combined"].iloc[0] - 1 / (1 + math.exp(-1))) < 3 * table["combined_se"].iloc[0]
    )
    assert (table["visits_se"] > 0.03).all()  # .003 if they had mixed


def test_routes_of_one_set_of_draws_agree_with_nobody():
    generator = torch.Generator().manual_seed(0)
    code = torch.randint(0, 3, (64, 200, 1), generator=generator)
    plain = chains_of(np.random.default_rng(0).normal(size=(64, 200, 1)), code)
    labels = plain.space.label(plain.space.enumerate())
    same = dict.fromkeys(labels, Estimate(-1.0, 0.05))
    for routes, verdict in (
        ({"bridge": same, "warp": same}, "unchecked"),
        ({"bridge": same, "importance": same}, "agree"),  # importance and visits
        ({"bridge": same, "audit": same}, "agree"),
    ):
        routes["importance"] = routes.get("importance", dict.fromkeys(labels, DOUBTFUL))
        result = Result(plain.space, plain.raw, {}, routes, RunReport())
        assert set(result.evidence(full=True)["verdict"]) == {verdict}


DOUBTFUL = Estimate(-1.0, 0.05, 10.0, "importance ESS 1%")


def test_errors_of_routes_that_clash_reach_each_other():
    generator = torch.Generator().manual_seed(0)
    code = torch.randint(0, 3, (64, 400, 1), generator=generator)
    plain = chains_of(np.random.default_rng(0).normal(size=(64, 400, 1)), code)
    labels = plain.space.label(plain.space.enumerate())
    values = zip(labels, (-3.0, 0.0, 0.0), strict=True)  # visits say one third each
    routes = {"importance": {m: Estimate(v, 0.01) for m, v in values}}
    result = Result(plain.space, plain.raw, {}, routes, RunReport())
    assert result.evidences.clashes
    row = result.model_probabilities(full=True).loc[labels[0]]
    for route in ("visits", "importance"):
        assert abs(row["combined"] - row[route]) <= 1.001 * row["combined_se"]
    said = said_by(result)[trj.errors.DisagreementWarning]
    assert "trust" not in said


def test_a_guessed_evidence_leaves_no_certainty():
    """Weights of which one draw has all say nothing of any model, not even that it is certain."""
    generator = torch.Generator().manual_seed(0)
    code = torch.randint(0, 3, (64, 400, 1), generator=generator)
    plain = chains_of(np.random.default_rng(0).normal(size=(64, 400, 1)), code)
    labels = plain.space.label(plain.space.enumerate())
    guess = Estimate(-40.0, 0.9, 1.2, "importance ESS 0.0%")
    found = dict(zip(labels, (guess, Estimate(0.0, 0.01), Estimate(-0.1, 0.01)), strict=True))
    result = Result(plain.space, plain.raw, {}, {"importance": found}, RunReport())
    assert result.model_probabilities(full=True)["importance_se"].isna().all()
    code[code == 0] = 1  # chains know that the first is rare: the others' stand
    rare = torch.rand(code.shape, generator=generator) < 0.004
    draws = chains_of(np.zeros((64, 400, 1)), torch.where(rare, 0, code)).raw
    result = Result(plain.space, draws, {}, {"importance": found}, RunReport())
    assert result.model_probabilities(full=True)["importance_se"].isna().tolist() == [
        True,
        False,
        False,
    ]


@pytest.mark.parametrize("flag", ["", "importance ESS 1.1%"])
def test_no_flagged_share_is_a_certainty(flag, rng):
    """Hundreds of nats apart, the winner never left: certain only by evidences that are sound."""
    plain = chains_of(rng.normal(size=(64, 200, 1)), torch.zeros(64, 200, 1, dtype=torch.long))
    first, *others = plain.space.label(plain.space.enumerate())
    found = {first: Estimate(0.0, 0.03, 700.0, flag)}
    found |= dict.fromkeys(others, Estimate(-900.0, 0.01))
    result = Result(plain.space, plain.raw, {}, {"importance": found}, RunReport())
    table = result.model_probabilities(full=True)
    for route in ("combined", "importance"):
        assert table.loc[first, route] == 1
        assert table[f"{route}_se"].isna().any() == bool(flag)
    assert table.loc[first, "note"] != ""


def test_jumps_of_chains_that_have_not_mixed_are_flagged(rng):
    """Acceptance probabilities are averaged over where the chains are."""
    generator = torch.Generator().manual_seed(0)
    code = torch.randint(0, 3, (64, 200, 1), generator=generator)
    accepted = 40 + torch.rand(32, 3, 3, generator=generator)  # (batch, from, to)
    crossings = accepted, torch.full((32, 3), 4000.0)
    notes = {}
    for gap in (0.0, 6.0):
        x = rng.normal(size=(64, 200, 1)) + gap * (np.arange(64) % 2)[:, None, None]
        plain = chains_of(x, code)
        result = Result(plain.space, plain.raw, {}, {}, RunReport(), crossings=crossings)
        notes[gap] = result.bayes_factor(*result.chains.models[:2], route="bartolucci").warning
    assert notes[0.0] == "" and "R-hat" in notes[6.0]


def test_a_model_that_nothing_tells_of_is_named(rng):
    """A list whose third model no chain has been in, without an evidence."""
    code = torch.randint(0, 2, (64, 200, 1), generator=torch.Generator().manual_seed(0))
    result = chains_of(rng.normal(size=(64, 200, 1)), code)
    third = result.space.label(result.space.enumerate())[2]
    assert f"no estimate of the probability of {third!r}" in said_by(result)[ConvergenceWarning]
    assert result.model_probabilities(full=True)["visits_se"].isna().all()


@pytest.mark.parametrize("chance", [0.0, 1e-9])
def test_a_model_that_no_jump_was_proposed_to_is_told(chance, rng):
    code = torch.randint(0, 2, (64, 200, 1), generator=torch.Generator().manual_seed(0))
    plain = chains_of(rng.normal(size=(64, 200, 1)), code)
    accepted = torch.full((32, 3, 3), 40.0)
    accepted[..., 2] = chance
    crossings = accepted, torch.tensor([200.0, 200.0, 0.0]).expand(32, 3)
    result = Result(plain.space, plain.raw, {}, {}, RunReport(), crossings=crossings)
    notes = result.model_probabilities()["note"].tolist()
    assert "never visited" in notes[2] and ("no jump to it" in notes[2]) == (chance == 0)
    assert not any("no jump" in note for note in notes[:2])


@pytest.mark.parametrize(
    ("log_evidence", "told"),
    [(-7.0, True), (40.0, False)],
)
def test_a_few_draws_tell_where_no_route_says_far_more(log_evidence, told, rng):
    code = torch.randint(0, 2, (64, 200, 1), generator=torch.Generator().manual_seed(0))
    code[3:8, 7] = 2
    plain = chains_of(rng.normal(size=(64, 200, 1)), code)
    one, two, rare = plain.space.label(plain.space.enumerate())[:3]
    sound, poor = Estimate(-0.7, 0.02), Estimate(log_evidence, 0.1, 1, "Pareto k 0.8")
    report = RunReport(judged=Judged("", 0.0, 2.0, 1e-3))
    routes = {"importance": {one: sound, two: sound, rare: poor}}
    result = Result(plain.space, plain.raw, {}, routes, report)
    error = result.model_probabilities(full=True)["visits_se"]
    assert bool(error[[one, two]].notna().all()) == told
    assert not told or 1e-4 < error[rare] < 1e-2


def test_a_pilot_run_of_few_ancestors_that_nothing_checks_leaves_no_error(rng):
    result = chains_of(rng.normal(size=(64, 200, 1)))
    facts = {"std_error": 0.02, "gap": 0.05, "map_log_evidence": 0.0, "map_std_error": 0.01}
    model = ModelAudit(
        "only", 0.0, **facts, covered=1.0, lost=0.0, modes=1, matters=True, ancestors=5.0
    )
    result.report.audit = AuditReport((model,))
    assert "rests on 5.0 prior draws" in said_by(result)[ConvergenceWarning]


def test_a_pilot_run_that_knows_less_than_the_map_has_an_error_that_reaches_it():
    space = toys.gaussians().space
    for found, error in ((0.7, 0.7), (-0.7, 0.05)):  # what importance sampling finds is there
        facts = {"std_error": 0.05, "gap": 0.01, "map_log_evidence": found, "map_std_error": 0.02}
        rest = {"covered": 1.0, "lost": 0.0, "modes": 1, "matters": True}
        estimate = by_audit(space, AuditReport((ModelAudit("one", 0.0, **facts, **rest),)))["one"]
        assert estimate.std_error == pytest.approx(error, rel=0.01)
        assert bool(estimate.warning) == (found > 0)


@pytest.mark.parametrize("heavy", [False, True])
def test_means_of_heavy_tails_have_no_error(heavy, rng):
    x = rng.standard_cauchy((64, 300)) if heavy else rng.standard_t(8, (64, 300))
    result = chains_of(rng.normal(size=(64, 300, 1)))
    error, note = result._doubted.widened(0.01, x)
    assert math.isnan(error) == heavy and ("Pareto" in note) == heavy


def test_shares_stand_on_the_level_of_what_is_known():
    """The evidence of one of three models is not known: visits of the others stand on theirs."""
    generator = torch.Generator().manual_seed(0)
    code = torch.randint(0, 3, (64, 400, 1), generator=generator)
    plain = chains_of(np.random.default_rng(0).normal(size=(64, 400, 1)), code)
    labels = plain.space.label(plain.space.enumerate())
    known = dict(zip(labels, (Estimate(-2.0, 0.01), Estimate(-2.0, 0.01), NOTHING), strict=True))
    table = Result(plain.space, plain.raw, {}, {"importance": known}, RunReport()).evidence(
        full=True
    )
    log_prior = plain.space.log_prior(plain.space.enumerate()).numpy()
    assert table["visits"].to_numpy() + log_prior == pytest.approx(-2.0, abs=0.05)


def test_a_pilot_run_that_contradicts_itself_is_said_aloud(rng):
    def audit(gap, covered=1.0):
        one = ModelAudit("only", 0.0, 0.1, gap, 0.0, 0.1, covered, 0.0, 1, True)
        return AuditReport((one,))

    draws = rng.normal(size=(64, 200, 1))

    def said(audit):
        result = chains_of(draws)
        result.report.audit = audit
        return said_by(result)

    assert "run differ by 5.0 nats" in said(audit(5.0))[CoverageWarning]
    assert not said(audit(0.5))
    assert "misses a part" in said(audit(0.5, covered=0.5))[CoverageWarning]


def test_counts_at_their_limit_are_not_blamed_on_the_limit_where_chains_do_not_mix(rng):
    target = trj.Target(
        trj.Counts(3, of="w"), {"w": Normal(0.0, 1.0)}, lambda p, active: 0.0 * p["w"].sum(-1)
    )
    k = 2 + (np.arange(64) % 2)
    code = torch.as_tensor(np.broadcast_to(k[:, None, None], (64, 200, 1)).copy())
    theta = torch.randn(64, 200, 3)
    draws = Draws(code, theta, torch.randn(64, 200))
    said = said_by(Result(target.space, draws, {}, {}, RunReport(), slot_names=target.slot_names))
    assert LimitWarning not in said and "R-hat" in said[ConvergenceWarning]


def test_inclusion_probabilities_say_what_chains_remember(rng):
    space = trj.Subsets(["a", "b"], of="w").bind(torch.tensor([0, 1]))
    code = torch.as_tensor((rng.random((64, 200, 2)) < 0.5).astype(np.int64))
    code[:, :, 1] = (torch.arange(64) % 2)[:, None]
    draws = Draws(code, torch.randn(64, 200, 2), torch.randn(64, 200))
    result = Result(space, draws, {}, {}, RunReport())
    table = result.inclusion_probabilities(full=True)
    assert table.loc["b", "note"] == "never entered" and math.isnan(table.loc["b", "se"])
    assert "R-hat inf" in said_by(result)[ConvergenceWarning]
    quantities = set(result.convergence().loc[EVERY].index)
    assert {"log joint", "includes a", "includes b"} <= quantities


@pytest.mark.whole
def test_what_was_weighed_makes_inclusion_probabilities_more_precise(rng):
    """Whether few of the models that were not weighed have an item, or almost all."""
    space = trj.Subsets(["rare", "even", "common"], of="w").bind(torch.tensor([0, 1, 2]))
    chance, noise = np.array([0.03, 0.5, 0.97]), 0.01
    weighed = torch.tensor([[0, 0, 1], [0, 1, 1], [1, 1, 1], [0, 1, 0]])
    mass = np.where(weighed.numpy() == 1, chance, 1 - chance).prod(1)
    scores, ratios = [], []
    for _ in range(40):
        code = torch.as_tensor(rng.random((32, 200, 3)) < chance).long()
        log_mass = np.log(mass) + noise * rng.normal(size=4)
        routes = {
            label: Estimate(float(x), noise)
            for label, x in zip(space.label(weighed), log_mass, strict=True)
        }
        draws = Draws(code, torch.randn(32, 200, 3), torch.randn(32, 200))
        table = Result(space, draws, {}, {"importance": routes}, RunReport())
        table = table.inclusion_probabilities(full=True)
        ratios.append(table["combined_se"] / table["se"])
        scores.append((table["combined"] - chance) / table["combined_se"])
    spread = np.sqrt(np.square(scores).mean(0))
    assert (spread > 0.5).all() and (spread < 1.5).all()  # standard error .11
    assert (np.mean(ratios, 0) < 0.97).all()  # each is an estimate


@pytest.mark.parametrize("slow", ["nothing", "log joint", "models", "w"])
def test_what_chains_never_met_counts_the_draws_that_have_forgotten(slow, rng):
    """Its bound is that of draws which are worth as much as R-hat leaves of all."""
    space = trj.Subsets(["a", "b"], of="w").bind(torch.tensor([0, 1]))
    often = rng.uniform(0.1, 0.9, (64, 1)) if slow == "models" else 0.5
    code = torch.zeros(64, 200, 2, dtype=torch.long)
    code[:, :, 0] = torch.as_tensor(rng.random((64, 200)) < often)
    height = torch.randn(64, 200) + (0.55 * torch.randn(64, 1) if slow == "log joint" else 0.0)
    theta = torch.randn(64, 200, 2) + (1.2 * torch.randn(64, 1, 1) if slow == "w" else 0.0)
    result = Result(space, Draws(code, theta, height), {}, {}, RunReport(), slot_names=["w", "v"])
    rhat = result.convergence()["rhat"].max()
    model = (
        result.model_probabilities(full=True)
        .loc["b"]
        .rename({"visits_se": "se", "visits_ess": "ess"})
    )
    for row in (model, result.inclusion_probabilities(full=True).loc["b"]):
        assert row["note"] == "never visited"
        assert row["se"] == pytest.approx(3 / row["ess"])
        if slow == "nothing":
            assert rhat < 1.05 and row["ess"] > 1000
        else:
            assert 1.1 < rhat < 1.2 and row["ess"] < 60


def test_start_error_is_the_bias_of_a_start(rng):
    """Autoregressive chains that start one standard deviation off."""
    rho, n = 0.9, 200
    x = np.ones((4000, n))
    for i in range(1, n):
        x[:, i] = rho * x[:, i - 1] + math.sqrt(1 - rho**2) * rng.normal(size=4000)
    rhat = float(split_rhats(x[..., None])[0])
    assert 0.02 < x.mean() < start_error(rhat)


# ---- searches ---------------------------------------------------------------------------------


def two_in_four_dimensions():
    def log_likelihood(p):
        near = math.log(0.7) + Normal(3.0, 0.3).log_prob(p["x"]).sum(-1)
        far = math.log(0.3) + Normal(0.0, 1.0).log_prob(p["x"]).sum(-1)
        return torch.logaddexp(near, far) - Normal(0.0, 3.0).log_prob(p["x"]).sum(-1)

    return trj.Target([trj.Model("two", {"x": Normal(torch.zeros(4), 3.0)}, log_likelihood)])


@pytest.mark.parametrize(("centres", "lost"), [([0.0], True), ([0.0, 3.0], False)])
def test_prior_draws_climb_to_what_maps_have_lost(centres, lost, generator):
    target = two_in_four_dimensions()
    code = target.space.enumerate()[0]
    theta = torch.cat([c + torch.randn(2000, 4, generator=generator) for c in centres])
    pool = Pool(code.expand(len(theta), -1), theta, torch.zeros(len(theta)))
    flow = gaussian_mixture(target.space, pool, generator)
    known = math.log(0.3) if lost else 0.0
    found = search_modes(target, code, known, flow, theta[:0], 20_000, generator)
    assert bool(found) is lost
    if lost:
        mass = sum(math.exp(part.log_mass) for part in found)
        assert mass == pytest.approx(0.7, rel=0.2)
        seen = torch.cat([theta, 3.0 + 0.3 * torch.randn(2000, 4, generator=generator)])
        # chains have been there, whatever the maps
        assert not search_modes(target, code, known, flow, seen, 20_000, generator)


# ---- whole runs -----------------------------------------------------------------------------


@pytest.mark.whole
def test_aliases_of_a_sinusoid_are_weighed_right_or_leave_no_error():
    """Sixty nightly points: tempering ends with one ancestor in one of many aliases."""
    g = torch.Generator().manual_seed(3)
    t = torch.sort(torch.randint(0, 1500, (60,), generator=g)).values + 0.02 * torch.randn(
        60, generator=g
    )
    y = 0.5 * torch.sin(2 * math.pi * 0.317 * t + 1.0) + 0.2 * torch.randn(60, generator=g)
    uniform = torch.distributions.Uniform

    def sinusoid(p):
        wave = torch.sin(2 * math.pi * p["f"][:, None] * t + p["phase"][:, None])
        return Normal(p["a"][:, None] * wave, 0.2).log_prob(y).sum(-1)

    models = [
        trj.Model("nothing", {}, lambda p: Normal(0.0, 0.2).log_prob(y).sum()),
        trj.Model(
            "sinusoid",
            {"a": uniform(0.0, 1.0), "f": uniform(0.0, 1.0), "phase": uniform(0.0, 2 * math.pi)},
            sinusoid,
        ),
    ]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        result = trj.TRJSampler(trj.Target(models), seed=1).run(draws=200, progress=False)
    found, exact = (
        result.evidence(full=True).loc["sinusoid"],
        -6.362,
    )  # by a grid of 3e5 x 400 x 200
    if math.isfinite(found["combined_se"]):
        assert abs(found["combined"] - exact) < 4 * found["combined_se"] < 0.5
    else:
        assert any(w.category in (ConvergenceWarning, CoverageWarning) for w in said)
        assert result.summary()["mcse"].isna().any()


@pytest.mark.whole
def test_convergence_is_known_of_every_kind_of_space():
    for target in (toys.gaussians(), trj.problems.variable_selection(4)):
        sampler = trj.TRJSampler(target, seed=1)
        result = sampler.run(draws=100, progress=False)
        table = result.convergence()
        columns = ["rhat", "nested_rhat", "ess_bulk", "ess_tail", "share"]
        assert list(table.columns) == columns
        assert table["nested_rhat"].min() >= 1 and table["nested_rhat"].max() < 1.2
        assert ("(all models)", "log joint") in table.index
        assert table["rhat"].max() < 1.2 and (table["ess_bulk"].dropna() > 50).all()


# ---- doubts side by side --------------------------------------------------------------------


def test_a_mild_doubt_hides_no_grave_one(rng):
    """A drift, which is mild, beside a pilot run that contradicts itself, which is not."""
    x = rng.normal(size=(64, 200, 1))
    mild, grave = chains_of(x), chains_of(x)
    for result in (mild, grave):
        result.report.judged = Judged("chains drift", 0.2, 5.0, 1e-3)
    assert math.isfinite(mild._doubted.widened(0.01, rng.normal(size=(64, 200)))[0]) and mild.doubts
    grave.report.audit = halves_apart("only")
    assert [d.kind for d in grave.doubts] == ["chains", "halves"]
    assert math.isnan(grave._doubted.widened(0.01, rng.normal(size=(64, 200)))[0])
    said = said_by(grave)
    assert (
        "halves of the pilot run differ" in said[CoverageWarning]
        and "chains drift" in said[ConvergenceWarning]
    )


def test_a_bayes_factor_that_nothing_tells_is_no_certainty(rng):
    code = torch.randint(0, 3, (64, 200, 1), generator=torch.Generator().manual_seed(0))
    x = rng.normal(size=(64, 200, 1))
    plain = chains_of(x, code)
    labels = plain.space.label(plain.space.enumerate())
    routes = {"importance": dict.fromkeys(labels, Estimate(-1.0, 0.01))}
    result = Result(plain.space, plain.raw, {}, routes, RunReport(audit=halves_apart(labels[0])))
    for log in (True, False):
        e = result.bayes_factor(labels[0], labels[1], log=log)
        assert math.isfinite(e.value) and math.isnan(e.std_error) and "halves" in e.warning


def test_doubts_about_one_model_leave_the_means_of_others(rng):
    code = torch.randint(0, 2, (64, 400, 1), generator=torch.Generator().manual_seed(0))
    x = rng.normal(size=(64, 400, 1))
    plain = chains_of(x, code)
    labels = plain.space.label(plain.space.enumerate())
    routes = {"importance": dict.fromkeys(labels, Estimate(-1.0, 0.01))}
    result = Result(plain.space, plain.raw, {}, routes, RunReport(audit=halves_apart(labels[1])))
    (doubt,) = result.doubts
    assert doubt.subject == labels[1]
    for label, told in ((labels[0], True), (labels[1], False)):
        inside = result.chains.inside(label)
        error, _, note = result._doubted.error_where(x[..., 0][inside], inside)
        assert math.isfinite(error) is told and (note == "") is told


def chains_with_a_tail(leave, rng, chains=2048, draws=300, share=0.06, report=None):
    """Chains that change quickly between two models of probability one half.

    A tail holds a share of the second one. No chain starts in it; each step leads out of it with
    probability ``leave``, and into it as rarely as the share demands.
    """
    inside, far = rng.random(chains) < 0.5, np.zeros(chains, bool)
    code, x = np.empty((chains, draws, 1), int), rng.normal(size=(chains, draws, 1))
    for t in range(draws):
        u = rng.random(chains)
        entered = inside & ~far & (u < share / (1 - share) * leave)
        left = inside & ~far & (u > 0.75)
        came = ~inside & (u < 0.25 * (1 - share))
        far = (far & (u >= leave)) | entered
        inside = (inside & ~left) | came
        code[:, t, 0] = inside
        x[:, t, 0] += 9.0 * far
    kept = Draws(torch.as_tensor(code), torch.as_tensor(x).float(), torch.randn(chains, draws))
    return Result(two_models().space, kept, {}, {}, report or RunReport(), slot_names=["x"])


def two_models(**settings):
    prior = {"x": Normal(torch.zeros(1), 1.0)}
    return trj.Target([trj.Model(name, prior, nothing) for name in ("plain", "tailed")], **settings)


def test_tails_that_chains_hardly_enter_widen_the_errors(rng):
    """Of a tail of 6 % that takes 300 steps to leave, where nothing has started in it."""
    slow, quick = chains_with_a_tail(1 / 300, rng), chains_with_a_tail(0.5, rng)
    naive = visit_probability(slow.chains.inside("tailed"), 1000.0)
    assert abs(naive.value - 0.5) > 4 * naive.std_error  # the control
    told = slow.model_probabilities(full=True).loc["tailed"]
    assert abs(told["visits"] - 0.5) < 3 * told["visits_se"] < 0.05
    inside = slow.chains.inside(
        "tailed"
    )  # means of parameters, and predictions by few of the draws
    x = slow.raw.theta[..., 0].numpy()[inside].clip(-2, 2)
    error, _, _ = slow._doubted.error_where(x, inside)
    assert 0.05 < abs(x.mean() - 0.06 * 2) < 3 * error < 0.5
    target, only = two_models(), lambda p: p["x"][:, 0].clip(-2, 2)
    few = slow.predict({"plain": lambda p: 0 * only(p), "tailed": only}, target=target, most=50_000)
    assert 0.02 < abs(few.mean - 0.06) < 3 * few.std_error < 0.3
    naive = visit_probability(quick.chains.inside("tailed"), 1000.0)
    told = quick.model_probabilities(full=True).loc["tailed"]
    assert abs(told["visits"] - 0.5) < 5 * naive.std_error
    assert told["visits_se"] < 1.2 * naive.std_error and not said_by(quick)


def test_a_tail_of_short_chains_that_their_rule_has_judged_widens_errors_alone(rng):
    report = RunReport(judged=Judged("", 0.0, 5.0, 1e-3))
    slow = chains_with_a_tail(1 / 300, rng, report=report)
    assert slow.model_probabilities(full=True).loc["tailed", "visits_se"] > 0.01
    assert "tails" in {d.kind for d in slow.doubts} and not said_by(slow)
    as_slow = chains_with_a_tail(
        1 / 300, rng, report=RunReport(judged=Judged("", 0.0, 100.0, 1e-3))
    )
    assert as_slow.model_probabilities(full=True).loc["tailed", "visits_se"] < 0.01


def test_importance_far_from_the_bridge_has_an_error_that_reaches_it(rng):
    code = torch.randint(0, 2, (64, 400, 1), generator=torch.Generator().manual_seed(0))
    draws = Draws(code, torch.randn(64, 400, 1), torch.randn(64, 400))
    routes = {
        "importance": {"plain": Estimate(-1.0, 0.001), "tailed": Estimate(-1.06, 0.005)},
        "bridge": {"plain": Estimate(-1.0, 0.001), "tailed": Estimate(-1.0, 0.003)},
    }
    result = Result(two_models().space, draws, {}, routes, RunReport())
    table = result.evidence(full=True)
    prior = math.log(2)
    assert table.loc["tailed", "importance"] == pytest.approx(-1.06 + prior)
    assert table.loc["tailed", "importance_se"] == pytest.approx(math.hypot(0.005, 0.06))
    assert table.loc["plain", "importance_se"] == pytest.approx(0.001)
    told = result.model_probabilities(full=True).loc["tailed"]
    assert abs(told["importance"] - 0.5) < told["importance_se"]


def test_a_flagged_bridge_tells_what_importance_alone_has_lost(rng):
    """Groups that differ flag the bridge; the map's own draws are no surer for it."""
    code = torch.as_tensor(rng.integers(0, 2, (64, 400, 1)))
    draws = Draws(code, torch.randn(64, 400, 1), torch.randn(64, 400))
    lost = {"plain": Estimate(-1.0, 0.001), "tailed": Estimate(-1.6, 0.001)}
    bridge = {"plain": Estimate(-1.0, 0.01), "tailed": Estimate(-1.0, 0.01)}
    routes = {"importance": lost, "smoothed": lost, "bridge": bridge}
    report = RunReport(judged=Judged("groups differ", 0.1, 5.0, 1e-3))
    result = Result(two_models().space, draws, {}, routes, report)
    assert result.evidences.routes["bridge"]["tailed"].warning
    told = result.model_probabilities(full=True).loc["tailed"]
    assert abs(told["combined"] - 0.5) < 1.2 * told["combined_se"]  # .6 nats, taken as linear


@pytest.mark.parametrize("audited", [True, False])
def test_a_map_that_hardly_overlaps_and_nobody_audited_is_no_surer_than_its_bridge(audited, rng):
    """A bridge so wide contradicts nothing; that it is wide says that the map lacks a part."""
    code = torch.as_tensor(rng.integers(0, 2, (64, 400, 1)))
    draws = Draws(code, torch.randn(64, 400, 1), torch.randn(64, 400))
    lost = {"plain": Estimate(-1.0, 0.001), "tailed": Estimate(-1.5, 0.001)}
    flag = "draws and map hardly overlap"
    bridge = {"plain": Estimate(-1.0, 0.01), "tailed": Estimate(-1.0, 0.4, 40.0, flag)}
    routes = {"importance": lost, "smoothed": lost, "bridge": bridge}
    report = RunReport(unaudited=not audited)
    told = Result(two_models().space, draws, {}, routes, report).model_probabilities(full=True)
    assert (told.loc["tailed", "importance_se"] > 0.1) is not audited


@pytest.mark.parametrize("lost", [0.45, 0.0])
def test_what_an_audit_finds_lost_of_an_improbable_model_widens_its_evidence(lost):
    """No chain visits it, and the audit's own evidence is too rough to contradict."""
    code = torch.zeros(64, 100, 1, dtype=torch.long)
    draws = Draws(code, torch.randn(64, 100, 1), torch.randn(64, 100))
    by_map = {"plain": Estimate(-1.0, 0.001), "tailed": Estimate(-16.6, 0.001)}
    facts = {"std_error": 0.1, "gap": 0.2, "map_std_error": 0.001, "modes": 2, "matters": False}
    audit = ModelAudit(
        "tailed", -16.0, map_log_evidence=-16.6, covered=1 - lost, lost=lost, **facts
    )
    report = RunReport(audit=AuditReport((audit,)))
    routes = {"importance": by_map, "smoothed": by_map}
    told = Result(two_models().space, draws, {}, routes, report).evidence(full=True).loc["tailed"]
    assert (told["combined_se"] > 0.6) == bool(lost)
    assert ("covers 55.0% of the posterior" in told["note"]) == bool(lost)


def test_the_only_possible_model_is_certain():
    target = two_models(model_prior=[1.0, 0.0])
    code = torch.zeros(8, 50, 1, dtype=torch.long)
    draws = Draws(code, torch.randn(8, 50, 1), torch.randn(8, 50))
    table = Result(target.space, draws, {}, {}, RunReport()).model_probabilities(full=True)
    assert table["visits"].tolist() == [1.0, 0.0] and table["visits_se"].tolist() == [0.0, 0.0]
