"""What tests and the examples of docstrings share: options, simulated time, small plans."""

from importlib.util import find_spec

import pytest
import torch

from tests import other_seeds
from tests.clock import clock  # noqa: F401
from tests.small import plan_as_usual, plan_small

collect_ignore = [] if find_spec("bilby") else ["trjmcmc/bilby.py"]  # its base class is bilby's

TIMED = ("compare_samplers",)  # examples that spend a budget in full, which passes quickly


def pytest_addoption(parser):
    where = "cpu, cuda (or another device of torch), or emulated: a device that is none"
    parser.addoption("--device", default="cpu", help=f"of tests that take a device: {where}")
    moved = "move the seeds of all tests so many times: what they say has to hold for any"
    parser.addoption("--other-seeds", type=int, default=0, help=moved)
    threads = "of torch; one has no barriers to wait at on a busy machine"
    parser.addoption("--threads", type=int, default=1, help=threads)


def pytest_configure(config):
    torch.set_num_threads(config.getoption("--threads"))
    if config.getoption("--other-seeds"):
        other_seeds.install()
    name = config.getoption("--device")
    if name != "emulated":
        try:
            torch.ones(1, device=name).sum().item()
        except (RuntimeError, AssertionError) as error:
            raise pytest.UsageError(
                f"--device {name}: torch {torch.__version__} can't compute there ({error}); leave "
                "it out for the CPU, or say --device emulated"
            ) from None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    own = isinstance(item, pytest.DoctestItem)  # whose answers are printed
    other_seeds.move_by(0 if own else item.config.getoption("--other-seeds"))


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
        plan_small(patch)
        yield


@pytest.fixture(autouse=True)
def or_as_users_have_them(request, monkeypatch):
    """The mark ``planned``: for tests that ask how a run plans itself."""
    if request.node.get_closest_marker("planned") is not None:
        plan_as_usual(monkeypatch)
