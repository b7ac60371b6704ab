"""How far restores that are not done have come, as the tasks of this machine say: a note per task (`task_notes`).

A restore of a large store is a batch that takes long, and the heartbeat shows meanwhile how far it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from deltaworks.control import task_notes


class Restoring(msgspec.Struct, frozen=True, kw_only=True):
    """A restore that goes on."""

    done: int
    """Entries that are in the store."""
    total: int
    """Entries that have to be."""


def note(folder: Path, task: str, restoring: Restoring) -> None:
    """Notes how far a task's restore has come."""
    task_notes.note(folder, task, msgspec.json.encode(restoring))


def ended(folder: Path, task: str) -> None:
    """Forgets it."""
    task_notes.note(folder, task, None)


def going_on(folder: Path) -> Mapping[str, Restoring]:
    """Task -> how far its restore has come, in all processes that run."""
    found: dict[str, Restoring] = {}
    for task, content in task_notes.noted(folder):
        with suppress(msgspec.DecodeError):
            found[task] = msgspec.json.decode(content, type=Restoring)
    return found
