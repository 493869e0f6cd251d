"""Whether models, or items, are as often true as their posterior probabilities say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..doubts.doubt import EVERY, Doubt
from .asked import DOUBTFUL, by_chance

if TYPE_CHECKING:
    import pandas as pd

SIMULATED = 40_000  # repeats of the truth by which a score is judged

BINS = 8  # of the reliability diagram

SHARP = 1e-4  # p-value from which probabilities are wrong, and not doubtful, in sharpness

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Calibration:
    """Probabilities and truths over repeats.

    Attributes:
        names: Of models, of which one is true, or of items, each true or not.
        p: Posterior probability, shape (repeat, name).
        true: Whether it is, shape (repeat, name), bool.
        exclusive: Whether one name is true at a time.
    """

    names: Sequence[str]
    p: Array
    true: NDArray[np.bool_]
    exclusive: bool

    def table(self) -> pd.DataFrame:
        """By name ``true``, how often; ``expected``; ``p``, exact and two-sided."""
        import pandas as pd

        rows = {}
        for i, name in enumerate(self.names):
            count = int(self.true[:, i].sum())
            rows[name] = {
                "true": count,
                "expected": float(self.p[:, i].sum()),
                "p": poisson_binomial(self.p[:, i], count),
            }
        columns = ["true", "expected", "p"]
        return pd.DataFrame.from_dict(rows, orient="index", columns=columns).rename_axis("model")

    def reliability(self) -> pd.DataFrame:
        """Probabilities of all names in bins: ``p`` mean, ``true`` share, ``n``, 95 % of it."""
        import pandas as pd

        p, x = self.p.ravel(), self.true.ravel()
        edges = np.linspace(0, 1, BINS + 1)
        rows = []
        for low, high in pairwise(edges):
            inside = (p >= low) & ((p < high) | (high == 1))
            if not inside.any():
                continue
            sd = math.sqrt(float((p[inside] * (1 - p[inside])).sum())) / int(inside.sum())
            mean = float(p[inside].mean())
            reach = {"low": max(0.0, mean - 1.96 * sd), "high": min(1.0, mean + 1.96 * sd)}
            rows.append(
                {"p": mean, "true": float(x[inside].mean()), "n": int(inside.sum()), **reach}
            )
        return pd.DataFrame(rows, columns=["p", "true", "n", "low", "high"])

    def sharpness(self, rng: np.random.Generator) -> tuple[float, float]:
        """Log score of the truth over what the probabilities expect, nats a repeat, and p.

        Below zero probabilities are too sure, above zero too unsure. The p-value is by
        simulation of truths from the probabilities, two-sided.
        """
        if self.exclusive:
            gain = np.log(self.p)
            expected = (self.p * gain).sum(1)
            got = (gain * self.true).sum(1) - expected
            edges = self.p.cumsum(1)
            total = np.zeros(SIMULATED)
            for r in range(len(self.p)):
                pick = np.searchsorted(edges[r], rng.random(SIMULATED) * edges[r, -1])
                total += gain[r, pick.clip(max=len(self.names) - 1)] - expected[r]
        else:
            odds = np.log(self.p) - np.log1p(-self.p)
            got = (odds * (self.true - self.p)).sum(1)
            total = np.zeros(SIMULATED)
            for r in range(len(self.p)):
                total += (
                    (rng.random((SIMULATED, len(self.names))) < self.p[r]) - self.p[r]
                ) @ odds[r]
        seen = float(got.sum())
        tail = min((total <= seen + 1e-9).sum(), (total >= seen - 1e-9).sum())
        return seen / max(1, len(self.p)), float(min(1.0, 2 * (1 + tail) / (1 + SIMULATED)))

    def offsets(self) -> dict[str, tuple[float, float]]:
        """By model nats that its log evidence is too high by, against all, and the error.

        That is the constant by which probabilities would have to be changed to be calibrated; a
        weak normal prior (10 nats) holds it where nothing tells.
        """
        from scipy.optimize import minimize  # seconds to import

        log_p, hit = np.log(self.p), self.true

        def loss(delta: Array) -> float:
            shifted = log_p + delta
            top = shifted.max(1, keepdims=True)
            norm = top[:, 0] + np.log(np.exp(shifted - top).sum(1))
            return float(-((shifted * hit).sum(1) - norm).sum() + 0.005 * (delta**2).sum())

        delta = minimize(loss, np.zeros(len(self.names)), method="BFGS").x
        weights = np.exp(log_p + delta)
        weights /= weights.sum(1, keepdims=True)
        hessian = np.diag(weights.sum(0)) - weights.T @ weights + 0.01 * np.eye(len(delta))
        centre = np.eye(len(delta)) - 1 / len(delta)
        cov = centre @ np.linalg.inv(hessian) @ centre
        delta = centre @ delta
        return {
            name: (float(-delta[i]), float(math.sqrt(max(cov[i, i], 0.0))))
            for i, name in enumerate(self.names)
        }


def smoothed(share: Any, draws: int, exclusive: bool) -> Array:
    """Probabilities that are never 0 or 1, of shares among so many independent draws."""
    share = np.asarray(share, dtype=float)
    kinds = share.shape[-1] if exclusive else 2
    return (share * draws + 0.5) / (draws + 0.5 * kinds)


def poisson_binomial(p: Any, count: int) -> float:
    """Chance that a number of independent events is as far from what is expected, two-sided.

    Example:
        >>> round(poisson_binomial([0.5, 0.5], 2), 3), poisson_binomial([0.5] * 40, 40) < 1e-9
        (0.5, True)
    """
    mass = np.ones(1)
    for one in np.asarray(p, dtype=float):
        mass = np.convolve(mass, [1 - one, one])
    tail = min(mass[: count + 1].sum(), mass[count:].sum())
    return float(min(1.0, 2 * tail))


def judge_models(found: Calibration, tests: int, rng: np.random.Generator) -> list[Doubt]:
    """What truths say of probabilities.

    Arguments:
        found: Over repeats.
        tests: Quantities and models that are judged in all, which p-values are multiplied by.
        rng: For the test of sharpness.
    """
    doubts: list[Doubt] = []
    what = "model" if found.exclusive else "item"
    offsets = cache(found.offsets)
    for name, row in found.table().iterrows():
        p = min(1.0, float(row["p"]) * tests)
        high = row["true"] < row["expected"]
        words = (
            f"p({what} {name!r}) is too {'high' if high else 'low'}: it is true in "
            f"{int(row['true'])} of {len(found.p)} repeats where {row['expected']:.1f} are expected"
        )
        if found.exclusive and p < DOUBTFUL:
            off, error = offsets()[str(name)]
            words += (
                f". Its log likelihood is about {abs(off):.2g} ± {error:.1g} nats too "
                f"{'high' if off > 0 else 'low'} beside the other models: it is normalised wrongly "
                "(a constant that differs between models was dropped, or the Jacobian of "
                "transformed data), or its prior is not the one that is simulated"
            )
        doubts += by_chance(str(name), words, p)
    score, p = found.sharpness(rng)
    if not any(d.grave for d in doubts):
        words = (
            f"probabilities of {what}s are too {'sure' if score < 0 else 'unsure'}: the truth "
            f"scores {score:+.2g} nats per repeat against what they expect"
        )
        doubts += by_chance(EVERY, words, min(1.0, 2 * p), SHARP)
    return doubts
