"""A device that is none: it computes on the CPU, and records what would wait for a GPU.

Tensors of ``torch.device("meta")`` hold numbers while it is on. Every operation on them goes
through :class:`Emulated`, which keeps them apart from those of the host as a GPU does: they cannot
be mixed, and what crosses over is recorded with the line of the package that asked for it.
"""

from __future__ import annotations

import copy
import sys
import types
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.__future__ import (
    get_overwrite_module_params_on_conversion,
    set_overwrite_module_params_on_conversion,
)
from torch.optim import adam
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from trjmcmc.kernel.between.unit_gibbs import UnitGibbs
from trjmcmc.transport.laplace import LaplaceMap

DEVICE = torch.device("meta")

HOST = torch.device("cpu")

ROOT = Path(__file__).parents[1]

aten = torch.ops.aten

# sizes or checks that depend on values: a GPU is waited for
WAITS = {
    "aten::_local_scalar_dense",
    "aten::equal",
    "aten::nonzero",
    "aten::masked_select",
    "aten::_unique2",
    "aten::unique_dim",
    "aten::unique_consecutive",
    "aten::unique_dim_consecutive",
    "aten::bincount",
    "aten::multinomial",
    "aten::_linalg_check_errors",
    "aten::_linalg_eigh",
    "aten::_linalg_svd",
    "aten::linalg_eig",
    "aten::linalg_lstsq",
    "aten::histc",
    "aten::is_nonzero",
    "aten::repeat_interleave",  # unless the size is given
}

INDEXED = {"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"}


@dataclass(frozen=True)
class Crossing:
    """What would be waited for.

    Attributes:
        kind: ``"wait"``, ``"to host"`` or ``"to device"``.
        op: The operation.
        place: Innermost line of the package, as ``file:line function``.
        above: The lines of the package that called it, innermost last.
    """

    kind: str
    op: str
    place: str
    above: tuple[str, ...]


class OnDevice(torch.Tensor):
    """A tensor of the emulated device; its numbers are in ``held``, on the CPU."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> OnDevice:
        return torch.Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            layout=held.layout,
            device=DEVICE,
        )

    def __init__(self, held: torch.Tensor) -> None:
        self.held = held

    def __repr__(self, *, tensor_contents=None) -> str:
        return f"on device: {self.held!r}"

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise RuntimeError(f"{func}: a tensor of the emulated device is used while it is off")


class DeviceGenerator(torch.Generator):
    """Random numbers of the emulated device."""

    device = property(lambda self: DEVICE)


class _Either(type(torch.Generator)):
    def __call__(cls, device="cpu"):
        return DeviceGenerator() if torch.device(device) == DEVICE else _REAL(device)

    def __instancecheck__(cls, it):
        return isinstance(it, _REAL)


_REAL = torch.Generator


class _Generator(_REAL, metaclass=_Either):
    """``torch.Generator`` while the device is on."""


class Emulated:
    """The device, on inside a ``with``.

    Attributes:
        crossings: What was recorded.
        launches: Number of operations on the device.
    """

    def __init__(self) -> None:
        self.crossings: list[Crossing] = []
        self.launches = 0
        self._modes: list = []

    def __enter__(self) -> Emulated:
        self._modes = [_Functions(self), _Operations(self)]
        torch.Generator = _Generator
        self._fused = adam._device_dtype_check_for_fused  # it knows the devices that there are
        adam._device_dtype_check_for_fused = lambda *args, **options: None
        self._overwrite = get_overwrite_module_params_on_conversion()  # else numbers stay behind
        set_overwrite_module_params_on_conversion(True)
        for mode in self._modes:
            mode.__enter__()
        return self

    def __exit__(self, *failure) -> None:
        for mode in reversed(self._modes):
            mode.__exit__(*failure)
        torch.Generator = _REAL
        adam._device_dtype_check_for_fused = self._fused
        set_overwrite_module_params_on_conversion(self._overwrite)

    def clear(self) -> None:
        """Forget what was recorded."""
        self.crossings, self.launches = [], 0

    def record(self, kind: str, op: str) -> None:
        """Note a crossing, and who asked for it."""
        lines = []
        frame = sys._getframe(1)
        while frame is not None:
            name = frame.f_code.co_filename
            ours = name.startswith(str(ROOT)) and "site-packages" not in name
            if ours and not name.endswith("emulated.py"):
                where = Path(name).relative_to(ROOT)
                lines.append(f"{where}:{frame.f_lineno} {frame.f_code.co_name}")
            frame = frame.f_back
        place = lines[0] if lines else "?"
        self.crossings.append(Crossing(kind, op, place, tuple(lines[::-1])))

    def counts(self, *kinds: str) -> Counter:
        """How often by kind, operation and place."""
        some = [c for c in self.crossings if not kinds or c.kind in kinds]
        return Counter((c.kind, c.op, c.place) for c in some)


class _Functions(TorchFunctionMode):
    """What would leave the host without an operation that can be told: data of Python, NumPy."""

    def __init__(self, device: Emulated) -> None:
        super().__init__()
        self.device = device

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        generator = kwargs.get("generator")
        if generator is not None:
            where = kwargs.get("device")
            here = where is not None and torch.device(where) == DEVICE
            here = here or any(isinstance(x, OnDevice) for x in args)
            if here != isinstance(generator, DeviceGenerator):
                raise RuntimeError(f"{func.__name__}: generator and numbers on different devices")
        if func in (torch.tensor, torch.as_tensor, torch.asarray):
            where = kwargs.get("device")
            if where is not None and torch.device(where) == DEVICE:
                data = args[0] if args else kwargs["data"]
                if not isinstance(data, OnDevice):
                    host = func(*args, **{**kwargs, "device": HOST})
                    return host.to(DEVICE)
        if func is torch.Tensor.new_tensor and isinstance(args[0], OnDevice):
            where = kwargs.pop("device", DEVICE)
            kwargs.setdefault("dtype", args[0].dtype)
            return torch.tensor(args[1], **kwargs).to(where)
        if func in (torch.Tensor.numpy, torch.Tensor.__array__) and isinstance(args[0], OnDevice):
            raise TypeError("can't convert a tensor of the device to numpy: copy it to the host")
        by_index = func in (torch.Tensor.__getitem__, torch.Tensor.__setitem__)
        if by_index and isinstance(args[0], OnDevice):  # lists are data of the host
            args = (args[0], _with_tensors(args[1]), *args[2:])
        if func is torch.Tensor.tolist and isinstance(args[0], OnDevice):
            return args[0].cpu().tolist()
        return func(*args, **kwargs)


def _with_tensors(index):
    """An index whose lists and arrays are tensors of the host."""
    if isinstance(index, tuple):
        return tuple(_with_tensors(i) for i in index)
    return torch.as_tensor(index) if isinstance(index, list | np.ndarray) else index


class _Operations(TorchDispatchMode):
    """Operations on tensors of the device, and copies from and to it."""

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # it need not be imported

    def __init__(self, device: Emulated) -> None:
        super().__init__()
        self.device = device

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        ours: dict[int, OnDevice] = {}  # by identity of their numbers
        theirs: list[torch.Tensor] = []
        held = [_held(x, ours, theirs) for x in args]
        plain = {k: _held(x, ours, theirs) for k, x in kwargs.items()}
        where = kwargs.get("device")
        to_device = where is not None and torch.device(where) == DEVICE
        if not ours and not to_device:
            return func(*args, **kwargs)
        self.device.launches += 1
        to_host = where is not None and not to_device
        if func is aten.copy_.default:
            to_host = not isinstance(args[0], OnDevice)
        self._record(func._schema.name, args, kwargs, bool(ours), theirs, to_host)
        if where is not None:
            plain["device"] = HOST
        found = func(*held, **plain)
        if to_host:
            return args[0] if func is aten.copy_.default else found
        return _wrapped(found, ours)

    def _record(self, name, args, kwargs, ours, theirs, to_host):
        """Note what would be waited for; refuse what a device refuses."""
        if name in {"aten::_to_copy", "aten::copy_"}:
            if to_host:
                self.device.record("to host", name)
            elif theirs or not ours:
                self.device.record("to device", name)
        elif name in INDEXED:
            indices = [x for x in args[1] if x is not None]
            if not isinstance(args[0], OnDevice):
                raise RuntimeError("indices should be on the CPU, as the indexed tensor is")
            if any(not isinstance(x, OnDevice) for x in indices):
                self.device.record("to device", name)
            if any(x.dtype in (torch.bool, torch.uint8) for x in indices):
                value = args[2] if len(args) > 2 else None
                if value is None or value.numel() != 1:  # one number is filled in
                    self.device.record("wait", name)
        elif theirs:
            raise RuntimeError(
                f"{name}: expected all tensors to be on the same device, but found at least two: "
                f"shapes {[tuple(x.shape) for x in theirs]} are on the host"
            )
        elif name in WAITS and kwargs.get("output_size") is None:
            self.device.record("wait", name)


def _held(x, ours, theirs):
    """The numbers in an argument; notes tensors of the device, and larger ones of the host."""
    if isinstance(x, OnDevice):
        ours[id(x.held)] = x
        return x.held
    if isinstance(x, torch.Tensor):
        if x.dim():
            theirs.append(x)
    elif isinstance(x, list | tuple):
        return type(x)(_held(y, ours, theirs) for y in x)
    return x


def _wrapped(x, ours):
    """What an operation gives, on the device: what it was given where that is the same."""
    if isinstance(x, torch.Tensor):
        return ours[id(x)] if id(x) in ours else OnDevice(x)
    if isinstance(x, list | tuple):
        return type(x)(_wrapped(y, ours) for y in x)
    return x


def carried(thing):
    """A deep copy of what was made on the host, with all of its tensors on the device that is on.

    Functions are copied too, with what they have closed over: data stand in likelihoods.
    """
    kinds = {torch.Tensor: _tensor, torch.nn.Parameter: _parameter, types.FunctionType: _function}
    kinds |= {LaplaceMap: _laplace, UnitGibbs: _unit_gibbs}
    kinds[torch.device] = lambda it, memo: DEVICE
    before = copy._deepcopy_dispatch.copy()
    copy._deepcopy_dispatch.update(kinds)
    try:
        return copy.deepcopy(thing)
    finally:
        copy._deepcopy_dispatch.clear()
        copy._deepcopy_dispatch.update(before)


def _tensor(tensor, memo):
    return tensor.detach().to(DEVICE)


def _parameter(tensor, memo):
    return torch.nn.Parameter(tensor.detach().to(DEVICE), requires_grad=tensor.requires_grad)


def _laplace(it, memo):
    """Its own copies share the target."""
    target, flow, reference = (copy.deepcopy(x, memo) for x in (it.target, it.flow, it.reference))
    return LaplaceMap(target, flow, megabytes=it.megabytes, reference=reference)


def _unit_gibbs(it, memo):
    """It keeps a length of its own on the host."""
    return UnitGibbs(copy.deepcopy(it.target, memo), name=it.name)


def _function(function, memo):
    if not function.__closure__ or not function.__module__.startswith(("tests", "trjmcmc")):
        return function
    cells = tuple(types.CellType() for _ in function.__closure__)
    found = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, cells
    )
    found.__kwdefaults__ = function.__kwdefaults__
    memo[id(function)] = found  # it may have closed over itself
    for cell, old in zip(cells, function.__closure__, strict=True):
        cell.cell_contents = copy.deepcopy(old.cell_contents, memo)
    return found
