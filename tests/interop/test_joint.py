"""Joints on a reference: the densities that were given, whatever the reference, to the answer."""

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.distributions import Gamma, InverseGamma, MultivariateNormal, Normal, StudentT

import trjmcmc as trj
from tests.interop.conjugate import X, Y, agrees, log_joint
from trjmcmc.errors import BlackBoxError, NonFiniteError, ShapeError, TargetError
from trjmcmc.interop.reference import FittedT, VectorT
from trjmcmc.pilot.report import AuditReport, ModelAudit, by_audit
from trjmcmc.rng import seeded

DOUBLE = torch.float64


def joint(name, columns, reference=None):
    shapes = {"log_variance": (), "beta": (columns,)}
    return trj.Joint(name, shapes, log_joint(columns), reference)


def density(target, values, model=0):
    """Log joint of one model at named values, through coordinates."""
    theta = target.unconstrain(target.space.label(target.space.enumerate())[model], values)
    code = torch.full((len(theta), 1), model)
    return target.log_joint(code, theta)


def draws_of(columns, n=2000):
    """Rough posterior draws, a chain and a draw axis: shifted and too narrow on purpose."""
    rng = np.random.default_rng(3)
    x = X[:, :columns].numpy()
    centre = np.linalg.solve(x.T @ x + np.eye(columns), x.T @ Y.numpy())
    return {
        "log_variance": 0.2 * rng.standard_normal((4, n // 4)),
        "beta": centre + 0.2 + 0.1 * rng.standard_normal((4, n // 4, columns)),
    }


POOR = {
    "log_variance": Normal(-2.0, 1.0),
    "beta": lambda p: Normal(0.3 * p["log_variance"][:, None], torch.tensor([2.0, 3.0])),
}

REFERENCES = {
    "default": None,
    "fitted": draws_of(2),
    "one that depends on others": POOR,
    "far too wide": {"log_variance": StudentT(4.0, 0.0, 8.0), "beta": StudentT(4.0, 20.0, 30.0)},
}


def of_two(spec, columns):
    """A reference of two slopes cut to the columns there are."""
    if spec is REFERENCES["fitted"]:
        return draws_of(columns)
    if spec is POOR and columns == 1:
        return {**POOR, "beta": lambda p: Normal(p["log_variance"][:, None], 2.0)}
    return spec


@pytest.mark.parametrize("reference", REFERENCES.values(), ids=REFERENCES)
@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE], ids=str)
def test_the_density_is_the_joint_whatever_the_reference(reference, dtype):
    target = trj.Target([joint("two", 2, reference)], dtype=dtype)
    n = 50
    values = {
        "log_variance": torch.randn(n, dtype=dtype, generator=torch.Generator().manual_seed(1))
    }
    values["beta"] = 3 * values["log_variance"][:, None] + torch.arange(2.0, dtype=dtype)
    expected = log_joint(2)({k: v.double() for k, v in values.items()})
    got = density(target, values)
    assert got.dtype == dtype
    torch.testing.assert_close(
        got.double(), expected, rtol=1e-9 if dtype == DOUBLE else 1e-5, atol=0
    )


def test_gradients_are_the_joints():
    target = trj.Target([joint("two", 2, REFERENCES["fitted"])], dtype=DOUBLE)
    theta = torch.linspace(-1, 1, 15, dtype=DOUBLE).reshape(5, 3)
    code = torch.zeros(5, 1, dtype=torch.long)
    gradient = target.log_joint_and_grad(code, theta)[1]
    h = 1e-5
    for slot in range(3):
        step = torch.zeros(3, dtype=DOUBLE)
        step[slot] = h
        slope = (target.log_joint(code, theta + step) - target.log_joint(code, theta - step)) / (
            2 * h
        )
        torch.testing.assert_close(gradient[:, slot], slope, rtol=1e-6, atol=1e-6)


def test_at_power_0_it_is_the_reference():
    """Negative control: without the quotient it would be the reference times the joint."""
    target = trj.Target([joint("two", 2)], dtype=DOUBLE)
    theta = torch.tensor([[0.3, -1.0, 2.0]], dtype=DOUBLE)
    code = torch.zeros(1, 1, dtype=torch.long)
    value, _ = target.log_joint_and_grad(code, theta, temper=0.0)
    t = StudentT(torch.tensor(4.0, dtype=DOUBLE), 0.0, 2.0)
    torch.testing.assert_close(value, t.log_prob(theta).sum(-1))
    log_prior, log_likelihood = target.log_prior_and_likelihood(code, theta)
    values = target.constrain(code[0], theta)
    torch.testing.assert_close(log_likelihood, log_joint(2)(values) - log_prior)


def check_conjugate(reference):
    models = [joint(name, k, of_two(reference, k)) for name, k in (("one", 1), ("two", 2))]
    target = trj.Target(models, dtype=DOUBLE)
    result = trj.TRJSampler(target, seed=1).run(draws=200, chains=128, progress=False)
    agrees(result)


def test_conjugate_pair():
    check_conjugate(None)


@pytest.mark.whole
@pytest.mark.planned
@pytest.mark.parametrize("name", ["fitted", "one that depends on others", "far too wide"])
def test_conjugate_pair_on_other_references(name):
    """Evidences and p(model) are known, and right for poor references too."""
    check_conjugate(REFERENCES[name])


@pytest.mark.whole
def test_joints_beside_models_with_bounds_and_without_parameters():
    """Shares are 2 : 2 : 2 : 1, and the first two are the same posterior in one slot."""

    def log_likelihood(p):
        return -0.5 * ((p["x"] - 1.0) / 0.1).square() + math.log(c)

    c = 2.0 / (0.1 * math.exp(-0.5 / 1.01) / math.sqrt(1.01))  # so that its evidence is 2
    prior = Normal(0.0, 1.0)
    models = [
        trj.Model("split", {"x": prior}, log_likelihood),
        trj.Joint("whole", {"x": ()}, lambda p: log_likelihood(p) + prior.log_prob(p["x"])),
        trj.Joint(
            "half", {"x": ()}, lambda p: torch.where(p["x"] > 0, math.log(2) - p["x"], -math.inf)
        ),
        trj.Joint("none", {}, lambda p: torch.zeros(())),
    ]
    target = trj.Target(models, dtype=DOUBLE)
    assert target.dim == 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", trj.errors.TRJWarning)
        result = trj.TRJSampler(target, seed=2).run(draws=100, chains=128, progress=False)
        table = result.model_probabilities(full=True)
        again = result.reweight([0.5, 0.5, 0.0, 0.0]).model_probabilities()
    for name, share in (("split", 2), ("whole", 2), ("half", 2), ("none", 1)):
        p, se = table.loc[name, ["combined", "combined_se"]]
        assert se < 0.02 and abs(p - share / 7) < 4.5 * se
    assert abs(again.loc["split", "probability"] - 0.5) < 4.5 * again.loc["split", "se"]
    with pytest.raises(TargetError, match="joint density on a reference"):
        result.reweight(priors={"x": Normal(0.0, 0.5)})


def test_a_pilot_run_speaks_of_the_reference():
    nowhere = trj.Joint("nowhere", {"x": ()}, lambda p: p["x"] * 0 - math.inf)
    target = trj.Target([nowhere], dtype=DOUBLE)
    with pytest.raises(trj.errors.ConvergenceWarning, match=r"none of \d+ reference draws"):
        trj.TRJSampler(target, seed=1).fit(pilot=True)
    code = torch.zeros(1, dtype=torch.long)
    assert target.start_of(code) == "reference"
    audited = ModelAudit("m", 0.0, 0.1, 0.0, 0.0, 0.1, 1.0, 0.0, 1, True, 2.0, "reference")
    found = by_audit(target.space, AuditReport((replace(audited, model="nowhere"),)))
    assert found["nowhere"].warning == "rests on 2.0 draws of the reference"


def nan_below(edge):
    def log_joint(p):
        return torch.where(p["x"] < edge, math.nan, -p["x"].square())

    return trj.Joint("nan", {"x": ()}, log_joint)


def test_nan_is_an_error_that_names_the_joint_and_far_out_it_is_impossible():
    with pytest.raises(NonFiniteError, match=r"-inf from log_joint where a point is impossible"):
        trj.Target([nan_below(1.0)])
    target = trj.Target([nan_below(-60.0)], dtype=DOUBLE)
    theta = torch.tensor([[-61.0], [-59.0]], dtype=DOUBLE)
    got = target.log_joint(torch.zeros(2, 1, dtype=torch.long), theta)
    assert got[0] == -math.inf and got[1] == -(59.0**2) and int(target.account.overflows) == 1


def test_scales_beyond_single_precision_do_not_end_a_run():
    """Variances as exp(x), where a reference with long tails draws x of -100."""
    y = torch.tensor([0.3, -0.2, 1.0])

    def log_joint(p):
        sd = (0.5 * p["x"]).exp()[:, None]
        return Normal(0.0, sd).log_prob(y).sum(-1) + Normal(0.0, 1.0).log_prob(p["x"])

    target = trj.Target([trj.Joint("scale", {"x": ()}, log_joint)])
    theta = torch.tensor([[-300.0], [300.0], [0.0]])
    got = target.log_joint(torch.zeros(3, 1, dtype=torch.long), theta)
    assert not got.isnan().any() and got[2].isfinite()


@pytest.mark.parametrize("gradients", [False, True])
def test_foreign_joints(gradients):
    def value(p):
        v = -0.5 * np.sum((p["x"] - 1.0) ** 2) - math.log(2 * math.pi)
        return (v, {"x": 1.0 - p["x"]}) if gradients else v

    wrapped = trj.with_gradient(value) if gradients else trj.BlackBox(value)
    target = trj.Target([trj.Joint("numpy", {"x": 2}, wrapped)], dtype=DOUBLE)
    assert target.differentiable is gradients
    theta = torch.tensor([[0.0, 3.0], [1.0, 1.0]], dtype=DOUBLE)
    code = torch.zeros(2, 1, dtype=torch.long)
    before = target.account.evaluations
    got = target.log_joint(code, theta)
    assert target.account.evaluations == before + 2
    torch.testing.assert_close(got, torch.tensor([-2.5, 0.0], dtype=DOUBLE) - math.log(2 * math.pi))
    if gradients:
        torch.testing.assert_close(target.log_joint_and_grad(code, theta)[1], 1.0 - theta)


def test_one_point_at_a_time():
    one = trj.Joint("one", {"x": 2}, lambda p: -p["x"].square().sum(), vectorized=False)
    target = trj.Target([one], dtype=DOUBLE)
    assert density(target, {"x": torch.ones(3, 2)}).tolist() == [-2.0] * 3


@pytest.mark.whole
def test_a_density_without_a_finite_integral_is_doubted():
    """Flat in one direction: weights explode, however long the tails of the reference."""
    flat = trj.Joint("flat", {"x": 2}, lambda p: -0.5 * p["x"][:, 0].square())
    target = trj.Target([flat, trj.Joint("none", {}, lambda p: torch.zeros(()))], dtype=DOUBLE)
    with pytest.warns(trj.errors.TRJWarning):
        trj.TRJSampler(target, seed=5).run(draws=50, chains=32, progress=False)


def test_the_fitted_reference_is_the_student_t_of_all_parameters():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((500, 4)) @ np.array(
        [[1, 0.5, 0, 0], [0, 1, 0.9, 0], [0, 0, 1, 0], [0.3, 0, 0, 2]]
    )
    shapes = {"a": (), "b": (2,), "c": (1,)}
    draws = {"a": x[:, 0], "b": x[:, 1:3], "c": x[:, 3:]}
    fitted = FittedT({k: torch.as_tensor(v) for k, v in draws.items()}, shapes)
    priors = fitted.priors()
    one = torch.ones((), dtype=DOUBLE)
    whole = VectorT(4.0, fitted.loc, fitted.tril, one, (4,))
    with seeded(0):
        point = whole.sample((20_000,))
        params, total = {}, 0.0
        for name in shapes:
            of = priors[name] if not callable(priors[name]) else priors[name](params)
            params[name] = of.sample((20_000,)) if name == "a" else of.sample()
            total = total + of.log_prob(params[name])
    stacked = torch.cat([params["a"][:, None], params["b"], params["c"]], 1)
    torch.testing.assert_close(total, whole.log_prob(stacked), rtol=1e-10, atol=1e-10)
    # heavy tails: compare ranks, by the share of each coordinate beyond a point of the other sample
    for i in range(4):
        edge = point[:, i].quantile(0.9)
        share = float((stacked[:, i] > edge).double().mean())
        assert abs(share - 0.1) < 4.5 * math.sqrt(2 * 0.09 / 20_000)
    torch.testing.assert_close(
        VectorT(4.0, torch.zeros(1), torch.full((1, 1), 2.0), torch.ones(()), ()).log_prob(
            torch.tensor([0.3, -5.0])
        ),
        StudentT(4.0, 0.0, 2.0).log_prob(torch.tensor([0.3, -5.0])),
    )


X2 = {"x": 2}


@pytest.mark.parametrize(
    ("shapes", "reference", "words"),
    [
        (X2, {"x": Gamma(1.0, 1.0)}, "whole line"),
        (X2, {"x": InverseGamma(1.0, 1.0)}, "whole line"),
        (X2, {"y": Normal(0.0, 1.0)}, r"expected the parameters \['x'\], got \['y'\]"),
        (
            X2,
            MultivariateNormal(torch.zeros(3), torch.eye(3)),
            r"expected shape \(2,\), got \(3,\)",
        ),
        (X2, np.zeros((7, 3)), "expected a distribution, or draws"),
        (X2, np.zeros((7, 2)), "never change"),
        (X2, np.zeros((3, 2)), "too few"),
        (X2, np.full((7, 2), np.nan), "NaN"),
        ({"x": 2, "y": ()}, np.zeros((7, 3)), "dict by parameter"),
        ({"x": (), "y": ()}, {"x": np.zeros(7), "y": np.zeros(8)}, "as many draws"),
        ([2], None, "dict of shapes"),
    ],
)
def test_wrong_statements_are_refused(shapes, reference, words):
    with pytest.raises(TargetError, match=words):
        trj.Joint("wrong", shapes, lambda p: -p["x"].square().sum(-1), reference)


def test_mistakes_in_the_function_name_it():
    for function, error, words in [
        (lambda p: p["z"], TargetError, "log_joint of model 'bad' failed"),
        (lambda p: p["x"].sum(), ShapeError, "log_joint of model 'bad': expected a tensor"),
        (
            lambda p: p["x"][:, 0].sum() + p["x"][:, 0],
            ShapeError,
            "log_joint of model 'bad': point",
        ),
    ]:
        with pytest.raises(error, match=words):
            trj.Target([trj.Joint("bad", X2, function, check=False)])
    with pytest.raises(BlackBoxError, match="log_joint of model 'bad'"):
        trj.Target([trj.Joint("bad", X2, trj.BlackBox(lambda p: 1 / 0))])
    with pytest.raises(TargetError, match="expected a function"):
        trj.Joint("bad", X2, None)


def test_names_of_another_shape_are_told_apart():
    """And mean the same joint; black boxes are refused."""
    flat = trj.Joint("a", {"x": ()}, lambda p: -(p["x"] ** 2))
    other = trj.Joint("b", X2, lambda p: -p["x"].square().sum(-1), dims={"x": ("k",)})
    target = trj.Target([flat, other], dtype=DOUBLE)
    assert target.slot_names == ["x", "x_b[0]", "x_b[1]"]
    theta = torch.tensor([[0.0, 1.0, 2.0]], dtype=DOUBLE)
    assert float(target.log_joint(torch.ones(1, 1).long(), theta)) == pytest.approx(
        -math.log(2) - 5
    )
    model = target.models[1]
    assert model.on_reference and model.own_names == {"x_b": "x"} and model.dims["x_b"] == ("k",)
    assert list(other.renamed({"x": "y"}).renamed({"y": "z"}).priors) == ["z"]
    with pytest.raises(TargetError, match=r"rename: no parameter \['w'\]"):
        other.renamed({"w": "z"})
    with pytest.raises(TargetError, match="another name"):
        trj.Target([flat, trj.Joint("b", X2, trj.BlackBox(lambda p: -float(p["x"] @ p["x"])))])


# ---- what is tried at construction -------------------------------------------------------------


def test_joints_that_mix_the_points_of_a_batch_are_refused():
    with pytest.raises(TargetError, match=r"log joint of model 'm': point \d .*mixes the points"):
        trj.Joint("m", X2, lambda p: -p["x"].square().sum(-1) - 1e-3 * p["x"].mean())


class Twice(torch.autograd.Function):
    """A function whose gradient is twice what it should be."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, outer):
        return 2 * outer


def gradient(factor):
    return lambda p: (-0.5 * np.sum((p["x"] - 1.0) ** 2), {"x": factor * (1.0 - p["x"])})


WRONG = {
    "torch": lambda p: -0.5 * Twice.apply(p["x"]).square().sum(-1),
    "NumPy": trj.with_gradient(gradient(2.0)),
}


@pytest.mark.parametrize("name", WRONG)
def test_joints_with_wrong_gradients_are_refused(name):
    with pytest.raises(TargetError, match=r"gradient of the log joint of model 'm' is .*BlackBox"):
        trj.Joint("m", X2, WRONG[name])
    trj.Joint("m", X2, WRONG[name], check=False)


def test_joints_in_another_precision_than_they_state_are_refused():
    with pytest.raises(TargetError, match=r"computes in torch.float32, not in torch.float64"):
        trj.Joint("m", X2, lambda p: -p["x"].square().sum(-1).float(), dtype=DOUBLE)


def singly(p):
    return -0.5 * p["x"].float().square().sum(-1)


def in_single_inside(p):
    return (-0.5 * (p["x"].float() - 3.0).square()).sum(-1).to(p["x"])


@pytest.mark.parametrize(
    "function",
    [singly, in_single_inside, trj.with_gradient(gradient(1.0))],
    ids=["one by one", "single precision inside", "NumPy"],
)
def test_right_joints_pass_whatever_they_compute_in(function):
    """Negative control of the refusals above: rounding in single precision is no wrong gradient."""
    trj.Joint("m", X2, function)


def test_black_boxes_are_not_called_before_they_must_be():
    calls = []

    def slow(p):
        calls.append(1)
        return -float(np.sum(p["x"] ** 2))

    trj.Joint("m", X2, trj.BlackBox(slow))
    assert not calls
