"""A space of models that the package has never heard of needs no change anywhere else."""

import ast
import itertools
from pathlib import Path

import pytest
import torch
from torch.distributions import Normal

import trjmcmc as trj
from trjmcmc.errors import ConfigurationError, UnknownModelError
from trjmcmc.kernel import BirthDeath, Cycle, Neighbours, RandomWalk, start
from trjmcmc.space.base import Kind, Space
from trjmcmc.space.model_list import ModelList

PACKAGE = Path(trj.__file__).parent
CONCRETE = {"ModelList", "Subsets", "Counts", "Dags", "OrderedDags"}


class AtMostTwo(Space):
    """Sets of at most two of some items; codes are sets of bits, but not all of them models."""

    def __init__(self, names, of):
        super().__init__()
        self.names = list(names)
        n = len(self.names)
        self.kinds = (Kind("items", 0, n, (of,)),)
        self.code_width = self.n_items = self.context_width = n
        pairs = [c for k in range(3) for c in itertools.combinations(range(n), k)]
        self.size = len(pairs)
        table = torch.tensor([[i in c for i in range(n)] for c in pairs]).long()
        self.register_buffer("table", table)
        self.register_buffer("log_one", -torch.tensor(float(self.size)).log())

    def items(self, code):
        return code > 0

    def context(self, code):
        return code.to(self.log_one.dtype)

    def log_prior(self, code):
        return torch.where(code.sum(1) <= 2, self.log_one, -torch.inf)

    def sample_prior(self, n, generator):
        return self.table[torch.randint(self.size, (n,), generator=generator)]

    def label(self, code):
        return ["+".join(x for x, on in zip(self.names, row, strict=True) if on) for row in code]

    def code_of(self, model):
        if model not in (labels := self.label(self.table)):
            raise UnknownModelError(f"no model {model!r}")
        return self.table[labels.index(model)]

    def enumerate(self):
        return self.table

    def index(self, code):
        return (code[:, None] == self.table).all(-1).long().argmax(1)

    def neighbours(self, code):
        near = (code[:, None] + torch.eye(code.shape[1], dtype=code.dtype)) % 2
        return near, near.sum(-1) <= 2

    def levels(self):
        low = torch.zeros(self.code_width, dtype=torch.long)
        return low, low + 2

    def largest(self, n, generator):
        pairs = self.table[self.table.sum(1) == 2]
        return pairs.repeat(-(-n // len(pairs)), 1)

    def certain(self):
        none = torch.zeros(self.n_items, dtype=torch.bool)
        return none, none

    def spec(self):
        return {"kind": "AtMostTwo", "names": self.names, "of": self.of[0]}

    @classmethod
    def from_spec(cls, spec):
        return cls(spec["names"], spec["of"])


def pairs_target():
    """Two of three coefficients may be in; log p(y | m) has a closed form."""
    y = torch.tensor([1.5, 0.2, -1.0])
    return trj.Target(
        AtMostTwo("abc", of="w"),
        {"w": Normal(0.0, 1.0)},
        lambda p, active: Normal(p["w"], 1.0).log_prob(y).sum(-1),
    )


def exact(space):
    y = torch.tensor([1.5, 0.2, -1.0])
    height = Normal(0.0, (1 + space.table.double()).sqrt()).log_prob(y.double()).sum(1)
    return dict(zip(space.label(space.table), height.softmax(0).tolist(), strict=True))


@pytest.mark.whole
@pytest.mark.filterwarnings("ignore::trjmcmc.errors.TRJWarning")
@pytest.mark.parametrize("fit", ["auto", False])
def test_a_new_space_is_sampled(fit):
    target = pairs_target()
    result = trj.TRJSampler(target, seed=1).run(120, chains=256, fit=fit, progress=False)
    table = result.model_probabilities(full=True)
    for label, p in exact(target.space).items():
        assert abs(table.loc[label, "visits"] - p) < 5 * max(table.loc[label, "visits_se"], 0.003)
    inclusion = result.inclusion_probabilities(full=True)
    assert list(inclusion.index) == ["a", "b", "c"]
    names = result.summary().index.get_level_values("parameter")
    assert {"w[a]", "w[b]", "w[c]"} <= set(names)


def test_classical_moves_over_a_new_space_are_exact(generator):
    target = pairs_target()
    code = target.space.sample_prior(4000, generator)
    state = start(target, code, target.sample_prior(code, generator))
    kernel = Cycle([BirthDeath(target, Neighbours(target.space)), RandomWalk(target)])
    for _ in range(60):
        state, _ = kernel.step(state, generator)
    share = torch.bincount(target.space.index(state.code), minlength=target.space.size) / 4000
    for p, q in zip(exact(target.space).values(), share.tolist(), strict=True):
        assert abs(p - q) < 5 * (p * (1 - p) / 4000) ** 0.5


def test_neighbours_over_a_new_space_have_the_probabilities_they_say(generator):
    space = AtMostTwo("abcd", of="w")
    proposal, every = Neighbours(space), space.enumerate()
    for code in every[[0, 2, -1]]:
        here = code.expand(len(every), -1)
        p = proposal.log_prob(every, here).exp()
        assert float(p.sum()) == pytest.approx(1.0)
        n = 20_000
        index = space.index(proposal.sample(code.expand(n, -1), generator))
        share = torch.bincount(index, minlength=len(every)) / n
        assert bool(((share - p).abs() <= 5 * (p * (1 - p) / n).sqrt() + 1e-9).all())


@pytest.mark.parametrize(
    "space",
    [
        trj.Subsets([*"abc"], of="w", blocks=[["a", "b"]]),
        trj.Counts(3, 1, of="w"),
        trj.Counts(2, of="w") + trj.Counts(1, of="v"),
    ],
    ids=["subsets", "counts", "kinds"],
)
def test_fast_neighbours_are_those_of_any_space(space, generator):
    every = space.enumerate()
    pairs = every.repeat_interleave(len(every), 0), every.repeat(len(every), 1)
    fast, plain = space.log_neighbour(*pairs), Space.log_neighbour(space, *pairs)
    assert torch.allclose(fast.exp().double(), plain.exp())
    n = 4000
    for method in (type(space).random_neighbour, Space.random_neighbour):
        new = method(space, every[:1].expand(n, -1), generator)
        p = space.log_neighbour(every, every[:1].expand_as(every)).exp()
        share = torch.bincount(space.index(new), minlength=len(every)) / n
        assert bool(((share - p).abs() <= 5 * (p * (1 - p) / n).sqrt() + 1e-9).all())


def test_spaces_say_what_they_are():
    subsets, counts = trj.Subsets([*"abc"], of=("w", "v")), trj.Counts(100, of="w")
    plain = ModelList(["m"], torch.ones(1, 1), torch.zeros(1))
    assert (subsets.units, counts.units, plain.units) == (3, 0, 0)
    assert (subsets.few, counts.few, plain.few) == (True, False, True)
    assert (subsets.several, counts.several, plain.several) == (True, True, False)
    assert (subsets.counts, counts.counts, plain.counts) == (False, True, False)
    assert subsets.has_named_items and not counts.has_named_items and not plain.has_items
    assert (subsets.of, counts.of, plain.of) == (("w", "v"), ("w",), ())
    with pytest.raises(ConfigurationError, match="nothing is counted"):
        _ = subsets.log_priors
    with pytest.raises(ConfigurationError, match="no units"):
        counts.presence(torch.zeros(1, 1))


def test_nobody_asks_which_space_it_is():
    for path in PACKAGE.rglob("*.py"):
        if path.relative_to(PACKAGE).parts[0] == "space":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
                continue
            where = f"{path}, line {node.lineno}: ask the space what you need to know"
            if node.func.id in {"isinstance", "issubclass"}:
                named = {getattr(x, "id", getattr(x, "attr", "")) for x in ast.walk(node.args[1])}
                assert not named & CONCRETE, where
            if node.func.id in {"getattr", "hasattr"}:
                assert not ast.unparse(node.args[0]).endswith("space"), where
