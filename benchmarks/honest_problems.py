"""Problems that are hard to explore and whose answers are known exactly, for ``honesty.py``.

Most posteriors are designed: the likelihood is a normalised density over the prior, so that the
evidence is 1 and every share is a weight that was put in. Period searches and pulses are data;
amplitudes are integrated in closed form there and frequencies on a grid.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import torch
from scipy.special import betaln, gammaln
from torch import Tensor
from torch.distributions import (
    Beta,
    Dirichlet,
    Distribution,
    HalfCauchy,
    LogNormal,
    Normal,
    StudentT,
    Uniform,
)

import trjmcmc as trj
from trjmcmc.errors import TRJError

Reported = list[tuple[str, float, float, str]]  # column, value, standard error, note
Params = dict[str, Tensor]
PROBABILITY, NATS = 0.005, 0.01  # gaps that matter to nobody


@dataclass(frozen=True)
class Question:
    """One number with a known answer.

    Attributes:
        what: In words.
        exact: The answer.
        read: What a result reports, one entry for each column that a user may look at.
        tolerance: Gap up to which an answer counts as right whatever its error.
    """

    what: str
    exact: float
    read: Callable[[trj.Result], Reported]
    tolerance: float = PROBABILITY


@dataclass(frozen=True)
class Stated:
    """A target, the questions, and settings of the run if it is no default one."""

    target: trj.Target
    questions: list[Question]
    settings: dict[str, Any] = field(default_factory=dict)
    mixture: "Mixture | None" = None


def _rng(family: int, seed: int) -> np.random.Generator:
    return np.random.default_rng([family, seed])


# ---- what a user reads -----------------------------------------------------------------------


def _columns(row: Any, names: dict[str, str]) -> Reported:
    """Columns of a table's row that hold a number, with their errors and the row's note."""
    note = str(row.get("note", "") or "")
    return [
        (name, float(row[name]), float(row[error]), note)
        for name, error in names.items()
        if name in row and not math.isnan(row[name])
    ]


def probability(label: str, exact: float) -> Question:
    """Posterior probability of a model."""

    def read(result: trj.Result) -> Reported:
        table = result.model_probabilities(full=True)
        if label not in table.index:
            return []
        return _columns(table.loc[label], {"visits": "visits_se", "combined": "combined_se"})

    return Question(f"p({label})", exact, read)


def inclusion(item: str, exact: float) -> Question:
    """Posterior probability that an item is in the model."""

    def read(result: trj.Result) -> Reported:
        row = result.inclusion_probabilities(full=True).loc[item]
        return _columns(row, {"probability": "se", "combined": "combined_se"})

    return Question(f"p({item} in)", exact, read)


def count(k: int, exact: float) -> Question:
    """Posterior probability of a number of components."""

    def read(result: trj.Result) -> Reported:
        row = result.counts(full=True).xs(k, level="count").iloc[0]
        return _columns(row, {"probability": "se", "combined": "combined_se"})

    return Question(f"p(k = {k})", exact, read)


def share(what: str, exact: float, f: Any) -> Question:
    """Posterior probability of an event, by its indicator."""

    def read(result: trj.Result) -> Reported:
        found = result.predict(f)
        return [("predict", float(found.mean), float(found.std_error), "")]

    return Question(what, exact, read)


def log_odds(a: str, b: str, exact: float) -> Question:
    """Log Bayes factor of two models."""

    def read(result: trj.Result) -> Reported:
        found = result.bayes_factor(a, b, log=True)
        return [("bayes_factor", found.value, found.std_error, found.warning)]

    return Question(f"log Bayes factor of {a} to {b}", exact, read, NATS)


def log_evidence(label: str, exact: float) -> Question:
    """Log evidence of a model, where the run weighed it."""

    def read(result: trj.Result) -> Reported:
        try:
            row = result.evidence(full=True).loc[label]
        except (TRJError, KeyError):
            return []
        return _columns(row, {"combined": "combined_se"})

    return Question(f"log evidence of {label}", exact, read, NATS)


# ---- designed posteriors ---------------------------------------------------------------------


@dataclass(frozen=True)
class Mixture:
    """A mixture of normals in D dimensions, each with one width.

    Arguments:
        weights: Shape (K,), summing to 1.
        centres: Shape (K, D).
        sds: Shape (K,).
        bend: The second coordinate is bent along the square of the first: bananas.
    """

    weights: Any
    centres: Any
    sds: Any
    bend: float = 0.0

    @property
    def dim(self) -> int:
        return int(np.shape(self.centres)[1])

    def by_part(self, x: Tensor) -> Tensor:
        """Log density of each part with its weight, (N, D) -> (N, K)."""
        w, c, s = (
            torch.as_tensor(np.asarray(v)).to(x) for v in (self.weights, self.centres, self.sds)
        )
        gap = x[:, None] - c
        if self.bend:
            bent = gap[..., 1] - self.bend * (gap[..., 0].square() - s.square())
            gap = torch.cat([gap[..., :1], bent[..., None], gap[..., 2:]], -1)
        z = gap / s[:, None]
        constant = self.dim * (s.log() + 0.5 * math.log(2 * math.pi))
        return w.log() - constant - 0.5 * z.square().sum(-1)

    def log_density(self, x: Tensor) -> Tensor:
        return self.by_part(x).logsumexp(-1)

    def in_part(self, k: int) -> Callable[[Params], Tensor]:
        """Probability that a point comes from part k: its mean is the weight, overlap or not."""
        return lambda p: self.by_part(p["x"].double()).softmax(-1)[:, k]

    def draw(self, n: int, rng: np.random.Generator) -> Tensor:
        """Shape (n, D), float64."""
        which = rng.choice(len(self.weights), n, p=np.asarray(self.weights))
        s = np.asarray(self.sds)[which, None]
        gap = s * rng.standard_normal((n, self.dim))
        if self.bend:
            gap[:, 1] += self.bend * (gap[:, 0] ** 2 - np.asarray(self.sds)[which] ** 2)
        return torch.as_tensor(np.asarray(self.centres, dtype=float)[which] + gap)


def along(places: list[float], dim: int) -> list[list[float]]:
    """Centres with all coordinates the same."""
    return [[place] * dim for place in places]


def _designed(
    log_density: Callable[[Tensor], Tensor], prior: Distribution
) -> Callable[[Params], Tensor]:
    """A likelihood under which the posterior is that density and the evidence is 1."""
    return lambda p: log_density(p["x"]) - prior.log_prob(p["x"]).sum(-1)


def nothing(log_z: float = 0.0) -> trj.Model:
    return trj.Model("null", {}, lambda p: torch.tensor(log_z))


def against_null(mixture: Mixture, prior_sd: float) -> Stated:
    """A mixture of modes against a null of the same evidence."""
    prior = Normal(torch.zeros(mixture.dim), prior_sd)
    modes = trj.Model("modes", {"x": prior}, _designed(mixture.log_density, prior))
    first = {"null": lambda p: torch.tensor(0.0), "modes": mixture.in_part(0)}
    questions = [
        probability("null", 0.5),
        share("p(modes, in the first)", 0.5 * float(mixture.weights[0]), first),
        log_evidence("modes", 0.0),
    ]
    return Stated(trj.Target([nothing(), modes]), questions, mixture=mixture)


def alone(mixture: Mixture, prior_sd: float) -> Stated:
    """A mixture of modes as the only model."""
    prior = Normal(torch.zeros(mixture.dim), prior_sd)
    model = trj.Model("modes", {"x": prior}, _designed(mixture.log_density, prior))
    questions = [
        share(f"p(mode {k + 1})", float(w), mixture.in_part(k))
        for k, w in enumerate(mixture.weights)
    ]
    return Stated(trj.Target([model]), questions, mixture=mixture)


def random_mixture(rng: np.random.Generator, dim: int, parts: int) -> Mixture:
    """Modes of widths .1 to 1.5 about centres of spread 2.5."""
    return Mixture(
        rng.dirichlet([3.0] * parts),
        rng.normal(0, 2.5, (parts, dim)),
        np.exp(rng.uniform(math.log(0.1), math.log(1.5), parts)),
    )


def list_of_three(seed: int) -> Stated:
    """Three models of random dimensions, each with two or three modes of random widths."""
    rng = _rng(3, seed)
    p = rng.dirichlet([4.0] * 3)
    models = []
    for name in "abc":
        dim = int(rng.choice([1, 2, 3, 5, 8]))
        mixture, prior = (
            random_mixture(rng, dim, int(rng.integers(2, 4))),
            Normal(torch.zeros(dim), 4.0),
        )
        models.append(trj.Model(name, {"x": prior}, _designed(mixture.log_density, prior)))
    questions = [probability(name, float(p[i])) for i, name in enumerate("abc")]
    return Stated(trj.Target(models, model_prior=p.tolist()), questions)


def heavy_tails(dim: int, df: float, seed: int) -> Stated:
    """Student posteriors with few degrees of freedom under a Cauchy prior, against a null."""
    rng = _rng(4, seed)
    centre = torch.tensor(rng.normal(0, 5, dim), dtype=torch.float32)
    posterior, prior = StudentT(df, centre, 1.0), StudentT(1.0, torch.zeros(dim), 10.0)
    tails = trj.Model(
        "tails", {"x": prior}, _designed(lambda x: posterior.log_prob(x).sum(-1), prior)
    )
    far = {
        "null": lambda p: torch.tensor(0.0),
        "tails": lambda p: (p["x"][:, 0] > centre[0]).double(),
    }
    questions = [probability("null", 0.5), share("p(tails, right of the centre)", 0.25, far)]
    return Stated(trj.Target([nothing(), tails]), questions)


def ridge(noise: float = 0.02, product: float = 3.0, sd: float = 10.0) -> Stated:
    """a b = 3 +- .02 under N(0, 10^2) for both: a long thin ridge, twice."""
    normal = Normal(0.0, sd)

    def log_likelihood(p: Params) -> Tensor:
        return -0.5 * ((p["a"] * p["b"] - product) / noise).square()

    near = ridge_share(noise, product, sd, 0.5)
    questions = [
        share("p(|a| < .5)", near, lambda p: (p["a"].abs() < 0.5).double()),
        share("p(a > 0)", 0.5, lambda p: (p["a"] > 0).double()),
    ]
    model = trj.Model("ridge", {"a": normal, "b": normal}, log_likelihood)
    return Stated(trj.Target([model]), questions)


def ridge_share(noise: float, product: float, sd: float, edge: float) -> float:
    """P(|a| < edge) on the ridge, by quadrature over log a and a b."""
    log_a = math.log(edge) + 0.0005 * (np.arange(-16_000, 12_000) + 0.5)[:, None]
    a, c = np.exp(log_a), product + noise * np.linspace(-8, 8, 201)
    density = -0.5 * (a**2 + (c / a) ** 2) / sd**2 - 0.5 * ((c - product) / noise) ** 2
    mass = np.exp(density).sum(1)
    return float(mass[log_a[:, 0] < math.log(edge)].sum() / mass.sum())


def funnel(seed: int, size: int = 9) -> Stated:
    """Neal's funnel with data of noise 1 about its mouths, against data of noise alone."""
    y = _rng(15, seed).normal(0, 1.5, size)
    data = torch.as_tensor(y)

    def log_likelihood(p: Params) -> Tensor:
        return Normal(p["x"], 1.0).log_prob(data.to(p["x"])).sum(-1)

    priors = {
        "v": Normal(0.0, 3.0),
        "x": lambda p: Normal(0.0, (p["v"] / 2).exp()[:, None]).expand([len(p["v"]), size]),
    }
    v = np.linspace(-30, 30, 60_001)
    spread = np.exp(v)[:, None] + 1
    terms = -0.5 * (y**2 / spread + np.log(2 * math.pi * spread)).sum(1)
    terms = terms - 0.5 * (v / 3) ** 2 - math.log(3 * math.sqrt(2 * math.pi))
    log_z = float(np.logaddexp.reduce(terms) + math.log(v[1] - v[0]))
    positive = math.exp(np.logaddexp.reduce(terms[v > 0]) - np.logaddexp.reduce(terms))
    funnel_model = trj.Model("funnel", priors, log_likelihood)
    log_noise = float(-0.5 * (y**2 + math.log(2 * math.pi)).sum())
    p = 1 / (1 + math.exp(log_noise - log_z))
    questions = [
        probability("funnel", p),
        share(
            "p(funnel, v > 0)",
            p * positive,
            {"funnel": lambda q: (q["v"] > 0).double(), "null": lambda q: torch.tensor(0.0)},
        ),
    ]
    return Stated(trj.Target([nothing(log_noise), funnel_model]), questions)


def horseshoe(seed: int, size: int = 6) -> Stated:
    """Normal means under a horseshoe, 2 size + 1 parameters, against all of them zero."""
    y = _rng(16, seed).normal(0, 1, size)
    y[: size // 3] += 3.0
    data = torch.as_tensor(y)
    half = HalfCauchy(torch.tensor(1.0))

    def log_likelihood(p: Params) -> Tensor:
        return Normal(p["beta"], 1.0).log_prob(data.to(p["beta"])).sum(-1)

    priors = {
        "tau": half,
        "lam": half.expand([size]),
        "beta": lambda p: Normal(0.0, p["tau"][:, None] * p["lam"]),
    }
    # both half-Cauchy scales are tangents of a uniform angle
    angle = (np.arange(4000) + 0.5) / 4000 * math.pi / 2
    square = (np.tan(angle)[:, None] * np.tan(angle)) ** 2 + 1  # (tau, lambda)
    log_z = np.zeros(len(angle))
    for value in y:
        terms = -0.5 * (value**2 / square + np.log(2 * math.pi * square))
        log_z += np.logaddexp.reduce(terms, 1) - math.log(len(angle))
    above = float(np.logaddexp.reduce(log_z[angle > math.pi / 4]) - np.logaddexp.reduce(log_z))
    log_evidence_ = float(np.logaddexp.reduce(log_z) - math.log(len(angle)))
    log_noise = float(-0.5 * (y**2 + math.log(2 * math.pi)).sum())
    p = 1 / (1 + math.exp(log_noise - log_evidence_))
    questions = [
        probability("horseshoe", p),
        share(
            "p(horseshoe, tau > 1)",
            p * math.exp(above),
            {"horseshoe": lambda q: (q["tau"] > 1).double(), "null": lambda q: torch.tensor(0.0)},
        ),
    ]
    model = trj.Model("horseshoe", priors, log_likelihood)
    return Stated(trj.Target([nothing(log_noise), model]), questions)


def rings(
    radii: tuple[float, float] = (1.0, 4.0), width: float = 0.02, weight: float = 0.3
) -> Stated:
    """Two concentric rings under N(0, 10^2), the inner one with a share given."""
    prior = Normal(torch.zeros(2), 10.0)
    area = [_ring_mass(r, width) for r in radii]

    def log_density(x: Tensor) -> Tensor:
        r = x.square().sum(-1).sqrt()
        parts = [
            math.log(w / a) - 0.5 * ((r - radius) / width).square()
            for w, a, radius in zip((weight, 1 - weight), area, radii, strict=True)
        ]
        return torch.logaddexp(*parts)

    between = 0.5 * sum(radii)
    model = trj.Model("rings", {"x": prior}, _designed(log_density, prior))
    inner = share("p(inner)", weight, lambda p: (p["x"].square().sum(-1) < between**2).double())
    right = share("p(x > 0)", 0.5, lambda p: (p["x"][:, 0] > 0).double())
    return Stated(trj.Target([model]), [inner, right])


def _ring_mass(radius: float, width: float) -> float:
    """Integral of exp(-(r - radius)^2 / 2 width^2) over the plane, nothing lost at r = 0."""
    return 2 * math.pi * radius * width * math.sqrt(2 * math.pi)


# ---- spaces of items -------------------------------------------------------------------------


def _spikes(rng: np.random.Generator, items: int, narrow: float) -> tuple[Mixture, ...]:
    """For each item a narrow spike on one side and a wide bump on the other."""
    side = rng.choice([-1.0, 1.0], items)
    place, weight = rng.uniform(1, 3, items), rng.uniform(0.25, 0.75, items)
    return tuple(
        Mixture([w, 1 - w], [[s * c], [-s * c]], [narrow, 1.0])
        for s, c, w in zip(side, place, weight, strict=True)
    )


def spiky_subsets(items: int = 16, narrow: float = 0.05, seed: int = 0) -> Stated:
    """Independent coefficients, each posterior a spike and a bump; inclusion is exact."""
    rng = _rng(5, seed)
    parts, log_e = _spikes(rng, items, narrow), rng.uniform(-1.5, 1.5, items)
    prior, level = Normal(0.0, 3.0), torch.tensor(log_e)

    def log_likelihood(p: Params, active: Tensor) -> Tensor:
        beta = p["beta"]
        each = [m.log_density(beta[:, j : j + 1]) for j, m in enumerate(parts)]
        gain = torch.stack(each, 1) - prior.log_prob(beta) + level.to(beta)
        return torch.where(active, gain, 0.0).sum(-1)

    names = [f"v{j + 1}" for j in range(items)]
    target = trj.Target(trj.Subsets(names, of="beta"), {"beta": prior}, log_likelihood)
    exact = 1 / (1 + np.exp(-log_e))
    return Stated(target, [inclusion(n, float(e)) for n, e in zip(names, exact, strict=True)])


def far_subsets(
    items: int = 16, weights: tuple[float, ...] = (0.548, 0.4), seed: int = 0
) -> Stated:
    """Mass about two subsets with nothing in common, the rest anywhere."""
    rng = _rng(6, seed)
    first = np.zeros(items, dtype=bool)
    first[rng.choice(items, items // 2, replace=False)] = True
    on = np.stack([np.where(first, 0.97, 0.03), np.where(first, 0.03, 0.97), np.full(items, 0.5)])
    w = np.array([*weights, 1 - sum(weights)])
    prior, places = Normal(0.0, 2.0), Normal(1.0, 0.3)
    log_on, log_off, log_w = (torch.tensor(np.log(v)) for v in (2 * on, 2 * (1 - on), w))

    def log_likelihood(p: Params, active: Tensor) -> Tensor:
        beta = p["beta"]
        gain = torch.where(active, places.log_prob(beta) - prior.log_prob(beta), 0.0).sum(-1)
        each = torch.where(active[:, None], log_on.to(beta), log_off.to(beta)).sum(-1)
        return gain + (log_w.to(beta) + each).logsumexp(-1)

    names = [f"v{j + 1}" for j in range(items)]
    target = trj.Target(trj.Subsets(names, of="beta"), {"beta": prior}, log_likelihood)
    exact = w @ on
    shown = [int(np.flatnonzero(first)[0]), int(np.flatnonzero(~first)[0])]
    return Stated(target, [inclusion(names[j], float(exact[j])) for j in shown])


def collinear_subsets(p: int, rho: float, seed: int) -> Stated:
    """A conjugate regression with nearly collinear columns."""
    target = trj.problems.conjugate_selection(p, n=40, rho=rho, seed=seed)
    return Stated(
        target,
        [inclusion(f"x{j + 1}", float(e)) for j, e in enumerate(target.inclusion)],
    )


def spiky_counts(most: int, narrow: float, log_e: float, seed: int) -> Stated:
    """Components that know nothing of each other, each a spike and a bump."""
    (part,) = _spikes(_rng(7, seed), 1, narrow)
    prior = Normal(0.0, 3.0)

    def log_likelihood(p: Params, active: Tensor) -> Tensor:
        x = p["x"]
        gain = part.log_density(x.reshape(-1, 1)).reshape(x.shape) - prior.log_prob(x) + log_e
        return torch.where(active, gain, 0.0).sum(-1)

    target = trj.Target(trj.Counts(most, of="x"), {"x": prior}, log_likelihood)
    exact = np.exp(log_e * np.arange(most + 1))
    exact /= exact.sum()
    return Stated(target, [count(k, float(e)) for k, e in enumerate(exact)])


# ---- period searches -------------------------------------------------------------------------


@dataclass(frozen=True)
class Velocities:
    """Nightly velocities of a star, white noise of standard deviation 1.

    Amplitudes of cosine and sine have N(0, 2^2) priors, frequencies (cycles a night) are uniform
    on (0, 1). A frequency f has an alias at 1 - f, the more alike the more regular the nights.

    Attributes:
        t: Times, shape (n,).
        y: Velocities, shape (n,).
        span: Nights.
        signals: (amplitude, frequency) of what is there.
    """

    t: np.ndarray
    y: np.ndarray
    span: int
    signals: tuple[tuple[float, float], ...]

    amplitude_sd = 2.0

    def basis(self, frequency: np.ndarray) -> np.ndarray:
        """Cosine and sine, shape (2, F, n)."""
        phase = 2 * math.pi * frequency[:, None] * self.t
        return np.stack([np.cos(phase), np.sin(phase)])

    @property
    def log_null(self) -> float:
        return float(-0.5 * (self.y @ self.y) - 0.5 * len(self.y) * math.log(2 * math.pi))

    def gain(self, frequency: np.ndarray) -> np.ndarray:
        """Log marginal likelihood of one signal over that of none, by frequency, (F,) -> (F,)."""
        phi = self.basis(frequency) * self.amplitude_sd
        a, b, c = _normal_matrix(phi, phi)
        return _gain(1 + a, b, 1 + c, phi[0] @ self.y, phi[1] @ self.y)

    def gain_of_pairs(self, one: np.ndarray, two: np.ndarray) -> np.ndarray:
        """Of a second signal beside a first, (F,), (G,) -> (F, G); the first's is :meth:`gain`."""
        first, second = (self.basis(f) * self.amplitude_sd for f in (one, two))
        a, b, c = _normal_matrix(first, first)
        a, c = a + 1, c + 1
        det = a * c - b * b
        ia, ib, ic = c / det, -b / det, a / det  # the inverse, by frequency of the first
        x, y = first @ self.y
        mx, my = ia * x + ib * y, ib * x + ic * y
        cross = np.einsum("ifn,jgn->ijfg", first, second, optimize=True)
        (cc, cs), (sc, ss) = cross

        def inner(u: tuple[np.ndarray, ...], v: tuple[np.ndarray, ...]) -> np.ndarray:
            ia_, ib_, ic_ = ia[:, None], ib[:, None], ic[:, None]
            return ia_ * u[0] * v[0] + ib_ * (u[0] * v[1] + u[1] * v[0]) + ic_ * u[1] * v[1]

        d, e, f = _normal_matrix(second, second)
        left = 1 + d - inner((cc, sc), (cc, sc))
        both = e - inner((cc, sc), (cs, ss))
        right = 1 + f - inner((cs, ss), (cs, ss))
        rx = second[0] @ self.y - cc * mx[:, None] - sc * my[:, None]
        ry = second[1] @ self.y - cs * mx[:, None] - ss * my[:, None]
        return _gain(left, both, right, rx, ry)


def _normal_matrix(u: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return (u[0] * v[0]).sum(-1), (u[0] * v[1]).sum(-1), (u[1] * v[1]).sum(-1)


def _gain(a: Any, b: Any, c: Any, x: Any, y: Any) -> np.ndarray:
    """(m' P^-1 m - log det P) / 2 for P = [[a, b], [b, c]], m = (x, y)."""
    det = a * c - b * b
    found: np.ndarray = 0.5 * ((c * x * x - 2 * b * x * y + a * y * y) / det - np.log(det))
    return found


def velocities(
    signals: tuple[tuple[float, float], ...], nights: int, span: int, jitter: float, seed: int
) -> Velocities:
    """Simulated velocities on random nights, at the same hour but for a jitter (nights)."""
    rng = _rng(8, seed)
    t = np.sort(rng.choice(span, nights, replace=False)) + jitter * rng.standard_normal(nights)
    y = rng.standard_normal(nights)
    for amplitude, frequency in signals:
        y = y + amplitude * np.cos(2 * math.pi * frequency * t + rng.uniform(0, 2 * math.pi))
    return Velocities(t, y, span, signals)


@dataclass(frozen=True)
class Periods:
    """Exact answers of a period search.

    Attributes:
        log_z: Log evidence of no, one and two signals (as many as were asked for), nats.
        near: By window: probability of some frequency inside, by number of signals, from 1.
    """

    log_z: list[float]
    near: list[list[float]]


def exact_periods(
    data: Velocities, cells: int, windows: list[tuple[float, float]], most: int = 2
) -> Periods:
    """Midpoint rule on so many cells over frequency; windows should end at edges of cells.

    A peak's standard deviation is some sqrt(6 / n) / (pi amplitude span); cells as wide as that
    leave an error of 1e-8.
    """
    f = (np.arange(cells) + 0.5) / cells
    inside = [(f > low) & (f < high) for low, high in windows]
    one = data.gain(f)
    mass = np.exp(one - one.max())
    log_z = [data.log_null, data.log_null + one.max() + math.log(mass.mean())]
    near = [[float(mass[i].sum() / mass.sum())] for i in inside]
    if most == 2:
        top = -math.inf
        total, away = 0.0, np.zeros(len(windows))
        for rows in np.array_split(np.arange(cells), max(1, cells * cells // 2**21)):
            both = one[rows, None] + data.gain_of_pairs(f[rows], f)
            higher = max(top, float(both.max()))
            scale = math.exp(top - higher)
            both = np.exp(both - higher)
            total, away, top = total * scale + both.sum(), away * scale, higher
            away = away + [both[~i[rows]][:, ~i].sum() for i in inside]
        log_z.append(data.log_null + top + math.log(total) - 2 * math.log(cells))
        for k, x in enumerate(away):
            near[k].append(float(1 - x / total))
    return Periods(log_z, near)


def _windows(data: Velocities, cells: int) -> list[tuple[float, float]]:
    """About each true frequency, as wide as the resolution, ends at edges of cells."""
    half = max(1, round(0.5 * cells / data.span))
    return [
        ((round(f * cells) - half) / cells, (round(f * cells) + half) / cells)
        for _, f in data.signals
    ]


def _signal(p: Params, t: Tensor) -> Tensor:
    """Shape (N, n), of parameters (N,)."""
    phase = 2 * math.pi * p["frequency"][:, None] * t
    return p["cosine"][:, None] * phase.cos() + p["sine"][:, None] * phase.sin()


_OF_SIGNAL = {
    "cosine": Normal(0.0, Velocities.amplitude_sd),
    "sine": Normal(0.0, Velocities.amplitude_sd),
    "frequency": Uniform(0.0, 1.0),
}


def star_list(data: Velocities, cells: int) -> Stated:
    """A list of two models, nothing and a sinusoid."""
    exact = exact_periods(data, cells, _windows(data, cells), most=1)

    def log_likelihood(p: Params) -> Tensor:
        t, y = (torch.as_tensor(v).to(p["sine"]) for v in (data.t, data.y))
        return Normal(_signal(p, t), 1.0).log_prob(y).sum(-1)

    models = [
        trj.Model("nothing", {}, lambda p: torch.tensor(data.log_null)),
        trj.Model("sinusoid", dict(_OF_SIGNAL), log_likelihood),
    ]
    gain = exact.log_z[1] - exact.log_z[0]
    p_one = 1 / (1 + math.exp(-gain))
    questions = [
        probability("sinusoid", p_one),
        log_odds("sinusoid", "nothing", gain),
        log_evidence("sinusoid", exact.log_z[1]),
    ]
    for (low, high), near in zip(_windows(data, cells), exact.near, strict=True):
        f = {
            "nothing": lambda p: torch.tensor(0.0),
            "sinusoid": lambda p, a=low, b=high: (
                (p["frequency"] > a) & (p["frequency"] < b)
            ).double(),
        }
        questions.append(share(f"p(frequency near {(low + high) / 2:.4f})", near[0] * p_one, f))
    return Stated(trj.Target(models), questions)


def star_planets(data: Velocities, cells: int) -> Stated:
    """A list of two models, one planet and two."""
    exact = exact_periods(data, cells, [])

    def log_likelihood(p: Params) -> Tensor:
        t, y = (torch.as_tensor(v).to(p["sine"]) for v in (data.t, data.y))
        each = [_signal({k: v[:, j] for k, v in p.items()}, t) for j in range(p["sine"].shape[1])]
        return Normal(sum(each), 1.0).log_prob(y).sum(-1)

    models = [
        trj.Model(name, {k: d.expand([n]) for k, d in _OF_SIGNAL.items()}, log_likelihood)
        for n, name in ((1, "one"), (2, "two"))
    ]
    gain = exact.log_z[2] - exact.log_z[1]
    questions = [
        probability("two", 1 / (1 + math.exp(-gain))),
        log_odds("two", "one", gain),
        log_evidence("one", exact.log_z[1]),
        log_evidence("two", exact.log_z[2]),
    ]
    return Stated(trj.Target(models), questions)


def star_counts(data: Velocities, cells: int, most: int = 2) -> Stated:
    """An unknown number of signals, up to two."""
    windows = _windows(data, cells)
    exact = exact_periods(data, cells, windows, most)
    z = np.array(exact.log_z[: most + 1])
    p_k = np.exp(z - z.max()) / np.exp(z - z.max()).sum()

    def contribution(p: Params) -> Tensor:
        return _signal(p, torch.as_tensor(data.t).to(p["sine"]))

    def combine(total: Tensor, p: Params) -> Tensor:
        return Normal(total, 1.0).log_prob(torch.as_tensor(data.y).to(total)).sum(-1)

    target = trj.Target(
        trj.Counts(most, of=tuple(_OF_SIGNAL)),
        dict(_OF_SIGNAL),
        trj.Additive(contribution, combine),
    )
    questions = [count(k, float(p)) for k, p in enumerate(p_k)]
    for (low, high), near in zip(windows, exact.near, strict=True):

        def some(p: Params, active: Tensor, a: float = low, b: float = high) -> Tensor:
            return (active & (p["frequency"] > a) & (p["frequency"] < b)).any(-1).double()

        exact_share = float(sum(p_k[k + 1] * near[k] for k in range(most)))
        questions.append(share(f"p(a frequency near {(low + high) / 2:.4f})", exact_share, some))
    return Stated(target, questions)


def pulse_counts(seed: int, most: int = 3, width: float = 0.08, height: float = 3.0) -> Stated:
    """Pulses of one known height and width in noise, centres unknown; p(k) on a grid."""
    t, y = pulse_data(seed, width, height)
    log_z = exact_pulses(t, y, width, height, most, cells=160)
    p_k = np.exp(log_z - log_z.max()) / np.exp(log_z - log_z.max()).sum()

    def contribution(p: Params) -> Tensor:
        c = p["centre"][:, None]
        return height * torch.exp(-0.5 * ((torch.as_tensor(t).to(c) - c) / width).square())

    def combine(total: Tensor, p: Params) -> Tensor:
        return Normal(total, 2.0).log_prob(torch.as_tensor(y).to(total)).sum(-1)

    target = trj.Target(
        trj.Counts(most, of="centre"),
        {"centre": Uniform(-1.0, 1.0)},
        trj.Additive(contribution, combine),
    )
    return Stated(target, [count(k, float(p)) for k, p in enumerate(p_k)])


def pulse_data(seed: int, width: float, height: float) -> tuple[np.ndarray, np.ndarray]:
    """Two overlapping pulses in noise of standard deviation 2."""
    rng = _rng(9, seed)
    t = np.linspace(-1, 1, 60)
    first = rng.uniform(-0.7, 0.5)
    y = 2.0 * rng.standard_normal(60)
    for centre in (first, first + 1.5 * width):
        y += height * np.exp(-0.5 * ((t - centre) / width) ** 2)
    return t, y


def exact_pulses(
    t: np.ndarray, y: np.ndarray, width: float, height: float, most: int, cells: int
) -> np.ndarray:
    """Log evidences over that of none, k = 0 to ``most`` (at most 3), by the midpoint rule."""
    c = -1 + 2 * (np.arange(cells) + 0.5) / cells
    shape = height * np.exp(-0.5 * ((t - c[:, None]) / width) ** 2) / 2.0
    one = shape @ (y / 2.0) - 0.5 * (shape**2).sum(1)
    cross = shape @ shape.T
    found = [0.0, _log_mean(one)]
    pair = one[:, None] + one - cross
    if most >= 2:
        found.append(_log_mean(pair))
    if most >= 3:
        found.append(_log_mean(pair[:, :, None] + one - cross[:, None] - cross[None]))
    return np.array(found)


def _log_mean(x: np.ndarray) -> float:
    return float(x.max() + math.log(np.exp(x - x.max()).mean()))


# ---- narrow, far, and at the bound -----------------------------------------------------------


def narrow(prior: Distribution, place: float, sd: float, log_z: float) -> Stated:
    """A measurement far more precise than its prior, against a null of the same evidence."""
    model = trj.Model("measured", {"x": prior}, lambda p: Normal(place, sd).log_prob(p["x"]))
    questions = [probability("null", 0.5), log_evidence("measured", log_z)]
    return Stated(trj.Target([nothing(log_z), model]), questions)


def narrow_in_uniform(low: float, high: float, place: float, sd: float) -> Stated:
    return narrow(Uniform(low, high), place, sd, -math.log(high - low))


def narrow_in_normal(scale: float, place: float, sd: float) -> Stated:
    wide = math.hypot(scale, sd)
    log_z = -0.5 * (place / wide) ** 2 - math.log(wide) - 0.5 * math.log(2 * math.pi)
    return narrow(Normal(0.0, scale), place, sd, log_z)


def narrow_in_lognormal(scale: float, place: float, sd: float) -> Stated:
    x = place + sd * np.linspace(-10, 10, 4001)
    density = np.exp(-0.5 * (np.log(x) / scale) ** 2) / (x * scale * math.sqrt(2 * math.pi))
    likelihood = np.exp(-0.5 * ((x - place) / sd) ** 2) / (sd * math.sqrt(2 * math.pi))
    z = float((density * likelihood).sum() * (x[1] - x[0]))
    return narrow(LogNormal(0.0, scale), place, sd, math.log(z))


def at_the_bound(a: float, b: float, yes: int, no: int) -> Stated:
    """Successes and failures under a Beta prior that is piled up at 0 and 1."""
    log_z = float(betaln(a + yes, b + no) - betaln(a, b))

    def log_likelihood(p: Params) -> Tensor:
        x = p["x"]
        return torch.xlogy(torch.tensor(float(yes)), x) + torch.special.xlog1py(
            torch.tensor(float(no)), -x
        )

    model = trj.Model("binomial", {"x": Beta(a, b)}, log_likelihood)
    questions = [probability("null", 0.5), log_evidence("binomial", log_z)]
    return Stated(trj.Target([nothing(log_z), model]), questions)


def empty_category(alpha: float, seen: tuple[int, ...], p: float) -> Stated:
    """Counts of categories, one of them zero, under a Dirichlet prior with small alpha."""
    n = np.array(seen, dtype=float)
    prior = np.full(len(seen), alpha)
    log_z = float(
        gammaln(prior + n).sum() - gammaln((prior + n).sum())
        - gammaln(prior).sum() + gammaln(prior.sum())
    )  # fmt: skip
    counts = torch.tensor(n)

    def log_likelihood(q: Params) -> Tensor:
        return torch.xlogy(counts.to(q["share"]), q["share"]).sum(-1)

    model = trj.Model(
        "categories", {"share": Dirichlet(torch.full((len(seen),), alpha))}, log_likelihood
    )
    target = trj.Target([nothing(log_z), model], model_prior=[1 - p, p])
    return Stated(target, [probability("categories", p), log_evidence("categories", log_z)])


def small_support(dim: int, side: float, seed: int) -> Stated:
    """A likelihood that is constant in a small box and impossible elsewhere."""
    low = _rng(10, seed).uniform(0.1, 0.9 - side, dim)
    gain = -dim * math.log(side)

    def log_likelihood(p: Params) -> Tensor:
        x, edge = p["x"], torch.tensor(low).to(p["x"])
        return torch.where(((x > edge) & (x < edge + side)).all(-1), gain, -math.inf)

    model = trj.Model("box", {"x": Uniform(torch.zeros(dim), torch.ones(dim))}, log_likelihood)
    questions = [probability("null", 0.5), log_evidence("box", 0.0)]
    return Stated(trj.Target([nothing(), model]), questions)


def black_box(seed: int) -> Stated:
    """Three skewed posteriors of four parameters in NumPy, 12 000 calls."""
    rng = _rng(11, seed)
    shares = {"a": 0.9, "b": 0.08, "c": 0.02}
    prior = Normal(torch.zeros(4), 5.0)
    models = []
    for name, p in shares.items():
        shape = SkewedNormal.random(rng)

        def log_likelihood(q: dict[str, Any], p: float = p, s: Any = shape) -> np.ndarray:
            x = q["x"]
            log_prior = -0.5 * (x**2).sum(-1) / 25 - 4 * math.log(5 * math.sqrt(2 * math.pi))
            found: np.ndarray = math.log(p) + s.log_density(x) - log_prior
            return found

        models.append(trj.Model(name, {"x": prior}, trj.BlackBox(log_likelihood, vectorized=True)))
    questions = [probability(name, p) for name, p in shares.items()]
    questions.append(log_odds("a", "b", math.log(0.9 / 0.08)))
    return Stated(trj.Target(models), questions, {"max_evaluations": 12_000})


@dataclass(frozen=True)
class SkewedNormal:
    """A correlated normal seen through sinh-arcsinh in each coordinate."""

    centre: np.ndarray
    skew: np.ndarray
    factor: np.ndarray  # lower triangular

    @classmethod
    def random(cls, rng: np.random.Generator, dim: int = 4) -> "SkewedNormal":
        factor = np.tril(0.5 * rng.standard_normal((dim, dim)), -1) + np.eye(dim)
        return cls(rng.normal(0, 1, dim), rng.uniform(-0.6, 0.6, dim), factor)

    def log_density(self, x: np.ndarray) -> np.ndarray:
        """(N, D) -> (N,)."""
        gap = x - self.centre
        inner = np.arcsinh(gap) - self.skew
        z = np.linalg.solve(self.factor, np.sinh(inner).T).T
        slope = (np.log(np.cosh(inner)) - 0.5 * np.log1p(gap**2)).sum(-1)
        found: np.ndarray = (
            slope - 0.5 * (z**2).sum(-1) - 0.5 * x.shape[1] * math.log(2 * math.pi)
            - np.log(np.diag(self.factor)).sum()
        )  # fmt: skip
        return found

    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        z = rng.standard_normal((n, len(self.centre))) @ self.factor.T
        return self.centre + np.sinh(np.arcsinh(z) + self.skew)


# ---- the list --------------------------------------------------------------------------------


def _two(w: float, places: tuple[float, float], sds: tuple[float, float], dim: int) -> Mixture:
    return Mixture([w, 1 - w], along(list(places), dim), list(sds))


def problems(draw: int = 0) -> dict[str, Callable[[], Stated]]:
    """Every problem by ``family/name``; another ``draw`` simulates the random ones anew."""
    s = 1000 * draw
    nightly = cache(lambda seed: velocities(((2.8, 0.2371),), 60, 1500, 0.015, seed + s))
    one = cache(lambda: velocities(((2.0, 0.3170),), 40, 60, 0.01, 1 + s))
    long_one = cache(lambda: velocities(((2.0, 0.3170),), 50, 400, 0.01, 2 + s))
    strong = cache(lambda: velocities(((2.0, 0.3170), (1.8, 0.1234)), 50, 200, 0.02, 3 + s))
    weak = cache(lambda: velocities(((2.0, 0.3170), (0.85, 0.1234)), 50, 200, 0.02, 4 + s))
    found: dict[str, Callable[[], Stated]] = {
        "modes/3 dimensions": lambda: against_null(_two(0.6, (2, -2), (0.15, 1), 3), 3.0),
        "modes/4 dimensions": lambda: against_null(_two(0.8, (3, 0), (0.1, 1), 4), 3.0),
        "modes/5 dimensions": lambda: against_null(_two(0.7, (3, -3), (0.2, 1), 5), 4.0),
        "modes/10 dimensions": lambda: against_null(_two(0.7, (2, -1), (0.3, 1), 10), 4.0),
        "star/list, first night": lambda: star_list(nightly(1), 100_000),
        "star/list, second night": lambda: star_list(nightly(2), 100_000),
        "star/one planet or two": lambda: star_planets(strong(), 3000),
        "periods/one planet": lambda: star_counts(one(), 1000),
        "periods/one planet, long": lambda: star_counts(long_one(), 30_000, most=1),
        "periods/two strong": lambda: star_counts(strong(), 3000),
        "periods/strong and weak": lambda: star_counts(weak(), 3000),
        "subsets/16 spikes": lambda: spiky_subsets(16, 0.05, 1 + s),
        "subsets/two far": lambda: far_subsets(seed=1 + s),
        "alone/two bananas": lambda: alone(
            Mixture([0.7, 0.3], along([2.0, -1.5], 10), [0.3, 0.8], bend=1.0), 4.0
        ),
        "alone/ridge": ridge,
        "shapes/funnel": lambda: funnel(1 + s),
        "shapes/horseshoe": lambda: horseshoe(1 + s),
        "resolution/uniform 1e4": lambda: narrow_in_uniform(-1e4, 1e4, 3.2, 0.001),
        "resolution/date": lambda: narrow_in_uniform(0.0, 6e4, 55000.123, 0.01),
        "resolution/normal 1e4": lambda: narrow_in_normal(1e4, 5000.3, 0.0005),
        "resolution/beta .05": lambda: at_the_bound(0.05, 0.05, 3, 0),
        "resolution/beta .1": lambda: at_the_bound(0.1, 0.1, 5, 0),
        "resolution/dirichlet .05": lambda: empty_category(0.05, (5, 3, 2, 0), 0.046),
        "support/1e-4": lambda: small_support(2, 0.01, 1 + s),
        "support/1e-6": lambda: small_support(3, 0.01, 2 + s),
        "blackbox/12000 calls": lambda: black_box(1 + s),
        "fresh/spike in a bump, 1 dimension": lambda: against_null(
            _two(0.5, (1.3, 0), (0.003, 1), 1), 3.0
        ),
        "fresh/spike in a bump, 2 dimensions": lambda: against_null(
            _two(0.4, (-1.7, 0.5), (0.02, 1), 2), 5.0
        ),
        "fresh/spike in a bump, 6 dimensions": lambda: against_null(
            _two(0.5, (1.0, -1.0), (0.25, 0.8), 6), 3.0
        ),
        "fresh/alone, 2 dimensions": lambda: alone(random_mixture(_rng(12, s), 2, 5), 4.0),
        "fresh/alone, 6 dimensions": lambda: alone(random_mixture(_rng(13, s), 6, 3), 4.0),
        "fresh/alone, 12 dimensions": lambda: alone(
            Mixture([0.4, 0.6], _rng(14, s).normal(0, 2, (2, 12)), [0.5, 0.7]), 3.0
        ),
        "fresh/rings": rings,
        "fresh/heavy tails, 2 dimensions": lambda: heavy_tails(2, 2.0, 1 + s),
        "fresh/heavy tails, 6 dimensions": lambda: heavy_tails(6, 1.5, 2 + s),
        "fresh/5 spiky subsets": lambda: spiky_subsets(5, 0.02, 2 + s),
        "fresh/collinear subsets": lambda: collinear_subsets(10, 0.98, 1 + s),
        "fresh/far subsets of 10": lambda: far_subsets(10, (0.35, 0.6), 2 + s),
        "fresh/spiky counts": lambda: spiky_counts(4, 0.02, -0.2, 1 + s),
        "fresh/pulses": lambda: pulse_counts(1 + s),
        "fresh/pulses, again": lambda: pulse_counts(2 + s),
        "fresh/star list": lambda: star_list(nightly(3), 100_000),
        "fresh/days since 1": lambda: narrow_in_uniform(2.45e6, 2.46e6, 2.4573e6, 0.05),
        "fresh/lognormal": lambda: narrow_in_lognormal(1.0, 3.0, 2e-6),
        "fresh/beta .02": lambda: at_the_bound(0.02, 0.5, 2, 0),
    }  # fmt: skip
    for i in (1, 2, 3):
        found[f"fresh/list of three, {i}"] = lambda i=i: list_of_three(i + s)
    return found
