"""Results from files, and what a run that is saved in a folder has found so far."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from ..checkpoint.events import read_events
from ..checkpoint.folder import Found, read_folder
from ..doubts.of_chains import Judged
from ..draws import Draws
from ..errors import TRJError
from ..result import result as of_result
from ..result.report import RunReport
from ..result.result import Result
from ..space.saved import space_from_spec
from .rounds_saved import ROUNDS, onward_of
from .shards import numbers_of


def load(path: str | Path) -> Result:
    """Read a file written by :meth:`Result.save`, or the result so far of a run in a folder.

    Nothing in it is executed. Of a folder, see ``checkpoint`` of :meth:`trjmcmc.TRJSampler.run`,
    the draws of its last head are shown, a run may be writing there meanwhile; evidences through
    the map, which are made when a run ends, are not among them.

    Raises:
        TRJError: The file is of another format, or was damaged: its checksum says so; or the
            folder holds no draws yet.
    """
    if not Path(path).is_dir():
        return of_result.load(path)
    found = read_folder(path)
    if found is None or not found.head["kept"]:
        raise TRJError(f"{path}: {_without_draws(path)}")
    return _so_far(found)


def _without_draws(folder: str | Path) -> str:
    """What a run does that has kept no draw yet."""
    stages = [e["stage"] for e in read_events(folder) if e["event"] == "stage"]
    if not stages:
        return "no run is saved there"
    return f"the run there has no draws yet; its latest stage is {stages[-1]!r}"


def _so_far(found: Found) -> Result:
    head, first = found.head, found.head["left_out"]  # the burn-in until now

    def column(name: str) -> Tensor:
        return torch.cat([s[name] for s in found.segments])[first:].transpose(0, 1).contiguous()

    drawn = [s for s in found.segments if len(s["code"])]
    values = {
        name: torch.cat([s["values"][name] for s in drawn])[first:].transpose(0, 1)
        for name in drawn[0]["values"]
    }
    in_shards = head[ROUNDS]["generator"].dim() > 1
    shards = head["settings"]["shards"] if in_shards else 1
    record = Draws(
        column("code").long(),
        column("theta"),
        column("log_joint"),
        head["thin"],
        run=numbers_of(shards, head["shard"]["code"].shape[0]),
    )
    report = RunReport(
        seconds={"until now": head["spent"]},
        steps=record.n_draws * record.thin,
        seed=head["settings"]["seed"],
        evaluations=head["account"]["evaluations"],
        gradients=head["account"]["gradients"],
        judged=Judged(**head["judged"]) if head.get("judged") else None,
    )
    return Result(
        space_from_spec(head["space"]),
        record,
        values,
        {},
        report,
        slot_names=head["slot_names"],
        turns=head["turns"],
        onward=None if in_shards else onward_of(head, found.plan),
    )
