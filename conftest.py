"""What tests and the examples of docstrings share."""

import pytest

from tests.clock import clock  # noqa: F401
from tests.small import small_policy
from trjmcmc.run import sampler
from trjmcmc.run.policy import Policy

TIMED = ("compare_samplers",)  # examples that spend a budget in full, which passes quickly


@pytest.fixture(autouse=True)
def examples_run_on_simulated_time(request):
    """What a run plans, and with that whether it converges, is the same on a busy machine."""
    if isinstance(request.node, pytest.DoctestItem):
        time = request.getfixturevalue("clock")
        if request.node.name.endswith(TIMED):
            time.reading = 5e-3


@pytest.fixture(autouse=True, scope="session")
def runs_are_planned_small():
    """Examples and tests take small pilot runs; what a module's tests share too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampler, "Policy", small_policy)
        yield


@pytest.fixture(autouse=True)
def or_as_users_have_them(request, monkeypatch):
    """The mark ``planned``: for tests that ask how a run plans itself."""
    if request.node.get_closest_marker("planned") is not None:
        monkeypatch.setattr(sampler, "Policy", Policy)
