"""Runs in rounds that are killed, saved, and gone on with: the draws that they would have had."""

from __future__ import annotations

import math
import pickle
import warnings
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch.distributions import Normal, StudentT

import trjmcmc as trj
from trjmcmc.checkpoint.events import read_events
from trjmcmc.checkpoint.folder import read_folder
from trjmcmc.errors import CheckpointError, CheckpointWarning, ConfigurationError
from trjmcmc.kernel.base import State
from trjmcmc.run import recorded, rounds_saved
from trjmcmc.run.asked import Limit
from trjmcmc.run.plan import Plan
from trjmcmc.run.position import Position
from trjmcmc.run.recipes.choose import recipe_of
from trjmcmc.run.recipes.lists import Lists
from trjmcmc.run.recorded import Recorded


def pair(seen=1.0):
    def log_likelihood(p):
        return Normal(p["x"], 1.0).log_prob(torch.tensor(seen))

    return trj.Target(
        [trj.Model(n, {"x": Normal(0.0, sd)}, log_likelihood) for n, sd in (("a", 1.0), ("b", 3.0))]
    )


def nested():
    """Of one coordinate and of two, with the tails of a Student's t."""
    data = torch.tensor([-1.0, 0.5, 2.0])

    def near(x):
        return StudentT(3.0, x[:, None]).log_prob(data.to(x)).sum(-1)

    wide, normal = Normal(0.0, 2.0), Normal(0.0, 1.0)
    one = trj.Model("one", {"x": wide}, lambda p: near(p["x"]))
    two = trj.Model("two", {"x": wide, "y": normal}, lambda p: near(p["x"] + p["y"] ** 2))
    return trj.Target([one, two])


QUICK = Plan(chains=64, particles=400, moves=3, climbs=400, first=12, measured=6, weighed=200)
KINDS = {
    "list": nested,
    "subset": lambda: trj.problems.variable_selection(6),
    "count": lambda: trj.problems.pulses(points=20, true=1, most=2, seed=1),
    "graph": lambda: trj.graphs.target(trj.graphs.bge(noise(30, 4))),
    "equations": lambda: trj.graphs.network(noise(20, 3), noise=0.5),
    "walked": lambda: trj.graphs.target(trj.graphs.bge(noise(30, 13), candidates=2)),
}


ENOUGH, MORE = 0.03, 0.0015  # standard errors: a first round has the one, on any processor, alone


LONG = pytest.mark.whole


class Killed(BaseException):
    """What nothing catches."""


def noise(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


@pytest.fixture(autouse=True)
def at_each_step(monkeypatch):
    """A head after every step, and several segments."""
    monkeypatch.setattr(rounds_saved, "SAVE_SECONDS", 0.0)
    monkeypatch.setattr(rounds_saved, "SAVE_SHARE", math.inf)
    monkeypatch.setattr(rounds_saved, "WHOLE_SEGMENT", 200_000)


def run(target, folder=None, *, seed=3, plan=QUICK, error=ENOUGH, **settings):
    sampler = trj.TRJSampler(target, seed=seed, plan=plan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", trj.errors.TRJWarning)
        settings = {"until": {"probability": error}, "max_seconds": 600} | settings
        return sampler.run(checkpoint=folder, progress=False, **settings)


@cache
def whole_run(kind, error=ENOUGH):
    return run(KINDS[kind](), error=error)


def killed(target, folder, at, monkeypatch, **settings):
    """Killed after a step of a round."""
    keep, steps = rounds_saved.RoundsSaver.save, [0]

    def counted(self, write, **told):
        keep(self, write, **told)
        steps[0] += 1
        if steps[0] == at:
            raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(rounds_saved.RoundsSaver, "save", counted)
        run(target, folder, **settings)


def same(a, b):
    pairs = [(getattr(a.raw, n), getattr(b.raw, n)) for n in ("code", "theta", "log_joint")]
    return all(torch.equal(x, y) for x, y in pairs) and a.raw.n_draws > 1


# ---- folders ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [pytest.param(k, marks=LONG if k in {"walked", "count", "subset"} else ()) for k in KINDS],
)
def test_a_run_that_is_killed_ends_as_if_it_had_not_been(kind, tmp_path, monkeypatch):
    """In the first round, again in it, and in a later one."""
    error = MORE if kind == "list" else ENOUGH
    whole = whole_run(kind, error)
    for at in (1, 2, 3) if kind in {"graph", "equations"} else (3, 5, 9):
        killed(KINDS[kind](), tmp_path, at, monkeypatch, error=error)
        there = read_folder(tmp_path)
        assert sum(len(s["code"]) for s in there.segments) == there.head["kept"] > 0
    found = run(KINDS[kind](), tmp_path, error=error)
    assert same(whole, found)
    assert whole.report.judged == found.report.judged
    assert [e["event"] for e in read_events(tmp_path)].count("resumed") == 3


def test_a_run_that_is_killed_before_its_first_kept_draw_goes_on(tmp_path, monkeypatch):
    settings = {"thin": 3, "draws": 20, "until": None}
    whole = run(pair(), **settings)
    killed(pair(), tmp_path, 1, monkeypatch, **settings)
    assert read_folder(tmp_path).head["kept"] == 0
    assert same(whole, run(pair(), tmp_path, **settings))


def test_a_run_that_has_ended_is_shown_and_goes_on(tmp_path):
    whole = whole_run("list", MORE)
    first = run(KINDS["list"](), tmp_path)
    shown = trj.load(tmp_path)
    assert same(first, shown) and shown.report.seed == 3
    assert shown.report.judged == first.report.judged
    assert shown.raw.n_draws < whole.raw.n_draws
    again = run(KINDS["list"](), tmp_path)  # it has what is asked
    assert same(first, again)
    found = run(KINDS["list"](), tmp_path, seed=None, error=MORE)  # the folder's own seed
    assert same(whole, found) and found.report.seed == 3
    assert found.report.evaluations > first.report.evaluations
    assert sum(found.report.seconds.values()) > sum(first.report.seconds.values())


@pytest.mark.parametrize(
    ("what", "make", "settings"),
    [
        ("seed", pair, {"seed": 4}),
        ("numbers of the Plan", pair, {"plan": Plan(chains=64)}),
        ("space of models", KINDS["subset"], {}),
        ("priors, data or likelihoods", lambda: pair(1.5), {}),
    ],
)
def test_other_runs_are_refused_by_name(what, make, settings, tmp_path):
    run(pair(), tmp_path)
    with pytest.raises(CheckpointError, match=what):
        run(make(), tmp_path, **settings)


def test_runs_of_other_chains_are_refused(tmp_path):
    run(pair(), tmp_path)
    with pytest.raises(CheckpointError, match="another chains"):
        run(pair(), tmp_path, draws=20, chains=8)


def test_a_full_disk_is_told_once(tmp_path, monkeypatch):
    def full(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(trj.checkpoint.folder, "replace_file", full)
    sampler = trj.TRJSampler(KINDS["list"](), seed=3, plan=QUICK)
    with pytest.warns(CheckpointWarning, match="nothing more is saved") as said:
        found = sampler.run(until={"probability": ENOUGH}, checkpoint=tmp_path, progress=False)
    assert sum(w.category is CheckpointWarning for w in said) == 1
    assert same(found, whole_run("list"))


# ---- results ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(k, marks=() if k == "list" else LONG)
        for k in KINDS
        if k != "walked"  # slow to an error ten times smaller
    ],
)
def test_a_result_goes_on_as_if_it_had_not_ended(kind, tmp_path):
    whole, first = (whole_run(kind, e) for e in (MORE, ENOUGH))
    first.save(tmp_path / "first.trj")
    loaded = trj.load(tmp_path / "first.trj")
    for result in (loaded, pickle.loads(pickle.dumps(first))):
        found = run(KINDS[kind](), error=MORE, start=result)
        assert same(whole, found) and whole.raw.n_draws > first.raw.n_draws
    assert run(KINDS[kind](), until=None, start=loaded, draws=40).raw.n_draws >= 40


def test_a_run_that_was_late_goes_on_as_if_it_had_not_been(monkeypatch):
    """Its last round is made to the end first."""
    whole, late = whole_run("list", MORE), [False]
    sampler, usual = trj.TRJSampler(KINDS["list"](), seed=3, plan=QUICK), Recorded.advance

    def advance(self, kernel, n):
        for ahead in usual(self, kernel, n):
            late[0] |= self.steps > 30
            yield ahead

    with monkeypatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", trj.errors.TRJWarning)
        patch.setattr(Recorded, "advance", advance)
        patch.setattr(Limit, "passed", property(lambda _: late[0]))
        first = sampler.run(until={"probability": MORE}, progress=False)
    assert first.report.out_of_time and first.report.missed
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", trj.errors.TRJWarning)
        found = sampler.more(until={"probability": MORE}, progress=False)
    assert same(whole, found)
    assert same(whole, run(KINDS["list"](), error=MORE, start=first))


@pytest.mark.parametrize("lessons", [pytest.param(1, marks=LONG), 2])
def test_a_lesson_that_was_late_is_made_again(lessons, monkeypatch):
    """However far moves were measured."""
    whole, calls, late = whole_run("list", MORE), [0], [False]
    sampler, usual = trj.TRJSampler(KINDS["list"](), seed=3, plan=QUICK), Recorded.warmed

    def warmed(self, kernel, n):
        calls[0] += 1
        late[0] |= calls[0] == 2 * lessons
        return usual(self, kernel, n)

    with monkeypatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", trj.errors.TRJWarning)
        patch.setattr(Recorded, "warmed", warmed)
        patch.setattr(Limit, "passed", property(lambda _: late[0]))
        first = sampler.run(until={"probability": MORE}, progress=False)
    assert first.report.out_of_time and calls[0] >= 2 * lessons
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", trj.errors.TRJWarning)
        found = sampler.more(until={"probability": MORE}, progress=False)
    assert same(whole, found)


@pytest.mark.parametrize(
    "error", [pytest.param(trj.errors.BudgetError, marks=LONG), KeyboardInterrupt]
)
def test_a_run_that_is_broken_off_in_a_step_goes_on_from_its_last_look(error, monkeypatch):
    whole, fails = whole_run("list", MORE), [True]
    sampler, usual = trj.TRJSampler(KINDS["list"](), seed=3, plan=QUICK), Recorded.advance

    def advance(self, kernel, n):
        for ahead in usual(self, kernel, n):
            if fails[0] and self.steps > 30:
                fails[0] = False
                raise error("in a step")
            yield ahead

    monkeypatch.setattr(Recorded, "advance", advance)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", trj.errors.TRJWarning)
        first = sampler.run(until={"probability": MORE}, progress=False)
        assert not fails[0] and first.raw.n_draws < whole.raw.n_draws
        assert same(whole, sampler.more(until={"probability": MORE}, progress=False))


SEARCHING = replace(QUICK, climbs=1000, sought=20.0)  # in every round


@LONG
@pytest.mark.parametrize("when", [2, 4])
def test_a_run_that_was_late_in_a_search_goes_on_as_if_it_had_not_been(when, monkeypatch):
    whole = run(KINDS["list"](), plan=SEARCHING, error=MORE)
    sampler, usual = trj.TRJSampler(KINDS["list"](), seed=3, plan=SEARCHING), Lists.search
    searches, late = [0], [False]

    def search(self, *settings):
        searches[0] += 1
        late[0] |= searches[0] == when
        return usual(self, *settings)

    with monkeypatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", trj.errors.TRJWarning)
        patch.setattr(Lists, "search", search)
        patch.setattr(Limit, "passed", property(lambda _: late[0]))
        first = sampler.run(until={"probability": MORE}, progress=False)
        late[0] = False
        more = sampler.more(until={"probability": MORE}, progress=False)
    assert same(whole, more) and first.raw.n_draws < whole.raw.n_draws
    assert more.report.judged.detection == whole.report.judged.detection
    assert same(whole, run(KINDS["list"](), plan=SEARCHING, error=MORE, start=first))


def test_records_are_thinned_alike_where_their_beginning_is_gone(monkeypatch):
    """Of four chains in two coordinates: every state is a number of steps."""
    monkeypatch.setattr(recorded, "MOST_NUMBERS", 100)
    kept = []
    for gone in (0, 5):
        state = State(torch.zeros(1, 1), torch.zeros(1, 2), torch.zeros(1))
        chains = Recorded(recipe_of(pair(), QUICK, torch.Generator()), state)
        for step in range(60):
            chains.state = state._replace(log_joint=torch.tensor([float(step)]))
            chains._keep()
            if step == 5:
                chains.record, chains.gone = chains.record[gone:], gone
        kept.append([float(s.log_joint) for s in chains.record[-20:]])
    assert kept[0] == kept[1] and chains.thin > 1


def test_a_result_may_go_on_in_a_folder(tmp_path, monkeypatch):
    whole, first = whole_run("list", MORE), whole_run("list")
    killed(KINDS["list"](), tmp_path, 7, monkeypatch, start=first, error=MORE)
    assert same(whole, run(KINDS["list"](), tmp_path, error=MORE, start=first))
    other = tmp_path / "other"
    assert same(first, run(KINDS["list"](), other, start=first))  # it has what is asked
    assert same(first, trj.load(other))


def test_what_a_folder_shows_goes_on(tmp_path, monkeypatch):
    killed(KINDS["list"](), tmp_path, 30, monkeypatch, error=MORE)
    shown = trj.load(tmp_path)
    assert same(whole_run("list", MORE), run(KINDS["list"](), seed=None, error=MORE, start=shown))
    with pytest.raises(ConfigurationError, match=">= 1"):
        run(KINDS["list"](), start=shown, draws=0)


def test_a_folder_is_anybodys_once_its_run_has_ended(tmp_path):
    sampler = trj.TRJSampler(pair(), seed=3, plan=QUICK)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", trj.errors.TRJWarning)
        sampler.run(until={"probability": ENOUGH}, checkpoint=tmp_path, progress=False)
        events = read_events(tmp_path)
        sampler.more(draws=20, progress=False)
    assert read_events(tmp_path) == events and events[-1]["event"] == "ended"


def test_what_a_result_does_not_go_on_with_is_refused_by_name():
    first = whole_run("list")
    with pytest.raises(CheckpointError, match="another seed"):
        run(KINDS["list"](), seed=4, start=first)
    with pytest.raises(CheckpointError, match="numbers of the Plan"):
        run(KINDS["list"](), plan=replace(QUICK, chains=128), start=first)
    with pytest.raises(ConfigurationError, match="a run that begins"):
        run(KINDS["list"](), start=first, until={"detection": 1e-5})
    with pytest.raises(ConfigurationError, match="goes on as it was"):
        run(KINDS["list"](), start=first, chains=8)


def narrow():
    """What float32 does not resolve."""

    def model(name, width):
        def log_likelihood(p):
            return Normal(1e5 + p["x"], width).log_prob(torch.tensor(1e5 + 0.3).to(p["x"]))

        return trj.Model(name, {"x": Normal(0.0, 1.0)}, log_likelihood)

    return trj.Target([model("a", 0.01), model("b", 0.02)])


def test_a_run_in_float64_goes_on_in_it(tmp_path, monkeypatch):
    whole = run(narrow())
    assert whole.report.precision and whole.raw.theta.dtype == torch.float64
    killed(narrow(), tmp_path, 4, monkeypatch)
    found = run(narrow(), tmp_path)
    assert same(whole, found) and found.report.precision == whole.report.precision


def test_positions_are_plain_data():
    """All of it survives as tensors, numbers and words."""
    onward = whole_run("count")._onward()
    position = Position.of(onward["rounds"], onward["lesson"], torch.device("cpu"))
    again = Position.of(position.data(), position.lesson.data(), torch.device("cpu"))
    assert again.lesson.known.climbs == position.lesson.known.climbs
    assert torch.equal(again.lesson.known.draws.theta, position.lesson.known.draws.theta)
    assert torch.equal(again.generator, position.generator)
    assert again.lesson.worth == position.lesson.worth and again.ahead == position.ahead
    assert again.data().keys() == position.data().keys()


@pytest.mark.whole
def test_few_draws_of_a_first_lesson_go_on_as_if_they_had_been_more(tmp_path):
    """A result shows the last ten; what is learned from are all."""
    asked = {"until": None, "chains": 32}
    whole, first = (run(KINDS["list"](), draws=n, **asked) for n in (50, 10))
    first.save(tmp_path / "first.trj")
    for start in (first, trj.load(tmp_path / "first.trj")):
        assert same(whole, run(KINDS["list"](), until=None, draws=50, start=start))


def test_calls_of_a_folder_are_counted_once(tmp_path):
    """Moves are made again for nothing: no draw is added to a budget that is spent."""
    asked = {"until": None, "draws": 10**6, "chains": 128, "max_evaluations": 60_000}
    first, again = (run(KINDS["list"](), tmp_path, **asked) for _ in range(2))
    assert first.report.budget_spent and again.report.budget_spent
    assert again.raw.n_draws <= first.raw.n_draws + 5


def test_a_record_that_memory_has_thinned_ends(monkeypatch):
    monkeypatch.setattr(recorded, "MOST_NUMBERS", 2**10)
    result = run(pair(), until=None, draws=100, chains=32)
    assert result.raw.thin > 1 and result.raw.n_draws * result.raw.thin >= 100


@pytest.mark.whole
def test_a_trained_map_is_saved(tmp_path):
    asked = {"until": None, "chains": 16, "fit": True}
    whole = run(KINDS["list"](), draws=120, **asked)
    assert not same(whole, run(KINDS["list"](), until=None, draws=120, chains=16))
    run(KINDS["list"](), tmp_path, draws=40, **asked)
    assert same(whole, run(KINDS["list"](), tmp_path, draws=120, **asked))


def walks(name):
    return lambda target, transport: trj.kernel.Cycle(
        [trj.kernel.BirthDeath(target, trj.kernel.Fixed(target.space)), walk(target, name)]
    )


def walk(target, name):
    return trj.kernel.RandomWalk(target, name=name)


@pytest.mark.filterwarnings("ignore::trjmcmc.errors.TRJWarning")
def test_a_kernel_of_the_user_goes_on_and_another_is_refused(tmp_path):
    def made(name, draws, folder=None):
        sampler = trj.TRJSampler(KINDS["list"](), kernel=walks(name), seed=3)
        settings = {"chains": 16, "fit": False, "checkpoint": folder, "progress": False}
        return sampler.run(draws, **settings)

    made("walk", 10, tmp_path)
    assert same(made("walk", 15, tmp_path), made("walk", 15))
    with pytest.raises(CheckpointError, match="another kernel"):
        made("other", 20, tmp_path)


@pytest.mark.whole
@pytest.mark.filterwarnings("ignore::trjmcmc.errors.TRJWarning")
def test_a_run_that_was_late_before_its_first_draw_goes_on(monkeypatch):
    """Where it stood is shown, and is no draw."""
    sampler, late = trj.TRJSampler(KINDS["list"](), seed=3, plan=QUICK), [False]
    usual = Recorded.advance

    def advance(self, kernel, n):
        late[0] = True
        yield from usual(self, kernel, n)

    with monkeypatch.context() as patch:
        patch.setattr(Recorded, "advance", advance)
        patch.setattr(Limit, "passed", property(lambda _: late[0]))
        first = sampler.run(15, chains=16, thin=3, progress=False)
    assert first.raw.n_draws == 1
    whole = run(KINDS["list"](), until=None, draws=15, chains=16, thin=3)
    assert same(whole, sampler.more(draws=14, progress=False))
