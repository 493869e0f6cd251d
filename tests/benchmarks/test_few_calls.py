"""Mixtures as functions in NumPy: runs are right, or a note names what they may have lost."""

from benchmarks.few_calls import run


def test_runs_are_right_or_name_what_they_may_have_lost():
    found = [run(number, 8000) for number in range(4)]
    assert all(row["calls"] <= 8000 for row in found)
    assert all(row["right"] + row["said"] + row["silent"] == 1 for row in found)
    assert all(row["right"] or "detection limit" in row["note"] for row in found)
    right = [row for row in found if row["right"]]
    assert len(right) >= 2 and all(abs(row["z"]) < 5 for row in right)
