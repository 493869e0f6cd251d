"""Components of several kinds in one target: each kind has its number and its parameters."""

import itertools
import math
import warnings

import numpy as np
import pytest
import torch
from torch.distributions import Gamma, LogNormal, MultivariateNormal, Normal, Uniform

import trjmcmc as trj
from tests import toys
from tests.battery import Case, is_caught, limit, moved, stays_exact
from tests.cases import frequencies, from_prior, mean_score, resampled, taught
from trjmcmc.errors import (
    ConfigurationError,
    ConvergenceWarning,
    ShapeError,
    TargetError,
    UnknownModelError,
)
from trjmcmc.kernel import (
    BirthDeath,
    ComponentBirthDeath,
    ComponentSplitMerge,
    ComponentWalk,
    Cycle,
    Fixed,
    Neighbours,
    RandomWalk,
    start,
)
from trjmcmc.run.moves import component_walks
from trjmcmc.space.saved import space_from_spec
from trjmcmc.target.exchangeable import Components, components_of

N, STEPS = 40_000, 4
LUMPS = torch.tensor([0.1, 0.2, 0.4, 0.3], dtype=torch.float64)
LINES = torch.tensor([0.3, 0.5, 0.2], dtype=torch.float64)


def two_kinds():
    return trj.Counts(3, of=("mass", "place"), prior=LUMPS, name="lumps") + trj.Counts(
        2, of="rate", prior=LINES, name="lines"
    )


def prior_only(additive=True, tie=1.0):
    """Priors that lean on what all share, on the other kind, and on whole kinds.

    With ``tie`` 0 the kinds do not know of each other, and chains mix faster.
    """
    zero = trj.Additive(
        {
            "lumps": lambda p: p["mass"][:, None] * torch.ones(3),
            "lines": lambda p: p["rate"][:, None] * torch.ones(3),
        },
        lambda total, p: 0.0 * total.sum(-1) + 0.0 * p["level"],
    )
    return trj.Target(
        two_kinds(),
        {
            "spread": LogNormal(0.0, 0.5),
            "mass": Gamma(2.0, 1.0),
            "place": lambda p: Normal(p["mass"], p["spread"][:, None]),
            "rate": lambda p: Normal(tie * p["mass"].sum(-1, keepdim=True), 1.0),
            "level": lambda p: Normal(tie * (p["mass"].sum(-1) - p["rate"].sum(-1)), 1.0),
        },
        zero if additive else lambda p, active: 0.0 * p["mass"].sum(-1) * active["lines"].sum(-1),
    )


def uniforms(values, tie):
    """By parameter, what is uniform on (0, 1) under the prior, NaN where absent, (N, I)."""
    v = {name: x.double() for name, x in values.items()}
    mass, rate = tie * v["mass"].nansum(-1), tie * v["rate"].nansum(-1)
    return {
        "spread": LogNormal(0.0, 0.5).cdf(v["spread"])[:, None],
        "mass": torch.special.gammainc(torch.tensor(2.0).double(), v["mass"]),
        "place": torch.special.ndtr((v["place"] - v["mass"]) / v["spread"][:, None]),
        "rate": torch.special.ndtr(v["rate"] - mass[:, None]),
        "level": torch.special.ndtr(v["level"] - (mass - rate))[:, None],
    }


def silent(target, tie=1.0):
    """Numbers of both kinds and every parameter in every model keep their prior."""
    space = target.space
    p = space.log_prior(space.enumerate()).double().exp()

    def scores(state):
        found = frequencies(space, state.code, p).tolist()
        each = uniforms(target.padded_values(state.code, state.theta), tie)
        for code in space.enumerate():
            rows = (state.code == code).all(-1)
            for u in (u[rows].nanmean(1) for u in each.values()):
                u = u[~u.isnan()]
                if len(u):
                    found.append(mean_score(u - 0.5))
        return torch.tensor(found)

    return Case(target, lambda n, generator: from_prior(target, n, generator), scores)


def components(target, **settings):
    """Births and deaths of both kinds, of fitted densities, and walks."""
    births = [ComponentBirthDeath(target, kind, normals=3, **settings) for kind in (0, "lines")]
    walks = [(ComponentWalk(target, kind), 2) for kind in ("lumps", 1)]
    kernel = taught(Cycle([*births, *walks]), target, 33)
    births = kernel.parts()[: len(births)]
    assert all(birth.adapted() for birth in births) == (settings.get("prior_share", 0) < 1)
    return kernel


MOVES = {
    "classical": lambda t: BirthDeath(t, Neighbours(t.space)),
    "any model": lambda t: BirthDeath(t, Fixed(t.space, other=True)),
    "components": components,
    "births from the prior": lambda t: components(t, prior_share=1.0),
    "splits": lambda t: Cycle([(ComponentSplitMerge(t, i), 2) for i in (0, 1)]),
    "all": lambda t: Cycle([components(t), BirthDeath(t, Neighbours(t.space)), RandomWalk(t)]),
}


@pytest.mark.whole
@pytest.mark.parametrize("additive", [True, False], ids=["sums", "whole"])
@pytest.mark.parametrize("name", MOVES)
def test_where_data_say_nothing_the_prior_stays(name, additive, generator):
    case = silent(prior_only(additive))
    stays_exact(MOVES[name](case.target), case, generator, chains=N, steps=STEPS)


@pytest.mark.parametrize("name", MOVES)
def test_numbers_of_both_kinds_change(name, generator):
    target = prior_only()
    first = from_prior(target, 2000, generator)
    state, _ = moved(MOVES[name](target), first, generator, STEPS)
    assert ((state.code != first.code).double().mean(0) > 0.05).all()


@pytest.mark.parametrize("kind", [0, 1])
def test_without_the_number_of_one_kind_the_same_check_fails(kind, generator, monkeypatch):
    """The negative control: the k of k! is dropped, for one kind only."""
    case = silent(prior_only(tie=0.0), tie=0.0)
    kernel = components(case.target)
    birth = kernel.kernels[kind][0]
    monkeypatch.setattr(birth, "_log_places", lambda k, up: torch.zeros(len(k)))
    is_caught(kernel, case, generator, chains=N, steps=STEPS)


# ---- a posterior that is known --------------------------------------------------------------

SHAPES = torch.tensor([[1.0, 1.0, 0.5, 0.0], [0.0, 0.5, 1.0, 1.0]], dtype=torch.float64)
SEEN = torch.tensor([1.5, 2.0, 0.5, -1.0], dtype=torch.float64)
SIZES = (1.5, 0.8)


def linear(additive=True):
    """Normal amplitudes of two overlapping shapes in noise of unknown size."""

    def combine(total, p):
        return Normal(total, p["noise"][:, None].double()).log_prob(SEEN).sum(-1)

    def plain(p, active):
        a = torch.where(active["lumps"], p["a"], 0.0).sum(-1, keepdim=True)
        b = torch.where(active["lines"], p["b"], 0.0).sum(-1, keepdim=True)
        return combine(a * SHAPES[0] + b * SHAPES[1], p)

    sums = trj.Additive(
        {
            "lines": lambda p: p["b"][:, None] * SHAPES[1],
            "lumps": lambda p: p["a"][:, None] * SHAPES[0],
        },
        combine,
    )
    return trj.Target(
        trj.Counts(3, of="a", prior=LUMPS, name="lumps")
        + trj.Counts(2, of="b", prior=LINES, name="lines"),
        {"a": Normal(0.0, SIZES[0]), "b": Normal(0.0, SIZES[1]), "noise": LogNormal(-0.5, 0.4)},
        sums if additive else plain,
        dtype=torch.float64,
    )


def exact_models():
    """p(model | data) of :func:`linear`: amplitudes in closed form, the noise by quadrature."""
    z = torch.linspace(-6, 6, 2001, dtype=torch.float64)
    noise, weight = (0.4 * z - 0.5).exp(), Normal(0.0, 1.0).log_prob(z).exp()
    p = []
    for k, m in itertools.product(range(4), range(3)):
        u, v = SHAPES
        signal = k * SIZES[0] ** 2 * torch.outer(u, u) + m * SIZES[1] ** 2 * torch.outer(v, v)
        covariance = signal + noise[:, None, None] ** 2 * torch.eye(4, dtype=torch.float64)
        seen = MultivariateNormal(torch.zeros(4).double(), covariance).log_prob(SEEN).exp()
        p.append(float(LUMPS[k] * LINES[m] * torch.trapezoid(seen * weight, z)))
    p = torch.tensor(p, dtype=torch.float64)
    return p / p.sum()


def known(additive=True):
    """Models of :func:`linear` against closed forms; resampled draws repeat, some in forty."""
    target, p = linear(additive), exact_models()
    return Case(
        target,
        lambda n, generator: resampled(target, n, generator),
        lambda state: frequencies(target.space, state.code, p) / 1.1,
        1e-6,
    )


@pytest.mark.whole
@pytest.mark.parametrize("additive", [True, False], ids=["sums", "whole"])
@pytest.mark.parametrize("name", ["classical", "components", "all"])
def test_models_are_those_of_closed_forms(name, additive, generator):
    case = known(additive)
    stays_exact(MOVES[name](case.target), case, generator, chains=N, steps=STEPS)


def test_dropped_numbers_show_in_the_posterior_too(generator, monkeypatch):
    case = known()
    kernel = components(case.target)
    birth = kernel.kernels[1][0]
    monkeypatch.setattr(birth, "_log_places", lambda k, up: torch.zeros(len(k)))
    is_caught(kernel, case, generator, chains=N, steps=STEPS)


@pytest.fixture(scope="module")
def result():
    sampler = trj.TRJSampler(linear(), seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # its parameters are slow
        return sampler.run(draws=250, chains=64, warmup=200, progress=False)


def allowed(inside, stated):
    """Five standard errors, as stated or by the spread of independent chains, the smaller."""
    means = inside.mean(1)
    return 5 * np.fmin(stated, max(means.std(ddof=1) / len(means) ** 0.5, 1e-3))


@pytest.mark.whole
def test_a_run_finds_the_exact_probabilities(result):
    table, exact = result.model_probabilities(full=True), exact_models().tolist()
    for (label, row), p in zip(table.iterrows(), exact, strict=True):
        assert abs(row["visits"] - p) < allowed(result.chains.inside(label), row["visits_se"]), (
            label
        )
    counts = result.counts(full=True)
    assert counts.index.names == ["kind", "count"]
    grid = exact_models().reshape(4, 3)
    for column, (kind, axis) in enumerate((("lumps", 1), ("lines", 0))):
        of_kind = counts.loc[kind]
        assert float(of_kind["probability"].sum()) == pytest.approx(1)
        gap = (of_kind["probability"] - grid.sum(axis).numpy()).abs()
        code = result.raw.code[..., column].numpy()
        for n, se in of_kind["se"].items():
            assert gap[n] < allowed(code == n, se) + 1e-3
    included = result.inclusion_probabilities(full=True)
    assert list(included.index) == ["lumps 1", "lumps 2", "lumps 3", "lines 1", "lines 2"]
    two = counts.loc["lumps"]["probability"].iloc[2:].sum()
    assert included.loc["lumps 2", "probability"] == pytest.approx(two)


@pytest.mark.whole
def test_a_result_has_tables_pictures_and_files_of_both_kinds(result, tmp_path):
    label = "lumps=2 lines=1"
    draws = result.draws({"lines": 1, "lumps": 2})
    assert [draws[k].shape[1:] for k in ("a", "b", "noise")] == [(2,), (1,), ()]
    assert "b" not in result.draws((1, 0))
    rows = result.summary().loc[label].index.tolist()
    assert rows == ["a[1]", "a[2]", "b[1]", "noise"]

    def product(p, active):
        return p["a"].sum(-1) * active["lines"].sum(-1)

    assert set(result.predict(product).by_model) == set(result._indicator.visited)
    ratio = float(
        result.reweight(lambda code: -1.0 * code[:, 1]).model_probabilities().sum().iloc[0]
    )
    assert ratio == pytest.approx(1, abs=1e-3)
    posterior = result.to_arviz()["posterior"]
    assert posterior["a"].shape[2:] == (3,) and posterior["b"].shape[2:] == (2,)
    assert result.to_arviz(label)["posterior"]["a"].shape[-1] == 2
    for plot in (result.plot_models, result.chains.plot_running, result.chains.plot_jumps):
        assert plot() is not None
    result.save(tmp_path / "run")
    again = trj.load(tmp_path / "run")
    assert again.model_probabilities(full=True).equals(result.model_probabilities(full=True))
    assert again.counts(full=True).equals(result.counts(full=True))
    assert np.array_equal(again.draws(label)["a"], draws["a"])


@pytest.mark.whole
@pytest.mark.filterwarnings("ignore::trjmcmc.errors.ConvergenceWarning")  # it is a short run
def test_a_run_without_data_finds_the_prior():
    target = prior_only(tie=0.0)
    result = trj.TRJSampler(target, seed=2).run(draws=50, chains=128, warmup=60, progress=False)
    p = target.space.log_prior(target.space.enumerate()).exp().tolist()
    for (label, row), exact in zip(
        result.model_probabilities(full=True).iterrows(), p, strict=True
    ):
        assert abs(row["visits"] - exact) < allowed(
            result.chains.inside(label), row["visits_se"]
        ), label
    assert "components" in str(result.report.plan)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::trjmcmc.errors.LimitWarning")  # eight explain as well
def test_a_space_of_many_models_runs_by_default():
    space = trj.Counts(9, of="a", name="x") + trj.Counts(8, of="b", name="y")
    target = trj.Target(
        space,
        {"a": Normal(0.0, 1.0), "b": Gamma(2.0, 1.0)},
        lambda p, active: Normal(p["a"].sum(-1) + p["b"].sum(-1), 1.0).log_prob(torch.tensor(9.0)),
    )
    assert space.size == 90
    result = trj.TRJSampler(target, seed=1).run(draws=60, max_seconds=40, progress=False)
    assert len(result.counts(full=True)) == 19 and len(result.chains.models) == 20


# ---- likelihoods ----------------------------------------------------------------------------


def pulses_and_waves(additive=True):
    """Gaussian pulses and sinusoids in noise whose size is not known."""
    t = torch.linspace(0.0, 1.0, 40)
    rng = torch.Generator().manual_seed(1)
    y = 2.0 * torch.exp(-200 * (t - 0.3) ** 2) + torch.sin(20 * t)
    y = y + 0.3 * torch.randn(40, generator=rng)

    def pulse(p):
        return p["amplitude"][..., None] * torch.exp(-200 * (t - p["centre"][..., None]) ** 2)

    def wave(p):
        return p["height"][..., None] * torch.sin(p["frequency"][..., None] * t)

    def combine(total, p):
        return Normal(total, p["noise"][:, None].double()).log_prob(y).sum(-1)

    def plain(p, active):
        one = torch.where(active["pulses"][..., None], pulse(p), 0.0)
        two = torch.where(active["waves"][..., None], wave(p), 0.0)
        return combine(one.double().sum(1) + two.double().sum(1), p)

    return trj.Target(
        trj.Counts(4, of=("amplitude", "centre"), name="pulses")
        + trj.Counts(2, of=("height", "frequency"), name="waves"),
        {
            "amplitude": Uniform(0.5, 3.0),
            "centre": Uniform(0.0, 1.0),
            "height": Uniform(0.2, 2.0),
            "frequency": Uniform(5.0, 40.0),
            "noise": LogNormal(-1.0, 0.5),
        },
        trj.Additive({"pulses": pulse, "waves": wave}, combine) if additive else plain,
    )


@pytest.mark.whole
def test_sums_of_both_kinds_are_the_plain_likelihood(generator):
    target, plain = pulses_and_waves(), pulses_and_waves(additive=False)
    code = target.space.sample_prior(500, generator)
    theta = target.sample_prior(code, generator)
    theta = torch.where(target.space.active(code), theta, 7.0)  # spare slots are ignored
    assert torch.allclose(target.log_joint(code, theta), plain.log_joint(code, theta), rtol=1e-5)
    value, gradient = target.log_joint_and_grad(code, theta)
    assert bool(value.isfinite().all()) and not bool(gradient[~target.space.active(code)].any())
    state = start(target, code, torch.where(target.space.active(code), theta, 0.0))
    kernel = Cycle([ComponentBirthDeath(target, "pulses"), ComponentBirthDeath(target, "waves")])
    kernel = Cycle([kernel, ComponentWalk(target, 0), ComponentWalk(target, 1)])
    with torch.no_grad():
        for _ in range(100):
            kernel, state, infos = kernel.adapt(state, generator)
    names = ["components: pulses", "components: waves"]
    assert [i.kernel for i in infos[:2]] == names
    assert infos[2].kernel == "component walk: pulses"
    (total,) = state.recall(target)
    exact = target.log_joint(state.code, state.theta)
    assert torch.allclose(state.log_joint, exact, rtol=1e-4, atol=1e-2)
    assert float((total - target.total(state.code, state.theta)).abs().max()) < 1e-4


@pytest.mark.parametrize(
    ("make", "alone"),
    [
        (trj.problems.pulses, True),
        (trj.problems.mixture_1d, True),  # what all share is the scale of each one's prior
        (trj.problems.radial_velocity, True),
        (pulses_and_waves, True),
        (prior_only, False),  # priors lean on the other kind
    ],
)
def test_one_component_alone_is_what_it_is_among_all(make, alone, generator):
    target = make()
    for kind in target.space.kinds:
        parts = Components(target, kind.name)
        assert (parts.single is not None) == alone
        code, theta = parts.examples(generator)
        x = parts.one(theta, parts.count(code) - 1)
        found = [parts.log_prior(theta, x)] + [parts.contribution(theta, x)] * parts.additive
        parts.single = None
        right = [parts.log_prior(theta, x)] + [parts.contribution(theta, x)] * parts.additive
        for mine, theirs in zip(found, right, strict=True):
            assert mine.dtype == theirs.dtype and torch.allclose(mine, theirs, rtol=1e-5)


def test_a_component_alone_follows_its_target_to_double_precision(generator):
    target = trj.problems.mixture_1d().to(dtype=torch.float64)
    parts = Components(target)
    _, theta = parts.examples(generator)
    x = parts.one(theta, torch.zeros(len(theta), dtype=torch.long))
    assert parts.log_prior(theta, x).dtype == torch.float64


def test_one_kind_that_changes_the_other_is_no_sum(generator):
    """Where masses bound the heights, a birth changes what is there: nothing is carried on."""
    sums = trj.Additive(
        {"lumps": lambda p: p["mass"][:, None], "lines": lambda p: p["height"][:, None]},
        lambda total, p: Normal(total[:, 0], 1.0).log_prob(torch.tensor(2.0)),
    )
    target = trj.Target(
        trj.Counts(3, of="mass", name="lumps") + trj.Counts(2, of="height", name="lines"),
        {
            "mass": Gamma(2.0, 1.0),
            "height": lambda p: Uniform(0.0, 1.0 + p["mass"].sum(-1, keepdim=True)),
        },
        sums,
    )
    lumps, lines = components_of(target)
    assert not (lines.additive or lumps.additive)
    code = target.space.sample_prior(500, generator)
    state = start(target, code, target.sample_prior(code, generator))
    moves = [ComponentBirthDeath(target, i) for i in (1, 0)] + [ComponentWalk(target, 0)]
    kernel = Cycle(moves)
    _, state = toys.warmed(kernel, state, generator, 40)
    assert torch.allclose(state.log_joint, target.log_joint(state.code, state.theta), atol=1e-4)


def test_likelihoods_see_each_kind_by_name(generator):
    seen = {}

    def keep(p, active):
        seen.update({k: tuple(v.shape) for k, v in {**p, **active}.items()})
        return p["a"].sum(-1) + p["b"].sum(-1)

    def of_one(p, active):
        return torch.where(active["x"], p["a"], 0.0).sum() + (p["b"] * active["y"]).sum()

    space = trj.Counts(3, of="a", name="x") + trj.Counts(2, 1, of="b", name="y")
    priors = {"a": Normal(0.0, 1.0), "b": Gamma(2.0, 1.0), "s": Normal(0.0, 1.0)}
    target = trj.Target(space, priors, keep)
    code = space.sample_prior(50, generator)
    theta = target.sample_prior(code, generator)
    value = target.log_joint(code, theta)
    assert seen == {"a": (50, 3), "b": (50, 2), "s": (50,), "x": (50, 3), "y": (50, 2)}
    one = trj.Target(space, priors, of_one, vectorized=False)
    box = trj.Target(space, priors, trj.BlackBox(lambda p, on: float(p["a"].sum() + p["b"].sum())))
    many = trj.BlackBox(lambda p, on: (p["a"] * on["x"]).sum(-1) + p["b"].sum(-1), vectorized=True)
    for other in (one, box, trj.Target(space, priors, many)):
        assert torch.allclose(other.log_joint(code, theta), value, atol=1e-5)
    shown = target.apply(lambda p, active: p["b"].sum(-1) * active["y"][:, 0], code[0], theta[:7])
    assert shown.shape == (7,)
    values = target.constrain(torch.tensor([2, 1]), theta)
    again = target.unconstrain("x=2 y=1", values)
    assert again.shape == theta.shape and not bool(again[:, 2].any())


def test_a_likelihood_that_ignores_the_mask_of_one_kind_is_found_out():
    def careless(p, active):
        return torch.where(active["x"], p["a"], 0.0).sum(-1) + p["b"].exp().sum(-1)

    space = trj.Counts(3, of="a", name="x") + trj.Counts(3, of="b", name="y")
    with pytest.raises(TargetError, match=r"component.s. give .* alone and .* that are not there"):
        trj.Target(space, {"a": Normal(0.0, 1.0), "b": Normal(0.0, 1.0)}, careless)


# ---- spaces ---------------------------------------------------------------------------------


def test_a_space_of_three_kinds_survives_its_spec():
    space = (
        trj.Counts(2, 1, of="a", name="x") + trj.Counts(1, of=("b", "c")) + trj.Counts(3, of="d")
    )
    codes = space.enumerate()
    assert space.size == len(codes) == 2 * 2 * 4 and space.n_items == 6
    assert space.label(codes[-1:]) == ["x=2 b+c=1 d=3"]
    for given in ("x=2 b+c=0 d=1", (2, 0, 1), {"d": 1, "x": 2, "b+c": "0"}):
        assert space.code_of(given).tolist() == [2, 0, 1]
    assert space.items(torch.tensor([[2, 0, 1]])).long().tolist() == [[1, 1, 0, 1, 0, 0]]
    assert [space.items_of(n) for n in "ac"] == [slice(0, 2), slice(2, 3)]
    assert space.items_of("other") is None
    bound = space.bind(torch.arange(6))
    again = space_from_spec(bound.spec())
    assert again.kinds == space.kinds and again.label(codes) == space.label(codes)
    assert torch.equal(again.log_prior(codes), space.log_prior(codes))
    assert torch.equal(again.active(codes), bound.active(codes))
    near, real = space.neighbours(codes)
    assert near.shape == (16, 6, 3)
    assert bool(((near - codes[:, None]).abs().sum(-1)[real] == 1).all())


def test_one_kind_is_as_it_was():
    space = trj.Counts(3, 1, of=("a", "b"), name="x").bind(torch.arange(6) % 3)
    spec = space.spec()
    assert set(spec) == {"kind", "max", "min", "of", "name", "log_prior", "slot_item"}
    assert space_from_spec(spec).kinds == space.kinds
    unnamed = trj.Counts(3, 1, of=("a", "b")).bind(torch.arange(6) % 3)
    assert "name" not in unnamed.spec() and unnamed.kinds[0].name == "a+b"
    assert space.label(space.enumerate()) == ["1", "2", "3"]
    assert space.code_of(2).tolist() == space.code_of({"x": 2}).tolist() == [2]
    assert space.items_of("b") == slice(0, 3)


def test_neighbours_are_as_probable_as_they_say(generator):
    space = trj.Counts(2, of="a", name="x") + trj.Counts(4, 2, of="b", name="y")
    proposal = Neighbours(space)
    for code in space.enumerate():
        here = code.expand(20_000, -1)
        new, ratio = proposal.propose(here, generator)
        assert bool(space.log_prior(new).isfinite().all())
        every = space.enumerate()
        p = proposal.log_prob(every, code.expand(len(every), -1)).double().exp()
        assert float(p.sum()) == pytest.approx(1, abs=1e-6)
        back = proposal.log_prob(here, new) - proposal.log_prob(new, here)
        assert torch.allclose(ratio.double(), back.double(), atol=1e-6)
        seen = torch.bincount(space.index(new), minlength=len(p)).double() / len(new)
        error = (p * (1 - p) / len(new)).sqrt()
        assert bool(((seen - p).abs() <= limit(9 * len(p)) * error + 1e-12).all())


def test_components_are_of_a_kind(generator):
    target = prior_only()
    lumps, lines = Components(target, "lumps"), Components(target, 1)
    assert (lumps.number, lumps.width, lines.number, lines.width) == (3, 2, 2, 1)
    assert lumps.slots.tolist() == [[1, 4], [2, 5], [3, 6]] and lines.slots.tolist() == [[7], [8]]
    assert lumps.shared and [c.kind.name for c in components_of(target)] == ["lumps", "lines"]
    code = torch.tensor([[3, 2]]).expand(500, -1)
    theta = target.sample_prior(code, generator)
    turned = lines.shuffled(code, theta, generator)
    assert torch.equal(turned[:, :7], theta[:, :7]) and not torch.equal(turned, theta)
    assert torch.allclose(turned[:, 7:9].sum(1), theta[:, 7:9].sum(1))
    assert int(lines.some(code, generator).max()) == 1
    assert len(component_walks(target, components_of(target))) == 3
    assert components_of(linear())[0].additive


def test_what_does_not_fit_is_refused():
    x, y = trj.Counts(2, of="a", name="x"), trj.Counts(2, of="b", name="y")
    for make, message in (
        (lambda: x + trj.Counts(2, of="a", name="z"), r"parameters of Counts .*\['a'\] repeat"),
        (lambda: x + trj.Counts(2, of="b", name="x"), r"kinds of Counts: .*\['x'\] repeat"),
        (lambda: x + trj.Subsets(["p"], of="c"), "only Counts can be added"),
        (lambda: x + 3, "only Counts can be added"),
        (lambda: x + trj.Counts(2, of="c", name="a line"), "hold a ' ' or '='"),
        (lambda: trj.Target(x + y, {"a": Normal(0.0, 1.0)}, lambda p, on: 0), r"\['b'\], named"),
    ):
        with pytest.raises(TargetError, match=message):
            make()
    for wrong in ("2", "x=2", "x=2 y=3", "x=1 z=1", (1,), {"x": 1}, 1):
        with pytest.raises(UnknownModelError, match=r"counts of x \(0 to 2\), y \(0 to 2\)"):
            (x + y).code_of(wrong)
    priors = {"a": Normal(0.0, 1.0), "b": Normal(0.0, 1.0)}
    one, shape = (lambda p: p["a"][:, None]), (lambda p: p["b"][:, None] * torch.ones(2))
    for contribution, message in (
        (one, r"a dict with a function for each of \['x', 'y'\]"),
        ({"x": one}, r"no function for \['y'\]"),
        ({"x": one, "y": one, "z": one}, r"no components are called \['z'\]"),
        ({"x": one, "y": shape}, r"one shape, got {'x': \(1,\), 'y': \(2,\)}"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            trj.Target(x + y, priors, trj.Additive(contribution, lambda total, p: total.sum(-1)))
    target = prior_only()
    for kind in (None, "dots", 2):
        with pytest.raises(ConfigurationError, match=r"kind: expected one of \['lumps', 'lines'\]"):
            ComponentBirthDeath(target, kind)
    uneven = trj.Target(
        x + y, priors, lambda p, on: (p["b"] * torch.arange(p["b"].shape[1])).sum(-1)
    )
    assert Components(uneven, "x").number == 2 and components_of(uneven) == ()
    with pytest.raises(ConfigurationError, match="not exchangeable"):
        ComponentWalk(uneven, "y")
    with pytest.raises(ConfigurationError, match="leaves out sizes"):
        Neighbours(x + trj.Counts(2, of="b", prior=[0.5, 0.0, 0.5]))
    wide = trj.Counts(400, of="a", name="x") + trj.Counts(400, of="b", name="y")
    with pytest.raises(ShapeError, match="too large to enumerate"):
        wide.enumerate()
    assert math.isfinite(float(wide.log_prior(torch.tensor([[3, 400]]))))
