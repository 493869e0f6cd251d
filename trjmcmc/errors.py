"""Exceptions and warnings: one base class each, one subclass per remedy."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from types import FrameType
from typing import Any, Self

import torch

# files whose lines are no user's: decorators and context managers may stand between ours
INSIDE = (
    *(os.path.dirname(f) + os.sep for f in (__file__, torch.__file__)),
    contextlib.__file__,
    "<frozen importlib",
)


class TRJError(Exception):
    """Base of every exception that the package raises on purpose.

    Attributes:
        result: What a run had drawn before it failed, a :class:`trjmcmc.Result`, or None.
    """

    result: Any = None

    def carrying(self, result: Any) -> Self:
        """The error, with what had been drawn before it."""
        self.result = result
        return self


class TargetError(TRJError, ValueError):
    """The statement of a problem is wrong: mend a prior, a likelihood or a model prior."""


class ShapeError(TargetError):
    """A tensor has another shape than the interface asks for."""


class NonFiniteError(TRJError, ValueError):
    """A density is NaN or +inf where it must be a number or -inf.

    Attributes:
        count: How many evaluations were affected.
        where: One of them, in words: model and parameter values.
    """

    def __init__(self, message: str, *, count: int = 1, where: str = "") -> None:
        super().__init__(message)
        self.count = count
        self.where = where


class BlackBoxError(TargetError):
    """A likelihood from outside PyTorch failed, or returned something else than a number."""


class PoolError(TRJError, RuntimeError):
    """A pool of workers failed: give the black box a fresh one and call again."""


class BudgetError(TRJError, RuntimeError):
    """A limit on likelihood evaluations does not pay for what comes next: raise it."""


class UnreachableError(TargetError):
    """No prior draw of a model has a finite likelihood."""


class ConfigurationError(TRJError, ValueError):
    """A setting of the fit, a kernel or the sampler is out of range."""


class ArgumentError(TRJError, TypeError):
    """A function has no argument of that name."""


class CheckpointError(TRJError, RuntimeError):
    """The folder of a run is another's, is being written, or is damaged."""


class ConvergenceError(TRJError, RuntimeError):
    """An iteration did not reach its goal; what it has is not to be used."""


class UnknownModelError(TRJError, KeyError):
    """No model of that name is in the space."""

    def __str__(self) -> str:  # KeyError would print the repr of the message
        return str(self.args[0])


class TRJWarning(UserWarning):
    """Base of every warning of the package."""


class CoverageWarning(TRJWarning):
    """A map misses a part of a posterior, or its evidence contradicts the audit's."""


class DisagreementWarning(TRJWarning):
    """Two independent estimates of one number differ by more than their errors allow."""


class ConvergenceWarning(TRJWarning):
    """A chain or a fit has not converged well enough to be trusted."""


class LimitWarning(TRJWarning):
    """The answer lies at the limit of what was allowed: allow more."""


class PrecisionWarning(TRJWarning):
    """Rounding in the working precision is no longer small against what is estimated."""


class CheckpointWarning(TRJWarning):
    """A run goes on, and is not saved."""


class PoolWarning(TRJWarning):
    """A run waits for workers, or has lost some; it goes on."""


class InterruptedWarning(TRJWarning):
    """The user stopped a run or a fit; what was reached so far is kept."""


def warn_user(message: str, category: type[Warning]) -> None:
    """Issue a warning that points at the line outside the package that led here.

    Arguments:
        message: What is doubtful, and what to do.
        category: A subclass of :class:`TRJWarning`.
    """
    frame: FrameType = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(INSIDE):
        frame = frame.f_back
    warnings.warn_explicit(
        message,
        category,
        frame.f_code.co_filename,
        frame.f_lineno,
        frame.f_globals.get("__name__", "<string>"),
        frame.f_globals.setdefault("__warningregistry__", {}),
    )


def __dir__() -> list[str]:
    return [name for name, x in globals().items() if getattr(x, "__module__", "") == __name__]
