"""Proposals of the next model, q(k' | k), with exact log-probability ratios."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..errors import ConfigurationError
from ..fit import ModelWeights
from ..space import Counts, ModelList, Space, Subsets, check_enumerable

LOG_LEAST = 30.0  # nats; no neighbour is less likely than this, so that each can be left again
CELLS = 2**24  # numbers that a table of neighbours may hold at once


class IndexProposal(ABC):
    """A proposal distribution over models."""

    space: Space

    @abstractmethod
    def sample(self, code: Tensor, generator: torch.Generator) -> Tensor:
        """Next models drawn from q(. | code), (C, L) -> (C, L)."""

    @abstractmethod
    def log_prob(self, new: Tensor, code: Tensor) -> Tensor:
        """log q(new | code), -inf where it can't be proposed, shape (C,), nats."""

    def propose(self, code: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw the next models.

        Arguments:
            code: Current models, shape (C, L).
            generator: Source of randomness.

        Returns:
            Proposed models, shape (C, L), and log q(code | code') - log q(code' | code),
            shape (C,), nats.
        """
        new = self.sample(code, generator)
        return new, self.log_prob(code, new) - self.log_prob(new, code)

    def learn(self, code: Tensor) -> None:  # noqa: B027 - most have nothing to learn
        """Take note of models that chains are in; called during warm-up only."""

    def learnt(self) -> dict[str, Any]:
        """What it has taken from that, in plain numbers."""
        return {}


class Stay(IndexProposal):
    """The same model."""

    def __init__(self, space: Space) -> None:
        self.space = space

    def sample(self, code: Tensor, generator: torch.Generator) -> Tensor:
        return code

    def log_prob(self, new: Tensor, code: Tensor) -> Tensor:
        return torch.where((new == code).all(-1), 0.0, -math.inf)


class Fixed(IndexProposal):
    """Fixed probabilities over the models of a small space, whatever the current model.

    With the posterior probabilities and exact maps every jump is accepted.

    Arguments:
        space: A small space.
        log_weights: Unnormalised log-probabilities in the order of ``space.enumerate()``,
            shape (M,); uniform if omitted.
        other: Propose only models other than the current one, in proportion to the weights
            (Metropolised Gibbs), which mixes faster.

    Raises:
        ConfigurationError: Weights of the wrong length, or that are not numbers.

    Source:
        Yin & Jiao, eq. 23; Liu (1996), https://doi.org/10.1093/biomet/83.3.681

    Example:
        >>> from trjmcmc import problems
        >>> space = problems.sinh_arcsinh().space
        >>> proposal = Fixed(space, torch.tensor([0.25, 0.75]).log(), other=True)
        >>> proposal.propose(torch.tensor([[0], [1]]), torch.Generator())[0].tolist()
        [[1], [0]]
    """

    def __init__(
        self, space: Space, log_weights: Tensor | None = None, *, other: bool = False
    ) -> None:
        check_enumerable(space)
        self.space, self.codes = space, space.enumerate()
        w = torch.zeros(len(self.codes)) if log_weights is None else log_weights
        self.log_p = _checked_table(w, space).log_softmax(0)
        self.other = other and len(self.codes) > 1
        p = self.log_p.exp()
        self._p, self._log_rest = p, torch.log1p(-p)
        self._below = torch.cat([p.new_zeros(1), p.cumsum(0)])  # of each model, then 1

    def sample(self, code: Tensor, generator: torch.Generator) -> Tensor:
        below = self._below
        u = torch.rand(len(code), generator=generator, device=code.device, dtype=below.dtype)
        if self.other:  # inverse distribution function with the current model cut out
            old = self.space.index(code)
            u = u * (1 - self._p[old])
            u = u + torch.where(u >= below[old], self._p[old], 0.0)
        else:
            u = u * below[-1]
        new = (torch.searchsorted(below, u, right=True) - 1).clamp(0, len(self.codes) - 1)
        return self.codes[new]

    def log_prob(self, new: Tensor, code: Tensor) -> Tensor:
        to, old = self.space.index(new), self.space.index(code)
        if not self.other:
            return self.log_p[to]
        return torch.where(to == old, -math.inf, self.log_p[to] - self._log_rest[old])


class Neighbours(IndexProposal):
    """One unit flipped, two swapped, or one component more or fewer; for spaces of any size.

    Of several kinds of components each is chosen equally often.

    Steps that would leave the range of a count, and swaps where all units are on or off,
    propose the current model.

    Arguments:
        space: :class:`~trjmcmc.Subsets` or :class:`~trjmcmc.Counts`.
        swap: Share of the proposals that exchange a unit that is on for one that is off.

    Raises:
        ConfigurationError: The space has no neighbours, or its prior leaves out sizes between
            others; ``swap`` outside [0, 1), or not zero for counts.

    Example:
        >>> from trjmcmc import Subsets
        >>> space = Subsets(["a", "b", "c"], of="beta")
        >>> code = torch.zeros(4, 3, dtype=torch.long)
        >>> new, ratio = Neighbours(space).propose(code, torch.Generator().manual_seed(0))
        >>> new.sum(1).tolist(), ratio.tolist()
        ([1, 1, 1, 1], [0.0, 0.0, 0.0, 0.0])
    """

    def __init__(self, space: Space, *, swap: float = 0.0) -> None:
        _check_neighbours(space, "Neighbours")
        assert isinstance(space, Subsets | Counts)
        if not 0 <= swap < 1 or (swap and not isinstance(space, Subsets)):
            raise ConfigurationError(
                f"swap: expected a share in [0, 1), and 0 unless the space is Subsets, got {swap}"
            )
        if space.gaps:
            raise ConfigurationError(
                "Neighbours: the prior leaves out sizes between others, so that steps of one "
                "can't reach every model; give those sizes a little mass or use Fixed"
            )
        self.space, self.swap = space, swap

    def sample(self, code: Tensor, generator: torch.Generator) -> Tensor:
        c, device, space = len(code), code.device, self.space
        if isinstance(space, Counts):
            (low, levels), kinds = space.levels(), space.code_width
            move = torch.randint(0, 2 * kinds, (c, 1), generator=generator, device=device)
            step = torch.zeros_like(code).scatter(1, move // 2, 2 * (move % 2) - 1)
            return (code + step).clamp(low, low + levels - 1)
        if not space.code_width:
            return code
        unit = torch.randint(0, code.shape[1], (c, 1), generator=generator, device=device)
        flipped = code.scatter(1, unit, 1 - code.gather(1, unit))
        if not self.swap:
            return flipped
        u = torch.rand(c, 1, generator=generator, device=device)
        noise = torch.rand(code.shape, generator=generator, device=device)
        on = (noise + 2 * code).argmax(1, keepdim=True)  # a random one of those that are on
        off = (noise - 2 * code).argmax(1, keepdim=True)
        swapped = code.scatter(1, on, 0).scatter(1, off, 1)
        mixed = (code.amin(1) < code.amax(1))[:, None]
        return torch.where(u < self.swap, torch.where(mixed, swapped, code), flipped)

    def log_prob(self, new: Tensor, code: Tensor) -> Tensor:
        zero = torch.zeros(len(code), device=code.device)
        if isinstance(self.space, Counts):
            low, levels = self.space.levels()
            step, each = (new - code).abs().sum(1), 0.5 / code.shape[1]
            ends = ((code == low).long() + (code == low + levels - 1).long()).sum(1)
            chance = torch.where(step == 1, each, torch.where(step == 0, each * ends, zero))
            return chance.log()
        if not self.space.code_width:
            return zero
        units, on = code.shape[1], code.sum(1)
        gap = (new - code).abs().sum(1)
        pairs = on * (units - on)
        one, two = (1 - self.swap) / units, self.swap / pairs.clamp(min=1)
        balanced = (gap == 2) & (new.sum(1) == on)
        none = torch.where((gap == 0) & (pairs == 0), self.swap, zero)
        return torch.where(gap == 1, one, torch.where(balanced, two, none)).log()

    def propose(self, code: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        return self.sample(code, generator), torch.zeros(len(code), device=code.device)  # symmetric


Score = Callable[[Tensor], Tensor]


class Informed(IndexProposal):
    r"""Neighbours weighed by how probable they seem: a locally balanced proposal.

    A neighbour k' (one unit flipped; one component more or fewer; any other model of a list)
    is proposed in proportion to g(exp(s(k') - s(k))), where s estimates the log posterior
    probability of a model and g balances, g(t) = t g(1/t). With a good score the chain goes
    where the mass is and is hardly ever rejected for the model; any score is exact.

    Arguments:
        space: A space of subsets, counts or a few models.
        score: Function of codes (N, L) that gives log-probabilities (N,) up to a constant, or
            for a small space a table of them, in the order of ``space.enumerate()``. None
            learns one in warm-up: log odds of each unit, or of each count or model.
        balance: ``"sqrt"`` or ``"barker"``, t / (1 + t).

    Raises:
        ConfigurationError: No neighbours, or a wrong ``balance``.

    Source:
        Zanella (2020), https://doi.org/10.1080/01621459.2019.1585255

    Example:
        >>> from trjmcmc import Subsets
        >>> space = Subsets(["a", "b"], of="beta")
        >>> proposal = Informed(space, lambda code: 50.0 * code[:, 1])
        >>> new, ratio = proposal.propose(torch.zeros(3, 2).long(), torch.Generator())
        >>> new.tolist()
        [[0, 1], [0, 1], [0, 1]]
    """

    def __init__(
        self, space: Space, score: Score | Tensor | None = None, *, balance: str = "barker"
    ) -> None:
        if balance not in {"sqrt", "barker"}:
            raise ConfigurationError(f'balance: expected "sqrt" or "barker", got {balance!r}')
        if isinstance(space, ModelList):
            check_enumerable(space)
        else:
            _check_neighbours(space, "Informed")
        self.space, self.balance = space, balance
        self._learner = _VisitScore(space) if score is None else None
        self._score = self._learner or _as_function(score, space)

    def _log_weights(self, code: Tensor) -> tuple[Tensor, Tensor]:
        """Neighbours and their log-probabilities, (C, N, L) and (C, N)."""
        near, real = self.space.neighbours(code)
        here = self._score(code).double()
        there = self._score(near.flatten(0, 1)).double().view(real.shape)
        gain = (there - here[:, None]).nan_to_num(-math.inf)
        log_w = 0.5 * gain if self.balance == "sqrt" else torch.nn.functional.logsigmoid(gain)
        log_w = torch.where(real, log_w.clamp(min=-LOG_LEAST), -math.inf)
        return near, log_w.log_softmax(1)

    def _portion(self, code: Tensor) -> int:
        """Chains whose neighbours fit into memory at once."""
        units = code.shape[1] if isinstance(self.space, Subsets) else int(self.space.size or 2)
        return max(1, CELLS // max(1, units * code.shape[1]))

    def sample(self, code: Tensor, generator: torch.Generator) -> Tensor:
        if not self._any(code):
            return code
        parts = code.split(self._portion(code))
        return torch.cat([self._sample(part, generator) for part in parts])

    def _sample(self, code: Tensor, generator: torch.Generator) -> Tensor:
        near, log_p = self._log_weights(code)
        u = torch.rand(log_p.shape, generator=generator, device=code.device, dtype=log_p.dtype)
        pick = (log_p - torch.log(-u.log())).argmax(1)
        return near.gather(1, pick[:, None, None].expand(-1, 1, code.shape[1]))[:, 0]

    def log_prob(self, new: Tensor, code: Tensor) -> Tensor:
        if not self._any(code):
            return torch.where((new == code).all(-1), 0.0, -math.inf)
        size = self._portion(code)
        parts = zip(new.split(size), code.split(size), strict=True)
        return torch.cat([self._log_prob(to, part) for to, part in parts])

    def _log_prob(self, new: Tensor, code: Tensor) -> Tensor:
        near, log_p = self._log_weights(code)
        same = (near == new[:, None]).all(-1)
        return torch.where(same, log_p, -math.inf).logsumexp(1)

    def _any(self, code: Tensor) -> bool:
        return self.space.size is None or self.space.size > 1

    def learn(self, code: Tensor) -> None:
        if self._learner is not None:
            self._learner.learn(code)

    def learnt(self) -> dict[str, Any]:
        return {} if self._learner is None else {"score": self._learner.table.tolist()}


class Learnt(IndexProposal):
    """A distribution over models, whatever the current one; for spaces of any size.

    Arguments:
        weights: Has ``sample(n, generator)`` and ``log_prob(code)``, such as
            :class:`trjmcmc.Made`.

    Source:
        Davies et al., "Variational transdimensional inference", whose q(m) it takes

    Example:
        >>> from trjmcmc import fit, problems
        >>> q = fit.Uniform(problems.variable_selection(3).space)
        >>> new, ratio = Learnt(q).propose(torch.zeros(4, 3).long(), torch.Generator())
        >>> ratio.tolist()
        [0.0, 0.0, 0.0, 0.0]
    """

    def __init__(self, weights: ModelWeights) -> None:
        self.space, self.weights = weights.space, weights

    def sample(self, code: Tensor, generator: torch.Generator) -> Tensor:
        return self.weights.sample(len(code), generator)

    def log_prob(self, new: Tensor, code: Tensor) -> Tensor:
        return self.weights.log_prob(new).double()


class MixtureProposal(IndexProposal):
    """One of several proposals at random; the ratio is that of the mixture.

    Arguments:
        proposals: Proposals over one space.
        weights: Probability of each, equal if omitted.

    Raises:
        ConfigurationError: No proposal, weights that are negative or do not sum to 1.

    Example:
        >>> from trjmcmc import Subsets
        >>> space = Subsets(["a", "b", "c"], of="beta")
        >>> both = MixtureProposal([Neighbours(space), Fixed(space)], [0.9, 0.1])
        >>> new, ratio = both.propose(torch.zeros(4, 3).long(), torch.Generator())
        >>> new.shape
        torch.Size([4, 3])
    """

    def __init__(
        self, proposals: Sequence[IndexProposal], weights: Sequence[float] | None = None
    ) -> None:
        if not proposals:
            raise ConfigurationError("proposals: expected at least one, got none")
        self.proposals, self.space = list(proposals), proposals[0].space
        self.weights = check_weights(weights, len(proposals))

    def sample(self, code: Tensor, generator: torch.Generator) -> Tensor:
        u = torch.rand(len(code), 1, generator=generator, device=code.device)
        new, edge = code, 0.0
        for proposal, weight in zip(self.proposals, self.weights, strict=True):
            chosen = (u >= edge) & (u < edge + weight)
            new = torch.where(chosen, proposal.sample(code, generator), new)
            edge += weight
        return new

    def log_prob(self, new: Tensor, code: Tensor) -> Tensor:
        terms = [
            math.log(w) + p.log_prob(new, code)
            for p, w in zip(self.proposals, self.weights, strict=True)
            if w
        ]
        return torch.stack(terms).logsumexp(0)

    def learn(self, code: Tensor) -> None:
        for proposal in self.proposals:
            proposal.learn(code)

    def learnt(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for i, proposal in enumerate(self.proposals):
            found |= {f"{i}.{name}": value for name, value in proposal.learnt().items()}
        return found


class _VisitScore:
    """Log odds of units, or log shares of counts and models, by the visits so far."""

    def __init__(self, space: Space) -> None:
        self.space = space
        width = space.code_width if isinstance(space, Subsets) else int(space.size or 0)
        device = _device(space)
        self._on = torch.full((width,), 0.5, dtype=torch.float64, device=device)
        self._seen = torch.ones((), dtype=torch.float64, device=device)

    @property
    def table(self) -> Tensor:
        if isinstance(self.space, Subsets):
            return (self._on / (self._seen - self._on)).log()
        return (self._on / self._on.sum()).log()

    def learn(self, code: Tensor) -> None:
        if isinstance(self.space, Subsets):
            self._on = self._on + code.sum(0)
        else:
            one = torch.ones(len(code), dtype=self._on.dtype, device=code.device)
            self._on = self._on.index_add(0, self.space.index(code), one)
        self._seen = self._seen + len(code)

    def __call__(self, code: Tensor) -> Tensor:
        if isinstance(self.space, Subsets):
            return code.to(self._on.dtype) @ self.table
        return self.table[self.space.index(code)]


def _as_function(score: Score | Tensor | None, space: Space) -> Score:
    if not isinstance(score, Tensor):
        assert score is not None
        return score
    table = _checked_table(score, space)
    return lambda code: table[space.index(code)]


def check_weights(weights: Sequence[float] | None, number: int) -> list[float]:
    """Probabilities of ``number`` choices, equal if None; refused if they are not any."""
    if weights is None:
        return [1 / number] * number
    w = [float(x) for x in weights]
    if len(w) != number or not all(x >= 0 for x in w) or not abs(sum(w) - 1) < 1e-6:
        raise ConfigurationError(
            f"weights: expected {number} probabilities, none negative, that sum to 1, got {w}"
        )
    return w


def _check_neighbours(space: Space, what: str) -> None:
    if not isinstance(space, Subsets | Counts):
        raise ConfigurationError(
            f"{what}: expected Subsets or Counts, got {type(space).__name__}; use Fixed"
        )


def _checked_table(table: Tensor, space: Space) -> Tensor:
    """A table of one log-probability a model, refused if it is not."""
    check_enumerable(space)
    codes = space.enumerate()
    w = torch.as_tensor(table)
    if w.shape != (len(codes),) or bool((w.isnan() | (w == math.inf)).any()):
        raise ConfigurationError(f"log_weights: expected {len(codes)} numbers, got {w.tolist()}")
    return w.double().to(codes.device)


def _device(space: Space) -> torch.device:
    return next(space.buffers()).device
