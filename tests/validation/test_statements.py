"""Faults that show without simulated data, each named, and right models that show none."""

import pytest
import torch

from tests.validation import faults
from tests.validation.resampling import Resampler
from trjmcmc.validation.statements import check_statements


def findings(target):
    generator = torch.Generator().manual_seed(3)
    result = Resampler(target, seed=4).run()
    return check_statements(target, result, generator)


def wrong(target):
    return {f.check: f.words for f in findings(target) if f.verdict in {"wrong", "doubtful"}}


@pytest.mark.parametrize(
    "make", [lambda: faults.line(faults.data()), faults.counted, faults.chosen]
)
def test_right_models_show_nothing(make):
    found = findings(make())
    assert {f.verdict for f in found} <= {"fine", "not checked"}, found
    assert {"rows", "prior", "gradient", "precision"} <= {f.check for f in found}


@pytest.mark.parametrize(
    ("fault", "check", "words"),
    [
        ("rows", "rows", "rows leak"),
        ("jacobian", "prior", "Is a Jacobian forgotten"),
        ("overflow", "precision", "float32 overflow"),
        ("detached", "gradient", "gradient"),
    ],
)
def test_a_planted_fault_is_named(fault, check, words):
    found = wrong(faults.line(faults.data(), fault))
    assert words in found.pop(check)
    assert set(found) <= {"gradient"}  # what is wrong may show in its slope as well


def test_a_mask_that_ends_one_too_early_is_named():
    found = wrong(faults.counted("mask"))
    assert "the mask is off by one" in found["mask"]


def test_a_mask_of_another_column_is_named():
    assert "counts only where" in wrong(faults.chosen("mask"))["mask"]


def test_components_that_are_not_alike_are_named():
    assert "not exchangeable" in wrong(faults.counted("order"))["components"]
