"""Random numbers apart from arithmetic: what a step draws, so that the rest of it can be captured.

While a tape is on, functions of this package do not look at values of tensors: all goes on as on
a device whose values cost a wait. Where they would look whether the usual case is at hand
(:func:`surely`), the tape notes that as an assumption, which a captured step checks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

NUMBER = -1  # stands for a number of the main generator, which may seed a section


class NotCapturable(Exception):
    """Why a step can not be captured, in words."""


@dataclass(frozen=True)
class Draw:
    """One call that draws random numbers.

    Attributes:
        function: Called with the arguments and a generator.
        args, kwargs: Shapes, dtypes, numbers, and tensors that never change.
    """

    function: Callable[..., Tensor]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def made(self, generator: torch.Generator) -> Tensor:
        return self.function(*self.args, **self.kwargs, generator=generator)

    def is_of(
        self, function: Callable[..., Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> bool:
        """Whether a call has the same arguments, a generator left out."""
        ours = [*self.args, *itertools.chain(*sorted(self.kwargs.items()))]
        theirs = [*args, *itertools.chain(*sorted(kwargs.items()))]
        return (
            self.function is function and len(ours) == len(theirs) and all(map(_same, ours, theirs))
        )


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.shape == other.shape and bool(torch.equal(one, other))
    return bool(one == other)


def _held(x: Any) -> Any:
    """An argument as it is now: a tensor may be written into later."""
    return x.clone() if isinstance(x, Tensor) else x


@dataclass(frozen=True)
class Section:
    """Draws of a generator of their own, seeded by a number of the main one.

    Attributes:
        number: Draws that number.
        draws: What it draws.
    """

    number: Callable[[torch.Generator], int]
    draws: list[Draw] = field(default_factory=list)


def _filling(name: str) -> Callable[..., Tensor]:
    """A method that fills a tensor with random numbers, as a function of shape and dtype."""

    def filled(
        shape: torch.Size,
        dtype: torch.dtype,
        *args: Any,
        generator: torch.Generator,
        **kwargs: Any,
    ) -> Tensor:
        like = torch.empty(shape, dtype=dtype, device=generator.device)
        found: Tensor = getattr(like, name)(*args, generator=generator, **kwargs)
        return found

    return filled


FACTORIES = {torch.rand, torch.randn, torch.randint, torch.randperm}

IN_PLACE = {
    getattr(Tensor, name): _filling(name)
    for name in ("exponential_", "cauchy_", "uniform_", "normal_", "log_normal_", "geometric_")
}

OF_TENSORS = {
    torch.multinomial,
    torch._standard_gamma,
    torch._sample_dirichlet,
    torch.bernoulli,
    torch.poisson,
}


class Tape(TorchFunctionMode):
    """What a function draws, assumes and counts, in order.

    Arguments:
        generator: The generator that the function is called with.
        trusting: Whether the usual case is taken for granted where it was at hand while the tape
            recorded.

    Attributes:
        parts: Draws of the main generator, and sections that it seeds.
        noise: The numbers that were drawn while it recorded.
        assumed: What was taken for granted while it traced, bool.
        constants: Tensors that draws depend on, as seen while it traced.
        counts: By account, evaluations, gradients and overflows.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> def f(x):
        ...     return x + torch.rand(2, generator=generator)
        >>> tape = Tape(generator)
        >>> with tape.recording():
        ...     first = f(torch.zeros(2))
        >>> with tape.tracing(tape.played(torch.Generator().manual_seed(0))):
        ...     again = f(torch.zeros(2))
        >>> torch.equal(first, again)
        True
    """

    def __init__(self, generator: torch.Generator, *, trusting: bool = True) -> None:
        super().__init__()
        self.generator, self.trusting = generator, trusting
        self.parts: list[Draw | Section] = []
        self.noise: list[Tensor] = []
        self.assumed: list[Tensor] = []
        self.constants: list[Tensor] = []
        self.counts: dict[int, tuple[Any, list[int], list[Tensor]]] = {}
        self._draws: list[Draw] = []  # of all parts, in order
        self._answers: list[bool] = []  # of `surely`, in order
        self._asked = self._next = 0
        self._given: list[Tensor] | None = None
        self._section: Section | None = None
        self._looks = True  # whether `surely` may look

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Note what is drawn in the block."""
        with self._on():
            yield

    @contextmanager
    def tracing(self, noise: list[Tensor], *, looks: bool = False) -> Iterator[None]:
        """Give the block the numbers that it draws.

        Arguments:
            noise: The numbers, in order.
            looks: Look at what would be taken for granted, as a step without a tape does.

        Raises:
            NotCapturable: Another number of them is asked for.
        """
        self._given, self._next, self._asked, self._looks = noise, 0, 0, looks
        self.assumed, self.constants, self.counts = [], [], {}
        with self._on():
            yield
        if self._next != len(noise):
            raise NotCapturable("it draws fewer numbers at another time")

    def played(self, generator: torch.Generator) -> list[Tensor]:
        """All that is drawn, anew."""
        found: list[Tensor] = []
        for part in self.parts:
            if isinstance(part, Draw):
                found.append(part.made(generator))
            else:
                own = torch.Generator(generator.device).manual_seed(part.number(generator))
                found += [draw.made(own) for draw in part.draws]
        return found

    # ---- what the package tells it ----------------------------------------------------------

    @contextmanager
    def section(self, seed: int, number: Callable[[torch.Generator], int]) -> Iterator[None]:
        """The global generator, seeded with :data:`NUMBER`.

        Arguments:
            seed: The seed.
            number: Draws what that stands for.

        Raises:
            NotCapturable: The seed is another.
        """
        if seed != NUMBER:
            raise NotCapturable("it seeds random numbers with a number of its own")
        self._section = Section(number)
        if self._given is None:
            self.parts.append(self._section)
        try:
            yield
        finally:
            self._section = None

    def by_group(self) -> None:
        """Rows go through functions of their own, each of which would see all of them.

        Raises:
            NotCapturable: They would draw more random numbers so.
        """
        if self._section is not None:
            raise NotCapturable("each model draws random numbers for its own chains")

    def surely(self, condition: Tensor) -> bool:
        """Whether all of a condition is taken for granted, (...), bool."""
        if self._given is None or self._looks:
            answer = self.trusting and bool(condition.all())
            self._answers += [answer] if self._given is None else []
            return answer
        answer = self._answers[self._asked]
        self._asked += 1
        if answer:
            self.assumed.append(condition.all())
        return answer

    def count(self, account: Any, evaluations: int, gradients: int, overflows: Any) -> None:
        """Note what a likelihood was asked."""
        _, numbers, far = self.counts.setdefault(id(account), (account, [0, 0], []))
        numbers[0] += evaluations
        numbers[1] += gradients
        if overflows is not None:
            far.append(overflows)

    # ---- what it hears ----------------------------------------------------------------------

    @contextmanager
    def _on(self) -> Iterator[None]:
        token = _NOW.set(self)
        try:
            with self:
                yield
        finally:
            _NOW.reset(token)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func in FACTORIES:
            return self._drawn(func, args, kwargs)
        if func is torch.normal:
            return self._normal(args, kwargs)
        if func in IN_PLACE:
            this, *rest = args
            return this.copy_(self._drawn(IN_PLACE[func], (this.shape, this.dtype, *rest), kwargs))
        if func in OF_TENSORS:
            if self._given is not None:
                self.constants += [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
            return self._drawn(func, args, kwargs)
        return func(*args, **kwargs)

    def _normal(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        """Normal numbers, whose mean and spread may depend on anything."""
        mean, std = (kwargs.pop(k, d) for k, d in (("mean", 0.0), ("std", 1.0)))
        mean, std = (*args[:2], *(mean, std)[len(args[:2]) :])
        tensors = [x for x in (mean, std) if isinstance(x, Tensor)]
        if not tensors:
            return self._drawn(torch.normal, (mean, std, *args[2:]), kwargs)
        shape = torch.broadcast_shapes(*(x.shape for x in tensors))
        like = {"dtype": tensors[0].dtype, "device": tensors[0].device}
        return self._drawn(torch.randn, (tuple(shape),), kwargs | like) * std + mean

    def _drawn(
        self, func: Callable[..., Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Tensor:
        mine = kwargs.pop("generator", None)
        if self._given is not None:
            self._next += 1
            if self._next > len(self._given):
                raise NotCapturable("it draws more numbers at another time")
            if self._looks and not self._draws[self._next - 1].is_of(func, args, kwargs):
                raise NotCapturable("it draws other numbers at another time")
            return self._given[self._next - 1]
        if mine is not self.generator and not (mine is None and self._section is not None):
            raise NotCapturable("it draws from another generator than a step is given")
        draw = Draw(func, tuple(map(_held, args)), {k: _held(x) for k, x in kwargs.items()})
        found = draw.made(self.generator)
        (self.parts if mine is not None or self._section is None else self._section.draws).append(
            draw
        )
        self._draws.append(draw)
        self.noise.append(found)
        return found


_NOW: ContextVar[Tape | None] = ContextVar("_NOW", default=None)


def tape_now() -> Tape | None:
    """The tape that is on in this thread."""
    return _NOW.get()
