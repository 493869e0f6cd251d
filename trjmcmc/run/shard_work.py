"""What is done of a run in shards wherever its shards are: pure steps, on plain data."""

from __future__ import annotations

import hashlib
import pickle
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..errors import ConfigurationError
from ..kernel.base import Kernel
from ..target.target import Target
from .threads import one_thread


@dataclass(frozen=True)
class Work:
    """What all shards of a run have in common; it does not change while they sample.

    Attributes:
        target: The target.
        kernel: Frozen.
    """

    target: Target
    kernel: Kernel


# ---- as a task ----------------------------------------------------------------------------------


class Done(NamedTuple):
    """What came of a task.

    Attributes:
        value: What its step gave, on the CPU.
        evaluations, gradients, overflows: Likelihood calls that were made, as of
            :class:`~trjmcmc.target.account.Account`.
    """

    value: Any
    evaluations: int
    gradients: int
    overflows: int


class Failed(NamedTuple):
    """An error that a task met.

    Attributes:
        error: It, where it can be sent.
        text: Its last lines.
    """

    error: Exception | None
    text: str


def perform(
    key: str, packed: bytes | None, limit: float, step: Callable[..., Any], *args: Any
) -> Done | Failed | None:
    """Do a step of the work of that key; None where this worker does not know it.

    Torch computes with one thread meanwhile, so that the bits are those of every other worker.

    Arguments:
        key: Of the work.
        packed: The work; None where it was sent before.
        limit: Likelihood calls that may be made.
        step: What is done, a function of the work and more.
        args: Of the step, after the work.
    """
    try:
        works = _HERE.works
        if packed is not None and key not in works:
            works[key] = pickle.loads(packed)
            for old in list(works)[:-MOST_WORKS]:
                del works[old]
        work = works.get(key)
        if work is None:
            return None
        account, before = work.target.account, work.target.account.held()
        with one_thread(True), account.held_to(limit):
            value = moved(
                step(work, *(moved(x, work.target.device) for x in args)), torch.device("cpu")
            )
        made = {name: n - before[name] for name, n in account.held().items()}
        return Done(value, **made)
    except Exception as error:
        return Failed(_sendable(error), traceback.format_exc(limit=-3))


def pack_work(work: Work) -> tuple[str, bytes]:
    """A key of the work, and the work itself, for workers elsewhere.

    Raises:
        ConfigurationError: Something in it can't be sent.
    """
    try:
        import cloudpickle

        dumps = cloudpickle.dumps
    except ImportError:
        dumps = pickle.dumps
    try:
        packed = dumps(work)
    except Exception as error:  # of many kinds, by what the user's functions hold
        raise ConfigurationError(
            f"executor: this target can't be sent to workers ({type(error).__name__}: {error}). "
            "Define its functions at the top of a module, or pip install cloudpickle, and let "
            "them open files and connections where they are called"
        ) from None
    return hashlib.sha256(packed).hexdigest(), packed


class _Works(threading.local):
    """Works by key, of each thread its own: steps use the memory of their maps."""

    def __init__(self) -> None:
        self.works: dict[str, Work] = {}


_HERE = _Works()

MOST_WORKS = 2  # that a worker keeps


def _sendable(error: Exception) -> Exception | None:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return None
    return error


def moved(x: Any, device: torch.device) -> Any:
    """Plain data with its tensors on a device; those that are part of a larger one are copied."""
    if isinstance(x, Tensor):
        x = x.detach().to(device)
        whole = x.untyped_storage().nbytes() <= x.numel() * x.element_size()
        return x if whole else x.clone()
    if isinstance(x, dict):
        return {k: moved(v, device) for k, v in x.items()}
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(moved(v, device) for v in x))
    if isinstance(x, tuple | list):
        return type(x)(moved(v, device) for v in x)
    return x
