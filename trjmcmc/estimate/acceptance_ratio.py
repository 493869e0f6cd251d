"""The ratio of two masses by the moves that were proposed between them, accepted or not."""

from __future__ import annotations

import math

import numpy as np
import scipy
from numpy.typing import NDArray

from .bridge import falling_root

Array = NDArray[np.floating]

FAR = 700.0  # nats beyond which exponentials are not told from 0


def acceptance_ratio(up: Array, down: Array, guess: float = 0.0) -> float:
    r"""Log of the mass of a larger model over that of a smaller one.

    With r the ratio that decides whether a move is accepted, of n moves up and m moves down that
    were proposed at draws of either model, the log ratio c solves

    .. math:: \sum_{up} \frac{1}{1 + e^{c + \log(n/m)} / r}
              = \sum_{down} \frac{1}{1 + e^{-c - \log(n/m)} / r}.

    It needs equilibrium within each model, not between them.

    Arguments:
        up: log r of moves proposed from the smaller model, -inf of impossible ones, shape (n,).
        down: log r of moves proposed from the larger one, shape (m,).
        guess: About what the answer may be.

    Returns:
        c in nats; NaN where no move of either kind could be made.

    Source:
        Bennett (1976), https://doi.org/10.1016/0021-9991(76)90078-4; Meng & Wong (1996); of
        reversible jumps: Bartolucci, Scaccia & Mira (2006)

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x, y = rng.normal(size=4000), 1 + rng.normal(size=4000)  # masses 1 and e^-3, at 0, at 1
        >>> log_r = lambda z: -3 - 0.5 * (z - 1) ** 2 + 0.5 * z**2
        >>> round(acceptance_ratio(log_r(x), -log_r(y)), 1)
        -3.0
    """
    if not (np.any(up > -math.inf) and np.any(down > -math.inf)):
        return math.nan
    low, high = guess - 1.0, guess + 1.0
    while balance(up, down, low).sum() < 0 and low > guess - FAR:
        low -= 2 * (guess - low)
    while balance(up, down, high).sum() > 0 and high < guess + FAR:
        high += 2 * (high - guess)
    if balance(up, down, low).sum() < 0 or balance(up, down, high).sum() > 0:
        return math.nan
    return falling_root(lambda c: float(balance(up, down, c).sum()), low, high, 1e-6)


def balance(up: Array, down: Array, c: float) -> Array:
    """Terms whose sum is zero at the log ratio, of moves up and of moves down, (n + m,)."""
    shift = c + math.log(len(up) / len(down))
    return np.concatenate([scipy.special.expit(up - shift), -scipy.special.expit(down + shift)])


def influence(up: Array, down: Array, c: float) -> Array:
    r"""What each move adds to the deviation of the log ratio, (n + m,).

    With s the terms of the balance, at the shift :math:`h = c + \log(n/m)`, the ratio is
    :math:`e^h` times the mean of s over moves up, over the mean over moves down. They have errors.
    """
    first, second = np.split(np.abs(balance(up, down, c)), [len(up)])
    return np.concatenate([_share(first), -_share(second)])


def _share(x: Array) -> Array:
    return (x / x.mean() - 1) / len(x)
