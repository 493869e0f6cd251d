"""What tests and the examples of docstrings share."""

import pytest

from tests.clock import clock  # noqa: F401

TIMED = ("compare_samplers",)  # examples that spend a budget in full


@pytest.fixture(autouse=True)
def budgets_of_examples_run_out_on_simulated_time(request):
    if isinstance(request.node, pytest.DoctestItem) and request.node.name.endswith(TIMED):
        request.getfixturevalue("clock").reading = 5e-3
