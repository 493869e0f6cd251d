"""Spaces that nobody enumerates: Laplace's map, walks by a score, distributions over models."""

import copy
import json
import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch.distributions import Bernoulli, Normal

import trjmcmc as trj
from tests import cases, toys
from tests.battery import limit, stays_exact
from tests.logistic_selection import logistic_selection
from tests.maps import shaken
from tests.places import SHARED, shared_only
from trjmcmc.errors import ConfigurationError, ShapeError
from trjmcmc.fit import ReverseKL
from trjmcmc.fit.train import train
from trjmcmc.kernel import (
    Cycle,
    Jump,
    Learnt,
)
from trjmcmc.transport import StudentT
from trjmcmc.transport.memory import CodeMemory

N = 40_000


# ---- memory ---------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [7, 60, 10_000])
def test_memory_gives_what_was_computed_and_stays_bounded(rows, generator):
    asked = []

    def compute(code):
        asked.append(len(code))
        return code.sum(1).double(), code.double()

    memory = CodeMemory(compute, 10, rows)
    for _ in range(20):
        code = torch.randint(0, 2, (50, 10), generator=generator)
        total, back = memory(code)
        assert torch.equal(total, code.sum(1).double())
        assert torch.equal(back, code.double())
        assert memory.used <= rows
    if rows == 10_000:
        assert sum(asked) <= 2**10  # nothing twice


def test_memory_of_a_space_of_one_model():
    memory = CodeMemory(lambda code: (torch.ones(len(code)),), 0, 10)
    assert memory(torch.zeros(5, 0, dtype=torch.long))[0].tolist() == [1.0] * 5


# ---- Laplace's map --------------------------------------------------------------------------


def targets():
    return {
        "conjugate": trj.problems.conjugate_selection(4, seed=1),
        "logistic": logistic_selection(4, n=100, seed=2),
        "robust": trj.problems.robust_selection("mid", p=4, seed=3),
        "list": toys.gaussians(),
        "positive": toys.skewed_pair(),
    }


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("name", targets())
def test_laplace_keeps_the_contract_of_a_transport(name, inside, generator):
    target = targets()[name].to(dtype=torch.float64)
    flow = None
    if inside:
        flow = trj.transport.CosmicFlow(target.space, layers=2, hidden=(8,)).double()
        with torch.no_grad():
            for p in flow.parameters():
                p.add_(0.2 * torch.randn(p.shape, generator=generator, dtype=p.dtype))
    laplace = trj.transport.LaplaceMap(target, flow)
    code = target.space.enumerate().repeat(3, 1)
    z = torch.randn(len(code), target.dim, generator=generator, dtype=torch.float64)
    theta, ladj = laplace.from_reference(z, code)
    back, back_ladj = laplace.to_reference(theta, code)
    assert torch.allclose(back, z, atol=1e-6)
    assert torch.allclose(ladj, -back_ladj, atol=1e-6)
    spare = ~target.space.active(code)
    assert torch.equal(theta[spare], z[spare])
    for i in range(0, len(code), 5):
        jacobian = torch.autograd.functional.jacobian(
            lambda x, i=i: laplace.from_reference(x[None], code[i : i + 1])[0][0], z[i]
        )
        assert torch.linalg.slogdet(jacobian).logabsdet.item() == pytest.approx(
            ladj[i].item(), abs=1e-6
        )


def test_laplace_is_exact_on_conjugate_regressions(generator):
    target = trj.problems.conjugate_selection(6, seed=4)
    laplace, code = trj.transport.LaplaceMap(target), target.space.enumerate()
    gap = laplace.log_evidence(code) - target.space.log_prior(code) - target.log_evidence(code)
    assert float(gap.abs().max()) < 2e-3
    z = torch.randn(len(code), target.dim, generator=generator)
    theta, log_q = laplace.push(z, code)
    log_w = target.log_joint(code, torch.where(target.space.active(code), theta, 0.0)) - log_q
    assert float((log_w - laplace.log_evidence(code)).abs().max()) < 2e-3


def test_laplace_finds_the_mode_that_scipy_finds():
    target = logistic_selection(3, n=80, seed=5).to(dtype=torch.float64)
    laplace = trj.transport.LaplaceMap(target)
    for code in target.space.enumerate():
        active = target.space.active(code[None])[0]

        def minus_log_joint(x, code=code, active=active):
            theta = torch.zeros(target.dim, dtype=torch.float64)
            theta[active] = torch.as_tensor(x)
            return -float(target.log_joint(code[None], theta[None]))

        found = minimize(minus_log_joint, np.zeros(int(active.sum())), tol=1e-10)
        mode, _ = laplace.from_reference(torch.zeros(1, target.dim).double(), code[None])
        assert torch.allclose(mode[0, active], torch.as_tensor(found.x), atol=5e-3)


def test_the_map_depends_on_the_model_alone(generator):
    """Whatever else is in the batch, and after everything has been forgotten.

    In float64: a batch's rounding in float32 moves the Newton step at which a search ends.
    """
    target = trj.problems.robust_selection("mid", p=6, seed=1).to(dtype=torch.float64)
    code = target.space.enumerate()
    z = torch.randn(len(code), target.dim, generator=generator, dtype=torch.float64)
    whole = trj.transport.LaplaceMap(target).from_reference(z, code)[0]
    narrow = trj.transport.LaplaceMap(target, megabytes=0.01)  # some twenty models
    again = torch.cat([narrow.from_reference(z[i : i + 3], code[i : i + 3])[0] for i in range(64)])
    rows = torch.cat([torch.arange(i, min(i + 3, 64)) for i in range(64)])
    assert torch.allclose(again, whole[rows], atol=1e-6)


class Cubed(torch.autograd.Function):
    """-|x|^3 / 3 with a first derivative only."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return -(x.abs() ** 3) / 3

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return -gradient * x * x.abs()


def test_curvature_by_differences_where_second_derivatives_do_not_exist():
    models = [
        trj.Model("once", {"a": Normal(0.0, 1.0)}, lambda p: Cubed.apply(p["a"] - 1.0)),
        trj.Model("twice", {"a": Normal(0.0, 1.0)}, lambda p: -((p["a"] - 1.0).abs() ** 3) / 3),
    ]
    target = trj.Target(models, dtype=torch.float64)
    value = trj.transport.LaplaceMap(target).log_evidence(torch.tensor([[0], [1]]))
    assert value[0].item() == pytest.approx(value[1].item(), abs=2e-3)


def test_copies_keep_the_reference_and_the_precision():
    target = toys.conjugate_subsets()
    laplace = trj.transport.LaplaceMap(target, reference=StudentT(4))
    assert isinstance(copy.deepcopy(laplace).double().reference, StudentT)
    z = torch.zeros(1, 3, dtype=torch.float64)
    theta, _ = copy.deepcopy(laplace).double().from_reference(z, torch.ones(1, 3).long())
    assert theta.dtype == torch.float64


def test_laplace_refuses_what_it_can_not_do():
    black = trj.BlackBox(lambda p: -(float(p["a"]) ** 2))
    target = trj.Target([trj.Model("a", {"a": Normal(0.0, 1.0)}, black)])
    with pytest.raises(ConfigurationError, match=r"no gradients; .*trj.with_gradient"):
        trj.transport.LaplaceMap(target)
    target = toys.gaussians()
    with pytest.raises(ConfigurationError, match="passes spare coordinates"):
        trj.transport.LaplaceMap(target, trj.transport.ConditionalRealNVP(target.space))


# ---- walks ----------------------------------------------------------------------------------


def rough_map(target):
    flow = trj.transport.CosmicFlow(target.space, layers=2, hidden=(8,))
    return trj.transport.LaplaceMap(target, shaken(flow, 0.3, seed=3))


@pytest.mark.whole
def test_proposals_from_q_leave_the_posterior_as_it_is(generator):
    case = cases.subsets()
    proposal = Learnt(trj.weights.Made(case.target.space))
    kernel = Jump(case.target, rough_map(case.target), proposal, rho=0.8)
    seen = stays_exact(Cycle([kernel]), case, generator, steps=2, batch=500)
    assert float(seen.infos[0].accepted.double().mean()) > 0.02


# ---- distributions over models --------------------------------------------------------------


def spaces():
    return {
        "subsets": toys.conjugate_subsets().space,
        "counts": trj.Target(
            trj.Counts(5, min=2, of="a"), {"a": Normal(0.0, 1.0)}, lambda p, a: p["a"].sum(-1)
        ).space,
        "list": toys.gaussians().space,
    }


WEIGHTS = {
    "uniform": trj.weights.UniformWeights,
    "categorical": trj.weights.CategoricalWeights,
    "made": lambda s: trj.weights.Made(s, hidden=(16,)),
    "mean field": trj.weights.MeanField,
    "gaussian": trj.weights.GaussianSurrogateWeights,
    "thompson": lambda s: trj.weights.GaussianSurrogateWeights(s, acquisition="thompson"),
}
LEARNT = ["categorical", "made", "gaussian", "thompson"]


def trained(name, space, steps, generator, batch=256):
    """Weights that have learnt from exact losses: any numbers will do."""
    weights = WEIGHTS[name](space)
    value = torch.randn(space.size, generator=torch.Generator().manual_seed(4))
    for _ in range(steps):
        code = weights.explore(batch, generator)
        weights.learn(code, -value[space.index(code)])
    return weights, value.double()


CASES = [(w, s) for w in WEIGHTS for s in spaces() if w != "mean field" or s == "subsets"]


@pytest.mark.parametrize(("name", "space_name"), CASES)
def test_log_probabilities_are_those_of_the_draws(name, space_name, generator):
    space = spaces()[space_name]
    weights, _ = trained(name, space, 5, generator)
    with torch.no_grad():
        p = weights.log_prob(space.enumerate()).double().exp()
    assert float(p.sum()) == pytest.approx(1, abs=1e-5)
    seen = torch.bincount(space.index(weights.sample(N, generator)), minlength=len(p)).double() / N
    assert float(((seen - p) / (p * (1 - p) / N + 1e-12).sqrt()).abs().max()) < limit(len(p))


@pytest.mark.parametrize("name", LEARNT)
def test_weights_learn_the_posterior(name, generator):
    space = toys.conjugate_subsets().space
    weights, value = trained(name, space, 300, generator)
    with torch.no_grad():
        q = weights.log_prob(space.enumerate()).double().exp()
    assert float((q - value.softmax(0)).abs().max()) < 0.02


def gradient_scores(weights, space, value, generator, rounds=400, n=32):
    """z-scores of score-function gradients against the gradient by enumeration."""
    code = space.enumerate()
    log_q = weights.log_prob(code)
    parameters = [p for p in weights.parameters() if p.requires_grad]
    bound = (log_q.exp() * (log_q - value.to(log_q))).sum()
    exact = torch.cat([g.flatten() for g in torch.autograd.grad(bound, parameters)]).double()
    found = []
    for _ in range(rounds):
        draws = weights.sample(n, generator)
        _, gradient = weights.gradient(draws, -value[space.index(draws)])
        found.append(torch.cat([g.flatten() for g in gradient]).double())
    seen = torch.stack(found)
    error = seen.std(0) / rounds**0.5
    used = error > 1e-9
    return ((seen.mean(0) - exact)[used] / error[used]).abs()


SCENE = torch.tensor([-3902.0, -334.0, -351.0, 0.0, -1654.0, -282.0, -338.0, -1.56])  # nats


def test_an_entry_that_stood_in_for_others_is_let_go_again():
    """Three correlated columns, two of them effects; without these the third stands in for them."""
    space = trj.problems.variable_selection(3).space
    codes, off = space.enumerate(), []
    for seed in range(2):
        generator, steps = torch.Generator().manual_seed(seed), 600
        q = trj.weights.Made(space, hidden=(32,), seed=seed)
        for i in range(steps):
            q.reached((i + 1) / steps)
            code = q.sample(256, generator)
            q.learn(code, -SCENE[space.index(code)])
        log_q = q.log_prob(codes).detach()
        off.append(float((log_q.exp() * (log_q - SCENE.log_softmax(0))).sum()))
    assert max(off) < 0.05  # .5 if losses are not tempered


@pytest.mark.parametrize("name", ["categorical", "made", "mean field"])
def test_gradients_are_unbiased(name, generator):
    space = toys.conjugate_subsets().space
    weights, value = trained(name, space, 3, generator)
    z = gradient_scores(weights, space, value, generator)
    assert float(z.max()) < limit(len(z))


def test_with_a_biased_baseline_the_same_check_fails(generator, monkeypatch):
    """A control variate that looks at the draw it belongs to."""
    space = toys.conjugate_subsets().space
    weights, value = trained("categorical", space, 3, generator)
    monkeypatch.setattr(type(weights), "_baseline", lambda self, gain: 0.5 * gain)
    z = gradient_scores(weights, space, value, generator)
    assert float(z.max()) > limit(len(z))


def test_a_step_changes_the_entropy_by_no_more_than_asked(generator):
    space = toys.conjugate_subsets().space
    weights = trj.weights.CategoricalWeights(space, learning_rate=5.0, entropy_step=0.05)
    for _ in range(20):
        code = weights.sample(2000, generator)
        before = weights.logits.detach().clone()
        weights.learn(code, 10.0 * code[:, 0])
        now = weights.logits.detach()
        entropies = [-(x.softmax(0) * x.log_softmax(0)).sum() for x in (before, now)]
        assert abs(float(entropies[1] - entropies[0])) < 0.1  # estimated from the same draws


def test_beliefs_are_updated_by_bayes_rule():
    """Against the formulas of independent normal beliefs, with the noise of repeated draws."""
    space = toys.conjugate_subsets().space
    code = space.enumerate()[torch.tensor([0, 3, 3, 5])]
    value = torch.tensor([0.1, -1.0, -0.6, 0.7], dtype=torch.float64)
    weights = trj.weights.GaussianSurrogateWeights(space, prior_sd=2.0)
    weights.learn(code, -value)
    noise = 0.9 * 1.0 + 0.1 * (0.2**2 + 0.2**2)  # at first one square nat
    average, count = torch.tensor([0.1, -0.8, 0.7]), torch.tensor([1.0, 2.0, 1.0])
    expected = 4.0 + noise / count
    centre = float((average / expected).sum() / (1 / expected).sum())  # common to all
    seen = torch.tensor([0, 3, 5])
    gain = 4.0 / (4.0 + noise / count)
    assert weights.drift == 0.0 and weights.noise == pytest.approx(noise)
    assert torch.allclose(
        weights.mean[seen], (centre + gain * (average - centre)).double(), atol=1e-6
    )
    assert torch.allclose(weights.variance[seen], (4.0 * (1 - gain)).double(), atol=1e-6)
    assert float(weights.mean[1]) == pytest.approx(centre)
    assert float(weights.variance[1]) == 4.0


def test_beliefs_measure_how_fast_bounds_move(generator):
    """Bounds that are random walks, beside a rise of all: the drift is their variance."""
    space = trj.Subsets([f"x{i}" for i in range(4)], of="b")
    space = trj.Target(space, {"b": Normal(0.0, 1.0)}, lambda p, active: p["b"].sum(-1)).space
    weights = trj.weights.GaussianSurrogateWeights(space, prior_sd=10.0)
    bound, codes = torch.zeros(16), space.enumerate().repeat(8, 1)
    for _ in range(400):
        bound = bound + 1.0 + 0.3 * torch.randn(16, generator=generator)
        noise = 2.0 * torch.randn(128, generator=generator)
        weights.learn(codes, -(bound[space.index(codes)] + noise))
    assert weights.noise == pytest.approx(4.0, rel=0.5)
    assert weights.drift == pytest.approx(0.09, abs=0.2)
    off = weights.mean - weights.mean.mean() - (bound - bound.mean())
    assert float(off.square().mean()) < 4 * 0.5  # a batch alone: 0.5


def test_losses_that_are_not_finite_count_as_bad(generator):
    space = toys.conjugate_subsets().space
    for name in ("categorical", "gaussian", "made"):
        weights = WEIGHTS[name](space)
        for _ in range(200):
            code = weights.explore(256, generator)
            bad = torch.where(code[:, 0] > 0, torch.tensor([math.nan]), torch.zeros(256))
            weights.learn(code, bad)
        with torch.no_grad():
            p = weights.log_prob(space.enumerate()).double().exp()
        assert bool(p.isfinite().all())
        assert float(p[space.enumerate()[:, 0] > 0].sum()) < 0.05


def test_made_of_mixed_codes(generator):
    """Positions with different numbers of levels, the first of them never 0."""

    class Mixed(trj.Subsets):
        def levels(self):
            return torch.tensor([1, 0, 0]), torch.tensor([3, 2, 4])

    weights = trj.weights.Made(Mixed(list("abc"), of="x"), hidden=(8, 8))
    grid = torch.cartesian_prod(torch.arange(1, 4), torch.arange(2), torch.arange(4))
    for _ in range(300):
        code = weights.sample(256, generator)
        loss = ((code[:, 0] == 2) & (code[:, 2] != 3)).double() * 3.0
        weights.learn(code, loss)
    with torch.no_grad():
        p = weights.log_prob(grid).double().exp()
    assert float(p.sum()) == pytest.approx(1, abs=1e-5)
    exact = (-3.0 * ((grid[:, 0] == 2) & (grid[:, 2] != 3)).double()).softmax(0)
    assert float((p - exact).abs().max()) < 0.02


def orthogonal_columns():
    """Columns that do not overlap: units are independent, so that mean field is exact."""
    x = torch.kron(torch.eye(3), torch.ones(6, 1))
    y = x @ torch.tensor([0.9, 0.3, -0.6])
    space = trj.Subsets(list("abc"), of="beta", prior=0.5)

    def log_likelihood(p, active):
        return Normal(p["beta"] @ x.T, 1.0).log_prob(y).sum(-1)

    target = trj.Target(space, {"beta": Normal(0.0, 1.0)}, log_likelihood)
    p = trj.transport.LaplaceMap(target).log_evidence(space.enumerate()).double().softmax(0)
    return target, (space.enumerate().double() * p[:, None]).sum(0)


@pytest.mark.whole
@pytest.mark.parametrize(("gradient", "tolerance"), [("score", 0.02), ("straight-through", 0.1)])
def test_mean_field_finds_independent_units(gradient, tolerance, generator):
    """Straight-through gradients are biased: near, not on, the right answer."""
    target, exact = orthogonal_columns()
    weights = trj.weights.MeanField(target.space, gradient=gradient)
    objective = ReverseKL(target, anneal=0.0, weights=weights)
    settings = {"steps": 400, "batch": 256, "generator": generator, "progress": False}
    train(trj.transport.LaplaceMap(target), objective, **settings)
    assert float((weights.probabilities - exact).abs().max()) < tolerance


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda s: trj.weights.CategoricalWeights(s, learning_rate=0),
            ConfigurationError,
            "learning_rate > 0",
        ),
        (lambda s: trj.weights.Made(s, hidden=()), ConfigurationError, "hidden: expected positive"),
        (lambda s: trj.weights.MeanField(s, gradient="x"), ConfigurationError, "straight-through"),
        (lambda s: trj.weights.MeanField(toys.gaussians().space), ConfigurationError, "use Made"),
        (
            lambda s: trj.weights.GaussianSurrogateWeights(s, acquisition="x"),
            ConfigurationError,
            "thompson",
        ),
        (lambda s: trj.weights.GaussianSurrogateWeights(s, beta=0.0), ConfigurationError, "beta"),
        (
            lambda s: trj.weights.CategoricalWeights(
                trj.Subsets([str(i) for i in range(20)], of="b")
            ),
            ShapeError,
            "too large to enumerate",
        ),
    ],
)
def test_wrong_settings_say_what_is_wrong(make, error, message):
    with pytest.raises(error, match=message):
        make(toys.conjugate_subsets().space)


# ---- the whole ------------------------------------------------------------------------------


@pytest.mark.whole
@pytest.mark.parametrize(
    "name",
    ["made", "gaussian", "mean field", "uniform"],
)
def test_fit_alone_gives_the_variational_answer_and_run_the_exact_one(name, tmp_path):
    target = trj.problems.conjugate_selection(7, seed=6)  # 128 models
    sampler = trj.TRJSampler(target, models=WEIGHTS[name], seed=1)
    sampler.fit(steps=150, batch=256, audit=False, progress=False)
    answer = sampler.variational
    assert answer.cross_entropy is None
    assert float(answer.probabilities.sum()) <= 1 + 1e-6
    best = target.log_evidence_total
    assert answer.elbo.value < best + 4.5 * answer.elbo.std_error + 1e-3
    result = sampler.run(150, chains=128, fit=False, progress=False)
    found = result.inclusion_probabilities(full=True)
    z = (found["probability"].to_numpy() - target.inclusion.numpy()) / found["se"].to_numpy()
    assert np.nanmax(np.abs(z)) < limit(7)
    assert {"map", "map inside"} <= set(result.report.acceptance)
    assert result.report.plan.weights["map"] > 0
    answer = result.report.variational
    assert answer.cross_entropy.std_error < 0.1
    assert answer.divergence > -0.05
    if name in {"made", "gaussian"}:
        assert answer.divergence < 0.3
        assert answer.inclusion_error < 0.08
    result.save(tmp_path / "run.pt")
    again = trj.load(tmp_path / "run.pt").report.variational
    assert again.inclusion.equals(answer.inclusion)
    assert str(again) == str(answer)


def test_models_of_another_space_are_refused():
    target = trj.problems.conjugate_selection(7, seed=6)
    with pytest.raises(ConfigurationError, match="models: expected a trj"):
        trj.TRJSampler(target, models=trj.weights.Made(toys.conjugate_subsets().space))


def awkward_columns(kind):
    generator = torch.Generator().manual_seed(2)
    n, p = (6, 8) if kind == "more columns than rows" else (30, 7)
    x = torch.randn(n, p, generator=generator)
    y = x[:, 0] + torch.randn(n, generator=generator)
    if kind == "collinear":
        x[:, 3] = x[:, 1]
    if kind == "a column of zeros":
        x[:, 2] = 0.0
    return x, y


@pytest.mark.whole
@pytest.mark.parametrize(
    "kind",
    [
        "collinear",
        *(
            pytest.param(k, marks=pytest.mark.slow)
            for k in ("more columns than rows", "a column of zeros")
        ),
    ],
)
def test_awkward_designs(kind):
    target = trj.problems.conjugate_selection(
        x=awkward_columns(kind)[0], y=awkward_columns(kind)[1]
    )
    result = trj.TRJSampler(target, seed=2).run(150, chains=128, progress=False)
    found = result.inclusion_probabilities(full=True)
    z = (found["probability"].to_numpy() - target.inclusion.numpy()) / found["se"].to_numpy()
    assert np.nanmax(np.abs(z)) < limit(8)


@pytest.mark.whole
def test_a_likelihood_that_overflows_in_the_tail():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 7, generator=generator)
    y = torch.poisson((0.5 * x[:, 0]).exp(), generator=generator)

    def log_likelihood(p, active):  # exp overflows for coefficients of some 30
        rate = p["beta"] @ x.T
        return (y * rate - rate.exp()).sum(-1)

    space = trj.Subsets([f"x{i}" for i in range(7)], of="beta")
    target = trj.Target(space, {"beta": Normal(0.0, 10.0)}, log_likelihood)
    result = trj.TRJSampler(target, seed=2).run(400, chains=64, progress=False)
    assert float(result.inclusion_probabilities(full=True)["probability"].iloc[0]) > 0.5


@pytest.mark.whole
def test_a_prior_without_the_model_of_all_items():
    """No quadratic of all items: births, deaths and Laplace's evidences do."""
    space = trj.Subsets([f"x{i}" for i in range(7)], of="beta", prior=lambda size: float(size <= 2))
    x = torch.randn(30, 7, generator=torch.Generator().manual_seed(0))

    def log_likelihood(p, active):
        return Normal(p["beta"] @ x.T, 1.0).log_prob(x[:, 0]).sum(-1)

    target = trj.Target(space, {"beta": Normal(0.0, 1.0)}, log_likelihood)
    result = trj.TRJSampler(target, seed=2).run(80, chains=64, progress=False)
    assert int(result.raw.code.sum(-1).max()) <= 2
    assert "sweep" not in result.report.plan.weights


@pytest.mark.whole
def test_a_response_of_zeros_and_ones_in_float64():
    x = torch.randn(60, 7, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    y = (x[:, 0] > 0).double()

    def log_likelihood(p, active):
        return Bernoulli(logits=p["beta"] @ x.T).log_prob(y).sum(-1)

    space = trj.Subsets([f"x{i}" for i in range(7)], of="beta")
    target = trj.Target(space, {"beta": Normal(0.0, 3.0)}, log_likelihood, dtype=torch.float64)
    result = trj.TRJSampler(target, seed=2, dtype=torch.float64).run(400, chains=64, progress=False)
    assert float(result.inclusion_probabilities(full=True)["probability"].iloc[0]) > 0.99


@pytest.mark.slow
@shared_only
def test_robust_selection_against_evidences_of_all_models():
    """128 models by default settings; the reference is quadrature and long bridges."""
    target = trj.problems.robust_selection("mid", p=7, seed=701)
    reference = json.loads((SHARED / "gold" / "robust7_mid.json").read_text())
    log_z = torch.tensor(reference["values"]["mid"]["logZ"])
    p = log_z.double().softmax(0)
    code = target.space.enumerate()
    result = trj.TRJSampler(target, seed=3).run(1000, progress=False)
    found = result.inclusion_probabilities(full=True)["probability"].to_numpy()[1:]
    exact = (code.double() * p[:, None]).sum(0).numpy()
    assert np.abs(found - exact).max() < 0.005
    table = result.model_probabilities(full=True)
    for label, q in zip(target.space.label(code), p.tolist(), strict=True):
        if q > 0.01:
            row = table.loc[label]
            assert abs(row["visits"] - q) < 4 * row["visits_se"] + 2e-4, label
