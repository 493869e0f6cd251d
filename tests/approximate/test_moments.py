"""Maps that are given the moments of draws that short chains have moved."""

import math

import pytest
import torch
from torch.distributions import MultivariateNormal, Normal

import trjmcmc as trj
from trjmcmc.approximate import ApproximationPolicy
from trjmcmc.approximate import moments as module
from trjmcmc.approximate.moments import Widening, can_be_followed, difference, followed
from trjmcmc.transport import Gaussians, MixtureOfMaps
from trjmcmc.transport.whitened import Whitened

D = 24

POLICY = ApproximationPolicy(moved_draws=4000, moved_chains=240, moved_steps=6, moved_judges=500)


def normal_target(d=D, rho=0.3):
    """A normal posterior of means 1, variances 1 and equal correlations, log evidence 0."""
    prior = Normal(torch.zeros(d, dtype=torch.float64), 3.0)
    covariance = (1 - rho) * torch.eye(d, dtype=torch.float64) + rho
    exact = MultivariateNormal(torch.ones(d).double(), covariance)

    def log_likelihood(params):
        x = params["x"].double()
        return exact.log_prob(x) - prior.log_prob(x).sum(-1)

    target = trj.Target([trj.Model("normal", {"x": prior}, log_likelihood)])
    return target.to(dtype=torch.float64), exact


def normal_map(space, loc, covariance):
    tril = torch.linalg.cholesky(covariance)
    return trj.transport.Affine(space, loc[None], tril[None]).requires_grad_(False)


def kl(loc, covariance, exact):
    """KL(q | p) of a normal q, nats."""
    q = MultivariateNormal(loc, covariance)
    return float(torch.distributions.kl_divergence(q, exact))


def image(before, loc, factor):
    return loc + factor @ before.loc, factor @ before.covariance_matrix @ factor.mT


# ---- moments of draws ----------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, D])
def test_the_moments_of_moved_draws_are_found(d):
    generator = torch.Generator().manual_seed(0)
    _, exact = normal_target(d)
    narrow = MultivariateNormal(torch.zeros(d).double(), 0.25 * torch.eye(d, dtype=torch.float64))
    before = 0.5 * torch.randn(20_000, d, generator=generator, dtype=torch.float64)
    after = torch.randn(10, 1000, d, generator=generator, dtype=torch.float64)
    after = exact.loc + after @ exact.scale_tril.mT
    loc, factor = difference(before, after)
    assert torch.equal(factor, factor.tril())
    assert (
        kl(*image(narrow, loc, factor), exact)
        < 0.02
        < kl(narrow.loc, narrow.covariance_matrix, exact)
    )


def test_noise_is_not_taken_for_moments():
    """Chains that went nowhere: their own covariance would cost d (d + 1) / 4 n nats and more."""
    generator = torch.Generator().manual_seed(1)
    same = MultivariateNormal(torch.zeros(D).double(), torch.eye(D, dtype=torch.float64))
    before = torch.randn(2000, D, generator=generator, dtype=torch.float64)
    after = torch.randn(2, 1000, D, generator=generator, dtype=torch.float64)
    raw = after.flatten(0, 1)
    naive = kl(raw.mean(0), torch.cov(raw.mT), same)
    assert naive > 0.05
    assert kl(*image(same, *difference(before, after)), same) < naive / 3


# ---- maps ----------------------------------------------------------------------------------------


def test_a_map_that_is_too_narrow_is_widened():
    target, exact = normal_target()
    covariance = 0.7 * exact.covariance_matrix
    narrow = normal_map(target.space, exact.loc - 0.1, covariance)
    generator = torch.Generator().manual_seed(2)
    widening = Widening(target, target.space.enumerate(), generator, POLICY)
    wide = widening.of(narrow, [0])
    z = torch.randn(20_000, D, generator=generator, dtype=torch.float64)
    x, _ = wide.push(z, target.space.enumerate().expand(len(z), -1))
    before = kl(exact.loc - 0.1, covariance, exact)
    assert before > 0.6
    assert kl(x.mean(0), torch.cov(x.mT), exact) < 0.15  # of which .04 is noise of 20 000 draws
    assert float(x.std(0).mean()) == pytest.approx(1.0, abs=0.06)  # 5 se; it was .84


def test_a_map_that_is_exact_stays_so():
    target, exact = normal_target()
    right = normal_map(target.space, exact.loc, exact.covariance_matrix)
    generator = torch.Generator().manual_seed(3)
    found = Widening(target, target.space.enumerate(), generator, POLICY).of(right, [0])
    code = target.space.enumerate().expand(2000, -1)
    theta, log_q = found.push(torch.randn(2000, D, generator=generator, dtype=torch.float64), code)
    assert float((log_q - target.log_joint(code, theta)).mean()) < 0.1


def test_moments_that_raise_the_divergence_are_left(monkeypatch):
    """Negative control: what the judges are for."""
    target, exact = normal_target()
    right = normal_map(target.space, exact.loc, exact.covariance_matrix)

    def wrong(before, after):
        return torch.zeros(D).double(), 1.1 * torch.eye(D, dtype=torch.float64)

    monkeypatch.setattr(module, "difference", wrong)
    widening = Widening(target, target.space.enumerate(), torch.Generator().manual_seed(4), POLICY)
    found = widening.of(right, [0])
    z, code = torch.ones(5, D).double(), target.space.enumerate().expand(5, -1)
    assert torch.allclose(found.push(z, code)[0], right.push(z, code)[0])


def test_draws_without_a_density_start_no_chain():
    """A half-normal by a map of both sides; and where no draw has a density there is no move."""
    prior = Normal(torch.zeros(2, dtype=torch.float64), 1.0)

    def beyond(least):
        def log_likelihood(params):
            return torch.where((params["x"] > least).all(-1), 0.0, -math.inf)

        target = trj.Target([trj.Model("m", {"x": prior}, log_likelihood)]).to(dtype=torch.float64)
        flow = normal_map(target.space, torch.zeros(2).double(), torch.eye(2).double())
        generator = torch.Generator().manual_seed(5)
        return Widening(target, target.space.enumerate(), generator, POLICY).moved(flow, 0, 5)

    moved = beyond(0.0)
    assert 40 <= moved.after.shape[1] < 100 and bool((moved.after > 0).all())
    assert beyond(9.0) is None


def test_models_are_widened_one_by_one():
    """Unlike numbers of coordinates, and one of them left alone."""
    space = trj.problems.sinh_arcsinh().space
    flow = (
        trj.transport.CosmicFlow(space, layers=1, hidden=(4,), seed=0)
        .double()
        .requires_grad_(False)
    )
    loc = torch.tensor([[1.0, 0.0], [0.0, 0.0]]).double()
    factor = torch.diag_embed(torch.tensor([[2.0, 1.0], [1.0, 1.0]])).double()
    codes, z = space.enumerate(), torch.ones(2, 2, dtype=torch.float64)
    before, after = flow.push(z, codes), followed(flow, loc, factor).push(z, codes)
    assert after[0].tolist() == [[3.0, 1.0], [1.0, 1.0]]
    assert float(after[1][0] - before[1][0]) == pytest.approx(-math.log(2))
    assert torch.equal(after[1][1], before[1][1])


def test_what_an_affine_map_can_follow():
    space = normal_target(2)[0].space
    loc, tril = torch.zeros(1, 2, 2).double(), torch.eye(2).double().repeat(1, 2, 1, 1)
    shift, factor = torch.ones(1, 2).double(), 2 * torch.eye(2).double()[None]
    inner = Whitened(trj.transport.Affine(space), torch.zeros(1, 2), torch.eye(2)[None]).double()
    mixture = MixtureOfMaps(
        Gaussians(space, loc, tril), inner, log_weights=torch.zeros(1, 2).double()
    )
    assert can_be_followed(mixture) and can_be_followed(inner)
    assert not can_be_followed(MixtureOfMaps(Gaussians(space, loc, tril)))
    code = space.enumerate().expand(6, -1)
    z = mixture.reference.sample((6, 2), torch.Generator().manual_seed(0), torch.float64)
    x, log_q = mixture.push(z, code)
    y, log_r = followed(mixture, shift, factor).push(z, code)
    assert torch.allclose(y, 1 + 2 * x) and torch.allclose(log_r, log_q - 2 * math.log(2))
    assert torch.allclose(followed(mixture, shift, factor).log_prob(y, code), log_r)


@pytest.mark.filterwarnings("ignore::trjmcmc.errors.TRJWarning")
@pytest.mark.parametrize(
    ("settings", "calls"),
    [
        ({"family": "coupling", "layers": 1, "hidden": (4,)}, [[0]]),
        ({"family": "coupling", "layers": 1, "hidden": (4,), "objective": "reverse"}, []),
        ({"family": "mean-field"}, []),
        ({"family": trj.transport.Affine}, [[0]]),
    ],
)
def test_which_answers_are_widened(monkeypatch, settings, calls):
    """Flows that were trained without draws to learn from; not where reverse KL alone is asked."""
    found = []
    monkeypatch.setattr(Widening, "of", lambda self, q, which, most: found.append(which) or q)
    policy = ApproximationPolicy(many_coordinates=1, enough_share=1.0)
    target, _ = normal_target(3)
    given = {"steps": 5, "batch": 16, "learning_rate": 1e-3, "draws": 200} | settings
    trj.variational(target, audit=False, seed=1, progress=False, policy=policy, **given)
    assert found == calls


@pytest.mark.filterwarnings("ignore::trjmcmc.errors.TRJWarning")
def test_a_users_map_is_left_as_it_is(monkeypatch):
    found = []
    monkeypatch.setattr(Widening, "of", lambda self, q, which, most: found.append(which) or q)
    policy = ApproximationPolicy(many_coordinates=1, enough_share=1.0)
    target, _ = normal_target(3)
    settings = {"steps": 5, "batch": 16, "learning_rate": 1e-3, "draws": 200, "policy": policy}
    given = trj.transport.Affine(target.space).double()
    trj.variational(target, given, audit=False, seed=1, progress=False, **settings)
    assert not found
