"""Objects of the package as data: pickled without what is the user's, read by an allow-list."""

from __future__ import annotations

import copyreg
import io
import pickle
from collections.abc import Mapping
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Generator, Tensor, nn

from ..errors import CheckpointError
from ..result.files import smallest
from ..transport.memory import CodeMemory
from .names import Path, classes, paths

ROOMS = (  # of the package, whose classes and functions may be named in a file
    "draws",
    "estimate",
    "fit",
    "grouping",
    "kernel",
    "pilot",
    "priors",
    "promises",
    "space",
    "target",
    "transport",
    "weights",
)

MODULES = {  # of other rooms, whose classes may be named
    "trjmcmc.result.report",
    "trjmcmc.run.budget",
    "trjmcmc.run.knowledge",
    "trjmcmc.run.policy",
    "trjmcmc.run.policy_of_capture",
    "trjmcmc.run.policy_of_components",
    "trjmcmc.run.policy_of_graphs",
    "trjmcmc.run.policy_of_screening",
    "trjmcmc.run.precision",
    "trjmcmc.run.resumed",
    "trjmcmc.run.segment",
    "trjmcmc.run.strategy",
    "trjmcmc.run.weighing",
}

FUNCTIONS = ("kernel", "transport", "weights", "space")  # rooms of pure functions

OTHERS = {  # classes of other packages
    ("builtins", "object"),
    ("builtins", "set"),
    ("builtins", "frozenset"),
    ("builtins", "complex"),
    ("builtins", "slice"),
    ("builtins", "range"),
    ("collections", "OrderedDict"),
    ("collections", "defaultdict"),
    ("collections", "deque"),
    ("functools", "partial"),
    ("random", "Random"),
    ("torch", "Size"),
    ("torch", "device"),
}

MANY = 4096  # integers that are held in the smallest type that they fit in

TORCH = ("torch.nn.modules.", "torch.distributions.")  # whose classes may be named


class Roots:
    """What a script makes again: the target, what the user gave, and the classes of that.

    Arguments:
        objects: By name.
        whole: Names of those that are taken as they are; of the others functions and classes alone.
    """

    def __init__(self, objects: Mapping[str, Any], whole: set[str]) -> None:
        self.objects, self.whole = dict(objects), whole
        given = [v for k, v in objects.items() if k not in whole]
        self.classes = classes(*given)


def freeze(found: Any, roots: Roots) -> dict[str, Any]:
    """Objects as plain data and tensors.

    Raises:
        CheckpointError: Something in it is neither of the package nor the user's to make again.
    """
    buffer = io.BytesIO()
    pickler = _Pickler(buffer, roots)
    try:
        pickler.dump(found)
    except (pickle.PicklingError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise CheckpointError(f"this run can't be saved: {error}") from None
    body = torch.frombuffer(bytearray(buffer.getvalue()), dtype=torch.uint8)
    kept = {name: getattr(pickler, name) for name in ("tensors", "wide", "trained", "streams")}
    return {"body": body, **kept, "names": pickler.names}


def bound(it: Any, name: str) -> Any:
    """A method of an object of the package."""
    package = type(it).__module__.partition(".")[0] in {"trjmcmc", "zuko", "torch"}
    if not package or name.startswith("__"):
        raise CheckpointError(f"{type(it).__name__}.{name} is no method of the package")
    return getattr(it, name)


def _wide(tensor: Tensor) -> bool:
    """Whether a tensor takes many bytes that its numbers do not need: codes, places of draws."""
    return tensor.dtype == torch.int64 and tensor.numel() >= MANY


def adam(parameters: list[Tensor], state: dict[str, Any]) -> torch.optim.Adam:
    """An optimiser of these parameters, with the moments that it had."""
    made = torch.optim.Adam(parameters)
    made.load_state_dict(state)
    return made


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, roots: Roots) -> None:
        super().__init__(file, protocol=4)
        self._roots = roots
        self._paths = paths(roots.objects, roots.whole)
        self._class_names = {kind: name for name, kind in roots.classes.items()}
        self._seen: dict[int, tuple[Any, tuple[str, Any]]] = {}  # kept alive, so that ids stay
        self.tensors: list[Tensor] = []
        self.wide: list[bool] = []  # of tensors, whether they are held in smaller integers
        self.trained: list[bool | None] = []  # of parameters, whether they are trained
        self.streams: list[tuple[str, Tensor]] = []
        self.names: list[tuple[str, Path]] = []

    def persistent_id(self, obj: Any) -> Any:
        if id(obj) in self._seen:
            return self._seen[id(obj)][1]
        found: tuple[str, Any] | None = None
        if isinstance(obj, Tensor):
            found = "tensor", len(self.tensors)
            self.tensors.append(smallest(obj) if _wide(obj) else obj.detach())
            self.wide.append(_wide(obj))
            self.trained.append(obj.requires_grad if isinstance(obj, nn.Parameter) else None)
        elif isinstance(obj, Generator):
            found = "stream", len(self.streams)
            self.streams.append((str(obj.device), obj.get_state()))
        elif id(obj) in self._paths:
            found = "name", len(self.names)
            self.names.append(self._paths[id(obj)])
        elif isinstance(obj, type) and obj in self._class_names:
            found = "class", self._class_names[obj]
        elif isinstance(obj, type | FunctionType) and not _allowed(obj.__module__, obj):
            raise pickle.PicklingError(f"{obj.__module__}.{obj.__qualname__} is not of the package")
        if found is not None:
            self._seen[id(obj)] = obj, found
        return found

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, MethodType):
            return bound, (obj.__self__, obj.__name__)
        if isinstance(obj, torch.dtype):
            return NotImplemented
        if type(obj) is torch.optim.Adam and len(obj.param_groups) == 1:
            return adam, (obj.param_groups[0]["params"], obj.state_dict())
        if isinstance(obj, CodeMemory):  # what it has found goes with the draws
            empty = CodeMemory(_nothing, 1, 1).__dict__
            kept = {k: vars(obj)[k] for k in ("compute", "most", "ahead", "number", "_factor")}
            return copyreg.__newobj__, (CodeMemory,), {**empty, **kept}  # type: ignore[attr-defined]
        return NotImplemented


def _nothing(code: Tensor) -> tuple[Tensor, ...]:
    return ()


def _room(module: str) -> bool:
    """Whether a module may be looked into at all."""
    top, _, rest = module.partition(".")
    if top == "trjmcmc":
        return rest.partition(".")[0] in ROOMS or module in {*MODULES, __name__}
    known = {m for m, _ in OTHERS} | {"torch", "copyreg"}
    return module in known or top == "zuko" or module.startswith(TORCH)


def _allowed(module: str, found: Any) -> bool:
    """Whether a class or a function may be named in a file."""
    if isinstance(found, torch.dtype):
        return True
    if found in (adam, bound, _nothing) or found is copyreg.__newobj__:  # type: ignore[attr-defined]
        return True
    name, where = getattr(found, "__name__", ""), getattr(found, "__module__", "")
    if (module, name) in OTHERS or (where, name) in OTHERS:
        return True
    top, _, rest = where.partition(".")
    if top == "trjmcmc":
        room = rest.partition(".")[0]
        known = room in ROOMS or where in MODULES
        return known if isinstance(found, type) else room in FUNCTIONS
    if top == "zuko":
        return isinstance(found, type | FunctionType)
    return isinstance(found, type) and where.startswith(TORCH)
