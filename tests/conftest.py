import signal

import pytest
import torch

from tests.emulated import DEVICE, Emulated


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
