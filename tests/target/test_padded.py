import copy

import pytest
import torch
from torch.distributions import (
    Beta,
    Dirichlet,
    Gamma,
    Independent,
    MultivariateNormal,
    Normal,
    Uniform,
)

import trjmcmc as trj
from trjmcmc.errors import TargetError

SCALE = torch.tensor([1.0, 0.5, 2.0, 1.5])
SHARES = torch.tensor([0.7, 1.0, 2.0, 3.0, 0.5])


def polynomial(p):
    """A polynomial whose noise is a mixture of widths; zeros change nothing."""
    x = torch.linspace(-1, 1, 9, dtype=p["beta"].dtype)
    powers = x[:, None] ** torch.arange(p["beta"].shape[1], dtype=x.dtype)
    error = torch.sin(3 * x) - p["beta"] @ powers.T
    width = 0.2 + (p["share"] * p["width"]).sum(1, keepdim=True) + p["noise"][:, None]
    even = p["share"].square().sum(-1)
    return -(error / width).square().sum(-1) / 2 - 9 * width[:, 0].log() - even


def priors(k):
    return {
        "share": Dirichlet(SHARES[: k + 1]),
        "beta": Normal(torch.arange(float(k)), SCALE[:k]),
        "noise": Gamma(2.0, 3.0),
        "width": Uniform(torch.zeros(k + 1), torch.arange(1.0, k + 2)),
    }


def polynomials(counts=(1, 4, 2), function=polynomial, priors=priors, **options):
    options = {"padded": True} | options
    return trj.Target([trj.Model(f"{k}", priors(k), function, **options) for k in counts])


def one_by_one(target):
    """The same target, evaluated model by model."""
    other = copy.copy(target)
    other._densities = copy.copy(target._densities)
    other._densities.padded = None
    return other


def points(target, n, dtype, generator, spread=1.0):
    """Prior draws of every model, some far away, with NaN in what is spare."""
    code = target.space.enumerate().repeat(n, 1)
    theta = spread * target.sample_prior(code, generator)
    return code, torch.where(target.space.active(code), theta, torch.nan).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("make", [polynomials, trj.problems.coal_mining])
@pytest.mark.parametrize("spread", [1.0, 300.0])
def test_models_of_several_lengths_at_once_are_as_one_by_one(make, dtype, spread, generator):
    target = make().to(dtype=dtype)
    alone = one_by_one(target)
    assert target._densities.padded is not None
    code, theta = points(target, 60, dtype, generator, spread)
    close = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 1e-9, "atol": 1e-9}
    for surrogate in (False, True):
        found = target.log_prior_and_likelihood(code, theta, surrogate=surrogate)
        stated = alone.log_prior_and_likelihood(code, theta, surrogate=surrogate)
        possible = stated[0] > -torch.inf
        assert torch.allclose(found[0], stated[0], **close)
        assert torch.allclose(found[1][possible], stated[1][possible], **close)
        value, gradient = target.log_joint_and_grad(code, theta, surrogate=surrogate)
        known, slope = alone.log_joint_and_grad(code, theta, surrogate=surrogate)
        assert torch.allclose(value, known, **close)
        assert torch.equal(gradient.isfinite(), slope.isfinite())
        size = 1 + slope.abs().amax(1, keepdim=True)
        fine = (slope.isfinite() & possible[:, None]).double()
        assert float(((gradient - slope) / size * fine).abs().nan_to_num().max()) < 1e-3
    assert possible.all() == (spread == 1.0)  # the second way leaves the support here and there


def test_spare_slots_do_not_reach_the_slopes(generator):
    """As they would reach the density of the longest itself, the control."""
    target = polynomials()
    code, theta = points(target, 20, torch.float32, generator)
    for spare in (torch.nan, torch.inf, -torch.inf):
        x = torch.where(target.space.active(code), theta, spare).requires_grad_()
        target.log_joint(code, x).sum().backward()
        assert x.grad.isfinite().all()
        assert (x.grad[~target.space.active(code)] == 0).all()
    slots = target.space.active(code)
    density = target._densities.each[1]  # of the longest, given points of others as they are
    x = torch.where(slots, theta, torch.nan)
    assert (density.evaluate(x, None, False).log_prior == -torch.inf).equal(code[:, 0] != 1)


def test_only_what_is_alike_but_for_its_length_is_evaluated_at_once():
    assert polynomials()._densities.padded is not None

    def wrapped():
        return lambda p: polynomial(p)

    def with_other(name, prior):
        return lambda k: priors(k) | {name: prior(k)}

    others = {
        "it is not said": {"padded": False},
        "other numbers": {"priors": with_other("beta", lambda k: Normal(torch.zeros(k), 1.0 + k))},
        "other shares": {"priors": with_other("share", lambda k: Dirichlet(torch.ones(k + 1) * k))},
        "another kind": {
            "priors": with_other(
                "width",
                lambda k: (
                    Uniform(torch.zeros(k + 1), 1.0)
                    if k == 1
                    else Beta(torch.ones(k + 1), torch.ones(k + 1))
                ),
            )
        },
        "dependent": {
            "priors": with_other("beta", lambda k: MultivariateNormal(torch.zeros(k), torch.eye(k)))
        },
        "one event": {
            "priors": with_other("beta", lambda k: Independent(Normal(torch.zeros(k), 1.0), 1))
        },
        "of what is before": {
            "priors": with_other(
                "beta", lambda k: lambda p: Normal(torch.zeros(len(p["share"]), k), 1.0)
            )
        },
    }
    for why, options in others.items():
        assert polynomials(**options)._densities.padded is None, why
    models = [trj.Model(f"{k}", priors(k), wrapped(), padded=True) for k in (1, 2)]
    assert trj.Target(models)._densities.padded is None
    assert trj.problems.coal_mining(0, 3)._densities.padded is None  # k = 0 has no spacings


def test_a_promise_that_zeros_change_nothing_is_tried():
    def mean(p):
        return -p["beta"].mean(-1).square() - p["width"].sum(-1)

    with pytest.raises(
        TargetError, match="with zeros at the end of its vectors, which padded=True"
    ):
        polynomials(function=mean)
    assert polynomials(function=mean, padded=False).dim == 14  # the control


def test_what_overflows_far_out_is_forgiven_and_calls_are_counted(generator):
    def steep(p):
        return polynomial(p) + (p["beta"].abs().sum(-1) * 3).exp() * 0

    for target in (polynomials(function=steep), one_by_one(polynomials(function=steep))):
        code = target.space.enumerate()
        theta = torch.zeros(3, target.dim)
        theta[1, target.layout(code[1])["beta"][0]] = 60.0
        before = target.evaluations
        value = target.log_joint(code, theta)
        assert target.evaluations == before + 3
        assert (value == -torch.inf).tolist() == [False, True, False]
        assert int(target.overflows) == 1


def test_black_boxes_and_functions_of_one_point(generator):
    exact = polynomials()
    code, theta = points(exact, 5, torch.float32, generator)
    numbers = trj.BlackBox(
        lambda p: polynomial({k: torch.as_tensor(v) for k, v in p.items()}).numpy(), vectorized=True
    )

    def single(p):
        return polynomial({k: v[None] for k, v in p.items()})[0]

    for options in ({"function": numbers}, {"function": single, "vectorized": False}):
        target = polynomials(**options)
        assert target._densities.padded is not None
        assert torch.allclose(
            target.log_joint(code, theta), exact.log_joint(code, theta), rtol=1e-4, atol=1e-4
        )
