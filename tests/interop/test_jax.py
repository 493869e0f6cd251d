"""Likelihoods in JAX: values, gradients, few compilations, and refusals in words."""

import copy

import numpy as np
import pytest
import torch
from torch.distributions import HalfCauchy, Normal

pytest.importorskip("jax")

import jax
from jax import numpy as jnp

import trjmcmc as trj
from tests.interop.in_jax import compiled, compiled_quickly, float64  # noqa: F401
from trjmcmc.errors import ShapeError, TargetError
from trjmcmc.interop.jax_batches import SIZES, Batched, pieces

X = np.linspace(-1.0, 1.0, 12)

Y = 0.5 + X - 0.4 * X**2


def data():
    """In JAX's precision: 0.10 mixes float64 constants up that it met in both."""
    return [np.asarray(a, jnp.result_type(float)) for a in (X, Y)]


def regression(p):
    x, y = data()
    mean = p["beta"][0] + p["beta"][1] * x
    return jnp.sum(-0.5 * ((y - mean) / p["sigma"]) ** 2 - jnp.log(p["sigma"]))


def in_batches(p):
    x, y = data()
    mean = p["beta"][:, :1] + p["beta"][:, 1:] * x
    sigma = p["sigma"][:, None]
    return jnp.sum(-0.5 * ((y - mean) / sigma) ** 2 - jnp.log(sigma), -1)


def in_torch(p):
    x, y = (torch.as_tensor(a).to(p["beta"]) for a in (X, Y))
    mean = p["beta"][:, :1] + p["beta"][:, 1:] * x
    sigma = p["sigma"][:, None]
    return (-0.5 * ((y - mean) / sigma) ** 2 - sigma.log()).sum(-1)


def priors():
    return {"beta": Normal(torch.zeros(2), 1.0), "sigma": HalfCauchy(1.0)}


def points(n, dtype=torch.float32):
    generator = torch.Generator().manual_seed(n)
    return {
        "beta": torch.randn(n, 2, generator=generator, dtype=dtype),
        "sigma": torch.rand(n, generator=generator, dtype=dtype) + 0.5,
    }


@pytest.mark.parametrize(
    ("function", "settings"), [(regression, {}), (in_batches, {"vectorized": True})]
)
def test_value_and_gradient_are_those_of_torch(float64, function, settings):  # noqa: F811
    ours = trj.from_jax(function, **settings)
    for n in (1, 63, 700):
        p = {k: v.requires_grad_() for k, v in points(n, torch.float64).items()}
        value, expected = ours(p), in_torch(p)
        assert (value - expected).abs().max() < 1e-10
        weights = torch.arange(1.0, n + 1, dtype=torch.float64)
        slopes = torch.autograd.grad((weights * value).sum(), list(p.values()))
        steep = torch.autograd.grad((weights * expected).sum(), list(p.values()))
        for a, b in zip(slopes, steep, strict=True):
            assert ((a - b).abs() / (1 + b.abs())).max() < 1e-10
        with torch.no_grad():
            assert (ours(p) - expected).abs().max() < 1e-10


def test_second_derivatives_are_refused():
    """Where autograd would say that they are zero."""
    x = torch.ones(2, requires_grad=True)
    value = trj.from_jax(lambda p: -(p["x"] ** 4))({"x": x})
    (slope,) = torch.autograd.grad(value.sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once, not twice"):
        torch.autograd.grad(slope.sum(), x)


def test_sizes_of_batches_are_few():
    for n in (0, 1, 64, 65, 128, 129, 512, 600, 3000):
        calls = list(pieces(n))
        assert sum(rows.stop - rows.start for rows, _ in calls) == n
        assert {size for _, size in calls} <= set(SIZES)
        assert sum(size for _, size in calls) <= 4 * n or n < SIZES[0]
    ours = trj.from_jax(regression)
    before = len(compiled())
    for n in (1, 7, 100, 130, 513, 2000):
        p = points(n)
        ours(p)
        p["beta"].requires_grad_()
        ours(p)
    assert len(compiled()) - before == 2 * len(SIZES)

    # negative control: without padding every size is another program
    plain = jax.jit(jax.vmap(regression))
    before = len(compiled())
    for n in (1, 7, 100, 130, 513):
        plain({k: v.numpy() for k, v in points(n).items()})
    assert len(compiled()) - before == 5


def test_answers_are_never_shared_with_jax():
    """Else torch could write into what JAX takes for constant."""

    def function(x):
        return (2.0 * x,)

    batched = Batched(function, x64=False)
    x = torch.arange(float(SIZES[0]))
    (value,) = batched.of_tensors(x)
    value.add_(1.0)
    (again,) = batched.of_tensors(x)
    assert torch.equal(again, 2 * x)
    for n in (5, 600):
        x = torch.arange(float(n))
        assert torch.equal(batched.of_tensors(x)[0], 2 * x)
    assert copy.deepcopy(batched) is batched


def test_precision_is_that_of_jax():
    likelihood = trj.from_jax(regression)
    target = trj.Target([trj.Model("line", priors(), likelihood)])
    assert target.dtype == torch.float32 and not target.is_precision_open
    with pytest.raises(TargetError, match="is float64, and JAX was in float32"):
        trj.Target([trj.Model("line", priors(), likelihood)], dtype=torch.float64)
    assert trj.Target([trj.Model("line", priors(), in_torch)]).is_precision_open


def test_a_target_takes_it(float64):  # noqa: F811
    ours = trj.Target([trj.Model("line", priors(), trj.from_jax(regression))])
    native = trj.Target([trj.Model("line", priors(), in_torch)], dtype=torch.float64)
    theta = torch.randn(40, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    code = torch.zeros(40, 1, dtype=torch.int64)
    for a, b in zip(
        ours.log_joint_and_grad(code, theta),
        native.log_joint_and_grad(code, theta),
        strict=True,
    ):
        assert (a - b).abs().max() < 1e-8 * (1 + b.abs().max())


def test_a_space_of_items(float64):  # noqa: F811
    design = np.stack([X, X**2, X**3])

    def log_likelihood(p, active):
        assert active.shape == (3,)
        mean = p["beta"] @ design
        return -0.5 * jnp.sum((Y - mean) ** 2) - jnp.sum(active) * 0.1

    def like_it(p, active):
        mean = p["beta"] @ torch.as_tensor(design)
        y = torch.as_tensor(Y)
        return -0.5 * (y - mean).square().sum(-1) - active.double().sum(-1) * 0.1

    space = trj.Subsets(["a", "b", "c"], of="beta")
    ours = trj.Target(space, {"beta": Normal(0.0, 1.0)}, trj.from_jax(log_likelihood))
    native = trj.Target(space, {"beta": Normal(0.0, 1.0)}, like_it, dtype=torch.float64)
    assert ours.dtype == torch.float64
    code = space.enumerate()
    theta = torch.randn(8, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for a, b in zip(
        ours.log_joint_and_grad(code, theta),
        native.log_joint_and_grad(code, theta),
        strict=True,
    ):
        assert (a - b).abs().max() < 1e-10


REFUSED = [
    (lambda p: -p["x"] if p["x"] > 0 else p["x"], TargetError, "use jnp.where"),
    (lambda p: -((Y - p["x"]) ** 2), ShapeError, r"expected shape \(\).*sum over the data"),
    (lambda p: p["z"], TargetError, r"asks for 'z'; its parameters are \['x'\]"),
    (lambda p: np.sin(p["x"]), TargetError, "hands a parameter's value to NumPy; use jax.numpy"),
    (lambda p: 1 / 0, TargetError, "it failed: division by zero"),
    (lambda p: None, ShapeError, "got NoneType"),
]


@pytest.mark.parametrize(("function", "kind", "words"), REFUSED)
def test_what_can_not_be_traced_is_refused_in_words(function, kind, words):
    with pytest.raises(kind, match=f"from_jax: .*{words}"):
        trj.from_jax(function)({"x": torch.ones(3)})


def test_a_function_is_asked_for():
    with pytest.raises(TargetError, match="expected a function"):
        trj.from_jax(3.0)
