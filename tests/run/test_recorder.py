"""What a record holds, and what it says of what it has dropped."""

import pytest
import torch

from tests.emulated import DEVICE, Emulated
from trjmcmc import draws
from trjmcmc.draws import Recorder


def recorded(codes, steps=None):
    theta = torch.zeros(2, 1)
    recorder = Recorder(steps, torch.zeros(2, 3, dtype=torch.long), theta, 1)
    for i, code in enumerate(codes):
        recorder.keep(code.expand(2, 3), theta + i, theta[:, 0] + i)
    return recorder


@pytest.mark.parametrize(
    ("largest", "dtype"),
    [
        (1, torch.int8),
        (-128, torch.int8),
        (128, torch.int16),
        (2**20, torch.int32),
        (-(2**40), torch.int64),
    ],
)
def test_codes_are_held_in_the_smallest_integers(largest, dtype):
    codes = [torch.tensor([0, 1, x]) for x in (1, 2, largest, 3)]
    recorder = recorded(codes, steps=4)
    assert recorder._code.dtype == dtype
    whole = torch.stack(codes)[:, None].expand(4, 2, 3)
    for found in (recorder.code, recorder.since(0)[0], recorder.draws().code.transpose(0, 1)):
        assert found.dtype == torch.long and torch.equal(found, whole)
    other = recorded([], steps=4)
    other.take_up(*recorder.since(0))
    assert torch.equal(other.code, whole) and other._code.dtype == dtype


def test_a_record_says_why_it_was_thinned(monkeypatch):
    monkeypatch.setattr(draws, "STORED", 1000)
    monkeypatch.setattr(draws, "LEAST_DRAWS_STORED", 8)
    codes = [torch.tensor([0, 0, 1])] * 120
    short, long, bound = recorded(codes[:50]), recorded(codes), recorded([])
    assert short.thinned(1) == ""
    assert long.thinned(1) == (
        "one step in 2 is kept where one in 1 was asked for: the record of 2 chains is held to "
        "1.0e+03 numbers"
    )
    bound.bound(8)
    for code in codes[:20]:
        bound.keep(code.expand(2, 3), torch.zeros(2, 1), torch.zeros(2))
    assert "more could not have been summed up in the time left" in bound.thinned(1)


def test_draws_leave_a_device_in_blocks(monkeypatch):
    """What is recorded is what the host would have, thinned or not, with few copies."""
    monkeypatch.setattr(draws, "STORED", 2 * 300)
    codes = [torch.tensor([i % 7, -i, 3 * i]) for i in range(150)]
    host = recorded(codes)
    with Emulated() as device:
        theta = torch.zeros(2, 1, device=DEVICE)
        recorder = Recorder(None, torch.zeros(2, 3, dtype=torch.long, device=DEVICE), theta, 1)
        ancestor = torch.arange(2, device=DEVICE)
        there = [code.to(DEVICE) for code in codes]
        device.clear()
        for i, code in enumerate(there):
            recorder.keep(code.expand(2, 3), theta + i, theta[:, 0] + i)
            recorder.descend_from(ancestor)
        assert device.counts()[place := next(iter(device.counts()))] and place[0] == "to host"
        blocks = 150 // draws.BLOCK_DRAWS
        assert sum(device.counts().values()) <= 3 * blocks
        found, known = recorder.draws(), host.draws()
    assert recorder.pending == 0 and recorder.thin == host.thin
    assert torch.equal(found.ancestor, torch.arange(2))
    for name in ("code", "theta", "log_joint"):
        assert torch.equal(getattr(found, name), getattr(known, name))


def test_a_record_that_halves_itself_waits_for_its_draws(monkeypatch):
    monkeypatch.setattr(draws, "LEAST_DRAWS_STORED", 8)
    monkeypatch.setattr(draws, "STORED", 1)
    codes = [torch.tensor([i, 0, 1]) for i in range(21)]
    host = recorded(codes)
    with Emulated():
        theta = torch.zeros(2, 1, device=DEVICE)
        recorder = Recorder(None, torch.zeros(2, 3, dtype=torch.long, device=DEVICE), theta, 1)
        for i, code in enumerate(codes):
            recorder.keep(code.to(DEVICE).expand(2, 3), theta + i, theta[:, 0] + i)
        found = recorder.so_far()
    assert host.thin == recorder.thin > 1
    assert torch.equal(found.code, host.so_far().code)
    assert torch.equal(found.log_joint, host.so_far().log_joint)
