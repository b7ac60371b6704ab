"""How far restores that are not done have come, as the tasks of this machine say: a small file per task.

A task tells its driver nothing before its batch ends, and a restore of a large store is a batch that takes long. So the
heartbeat shows what is here. It may be lost.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from deltaworks.files import is_hidden, remove_tree, replace_file


class Restoring(msgspec.Struct, frozen=True, kw_only=True):
    """A restore that goes on."""

    done: int
    """Entries that are in the store."""
    total: int
    """Entries that have to be."""


def note(folder: Path, task: str, restoring: Restoring) -> None:
    """Notes how far a task's restore has come."""
    replace_file(folder / str(os.getpid()) / task, msgspec.json.encode(restoring))


def ended(folder: Path, task: str) -> None:
    """Forgets it."""
    (folder / str(os.getpid()) / task).unlink(missing_ok=True)


def going_on(folder: Path) -> Mapping[str, Restoring]:
    """Task -> how far its restore has come, in all processes that run."""
    found: dict[str, Restoring] = {}
    for file in sorted(folder.glob("*/*")):
        if is_hidden(file.name) or not Path(f"/proc/{file.parent.name}").exists():
            continue
        try:
            found[file.name] = msgspec.json.decode(file.read_bytes(), type=Restoring)
        except (FileNotFoundError, msgspec.DecodeError):  # it has just ended
            continue
    return found


def clear(folder: Path) -> None:
    """Forgets what an earlier driver's processes have noted."""
    remove_tree(folder)
