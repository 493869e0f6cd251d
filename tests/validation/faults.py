"""Two models of a few numbers, right, and with a fault each."""

import torch
from torch.distributions import Gamma, LogNormal, Normal

import trjmcmc as trj

N = 8
X = torch.linspace(-1, 1, N)
MU, SIGMA, SLOPE = Normal(0.0, 1.0), Gamma(40.0, 40.0), Normal(0.0, 1.0)


def mean_of(p):
    slope = p.get("slope", torch.zeros_like(p["mu"]))
    return p["mu"][:, None] + slope[:, None] * X


def line(y, fault=""):
    """A constant and a line in normal noise of unknown scale."""
    y = torch.as_tensor(y)

    def log_likelihood(p, model):
        each = Normal(mean_of(p), p["sigma"][:, None]).log_prob(y.to(p["mu"]))
        if fault == "mask":
            each = Normal(mean_of(p)[:, :-1], p["sigma"][:, None]).log_prob(y[1:].to(p["mu"]))
        value = each.sum(-1)
        if fault == "prior twice":
            value = value + SIGMA.log_prob(p["sigma"])
        if fault == "no constant":
            value = value + N * p["sigma"].log()
        if fault == "by model" and model == "line":
            value = value + 3.0
        if fault == "rows" and len(value) > 1:
            value = torch.cat([value[:1], value[1:] + 0.1 * value[:-1]])
        if fault == "overflow":
            gap = (1e20 * (y - mean_of(p)) / p["sigma"][:, None]).square().sum(-1)
            value = -0.5 * (gap * 1e-20) * 1e-20 - N * p["sigma"].log()
        if fault == "detached":
            value = value.detach()
        return value

    priors = {"mu": MU, "sigma": SIGMA}
    if fault == "jacobian":
        priors["sigma"] = NoJacobian(torch.tensor(0.0), torch.tensor(1.0))
    return trj.Target(
        [
            trj.Model("flat", priors, lambda p: log_likelihood(p, "flat")),
            trj.Model("line", {**priors, "slope": SLOPE}, lambda p: log_likelihood(p, "line")),
        ]
    )


class NoJacobian(LogNormal):
    """Draws are lognormal; the density is that of the logarithm, its Jacobian forgotten."""

    def log_prob(self, value):
        return super().log_prob(value) + value.log()


def simulate(model, params, generator):
    return Normal(mean_of(params), params["sigma"][:, None]).sample()


def data():
    noise = torch.randn(N, generator=torch.Generator().manual_seed(5))
    return 0.3 + 0.5 * X + 0.9 * noise


def logs(y, fault=""):
    """Positive data: normal noise on their own scale, or on that of logarithms."""
    y = torch.as_tensor(y)

    def normal(p):
        return Normal(5.0 + p["mu"][:, None], 1.0).log_prob(y).sum(-1)

    def lognormal(p):
        value = Normal(1.6 + 0.2 * p["mu"][:, None], 0.2).log_prob(y.clamp(min=1e-3).log()).sum(-1)
        return value if fault else value - y.clamp(min=1e-3).log().sum()

    return trj.Target(
        [trj.Model("normal", {"mu": MU}, normal), trj.Model("lognormal", {"mu": MU}, lognormal)]
    )


def simulate_logs(model, params, generator):
    mu = params["mu"][:, None].expand(-1, N)
    if model == "normal":
        return Normal(5.0 + mu, 1.0).sample()
    return LogNormal(1.6 + 0.2 * mu, 0.2).sample()


def counted(fault=""):
    """Up to four steps in a row of numbers."""

    def log_likelihood(p, active):
        on = active
        if fault == "mask":
            k = active.sum(1, keepdim=True)
            on = torch.arange(active.shape[1]) < k - 1
        steps = torch.where(on, p["height"], 0.0)[..., None] * (p["place"][..., None] < X)
        if fault == "order":
            steps = steps * (1 + torch.arange(active.shape[1]))[:, None]
        return Normal(steps.sum(1), 0.5).log_prob(torch.zeros(N)).sum(-1)

    return trj.Target(
        trj.Counts(4, of=("height", "place")),
        {"height": Normal(0.0, 1.0), "place": Normal(0.0, 0.5)},
        log_likelihood,
    )


def chosen(fault=""):
    """Which of four columns matter."""
    x = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))

    def log_likelihood(p, active):
        beta = torch.where(active.roll(1, 1), p["beta"], 0.0) if fault else p["beta"]
        return Normal(beta @ x.T.to(beta), 1.0).log_prob(x[:, 0].to(beta)).sum(-1)

    space = trj.Subsets(["a", "b", "c", "d"], of="beta", prior=0.5)
    return trj.Target(space, {"beta": Normal(0.0, 1.0)}, log_likelihood)
