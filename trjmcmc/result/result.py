"""What a run found out: probabilities, Bayes factors, draws, tables, files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ..atomic import replace_file
from ..doubts.convergence import Convergence
from ..doubts.doubt import Doubt, messages, warn_of
from ..doubts.doubted import Doubted
from ..doubts.of_numbers import unresolved
from ..draws import Draws
from ..errors import ConfigurationError, TRJError
from ..estimate.estimate import Estimate
from ..estimate.indicator import ModelIndicator
from ..plot.components import plot_averaged, plot_components
from ..plot.draws import plot_corner, plot_rank, plot_trace
from ..plot.models import plot_inclusion, plot_models
from ..space.base import Space
from ..target.model import Truth
from ..target.prior import PriorSpec
from ..target.target import Target
from . import html
from .catalogue import INTERVAL, Catalogue
from .chains import Chains
from .checks import all_doubts, doubted
from .compare import Pointwise, compared, log_likelihood_of
from .evidences import Evidences
from .files import Contents, as_data, read, write
from .merge import merged
from .numbers import chosen
from .parameters import Parameters, Values
from .predict import Prediction, predict
from .probabilities import Probabilities, in_short
from .relabel import LEAST_SHARE
from .report import RunReport
from .report_page import page_of
from .reweight import Reweighted, reweighted
from .series import POINTS, RANKED, cut, series_of_model, series_of_run, spaced
from .to_arviz import check_chains, of_all, of_model

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


SHOWN = 5  # models where a result is printed


class Result:
    """Draws of a run and the estimates made from them.

    Arguments:
        space: The bound model space.
        draws: Kept draws.
        values: Constrained parameters by name, padded to the largest model with NaN, shape
            (chain, draw, ...), or a function that gives them when they are asked for.
        routes: By route (``importance``, ``smoothed``, ``bridge``, ``warp``, ``audit``) and
            model label, log of p(model) times its evidence, nats.
        report: How the run went.
        truth: Known answers, if any.
        crossings: For a small space, sums of the acceptance probabilities of jumps from row to
            column, shape (batch, M, M), and the numbers of draws they were proposed from,
            shape (batch, M), in the order of ``space.enumerate()``.
        pareto_k: By model label, the Pareto shape of the map's importance weights.
        target: The target, on the CPU, for :meth:`reweight` and :meth:`predict`; it is not saved.
        slot_names: Names of the coordinates, for :meth:`convergence`.
        coarse: By model label, parameters that the working precision does not resolve, in words;
            found from the target if omitted.
        turns: Where the circles of periodic parameters begin and end, by name; found from the
            target if omitted.
        onward: What ``run(start=result)`` goes on from, if anything.
    """

    def __init__(
        self,
        space: Space,
        draws: Draws,
        values: Values | Callable[[], Values],
        routes: Mapping[str, Mapping[str, Estimate]],
        report: RunReport,
        truth: Truth | None = None,
        *,
        crossings: tuple[Tensor, Tensor] | None = None,
        pareto_k: Mapping[str, float] | None = None,
        target: Target | None = None,
        slot_names: Sequence[str] | None = None,
        coarse: Mapping[str, str] | None = None,
        turns: Mapping[str, tuple[float, float]] | None = None,
        onward: Any = None,
    ) -> None:
        self.space, self.report, self.target = space, report, target
        self._onward, self._given_values, self._given_coarse = onward, values, coarse
        self._turns = dict(turns or {}) if target is None else target.turns
        self._given_routes = {route: dict(found) for route, found in routes.items()}
        self._given_pareto_k = dict(pareto_k or {})
        self._given_names, self._crossings, self._truth = slot_names, crossings, truth
        self._indicator = ModelIndicator(space, draws)

    # ---- parts, each made when it is first asked for ----------------------------------------

    @cached_property
    def _convergence(self) -> Convergence:
        names = self._given_names or [f"theta[{i}]" for i in range(self.raw.theta.shape[2])]
        return Convergence(self._indicator, list(names))

    @cached_property
    def _coarse(self) -> Mapping[str, str]:
        known = self._given_coarse
        return unresolved(self.target, self._indicator) if known is None else known

    @cached_property
    def _doubted(self) -> Doubted:
        return doubted(self._convergence, self.report, self._given_routes, self._coarse)

    @cached_property
    def chains(self) -> Chains:
        """How chains moved, whether they have mixed, and what they alone tell."""
        return Chains(self._convergence, self._doubted, self._crossings, self._truth)

    @cached_property
    def evidences(self) -> Evidences:
        """Evidences by every route, what the map's audit said, and where routes clash."""
        return Evidences(self.chains, self.report, self._given_routes, self._given_pareto_k)

    @cached_property
    def _probabilities(self) -> Probabilities:
        return Probabilities(self.evidences)

    @cached_property
    def _parameters(self) -> Parameters:
        return Parameters(self._indicator, self._doubted, self._given_values, self._turns)

    @cached_property
    def _catalogue(self) -> Catalogue:
        return Catalogue(self._parameters)

    # ---- models -----------------------------------------------------------------------------

    @property
    def raw(self) -> Draws:
        """Kept draws in unconstrained coordinates, and their models."""
        return self._indicator.draws

    @cached_property
    def doubts(self) -> list[Doubt]:
        """All that speaks against the answer, gravest first; runs warn of what is grave."""
        return all_doubts(self._probabilities, self.report)

    def convergence(self) -> pd.DataFrame:
        """Have chains forgotten where they began? Of all that they pass, by model.

        Components of an unknown number have no names of their own: of their parameters the
        smallest, the mean and the largest are looked at; :meth:`catalogue` has R-hat by entry.

        Returns:
            Indexed by model (``(all models)`` for what belongs to none, ``(other models)`` for
            all below one percent together) and quantity: the log joint, being in a model,
            including an item, numbers of components, unconstrained parameters. ``rhat``,
            rank-normalised split R-hat over chains of independent starts; ``nested_rhat``, that of
            eight groups of chains, which share nothing in a run in rounds; ``ess_bulk``
            and ``ess_tail``, effective draws; ``share`` of the draws in which the quantity exists.

        Source:
            Vehtari et al. (2021), https://doi.org/10.1214/20-BA1221; Margossian et al. (2024),
            https://doi.org/10.1214/24-BA1453

        Example:
            >>> import trjmcmc as trj
            >>> result = trj.TRJSampler(trj.problems.sinh_arcsinh(), seed=1).run(
            ...     draws=500, progress=False)
            >>> bool((result.convergence()["rhat"] < 1.1).all())
            True
        """
        return self._convergence.table()

    def model_probabilities(self, *, full: bool = False) -> pd.DataFrame:
        """Posterior probability of each model.

        Arguments:
            full: Every route side by side, and not the best alone.

        Returns:
            One row per model, indexed by name. ``probability`` and its standard error ``se``: by
            chains, map and jumps together where these routes have an error, else by the chains
            alone; ``ess``, the number of independent draws that would have this error;
            ``bayes_factor``, the evidence over that of the model with the largest; ``note``, what
            makes a row doubtful. Large spaces show the most visited models, and a row for the rest.

            Of ``full``: ``visits``, share of the draws, ``visits_se`` and ``visits_ess``;
            ``importance`` and ``importance_se``, evidences by importance sampling through the map,
            normalised;
            ``combined`` and ``combined_se``, bridges between chains and map and jumps together, the
            most precise, see :meth:`evidence`; ``note``. Of large spaces importance and combined
            estimates are scaled to their share of the visits. What was not weighed counts by its
            visits under ``combined``. A model that was never visited ("never visited"), or that no
            chain has left ("never left"), shows the distance of a 95 % bound as ``visits_se``,
            which is no standard error: three over the effective draws of the model that mixes
            worst, 1 at most. One that was entered a few times alone ("entered only once") has the
            error of one effective draw more or less at least.
        """
        return self._probabilities.of_models() if full else self._probabilities.of_models_in_short()

    def inclusion_probabilities(self, *, full: bool = False) -> pd.DataFrame:
        """Posterior probability that each item is in the model; subset and count spaces only.

        Arguments:
            full: Chains alone beside all routes together, and R-hat.

        Returns:
            Indexed by item; ``probability``, ``se``, ``ess`` and ``note`` as of
            :meth:`model_probabilities`. The error of an item that no draw has, or every draw, is
            the distance of a 95 % bound and no standard error. For counts, item i is in the model
            if there are at least i components.

            Of ``full``: ``probability``, ``se``, ``ess``, by the visits; ``rhat``, split R-hat of
            having the item, over chains of independent starts, NaN where that never changes;
            ``combined``, ``combined_se``, sums of the models' probabilities by the combined
            evidences (see :meth:`model_probabilities`) with the error from their covariance; and
            ``note``, what makes the visits doubtful. In large spaces ``combined`` is of those
            models that were weighed, scaled to their visits, and the visits of the rest; NaN where
            none was.

        Raises:
            TRJError: The space is a list of models.
        """
        table = self._probabilities.of_items()
        return table if full else in_short(table)

    def counts(self, *, full: bool = False) -> pd.DataFrame:
        """Posterior probability of each number of components, by kind; count spaces only.

        Arguments:
            full: Chains alone beside all routes together, and R-hat.

        Returns:
            Indexed by kind and count; columns as of :meth:`inclusion_probabilities`, and the
            ``prior``.

        Raises:
            TRJError: The space has no counts.
        """
        table = self._probabilities.of_counts()
        return table if full else in_short(table)

    # ---- evidences --------------------------------------------------------------------------

    def evidence(self, *, full: bool = False) -> pd.DataFrame:
        """Log evidences in nats, with a verdict.

        Arguments:
            full: Every route side by side, and not all together alone.

        Returns:
            One row per model: ``log_evidence`` (p(model) is not included) and ``se``, by bridge and
            jumps together, NaN of what no map has weighed; ``bayes_factor``, the evidence over that
            of the model with the largest, by the visits where these alone are known; ``verdict``;
            ``note``. Of ``full`` the models weighed, by every route.

        Routes independent of how often models are visited: ``importance``, through the map
        (``smoothed``: its largest weights Pareto-smoothed, with the shape ``pareto_k``; both are
        flagged where that exceeds 0.5 and the effective draws are less than four fifths of all:
        weights more even than that have no tail that could matter, whatever its shape);
        ``bridge``, between the chains' draws in a model and draws of the map; ``warp``, the same
        with the target made symmetric about the map's centre; ``audit``, tempered sequential
        Monte Carlo, whose error here is the larger of ``se`` and ``halves_differ`` in
        ``evidences.audit()``, as four replicates may agree by chance. Routes to ratios only:
        ``visits``, and ``bartolucci``, by the acceptance probabilities of jumps; both are put on
        the level of the combined total.

        Columns of ``full``: for each route the log evidence and its standard error ``_se``, NaN of
        what the run did not take; ``combined``, bridge and jumps together, by generalised least
        squares, with what both share of the chains in its error; ``probability`` and
        ``probability_se``, p(model | data) by the combination; ``verdict``: ``agree``,
        ``disagree: `` and the routes, or ``unchecked`` where no two routes without draws in common
        are free of doubt, and whether the map was not audited; ``note``, every route's own warning.
        A model never visited shows the 95 % upper bound of its log evidence under ``visits``, with
        an infinite error.

        Raises:
            TRJError: Of ``full``: no map has weighed the models.

        Example:
            >>> import trjmcmc as trj
            >>> sampler = trj.TRJSampler(trj.problems.sinh_arcsinh(), seed=1)
            >>> result = sampler.run(draws=500, progress=False)
            >>> result.evidence().loc["2d", "verdict"] in {"agree", "unchecked"}
            True
        """
        return self.evidences.table() if full else self._probabilities.of_evidence()

    def bayes_factor(
        self, a: Any, b: Any, *, log: bool = False, route: str = "combined"
    ) -> Estimate:
        """Bayes factor of model ``a`` over model ``b``.

        Arguments:
            a, b: Labels of models.
            log: Return its logarithm, in nats, with the error of the logarithm.
            route: ``"combined"``, ``"visits"``, ``"bartolucci"`` (the jumps between the two
                alone), or any other route of :meth:`evidence`. The combined one falls back on
                the visits where no map has weighed the models.

        Returns:
            The ratio of evidences and its standard error; flagged where routes disagree, or
            where the one that is used is flagged.

        Raises:
            UnknownModelError: There is no such model.
            ConfigurationError: There is no such route.
        """
        first, second = self._indicator.label(a), self._indicator.label(b)
        return self.evidences.bayes_factor(first, second, log=log, route=route)

    # ---- parameters and components ----------------------------------------------------------

    @overload
    def draws(self) -> pd.DataFrame: ...

    @overload
    def draws(self, model: Any) -> dict[str, NDArray[np.floating]]: ...

    def draws(self, model: Any = None) -> Any:
        """Posterior draws of one model in the user's names and constrained space.

        Arguments:
            model: Label of a model.

        Returns:
            By parameter, shape (n, *shape), in the order chain by chain; per-item parameters
            hold the items in use. Empty if the model was never visited. Of no model named
            :meth:`to_dataframe`.

        Raises:
            UnknownModelError: There is no such model.
        """
        if model is None:
            return self.to_dataframe()
        return self._parameters.draws(self._indicator.label(model))

    def summary(self, model: Any = None) -> pd.DataFrame:
        """Posterior mean, spread and quantiles of every parameter in every model shown.

        Arguments:
            model: A label; all models shown if omitted.

        Returns:
            Indexed by (model, parameter), or by the parameters of the model given. ``mean``,
            ``sd``, ``mcse`` (standard error of the mean, autocorrelation-aware, NaN where chains
            remember too much of their start), ``q5``, ``median``, ``q95``, ``ess``, in the user's
            units; ``note``, what makes the error doubtful.

        Raises:
            UnknownModelError: There is no such model.
        """
        if model is None:
            return self._parameters.summary(self._indicator.models)
        return self._parameters.summary([self._indicator.label(model)]).droplevel("model")

    def catalogue(
        self,
        kind: str | int | None = None,
        *,
        interval: float = INTERVAL,
        least: float = LEAST_SHARE,
    ) -> pd.DataFrame:
        """The components that were found, the most probable first; spaces of counts only.

        Components have no names of their own: which is which in each draw is decided by where they
        are: names and entries in turn, each draw's names being the likeliest (Stephens 2000).

        Arguments:
            kind: Which components, where there are several kinds: a name, or a position.
            interval: Probability of the credible intervals, which leave as much on either side.
            least: Entries in less than this share of the draws are left out.

        Returns:
            One row an entry. ``probability`` that there is such a component, its standard error
            ``se`` and the effective number of draws ``ess``, as in
            :meth:`model_probabilities`; ``rhat`` of its presence and of its parameters, the
            largest; for each parameter, at the draws that hold the entry, in
            your units: ``_mean`` with its standard error ``_mcse``, ``_sd``, and the interval
            from ``_low`` to ``_high``; ``note``: what makes the probability doubtful. No rows
            where no draw has a component. ``attrs["unassigned"]`` is the mean number of
            components a draw that belong to no entry.

        Raises:
            TRJError: The space is another one.
            ConfigurationError: ``interval`` or ``least`` is not in (0, 1); no such kind, or
                none named of several.

        Error:
            ``se`` holds how far a probability moves where half of the draws give the names. A name
            is the likeliest one, not the only possible one: where entries overlap, or lie among
            clutter, their tails are cut off at the border. Chains that have not mixed may show one
            component as several entries, or several as one.

        Example:
            >>> import warnings
            >>> import trjmcmc as trj
            >>> target = trj.problems.gaussian_mixture_2d(true=2, points=50, most=3)
            >>> kernel = trj.kernel.Cycle(
            ...     [trj.kernel.ComponentBirthDeath(target), trj.kernel.ComponentWalk(target)])
            >>> with warnings.catch_warnings(action="ignore"):  # it is a short run
            ...     result = trj.TRJSampler(target, kernel=kernel, seed=1).run(
            ...         100, chains=128, warmup=300, fit=False, progress=False)
            >>> sorted(result.catalogue()["x_mean"].round(0))
            [1.0, 13.0]
        """
        return self._catalogue.table(kind, interval, least)

    def components(
        self, kind: str | int | None = None, *, least: float = LEAST_SHARE
    ) -> tuple[dict[str, NDArray[np.float64]], NDArray[np.int64]]:
        """All components of all draws in a row, and which entry of :meth:`catalogue` each is.

        Returns:
            The numbers that describe a component by name, shape (n,), in the order chain by
            chain, in your units; entries, shape (n,), 0 where a component belongs to none.

        Raises:
            TRJError: The space is another one.
        """
        return self._catalogue.components(kind, least)

    # ---- other priors, averages --------------------------------------------------------------

    def reweight(
        self,
        model_prior: Sequence[float] | Tensor | Callable[[Tensor], Tensor] | None = None,
        *,
        priors: Mapping[str, PriorSpec] | None = None,
        target: Target | None = None,
    ) -> Reweighted:
        """The run under another prior of the models or of some parameters, without a new run.

        Arguments:
            model_prior: One probability a model, in the order of ``space.enumerate()``, or a
                function of codes (N, L) that gives log-probabilities (N,) up to a constant. A
                code is the model's position in a list, the 0s and 1s of a subset, or a count of
                each kind.
            priors: By parameter, another prior (a distribution, or a function of the parameters
                before it); the rest stay.
            target: Where the result was loaded from a file, the target it came from.

        Returns:
            Its ``model_probabilities()``, ``predict(f)``, and ``ess``.

        Raises:
            TargetError, TRJError: No such parameter; a new prior that reaches beyond the old
                one's support; no draw is possible under it.

        Warns:
            ConvergenceWarning: The weights leave too few effective draws.

        Example:
            >>> import trjmcmc as trj
            >>> result = trj.TRJSampler(trj.problems.sinh_arcsinh(), seed=1).run(
            ...     draws=300, progress=False)
            >>> table = result.reweight([0.5, 0.5]).model_probabilities()
            >>> bool(abs(table.loc["1d", "probability"] - 0.5) < 0.02)
            True
        """
        target = target or self.target
        return reweighted(self.evidences, model_prior, priors, target)

    def predict(
        self,
        f: Callable[..., Any] | Mapping[str, Callable[..., Any]],
        *,
        most: int = 20_000,
        target: Target | None = None,
    ) -> Prediction:
        """A function of the parameters, averaged over models.

        Arguments:
            f: Called as the likelihood is, with named parameters of n draws of one model (and in
                a space of items what is active); returns shape (n, ...), the same in all
                models; one number will do where it is the same for all draws, and shape (...)
                in a model without parameters. A dict gives each model its own.
            most: Draws to use at most, evenly spaced; fewer where f returns so many numbers that
                more than 20 million would have to be kept.
            target: Where the result was loaded from a file, the target it came from.

        Returns:
            Mean with its standard error, spread and quantiles, and the mean in each model.

        Raises:
            ConfigurationError: The function failed, or its values are of the wrong shape or of a
                shape that differs between models; model, parameters and a remedy are named.
            TRJError: The result was loaded from a file.

        Example:
            >>> import trjmcmc as trj
            >>> result = trj.TRJSampler(trj.problems.sinh_arcsinh(), seed=1).run(
            ...     draws=300, progress=False)
            >>> result.predict(lambda p: p["x"][:, 0]).mean.shape
            ()
        """
        return predict(self._doubted, target or self.target, f, most=most)

    # ---- files ------------------------------------------------------------------------------

    def compare(
        self,
        pointwise: Pointwise | Mapping[str, Pointwise] | None = None,
        *,
        target: Target | None = None,
    ) -> pd.DataFrame:
        """Leave-one-out predictive densities and stacking weights beside posterior probabilities.

        By Pareto-smoothed importance sampling, and stacking of predictive distributions.
        Probabilities ask which model the data came from, if from one of these; stacking asks which
        mixture predicts the next datum best, wherever that comes from.

        Arguments:
            pointwise: Log density of each datum: a function that is called as the likelihood is and
                returns (n, data), or one for each model by label. Not needed where likelihoods are
                ``trj.Observed``.
            target: Of a result that was loaded.

        Returns:
            By model, the best first: ``elpd_loo``, nats, its standard error ``se`` over data,
            ``p_loo`` the effective number of parameters, ``pareto_k`` the largest Pareto shape
            (above 0.7 the figures of that model are not to be trusted), ``stacking``, its weight,
            and ``probability`` with ``probability_se``. Models of fewer than a hundred draws stand
            last, with NaN and a ``note`` that says how many they have.

        Raises:
            ConfigurationError: No likelihood by datum; no target; no model with enough draws.

        Source:
            Vehtari, Gelman & Gabry (2017), https://doi.org/10.1007/s11222-016-9696-4; Yao et al.
            (2018), https://doi.org/10.1214/17-BA1091

        Example:
            >>> import torch
            >>> import trjmcmc as trj
            >>> from torch.distributions import Normal
            >>> y = torch.linspace(-1.0, 2.0, 20)
            >>> models = [
            ...     trj.Model("zero", {}, trj.Observed(lambda p: Normal(torch.zeros(20), 1.0), y)),
            ...     trj.Model("mean", {"mu": Normal(0.0, 1.0)}, trj.Observed(
            ...         lambda p: Normal(p["mu"][:, None].expand(-1, 20), 1.0), y)),
            ... ]
            >>> run = {"draws": 50, "chains": 64, "fit": False, "progress": False}
            >>> table = trj.TRJSampler(trj.Target(models), seed=1).run(**run).compare()
            >>> table.index[0], round(float(table["stacking"].sum()), 6)
            ('mean', 1.0)
        """
        return compared(self.chains, target or self.target, pointwise)

    def to_dataframe(self, model: Any = None) -> pd.DataFrame:
        """Draws as a table: a row per draw, a column per number.

        Arguments:
            model: Label of a model; all draws if omitted.

        Returns:
            Indexed by chain and draw, from 0; ``model``, ``log_joint`` (nats, of the unconstrained
            coordinates), and the parameters' numbers in your units, named as in :meth:`summary`;
            of all draws NaN where a model has none.

        Raises:
            UnknownModelError: There is no such model.

        Example:
            >>> import trjmcmc as trj
            >>> result = trj.TRJSampler(trj.problems.sinh_arcsinh(), seed=1).run(
            ...     draws=50, chains=32, progress=False)
            >>> list(result.to_dataframe()), list(result.to_dataframe("1d"))
            (['model', 'log_joint', 'x[0]', 'x[1]'], ['model', 'log_joint', 'x[0]'])
        """
        return self._parameters.frame(None if model is None else self._indicator.label(model))

    def to_arviz(
        self, model: Any = None, *, entries: bool = False, chains: int | None = None
    ) -> Any:
        """ArviZ InferenceData (0.2x) or DataTree (1.x).

        Arguments:
            model: Label of a model; all draws if omitted.
            entries: In a space of counts, give the parameters of components by the entries of
                :meth:`catalogue`.
            chains: Join so many chains as there are, end to end, into this many, such as 4:
                ArviZ draws a line a chain. What does not divide is left out. If omitted, chains
                stay as they are.

        Axes are called as the models say (:class:`trjmcmc.Model`, ``dims`` and ``coords``).

        Returns:
            ``posterior`` holds ``model`` (its position in the space where that has up to 1000
            models, else its rank by visits; the JSON list ``models`` among the attributes names
            them) and every parameter padded with NaN where a model does not use it;
            ``sample_stats`` holds the log joint density of the unconstrained coordinates, ``lp``.
            Of one model: its own parameters at the draws in it, without
            NaN, fit for ``arviz.summary``. As chains are in it unequally often, their draws are
            put one after the other and cut into four chains of equal length (up to three draws
            are left out), unless all chains were there throughout. Where likelihoods are
            :class:`trjmcmc.Observed` it has ``log_likelihood`` too, the log density of each datum
            at each draw, for ``arviz.loo`` and ``arviz.compare``, up to 20 million numbers.

            In a space of counts ``posterior`` also holds ``k``, how many components there are,
            and their parameters have the dimension ``component``, up to the largest number
            that was visited. Its position means nothing, so ``arviz.summary(data,
            var_names=["k", ...])`` is for ``k`` and what all share. With ``entries`` it is the
            dimension ``entry``, counted from 1 as in the catalogue, with NaN at draws that do not
            hold it; ``present`` says which do. ArviZ has no figures (NaN) for entries that some
            draws lack; :meth:`catalogue` has. Nor has it any for parameters that some models
            lack: ask for those model by model.

        Raises:
            UnknownModelError: There is no such model.
            TRJError: It was never visited; ``entries`` in another space than one of counts.
            ConfigurationError: ``entries`` of one model; more chains than there are, or none.
        """
        check_chains(chains, self.raw.n_chains)
        stated = [] if self.target is None else self.target.models
        if model is None:
            return of_all(self._catalogue, entries, chains, stated)
        if entries:
            raise ConfigurationError("to_arviz: entries are those of all draws; leave out model")
        label = self._indicator.label(model)
        by_datum = log_likelihood_of(self.target, self.chains, label)
        return of_model(self._catalogue, label, chains, stated, by_datum)

    def save(self, path: str | Path) -> None:
        """Write everything to one file that holds data only, no code; read by :func:`load`."""
        write(path, self._contents())

    def _contents(self) -> Contents:
        return Contents(
            space=self.space,
            draws=self.raw,
            values=self._parameters.values,
            routes=self._given_routes,
            report=self.report,
            truth=self._truth,
            crossings=self._crossings,
            pareto_k=self._given_pareto_k,
            slot_names=self._convergence.names,
            coarse=self._coarse,
            turns=self._turns,
            onward=self._onward,
        )

    def __reduce__(self) -> tuple[Callable[[Contents], Result], tuple[Contents]]:
        """Without the target: functions of the user's cannot always be pickled."""
        return _of, (replace(self._contents(), onward=as_data(self._onward)),)

    def __copy__(self) -> Result:
        """The same draws and report, and parts of its own."""
        return Result(**vars(self._contents()), target=self.target)

    # ---- pictures ---------------------------------------------------------------------------

    def plot_inclusion(self, ax: Axes | None = None) -> Axes:
        """Inclusion probabilities with their errors; over counts, of the catalogue's entries.

        Raises:
            TRJError: The space is a list of models.
            ConfigurationError: There are several kinds of components.
        """
        counts = self.space.counts
        return plot_inclusion(self.catalogue() if counts else self.inclusion_probabilities(), ax)

    def plot_models(self, ax: Axes | None = None) -> Axes:
        """Model probabilities with their errors, and the truth where it is known."""
        exact = self._truth.probabilities if self._truth else None
        return plot_models(self._probabilities.to_draw(), exact, ax)

    def plot_components(
        self,
        x: str,
        y: str | None = None,
        ax: Axes | None = None,
        *,
        kind: str | int | None = None,
        interval: float = INTERVAL,
    ) -> Axes:
        """Where components are, with the intervals of :meth:`catalogue`; spaces of counts only.

        Arguments:
            x: A parameter of components. Of this alone, its intensity: how many components there
                are per unit, on average over the draws.
            y: Another one: components as points in the plane.
            ax: Where to draw.
            kind: Which components, where there are several kinds.
            interval: Probability of the intervals.

        Raises:
            TRJError: The space is another one.
            ConfigurationError: No such parameter; ``interval`` is not in (0, 1).
        """
        kind = self._catalogue.kind_of(x) if kind is None else kind
        table = self.catalogue(kind, interval=interval)
        parts, entry = self.components(kind)
        draws = self.raw.n_chains * self.raw.n_draws
        return plot_components(table, parts, entry, draws, x, y, ax, interval=interval)

    def plot_averaged(
        self,
        grid: ArrayLike,
        f: Callable[..., Any] | Mapping[str, Callable[..., Any]],
        data: Any = None,
        ax: Axes | None = None,
        *,
        depth: bool = False,
        most: int = 2000,
        target: Target | None = None,
    ) -> Axes:
        """A curve, averaged over models, with its pointwise 90 % band.

        Arguments:
            grid: Where the curve is known, shape (n,).
            f: The curve at a batch of draws, as in :meth:`predict`, shape (draws, n).
            data: Shown behind: a tuple of arrays (x, y) as points, one array as a histogram of
                area 1.
            ax: Where to draw.
            depth: The grid goes down the page, and shades show the density of the curve at each
                depth: for profiles of layers.
            most: Draws to use at most.
            target: Where the result was loaded from a file, the target it came from.

        Raises:
            ConfigurationError: The function failed, or its values do not fit the grid.
        """
        found = self.predict(f, most=most, target=target)
        return plot_averaged(grid, found.draws, data, ax, depth=depth)

    def plot_trace(
        self, model: Any = None, var_names: str | Sequence[str] | None = None, *, chains: int = 4
    ) -> NDArray[Any]:
        """Densities and traces, in a colour per chain.

        Arguments:
            model: Label of a model: its parameters and the log joint at the draws in it, put one
                after the other and cut into four; of components of an unknown number the
                smallest, the mean and the largest value. If omitted, what every model has, of
                single chains: the model (``model``, or the number of components ``k`` or of items
                ``size``), the log joint, shared parameters.
            var_names: Names of :meth:`summary`; the first six numbers if omitted.
            chains: How many chains, evenly picked.

        Returns:
            The axes, (number, 2).

        Raises:
            UnknownModelError, TRJError: No such model; it was never visited.
            ConfigurationError: No such name, or fewer than one chain.
        """
        if chains < 1:
            raise ConfigurationError(f"plot_trace: chains: expected 1 or more, got {chains}")
        return plot_trace(spaced(self._series(model, var_names), chains), var_names is not None)

    def plot_rank(
        self, model: Any = None, var_names: str | Sequence[str] | None = None
    ) -> NDArray[Any]:
        """Ranks of 4000 draws, evenly spaced: flat where the chains sample the same.

        Arguments:
            model: Label of a model; if omitted, what every model has (see :meth:`plot_trace`).
            var_names: Names of :meth:`summary`; the first six numbers if omitted.

        Returns:
            The axes, (number,). Each row of bars is a quarter of the chains.

        Raises:
            UnknownModelError, TRJError, ConfigurationError: As of :meth:`plot_trace`.

        Source:
            Vehtari et al. (2021), https://doi.org/10.1214/20-BA1221
        """
        series = self._series(model, var_names)
        flat = {k: x.reshape(-1) for k, x in series.items()}
        return plot_rank(cut(spaced(flat, RANKED)), var_names is not None)

    def plot_corner(self, model: Any, var_names: str | Sequence[str] | None = None) -> NDArray[Any]:
        """Pairs of one model's parameters, with contours of 1 and 2 standard deviations.

        Contours hold 39 and 86 % of the draws; titles tell the median, and how far the 16 and 84 %
        quantiles are from it. Components of an unknown number are all alike: their smallest, mean
        and largest values are shown.

        Arguments:
            model: Label of a model.
            var_names: Names of :meth:`summary`; the first six numbers if omitted.

        Returns:
            The axes, (number, number); those above the diagonal are hidden.

        Raises:
            UnknownModelError, TRJError: No such model; it was never visited, or has fewer than
                two numbers.
            ConfigurationError: No such name.

        Example:
            >>> import trjmcmc as trj
            >>> result = trj.TRJSampler(trj.problems.sinh_arcsinh(), seed=1).run(
            ...     draws=200, progress=False)
            >>> result.plot_corner("2d").shape
            (2, 2)
        """
        label = self._indicator.label(model)
        numbers = series_of_model(self._indicator, self._parameters, label)
        if var_names is None:
            numbers.pop("log joint")
        shown = chosen(numbers, var_names)
        if len(shown) < 2:
            raise TRJError(f"plot_corner: expected two numbers or more, got {list(shown)}")
        return plot_corner(spaced(shown, POINTS), var_names is not None)

    def _series(self, model: Any, var_names: str | Sequence[str] | None) -> Mapping[str, Any]:
        if model is None:
            return chosen(series_of_run(self._indicator, self._parameters), var_names)
        label = self._indicator.label(model)
        return cut(chosen(series_of_model(self._indicator, self._parameters, label), var_names))

    def report_html(self, path: str | Path) -> Path:
        """Write one page that opens offline: tables, pictures, warnings, plan, versions, citation.

        It loads nothing from elsewhere and holds no script; pictures are in the file.

        Arguments:
            path: Of the page; an existing file is replaced.

        Returns:
            The path.
        """
        said = [message for message, _ in messages(self.doubts)]
        replace_file(Path(path), page_of(self, said).encode())
        return Path(path)

    @property
    def _head(self) -> str:
        """What it holds, in a line."""
        raw, n = self.raw, self._indicator.number_visited
        return f"Result of {raw.n_chains} chains x {raw.n_draws} draws, {n} models visited"

    def _shown(self) -> tuple[pd.DataFrame, list[str]]:
        """The most probable models, and what is gravest against the answer."""
        table = self.model_probabilities()[["probability", "se"]]
        table = table.sort_values("probability", ascending=False, kind="stable")
        grave = [d for d in self.doubts if d.grave]
        said = [f"{'not converged' if d.kind == 'chains' else 'doubtful'}: {d}" for d in grave]
        return table.head(SHOWN), said[:1]

    def __repr__(self) -> str:
        table, doubts = self._shown()
        return "\n".join([self._head, table.round(4).to_string(), *doubts])

    def _repr_html_(self) -> str:
        frame, doubts = self._shown()
        said = [html.prose(doubt, "doubt") for doubt in doubts]
        return "".join([html.table(frame, self._head), *said])


def load(path: str | Path) -> Result:
    """Read a file written by :meth:`Result.save`; nothing in it is executed.

    Raises:
        TRJError: The file is of another format, or was damaged: its checksum says so.
    """
    return _of(read(path))


def merge(results: Sequence[Result]) -> Result:
    """Several runs of one target as one result, which also says whether the runs agree.

    Chains are put beside each other, sums over jumps by batches; evidences by the same route are
    weighted by their errors, which grow where runs differ by more. What one run has lost as a
    whole, a mode that none of its chains has visited, no run can see alone: here it has a warning
    of its own, beside R-hat of all chains. Runs of different thinning are thinned alike; of runs
    of different lengths the last draws of each are taken.

    Arguments:
        results: Results of runs with seeds of their own, from files too.

    Raises:
        ConfigurationError: Fewer than two; different models, parameters or precisions; priors or
            likelihoods that differ, where the target of one is known; the same draws twice.

    Example:
        >>> import trjmcmc as trj
        >>> target, short = trj.problems.sinh_arcsinh(), {"draws": 400, "chains": 64}
        >>> runs = [trj.TRJSampler(target, seed=s).run(**short, progress=False) for s in (1, 2)]
        >>> trj.merge(runs).raw.theta.shape
        torch.Size([128, 400, 2])
    """
    results = list(results)
    if len(results) < 2 or not all(isinstance(r, Result) for r in results):
        raise ConfigurationError(f"merge: expected two results or more, got {results!r}")
    targets = [r.target for r in results]
    contents = merged([r._contents() for r in results], targets)
    found = Result(**vars(contents), target=next((t for t in targets if t is not None), None))
    warn_of(found.doubts)
    return found


def _of(contents: Contents) -> Result:
    return Result(**vars(contents))
