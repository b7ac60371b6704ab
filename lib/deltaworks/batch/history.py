"""What the history of a batch job's table says: which run has computed which day, and from which versions of tables."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from deltaworks.batch.job import DAY
from deltaworks.lakehouse import catalog, layout
from deltaworks.lakehouse.reading import delta_table

FORMAT = 1
_COMMITS = 400


class Read(msgspec.Struct, frozen=True):
    """The tables of a pipeline that a run has read."""

    query: str
    batch: int
    tables: dict[str, int]
    """Table -> its version."""


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """The user metadata of a commit."""

    format: int = FORMAT
    job: str
    day: dt.date
    run: str
    read: Mapping[str, Read]
    """Pipeline -> what was read of it."""

    @property
    def text(self) -> str:
        return msgspec.json.encode(self).decode()


def days_in_table(root: Path, job: str) -> list[dt.date]:
    """The days of which the table of a job has rows; none: there is no table yet.

    Args:
        root: folder of all tables.
        job: its name.
    """
    if job not in catalog.table_names(root):
        return []
    return sorted({dt.date.fromisoformat(layout.partition_of(path)[DAY]) for path in catalog.log_of(root, job).files})


def computed_days(root: Path, job: str) -> set[dt.date]:
    """The days that the last commits of a job's table have replaced; empty: there is no table yet.

    Args:
        root: folder of all tables.
        job: its name.
    """
    if not (root / job / layout.LOG_FOLDER).is_dir():
        return set()
    found: set[dt.date] = set()
    for commit in delta_table(root / job).history(_COMMITS):
        with suppress(msgspec.DecodeError, msgspec.ValidationError):  # a commit of another version, or of another tool
            note = msgspec.json.decode(commit.get("userMetadata") or "", type=Note)
            if (note.format, note.job) == (FORMAT, job):
                found.add(note.day)
    return found
