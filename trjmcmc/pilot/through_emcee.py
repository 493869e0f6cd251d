"""Posterior draws to train on, by emcee's affine-invariant ensembles."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from ..draws import Pool
from ..errors import ConfigurationError, ConvergenceWarning, TargetError, warn_user
from ..target.target import Target

CANDIDATES = 50  # prior draws a walker, among which starts are chosen by likelihood

FEWEST_DRAWS = 500  # effective ones of a model, below which there is a warning


def emcee_pool(
    target: Target,
    code: Tensor,
    *,
    walkers: int = 64,
    steps: int = 2000,
    generator: torch.Generator,
    progress: bool = False,
) -> Pool:
    """Draws of each model by emcee's affine-invariant ensemble sampler; needs no gradients.

    Walkers start at prior draws chosen by likelihood; the first half of each chain is dropped.
    An ensemble hardly crosses between separate modes: compare with the audit.

    Arguments:
        target: The target.
        code: Models, shape (M, L).
        walkers: Walkers a model; at least twice the parameters are used.
        steps: Steps of each walker.
        generator: Source of randomness.
        progress: Show emcee's bar.

    Raises:
        ConfigurationError: Fewer than ten steps, or than four walkers.
        TargetError: A model has too few prior draws of finite density.

    Source:
        Foreman-Mackey et al. (2013), https://doi.org/10.1086/670067

    Example:
        >>> from trjmcmc import problems
        >>> target = problems.sinh_arcsinh()
        >>> pool = emcee_pool(target, target.space.enumerate(), steps=200,
        ...                   generator=torch.Generator().manual_seed(0))
        >>> pool.theta.shape[1], bool(pool.log_joint.isfinite().all())
        (2, True)
    """
    if steps < 10 or walkers < 4:
        raise ConfigurationError(
            f"emcee: expected steps >= 10, walkers >= 4, got {steps}, {walkers}"
        )
    parts = [_one_model(target, row, walkers, steps, generator, progress) for row in code]
    return Pool(*(torch.cat(x) for x in zip(*parts, strict=True)))


def _one_model(
    target: Target,
    row: Tensor,
    walkers: int,
    steps: int,
    generator: torch.Generator,
    progress: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    used = target.space.active(row[None])[0].nonzero()[:, 0]
    d, label = len(used), target.space.label(row[None])[0]

    def log_joint(x: Tensor) -> Tensor:
        theta = torch.zeros(len(x), target.dim, dtype=target.dtype, device=target.device)
        theta[:, used] = x
        many = row.expand(len(x), -1)
        with torch.no_grad():
            value = target.log_joint(many, theta)
        target.check_finite(many, theta, value)
        return value

    import emcee  # with scipy.stats, which takes a second

    if not d:
        nothing = torch.zeros(1, target.dim, dtype=target.dtype, device=target.device)
        return row[None], nothing, log_joint(nothing[:, :0]).double()
    walkers = max(walkers, 2 * (d + 1))
    n = walkers * CANDIDATES
    with torch.no_grad():
        theta = target.sample_prior(row.expand(n, -1), generator)[:, used]
        theta = theta[theta.isfinite().all(-1)]
        value = log_joint(theta)
    fine = (value > -math.inf).nonzero()[:, 0]
    if len(fine) < walkers:
        raise TargetError(f"model {label!r}: {len(fine)} of {n} prior draws have a finite density")
    start = theta[fine[value[fine].argsort(descending=True)[:walkers]]]
    seed = int(torch.randint(2**31, (), generator=generator, device=generator.device))
    state = emcee.State(
        start.double().cpu().numpy(), random_state=np.random.RandomState(seed).get_state()
    )

    def numpy_log_joint(x: np.ndarray) -> np.ndarray:
        return log_joint(torch.as_tensor(x).to(start)).double().cpu().numpy()

    ensemble = emcee.EnsembleSampler(walkers, d, numpy_log_joint, vectorize=True)
    ensemble.run_mcmc(state, steps, progress=progress)
    kept = ensemble.get_chain(discard=steps // 2)
    with np.errstate(invalid="ignore", divide="ignore"):  # walkers that never moved
        tau = float(np.max(emcee.autocorr.integrated_time(kept, tol=0, quiet=True)))
    if not kept.shape[0] * walkers > FEWEST_DRAWS * tau:
        warn_user(
            f"emcee: {steps} steps of {walkers} walkers in model {label!r} are worth fewer than "
            f"{FEWEST_DRAWS} draws (autocorrelation time {tau:.0f}): poor ones to train on",
            ConvergenceWarning,
        )
    thin = max(1, int(tau / 2)) if math.isfinite(tau) else 1
    chain = ensemble.get_chain(discard=steps // 2, thin=thin, flat=True)
    height = ensemble.get_log_prob(discard=steps // 2, thin=thin, flat=True)
    found = torch.zeros(len(chain), target.dim, dtype=target.dtype, device=target.device)
    found[:, used] = torch.as_tensor(chain).to(found)
    return row.expand(len(chain), -1), found, torch.as_tensor(height, device=target.device)
