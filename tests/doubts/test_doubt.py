"""Every text that speaks against an answer: provoked, short, and with what helps."""

import importlib
import math
import re
from pathlib import Path

import pytest
import torch

import trjmcmc as trj
import trjmcmc.doubts
from trjmcmc.doubts import of_answers, of_chains, of_maps, of_numbers, of_search
from trjmcmc.doubts.doubt import EVERY, KINDS, Doubt, messages
from trjmcmc.errors import ConvergenceWarning, CoverageWarning, PrecisionWarning
from trjmcmc.estimate import Estimate
from trjmcmc.estimate.agreement import Clash
from trjmcmc.pilot.report import AuditReport, ModelAudit

TESTS = Path(__file__).parents[1]

PAGE = (TESTS.parent / "docs" / "reading-a-result.md").read_text()

LONGER = "Run longer: more(max_seconds=...)"


def audit(covered=1.0, difference=0.0, gap=0.01, ancestors=100.0):
    by_map = {"map_log_evidence": difference, "map_std_error": 0.01}
    rest = {"modes": 1, "matters": True, "ancestors": ancestors}
    lost = 1 - covered
    one = ModelAudit("m", 0.0, 0.01, gap, **by_map, covered=covered, lost=lost, **rest)
    return AuditReport((one,), evaluations=1234)


def weights(n=4000):
    return torch.randn(n, generator=torch.Generator().manual_seed(1)).double()


PROVOKED = {
    "chains drift": lambda: of_chains.of_rule(
        of_chains.Judged("chains drift", 0.2, 5.0, 1e-3), LONGER
    ),
    "until was not reached": lambda: of_chains.of_length("probability +- 0.02 of 0.01"),
    "'b' (drifts)": lambda: of_chains.of_shares([("b", 0.5, "drifts", 1.2)], [], LONGER),
    "rests on 5.0 prior draws": lambda: of_maps.of_pilot(audit(ancestors=5.0), LONGER),
    "differ by 5.0 nats": lambda: of_maps.of_pilot(audit(gap=-5.0), LONGER),
    "covers 80.0% of the posterior": lambda: of_maps.of_coverage(audit(covered=0.8), "vi"),
    "those of the audit: 'm' (+0.50 nats)": lambda: of_maps.of_coverage(audit(difference=0.5)),
    "disagree: 'm' (visits 0.5": lambda: of_maps.of_routes(
        [Clash("m", ("visits", "bridge"), 9.0, "visits 0.5 ± 0.01, bridge 0.7 ± 0.01")], LONGER
    ),
    "of size 1e+06 by 0.12 nats": lambda: of_numbers.of_rounding(torch.full((9,), 1e6), ""),
    "log densities of 'one' by 0.5": lambda: of_numbers.of_rounding(
        torch.zeros(9), "'one' by 0.5 nats"
    ),
    "rounding decides": lambda: of_numbers.of_resolution({}, None, "sums of log densities"),
    "reweighting leaves 40 effective": lambda: [of_numbers.of_reweighting("m", 40.0, 5000, 0.9)],
    "3 of 500 points": lambda: of_numbers.of_overflows(3, 500),
    "few searches for modes: detection limit 15%": lambda: of_search.of_modes(
        trj.problems.sleep().space, of_chains.Judged("", 0.0, 1.0, 0.15), LONGER
    ),
    "Local optimisations found a part": lambda: [of_search.of_climbs("m", 0.2)],
    "The map misses a part": lambda: of_answers.of_audit(audit(covered=0.8)),
    "+0.50 ± 0.01 nats off": lambda: of_answers.of_audit(audit(difference=0.5)),
    "no density": lambda: of_answers.of_weights(torch.tensor([0.0, -math.inf]), 0.1, 0.9),
    "Pareto k 0.90": lambda: of_answers.of_weights(torch.zeros(9), 0.9, 0.1),
    "The bound is 1.00 nats below": lambda: of_answers.of_bound(1.0, 2.0),
    "0.90 under q and 0.50": lambda: of_answers.of_probabilities(
        {"m": 0.9}, [Estimate(0.5, 0.01)], [0.01]
    ),
    "further out in the tails": lambda: [of_answers.of_reach("m", 0.03)],
    "% larger under q": lambda: of_answers.of_moments(
        [("m", {"x": 1.3 * weights().numpy()}, weights().square() * (1 - 1.3**2) / 2)]
    ),
    "but 0.200 of its draws": lambda: of_answers.of_counts(
        ["m", "n"], torch.tensor([0.5, 0.5]), torch.tensor([200, 800])
    ),
    "reverse KL lost a part": lambda: [of_answers.of_fallback()],
}


@pytest.mark.parametrize("words", PROVOKED)
def test_each_text_is_said_by_how_much_and_short(words):
    found = PROVOKED[words]()
    ((said, _),) = messages(found)
    assert words.lower() in said.lower(), said
    assert max(map(len, re.split(r"[.!?] ", said))) <= 200, said
    assert not re.search(r"(?<![\d.])\.\d", said)  # a leading zero


def test_the_table_names_checks_and_tests_that_are_there():
    rows = [line.rsplit(maxsplit=2) for line in trjmcmc.doubts.__doc__.splitlines()[8:-1]]
    assert len(rows) == 31
    for _, check, test in rows:
        module, name = check.split(".")
        assert callable(getattr(importlib.import_module(f"trjmcmc.doubts.{module}"), name))
        assert (TESTS / test).exists()


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_on_results_says_what_to_do_about_each_warning(kind):
    rows = [r for r in PAGE.splitlines() if r.startswith("|") and KINDS[kind].warning.__name__ in r]
    clauses = re.split(r"[:;,.]|\{\}", KINDS[kind].sentence)
    words = {clause.strip().removesuffix(" of") for clause in clauses if " " in clause.strip()}
    (row,) = [r for r in rows if any(w in r for w in words)]
    assert all(cell.strip() for cell in row.strip("|").split("|"))


def test_two_warnings_have_it_all_the_gravest_category_first():
    doubts = [
        Doubt(EVERY, "1 of 9 points", kind="overflow", remedy="Return finite values"),
        *of_numbers.of_rounding(torch.full((9,), 1e6), ""),
        *of_maps.of_coverage(audit(covered=0.8)),
        *(Doubt(f"k={k}", f"R-hat {k}", kind="chains", remedy=LONGER) for k in range(5)),
        Doubt(EVERY, "no search for lost modes", 0.0, grave=False, kind="modes"),
    ]
    (first, grave), (second, other) = messages(doubts)
    assert (grave, other) == (ConvergenceWarning, CoverageWarning)
    assert first.startswith("the run has not converged: 'k=0' (R-hat 0); 'k=1' (R-hat 1); ")
    assert "and 2 more" in first and first.count(LONGER) == 1 and "1 of 9 points" in first
    assert "misses a part of the posterior of 'm'" in second and "Use dtype" in second
    assert "search" not in first + second
    assert messages(of_numbers.of_rounding(torch.full((9,), 1e6), ""))[0][1] is PrecisionWarning
    assert not messages(doubts[-1:]) and {d.kind for d in doubts[:-1]} <= set(KINDS)
