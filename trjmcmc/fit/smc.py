"""Batched tempered sequential Monte Carlo from the prior, many models at once, gradient-free."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from tqdm.auto import tqdm

from ..errors import ConfigurationError, ConvergenceError, TargetError
from ..target import Target

BAR = "{l_bar}{bar}| temperature {n:.3f}, {elapsed}"
BISECTIONS = 40
LOG_SMALLEST_STEP = -200.0
MAX_TEMPERATURES = 500
STEP_SPREAD = 1.0  # standard deviation of the log step size


@dataclass(frozen=True)
class Particles:
    """Equally weighted draws from the posteriors of several models.

    Attributes:
        code: Models, shape (M, L).
        theta: Padded coordinates, shape (M, N, D).
        log_evidence: Log evidence of each model (p(model) not included), shape (M,), nats. An
            adaptive run's own error bar is too small, so none is given.
        temperatures: Number of tempering steps.
        evaluations: Evaluations of the log joint.
    """

    code: Tensor
    theta: Tensor
    log_evidence: Tensor
    temperatures: int
    evaluations: int


def tempered_smc(
    target: Target,
    code: Tensor,
    *,
    particles: int = 2000,
    moves: int = 10,
    ess: float = 0.8,
    generator: torch.Generator,
    progress: bool = False,
) -> Particles:
    """Carry prior draws to the posteriors through powers of the likelihood.

    Each model has its own temperatures, each next one where the effective sample size falls to
    ``ess``; particles are resampled systematically and moved by random walks with the
    particles' covariance and log-normal step sizes.

    Arguments:
        target: The target.
        code: Models, shape (M, L).
        particles: N, a model.
        moves: Random-walk moves a temperature.
        ess: Share of the particles to keep effective at each temperature, in (0, 1).
        generator: Source of randomness.
        progress: Show a bar that fills as the coldest model's temperature rises.

    Returns:
        The particles.

    Raises:
        ConfigurationError: A setting out of range.
        TargetError: A model has no prior draw of finite likelihood.
        ConvergenceError: The temperature did not reach 1 in 500 steps.
        NonFiniteError: A density is NaN or +inf.

    Source:
        Del Moral, Doucet & Jasra (2006), https://doi.org/10.1111/j.1467-9868.2006.00553.x

    Example:
        >>> from trjmcmc import problems
        >>> target = problems.sinh_arcsinh()
        >>> run = tempered_smc(target, target.space.enumerate(), particles=500,
        ...                    generator=torch.Generator().manual_seed(0))
        >>> run.theta.shape, bool((run.log_evidence.abs() < 0.5).all())
        (torch.Size([2, 500, 2]), True)
    """
    if particles < 2 or moves < 1 or not 0 < ess < 1:
        raise ConfigurationError(
            f"smc: expected particles >= 2, moves >= 1, 0 < ess < 1, got {particles}, {moves}, "
            f"{ess}"
        )
    m, n, d = len(code), particles, target.dim
    many = code.repeat_interleave(n, 0)
    active = target.space.active(code)[:, None]
    log_model = target.space.log_prior(code)[:, None]

    def evaluate(theta: Tensor) -> tuple[Tensor, Tensor]:
        flat = theta.reshape(m * n, d)
        log_prior, log_likelihood = target.log_prior_and_likelihood(many, flat)
        total = torch.where(log_prior == -math.inf, log_prior, log_prior + log_likelihood)
        target.check_finite(many, flat, total)
        log_prior = log_prior.view(m, n) - log_model
        return log_prior, torch.where(log_prior == -math.inf, -math.inf, log_likelihood.view(m, n))

    with torch.no_grad():
        theta = target.sample_prior(many, generator).view(m, n, d)
        usable = theta.isfinite().all(-1)
        log_prior, log_likelihood = evaluate(torch.where(usable[..., None], theta, 0.0))
        log_likelihood = torch.where(usable, log_likelihood, -math.inf)
        if not bool((log_likelihood > -math.inf).any(1).all()):
            bad = int((log_likelihood > -math.inf).any(1).logical_not().nonzero()[0, 0])
            raise TargetError(
                f"model {target.space.label(code[bad : bad + 1])[0]!r}: none of {n} prior draws "
                "has a finite likelihood"
            )
        theta = torch.where(usable[..., None], theta, 0.0)
        log_likelihood = log_likelihood.double()
        temper = torch.zeros(m, 1, dtype=torch.float64, device=theta.device)
        log_evidence = torch.zeros(m, dtype=torch.float64, device=theta.device)
        evaluations = m * n
        bar = tqdm(total=1.0, desc="pilot", disable=not progress, bar_format=BAR)
        temperatures = 0
        while bool((temper < 1).any()) and temperatures < MAX_TEMPERATURES:
            temperatures += 1
            step = _next_step(log_likelihood, temper, ess)
            weight = torch.where(log_likelihood == -math.inf, -math.inf, step * log_likelihood)
            log_evidence += weight.logsumexp(1) - math.log(n)
            temper = temper + step
            index = _systematic(weight, generator)
            theta = theta.gather(1, index[..., None].expand(-1, -1, d))
            log_prior, log_likelihood = log_prior.gather(1, index), log_likelihood.gather(1, index)
            factor = _covariance_factor(theta, active)
            for _ in range(moves):
                noise = torch.randn(
                    theta.shape, generator=generator, dtype=theta.dtype, device=theta.device
                )
                spread = torch.randn(m, n, 1, generator=generator, device=theta.device)
                move = (noise @ factor.mT) * torch.exp(STEP_SPREAD * spread - 0.5)
                proposed = torch.where(active, theta + move.to(theta.dtype), 0.0)
                new_prior, new_likelihood = evaluate(proposed)
                ratio = new_prior - log_prior + temper * (new_likelihood - log_likelihood)
                u = torch.rand(m, n, generator=generator, device=theta.device)
                taken = (u.log() < ratio) & (new_likelihood > -math.inf)
                theta = torch.where(taken[..., None], proposed, theta)
                log_prior = torch.where(taken, new_prior, log_prior)
                log_likelihood = torch.where(taken, new_likelihood, log_likelihood)
            evaluations += moves * m * n
            bar.update(float(temper.min()) - bar.n)
        bar.close()
    if bool((temper < 1).any()):
        raise ConvergenceError(
            f"tempering reached only temperature {float(temper.min()):.3g} in {temperatures} steps"
        )
    return Particles(code, theta, log_evidence, temperatures, evaluations)


def _next_step(log_likelihood: Tensor, temper: Tensor, ess: float) -> Tensor:
    """Largest step of each model's temperature that keeps the effective sample size.

    Found by bisection on the logarithm of the step, since under a wide prior the first step can
    be as small as one over the spread of the log-likelihoods.
    """
    n = log_likelihood.shape[1]
    possible = log_likelihood > -math.inf
    # at first some particles may be impossible: aim at a share of the possible ones
    share = ess * possible.sum(1, keepdim=True) / n

    def keeps(step: Tensor) -> Tensor:
        w = torch.where(possible, step * log_likelihood, -math.inf)
        return (2 * w.logsumexp(1, True) - (2 * w).logsumexp(1, True)).exp() / n >= share

    high = (1 - temper).log()
    low = torch.full_like(high, LOG_SMALLEST_STEP)
    whole = keeps(high.exp())
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        fine = keeps(middle.exp())
        low, high = torch.where(fine, middle, low), torch.where(fine, high, middle)
    return torch.where(whole, 1 - temper, low.exp())


def _systematic(log_weight: Tensor, generator: torch.Generator) -> Tensor:
    """Systematic resampling of each row, shape (M, N) -> indices (M, N)."""
    m, n = log_weight.shape
    edges = log_weight.double().softmax(1).cumsum(1)
    u = torch.rand(m, 1, generator=generator, dtype=torch.float64, device=edges.device)
    grid = (torch.arange(n, device=edges.device, dtype=torch.float64) + u) / n
    return torch.searchsorted(edges, grid * edges[:, -1:]).clamp(max=n - 1)


def _covariance_factor(theta: Tensor, active: Tensor) -> Tensor:
    """Factors of the models' particle covariances, scaled for random walks, (M, D, D)."""
    _, n, d = theta.shape
    centred = theta - theta.mean(1, keepdim=True)
    covariance = centred.mT @ centred / n
    eye = torch.eye(d, dtype=theta.dtype, device=theta.device)
    diagonal = covariance.diagonal(dim1=1, dim2=2)
    covariance = covariance + eye * (1e-5 * diagonal + 1e-12)[:, None, :]
    values, vectors = torch.linalg.eigh(covariance)
    size = active.sum(-1, keepdim=True).clamp(min=1).to(theta.dtype)
    return vectors * values.clamp(min=0).sqrt()[:, None, :] * (2.38 / size.sqrt())
