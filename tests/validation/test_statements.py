"""Faults that show without simulated data, each named, and right models that show none."""

import pytest
import torch

from tests.validation import faults
from tests.validation.resampling import Resampler
from trjmcmc.validation.asked import Asked
from trjmcmc.validation.statements import check_statements


def asked_of(target):
    asked, generator = Asked(), torch.Generator().manual_seed(3)
    check_statements(target, Resampler(target, seed=4).run(), generator, asked)
    return asked


def wrong(target):
    return {d.kind: d.words for d in asked_of(target).doubts}


@pytest.mark.parametrize(
    "make", [lambda: faults.line(faults.data()), faults.counted, faults.chosen]
)
def test_right_models_show_nothing(make):
    asked = asked_of(make())
    assert not asked.doubts
    assert {"rows", "prior", "gradient", "precision"} <= {*asked.made, *dict(asked.skipped)}


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
