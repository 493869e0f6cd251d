"""Batches of a likelihood on a CPU: as long as the cache holds them, and the same values."""

import math
from collections.abc import Callable

import pytest
import torch
from torch.distributions import Normal

import trjmcmc as trj
from trjmcmc.target.counting import IN_CACHE

ROWS = 10_000


def _regression(sizes: list[int], dtype: torch.dtype = torch.float32) -> trj.Target:
    """Of many rows; writes down how long the batches are."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, generator=generator, dtype=dtype)

    def log_likelihood(p: dict[str, torch.Tensor]) -> torch.Tensor:
        sizes.append(len(p["a"]))
        return -0.5 * (x - p["a"][:, None]).square().sum(-1)

    return trj.Target([trj.Model("mean", {"a": Normal(0.0, 1.0)}, log_likelihood, dtype=dtype)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_long_batches_are_cut_to_the_cache(dtype: torch.dtype) -> None:
    sizes: list[int] = []
    target = _regression(sizes, dtype)
    theta = torch.linspace(-1, 1, 50, dtype=dtype)[:, None]
    code = torch.zeros(50, 1, dtype=torch.long)
    sizes.clear()
    whole = target.log_joint(code, theta)
    assert sizes == [20, 20, 10] and IN_CACHE // ROWS == 20
    alone = torch.cat([target.log_joint(code[:1], x[None]) for x in theta])
    torch.testing.assert_close(whole, alone)
    value, gradient = target.log_joint_and_grad(code, theta)
    torch.testing.assert_close(value, whole)
    assert gradient.shape == theta.shape and bool((gradient.diff(dim=0) < 0).all())


def test_a_target_in_another_precision_is_cut_alike() -> None:
    sizes: list[int] = []
    target = trj.Target(list(_regression(sizes).models)).to(dtype=torch.float64)
    sizes.clear()
    target.log_joint(torch.zeros(30, 1, dtype=torch.long), torch.zeros(30, 1).double())
    assert sizes == [20, 10]


def _factorised(p: dict[str, torch.Tensor], data: torch.Tensor) -> torch.Tensor:
    return p["a"][:, None] * torch.linalg.cholesky(torch.eye(500))[0, 0] * data


def _decomposed(p: dict[str, torch.Tensor], data: torch.Tensor) -> torch.Tensor:
    return p["a"][:, None] * torch.linalg.eigh(torch.eye(300)).eigenvalues[0] * data


def _integrated(p: dict[str, torch.Tensor], data: torch.Tensor) -> torch.Tensor:
    value = torch.ones_like(p["a"])
    for _ in range(1000):  # steps of a differential equation
        value = value - 0.001 * p["a"] * value
    return value[:, None] * data


@pytest.mark.parametrize("signal", [_factorised, _decomposed, _integrated])
def test_what_all_points_share_is_not_done_again_for_each_batch(
    signal: Callable[[dict[str, torch.Tensor], torch.Tensor], torch.Tensor],
) -> None:
    """Factors of a matrix of the data, and many operations, are dear whatever the batch."""
    calls, data = [], torch.linspace(0, 1, ROWS)

    def log_likelihood(p: dict[str, torch.Tensor]) -> torch.Tensor:
        calls.append(len(p["a"]))
        return -0.5 * signal(p, data).square().sum(-1)

    target = trj.Target([trj.Model("one", {"a": Normal(0.0, 1.0)}, log_likelihood)])
    calls.clear()
    target.log_joint(torch.zeros(512, 1, dtype=torch.long), torch.zeros(512, 1))
    assert calls == [512]


def test_subsets_without_parameters_are_cut_too() -> None:
    data, sizes = torch.ones(ROWS), []

    def log_likelihood(p: dict[str, torch.Tensor], active: torch.Tensor) -> torch.Tensor:
        sizes.append(len(active))
        return -0.5 * (active.sum(-1)[:, None] * data).square().mean(-1)

    target = trj.Target(trj.Subsets(["a", "b"], of=()), {}, log_likelihood)
    code = target.space.enumerate().repeat(10, 1)
    sizes.clear()
    whole = target.log_joint(code, torch.zeros(40, target.dim))
    assert sizes == [20, 20]
    torch.testing.assert_close(whole[:4], whole[-4:])


def test_functions_out_of_torch_get_the_whole_batch() -> None:
    calls = []
    big = torch.zeros(ROWS)

    def log_likelihood(p: dict[str, torch.Tensor]) -> torch.Tensor:
        calls.append(len(p["a"]))
        value = (p["a"][:, None] - big).square().sum(-1).numpy()
        return torch.as_tensor(-value)

    target = trj.Target([trj.Model("array", {"a": Normal(0.0, 1.0)}, log_likelihood)])
    calls.clear()
    target.log_joint(torch.zeros(100, 1, dtype=torch.long), torch.zeros(100, 1))
    assert calls == [100]


def test_items_are_cut_with_their_batch() -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(3, ROWS, generator=generator), torch.randn(ROWS, generator=generator)
    sizes = []

    def log_likelihood(p: dict[str, torch.Tensor], active: torch.Tensor) -> torch.Tensor:
        sizes.append(active.shape)
        return -0.5 * (y - (p["beta"] * active) @ x).square().sum(-1) + active.sum(-1)

    space = trj.Subsets(["a", "b", "c"], of="beta")
    target = trj.Target(space, {"beta": Normal(0.0, 1.0)}, log_likelihood)
    code = torch.stack([target.space.code_of(name) for name in ("a+c", "c", "b")]).repeat(15, 1)
    theta = torch.randn(45, 3, generator=generator)
    sizes.clear()
    whole = target.log_joint(code, theta)
    assert [tuple(s) for s in sizes] == [(20, 3), (20, 3), (5, 3)]
    alone = [target.log_joint(c[None], x[None])[0] for c, x in zip(code, theta, strict=True)]
    assert math.isclose(float((whole - torch.stack(alone)).abs().max()), 0.0, abs_tol=0.1)
