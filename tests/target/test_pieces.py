"""Out of memory: batches are halved, and the answers are those of the whole."""

import pytest
import torch
from torch.distributions import Normal

import trjmcmc as trj
from tests import toys
from trjmcmc.errors import TargetError


def narrow(most, failure=torch.OutOfMemoryError):
    """A regression in a memory of so many rows, and the sizes of the batches that it got."""
    sizes = []

    def log_likelihood(p):
        sizes.append(len(p["a"]))
        if len(p["a"]) > most:
            raise failure("CUDA out of memory")
        return Normal(p["a"].sum(-1), 1.0).log_prob(torch.tensor(0.5))

    models = [
        trj.Model("one", {"a": Normal(torch.zeros(1), 1.0)}, log_likelihood),
        trj.Model("two", {"a": Normal(torch.zeros(2), 1.0)}, log_likelihood),
    ]
    return trj.Target(models, dtype=torch.float64), sizes


def points(target, n, generator):
    code = target.space.sample_prior(n, generator)
    return code, target.sample_prior(code, generator)


def test_halves_give_the_values_and_slopes_of_the_whole(generator):
    (small, sizes), (large, _) = narrow(10), narrow(1000)
    code, theta = points(large, 100, generator)
    found = [*small.log_joint_and_grad(code, theta), small.log_joint(code, theta)]
    known = [*large.log_joint_and_grad(code, theta), large.log_joint(code, theta)]
    for a, b in zip(found, known, strict=True):
        torch.testing.assert_close(a, b)
    tries = len(sizes)
    sizes.clear()
    small.log_joint(code, theta)
    assert max(sizes) <= 10 and len(sizes) < tries  # it is not tried again


def test_powers_and_sums_are_cut_with_the_batch(generator):
    (small, _), (large, _) = narrow(10), narrow(1000)
    code, theta = points(large, 60, generator)
    power = torch.rand(60, generator=generator).double()
    found = [t.log_joint_and_grad(code, theta, temper=power)[0] for t in (small, large)]
    torch.testing.assert_close(*found)


@pytest.mark.whole
def test_a_run_goes_on_through_halves(generator):
    target, sizes = narrow(40)
    sampler = trj.TRJSampler(target, seed=1)
    result = sampler.run(20, chains=64, fit=False, warmup=10, progress=False)
    assert result.raw.code.shape[:2] == (64, 20)
    assert sum(size > 40 for size in sizes) < 20


def test_a_row_that_is_too_much_and_other_failures_are_told(generator):
    target, _ = narrow(5)
    code, theta = points(target, 20, generator)
    target, _ = narrow(1000)
    target._densities.each[0].likelihood._call = too_large
    with pytest.raises(torch.OutOfMemoryError):
        target.log_joint(code, theta)
    with pytest.raises(TargetError, match="failed at"):
        narrow(3, failure=RuntimeError)


def too_large(p):
    raise torch.OutOfMemoryError("CUDA out of memory")


def test_components_are_halved_too(generator):
    target = toys.seen_sum()
    code, theta = points(target, 50, generator)
    known, combine = target.log_joint(code, theta), target.additive.combine

    def small(total, p):
        if len(total) > 7:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return combine(total, p)

    target.additive.combine = small
    torch.testing.assert_close(target.log_joint(code, theta), known)
