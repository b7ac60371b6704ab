"""A checkpoint belongs to a plan: what it was made for is stored beside it and compared at every start."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import msgspec

from deltaworks.errors import IncompatibleCheckpointError

FORMAT = 1


class CheckpointPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a checkpoint depends on and cannot change during its life."""

    format: int = FORMAT
    generation: str
    """Random; part of every transaction id, so that a new checkpoint never meets the ids of an old one."""
    fingerprint: dict[str, Any]
    partitions: dict[str, int]
    """Partitions of every source topic."""
    tasks: tuple[int, ...]
    """Number of tasks per stage."""
    slots: int
    """Slots per stage (see `routes.Routes`), chosen when the checkpoint was made."""


def open_plan(
    path: Path,
    pipeline: str,
    fingerprint: dict[str, Any],
    partitions: dict[str, int],
    tasks: tuple[int, ...],
    slots: int,
) -> CheckpointPlan:
    """The stored plan of the checkpoint, written at its first start; a later start keeps the stored slots.

    Raises:
        IncompatibleCheckpointError: topology, stores or partitions changed in a way the state cannot follow.
    """
    if not path.exists():
        plan = CheckpointPlan(
            generation=uuid.uuid4().hex[:12], fingerprint=fingerprint, partitions=partitions, tasks=tasks, slots=slots
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".tmp")
        temporary.write_bytes(msgspec.json.format(msgspec.json.encode(plan), indent=1))
        temporary.replace(path)
        return plan
    stored = msgspec.json.decode(path.read_bytes(), type=CheckpointPlan)
    changes = [
        *_changes("format", stored.format, FORMAT),
        *_changes("partitions", stored.partitions, partitions),
        *_changes("tasks", list(stored.tasks), list(tasks)),
        *_changes("topology", stored.fingerprint, msgspec.json.decode(msgspec.json.encode(fingerprint))),
    ]
    if changes:
        raise IncompatibleCheckpointError(
            "\n  ".join([f"the checkpoint of pipeline {pipeline!r} was made for another plan:", *changes]),
            hint="deploy the old code again, or start a new generation: "
            f"move {path.parent} away, and the pipeline starts over from its start offsets",
        )
    return stored


def _changes(where: str, old: Any, new: Any) -> list[str]:
    """Every difference of two JSON trees, by path."""
    if type(old) is type(new) is dict:
        keys = sorted({*old, *new})
        return [c for k in keys for c in _changes(f"{where}.{k}", old.get(k), new.get(k))]
    if type(old) is type(new) is list and len(old) == len(new):
        return [c for i, (a, b) in enumerate(zip(old, new, strict=True)) for c in _changes(f"{where}[{i}]", a, b)]
    return [] if old == new else [f"{where}: was {_text(old)}, is {_text(new)}"]


def _text(value: Any) -> str:
    return "absent" if value is None else msgspec.json.encode(value).decode()
