"""What all front ends share, with a language of NumPy functions."""

import math
import subprocess
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.distributions import (
    Beta,
    Gamma,
    HalfCauchy,
    HalfNormal,
    LogNormal,
    Normal,
    Uniform,
    constraints,
)

import trjmcmc as trj
from trjmcmc.errors import ConfigurationError, TargetError
from trjmcmc.interop.bridge import Both, FusedCall, through
from trjmcmc.interop.check import checked
from trjmcmc.interop.extras import needed
from trjmcmc.interop.foreign import ForeignModel
from trjmcmc.interop.site import Conditional, Site
from trjmcmc.rng import seeded

Y = torch.tensor([0.3, -1.2, 0.8, 2.0], dtype=torch.float64)

NAMES = ("scale", "effect")


def normal(x, mu, sigma):
    return Normal(mu, sigma).log_prob(x)


class Product:
    """x y with its gradient, in NumPy."""

    def value(self, arrays):
        return arrays[0] * arrays[1]

    def pull_back(self, arrays, outer):
        return outer * arrays[1], outer * arrays[0]


def draws(n, given, seed):
    g = torch.Generator().manual_seed(seed)
    return given["scale"][:, None] * torch.randn(n, 2, generator=g, dtype=torch.float64)


def half_normal(n, given, seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(n, generator=g, dtype=torch.float64).abs()


def log_likelihood(p):
    return normal(Y, p["effect"][:, :1], p["effect"][:, 1:].exp() + p["scale"][:, None]).sum(-1)


def both(values, gradient):
    """The joint in NumPy: by torch's autograd on leaves of its own."""
    leaf = {k: torch.tensor(v, requires_grad=True) for k, v in values.items()}
    with torch.enable_grad():
        log_prior = HalfNormal(torch.ones(()).double()).log_prob(leaf["scale"])
        log_prior = log_prior + normal(leaf["effect"], 0.0, leaf["scale"][:, None]).sum(-1)
        parts = log_prior, log_likelihood(leaf)
        slopes = ({}, {})
        if gradient:
            slopes = tuple(
                dict(
                    zip(
                        values,
                        (
                            g.numpy()
                            for g in torch.autograd.grad(
                                part.sum(), list(leaf.values()), retain_graph=True
                            )
                        ),
                        strict=True,
                    )
                )
                for part in parts
            )
    return Both(*(x.detach().numpy() for x in parts), *slopes)


def foreign(name="toy", constant=0.0, **changes):
    """A hierarchical model; ``constant`` is missing in the density of its first prior."""
    like = torch.zeros((), dtype=torch.float64)
    settings = {
        "priors": {
            "scale": Site(
                lambda x, given: HalfNormal(1 + 0 * x).log_prob(x) + constant,
                half_normal,
                constraints.positive,
                like=like,
            ),
            "effect": Conditional(
                ["scale"],
                lambda x, given: normal(x, 0.0, given["scale"][:, None]),
                draws,
                constraints.real,
                batch_shape=(2,),
            ),
        },
        "log_likelihood": log_likelihood,
        "fused": FusedCall(both),
        "dtype": torch.float64,
        "language": "NumPy",
    }
    return ForeignModel(name, **(settings | changes))


def native(name="torch"):
    one = torch.ones((), dtype=torch.float64)
    priors = {
        "scale": HalfNormal(one),
        "effect": lambda p: Normal(0 * one, p["scale"][:, None].expand(-1, 2)),
    }
    return trj.Model(name, priors, log_likelihood, dtype=torch.float64)


@pytest.fixture(scope="module")
def target():
    return trj.Target([checked(foreign()), native()])


def points(target, n=40):
    generator = torch.Generator().manual_seed(3)
    theta = 2 * torch.randn(n, target.dim, generator=generator, dtype=target.dtype)
    return torch.zeros(n, 1, dtype=torch.long), theta


def test_a_target_takes_the_precision_of_its_models(target):
    assert target.dtype == torch.float64 and not target.is_precision_open
    assert trj.Target([trj.Model("a", {"x": Normal(0.0, 1.0)}, lambda p: -p["x"])]).dtype == (
        torch.get_default_dtype()
    )


def test_values_and_gradients_are_those_of_torch(target):
    code, theta = points(target)
    for temper in (1.0, 0.3, 0.0):
        here = target.log_joint_and_grad(code, theta, temper=temper)
        there = target.log_joint_and_grad(code + 1, theta, temper=temper)
        for a, b in zip(here, there, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(
        target.log_joint(code, theta), target.log_joint(code + 1, theta), rtol=1e-10, atol=1e-10
    )
    torch.testing.assert_close(
        target.prior_by_slot(code, theta), target.prior_by_slot(code + 1, theta)
    )


def test_evaluations_are_counted_once(target):
    before = target.account.evaluations
    target.log_joint_and_grad(*points(target, 7))
    assert target.account.evaluations - before == 7


def test_far_out_the_rules_are_those_of_torch(target):
    code, theta = points(target, 6)
    theta[0], theta[1, 0], theta[2, 0], theta[3, 1] = 800.0, -800.0, 400.0, 1e200
    here = target.log_joint(code, theta)
    there = target.log_joint(code + 1, theta)
    assert torch.equal(here.isfinite(), there.isfinite())
    torch.testing.assert_close(here[here.isfinite()], there[here.isfinite()])


def test_nan_of_the_likelihood_in_the_bulk_is_an_error():
    def broken(values, gradient):
        found = both(values, gradient)
        return found._replace(log_likelihood=np.full_like(found.log_likelihood, np.nan))

    model = foreign(fused=FusedCall(broken), log_likelihood=lambda p: p["scale"] * math.nan)
    with pytest.raises(trj.errors.NonFiniteError, match="toy"):
        trj.Target([model])


def test_gradients_are_not_differentiated_again_in_silence():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = torch.tensor([3.0, 4.0], requires_grad=True)
    (slope,) = torch.autograd.grad(through(Product(), [x, y]).sum(), x, create_graph=True)
    assert slope.tolist() == [3.0, 4.0]
    with pytest.raises(RuntimeError, match="once, not twice"):
        torch.autograd.grad(slope.sum(), x)


def test_slopes_where_nothing_is_possible_do_no_harm():
    def nowhere(values, gradient):
        x = values["x"]
        slopes = ({"x": x}, {"x": x * np.nan}) if gradient else ({}, {})
        return Both(-0.5 * x**2, np.where(x > 0, 0.0, -np.inf), *slopes)

    x = torch.tensor([-1.0], requires_grad=True)
    log_prior, log_likelihood = FusedCall(nowhere)({"x": x})
    (slope,) = torch.autograd.grad((log_prior + log_likelihood).sum(), x)
    assert slope.tolist() == [-1.0]


def test_prior_draws_repeat_and_agree(target):
    code = torch.zeros(4000, 1, dtype=torch.long)
    draws = [target.sample_prior(code, torch.Generator().manual_seed(5)) for _ in range(2)]
    assert torch.equal(*draws)
    other = target.sample_prior(code + 1, torch.Generator().manual_seed(5))
    for a, b in ((draws[0], other), (draws[0].square(), other.square())):
        error = (a.var(0) / 4000 + b.var(0) / 4000).sqrt()
        assert bool(((a.mean(0) - b.mean(0)).abs() < 5 * error).all())


def test_a_site_of_given_parameters_draws_any_shape():
    prior = native().priors["effect"]
    site = foreign().priors["effect"]({"scale": torch.ones(3, dtype=torch.float64)})
    with seeded(0):
        assert site.sample((5,)).shape == (5, 3, 2)
    value = torch.randn(5, 3, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = prior({"scale": torch.ones(3, dtype=torch.float64)}).log_prob(value)
    torch.testing.assert_close(site.log_prob(value), expected)
    with pytest.raises(NotImplementedError, match="keeps its batch shape"):
        site.expand((7,))


@pytest.mark.parametrize("constant", [math.log(2), -0.5 * math.log(2 * math.pi)])
def test_a_prior_without_its_constant_is_refused(constant):
    with pytest.raises(TargetError, match=r"'scale' .* does not integrate to 1 by its own draws"):
        checked(foreign(constant=constant, fused=None))


NORMALISED = {
    "normal": Normal(3.0, 0.1),
    "uniform": Uniform(-1.0, 5.0),
    "gamma": Gamma(0.3, 2.0),
    "cauchy": torch.distributions.HalfCauchy(2.0),
    "beta": torch.distributions.Beta(0.5, 8.0),
    "simplex": torch.distributions.Dirichlet(torch.tensor([0.5, 2.0, 4.0])),
    "vector": torch.distributions.MultivariateNormal(
        torch.zeros(3), torch.tensor([[1.0, 0.9, 0.0], [0.9, 1.0, 0.0], [0.0, 0.0, 4.0]])
    ),
}


@pytest.mark.parametrize("name", NORMALISED)
def test_normalised_priors_pass(name):
    model = ForeignModel("m", {"x": NORMALISED[name]}, lambda p: 0.0 * p["x"].flatten(1).sum(-1))
    if name not in {"simplex", "vector"}:
        model = replace(model, log_likelihood=lambda p: 0.0 * p["x"])
    checked(model)


def one_prior(sample, log_prob, support=constraints.real):
    def draw(n, given, seed):
        with seeded(seed):
            return sample(n)

    like = torch.zeros((), dtype=torch.float64)
    site = Site(lambda x, given: log_prob(x), draw, support, like=like)
    return ForeignModel("toy", {"x": site}, lambda p: -p["x"].square(), dtype=torch.float64)


UNIT = Normal(*torch.tensor([0.0, 1.0], dtype=torch.float64))

LEFT_OUT = {  # a share of the mass at one number; densities on a part of where draws lie
    "one number": (lambda n: torch.full((n,), 0.7), torch.zeros_like, constraints.real, "atoms"),
    "spike and slab": (
        lambda n: UNIT.sample((n,)) * (torch.rand(n) < 0.4),
        lambda x: UNIT.log_prob(x) + torch.where(x == 0, math.log(0.6), math.log(0.4)),
        constraints.real,
        "atoms",
    ),
    "censored": (
        lambda n: UNIT.sample((n,)).clamp(min=-1.5),
        UNIT.log_prob,
        constraints.real,
        "atoms",
    ),
    "half of a line": (
        lambda n: UNIT.sample((n,)),
        UNIT.log_prob,
        constraints.positive,
        r"\d+ of 4096 of its draws lie outside",
    ),
    "part of a line": (
        lambda n: UNIT.sample((n,)),
        UNIT.log_prob,
        constraints.interval(-1.0, 1.0),
        "of its draws lie outside the support",
    ),
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_atoms_and_draws_outside_the_support_are_refused(name):
    sample, log_prob, support, words = LEFT_OUT[name]
    with pytest.raises(TargetError, match=rf"'x' in model 'toy'.*{words}"):
        checked(one_prior(sample, log_prob, support))


@pytest.mark.parametrize("restricted", [True, False])
def test_draws_outside_the_support_are_seen_wherever_they_depend_on_others(restricted):
    """At most values of the first parameter the second one's draws are all positive."""

    def draw(n, given, seed):
        with seeded(seed):
            return given["x"] + 0.01 * UNIT.sample((n,))

    def log_prob(value, given):
        return UNIT.log_prob((value - given["x"]) / 0.01) - math.log(0.01)

    first = Normal(*torch.tensor([1.0, 0.5], dtype=torch.float64))
    support = constraints.positive if restricted else constraints.real
    priors = {"x": first, "later": Conditional(["x"], log_prob, draw, support)}
    model = ForeignModel("toy", priors, lambda p: -p["x"].square(), dtype=torch.float64)
    if not restricted:
        checked(model)
        return
    with pytest.raises(TargetError, match=r"'later' in model 'toy': \d+ of 4096 of its draws lie"):
        checked(model)


@pytest.mark.parametrize(
    "prior",
    [Gamma(0.01, 1.0), Beta(1.0, 0.05), Beta(0.1, 0.1), HalfCauchy(1.0), Normal(1000.0, 1.0)],
    ids=repr,
)
def test_numbers_that_rounding_makes_equal_are_no_atoms(prior):
    """Draws in single precision that pile up at the ends of a support."""
    checked(ForeignModel("toy", {"x": prior}, lambda p: 0 * p["x"].clamp(max=1.0)))


def test_half_lines_with_and_without_their_end_are_shared():
    """Half-normal priors of torch may be 0, log-normal ones and those of PyMC may not."""

    def model(name, prior):
        return ForeignModel(name, {"s": prior}, lambda p: -p["s"])

    both = [model("a", HalfNormal(1.0)), model("b", LogNormal(0.0, 1.0))]
    assert trj.Target(both).slot_names == ["s"]


def test_points_that_are_mixed_up_are_refused():
    mixing = foreign(fused=None, log_likelihood=lambda p: log_likelihood(p) - p["scale"].mean())
    with pytest.raises(TargetError, match="mixes the points of a batch"):
        checked(mixing)


def test_terms_that_are_neither_prior_nor_likelihood_are_refused():
    def more(values, gradient):
        found = both(values, gradient)
        return found._replace(log_prior=found.log_prior + 0.1)

    with pytest.raises(TargetError, match="neither prior nor likelihood"):
        checked(foreign(fused=FusedCall(more)))


def test_wrong_gradients_are_refused():
    def wrong(values, gradient):
        found = both(values, gradient)
        slopes = {k: 2 * v for k, v in found.likelihood_slopes.items()}
        return found._replace(likelihood_slopes=slopes)

    with pytest.raises(TargetError, match="gradient of the log likelihood of model 'toy'"):
        checked(foreign(fused=FusedCall(wrong)))


def test_another_precision_is_refused():
    with pytest.raises(TargetError, match=r"computes in torch.float32, not in torch.float64"):
        checked(foreign(fused=None, log_likelihood=lambda p: log_likelihood(p).float()))


def test_names_are_shared_where_rank_and_support_agree():
    target = trj.Target([foreign("a"), foreign("b")])
    assert target.slot_names == ["scale", "effect[0]", "effect[1]"]
    other = ForeignModel(
        "c",
        {"effect": Normal(0.0, 1.0), "scale": Uniform(0.0, 1.0), "more": Normal(0.0, 1.0)},
        lambda p: -(p["effect"] ** 2) - p["scale"],
        dtype=torch.float64,
    )
    target = trj.Target([foreign("a"), other])
    assert target.slot_names[3:] == ["effect_c", "scale_c", "more"]
    with pytest.raises(TargetError, match="dimensions here and"):
        trj.Target([foreign("a"), trj.Model("c", other.priors, other.log_likelihood)])


def test_renamed_models_say_the_same():
    model = foreign().renamed({"scale": "tau"}).renamed({"tau": "sigma"})
    assert list(model.priors) == ["sigma", "effect"]
    assert model.own_names == {"sigma": "scale", "effect": "effect"}
    here, there = trj.Target([model]), trj.Target([foreign()])
    code, theta = points(there, 5)
    assert torch.equal(here.log_joint(code, theta), there.log_joint(code, theta))
    with pytest.raises(TargetError, match=r"no parameter \['mu'\] in model 'toy'; there are"):
        foreign().renamed({"mu": "nu"})
    with pytest.raises(TargetError, match="a name twice"):
        foreign().renamed({"scale": "effect"})


def test_pilot_draws_have_the_names_here():
    def sampler(draws, seed, **options):
        return {"effect": np.zeros((draws, 2)), "scale": np.ones(draws), "other": np.ones(draws)}

    model = foreign(sampler=sampler).renamed({"scale": "tau"})
    found = model.pilot(7)
    assert {k: v.shape for k, v in found["toy"].items()} == {"tau": (7,), "effect": (7, 2)}
    with pytest.raises(ConfigurationError, match="bring draws of your own"):
        foreign().pilot()


def test_predictions_get_the_names_of_the_language():
    class Result:
        def draws(self, label):
            return {"tau": np.arange(9.0), "effect": np.zeros((9, 2))} if label == "toy" else {}

    axes = {"effect": ("county",), "scale": ("does", "not", "fit")}
    model = foreign(predictor=lambda values, seed: values, data_dims=axes)
    model = model.renamed({"scale": "tau"})
    predicted = model.predict(Result(), draws=3).posterior_predictive
    assert predicted["scale"].values.tolist() == [[0.0, 4.0, 8.0]]
    assert predicted["effect"].dims == ("chain", "draw", "county")
    as_it_is = foreign(predictor=lambda values, seed: "whatever the language gives")
    assert as_it_is.renamed({"scale": "tau"}).predict(Result()) == "whatever the language gives"
    with pytest.raises(ConfigurationError, match="makes no predictions"):
        foreign().predict(Result())
    with pytest.raises(ConfigurationError, match="never visited"):
        replace(model, name="else").predict(Result())


def test_a_missing_package_names_the_extra():
    with pytest.raises(ConfigurationError, match=r"pip install 'trjmcmc\[stan\]'"):
        needed("no_such_package", "stan", "from_stan")


def test_no_language_is_imported_with_the_package():
    words = "import sys, trjmcmc; print(sorted({m.split('.')[0] for m in sys.modules}))"
    shown = subprocess.run(
        [sys.executable, "-c", words], capture_output=True, text=True, check=True
    )
    assert not {"pymc", "pytensor", "jax", "numpyro", "pyro", "bridgestan"} & set(
        eval(shown.stdout)
    )


@pytest.mark.whole
def test_arviz_gets_the_axes_and_names_of_the_language():
    model = foreign(dims={"effect": ("county",)}, coords={"county": ["Aitkin", "Anoka"]})
    target = trj.Target([model.renamed({"effect": "theta"}), native()])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", trj.errors.TRJWarning)  # so short a run
        result = trj.TRJSampler(target, seed=1).run(draws=10, chains=8, fit=False, progress=False)
    assert list(result.to_arviz("toy").posterior["effect"].coords["county"].values) == [
        "Aitkin",
        "Anoka",
    ]
    whole = result.to_arviz().posterior
    assert whole["theta"].dims == ("chain", "draw", "county")
    assert whole["effect"].dims == ("chain", "draw", "effect_dim_0")


@pytest.mark.whole
def test_variational_answers_have_the_axes_and_names_of_the_language(tmp_path):
    model = foreign(dims={"effect": ("county",)}, coords={"county": ["Aitkin", "Anoka"]})
    target = trj.Target([model.renamed({"effect": "theta"})])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", trj.errors.TRJWarning)
        answer = trj.variational(target, "laplace", seed=1, progress=False)
    answer.save(tmp_path / "answer")
    for one in (answer, trj.approximate.Variational.load(tmp_path / "answer")):
        found = one.to_arviz("toy").posterior["effect"]
        assert found.dims == ("chain", "draw", "county")
        assert list(found.coords["county"].values) == ["Aitkin", "Anoka"]


@pytest.mark.whole
def test_parameters_that_are_told_apart_find_their_way_back():
    """To the language's own draws and predictions, which know nothing of the other model."""

    def sampler(draws, seed, **options):
        return {"scale": np.ones(draws), "effect": np.tile([0.1, -0.2], (draws, 1))}

    second = foreign("second", sampler=sampler, predictor=lambda values, seed: values)
    second = second.renamed({"scale": "tau"})
    first = ForeignModel(
        "first", {"tau": Normal(0.0, 1.0)}, lambda p: -7 - p["tau"] ** 2, dtype=torch.float64
    )
    target = trj.Target([first, second])
    assert target.slot_names[1] == "tau_second"
    sampler = trj.TRJSampler(target, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", trj.errors.TRJWarning)
        sampler.fit(pilot=second.pilot(40), steps=2, audit=False, progress=False)
        result = sampler.run(draws=20, chains=8, fit=False, progress=False)
    drawn = result.draws("second")["tau_second"]
    for model in (second, target.models[1]):  # as it was stated, and as the target has it
        predicted = model.predict(result, draws=None).posterior_predictive["scale"].values[0]
        assert np.array_equal(predicted, drawn)
    with pytest.raises(ConfigurationError, match=r"those of the result are .*is it the one"):
        foreign("second", predictor=lambda values, seed: values).predict(result)
    empty = ForeignModel("none", {}, lambda p: torch.zeros(()), predictor=print)
    with pytest.raises(ConfigurationError, match="no parameters to predict by"):
        empty.predict(result)


def test_priors_of_other_packages_reweight_a_run():
    from scipy import stats

    target = trj.Target([trj.Model("m", {"x": Normal(0.0, 1.0)}, lambda p: -(p["x"] ** 2))])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", trj.errors.TRJWarning)
        result = trj.TRJSampler(target, seed=1).run(draws=10, chains=8, fit=False, progress=False)
        found = [result.reweight(priors={"x": p}) for p in (stats.norm(0, 2), Normal(0.0, 2.0))]
    a, b = (float(r.predict(lambda p: p["x"]).mean) for r in found)
    assert abs(a - b) < 1e-5 and abs(a - float(result.predict(lambda p: p["x"]).mean)) > 1e-5
