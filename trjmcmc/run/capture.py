"""Steps that are captured: a kernel's step and its counting as one function of tensors.

What a step draws is drawn outside, by the same generator in the same order, so that a captured
step gives what the step itself would, to rounding. Where the step took the usual case for granted
(all densities finite) and finds another, it is made again without the capture, from the same
numbers.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from textwrap import shorten
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as tree

from .. import clock
from ..draws import Draws
from ..errors import BudgetError, TRJError
from ..kernel.base import Info, Kernel, Memo, State
from ..tape import NotCapturable, Tape
from ..target.target import Target
from ..transport.memory import Remembers
from .frozen import READS, cut_marks, refuse_frozen
from .lowering import assume_factorised, decompositions, without_bools
from .memories import inside

Counts = Callable[[list[Info]], Any]  # a tree of tensors: what is counted of a step
Tensors = list[Tensor]
Way = Callable[[Callable[..., Tensors], Tensors], Callable[..., Any]]  # how a graph is executed

SAME_PLACE = 1e-3  # absolute and relative difference of coordinates that rounding makes
SAME_NATS, SAME_SHARE = 1e-2, 1e-5  # the same of log joints, absolute and relative

CHECKED_DRAWS = 64  # by which captured steps are held against the kernel's own

CHECKED_STEPS, MOST_CHECKED_STEPS = 3, 20  # of all chains that these are, whatever chains there are

APART = 0.005  # share of them that may differ: an acceptance at the edge falls the other way

READING = {"GuardOnDataDependentSymNode", "DataDependentOutputException"}  # torch's errors of that

NO_NUMPY = ".numpy() is not supported"  # the same of NumPy

LEAST_ROWS = 64  # of draws that are evaluated together

LONGEST = 160  # characters of another error


class NotTraceable(NotCapturable):
    """A step of which no graph can be made, however that would be executed."""


class NotTheSame(NotCapturable):
    """A step that was captured, and is not known to be the kernel's own."""


class CapturedStep:
    """A kernel's step at states of one shape, captured.

    Arguments:
        kernel: The kernel.
        counts: What is counted of a step; a function of its argument.
        state: Chains; they stay where they are.
        generator: The one that steps will be given; it stays as it is.
        way: How the captured function is executed: :func:`traced` or :func:`compiled`.
        trusting: Whether the usual case is taken for granted where it is at hand now.
        seconds: That maps which remember models may take to learn all of them.

    Attributes:
        trusting: As above.
        missed: Steps so far where the usual case was not at hand.
        nodes: Operations that were captured.

    Raises:
        NotTraceable: The step looks at values, or draws in a way that can't be told apart.
        NotCapturable: Its graph can't be executed in this way.
    """

    def __init__(
        self,
        kernel: Kernel,
        counts: Counts,
        state: State,
        generator: torch.Generator,
        way: Way,
        *,
        trusting: bool = True,
        seconds: float = math.inf,
    ) -> None:
        self.kernel, self.counts, self.trusting = kernel, counts, trusting
        self.missed = self.nodes = 0
        before = generator.get_state()
        self._tape = tape = Tape(generator, trusting=trusting)
        try:
            for map_of_models in inside(kernel):
                if isinstance(map_of_models, Remembers):
                    map_of_models.complete(seconds)
            with torch.no_grad():
                try:
                    with tape.recording():
                        counts(kernel.step(state, generator)[1])
                    graph = self._graph(state, generator)
                except Exception as error:  # whatever torch says of a step that it can not trace
                    raise NotTraceable(_in_a_line(error)) from error
                finally:  # what a likelihood remembers of a trace are no numbers
                    kernel.step(state, generator)
                self._run = way(graph, [*_tensors(state), *tape.noise])
        except NotCapturable:
            raise
        except Exception as error:  # whatever torch says of a graph that it can not execute so
            raise NotCapturable(_in_a_line(error)) from error
        finally:
            generator.set_state(before)

    def _graph(self, state: State, generator: torch.Generator) -> Any:
        """The step as a graph of tensor operations: of tensors to tensors."""
        from torch.fx.experimental.proxy_tensor import make_fx

        tape, inputs = self._tape, _tensors(state)
        chains = len(inputs)
        owner = None if state.memo is None else state.memo.owner

        def function(*given: Tensor) -> Tensors:
            with tape.tracing(list(given[chains:])):
                after, infos = self.kernel.step(_state(given[:chains], owner), generator)
                counted, self._shape = tree.tree_flatten(self.counts(infos))
            self._owner = None if after.memo is None else after.memo.owner
            self._plain = [(True, None) if isinstance(x, Tensor) else (False, x) for x in counted]
            there = _tensors(after)
            self._width = len(there)
            far = [sum(x[1:], x[0]) for _, _, x in tape.counts.values() if x]
            self._asked = [
                (account, *numbers, bool(x)) for account, numbers, x in tape.counts.values()
            ]
            fine = torch.stack(tape.assumed).all() if tape.assumed else torch.ones(()) > 0
            marks = [x * 1 for x in tape.constants]
            self._marks = len(marks)
            return [*there, *(x for x in counted if isinstance(x, Tensor)), *far, fine, *marks]

        given = [*inputs, *tape.noise]
        graph = make_fx(function, tracing_mode="fake", _allow_non_fake_inputs=True)(*given)
        refuse_frozen(graph, self._marks)
        cut_marks(graph, self._marks)
        assume_factorised(graph)
        without_bools(graph)
        graph.graph.eliminate_dead_code()
        graph.recompile()
        self.nodes = len(graph.graph.nodes)
        return graph

    def __call__(self, state: State, generator: torch.Generator) -> tuple[State, Any]:
        """The next state, and what is counted of the step."""
        try:
            return self._captured(state, self._tape.played(generator), generator)
        except NotCapturable:  # off the usual path it draws other numbers
            after, infos = self.kernel.step(state, generator)
            return after, self.counts(infos)

    def _captured(
        self, state: State, noise: Tensors, generator: torch.Generator
    ) -> tuple[State, Any]:
        """The same, from these random numbers."""
        try:
            *found, fine = self._run(*_tensors(state), *noise)
        except RuntimeError:  # a factorisation fails, of which the likelihood may make something
            return self._again(state, noise, generator)
        if not bool(fine):
            return self._again(state, noise, generator)
        n = self._width
        numbers = iter(found[n:])
        counted = [next(numbers) if is_tensor else x for is_tensor, x in self._plain]
        for account, evaluations, gradients, far in self._asked:
            overflows = next(numbers) if far else None
            account.check(evaluations)
            account.add(evaluations=evaluations, gradients=gradients, overflows=overflows)
        return _state(found[:n], self._owner), tree.tree_unflatten(counted, self._shape)

    def check(self, state: State, generator: torch.Generator) -> None:
        """Hold captured steps against the kernel's own, from the same states and numbers.

        A compiler makes mistakes, and a wrong step would be a wrong answer without a warning. The
        compiler of torch 2.13 read parameters before a scatter had written them.

        Arguments:
            state: Chains; they stay where they are.
            generator: The one that steps will be given; it stays as it is.

        Raises:
            NotTheSame: More differ, or what is counted of them does; or nothing could be compared.
        """
        first, chains, apart, compared = state, len(state.code), 0, 0
        steps = min(max(CHECKED_STEPS, -(-CHECKED_DRAWS // max(chains, 1))), MOST_CHECKED_STEPS)
        twin, own = (torch.Generator(generator.device) for _ in range(2))
        twin.set_state(generator.get_state())
        with torch.no_grad():
            for _ in range(steps):
                own.set_state(twin.get_state())
                noise = self._tape.played(twin)
                try:
                    missed = self.missed
                    found, counted = self._captured(state, noise, twin)
                    by_itself = self.missed > missed  # the usual case was not at hand
                    after, infos = self.kernel.step(state, own)
                    same = _same_counts(counted, self.counts(infos))
                except BudgetError as error:
                    raise NotTheSame("too few evaluations are left to check them") from error
                except Exception as error:  # whatever a compiler has made of it
                    raise NotTheSame(_in_a_line(error)) from error
                if not torch.equal(own.get_state(), twin.get_state()):
                    raise NotTheSame("they draw other random numbers than the kernel itself")
                if not by_itself:
                    differ = int(_differ(found, after).sum())
                    apart, compared = apart + differ, compared + chains
                    if not differ and not same:
                        raise NotTheSame("they count otherwise than the kernel itself")
                # another kernel of a mixture may leave a memo of its own, or none
                state = after if shape_of(after) == shape_of(first) else first
        if not compared:
            raise NotTheSame("the usual case was not at hand in any of the first steps")
        if apart > APART * compared:
            raise NotTheSame(f"{apart} of {compared} draws differ from those of the kernel itself")
        self.missed = 0

    def _again(self, state: State, noise: Tensors, generator: torch.Generator) -> tuple[State, Any]:
        """The step by the kernel itself, from the same random numbers."""
        self.missed += 1
        tape = self._tape
        with tape.tracing(noise, looks=True):
            after, infos = self.kernel.step(state, generator)
            counted = self.counts(infos)
        for account, numbers, far in tape.counts.values():
            total = sum(far[1:], far[0]) if far else None
            account.add(evaluations=numbers[0], gradients=numbers[1], overflows=total)
        return after, counted


def off_target(target: Target, draws: Draws, most: int, deadline: float = math.inf) -> str:
    """How far draws of captured steps are from the target, in words; empty where they are of it.

    Their log joints are held against the target's own. :meth:`CapturedStep.check` sees the first
    steps alone, and a compiler may be wrong where chains come later.

    Arguments:
        target: The target.
        draws: Kept draws.
        most: Draws that are looked at, which are spread over chains and time.
        deadline: Time by :func:`trjmcmc.clock.now` after which no further ones are.
    """
    log_joint = draws.log_joint.flatten()
    some = torch.arange(len(log_joint))
    if len(some) > most:
        spread = torch.Generator().manual_seed(0)
        some = torch.randint(len(log_joint), (most,), generator=spread)
    wrong, looked_at, far = 0, 0, 0.0
    for rows in some.split(max(LEAST_ROWS, draws.code.shape[0])):
        if looked_at and clock.now() > deadline:
            break
        code, theta = (x.flatten(0, 1)[rows].to(target.device) for x in (draws.code, draws.theta))
        known = log_joint[rows]
        try:
            with torch.no_grad():
                found = target.log_joint(code, theta).to(known)
        except BudgetError:
            break
        except TRJError as error:
            return f"draws where the target fails ({_in_a_line(error)})"
        near = torch.isclose(known, found, rtol=SAME_SHARE, atol=SAME_NATS, equal_nan=True)
        looked_at, wrong = looked_at + len(rows), wrong + int((~near).sum())
        far = max([far, *(known - found)[~near].abs().tolist()])
    return f"{wrong} of {looked_at} draws, by up to {far:.2g} nats" if wrong else ""


def shape_of(state: State) -> tuple[Any, ...]:
    """What states have in common at which one captured step works."""
    memo = state.memo
    if memo is None:
        return state.theta.shape, None
    return state.theta.shape, id(memo.owner), *(x.shape for x in memo.values)


def traced(graph: Any, given: Tensors) -> Callable[..., Any]:
    """Executed without Python: within seconds, two to four times as fast where chains are few."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = torch.jit.trace(graph.eval(), tuple(given), check_trace=False)
        frozen: Callable[..., Any] = torch.jit.freeze(found.eval())
    return frozen


def compiled(graph: Any, given: Tensors) -> Callable[..., Any]:
    """Compiled to machine code by torch: within a minute or more; the fastest."""
    with warnings.catch_warnings():  # of torch about itself
        warnings.simplefilter("ignore")
        from torch._inductor.compile_fx import compile_fx

        found: Any = compile_fx(graph, list(given), decompositions=decompositions())
    run: Callable[..., Any] = found
    return run


def _tensors(state: State) -> Tensors:
    memo = () if state.memo is None else state.memo.values
    return [state.code, state.theta, state.log_joint, *memo]


def _state(tensors: Any, owner: object) -> State:
    code, theta, log_joint, *values = tensors
    return State(code, theta, log_joint, Memo(owner, tuple(values)) if owner is not None else None)


def _differ(one: State, other: State) -> Tensor:
    """Chains that are elsewhere by more than rounding, (C,)."""
    apart = (one.code != other.code).reshape(len(one.code), -1).any(1)
    for x, y, absolute, relative in (
        (one.theta, other.theta, SAME_PLACE, SAME_PLACE),
        (one.log_joint[:, None], other.log_joint[:, None], SAME_NATS, SAME_SHARE),
    ):
        near = torch.isclose(x, y, rtol=relative, atol=absolute, equal_nan=True)
        apart |= ~near.reshape(len(near), -1).all(1)
    ours, theirs = (() if x.memo is None else x.memo.values for x in (one, other))
    if len(ours) != len(theirs):
        return torch.ones_like(apart)
    for x, y in zip(ours, theirs, strict=True):
        near = torch.isclose(x, y, rtol=SAME_PLACE, atol=SAME_PLACE, equal_nan=True)
        apart |= ~(near.reshape(len(near), -1).all(1) if len(near) == len(apart) else near.all())
    return apart


def _same_counts(one: Any, other: Any) -> bool:
    """Whether what was counted of two steps is the same but for rounding."""
    ours, theirs = tree.tree_flatten(one)[0], tree.tree_flatten(other)[0]
    return all(
        torch.allclose(x.double(), y.double(), rtol=SAME_PLACE, atol=SAME_PLACE, equal_nan=True)
        if isinstance(x, Tensor)
        else x == y
        for x, y in zip(ours, theirs, strict=True)
    )


def _in_a_line(error: BaseException) -> str:
    """Why something can not be captured, in words."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, NotCapturable):
            return str(cause).split("\n")[0]
        if type(cause).__name__ in READING or NO_NUMPY in str(cause):
            return READS
        cause = cause.__cause__ or cause.__context__
    first = str(error).strip().split("\n")[0]
    return f"{type(error).__name__}: {shorten(first, LONGEST, placeholder=' ...')}"
