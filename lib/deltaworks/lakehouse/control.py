"""What the driver tells tasks about a table: small files beside it, rebuilt from the Delta log at every start.

A task reads them when it writes; the driver replaces them after a commit, before the next batch begins.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from deltaworks.errors import TableError
from deltaworks.lakehouse import layout


class TaskPages(msgspec.Struct, frozen=True):
    """The open pages of one task of a windowed table."""

    batch_id: int
    """The pages hold this batch and all before it; the last commit that concerned this task."""
    closed_before_ms: int
    """Windows that end before are final; -1: none is."""
    paths: list[str]
    """Sorted."""


NO_PAGES = TaskPages(-1, -1, [])


def publish_query(table: Path, tag: str) -> None:
    """Says which query writes the table."""
    folder = table / layout.CONTROL_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    layout.write_atomically(folder / "query", tag.encode())


def read_query(table: Path) -> str:
    """The tag of the query that writes the table.

    Raises:
        TableError: no driver has opened the table.
    """
    try:
        return (table / layout.CONTROL_FOLDER / "query").read_text()
    except FileNotFoundError:
        raise TableError(
            f"The Delta table at {table} was not opened by a driver.",
            hint="TableCommitter.open() comes before the first batch",
        ) from None


def publish_pages(table: Path, task: int, pages: TaskPages) -> None:
    """Replaces what `read_pages` returns."""
    layout.write_atomically(_path(table, task), msgspec.msgpack.encode(pages))


def read_pages(table: Path, task: int) -> TaskPages:
    """The pages of a task as of the last commit that changed them."""
    try:
        return msgspec.msgpack.decode(_path(table, task).read_bytes(), type=TaskPages)
    except FileNotFoundError:
        return NO_PAGES


def forget_pages(table: Path) -> None:
    """Removes what earlier drivers published."""
    for path in (table / layout.CONTROL_FOLDER).glob("pages-*"):
        path.unlink()


def _path(table: Path, task: int) -> Path:
    return table / layout.CONTROL_FOLDER / f"pages-t{task:04d}"
