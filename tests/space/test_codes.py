"""Codes as rows of integers: which are alike."""

import pytest
import torch

from trjmcmc.space.codes import distinct


@pytest.mark.parametrize(
    ("low", "high", "width"),
    [
        pytest.param(0, 2, 3, id="few"),
        pytest.param(0, 2, 90, id="many columns"),
        pytest.param(-2, 5, 40, id="negative numbers"),
        pytest.param(-(2**61), 2**61, 3, id="wide columns"),
        pytest.param(2**61, 2**61 + 2, 70, id="narrow columns far from zero"),
    ],
)
def test_distinct_rows_are_those_of_a_comparison_of_whole_rows(low, high, width):
    generator = torch.Generator().manual_seed(0)
    code = torch.randint(low, high, (50, width), generator=generator)
    code = code[torch.randint(0, 50, (400,), generator=generator)]
    code[:, 1:2] = code[:1, 1:2]  # a column of one value
    expected = torch.unique(code, dim=0, return_inverse=True, return_counts=True)
    for mine, theirs in zip(distinct(code), expected, strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize(("rows", "width"), [(0, 3), (4, 0), (0, 0)])
def test_no_rows_and_no_columns(rows, width):
    found, which, counts = distinct(torch.zeros(rows, width, dtype=torch.long))
    assert found.shape == (min(rows, 1), width)
    assert which.tolist() == [0] * rows
    assert counts.tolist() == [rows] * min(rows, 1)
