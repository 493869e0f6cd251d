"""Data augmentation for variable selection in a regression with outliers: a reference."""

from __future__ import annotations

import math

import numpy as np
import scipy
from numpy.typing import NDArray

from trjmcmc.errors import ConfigurationError
from trjmcmc.problems.regression import RegressionTarget
from trjmcmc.problems.robust_regression import MixtureRegression
from trjmcmc.problems.robust_selection import SDS, WEIGHTS


def gibbs_robust_selection(
    target: RegressionTarget,
    *,
    chains: int = 256,
    draws: int = 2000,
    burn_in: int = 500,
    seed: int = 0,
) -> NDArray[np.float64]:
    """Inclusion probabilities of a robust selection by data augmentation, of each chain.

    Which of the two normals an error comes from is drawn given the coefficients; then one
    coefficient after the other given the rest, as in
    :func:`examples.solved.gibbs_spike_and_slab`, with rows
    weighed by their errors' precisions. It knows this problem only, and stands as a reference
    beside samplers that know none.

    Arguments:
        target: Of :func:`trjmcmc.problems.robust_selection`; its data and its prior are taken.
        chains: Independent chains, from the model of the intercept.
        draws: Scans that are averaged over.
        burn_in: Scans before them.
        seed: Of all chains.

    Returns:
        Probabilities of the columns without the intercept, averaged over each chain, shape
        (chains, p); their mean is the estimate, their standard deviation over the root of
        ``chains`` its standard error.

    Raises:
        ConfigurationError: chains or draws below 1, burn_in below 0; another target.

    Source:
        Verdinelli & Wasserman (1991), https://doi.org/10.1007/BF01889985, with the spike of
        Geweke (1996)

    Example:
        >>> from trjmcmc.problems import robust_selection
        >>> chains = gibbs_robust_selection(robust_selection(p=3), draws=200, burn_in=50)
        >>> chains.shape
        (256, 3)
    """
    if min(chains, draws) < 1 or burn_in < 0:
        raise ConfigurationError(
            "chains, draws, burn_in: expected at least 1, 1 and 0, got "
            f"{chains}, {draws} and {burn_in}"
        )
    likelihood = getattr(target, "log_likelihood", None)
    if not isinstance(likelihood, MixtureRegression) or target.x.shape[1] + 1 != target.dim:
        raise ConfigurationError("target: expected one of trj.problems.robust_selection")
    prior_sd = target.prior_sd
    columns, response = target.x.double().numpy(), target.y.double().numpy()
    design = np.column_stack([np.ones(len(columns)), columns])
    rng = np.random.default_rng(seed)
    beta = np.zeros((chains, design.shape[1]))
    residuals = np.tile(response, (chains, 1))
    total = np.zeros((chains, design.shape[1]))
    narrow, wide = (np.square(1.0 / np.array(SDS))).tolist()
    log_odds = math.log(WEIGHTS[1] / SDS[1]) - math.log(WEIGHTS[0] / SDS[0])
    for t in range(-burn_in, draws):
        square = residuals**2
        outlier = rng.random(square.shape) < scipy.special.expit(
            log_odds + 0.5 * (narrow - wide) * square
        )
        precision = np.where(outlier, wide, narrow)
        variances = 1 / (precision @ design**2 + prior_sd**-2)
        uniform, normal = rng.random(beta.shape), rng.standard_normal(beta.shape)
        for j in range(beta.shape[1]):
            column, variance = design[:, j], variances[:, j]
            residuals += np.outer(beta[:, j], column)
            mean = variance * ((precision * residuals) @ column)
            chance = scipy.special.expit(
                0.5 * np.log(variance / prior_sd**2) + 0.5 * mean**2 / variance
            )
            if j == 0:
                chance = np.ones(chains)
            slab = uniform[:, j] < chance
            beta[:, j] = np.where(slab, mean + np.sqrt(variance) * normal[:, j], 0.0)
            residuals -= np.outer(beta[:, j], column)
            if t >= 0:
                total[:, j] += chance
    return total[:, 1:] / draws
