import math
import warnings

import pytest
import torch
from scipy import stats
from torch.distributions import (
    AffineTransform,
    Bernoulli,
    Beta,
    Cauchy,
    Dirichlet,
    Distribution,
    Exponential,
    ExpTransform,
    Gamma,
    HalfCauchy,
    HalfNormal,
    Independent,
    InverseGamma,
    LKJCholesky,
    LogNormal,
    MultivariateNormal,
    Normal,
    Pareto,
    StudentT,
    TransformedDistribution,
    Uniform,
    constraints,
)

import trjmcmc as trj
from tests import toys
from trjmcmc import grouping
from trjmcmc.errors import BudgetError, NonFiniteError, ShapeError, TargetError, TRJWarning
from trjmcmc.target.exchangeable import components_of
from trjmcmc.target.tempered import Tempered

PRIORS = {
    "real": Normal(1.0, 2.0),
    "heavy real": Cauchy(0.0, 3.0),
    "positive": Gamma(2.0, 3.0),
    "half line": HalfCauchy(2.0),
    "inverse gamma": InverseGamma(3.0, 2.0),
    "from one upwards": Pareto(1.0, 3.0),
    "interval": Uniform(-1.0, 4.0),
    "unit": Beta(2.0, 3.0),
    "log normal": LogNormal(0.0, 1.0),
    "vector": Normal(torch.zeros(3), torch.tensor([1.0, 2.0, 3.0])),
    "matrix": Exponential(1.0).expand(torch.Size([2, 2])),
    "correlated": MultivariateNormal(torch.zeros(2), torch.tensor([[1.0, 0.9], [0.9, 1.0]])),
    "independent": Independent(StudentT(4.0, torch.zeros(2), 1.0), 1),
    "simplex": Dirichlet(torch.tensor([2.0, 3.0, 4.0])),
    "correlation": LKJCholesky(3, 2.0),
    "ordered": trj.Ordered(Uniform(0.0, 2.0), 3),
    "ordered positive": trj.Ordered(Gamma(2.0, 1.0), 2),
}


def prior_only(prior):
    return trj.Target([trj.Model("m", {"x": prior}, lambda p: torch.zeros(len(p["x"])))])


@pytest.mark.parametrize("name", PRIORS)
def test_every_support_round_trips_and_carries_its_jacobian(name, generator):
    prior = PRIORS[name]
    target = prior_only(prior).to(dtype=torch.float64)
    code = torch.zeros(6, 1, dtype=torch.long)
    theta = 0.7 * torch.randn(6, target.dim, generator=generator, dtype=torch.float64)
    values = target.constrain(code[0], theta)
    assert values["x"].shape == (6, *prior.batch_shape, *prior.event_shape)
    assert torch.allclose(target.unconstrain("m", values), theta, atol=1e-6)
    # independent Jacobian: autograd through a free set of entries of the constrained value
    for row in range(2):
        jacobian = torch.autograd.functional.jacobian(
            lambda t: target.constrain(code[0], t[None])["x"].flatten(), theta[row]
        )
        free = _independent_rows(jacobian, name)
        ladj = torch.linalg.slogdet(jacobian[free]).logabsdet
        density = target.constrain(code[0], theta[row : row + 1])["x"].to(torch.float64)
        expected = cast_to(prior).log_prob(density[0]).sum() + ladj
        got = target.log_joint(code[row : row + 1], theta[row : row + 1])[0]
        assert float(got) == pytest.approx(float(expected), abs=1e-4)


def cast_to(prior):
    return trj.target.support.cast_to(prior, torch.float64, torch.device("cpu"))


def _independent_rows(jacobian, name):
    """Entries that the density is with respect to, in order."""
    if name == "simplex":
        return [0, 1]
    if name == "correlation":
        return [3, 6, 7]  # strictly lower triangle of a 3 x 3 factor
    return list(range(jacobian.shape[0]))


@pytest.mark.parametrize("name", ["real", "positive", "interval", "unit", "inverse gamma"])
def test_one_dimensional_priors_integrate_to_one(name):
    target = prior_only(PRIORS[name]).to(dtype=torch.float64)
    grid = torch.linspace(-60, 60, 40_001, dtype=torch.float64)[:, None]
    log_joint = target.log_joint(torch.zeros(len(grid), 1, dtype=torch.long), grid)
    total = log_joint.logsumexp(0) + math.log(120 / 40_000)
    assert float(total) == pytest.approx(0, abs=1e-6)


def test_log_joint_against_scipy():
    y = torch.tensor([0.3, -1.0, 2.0])
    model = trj.Model(
        "m",
        {"mu": Normal(0.0, 2.0), "tau": Gamma(2.0, 3.0)},
        lambda p: Normal(p["mu"][:, None], p["tau"][:, None] ** -0.5).log_prob(y).sum(-1),
    )
    other = trj.Model("n", {}, lambda p: torch.tensor(-4.0))
    target = trj.Target([model, other], model_prior=[0.25, 0.75])
    theta = torch.tensor([[0.5, -0.2], [0.0, 0.0]])
    got = target.log_joint(torch.tensor([[0], [1]]), theta)
    tau = math.exp(-0.2)
    expected = (
        math.log(0.25)
        + stats.norm(0, 2).logpdf(0.5)
        + stats.gamma(2, scale=1 / 3).logpdf(tau)
        - 0.2
        + stats.norm(0.5, tau**-0.5).logpdf(y.numpy()).sum()
    )
    assert float(got[0]) == pytest.approx(expected, abs=1e-5)
    assert float(got[1]) == pytest.approx(math.log(0.75) - 4, abs=1e-6)


def test_the_large_form_equals_the_list_form(generator):
    shared = toys.conjugate_subsets()
    codes = shared.space.enumerate()
    theta = torch.randn(8, 3, generator=generator)
    likelihood = shared._densities.each[0].likelihood.function

    def one_model(code):
        on = code.bool()

        def log_likelihood(p):
            some = p["beta"] if on.any() else torch.zeros(1, 0)
            beta = torch.zeros(len(some), 3)
            beta[:, on] = some
            return likelihood({"beta": beta}, None)

        priors = {"beta": Normal(torch.zeros(int(on.sum())), 1.0)} if on.any() else {}
        return trj.Model(shared.space.label(code[None])[0], priors, log_likelihood)

    listed = trj.Target(
        [one_model(c) for c in codes], model_prior=trj.LogWeights(shared.space.log_prior(codes))
    )
    packed = torch.zeros(8, 3)
    for i, code in enumerate(codes):
        packed[i, : int(code.sum())] = theta[i, code.bool()]
    index = torch.arange(8)[:, None]
    assert torch.allclose(listed.log_joint(index, packed), shared.log_joint(codes, theta))


def test_unused_items_reach_neither_density_nor_likelihood(generator):
    target = toys.conjugate_subsets()
    codes = target.space.enumerate()
    theta = torch.randn(8, 3, generator=generator)
    noise = torch.where(target.space.active(codes), theta, 100.0)
    assert torch.equal(target.log_joint(codes, theta), target.log_joint(codes, noise))


def test_a_prior_may_depend_on_parameters_before_it(generator):
    target = trj.Target(
        [
            trj.Model(
                "m",
                {
                    "width": Gamma(3.0, 1.0),
                    "x": lambda p: Uniform(-p["width"], p["width"]),
                    "y": lambda p: Normal(p["x"][:, None].expand(-1, 2), 1.0),
                },
                lambda p: -p["y"].square().sum(-1),
            )
        ]
    )
    assert target.slot_names == ["width", "x", "y[0]", "y[1]"]
    code = torch.zeros(4000, 1, dtype=torch.long)
    values = target.constrain(code[0], target.sample_prior(code, generator))
    assert bool((values["x"].abs() <= values["width"]).all())
    back = target.unconstrain("m", values)
    assert torch.allclose(target.constrain(code[0], back)["x"], values["x"], atol=1e-4)


def test_per_item_priors_shared_by_item_and_depending_on_others(generator):
    space = trj.Subsets(["a", "b"], of=["beta", "pair"])
    priors = {
        "tau": Gamma(2.0, 2.0),
        "beta": lambda p: Normal(0.0, p["tau"][:, None]),
        "pair": Independent(Normal(torch.zeros(2), 1.0), 1),
        "noise": LogNormal(0.0, 1.0),
    }
    seen = {}

    def log_likelihood(params, active):
        seen.update({k: v.shape for k, v in params.items()})
        return -params["beta"].sum(-1).square() - params["pair"].sum((1, 2))

    target = trj.Target(space, priors, log_likelihood)
    assert target.dim == 1 + 2 + 4 + 1
    codes = space.enumerate()
    theta = target.sample_prior(codes, generator)
    assert bool(target.log_joint(codes, theta).isfinite().all())
    assert seen["beta"] == (4, 2)
    assert seen["pair"] == (4, 2, 2)
    values = target.constrain(codes[1], theta[1:2])
    assert values["beta"].shape == (1, 1)
    assert torch.allclose(target.unconstrain("a", values), theta[1:2], atol=1e-5)
    by_item = trj.Target(
        trj.Subsets(["a", "b"], of="beta"),
        {"beta": Normal(torch.tensor([0.0, 5.0]), 1.0)},
        lambda p, active: torch.zeros(len(active)),
    )
    lone = by_item.log_joint(torch.tensor([[0, 1]]), torch.tensor([[0.0, 5.0]]))
    assert float(lone) == pytest.approx(2 * math.log(0.5) - 0.5 * math.log(2 * math.pi), abs=1e-5)


def test_an_ordered_vector_has_n_factorial_times_the_density():
    draws = PRIORS["ordered"]
    value = torch.tensor([0.2, 0.3, 1.9])
    assert float(draws.log_prob(value)) == pytest.approx(math.log(6 / 8), abs=1e-6)
    assert float(draws.log_prob(value.flip(0))) == -math.inf
    with torch.random.fork_rng():
        assert bool((draws.sample((100,)).diff(dim=-1) >= 0).all())


def test_functions_of_one_point():
    y = torch.tensor([1.0, 2.0])

    def one_point(p):
        return Normal(p["mu"], 1.0).log_prob(y).sum()

    batched = trj.Model(
        "m", {"mu": Normal(0.0, 1.0)}, lambda p: Normal(p["mu"][:, None], 1.0).log_prob(y).sum(-1)
    )
    single = trj.Model("m", {"mu": Normal(0.0, 1.0)}, one_point, vectorized=False)
    theta, code = torch.randn(5, 1, generator=torch.Generator()), torch.zeros(5, 1).long()
    expected = trj.Target([batched]).log_joint(code, theta)
    assert torch.allclose(trj.Target([single]).log_joint(code, theta), expected)
    space = trj.Counts(2, of="mu")
    large = trj.Target(
        space,
        {"mu": Normal(0.0, 1.0)},
        lambda p, active: torch.where(active, p["mu"], 0.0).sum(),
        vectorized=False,
    )
    assert large.log_joint(torch.tensor([[0], [2]]), torch.ones(2, 2)).shape == (2,)


def test_the_surrogate_is_for_training_only():
    model = trj.Model(
        "m",
        {"x": Normal(0.0, 1.0)},
        lambda p: p["x"].sign(),
        surrogate=lambda p: torch.tanh(5 * p["x"]),
    )
    target = trj.Target([model])
    code, theta = torch.zeros(1, 1).long(), torch.tensor([[0.1]])
    prior = float(Normal(0.0, 1.0).log_prob(torch.tensor(0.1)))
    assert float(target.log_joint(code, theta)) == pytest.approx(prior + 1)
    value, gradient = target.log_joint_and_grad(code, theta, surrogate=True)
    assert float(value) == pytest.approx(prior + math.tanh(0.5))
    assert float(gradient) == pytest.approx(-0.1 + 5 * (1 - math.tanh(0.5) ** 2), abs=1e-5)


def test_very_heavy_priors_neither_break_nor_bias():
    target = trj.Target(
        [
            trj.Model(
                "m",
                {"tau": Gamma(1e-4, 1e-4), "delta": Cauchy(0.0, 0.7)},
                lambda p: Normal(p["delta"], p["tau"] ** -0.5).log_prob(torch.tensor(1.0)),
            )
        ]
    )
    code = torch.zeros(3, 1, dtype=torch.long)
    theta = torch.tensor([[0.0, 0.0], [-200.0, 0.0], [5.0, 1e20]])
    log_joint = target.log_joint(code, theta)
    expected = (
        stats.gamma(1e-4, scale=1e4).logpdf(1.0)
        + stats.cauchy(0, 0.7).logpdf(0.0)
        + stats.norm(0, 1).logpdf(1.0)
    )
    assert float(log_joint[0]) == pytest.approx(expected, rel=1e-4)
    assert float(log_joint[1]) == -math.inf  # exp(-200) is 0 in float32: outside, not NaN
    assert float(log_joint[2]) == -math.inf or float(log_joint[2]) < -1e3
    assert not bool(log_joint.isnan().any())


def test_both_ways_of_grouping_give_the_same_values_and_gradients(generator, monkeypatch):
    target = trj.problems.coal_mining(0, 4)
    code = torch.arange(5).repeat(4)[:, None]
    theta = target.sample_prior(code, generator)
    reference = target.log_joint(code, theta)
    value_0, gradient_0 = target.log_joint_and_grad(code, theta, surrogate=True)
    monkeypatch.setattr("trjmcmc.target.densities.apply_by_group", grouping._apply_dense)
    assert torch.equal(target.log_joint(code, theta), reference)
    value, gradient = target.log_joint_and_grad(code, theta, surrogate=True)
    assert torch.allclose(value, value_0)
    assert torch.allclose(gradient, gradient_0)


def test_rows_of_one_group_are_given_to_its_function_as_they_are():
    """All of one, none at all, and a mixture, which is sorted."""
    seen = []

    def function(k):
        return lambda rows: (seen.append((k, rows)) or rows.sum(-1) + 10 * k,)

    functions, x = [function(0), function(1)], torch.arange(6.0).view(3, 2)
    (found,) = grouping.apply_by_group(torch.tensor([1, 1, 1]), functions, x, x[:2])
    assert found.tolist() == [11.0, 15.0, 19.0]
    assert len(seen) == 1 and seen[0][0] == 1 and seen[0][1] is x
    assert len(grouping.apply_by_group(torch.zeros(0).long(), functions, x[:0], x[:2])[0]) == 0
    (found,) = grouping.apply_by_group(torch.tensor([1, 0, 1]), functions, x, x[:2])
    assert found.tolist() == [11.0, 5.0, 19.0]


def test_float64_and_copies(generator):
    target = trj.problems.coal_mining(1, 3)
    double = target.to(dtype=torch.float64)
    code = torch.tensor([[0], [1], [2]])
    theta = target.sample_prior(code, generator)
    got = double.log_joint(code, theta.double())
    assert got.dtype == torch.float64
    assert torch.allclose(got.float(), target.log_joint(code, theta), rtol=1e-5)
    assert target.dtype == torch.float32
    assert target.log_joint(code, theta).dtype == torch.float32


def test_the_process_wide_argument_check_is_as_we_found_it():
    assert torch.distributions.Distribution._validate_args is __debug__


def bad(log_likelihood, prior=None, **options):
    prior = Normal(0.0, 1.0) if prior is None else prior
    return trj.Target([trj.Model("m", {"mu": prior}, log_likelihood, **options)])


def some(log_likelihood):
    return trj.Target(trj.Subsets(["x"], of="b"), {"b": Normal(0.0, 1.0)}, log_likelihood)


def fine(p):
    return -p["mu"].square()


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: bad(lambda p: p["mu"].sum()), ShapeError, r"model 'm': expected .*\(5,\).*\(\)"),
        (lambda: bad(lambda p: p["mu"][:, None]), ShapeError, r"got shape \(5, 1\)"),
        (lambda: bad(lambda p: 3.0), ShapeError, "got float"),
        (lambda: bad(lambda p: p["mu"] - p["mu"].mean()), ShapeError, "mixes the points"),
        (
            lambda: bad(lambda p: p["nu"]),
            TargetError,
            r"'m' failed at mu: .*KeyError: 'nu'; its parameters are \['mu'\]",
        ),
        (lambda: bad(lambda p: p["mu"].numpy()), ShapeError, "got ndarray; .*trj.BlackBox"),
        (lambda: some(lambda p: p["b"].sum(-1)), TargetError, r"two: f\(params, active\)"),
        (
            lambda: bad(lambda: 0.0),
            TargetError,
            "was given; in a list of models it is called w",
        ),
        (lambda: trj.Target(trj.Model("m", {}, lambda p: 0.0)), TargetError, "a list of models"),
        (lambda: bad(lambda p: p["mu"] * math.nan), NonFiniteError, "model 'm' with mu="),
        (lambda: bad(lambda p: p["mu"] + math.inf), NonFiniteError, r"NaN or \+inf at 5 point"),
        (
            lambda: bad(fine, Normal(math.nan, 1.0, validate_args=False)),
            NonFiniteError,
            "prior of 'mu' in model 'm': loc of Normal must be finite",
        ),
        (lambda: bad(fine, Normal(0.0, -1.0, validate_args=False)), NonFiniteError, "scale of"),
        (lambda: bad(fine, Uniform(2.0, 1.0, validate_args=False)), TargetError, "low must be"),
        (lambda: bad(fine, Bernoulli(0.5)), TargetError, "no continuous support"),
        (lambda: bad(fine, lambda p: 1.0), TargetError, "must return a torch.distributions"),
        (lambda: bad(fine, (0, 1)), TargetError, r"prior of 'mu' in model 'm': .*got \(0, 1\)"),
        (lambda: bad("likelihood"), TargetError, "expected a function"),
        (lambda: trj.Target([]), TargetError, "models: expected at least one, got none"),
        (lambda: trj.Target([1]), TargetError, "expected trj.Model objects, got 1"),
        (
            lambda: trj.Target(
                [
                    trj.Model("m", {"mu": Normal(0.0, 1.0)}, fine),
                    trj.Model("n", {"mu": Normal(torch.zeros(2), 1.0)}, fine),
                ]
            ),
            TargetError,
            "has 1 dimensions here and 0 in another model",
        ),
        (lambda: trj.Target(toys.conjugate_subsets().space), TargetError, "both are needed"),
        (
            lambda: trj.Target(trj.Counts(2, of="w"), {"v": Normal(0.0, 1.0)}, fine),
            TargetError,
            r"\['w'\], named by the space's `of`, have no prior",
        ),
        (
            lambda: trj.Target(trj.Counts(2, of="w"), {"w": Normal(torch.zeros(3), 1.0)}, fine),
            ShapeError,
            r"one for each of 2 items, got batch shape \(3,\)",
        ),
        (
            lambda: trj.Target([trj.Model("m", {}, fine)], {"mu": Normal(0.0, 1.0)}),
            TargetError,
            "each model carries its own",
        ),
    ],
)
def test_wrong_statements_say_what_is_wrong(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        ([0.5], "one number for each of 2 models"),
        ([1.5, -0.5], "must not be negative"),
        ([3.0, 1.0], "must sum to 1, got 4"),
    ],
)
def test_wrong_model_priors(prior, message):
    models = [trj.Model(n, {"mu": Normal(0.0, 1.0)}, fine) for n in "ab"]
    with pytest.raises(TargetError, match="model_prior: .*" + message):
        trj.Target(models, model_prior=prior)


def test_repeated_names_are_named():
    models = [trj.Model("a", {"mu": Normal(0.0, 1.0)}, fine)] * 2
    with pytest.raises(TargetError, match=r"models: names must differ, \['a'\] repeat"):
        trj.Target(models)


def test_overflow_far_out_in_the_prior_is_impossible_and_counted():
    """exp(200) is inf in float32 and inf - inf is NaN: no reason to stop a run."""
    target = bad(lambda p: 3 * p["mu"] - p["mu"].exp() + (p["mu"].exp() - p["mu"].exp()))
    code = torch.zeros(2, 1, dtype=torch.long)
    log_joint = target.log_joint(code, torch.tensor([[200.0], [1.0]]))
    assert float(log_joint[0]) == -math.inf
    assert math.isfinite(float(log_joint[1]))
    assert int(target.overflows) == 1


def test_a_vague_gamma_prior_needs_no_care_from_the_user():
    """At tau = 1e-40 a natural likelihood is inf / inf, and the prior is as high as anywhere."""
    y = torch.tensor([1.0, 2.0])

    def log_likelihood(p):
        scale = p["tau"][:, None] ** -0.5
        return Normal(p["delta"][:, None] * scale, scale).log_prob(y).sum(-1)

    priors = {"tau": Gamma(1e-4, 1e-4), "delta": Cauchy(0.0, 0.7)}
    target = trj.Target([trj.Model("m", priors, log_likelihood)])
    theta = torch.tensor([[-95.0, 3.0], [-95.0, 1e15], [0.0, 1.0]])
    log_joint = target.log_joint(torch.zeros(3, 1).long(), theta)
    assert not bool(log_joint.isnan().any())
    assert math.isfinite(float(log_joint[2]))


def test_data_of_another_precision_or_device_are_told_how():
    y = torch.zeros(3, 2, dtype=torch.float64)

    def make(**options):
        model = trj.Model("m", {"b": Normal(torch.zeros(2), 1.0)}, lambda p: (p["b"] @ y.T).sum(-1))
        return trj.Target([model], **options)

    with pytest.raises(
        TargetError, match=r"another precision, state Target\(\.\.\., dtype=\.\.\.\)"
    ):
        make()
    assert make(dtype=torch.float64).dtype == torch.float64
    double = trj.Target(
        [trj.Model("m", {"b": Normal(torch.zeros(2).double(), 1.0)}, lambda p: -p["b"].sum(-1))]
    )
    assert double.log_joint(torch.zeros(1, 1).long(), torch.zeros(1, 2)).dtype == torch.float32


def test_a_scale_that_underflows_is_no_exception():
    """A batch may hold one point where exp(log_sigma) is 0 and torch would refuse the scale."""
    y = torch.tensor([1.0, 2.0])
    target = trj.Target(
        [
            trj.Model(
                "m",
                {"log_sigma": Normal(0.0, 2.0)},
                lambda p: Normal(0.0, p["log_sigma"].exp()[:, None]).log_prob(y).sum(-1),
            )
        ]
    )
    log_joint = target.log_joint(torch.zeros(2, 1).long(), torch.tensor([[-200.0], [0.0]]))
    assert float(log_joint[0]) == -math.inf
    assert math.isfinite(float(log_joint[1]))


def test_a_prior_that_depends_on_items_does_not_see_unused_ones(generator):
    target = trj.Target(
        trj.Counts(3, of="a"),
        {"a": Normal(0.0, 1.0), "s": lambda p: Normal(p["a"].sum(-1), 1.0)},
        lambda p, active: torch.zeros(len(active)),
    )
    code = torch.tensor([[0], [0], [1], [1]])
    theta = torch.tensor([[0.0, 0, 0, 0.5], [5.0, 5, 5, 0.5], [1, 0, 0, 0.5], [1, 7, 7, 0.5]])
    log_joint = target.log_joint(code, theta)
    assert float(log_joint[0]) == float(log_joint[1])
    assert float(log_joint[2]) == float(log_joint[3])
    draws = target.sample_prior(torch.zeros(20_000, 1, dtype=torch.long), generator)
    assert abs(float(draws[:, 3].std()) - 1) < 0.03


def test_mixtures_may_be_priors():
    mixture = torch.distributions.MixtureSameFamily(
        torch.distributions.Categorical(torch.tensor([0.3, 0.7])),
        Normal(torch.tensor([-1.0, 2.0]), torch.tensor([0.5, 1.0])),
    )
    target = prior_only(mixture)
    got = target.log_joint(torch.zeros(1, 1).long(), torch.tensor([[0.4]]))
    assert float(got) == pytest.approx(float(mixture.log_prob(torch.tensor(0.4))), abs=1e-6)


# ---- supports that torch states too large -------------------------------------------------------


def transformed(*transforms, base=None):
    return TransformedDistribution(base or Uniform(0.0, 1.0), list(transforms))


LOG_UNIFORM = transformed(ExpTransform(), base=Uniform(math.log(0.1), math.log(100.0)))
JEFFREYS = transformed(  # modified: density 1 / (k + 10), for k below 1000
    AffineTransform(0.0, math.log(101.0)), ExpTransform(), AffineTransform(-10.0, 10.0)
)


@pytest.mark.parametrize(
    ("prior", "low", "high"),
    [
        (LOG_UNIFORM, 0.1, 100.0),
        (JEFFREYS, 0.0, 1000.0),
        (transformed(AffineTransform(2.0, -3.0)), -1.0, 2.0),
        (Independent(transformed(AffineTransform(0.0, 2.0)).expand((2,)), 1), 0.0, 2.0),
    ],
    ids=["log-uniform", "jeffreys", "falling", "independent"],
)
@pytest.mark.parametrize("items", [False, True])
def test_a_transformed_prior_stays_in_its_support(prior, low, high, items):
    if items:
        target = trj.Target(
            trj.Counts(2, of="k"), {"k": prior}, lambda p, active: 0.0 * active.sum(-1)
        )
        code = torch.full((401, 1), 2)
    else:
        target = trj.Target([trj.Model("a", {"k": prior}, lambda p: torch.zeros(len(p["k"])))])
        code = torch.zeros(401, 1, dtype=torch.long)
    theta = torch.linspace(-100, 100, 401)[:, None].expand(-1, target.dim)
    log_joint = target.log_joint(code, theta)
    assert not bool(log_joint.isnan().any()) and bool(log_joint.isfinite().any())
    (values,) = target.padded_values(code, theta).values()
    assert float(values.min()) >= low - 1e-4 and float(values.max()) <= high + 1e-2
    if not items and target.dim == 1:  # it integrates to one
        u = torch.linspace(-20, 20, 4001)[:, None]
        mass = target.log_joint(torch.zeros(4001, 1, dtype=torch.long), u).exp().sum() * 0.01
        assert abs(float(mass) - 1) < 1e-3


class Halved(Distribution):
    """Standard normal above -2, of which it says nothing."""

    arg_constraints = {}  # noqa: RUF012
    support = constraints.real

    def __init__(self, shape=()):
        super().__init__(torch.Size(shape), validate_args=False)

    def sample(self, shape=torch.Size()):  # noqa: B008
        return torch.randn(*shape, *self.batch_shape).abs()

    def log_prob(self, value):
        return -0.5 * value.square() + 0.0 * (value + 2.0).log()


def test_a_prior_that_is_nan_in_its_support_is_blamed_at_construction():
    with pytest.raises(TargetError, match=r"prior of 'k' in model 'a' is NaN at -4, inside"):
        trj.Target([trj.Model("a", {"k": Halved()}, lambda p: p["k"])])


def test_a_prior_that_is_nan_far_out_is_blamed_and_not_the_likelihood():
    class Far(Halved):
        def log_prob(self, value):
            return -0.5 * value.square() + 0.0 * (value + 50.0).log()

    target = trj.Target([trj.Model("a", {"k": Far()}, lambda p: 0 * p["k"])])
    code, theta = torch.zeros(1, 1, dtype=torch.long), torch.tensor([[-64.0]])
    error = target.non_finite(code[0], theta[0], 1)
    assert "the prior of 'k' in model 'a' is NaN at -64" in str(error)
    assert "log_likelihood" not in str(error)


def test_a_distribution_without_expand_is_told_to_write_one():
    with pytest.raises(TargetError, match=r"Halved has no method expand\(batch_shape\)"):
        trj.Target(trj.Counts(2, of="k"), {"k": Halved()}, lambda p, active: p["k"].sum(-1))


def tempered_kinds():
    smooth = {"surrogate": lambda p: -0.7 * (p["x"] - 0.3).square()}
    models = [
        trj.Model("a", {"x": Normal(0.0, 1.0)}, lambda p: -p["x"].square(), **smooth),
        trj.Model(
            "b",
            {"x": Normal(0.0, 1.0), "s": Gamma(2.0, 1.0)},
            lambda p: torch.where(p["x"] < 1.5, -p["s"] * p["x"].square(), -math.inf),
            **smooth,
        ),
    ]
    return {"list": trj.Target(models), "space": toys.conjugate_subsets()}


@pytest.mark.parametrize("power", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("kind", ["list", "space"])
def test_all_densities_of_a_tempered_target_agree(kind, power, generator):
    target = tempered_kinds()[kind]
    tempered = Tempered(Tempered(target, 0.9), power)
    code = target.space.sample_prior(40, generator)
    theta = target.sample_prior(code, generator)
    assert densities_agree(tempered, code, theta)
    prior, likelihood = target.log_prior_and_likelihood(code, theta)
    expected = prior + (0.0 if power == 0 else power * likelihood)
    assert torch.equal(tempered.log_joint(code, theta), expected)
    assert torch.equal(target.log_joint(code, theta), prior + likelihood)


def densities_agree(target, code, theta):
    """Whether values, gradients and the two parts of a density are those of one function."""
    found = True
    for surrogate in (False, True):
        prior, likelihood = target.log_prior_and_likelihood(code, theta, surrogate=surrogate)
        value, gradient = target.log_joint_and_grad(code, theta, surrogate=surrogate)
        found &= torch.allclose(value, prior + likelihood)
        leaf = theta.clone().requires_grad_()
        parts = target.log_prior_and_likelihood(code, leaf, surrogate=surrogate)
        (slope,) = torch.autograd.grad(sum(x.sum() for x in parts), leaf)
        slope = torch.where(target.space.active(code), slope, 0.0)
        found &= torch.allclose(gradient, slope, atol=1e-5)
        if not surrogate:
            found &= torch.allclose(target.log_joint(code, theta), prior + likelihood)
        half = target.log_joint_and_grad(code, theta, temper=0.5, surrogate=surrogate)[0]
        found &= torch.allclose(half, prior + 0.5 * likelihood)
    return bool(found)


def test_a_density_that_forgets_the_power_is_found_out(generator):
    """Negative control: an exponent that the values heed and the parts do not."""

    class Forgetful(Tempered):
        def log_prior_and_likelihood(self, code, theta, **options):
            return self.target.log_prior_and_likelihood(code, theta, **options)

        def log_joint(self, code, theta, total=None):
            log_prior, log_likelihood = self.log_prior_and_likelihood(code, theta, total=total)
            return log_prior + self.power * log_likelihood

    target = tempered_kinds()["space"]
    code = target.space.sample_prior(40, generator)
    theta = target.sample_prior(code, generator)
    assert densities_agree(Forgetful(target, 1.0), code, theta)
    assert not densities_agree(Forgetful(target, 0.3), code, theta)


def test_components_of_a_tempered_target_follow_its_power(generator):
    target = trj.Target(
        trj.Counts(2, 1, of="a"),
        {"a": Normal(0.0, 1.0)},
        trj.Additive(lambda p: p["a"][:, None], lambda s, p: -s.square().sum(-1)),
    )
    before = target.evaluations
    (part,) = components_of(target)
    assert components_of(target)[0] is part
    spent = target.evaluations - before
    tempered = Tempered(target, 0.25)
    (own,) = components_of(tempered)
    assert own.target is tempered and part.target is target
    assert target.evaluations - before == spent > 0  # they are not looked at again
    code, theta = torch.full((3, 1), 2), torch.randn(3, 2, generator=generator)
    nothing = torch.zeros(3, 1, dtype=torch.float64)
    log_joint, _ = own.log_joint(code, theta, nothing[:, 0], own.total(code, theta), nothing)
    assert torch.allclose(log_joint, tempered.log_joint(code, theta))


@pytest.mark.whole
def test_each_run_has_an_account_of_its_own():
    target = toys.gaussians()
    first, second = (trj.TRJSampler(target, seed=s) for s in (1, 2))
    assert first.target is second.target is target
    settings = {"chains": 8, "fit": False, "progress": False, "warmup": 10}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TRJWarning)
        before = target.evaluations
        one = second.run(20, **settings)
        spent = target.evaluations
        both = first.run(20, **settings)
        again = first.run(20, max_evaluations=5000, **settings)
    assert one.report.evaluations == spent - before == second.account.evaluations
    assert both.report.evaluations + again.report.evaluations == target.evaluations - spent
    assert first.account.evaluations == target.evaluations - spent
    assert math.isinf(target.limit) and math.isinf(first.account.limit)
    target.limit = target.evaluations + 7  # fewer than there are chains
    with pytest.raises(BudgetError, match="likelihood evaluations are needed"):
        second.run(20, **settings)


def test_a_limit_holds_for_kernels_on_the_callers_target():
    """They hold the target that they were built on, and the run counts them."""
    target = toys.gaussians()
    kernel = trj.kernel.Cycle(
        [
            trj.kernel.BirthDeath(target, trj.kernel.Fixed(target.space, other=True)),
            trj.kernel.RandomWalk(target),
        ]
    )
    sampler = trj.TRJSampler(target, kernel=kernel, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TRJWarning)
        result = sampler.run(50, chains=8, fit=False, max_evaluations=300, progress=False, warmup=5)
    assert 0 < result.report.evaluations <= 300


@pytest.mark.parametrize(
    ("prior", "told"),
    [
        (Normal, r"prior of 'x' in model 'm'.*give it parameters: Normal\(\.\.\.\)"),
        (stats.norm, r"prior of 'x' in model 'm'.*give it parameters: norm\(\.\.\.\)"),
        (lambda p: Normal(p["mu"], 1.0), "prior of 'x' in model 'm'.*KeyError: 'mu'.*'a'"),
        (lambda p: Normal(p["a"], -1.0), "prior of 'x' in model 'm': the function failed"),
    ],
)
def test_a_prior_that_is_none_says_whose_it_is(prior, told):
    with pytest.raises(TargetError, match=told):
        trj.Target([trj.Model("m", {"a": Normal(0.0, 1.0), "x": prior}, lambda p: p["a"])])


class OftenZero(HalfNormal):
    """What float32 rounds to zero once in ten million draws is here every other of many."""

    def sample(self, shape=()):
        x = super().sample(shape)
        return torch.where(torch.rand_like(x) < 0.5, 0.0, x) if x.numel() > 20 else x


def test_prior_draws_on_a_bound_are_infinite_and_no_error(generator):
    """A scale of zero would be refused by the distribution that depends on it."""
    priors = {"sd": OftenZero(1.0), "x": lambda p: Normal(0.0, p["sd"])}
    target = trj.Target([trj.Model("m", priors, lambda p: -p["x"].square())])
    theta = target.sample_prior(torch.zeros(50, 1, dtype=torch.long), generator)
    usable = theta.isfinite().all(1)
    assert 0 < usable.sum() < 50
    assert target.log_joint(torch.zeros(50, 1, dtype=torch.long), theta)[usable].isfinite().all()
