"""Results in files that hold data only, with a checksum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..doubts.of_chains import Judged
from ..draws import Draws
from ..errors import ConfigurationError, TRJError
from ..estimate.estimate import Estimate
from ..fit.trace import FitTrace
from ..pilot.report import AuditReport, ModelAudit
from ..space.base import Space
from ..space.saved import space_from_spec
from ..target.model import Truth
from .packed import made, pack, plain, unpack
from .report import KernelPlan, RunReport, Started
from .variational import ANSWER

FORMAT = 5

OTHERS = {".nc", ".nc4", ".h5", ".hdf5", ".zarr", ".csv", ".json"}  # endings of other formats


@dataclass(frozen=True)
class Contents:
    """What a result is made of, as plain data; its names are those of the arguments of
    :class:`trjmcmc.Result`.
    """

    space: Space
    draws: Draws
    values: dict[str, Tensor]
    routes: Mapping[str, Mapping[str, Estimate]]
    report: RunReport
    truth: Truth | None
    crossings: tuple[Tensor, Tensor] | None
    pareto_k: Mapping[str, float]
    slot_names: Sequence[str]
    coarse: Mapping[str, str] | None
    turns: Mapping[str, tuple[float, float]]
    onward: Any = None  # of plain data in files


REPORTED = (AuditReport, FitTrace, Judged, KernelPlan, ModelAudit, RunReport, Started)
CLASSES = {c.__name__: c for c in (*ANSWER, *REPORTED, Draws, Truth)}


def write(path: str | Path, contents: Contents) -> None:
    """Write one file, read by :func:`read`.

    Raises:
        ConfigurationError: The name is that of a file of another format.
    """
    if Path(path).suffix in OTHERS:
        raise ConfigurationError(
            f"save: {path} would hold this package's own format, for trj.load; for NetCDF write "
            f"result.to_arviz().to_netcdf({str(path)!r}), or choose another ending"
        )
    draws = replace(contents.draws, code=smallest(contents.draws.code))
    found = replace(contents, draws=draws, onward=as_data(contents.onward))
    data = {f.name: plain(getattr(found, f.name)) for f in fields(found) if f.name != "space"}
    Path(path).write_bytes(pack({"format": FORMAT, "space": contents.space.spec(), **data}))


def read(path: str | Path) -> Contents:
    """Read a file; nothing in it is executed.

    Raises:
        TRJError: The file is of another format, or was damaged: its checksum says so.
    """
    data = unpack(path)
    try:
        if data["format"] != FORMAT:
            raise TRJError(f"{path}: not a result saved by this version of trjmcmc")
        return _contents(data)
    except TRJError:
        raise
    except Exception as error:  # a foreign file has errors of many kinds
        raise TRJError(f"{path}: not a result saved by trjmcmc ({type(error).__name__})") from None


def _contents(data: dict[str, Any]) -> Contents:
    found = {f.name: made(data[f.name], CLASSES) for f in fields(Contents) if f.name != "space"}
    draws = replace(found["draws"], code=found["draws"].code.long())
    return Contents(**{**found, "space": space_from_spec(data["space"]), "draws": draws})


def as_data(onward: Any) -> Any:
    """What a result knows of how to go on, as plain data, made where it is a function; or None."""
    return onward() if callable(onward) else onward


def smallest(code: Tensor) -> Tensor:
    """The same integers in the smallest type that holds them."""
    if not code.numel():
        return code
    low, high = int(code.min()), int(code.max())
    for dtype in (torch.int8, torch.int16, torch.int32):
        if torch.iinfo(dtype).min <= low and high <= torch.iinfo(dtype).max:
            return code.to(dtype)
    return code
