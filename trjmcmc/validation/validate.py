"""Is a model what its user means it to be?"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .. import clock
from ..doubts.doubt import EVERY, Doubt
from ..errors import ConfigurationError, TRJError, TRJWarning
from ..progress import progress_bar
from ..result.result import Result
from ..rng import host_number, stream
from ..run.sampler import TRJSampler
from ..simulate.simulator import Simulate, Simulator
from ..target.target import Target
from .asked import Asked
from .joint import check_joint
from .models import Calibration, judge_models, smoothed
from .ranks import judge_ranks, rank_table
from .ratios import check_ratios
from .remake import Again, Simulation
from .repeat import SECONDS, Setup
from .repeats import SavedRepeats, finished, spec_of
from .report import Validation
from .statements import check_statements

MANY = 0.1  # share of repeats with one kind of warning from which that is said

RATIOS_SHARE = 0.25  # of the time, that likelihood ratios and the joint test may take each


def validate(
    target: Target | Callable[[Any], Target],
    simulate: Simulate | None = None,
    *,
    make: Callable[[Any], Target] | None = None,
    data: Any = None,
    repeats: int = 100,
    run: Mapping[str, Any] | None = None,
    sampler: Callable[..., Any] | None = None,
    quantities: Mapping[str, Callable[..., Any]] | None = None,
    result: Result | None = None,
    max_seconds: float | None = None,
    executor: Any = None,
    folder: str | Path | None = None,
    seed: int = 0,
    progress: bool = True,
) -> Validation:
    """Check a model: what it states, its likelihood against its simulator, and its answers.

    Four things are done, the cheapest first. (1) Rows alone against rows in batches, draws of
    priors against their densities, gradients against differences, float32 against float64,
    components that trade places, items that are on and not noticed. (2) Mean likelihood ratios
    over simulated data, which cannot exceed 1 if the likelihood is the density of these data.
    (3) Parameters and data drawn in turn, which must leave the prior as it is. (4)
    Simulation-based calibration over models and parameters: a truth from the prior, its data, a
    short run; the truth's rank among the draws must be uniform, and models must be true as often
    as their probabilities say.

    Arguments:
        target: The target; or, with ``data``, a function ``make(data) -> Target``.
        simulate: Function of (model, params, generator) that draws data, as of
            :class:`~trjmcmc.simulate.Simulator`; not needed where likelihoods are
            ``trj.Observed``. Without one (2) to (4) are left out.
        make: Gives the target over other data, those that ``simulate`` draws; not needed where
            likelihoods are ``trj.Observed``.
        data: The data at hand, for a target that is given as a function.
        repeats: Of (4); 0 leaves out (3) and (4). A hundred show gross faults, two hundred more.
        run: Arguments of the run of each repeat; ``{"max_seconds": 2}`` if omitted. Ranks judge
            sampler and model together: where runs warn, give them more.
        sampler: Function of (target, seed=...) that makes a sampler; ``trj.TRJSampler``.
        quantities: Functions of the parameters, called as the likelihood is, whose ranks are
            judged too: what you will report.
        result: Of a run on the target, whose draws (1) looks at too; a short one is made if
            omitted.
        max_seconds: Time after which no repeat is begun. What is done is judged.
        executor: Workers for (4): a Dask client, an executor of ``concurrent.futures``, or
            anything else with ``submit``; or a function that makes one.
        folder: Where finished repeats are kept, so that the same line goes on in a new process.
        seed: Any integer.
        progress: Show a progress bar.

    Returns:
        The report: ``print`` it; ``report.ok``, ``report.wrong``, ``report.table()``,
        ``rank_table()``, ``calibration``, ``plot()``, ``to_arviz()``. Of right models one in a
        thousand is called wrong by (4); the other tests err less often.

    Raises:
        ConfigurationError: Settings that contradict each other.
        CheckpointError: The folder holds repeats of another validation.
        PoolError: A worker died.

    Source:
        Talts et al. (2018), https://arxiv.org/abs/1804.06788; Säilynoja, Bürkner & Vehtari (2022),
        https://doi.org/10.1007/s11222-022-10090-6; Geweke (2004),
        https://doi.org/10.1198/016214504000001132

    Example:
        >>> import torch, trjmcmc as trj
        >>> from torch.distributions import Normal
        >>> mean = lambda p: p["mu"][:, None].expand(-1, 5)
        >>> seen = trj.Observed(lambda p: Normal(mean(p), 1.0), [0.3, 1.2, -0.4, 0.8, 0.1])
        >>> target = trj.Target([trj.Model("a", {"mu": Normal(0.0, 1.0)}, seen)])
        >>> report = validate(target, repeats=0, progress=False)
        >>> report.ok
        True
    """
    _check(repeats, max_seconds)
    end = math.inf if max_seconds is None else clock.now() + max_seconds
    asked = Asked()
    if not isinstance(target, Target):
        make = target if make is None else make
        if data is None:
            raise ConfigurationError("data: give the data at hand beside a function make(data)")
        try:
            target = target(data)
        except TRJError as error:
            words = f"the model can't be stated: {error}"
            asked.doubts.append(Doubt(EVERY, words, kind="statement"))
            return Validation(asked, {}, None, 0, repeats)
    generator = stream(seed, 0)
    with progress_bar(progress, total=max(1, repeats), desc="checks", unit="repeat") as bar:
        if result is None:
            result = _short(target, run or {"max_seconds": SECONDS}, sampler, seed, asked)
        check_statements(target, result, generator, asked)
        simulator = _simulator(target, simulate, make, asked)
        if simulator is None:
            return Validation(asked, {}, None, 0, repeats)
        again = Again(make or target.given, tuple(target.slot_names))

        def over_simulated_data(check: str, words: str, function: Callable[..., Any]) -> None:
            bar.set_description(words)
            until = clock.part_of_the_time_left(RATIOS_SHARE, end) if max_seconds else math.inf
            by = Simulation(target, simulator, again, generator, lambda: clock.now() > until)
            asked.ask(check, function, by, failing="over simulated data the model fails")

        over_simulated_data("ratios", "likelihood ratios", check_ratios)
        rows: list[dict[str, Any]] = []
        if repeats:
            over_simulated_data("joint", "joint test", check_joint)
            bar.set_description("repeats")
            settings = dict(run or {"max_seconds": SECONDS})
            given = Setup(target, again, simulate, settings, sampler, dict(quantities or {}), seed)
            kept = SavedRepeats(folder, spec_of(given))
            try:
                for _ in range(sum(number < repeats for number in kept.found)):
                    bar.update()
                left = [r for r in range(repeats) if r not in kept.found]
                for row in finished(given, left, executor, lambda: clock.now() > end):
                    kept.add(row)
                    bar.update()
            except KeyboardInterrupt:
                words = "interrupted: what was done is judged"
                asked.doubts.append(Doubt(EVERY, words, grave=False, kind="runs"))
            finally:
                kept.close()
            rows = [kept.found[r] for r in sorted(kept.found) if r < repeats]
    return judge(asked, rows, repeats, seed)


def judge(asked: Asked, rows: list[dict[str, Any]], wanted: int, seed: int) -> Validation:
    """The report of what was found, and of finished repeats."""
    good = [row for row in rows if "error" not in row]
    ranks: dict[str, list[float]] = {}
    for row in good:
        for name, u in row["u"].items():
            ranks.setdefault(name, []).append(u)
    calibration = _calibration(good)
    tests = len(ranks) + (0 if calibration is None else len(calibration.names) + 1)
    if rows:
        asked.ask("runs", check_runs, rows, good)
    if good:
        asked.ask("ranks", judge_ranks, rank_table(ranks), tests)
    if calibration is not None:
        asked.ask("models", judge_models, calibration, tests, np.random.default_rng(seed))
    return Validation(asked, ranks, calibration, len(good), wanted, rows)


def _check(repeats: int, max_seconds: float | None) -> None:
    if not isinstance(repeats, int) or repeats < 0:
        raise ConfigurationError(f"repeats: expected an integer of 0 or more, got {repeats!r}")
    if max_seconds is not None and not max_seconds > 0:
        raise ConfigurationError(f"max_seconds: expected more than 0, got {max_seconds!r}")


def _short(
    target: Target,
    run: Mapping[str, Any],
    sampler: Callable[..., Any] | None,
    seed: int,
    asked: Asked,
) -> Result | None:
    """A short run on the data at hand, for points of the posterior; None if it fails."""
    generator, made = stream(seed, 1), []

    def short() -> list[Doubt]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TRJWarning)
            one = (sampler or TRJSampler)(target, seed=host_number(generator))
            made.append(one.run(**{"progress": False, **run}))
        return []

    asked.ask("runs", short, failing="a run on the data at hand fails")
    return made[0] if made else None


def _simulator(
    target: Target, simulate: Simulate | None, make: Any, asked: Asked
) -> Simulator | None:
    """What draws data, if there is a way to, and one to put them into a target."""
    why = ""
    if simulate is None and not target.is_observed:
        why = "no simulator: give simulate(model, params, generator) -> data"
    elif make is None and not target.is_observed:
        why = "no way to state the model over other data: give make(data) -> Target"
    if why:
        words = f"{why}, or state the likelihood as trj.Observed(distribution, data)"
        asked.skipped.extend((check, words) for check in ("ratios", "ranks", "models"))
        return None
    return Simulator(target, simulate)


def _calibration(good: list[dict[str, Any]]) -> Calibration | None:
    """Probabilities and truths of all repeats."""
    rows = [row for row in good if row["names"]]
    if not rows:
        return None
    exclusive = bool(np.allclose([sum(row["true"]) for row in rows], 1)) and bool(
        np.allclose([sum(row["p"]) for row in rows], 1)
    )
    p = np.stack([smoothed(row["p"], row["draws"], exclusive) for row in rows])
    true = np.array([row["true"] for row in rows], dtype=bool)
    return Calibration(rows[0]["names"], p, true, exclusive)


def check_runs(rows: list[dict[str, Any]], good: list[dict[str, Any]]) -> list[Doubt]:
    """Repeats that failed, and warnings that many runs gave."""
    found = []
    failed = [row["error"] for row in rows if "error" in row]
    if failed:
        words = f"{len(failed)} of {len(rows)} repeats failed, the first by {failed[0]}"
        found.append(Doubt(EVERY, words))
    kinds = Counter(kind for row in good for kind in row["warned"])
    for kind, n in kinds.items():
        if n >= MANY * len(good) and kind != "LimitWarning":
            first = next(row["warned"][kind] for row in good if kind in row["warned"])
            words = f"{n} of {len(good)} runs gave a {kind}, one of them: {first.rstrip('.')}"
            remedy = "Ranks judge sampler and model together: give runs more time, run={...}"
            found.append(Doubt(kind, words, remedy=remedy, grave=False))
    return found
