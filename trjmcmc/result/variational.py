"""The variational answer: what a fit alone says, and how far from the posterior it is."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..arviz_bridge import to_arviz
from ..doubts.doubt import Doubt, warn_of
from ..draws import Draws
from ..errors import TRJError
from ..estimate.estimate import Estimate
from ..plot.marginals import plot_marginals
from ..transport.base import Transport
from ..weights.base import ModelWeights
from .axes import named
from .numbers import by_number, chosen
from .packed import made, pack, plain, unpack
from .variational_draws import VariationalDraws, beside_run, described

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


UNKNOWN = Estimate(math.nan, math.nan)

ITEMS_PRINTED = 8  # items in print at most

FORMAT = 2  # of files

ABSURD = 1e4  # nats from which a cross-entropy says no more than that some draws are out of reach

OUT_OF_REACH = ": some draws lie where q has next to no density"


@dataclass(frozen=True)
class Variational:
    """q(m) q(theta | m), a fit's own answer: approximate, with all that it knows against itself.

    Attributes:
        kind: The family of q(m), by name; empty where there is one model.
        probabilities: q(m) of the models that it draws most, by label, largest first.
        inclusion: Inclusion probability of each item under q, for subsets; else None.
        elbo: Evidence lower bound of all models together, nats, of q where the density is not zero.
        cross_entropy: Minus the mean of log q(m, theta) over a run's exact draws, nats, theta
            in unconstrained coordinates; None before a run.
        divergence: Kullback-Leibler divergence KL(p | q) of q from the posterior p, by the run's
            draws and the evidence that importance sampling from q finds, nats: too large where q
            misses a part of p, whose draws are improbable under q, and no better than the run;
            None before.
        inclusion_error: Largest difference of an inclusion probability from the run's.
        family: The family of q(theta | m), by name.
        log_evidence: Log evidence of all models together by importance sampling from q, weights
            Pareto-smoothed, nats; NaN error where their tail is too heavy.
        ess_share: Effective share of the importance weights, 1 where q is the posterior.
        pareto_k: Shape of their tail; above 0.7 they can't be averaged. -inf where no weight is
            twice the mean.
        models: Of a small space, one row per model: ``probability`` under q, ``elbo``, ``elbo_se``,
            ``log_evidence`` and ``log_evidence_se`` (p(model) not included), ``ess_share``,
            ``pareto_k``; else None.
        sample: Independent draws from q with their log densities; None in what a run reports.
        exact: The log evidence of all models together where the target knows it, nats.
        audited: Whether independent tempered draws had their say. Without them a part of the
            posterior that q has never met can't be seen.
        doubts: What speaks against the answer, gravest first; a mild one says why it was not
            audited.
        cost: ``evaluations`` and ``gradients`` of the likelihood, and ``seconds``, of fit,
            audit and answer together.
        transport: The map, which :class:`~trjmcmc.TRJSampler` takes; it is not saved.
        weights: q(m); it is not saved.
    """

    kind: str
    probabilities: pd.Series
    inclusion: pd.Series | None
    elbo: Estimate
    cross_entropy: Estimate | None = None
    divergence: float | None = None
    inclusion_error: float | None = None
    family: str = ""
    log_evidence: Estimate = UNKNOWN
    ess_share: float = math.nan
    pareto_k: float = math.nan
    models: pd.DataFrame | None = None
    sample: VariationalDraws | None = field(default=None, repr=False)
    exact: float | None = None
    audited: bool = False
    doubts: tuple[Doubt, ...] = ()
    cost: Mapping[str, float] = field(default_factory=dict)
    transport: Transport | None = field(default=None, repr=False, compare=False)
    weights: ModelWeights | None = field(default=None, repr=False, compare=False)

    # ---- how far off it is --------------------------------------------------------------------

    @property
    def ok(self) -> bool:
        """Whether nothing grave is known against it."""
        return not any(d.grave for d in self.doubts)

    def kl(self, log_evidence: float | Estimate | None = None) -> Estimate:
        """Divergence KL(q | p) of the posterior p from q, nats.

        Arguments:
            log_evidence: Of all models together, p(model) included, nats. By default the one
                that the target knows.

        Raises:
            TRJError: The evidence is not known.

        Example:
            >>> import trjmcmc as trj
            >>> target = trj.problems.beta_bernoulli()
            >>> answer = trj.variational(target, "laplace", seed=1, progress=False)
            >>> abs(answer.kl().value) < 0.01
            True
        """
        known = self.exact if log_evidence is None else log_evidence
        if known is None:
            raise TRJError(
                "kl: the evidence is unknown; give it as kl(log_evidence), for example that of "
                "an exact run, or look at log_evidence.value - elbo.value, which importance "
                "sampling estimates"
            )
        return known - self.elbo

    def against(self, run: Any) -> Variational:
        """The answer with how far it was from an exact run.

        Arguments:
            run: A :class:`~trjmcmc.Result` on the same target, or its ``raw`` draws.

        Returns:
            The same, with :attr:`cross_entropy`, :attr:`divergence` and :attr:`inclusion_error`.

        Raises:
            TRJError: The answer came from a file, without its map.

        Source:
            Cross-entropy against draws: Davies et al., "Variational transdimensional inference",
            section 5
        """
        if self.transport is None or self.weights is None:
            raise TRJError("against: this answer came without its map")
        draws = run if isinstance(run, Draws) else run.raw
        found = beside_run(self.transport, self.weights, self._sample, self.inclusion, draws)
        return replace(self, **found)

    def warn(self) -> None:
        """Warn of its doubts."""
        warn_of(self.doubts)

    # ---- draws --------------------------------------------------------------------------------

    @property
    def _sample(self) -> VariationalDraws:
        if self.sample is None:
            raise TRJError("this answer holds no draws: ask sampler.variational for them")
        return self.sample

    def draws(
        self,
        model: str | None = None,
        n: int | None = None,
        *,
        corrected: bool = False,
        seed: int = 0,
    ) -> dict[str, NDArray[np.floating]]:
        """Draws of one model in the user's names and constrained space.

        Arguments:
            model: Its label; by default the only one, or the one that q draws most.
            n: How many, with replacement; by default all there are.
            corrected: Draw by importance weights: what an exact sampler would give as far as
                the weights can be trusted (:attr:`pareto_k`).
            seed: Of the choice of draws.

        Returns:
            By parameter, shape (n, ...).

        Raises:
            UnknownModelError: The model was not drawn.
        """
        found: dict[str, NDArray[np.floating]] = self._sample.resampled(model, n, corrected, seed)
        return found

    def summary(self, model: str | None = None, *, corrected: bool = False) -> pd.DataFrame:
        """Means, standard deviations and quantiles of parameters.

        Arguments:
            model: A label; all that were drawn if omitted.
            corrected: As of :meth:`draws`.

        Returns:
            Indexed by parameter, and by model where several were drawn and none was named:
            ``mean``, its Monte Carlo error ``mcse``, ``sd``, ``q5``, ``median`` and ``q95``, in
            the parameters' units.
        """
        import pandas as pd

        if model is None and len(self._sample.models) > 1:
            each = {m: self.summary(m, corrected=corrected) for m in self.probabilities.index}
            return pd.concat(each, names=["model"])
        rows, numbers = self._sample.columns(model)
        w = self._sample.weights(corrected, rows)
        table = {name: described(x, w) for name, x in numbers.items()}
        columns = ["mean", "mcse", "sd", "q5", "median", "q95"]
        found = pd.DataFrame.from_dict(table, orient="index", columns=columns)
        return found.rename_axis("parameter")

    def to_arviz(self, model: str | None = None, *, corrected: bool = False, seed: int = 0) -> Any:
        """Draws of one model for ArviZ, as one chain.

        Arguments:
            model, corrected, seed: As of :meth:`draws`.

        Returns:
            ``arviz.InferenceData``, or a ``DataTree`` with ArviZ 1: ``posterior``, and of draws
            from q itself the log joint ``lp`` and ``log_q``.
        """
        sample, label = self._sample, self._sample.label(model)
        found = sample.resampled(label, None, corrected, seed)
        chain = {name: value[None] for name, value in found.items()}
        axes: dict[str, Any] = {}
        if label in sample.stated:
            chain, axes = named(sample.stated[label], chain)
        densities = {}
        if not corrected:
            rows, _ = sample.of_model(label)
            both = {"lp": sample.log_joint, "log_q": sample.log_q}
            densities = {name: x[rows].numpy()[None] for name, x in both.items()}
        return to_arviz(chain, densities, {"models": json.dumps([label])}, axes=axes)

    def plot(
        self,
        model: str | None = None,
        parameters: Sequence[str] | None = None,
        *,
        reference: Any = None,
        ax: Any = None,
    ) -> NDArray[Any] | Axes:
        """Draw the marginals of q, with importance weights, and of an exact posterior.

        Arguments:
            model: As of :meth:`draws`.
            parameters: Names of parameters or of single numbers; the first 12 numbers if omitted.
            reference: The exact posterior, in grey: a :class:`~trjmcmc.Result`, or draws by name,
                shape (n, ...).
            ax: Axes to draw on.

        Returns:
            The axes.
        """
        sample = self._sample
        rows, numbers = sample.columns(model)
        if parameters is not None:
            numbers = chosen(numbers, parameters, "parameters")
        label = sample.label(model)
        given = reference.draws(label) if hasattr(reference, "draws") else reference
        w = sample.weights(corrected=True, rows=rows) if len(rows) else None
        return plot_marginals(numbers, w, by_number(given or {}), ax)

    # ---- files --------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write one file, read by :meth:`load`: numbers, tables and draws, not the map."""
        found = plain(replace(self, transport=None, weights=None))
        Path(path).write_bytes(pack({"format": FORMAT, "variational": found}))

    @classmethod
    def load(cls, path: str | Path) -> Variational:
        """Read a file; nothing in it is executed.

        Raises:
            TRJError: It is no such file, or was damaged.

        Example:
            >>> import tempfile, trjmcmc as trj
            >>> answer = trj.variational(
            ...     trj.problems.beta_bernoulli(), "laplace", seed=1, progress=False)
            >>> path = tempfile.mktemp()
            >>> answer.save(path)
            >>> trj.approximate.Variational.load(path).elbo == answer.elbo
            True
        """
        data = unpack(path)
        if data.get("format") != FORMAT or "variational" not in data:
            raise TRJError(f"{path}: not a variational answer saved by this version of trjmcmc")
        found: Variational = made(data["variational"], {c.__name__: c for c in ANSWER})
        return found

    def without_draws(self) -> Variational:
        """The numbers alone."""
        return replace(self, sample=None, transport=None, weights=None)

    # ---- print --------------------------------------------------------------------------------

    def __str__(self) -> str:
        by = ", ".join(
            f"{what} by {name}"
            for what, name in (("q(m)", self.kind), ("q(theta | m)", self.family))
            if name
        )
        lines = [f"variational answer, approximate{', ' if by else ''}{by}"]
        lines += [f"  evidence lower bound   {_with_error(self.elbo)} nats"]
        if math.isfinite(self.log_evidence.value):
            lines += [
                f"  log evidence           {_with_error(self.log_evidence)} nats, by importance "
                "sampling",
                f"  effective share        {self.ess_share:.1%}, {_tail(self.pareto_k)}",
            ]
        if self.exact is not None:
            lines += [f"  divergence KL(q | p)   {_with_error(self.kl())} nats"]
        if len(self.probabilities) > 1:
            lines += [f"  models                 {_listed(self.probabilities)}"]
        if self.inclusion is not None:
            lines += [f"  inclusion              {_listed(self.inclusion)}"]
        if self.cross_entropy is not None:
            far = self.cross_entropy.value > ABSURD
            said = f"above {ABSURD:.0f}" if far else _with_error(self.cross_entropy)
            lines += [f"  cross-entropy of draws {said} nats" + OUT_OF_REACH * far]
        else:
            lines += ["  run() measures how far off it is"]
        if self.divergence is not None:
            far = self.divergence > ABSURD
            said = f"above {ABSURD:.0f}" if far else f"{self.divergence:.3f}"
            lines += [f"  divergence KL(p | q)   {said} nats, by q's own evidence"]
        if self.inclusion_error is not None:
            lines += [f"  largest inclusion error {self.inclusion_error:.4f}"]
        if self.sample is not None:
            said = "not audited: a mode that q lacks would not show"
            lines += ["  audited by independent tempered draws" if self.audited else f"  {said}"]
        if self.cost:
            spent = ", ".join(f"{value:,.4g} {name}" for name, value in self.cost.items() if value)
            lines += [f"  cost                   {spent}"]
        known = [f"  {'doubt: ' * d.grave}{d}" for d in self.doubts]
        if not known and (self.sample is None or self.audited):
            known = ["  no doubts"]
        return "\n".join(lines + known)


ANSWER: tuple[type, ...] = (Variational, VariationalDraws, Estimate, Doubt)  # a file's classes


def _with_error(e: Estimate) -> str:
    """Value and error, to two digits of the error."""
    known = math.isfinite(e.std_error) and e.std_error > 0
    digits = min(9, max(3, 1 - math.floor(math.log10(e.std_error)))) if known else 3
    return f"{e.value:.{digits}f} +- {e.std_error:.{digits}f}"


def _tail(k: float) -> str:
    return "weights without a tail" if k == -math.inf else f"Pareto k {k:.2f}"


def _listed(p: pd.Series) -> str:
    top = p.nlargest(ITEMS_PRINTED)
    each = ", ".join(f"{name} {share:.3f}" for name, share in top.items())
    return each + (", ..." if len(p) > ITEMS_PRINTED else "")
