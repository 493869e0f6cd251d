"""Results in files that hold data only, with a checksum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..doubts.of_chains import Judged
from ..draws import Draws
from ..errors import TRJError
from ..estimate.estimate import Estimate
from ..fit.trace import FitTrace
from ..pilot.report import AuditReport, ModelAudit
from ..space.base import Space
from ..space.saved import space_from_spec
from ..target.model import Truth
from .packed import pack, unpack
from .report import Plan, RunReport, Started
from .variational import Variational

FORMAT = 4


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


def write(path: str | Path, contents: Contents) -> None:
    """Write one file, read by :func:`read`."""
    found = contents
    truth = None
    if found.truth:
        truth = {
            "probabilities": {str(k): float(p) for k, p in found.truth.probabilities.items()},
            "log_evidence": {str(k): float(z) for k, z in found.truth.log_evidence.items()},
            "source": found.truth.source,
        }
    data = {
        "format": FORMAT,
        "space": found.space.spec(),
        "draws": {**vars(found.draws), "code": smallest(found.draws.code)},
        "values": found.values,
        "routes": {r: {k: asdict(e) for k, e in f.items()} for r, f in found.routes.items()},
        "slot_names": list(found.slot_names),
        "coarse": None if found.coarse is None else dict(found.coarse),
        "turns": dict(found.turns),
        "pareto_k": dict(found.pareto_k),
        "crossings": found.crossings,
        "report": _report_data(found.report),
        "truth": truth,
        "onward": as_data(found.onward),
    }
    Path(path).write_bytes(pack(data))


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


def _report_data(report: RunReport) -> dict[str, Any]:
    return {
        **vars(report),
        "fit": asdict(report.fit) if report.fit else None,
        "audit": asdict(report.audit) if report.audit else None,
        "plan": asdict(report.plan),
        "variational": report.variational and report.variational.to_data(draws=False),
        "start": asdict(report.start) if report.start else None,
        "judged": asdict(report.judged) if report.judged else None,
    }


def _report(data: Mapping[str, Any]) -> RunReport:
    report = dict(data)
    report["fit"] = FitTrace(**report["fit"]) if report["fit"] else None
    if report["audit"]:
        models = tuple(ModelAudit(**m) for m in report["audit"]["models"])
        report["audit"] = AuditReport(**{**report["audit"], "models": models})
    if report["variational"]:
        report["variational"] = Variational.from_data(report["variational"])
    report["plan"] = Plan(**report["plan"])
    if report["start"]:
        report["start"] = Started(**report["start"])
    if report["judged"]:
        report["judged"] = Judged(**report["judged"])
    return RunReport(**report)


def _contents(data: dict[str, Any]) -> Contents:
    draws = Draws(**{**data["draws"], "code": data["draws"]["code"].long()})
    return Contents(
        space=space_from_spec(data["space"]),
        draws=draws,
        values=data["values"],
        routes={r: {k: Estimate(**e) for k, e in f.items()} for r, f in data["routes"].items()},
        report=_report(data["report"]),
        truth=Truth(**data["truth"]) if data["truth"] else None,
        crossings=data["crossings"],
        pareto_k=data["pareto_k"],
        slot_names=data["slot_names"],
        coarse=data["coarse"],
        turns=data["turns"],
        onward=data["onward"],
    )


def as_data(onward: Any) -> Any:
    """What a result knows of how to go on, as plain data, or None."""
    return onward.data() if hasattr(onward, "data") else onward


def smallest(code: Tensor) -> Tensor:
    """The same integers in the smallest type that holds them."""
    if not code.numel():
        return code
    low, high = int(code.min()), int(code.max())
    for dtype in (torch.int8, torch.int16, torch.int32):
        if torch.iinfo(dtype).min <= low and high <= torch.iinfo(dtype).max:
            return code.to(dtype)
    return code
