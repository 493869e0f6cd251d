"""Stan programs of posteriordb, by families, as targets: ``MODELS`` has them by name.

Normal linear regressions (earnings, kidiq, mesquite, nes, diamonds, kilpisjarvi, blr,
autoregression), means of groups, GARCH(1,1) and ARMA(1,1), Gaussian processes, a mixture of two
normals, hidden Markov models of two states. Each is a function of the program's data.

Flat priors that integrate to infinity: chains and tempered runs need somewhere to start, so that a
wide proper distribution stands as the prior and its density is divided out of the likelihood. The
posterior is that of the flat prior; an evidence has no meaning. How wide it is comes from the
scales of the columns, not from a fit.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.distributions import (
    Beta,
    Dirichlet,
    Distribution,
    Exponential,
    Gamma,
    HalfCauchy,
    HalfNormal,
    Normal,
    Poisson,
    StudentT,
    Uniform,
)
from torch.nn.functional import pad

import trjmcmc as trj

Data = dict[str, Tensor]
Values = Mapping[str, Tensor]  # by parameter, leading size C
Column = str | Callable[[Data], Tensor]  # one number an observation

WIDTH = 2.5  # of what stands in for a flat prior, in scales of the data


def entries(values: Values) -> dict[str, Tensor]:
    """Numbers (C,) by the database's names: ``sigma``, and ``beta[1]`` and on of vectors."""
    found = {}
    for name, value in values.items():
        if value.dim() == 1:
            found[name] = value
        else:
            found |= {f"{name}[{i}]": x for i, x in enumerate(value.unbind(1), 1)}
    return found


Prior = Distribution | Callable[[dict[str, Tensor]], Distribution]


@dataclass(frozen=True)
class Program:
    """What a Stan program says of its data.

    Attributes:
        log_likelihood: Of parameters, (C,), nats.
        priors: By parameter, those that are proper.
        flat: By parameter with a flat prior, a wide proper one of the same support.
        reported: The quantities that the reference has, (C,), of parameters.
        regression: Of a normal regression its outcomes, (N,), and columns, (N, P).
    """

    log_likelihood: Callable[[Values], Tensor]
    priors: Mapping[str, Prior]
    flat: Mapping[str, Distribution] = field(default_factory=dict)
    reported: Callable[[Values], dict[str, Tensor]] = entries
    regression: tuple[Tensor, Tensor] | None = None

    def target(self, name: str) -> trj.Target:
        """A target of one model of a given name, float64."""

        def log_likelihood(p: dict[str, Tensor]) -> Tensor:
            value = self.log_likelihood(p)
            for parameter, wide in self.flat.items():
                value = value - wide.log_prob(p[parameter]).reshape(len(value), -1).sum(1)
            return value

        model = trj.Model(name, {**self.flat, **self.priors}, log_likelihood)
        return trj.Target([model], dtype=torch.float64)


# ---- distributions in float64, and what stands for flat ones ----------------------------------


def double(number: Any) -> Tensor:
    return torch.as_tensor(number, dtype=torch.float64)


def normal(mean: Any, sd: Any, *size: int) -> Distribution:
    return Normal(double(mean), double(sd)).expand(size)


def student(df: float, mean: float, scale: Any) -> Distribution:
    return StudentT(double(df), double(mean), double(scale))


def half_cauchy(scale: Any) -> Distribution:
    return HalfCauchy(double(scale))


def half_normal(scale: float, *size: int) -> Distribution:
    return HalfNormal(double(scale)).expand(size)


def beta(a: float, b: float) -> Distribution:
    return Beta(double(a), double(b))


def gamma(shape: float, rate: float) -> Distribution:
    return Gamma(double(shape), double(rate))


def wide(scale: Tensor) -> Distribution:
    """In place of a flat prior on the line: its tails outlast those of all posteriors here."""
    return student(3.0, 0.0, WIDTH * scale)


# ---- columns of regressions ----------------------------------------------------------------------


def column(data: Data, what: Column) -> Tensor:
    return data[what] if isinstance(what, str) else what(data)


def log(what: Column) -> Column:
    return lambda data: column(data, what).log()


def times(*factors: Column) -> Column:
    return lambda data: torch.stack([column(data, f) for f in factors]).prod(0)


def ratio(above: Column, below: Column) -> Column:
    return lambda data: column(data, above) / column(data, below)


def is_level(what: Column, level: int) -> Column:
    return lambda data: (column(data, what) == level).double()


def scaled(what: Column, deviations: float = 0.0) -> Column:
    """Less its mean, over so many of its standard deviations; 0 leaves the scale."""

    def made(data: Data) -> Tensor:
        x = column(data, what)
        return (x - x.mean()) / (deviations * x.std() if deviations else 1.0)

    return made


def less(what: Column, number: float) -> Column:
    return lambda data: column(data, what) - number


# ---- families ------------------------------------------------------------------------------------


def normal_regression(
    y: Tensor, x: Tensor, priors: Mapping[str, Prior], flat: Mapping[str, Distribution]
) -> Program:
    """Outcomes (N,) normal about columns (N, P) times coefficients, with noise ``sigma``.

    Arguments:
        priors, flat: As in :class:`Program`; coefficients, numbers and vectors, stand in the
            order of the columns.
    """
    # |x b - y| = |R (b, -1)|, so that no sum over observations is left
    triangle = torch.linalg.qr(torch.cat([x, y[:, None]], 1), mode="r").R
    names = [name for name in (*flat, *priors) if name != "sigma"]

    def log_likelihood(p: Values) -> Tensor:
        s = p["sigma"]
        each = [p[name].reshape(len(s), -1) for name in names]
        gap = torch.cat([*each, -torch.ones_like(s)[:, None]], 1) @ triangle.T
        squares = (gap / s[:, None]).square().sum(1)
        return -len(y) * (s.log() + 0.5 * math.log(2 * math.pi)) - 0.5 * squares

    return Program(log_likelihood, priors, flat, regression=(y, x))


def flat_regression(
    outcome: Column, *predictors: Column, sigma: Distribution | None = None
) -> Callable[[Data], Program]:
    """An intercept and slopes ``beta``, all flat; the noise flat too unless it has a prior."""

    def made(data: Data) -> Program:
        y = column(data, outcome)
        x = torch.stack([column(data, what) for what in predictors], 1)
        slopes = y.std() / x.std(0)
        level = y.square().mean().sqrt() + (x.mean(0).abs() * slopes).sum()
        flat: dict[str, Distribution] = {"beta": wide(torch.cat([level[None], slopes]))}
        x = pad(x, (1, 0), value=1.0)
        if sigma is None:
            return normal_regression(y, x, {}, flat | {"sigma": half_cauchy(y.std())})
        return normal_regression(y, x, {"sigma": sigma}, flat)

    return made


def autoregression(data: Data) -> Program:
    y, order = data["y"], int(data["K"])
    lags = [y[order - k : len(y) - k] for k in range(1, order + 1)]
    x = torch.stack([torch.ones_like(lags[0]), *lags], 1)
    priors = {
        "alpha": normal(0.0, 10.0),
        "beta": normal(0.0, 10.0, order),
        "sigma": half_cauchy(2.5),
    }
    return normal_regression(y[order:], x, priors, {})


def line_with_priors(data: Data) -> Program:
    x = torch.stack([torch.ones_like(data["x"]), data["x"]], 1)
    priors = {name: normal(data[f"pmu{name}"], data[f"ps{name}"]) for name in ("alpha", "beta")}
    return normal_regression(data["y"], x, priors, {"sigma": half_cauchy(data["y"].std())})


def shrunk_regression(data: Data) -> Program:
    priors = {"beta": normal(0.0, 10.0, int(data["D"])), "sigma": half_normal(10.0)}
    return normal_regression(data["y"], data["X"], priors, {})


def diamonds(data: Data) -> Program:
    x = data["X"][:, 1:]
    x = pad(x - x.mean(0), (1, 0), value=1.0)
    priors = {"Intercept": student(3.0, 8.0, 10.0), "b": normal(0.0, 1.0, x.shape[1] - 1)}
    program = normal_regression(data["Y"], x, priors, {"sigma": half_cauchy(10.0)})
    noise = student(3.0, 0.0, 10.0)  # cut at zero
    return replace(
        program, log_likelihood=lambda p: program.log_likelihood(p) + noise.log_prob(p["sigma"])
    )


def schools(centred: bool) -> Callable[[Data], Program]:
    """Means of groups about a mean of their own: themselves, or their standardised distances."""

    def made(data: Data) -> Program:
        y, sigma, n = data["y"], data["sigma"], len(data["y"])
        priors: dict[str, Any] = {"mu": normal(0.0, 5.0), "tau": half_cauchy(5.0)}
        if centred:
            priors["theta"] = lambda p: Normal(p["mu"][:, None], p["tau"][:, None].expand(-1, n))
        else:
            priors["theta_trans"] = normal(0.0, 1.0, n)

        def theta(p: Values) -> Tensor:
            if centred:
                return p["theta"]
            return p["mu"][:, None] + p["tau"][:, None] * p["theta_trans"]

        return Program(
            lambda p: Normal(theta(p), sigma).log_prob(y).sum(1),
            priors,
            reported=lambda p: entries({"theta": theta(p), "mu": p["mu"], "tau": p["tau"]}),
        )

    return made


def recurrence(added: Tensor, factor: Tensor) -> Tensor:
    """s[t] = added[t] + factor s[t - 1], (C, T) and (C,) -> (C, T), by doubling of the lag."""
    lag, power = 1, factor[:, None]
    while lag < added.shape[1]:
        added = added + power * pad(added, (lag, 0))[:, :-lag]
        lag, power = 2 * lag, power.square()
    return added


def garch(data: Data) -> Program:
    y, first = data["y"], data["sigma1"].square()

    def log_likelihood(p: Values) -> Tensor:
        mu, alpha0, alpha1 = (p[name][:, None] for name in ("mu", "alpha0", "alpha1"))
        later = alpha0 + alpha1 * (y[:-1] - mu).square()
        variance = recurrence(torch.cat([first.expand(len(mu), 1), later], 1), p["beta1"])
        return Normal(mu, variance.sqrt()).log_prob(y).sum(1)

    flat = {"mu": wide(y.square().mean().sqrt()), "alpha0": half_cauchy(y.var())}
    priors: dict[str, Prior] = {
        # and beta1 uniform given it: both flat on the triangle alpha1 + beta1 < 1
        "alpha1": beta(1.0, 2.0),
        "beta1": lambda p: Uniform(torch.zeros_like(p["alpha1"]), 1 - p["alpha1"]),
    }
    return Program(log_likelihood, priors, flat)


def arma(data: Data) -> Program:
    y = data["y"]

    def log_likelihood(p: Values) -> Tensor:
        mu, phi, sigma = (p[name][:, None] for name in ("mu", "phi", "sigma"))
        before = torch.cat([mu, y[:-1].expand(len(mu), -1)], 1)
        error = recurrence(y - mu - phi * before, -p["theta"])
        return Normal(torch.zeros_like(sigma), sigma).log_prob(error).sum(1)

    priors = {
        "mu": normal(0.0, 10.0),
        "phi": normal(0.0, 2.0),
        "theta": normal(0.0, 2.0),
        "sigma": half_cauchy(2.5),
    }
    return Program(log_likelihood, priors)


def covariance_factor(x: Tensor, p: Values, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Cholesky factor of squared exponentials plus noise (C, 1), and where there is none, (C,)."""
    rho, alpha = p["rho"][:, None, None], p["alpha"][:, None, None]
    gap = (x[:, None] - x) / rho
    kernel = alpha.square() * (-0.5 * gap.square()).exp()
    factor, failed = torch.linalg.cholesky_ex(kernel + torch.diag_embed(noise.expand(-1, len(x))))
    return factor, failed > 0


def gp_priors() -> dict[str, Distribution]:
    return {"rho": gamma(25.0, 4.0), "alpha": half_normal(2.0)}


def gp_regression(data: Data) -> Program:
    x, y = data["x"], data["y"]

    def log_likelihood(p: Values) -> Tensor:
        factor, failed = covariance_factor(x, p, p["sigma"][:, None])
        z = torch.linalg.solve_triangular(
            factor, y[:, None].expand(len(factor), -1, 1), upper=False
        )
        log_scale = factor.diagonal(dim1=1, dim2=2).log().sum(1)
        value = Normal(0.0, 1.0).log_prob(z[..., 0]).sum(1) - log_scale
        return torch.where(failed, -math.inf, value)

    return Program(log_likelihood, {**gp_priors(), "sigma": half_normal(1.0)})


def gp_counts(data: Data) -> Program:
    x, k, jitter = data["x"], data["k"], 1e-10

    def curve(p: Values) -> tuple[Tensor, Tensor]:
        factor, failed = covariance_factor(x, p, torch.full_like(p["rho"], jitter)[:, None])
        return (factor @ p["f_tilde"][..., None])[..., 0], failed

    def log_likelihood(p: Values) -> Tensor:
        f, failed = curve(p)
        value = Poisson(f.exp(), validate_args=False).log_prob(k).sum(1)
        return torch.where(failed, -math.inf, value)

    return Program(
        log_likelihood,
        {**gp_priors(), "f_tilde": normal(0.0, 1.0, len(x))},
        reported=lambda p: entries({**p, "f": curve(p)[0]}),
    )


def two_normals(data: Data) -> Program:
    y = data["y"]
    powers = torch.stack([torch.ones_like(y), y, y.square()])  # of log densities

    def log_likelihood(p: Values) -> Tensor:
        mu, sigma, precision = p["mu"], p["sigma"], p["sigma"] ** -2
        share = torch.stack([p["theta"], 1 - p["theta"]], 1)
        level = share.log() + Normal(mu, sigma).log_prob(torch.zeros_like(mu))
        terms = torch.stack([level, mu * precision, -0.5 * precision], -1)
        return torch.logaddexp(*(terms @ powers).unbind(1)).sum(1)

    priors = {
        "mu": trj.Ordered(normal(0.0, 2.0), 2),
        "sigma": half_normal(2.0, 2),
        "theta": beta(5.0, 5.0),
    }
    return Program(log_likelihood, priors)


def chained(steps: Tensor) -> Tensor:
    """Product of matrices of logarithms in their order, (C, T, K, K) -> (C, K, K), by halving."""
    while steps.shape[1] > 1:
        even = steps.shape[1] // 2 * 2
        pairs = steps[:, :even:2, :, :, None] + steps[:, 1:even:2, None]
        steps = torch.cat([pairs.logsumexp(3), steps[:, even:]], 1)
    return steps[:, 0]


def hidden_states(
    concentration: Tensor,
    levels: Mapping[str, tuple[float, float]],
    emission: Callable[[Values], Tensor],
) -> Program:
    """A hidden Markov model of two states, whose levels are positive and ascend.

    Arguments:
        concentration: Of the Dirichlet priors of the rows ``theta1`` and ``theta2``, shape (2, 2).
        levels: By vector of levels the means of their normal priors, of standard deviation one.
        emission: Log density of observations in each state, (C, T, 2).
    """

    def log_likelihood(p: Values) -> Tensor:
        seen = emission(p)
        moves = torch.stack([p["theta1"], p["theta2"]], 1).log()[:, None] + seen[:, 1:, None]
        value = (seen[:, 0, :, None] + chained(moves)).flatten(1).logsumexp(1)
        for name, means in levels.items():
            value = value + Normal(double(means), 1.0).log_prob(p[name]).sum(1)
        return value

    priors = {f"theta{k + 1}": Dirichlet(concentration[k]) for k in range(2)}
    flat = {name: trj.Ordered(half_normal(2 * max(m)), 2) for name, m in levels.items()}
    return Program(log_likelihood, priors, flat)


def hidden_means(data: Data) -> Program:
    def emission(p: Values) -> Tensor:
        return Normal(p["mu"][:, None], 1.0).log_prob(data["y"][:, None])

    return hidden_states(torch.ones(2, 2).double(), {"mu": (3.0, 10.0)}, emission)


def drives(data: Data) -> Program:
    """Two series that share their states: exponential, or normal where their scales are data."""

    def series(level: Tensor, seen: str, scale: str) -> Tensor:
        law = Normal(level[:, None], data[scale]) if scale in data else Exponential(level[:, None])
        return law.log_prob(data[seen][:, None])

    def emission(p: Values) -> Tensor:
        return series(p["phi"], "u", "tau") + series(p["lambda"], "v", "rho")

    return hidden_states(data["alpha"], {"phi": (0.0, 3.0), "lambda": (0.0, 3.0)}, emission)


# ---- the Stan programs, by name ------------------------------------------------------------------

NOISE = half_cauchy(2.5)
LOG_SIZE = log(times("diam1", "diam2", "canopy_height"))
LOG_AREA = log(times("diam1", "diam2"))
LOG_SHAPE = log(ratio("diam1", "diam2"))
TALL = log("total_height")
Z_HEIGHT = scaled("height", 1.0)
Z_HS, Z_IQ = scaled("mom_hs", 2.0), scaled("mom_iq", 2.0)
C_HS, C_IQ = scaled("mom_hs"), scaled("mom_iq")
HS, IQ = less("mom_hs", 0.5), less("mom_iq", 100.0)

MODELS: dict[str, Callable[[Data], Program]] = {
    "earn_height": flat_regression("earn", "height"),
    "logearn_height": flat_regression(log("earn"), "height"),
    "log10earn_height": flat_regression(lambda data: data["earn"].log10(), "height"),
    "logearn_height_male": flat_regression(log("earn"), "height", "male"),
    "logearn_logheight_male": flat_regression(log("earn"), log("height"), "male"),
    "logearn_interaction": flat_regression(log("earn"), "height", "male", times("height", "male")),
    "logearn_interaction_z": flat_regression(
        log("earn"), Z_HEIGHT, "male", times(Z_HEIGHT, "male")
    ),
    "kidscore_momhs": flat_regression("kid_score", "mom_hs", sigma=NOISE),
    "kidscore_momiq": flat_regression("kid_score", "mom_iq", sigma=NOISE),
    "kidscore_momhsiq": flat_regression("kid_score", "mom_hs", "mom_iq", sigma=NOISE),
    "kidscore_interaction": flat_regression(
        "kid_score", "mom_hs", "mom_iq", times("mom_hs", "mom_iq"), sigma=NOISE
    ),
    "kidscore_interaction_c": flat_regression("kid_score", C_HS, C_IQ, times(C_HS, C_IQ)),
    "kidscore_interaction_c2": flat_regression("kid_score", HS, IQ, times(HS, IQ)),
    "kidscore_interaction_z": flat_regression("kid_score", Z_HS, Z_IQ, times(Z_HS, Z_IQ)),
    "kidscore_mom_work": flat_regression(
        "kid_score", *(is_level("mom_work", level) for level in (2, 3, 4))
    ),
    "mesquite": flat_regression(
        "weight", "diam1", "diam2", "canopy_height", "total_height", "density", "group"
    ),
    "logmesquite": flat_regression(
        log("weight"),
        *map(log, ("diam1", "diam2", "canopy_height", "total_height", "density")),
        "group",
    ),
    "logmesquite_logvolume": flat_regression(log("weight"), LOG_SIZE),
    "logmesquite_logva": flat_regression(log("weight"), LOG_SIZE, LOG_AREA, "group"),
    "logmesquite_logvash": flat_regression(
        log("weight"), LOG_SIZE, LOG_AREA, LOG_SHAPE, TALL, "group"
    ),
    "logmesquite_logvas": flat_regression(
        log("weight"), LOG_SIZE, LOG_AREA, LOG_SHAPE, TALL, log("density"), "group"
    ),
    "nes": flat_regression(
        "partyid7",
        *("real_ideo", "race_adj"),
        *(is_level("age_discrete", level) for level in (2, 3, 4)),
        *("educ1", "gender", "income"),
    ),
    "arK": autoregression,
    "arma11": arma,
    "blr": shrunk_regression,
    "diamonds": diamonds,
    "eight_schools_centered": schools(centred=True),
    "eight_schools_noncentered": schools(centred=False),
    "garch11": garch,
    "gp_pois_regr": gp_counts,
    "gp_regr": gp_regression,
    "hmm_drive_0": drives,
    "hmm_drive_1": drives,
    "hmm_example": hidden_means,
    "kilpisjarvi": line_with_priors,
    "low_dim_gauss_mix": two_normals,
}
