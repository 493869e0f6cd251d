"""Several runs, or shards of one, in the threads of a process: what they share does no harm."""

import threading
from concurrent.futures import ThreadPoolExecutor

import torch
from torch.distributions import Distribution

from benchmarks.same_draws import pair
from trjmcmc.rng import seeded
from trjmcmc.target.support import unchecked


def test_threads_do_not_draw_each_others_numbers():
    target = pair()
    code = target.space.enumerate().repeat(50, 1)

    def draws(seed):
        g = torch.Generator().manual_seed(seed)
        return torch.stack([target.sample_prior(code, g) for _ in range(20)])

    alone, before = [draws(seed) for seed in range(6)], torch.get_rng_state()
    with ThreadPoolExecutor(6) as threads:
        together = list(threads.map(draws, range(6)))
    assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_seed_is_held_until_its_block_ends():
    inside, drawn = threading.Event(), []

    def other():
        inside.wait()
        with seeded(2):
            drawn.append(torch.rand(()))

    thread = threading.Thread(target=other)
    thread.start()
    with seeded(1):
        inside.set()
        thread.join(0.2)  # it waits
        assert not drawn
    thread.join()
    assert len(drawn) == 1


def test_argument_checks_go_back_with_the_last_thread():
    """The first to begin is the first to end: the other must not put back what it found."""
    before, steps = Distribution._validate_args, [threading.Event() for _ in range(3)]

    def first():
        with unchecked():
            steps[0].set()
            steps[1].wait()
        steps[2].set()

    thread = threading.Thread(target=first)
    thread.start()
    steps[0].wait()
    with unchecked():
        steps[1].set()
        steps[2].wait()
        assert not Distribution._validate_args  # still off here
    thread.join()
    assert Distribution._validate_args is before
