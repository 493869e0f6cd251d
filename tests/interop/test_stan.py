"""Models in Stan, through a class with BridgeStan's methods; the real one where it compiles."""

import inspect
import math
import runpy
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.distributions import Dirichlet, HalfNormal, Normal, Uniform

import trjmcmc as trj
from tests.interop import stand_in
from tests.interop.conjugate import X, Y
from tests.interop.languages import ONE, by_torch, in_torch, priors, program
from tests.interop.stand_in import DOUBLE, PROGRAMS, Bounded, Lower, Program, Real, Simplex, StandIn
from trjmcmc.errors import ConfigurationError, TargetError
from trjmcmc.interop.stan_program import Layout

EXAMPLE = Path(__file__).parents[2] / "examples" / "stan_prior_only.py"


def normal(x, mu, sigma):
    return Normal(mu, sigma).log_prob(x).sum()


def native(k):
    return in_torch("torch", k)


def points(target, n=20):
    return torch.randn(n, target.dim, generator=torch.Generator().manual_seed(1), dtype=DOUBLE)


def same_density(one, other):
    """Joint, parts and gradients of two models agree to 1e-8."""
    target = trj.Target([one, other])
    theta = points(target)
    code = torch.zeros(len(theta), 1, dtype=torch.long)
    for temper in (1.0, 0.3):
        pairs = (target.log_joint_and_grad(code + i, theta, temper=temper) for i in range(2))
        for a, b in zip(*pairs, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)
    parts = (target.log_prior_and_likelihood(code + i, theta) for i in range(2))
    for a, b in zip(*parts, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)


def test_prior_and_likelihood_are_those_of_torch():
    model = trj.from_stan("stan", program(2), priors(2))
    assert abs(model.prior_constant) < 1e-9
    same_density(model, native(2))
    same_density(
        trj.from_stan(
            "stan",
            program(2),
            priors(2),
            StandIn(
                "regression2.stan", program(2).data.replace('"prior_only": 0', '"prior_only": 1')
            ),
        ),
        native(2),
    )


def test_the_stand_in_by_hand_is_the_one_by_torch():
    model = program(2)
    u = np.array([0.3, -0.5, 1.0])
    fast = [model.log_density_gradient(u, propto=False, jacobian=j) for j in (False, True)]
    model.program = Program(model.program.parameters, by_torch)
    slow = [model.log_density_gradient(u, propto=False, jacobian=j) for j in (False, True)]
    for (a, b), (c, d) in zip(fast, slow, strict=True):
        np.testing.assert_allclose(a, c, rtol=1e-12)
        np.testing.assert_allclose(b, d, rtol=1e-10)


def scales(values, data):
    """``real<lower=0> s; s ~ normal(0, 1); ordered[3] c; c ~ normal(0, 2);``: no ln 2, no ln 3!"""
    s, c, a = values["s"], values["c"], values["a"]
    found = normal(s, 0.0, 1.0) + normal(c, 0.0, 2.0) - 4 * math.log(3)
    if not data["prior_only"]:
        found = found + normal(torch.tensor([0.3, 1.0], dtype=DOUBLE), c[:2] + a.sum(), s)
    return found


PROGRAMS["scales.stan"] = Program(
    {"s": Lower(), "c": stand_in.Ordered(3), "a": Bounded(2, 2)}, scales
)

SCALES = ("scales.stan", '{"prior_only": 0}')

SCALE_PRIORS = {
    "s": HalfNormal(ONE),
    "c": trj.Ordered(Normal(0 * ONE, 2 * ONE), 3),
    "a": Uniform(-ONE.expand(2, 2), 2 * ONE),
}


def test_constants_that_stan_leaves_out_cancel():
    """By declaration ln 2 is missing, for ordered vectors ln 3!: in no evidence here."""
    model = trj.from_stan("stan", StandIn(*SCALES), SCALE_PRIORS)
    assert abs(model.prior_constant + math.log(2) + math.log(6)) < 1e-7

    def log_likelihood(p):
        mean = p["c"][:, :2] + p["a"].sum((-1, -2))[:, None]
        data = torch.tensor([0.3, 1.0], dtype=DOUBLE)
        return Normal(mean, p["s"][:, None]).log_prob(data).sum(-1)

    same_density(model, trj.Model("torch", SCALE_PRIORS, log_likelihood, dtype=DOUBLE))


def shares(values, data):
    found = Dirichlet(torch.tensor([1.0, 2.0, 3.0], dtype=DOUBLE)).log_prob(values["p"])
    if not data.get("prior_only"):
        found = found + (torch.tensor([2.0, 3.0, 5.0], dtype=DOUBLE) * values["p"].log()).sum()
    return found


PROGRAMS["shares.stan"] = Program({"p": Simplex(3)}, shares)


def beta_function(alpha):
    return sum(map(math.lgamma, alpha)) - math.lgamma(sum(alpha))


def test_simplexes_go_by_the_joint():
    model = StandIn("shares.stan", '{"prior_only": 0}')
    with pytest.raises(TargetError, match=r"simplexes are.*stan_joint"):
        trj.from_stan("m", model, {"p": Dirichlet(torch.tensor([1.0, 2.0, 3.0], dtype=DOUBLE))})
    joint = trj.interop.stan_joint("m", model)
    assert list(joint.priors) == ["p_unc"]
    target = trj.Target([joint])
    grid = torch.linspace(-14.0, 14.0, 81, dtype=DOUBLE)
    theta = torch.cartesian_prod(grid, grid)
    log_joint = target.log_joint(torch.zeros(len(theta), 1, dtype=torch.long), theta)
    found = float(log_joint.logsumexp(0)) + 2 * math.log(float(grid[1] - grid[0]))
    exact = beta_function([3.0, 5.0, 8.0]) - beta_function([1.0, 2.0, 3.0])
    assert abs(found - exact) < 1e-6


def test_a_joint_is_the_program_in_its_own_coordinates():
    draws = {"variance": np.full(50, 0.5), "beta": np.zeros((50, 2))}
    rng = np.random.default_rng(0)
    draws = {k: v + 0.1 * rng.random(v.shape) for k, v in draws.items()}
    joint = trj.interop.stan_joint(
        "joint", program(2), draws, rename={"variance_unc": "log_variance"}
    )
    assert list(joint.priors) == ["log_variance", "beta"]
    there = joint.coordinates(draws)
    np.testing.assert_allclose(there["log_variance"], np.log(draws["variance"]))
    target, other = trj.Target([joint]), trj.Target([native(2)])
    theta = points(target)
    code = torch.zeros(len(theta), 1, dtype=torch.long)
    pairs = (t.log_joint_and_grad(code, theta) for t in (target, other))
    for a, b in zip(*pairs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)


class Fake:
    def __init__(self, **draws):
        self.values = draws

    def draws(self, label):
        return self.values


def test_generated_quantities_are_predictions():
    beta = np.array([[1.0, 2.0], [10.0, 20.0]])
    model = trj.from_stan("m", program(2), priors(2), rename={"beta": "slope"})

    def predicted(model, **draws):
        found = model.predict(Fake(**draws), seed=1).posterior_predictive
        return {k: v.values[0] for k, v in found.data_vars.items()}

    found = predicted(model, variance=np.ones(2), slope=beta)
    assert found["y_new"].shape == (2, 2, 3) and list(found) == ["y_new"]
    mean = found["y_new"].mean((1, 2))
    assert abs(mean[0] - 3.0) < 5 / math.sqrt(6) and abs(mean[1] - 30.0) < 5 / math.sqrt(6)
    again = predicted(model, variance=np.ones(2), slope=beta)
    assert np.array_equal(found["y_new"], again["y_new"])
    joint = trj.interop.stan_joint("j", program(2))
    other = predicted(joint, variance_unc=np.zeros(2), beta=beta)
    np.testing.assert_allclose(other["y_new"], found["y_new"])
    np.testing.assert_allclose(other["variance"], 1.0)
    with pytest.raises(ConfigurationError, match="bring draws of your own"):
        model.pilot()


def rejecting(values, data):
    if values["x"] > 0:
        raise RuntimeError("normal_lpdf: Scale parameter is -1, but must be positive!")
    return normal(values["x"], 0.0, 1.0)


PROGRAMS["rejecting.stan"] = Program({"x": Real()}, rejecting)


def test_points_that_stan_rejects_are_impossible():
    target = trj.Target([trj.interop.stan_joint("m", StandIn("rejecting.stan"))])
    theta = torch.tensor([[1.0], [-1.0]], dtype=DOUBLE)
    got, slope = target.log_joint_and_grad(torch.zeros(2, 1, dtype=torch.long), theta)
    assert got[0] == -math.inf and abs(float(got[1]) + 0.5 + 0.5 * math.log(2 * math.pi)) < 1e-12
    assert slope.isfinite().all()


def twice(u, data, jacobian):
    """A density with twice its gradient."""
    return -0.5 * float(u @ u), -2 * u


PROGRAMS["twice.stan"] = Program({"x": Real(3)}, None, fast=twice)


def test_wrong_gradients_of_a_program_are_refused():
    with pytest.raises(TargetError, match=r"gradient of the log joint of model 'm'.*; Stan diff"):
        trj.interop.stan_joint("m", StandIn("twice.stan"))
    with pytest.raises(TargetError, match=r"gradient of the log likelihood of model 'm'.*; Stan"):
        trj.from_stan(
            "m", StandIn("twice.stan"), {"x": Normal(torch.zeros(3).double(), 1.0)}, StandIn(FLAT)
        )


FLAT = "flat.stan"

PROGRAMS[FLAT] = Program(
    {"x": Real(3)}, None, fast=lambda u, data, jacobian: (-0.5 * float(u @ u), 0.0 * u)
)


def without_a_prior(values, data):
    """``parameters { real mu; real<lower=0> s; } model { s ~ normal(0, 1); ... }``"""
    found = normal(values["s"], 0.0, 1.0)
    return found if data["prior_only"] else found + normal(Y, values["mu"], values["s"])


PROGRAMS["improper.stan"] = Program({"mu": Real(), "s": Lower()}, without_a_prior)


def always(values, data):
    if not data["prior_only"]:
        raise RuntimeError("Exception: mismatch in number dimensions")
    return normal(values["x"], 0.0, 1.0)


PROGRAMS["always.stan"] = Program({"x": Real()}, always)

PROGRAMS["none.stan"] = Program({}, lambda values, data: torch.tensor(-1.5, dtype=DOUBLE))


def test_a_program_without_parameters():
    model = trj.from_stan("none", StandIn("none.stan", '{"prior_only": 0}'), {})
    joint = trj.interop.stan_joint("joint", StandIn("none.stan"))
    target = trj.Target([model, joint])
    code = torch.tensor([[0], [1]])
    got = target.log_joint(code, torch.zeros(2, 0, dtype=DOUBLE)) + math.log(2)
    assert got.tolist() == pytest.approx([0.0, -1.5])  # as likelihood: full minus priors alone


def other_package(module):
    return type("Model", (), {"__module__": module, "log_prob": None})()


WIDE = {**priors(2), "beta": Normal(torch.zeros(2, dtype=DOUBLE), 3.0)}

TRAPS = {
    "PyStan": (other_package("stan.model"), priors(2), "PyStan: it drops the constants"),
    "CmdStanPy": (other_package("cmdstanpy.model"), priors(2), "CmdStanPy: it drops the constants"),
    "something else": (3, priors(2), r"expected a bridgestan.StanModel, or \(path"),
    "no prior_only": (
        StandIn("regression2.stan", f'{{"x": {X.tolist()}}}'),
        priors(2),
        r"no data 'prior_only'. Declare `int<lower=0, upper=1> prior_only;`",
    ),
    "other names": (program(2), {"beta": WIDE["beta"]}, "expected a prior of each of Stan's"),
    "other shapes": (program(1), priors(2), r"'beta' has shape \(1,\) in Stan and \(2,\)"),
    "other priors": (program(2), WIDE, "the priors are not those of the program"),
    "improper": (
        StandIn("improper.stan", '{"prior_only": 0}'),
        {"mu": Normal(0 * ONE, 5 * ONE), "s": HalfNormal(ONE)},
        r"not those of the program.*does not depend on \['mu'\]: a parameter without a prior is",
    ),
    "other support": (
        program(2),
        {**priors(2), "variance": Normal(ONE * 5, ONE)},
        "constraint that Stan declares is another|Stan refuses a draw",
    ),
    "nothing possible": (
        StandIn("always.stan", '{"prior_only": 0}'),
        {"x": Normal(0 * ONE, ONE)},
        "none of 5 prior draws has a finite likelihood: Stan says Exception: mismatch",
    ),
}


@pytest.mark.parametrize("trap", TRAPS.values(), ids=TRAPS)
def test_what_would_be_wrong_is_refused(trap):
    model, stated, words = trap
    with pytest.raises(TargetError, match=words):
        trj.from_stan("m", model, stated)


def test_paths_need_bridgestan(monkeypatch):
    monkeypatch.setitem(sys.modules, "bridgestan", None)
    with pytest.raises(ConfigurationError, match=r"trjmcmc\[stan\]"):
        trj.from_stan("m", ("regression2.stan", {}), priors(2))

    def fails(*args, **kwargs):
        raise RuntimeError("make failed")

    for make, error, words in (
        (StandIn, None, None),
        (fails, ConfigurationError, r"could not open regression2.stan: make failed.*github.com"),
    ):
        fake = types.ModuleType("bridgestan")
        fake.StanModel = make
        monkeypatch.setitem(sys.modules, "bridgestan", fake)
        data = {"x": X, "prior_only": 0}
        if error is None:
            same_density(trj.from_stan("m", ("regression2.stan", data), priors(2)), native(2))
        else:
            with pytest.raises(error, match=words):
                trj.from_stan("m", ("regression2.stan", data), priors(2))


def test_draws_of_other_names_are_refused():
    joint = trj.interop.stan_joint("m", program(2))
    with pytest.raises(TargetError, match=r"draws lack \['beta'\]"):
        joint.coordinates({"variance": np.ones(3)})


def test_every_constant_is_kept():
    """Negative control: with ``propto=True`` the stand-in is 27 nats off."""
    u = np.zeros(3)
    model = program(2)
    gap = model.log_density(u) - model.log_density(u, propto=False)
    assert gap == 27.0
    target = trj.Target([trj.interop.stan_joint("m", model)])
    got = target.log_joint(torch.zeros(1, 1, dtype=torch.long), torch.zeros(1, 3, dtype=DOUBLE))
    assert float(got) == pytest.approx(model.log_density(u, propto=False))


def test_layouts_are_those_of_columns():
    x = np.arange(24.0).reshape(1, 2, 3, 4)
    names = StandIn._indexed("x", (2, 3, 4))
    assert names[:3] == ["x.1.1.1", "x.2.1.1", "x.1.2.1"]
    layout = Layout(names)
    flat = layout.flat({"x": x})
    assert np.array_equal(flat[0], x[0].flatten(order="F"))
    assert np.array_equal(layout.split(flat)["x"], x)


USED = [
    "param_names", "param_unc_names", "param_unc_num", "param_num", "name", "log_density",
    "log_density_gradient", "param_constrain", "param_unconstrain", "new_rng",
]  # fmt: skip


def test_the_stand_in_has_bridgestans_signatures():
    bridgestan = pytest.importorskip("bridgestan")
    for method in USED:
        real = inspect.signature(getattr(bridgestan.StanModel, method)).parameters
        ours = inspect.signature(getattr(StandIn, method)).parameters
        assert list(real) == list(ours), method
        for name in real:
            assert (real[name].kind, real[name].default) == (ours[name].kind, ours[name].default)
    real = inspect.signature(bridgestan.StanModel.__init__).parameters
    assert {"model_lib", "data", "seed", "warn"} <= set(real)


STAN = """
data { int<lower=0, upper=1> prior_only; int n; int k; matrix[n, k] x; vector[n] y; }
parameters { real<lower=0> variance; vector[k] beta; }
model {
  variance ~ inv_gamma(3, 2);
  beta ~ normal(0, sqrt(variance));
  if (!prior_only) y ~ normal(x * beta, sqrt(variance));
}
"""


def measured(values, data):
    found = normal(values["sigma"], 0.0, 1.0)
    mean = values.get("mu", torch.zeros((), dtype=DOUBLE))
    found = found + normal(mean, 0.0, 1.0) * ("mu" in values)
    if not data["prior_only"]:
        found = found + normal(torch.tensor(data["y"], dtype=DOUBLE), mean, values["sigma"])
    return found


def test_the_example(tmp_path, monkeypatch, capsys):
    module = runpy.run_path(str(EXAMPLE))
    monkeypatch.setitem(sys.modules, "bridgestan", None)
    monkeypatch.setattr(sys, "argv", ["stan_prior_only.py"])
    module["main"]()
    assert "pip install 'trjmcmc[stan]'" in capsys.readouterr().out
    fake = types.ModuleType("bridgestan")
    fake.StanModel = StandIn
    monkeypatch.setitem(sys.modules, "bridgestan", fake)
    for name, parameters in (
        ("zero", {"sigma": Lower()}),
        ("free", {"mu": Real(), "sigma": Lower()}),
    ):
        monkeypatch.setitem(PROGRAMS, str(tmp_path / f"{name}.stan"), Program(parameters, measured))
    for model in module["models"](tmp_path):
        assert abs(model.prior_constant + math.log(2)) < 1e-7


def test_real_bridgestan(tmp_path):
    pytest.importorskip("bridgestan")
    path = tmp_path / "regression.stan"
    path.write_text(STAN)
    data = {"n": len(Y), "k": 2, "x": X, "y": Y, "prior_only": 0}
    try:
        model = trj.from_stan("stan", (path, data), priors(2))
    except ConfigurationError as error:
        pytest.skip(str(error))
    same_density(model, native(2))
