"""Modes that tempering loses: found by other means, weighed, and taken up."""

import math
import warnings

import pytest
import torch
from torch.distributions import MultivariateNormal, Normal, StudentT

import trjmcmc as trj
from trjmcmc.pilot.audit import Audit
from trjmcmc.pilot.parts import Ellipsoid, distinct_modes, told_apart, weighed
from trjmcmc.pilot.screening import STEPS, search_modes
from trjmcmc.pilot.walk import walked
from trjmcmc.transport.base import Identity
from trjmcmc.transport.normals import gaussian_mixture

NARROW, WIDE = (0.7, 3.0, 0.1), (0.3, -2.0, 1.0)  # weight, centre, standard deviation
PRIOR = 3.0


def target(dim=3):
    """A narrow mode with most of the mass beside a wide one, and a model without parameters."""

    def log_likelihood(p):
        parts = [math.log(w) + Normal(m, s).log_prob(p["x"]).sum(-1) for w, m, s in (NARROW, WIDE)]
        return torch.logaddexp(*parts) - Normal(0.0, PRIOR).log_prob(p["x"]).sum(-1)

    modes = trj.Model("modes", {"x": Normal(torch.zeros(dim), PRIOR)}, log_likelihood)
    return trj.Target([modes, trj.Model("null", {}, lambda p: torch.tensor(0.0))])


def code_of(problem):
    return problem.space.enumerate()[0]


def wide_alone(problem, generator, n=4000):
    """Draws of the wide mode, its map, and the log evidence that it has."""
    dim = problem.dim
    theta = WIDE[1] + WIDE[2] * torch.randn(n, dim, generator=generator)
    code = code_of(problem).expand(n, -1)
    pool = trj.draws.Pool(code, theta, problem.log_joint(code, theta))
    return theta, gaussian_mixture(problem.space, pool, generator, components=1), math.log(WIDE[0])


# ---- parts ------------------------------------------------------------------------------------


def test_a_part_has_its_mass_and_its_error(generator):
    """Half of a standard normal, by draws of one twice as wide: errors as they are stated."""
    code, z = torch.zeros(1, dtype=torch.long), []
    one = torch.ones(1, dtype=torch.float64)
    everywhere = Ellipsoid(0 * one, one[:, None], one.bool(), math.inf)
    for _ in range(200):
        theta = 2 * torch.randn(400, 1, generator=generator)
        log_joint, log_q = Normal(0.0, 1.0).log_prob(theta), Normal(0.0, 2.0).log_prob(theta)
        part = weighed(
            code, theta, log_joint[:, 0], log_q[:, 0].double(), theta[:, 0] > 0, everywhere
        )
        z.append((part.log_mass - math.log(0.5)) / part.error)
        assert 50 < part.ess < 400
    z = torch.tensor(z)
    assert abs(float(z.mean())) < 4.5 / 200**0.5 + 0.1  # of a logarithm: slightly low
    assert abs(float(z.std()) - 1) < 4.5 / 400**0.5
    nothing = theta[:, 0] > 99
    assert weighed(code, theta, log_joint[:, 0], log_q[:, 0], nothing, everywhere) is None


def test_parts_that_overlap_count_each_point_once(generator):
    """The right tail of a standard normal, by three normals that reach over each other."""
    code, one = torch.zeros(1, dtype=torch.long), torch.ones(1, dtype=torch.float64)
    lost, parts = (lambda x: x[:, 0] > 0.5), []
    for centre, sd in ((1.0, 0.5), (2.0, 0.5), (1.5, 2.0)):
        place = Ellipsoid(centre * one, sd * one[:, None], one.bool(), 3.0)
        theta = centre + sd * torch.randn(20_000, 1, generator=generator, dtype=torch.float64)
        log_joint = Normal(0.0, 1.0).log_prob(theta[:, 0])
        made = weighed(code, theta, log_joint, place.log_density(theta), lost(theta), place)
        parts.append(made)
    exact = float(1 - Normal(0.0, 1.0).cdf(torch.tensor(0.5)))
    apart = told_apart(parts, lost)
    mass = sum(math.exp(p.log_mass) for p in apart)
    error = math.hypot(*(math.exp(p.log_mass) * p.error for p in apart))
    assert abs(mass - exact) < 5 * error < 0.02
    assert sum(math.exp(p.log_mass) for p in parts) > 2 * exact  # the control


@pytest.mark.whole
def test_a_tail_that_chains_visit_is_never_called_unknown():
    """Tails of a t distribution, of which a normal map knows nothing; a search meets them."""
    prior = StudentT(torch.tensor(1.5), 0.0, 1.0)
    models = [trj.Model(n, {"x": prior}, lambda p: 0 * p["x"]) for n in "ab"]
    problem = trj.Target(models)
    sampler = trj.TRJSampler(
        problem, lambda s: trj.transport.Affine(s).requires_grad_(False), seed=1
    )
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        result = sampler.run(draws=400, chains=256, fit=False, progress=False)
    table = result.model_probabilities(full=True)
    assert not [w for w in said if "met a part" in str(w.message)]
    assert abs(table.loc["a", "visits"] - 0.5) < 5 * table.loc["a", "visits_se"]


@pytest.mark.whole
def test_the_screening_gives_the_part_that_a_map_has_lost(generator):
    problem = target()
    theta, normals, known = wide_alone(problem, generator)
    part, *crumbs = search_modes(
        problem,
        code_of(problem),
        known,
        normals,
        theta[:0],
        20_000,
        generator,
    )
    log_prior = float(problem.space.log_prior(code_of(problem)[None])[0])
    assert abs(part.log_mass - log_prior - math.log(NARROW[0])) < 5 * part.error
    assert all(crumb.log_mass < part.log_mass - 2 for crumb in crumbs)
    near = part.theta[part.draw(500, generator)]
    assert bool(((near - NARROW[1]).abs() < 6 * NARROW[2]).all())


def test_an_audit_takes_up_a_part(generator):
    """Evidence, error, ancestors and draws are those of both; a new round drops it."""
    problem = target()
    audit = Audit(problem, problem.space.enumerate(), particles=50, moves=5, generator=generator)
    audit.grow(0)
    theta, normals, known = wide_alone(problem, generator)
    part, *_ = search_modes(problem, code_of(problem), known, normals, theta, 20_000, generator)
    alone, error, ancestors = audit.log_evidence, audit.std_error, audit.ancestors
    audit.add_part(part)
    outside = float(audit.outside[0])  # it may have met some of the narrow mode itself
    share = 1 - float((alone[0] - audit.log_evidence[0]).exp()) * outside
    assert float(audit.log_evidence[0]) == pytest.approx(0.0, abs=0.3)
    assert share == pytest.approx(NARROW[0], abs=0.1)
    assert float(audit.log_evidence[1]) == pytest.approx(float(alone[1]))
    assert float(audit.std_error[0]) > 0 and float(error[0]) > 0
    assert float(audit.ancestors[0]) > float(ancestors[0])
    drawn, log_joint, _ = audit.draw(torch.zeros(4000, dtype=torch.long))
    near = ((drawn - NARROW[1]).abs() < 6 * NARROW[2]).all(1)
    assert abs(float(near.double().mean()) - share) < 5 * (share * (1 - share) / 4000) ** 0.5
    code = code_of(problem).expand(4000, -1)
    assert torch.allclose(log_joint, problem.log_joint(code, drawn).double(), atol=1e-3)
    audit.enlarge(torch.tensor([0]))
    assert audit.parts == []


# ---- distinct modes -----------------------------------------------------------------------------


def test_ends_of_climbs_are_told_apart_by_their_hills(generator):
    at = 30 * torch.randn(9, 6, generator=generator)

    def log_joint(x):
        return (-0.5 * torch.cdist(x, at).square()).logsumexp(1)

    hill = torch.randint(9, (60,), generator=generator)
    ends = at[hill] + 0.1 * torch.randn(60, 6, generator=generator)
    summits = torch.stack([*distinct_modes(ends, log_joint(ends), log_joint)])
    nearest = torch.cdist(summits, at).argmin(1)
    assert sorted(nearest.tolist()) == hill.unique().tolist()  # each once
    assert not [*distinct_modes(ends, torch.full((60,), -math.inf), log_joint)]


def test_a_low_wide_mode_is_met_beside_a_high_narrow_one(generator):
    """Whatever lies higher than most climbs, some are followed to the end."""

    def log_likelihood(p):
        high = math.log(0.5) + Normal(2.0, 0.3).log_prob(p["x"]).sum(-1)
        low = math.log(0.5) + Normal(-3.0, 1.0).log_prob(p["x"]).sum(-1)
        return torch.logaddexp(high, low) - Normal(0.0, PRIOR).log_prob(p["x"]).sum(-1)

    problem = trj.Target([trj.Model("m", {"x": Normal(torch.zeros(6), PRIOR)}, log_likelihood)])
    code = problem.space.enumerate()[0]
    theta = 2 + 0.3 * torch.randn(4000, 6, generator=generator)
    codes = code.expand(4000, -1)
    pool = trj.draws.Pool(codes, theta, problem.log_joint(codes, theta))
    known = gaussian_mixture(problem.space, pool, generator, components=1)
    (part,) = search_modes(problem, code, math.log(0.5), known, theta, 8192, generator)
    assert abs(part.log_mass - math.log(0.5)) < max(0.1, 5 * part.error)


def test_points_of_a_mode_nearby_do_not_speak_for_a_lost_one(generator):
    """In many dimensions two modes of one width lie six widths apart, and their shells overlap."""
    dim, step = 16, 6.3 / 4

    def log_likelihood(p):
        parts = [
            math.log(w) + Normal(m, 1.0).log_prob(p["x"]).sum(-1)
            for w, m in ((0.6, 0.0), (0.4, step))
        ]
        return torch.logaddexp(*parts) - Normal(0.0, PRIOR).log_prob(p["x"]).sum(-1)

    problem = trj.Target([trj.Model("m", {"x": Normal(torch.zeros(dim), PRIOR)}, log_likelihood)])
    code = problem.space.enumerate()[0]
    theta = torch.randn(4000, dim, generator=generator)
    codes = code.expand(4000, -1)
    pool = trj.draws.Pool(codes, theta, problem.log_joint(codes, theta))
    known = gaussian_mixture(problem.space, pool, generator, components=1)
    (part,) = search_modes(problem, code, math.log(0.6), known, theta, 8192, generator)
    assert abs(part.log_mass - math.log(0.4)) < max(0.15, 5 * part.error)


def test_several_lost_modes_are_weighed_at_once(generator):
    """Four of 3.5 % each: of one after another each was too small to be counted."""
    centres = torch.tensor([[-1.0, 7.6, 6.4], [7, 7, -7], [-8, 5, -6], [6, -8, 7]])

    def log_likelihood(p):
        x = p["x"]
        parts = [math.log(0.86) + Normal(0.0, 0.8).log_prob(x).sum(-1)]
        parts += [math.log(0.035) + Normal(c.to(x), 0.1).log_prob(x).sum(-1) for c in centres]
        return torch.stack(parts).logsumexp(0) - Normal(0.0, 6.0).log_prob(x).sum(-1)

    problem = trj.Target([trj.Model("m", {"x": Normal(torch.zeros(3), 6.0)}, log_likelihood)])
    code = problem.space.enumerate()[0]
    theta = 0.8 * torch.randn(4000, 3, generator=generator)
    codes = code.expand(4000, -1)
    pool = trj.draws.Pool(codes, theta, problem.log_joint(codes, theta))
    known = gaussian_mixture(problem.space, pool, generator, components=1)
    parts = search_modes(problem, code, math.log(0.86), known, theta, 65_536, generator)
    assert len(parts) >= 3  # one may be missed by so few draws
    assert all(1 <= part.met <= 1024 for part in parts)
    mass = sum(math.exp(part.log_mass) for part in parts)
    assert mass == pytest.approx(len(parts) * 0.035, rel=0.15)


def test_walks_side_by_side_have_each_the_extent_of_its_own_place(generator):
    problem = target()
    summits = torch.tensor([[NARROW[1]], [WIDE[1]]]).expand(2, 3)
    starts = summits[:, None].expand(-1, 256, -1)
    scale = torch.full((3,), PRIOR)
    points = walked(problem, code_of(problem), starts, scale, generator, STEPS)
    expected = torch.tensor([NARROW[2], WIDE[2]])[:, None].expand(2, 3)
    assert torch.allclose(points.std(1), expected, rtol=0.2)
    assert bool(((points.mean(1) - summits).abs() < 0.3 * expected).all())


@pytest.mark.parametrize("turned", [False, True])
def test_a_part_that_is_narrow_in_one_direction_has_its_mass(generator, turned):
    """Steps of one length for all weighed e^-8 of it, for they never left the ridge's middle."""
    sds = torch.tensor([1e-3, 0.5, 0.5, 1.0], dtype=torch.float64)
    turn = torch.linalg.qr(torch.randn(4, 4, generator=generator, dtype=torch.float64))[0]
    factor = (turn if turned else torch.eye(4, dtype=torch.float64)) * sds
    ridge = MultivariateNormal(torch.full((4,), 3.0), factor @ factor.mT)
    prior = Normal(torch.zeros(4, dtype=torch.float64), 6.0)

    def log_likelihood(p):
        return ridge.log_prob(p["x"]) - prior.log_prob(p["x"]).sum(-1)

    problem = trj.Target([trj.Model("m", {"x": prior}, log_likelihood)], dtype=torch.float64)
    code = code_of(problem)

    class Elsewhere(Identity):
        def log_prob(self, theta, code):
            return torch.full((len(theta),), -1e9, dtype=torch.float64)

    none = torch.zeros(0, 4, dtype=torch.float64)
    parts = search_modes(problem, code, 0.0, Elsewhere(problem.space), none, 20_000, generator)
    mass = torch.tensor([part.log_mass for part in parts]).logsumexp(0)
    assert mass.item() == pytest.approx(0.0, abs=0.1)


# ---- models that were not weighed -------------------------------------------------------------


def subsets(items, log_likelihood):
    names = [f"b{i}" for i in range(items)]
    space = trj.Subsets(names, of="beta", prior=0.5)
    return trj.Target(space, {"beta": Normal(0.0, 6.0)}, log_likelihood)
