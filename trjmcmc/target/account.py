"""What was asked of the likelihoods of a target, and how much more may be."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Self

import torch
from torch import Tensor

from ..errors import BudgetError


class Account:
    """Evaluations so far, and their limit.

    A target has one for all its life. A run opens its own beside it, so that its limit and its
    report know of no other run on the same target.

    Attributes:
        evaluations: Likelihood evaluations, those for gradients included; smooth surrogates of
            likelihoods do not count.
        gradients: Evaluations of likelihoods or surrogates that were differentiated.
        overflows: Points that counted as impossible because numbers overflowed, a tensor.
        limit: Most evaluations that are allowed, infinite unless set.

    Example:
        >>> whole, run = Account(), Account()
        >>> run.limit = 100
        >>> with whole.with_also(run):
        ...     whole.add(evaluations=60)
        >>> whole.add(evaluations=5)
        >>> whole.evaluations, run.evaluations, run.left
        (65, 60, 40)
    """

    def __init__(self) -> None:
        self.evaluations = self.gradients = 0
        self.overflows = torch.zeros((), dtype=torch.long)
        self.limit = math.inf

    @property
    def left(self) -> float:
        """Evaluations that the limit leaves, 0 or more; infinite where there is none."""
        return max(0, self.limit - self.evaluations)

    @contextmanager
    def free(self) -> Iterator[None]:
        """Evaluations in the block are counted, and count towards no limit."""
        limit, before = self.limit, self.evaluations
        self.limit = math.inf
        try:
            yield
        finally:
            self.limit = limit + self.evaluations - before

    @contextmanager
    def held_to(self, evaluations: float) -> Iterator[None]:
        """Allow so many evaluations more in the block, if that is less than before."""
        before = self.limit
        self.limit = min(before, self.evaluations + evaluations)
        try:
            yield
        finally:
            self.limit = before

    def check(self, n: int) -> None:
        """Refuse ``n`` more evaluations where they are too many.

        Raises:
            BudgetError: The limit of this account, or of one beside it, is lower.
        """
        left = min(account.left for account in self._all())
        if n > left:
            raise BudgetError(
                f"{n} likelihood evaluations are needed next and {int(left)} are left; raise "
                "max_evaluations"
            )

    def add(self, *, evaluations: int = 0, gradients: int = 0, overflows: Tensor | int = 0) -> None:
        """Count what was done, here and in the accounts beside this one."""
        for account in self._all():
            account.evaluations += evaluations
            account.gradients += gradients
            if isinstance(overflows, Tensor):  # 0 mostly
                account.overflows = account.overflows + overflows

    def held(self) -> dict[str, int]:
        """What was counted so far, as plain numbers."""
        counted = {"evaluations": self.evaluations, "gradients": self.gradients}
        return {**counted, "overflows": int(self.overflows)}

    def restore(self, held: Mapping[str, int]) -> None:
        """Go on counting from what was held, to a limit of one's own."""
        self.limit = math.inf
        self.evaluations, self.gradients = held["evaluations"], held["gradients"]
        self.overflows = torch.full_like(self.overflows, held["overflows"])

    @contextmanager
    def with_also(self, other: Account) -> Iterator[None]:
        """Count in another account too, in the block alone; once, however blocks are nested."""
        if other in self._all():
            yield
            return
        token = _BESIDE.set((*_BESIDE.get(), (self, other)))
        try:
            yield
        finally:
            _BESIDE.reset(token)

    def _all(self) -> list[Account]:
        """This account and those beside it in this thread."""
        return [self, *(other for account, other in _BESIDE.get() if account is self)]


# accounts that are open beside others, by thread
_BESIDE: ContextVar[tuple[tuple[Account, Account], ...]] = ContextVar("_BESIDE", default=())


class Counted:
    """What counts the likelihood evaluations that it makes.

    Attributes:
        account: Where they are counted.
    """

    account: Account

    @property
    def evaluations(self) -> int:
        """Likelihood evaluations of this object so far, those for gradients included.

        Smooth surrogates of likelihoods do not count; all runs on the target do.
        """
        return self.account.evaluations

    @property
    def gradients(self) -> int:
        """Evaluations of likelihoods or surrogates that were differentiated, so far."""
        return self.account.gradients

    @property
    def overflows(self) -> Tensor:
        """Points so far that counted as impossible because numbers overflowed, a tensor.

        There a likelihood was NaN or +inf far out in the tail of the prior, or with parameters
        whose square overflows. Anywhere else that is an error.
        """
        return self.account.overflows

    @property
    def limit(self) -> float:
        """Most evaluations that are allowed in all runs together, infinite unless you set it."""
        return self.account.limit

    @limit.setter
    def limit(self, evaluations: float) -> None:
        self.account.limit = evaluations

    def counted_in(self, account: Account) -> AbstractContextManager[None]:
        """Count evaluations in a run's own account too, and keep to its limit, in the block."""
        return self.account.with_also(account)

    def counted_with(self, other: Counted) -> Self:
        """Itself, counted from now on where the other one is."""
        self.account = other.account
        return self
