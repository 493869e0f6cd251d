import signal

import pytest
import torch

torch.set_num_threads(1)  # no barriers to wait at on a busy machine


def pytest_addoption(parser):
    parser.addoption("--device", default="cpu", help="where the device-aware tests compute")


@pytest.fixture(scope="session")
def device(request):
    return torch.device(request.config.getoption("--device"))


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
