"""The plan that a checkpoint was made for, which is stored next to it and compared at every start."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import msgspec

from deltaworks import formats
from deltaworks.errors import IncompatibleCheckpointError
from deltaworks.files import replace_file
from deltaworks.kafka.ranges import Offsets
from deltaworks.topology import fingerprint as fingerprints
from deltaworks.topology.plan import Plan

FORMAT = 5


class CheckpointPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a checkpoint depends on and that cannot change during its life."""

    format: int = FORMAT
    lineage: str
    """Random; identity of the stream over all its homes and checkpoints, see `control.lineage`."""
    query_id: str
    """Random; part of every transaction id, so that a new checkpoint never meets the ids of an old one."""
    fingerprint: dict[str, Any]
    partitions: dict[str, int]
    """Partitions of every source topic."""
    tasks: tuple[int, ...]
    """Number of tasks per stage."""
    shards: int
    """Shards per stage (see `spark.routes`), chosen when the checkpoint was made; more need another one
    (`spark.widening`)."""
    first_batch: int = 0
    """Spark counts from 0 in every checkpoint. What is called a batch id here is Spark's plus this, so that batches,
    their record and the rows of changelogs go on from one checkpoint of a pipeline to the next."""
    start: Offsets | None = None
    """Where its source begins, including global tables and the last tick; None: see `Settings.start_offsets`."""
    topics: dict[str, str] = {}
    """The ids of the topics at `start`, as far as the batches before it have read them."""
    control_topic: str = ""
    """Id of the pipeline's control topic; a recreated one has lost the markers of committed batches."""
    tables: str | None = None
    """Address of the object store's folder with its tables; None: they are in the home."""
    initial_state: str | None = None
    """Folder next to the plan with the initial state of its tasks (see `initial_state`); None: empty stores."""


def open_plan(
    path: Path,
    pipeline: str,
    fingerprint: dict[str, Any],
    partitions: dict[str, int],
    tasks: tuple[int, ...],
    shards: int,
    lineage: str | None = None,
    control_topic: str = "",
    tables: str | None = None,
) -> CheckpointPlan:
    """The stored plan of the checkpoint, written at its first start; a later start keeps the stored shards.

    A plan that fits but differs (an additional field in a value) replaces the stored one, so that the next start is
    compared with it.

    Raises:
        IncompatibleCheckpointError: topology, stores or partitions changed in a way that the state cannot follow.
    """
    stored = fitting_plan(path, pipeline, fingerprint, partitions, tasks, tables)
    if stored is not None and stored.fingerprint == fingerprint:
        return stored
    if stored is not None:
        plan = msgspec.structs.replace(stored, fingerprint=fingerprint)
    else:
        plan = CheckpointPlan(
            lineage=lineage or uuid.uuid4().hex[:12],
            control_topic=control_topic,
            tables=tables,
            query_id=uuid.uuid4().hex[:12],
            fingerprint=fingerprint,
            partitions=partitions,
            tasks=tasks,
            shards=shards,
        )
    write_plan(path, plan)
    return plan


def usable(plan: Plan, tasks: tuple[int, ...], cores: int) -> int:
    """How many of some cores the widest stage of a plan can use.

    Args:
        plan: of the stream.
        tasks: per stage.
        cores: that there are.
    """
    return min(cores, max(1 if group.cyclic else tasks[group.stages[0]] for group in plan.groups))


def write_plan(path: Path, plan: CheckpointPlan) -> None:
    """Replaces the file atomically and durably: without it, the state next to it cannot be identified."""
    replace_file(path, msgspec.json.format(msgspec.json.encode(plan), indent=1), durable=True)


def stored_plan(path: Path) -> CheckpointPlan | None:
    """The stored plan of a checkpoint; None if there is none yet.

    Raises:
        IncompatibleCheckpointError: another version of deltaworks wrote it, or it is torn.
    """
    return formats.read(
        path,
        CheckpointPlan,
        FORMAT,
        f"The checkpoint's plan {path}",
        other=f"deploy the version of deltaworks that wrote it, or {_start_over(path)}",
        damaged=f"restore a copy of the pipeline's whole folder, or {_start_over(path)}",
    )


def fitting_plan(
    path: Path,
    pipeline: str,
    fingerprint: dict[str, Any],
    partitions: dict[str, int],
    tasks: tuple[int, ...],
    tables: str | None = None,
) -> CheckpointPlan | None:
    """The stored plan, if there is one; writes nothing.

    Raises:
        IncompatibleCheckpointError: as in `open_plan`.
    """
    stored = stored_plan(path)
    if stored is None:
        return None
    if stored.tables != tables:
        raise IncompatibleCheckpointError(
            f"The tables of pipeline {pipeline!r} are {_place(stored.tables)}, but the settings say that they are "
            f"{_place(tables)}: half of its history would be there.",
            hint=f"tables = '{stored.tables}' in deltaworks.toml"
            if stored.tables
            else "leave `tables` (DELTAWORKS_TABLES) unset for this home; a new one may have them in an object store",
        )
    widths = [
        *_changed("partitions of the source topics", stored.partitions, partitions),
        *_changed("tasks per stage", stored.tasks, tasks),
    ]
    changes = [*widths, *map(str, fingerprints.differences(stored.fingerprint, fingerprint))]
    if changes:
        only_widths = f"deltaworks rescale {pipeline} spreads its state, or says why it cannot; else "
        raise IncompatibleCheckpointError(
            "\n  ".join([f"the checkpoint of pipeline {pipeline!r} was made for another plan:", *changes]),
            hint=f"{only_widths if changes == widths else ''}deploy the old code again, or {_start_over(path)}",
        )
    return stored


def _place(tables: str | None) -> str:
    return "in the home" if tables is None else f"at {tables}"


def _start_over(path: Path) -> str:
    checkpoints = path.parents[1]
    everything = checkpoints.parent if checkpoints.name == "checkpoints" else path.parent
    return f"start with a new checkpoint: move {everything} away, and the pipeline starts over from its start offsets"


def _changed(what: str, old: object, new: object) -> list[str]:
    return [] if old == new else [f"{what}: was {old}, is {new}"]
