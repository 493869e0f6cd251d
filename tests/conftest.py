import signal

import pytest
import torch

from tests import other_seeds
from tests.emulated import DEVICE, Emulated


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
    own = item.get_closest_marker("one_seed") or isinstance(item, pytest.DoctestItem)
    other_seeds.move_by(0 if own else item.config.getoption("--other-seeds"))


@pytest.fixture
def device(request):
    """Where the test computes; what it makes has to go there."""
    name = request.config.getoption("--device")
    if name != "emulated":
        yield torch.device(name)
        return
    with Emulated():
        yield DEVICE


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(2024)


@pytest.fixture(autouse=True, scope="session")
def ctrl_c_is_heard():
    """Jobs that a shell starts in the background ignore Ctrl-C, and tests press it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def global_seed_untouched():
    """Nothing in the package may draw from, or seed, torch's global generator."""
    before = torch.random.get_rng_state()
    yield
    assert torch.equal(before, torch.random.get_rng_state())
