"""Passes the state of a table from the driver to tasks: small files beside it, rebuilt from the log at every start.

Tasks read them when they write. The driver changes them after a commit, before the next batch begins, so nobody reads
while they change. If a driver dies in between, nothing is lost: the next one starts with new files, in a folder of its
own, so that a driver that was suspended and wakes up late changes nothing of them.

The file of a task has a list of its pages, followed by the changes of each commit: both sides process only the change.
A task that was moved to another process reads the whole file once.

Tasks on other machines get copies of these files with their batch (`files_for`, `keep`).
"""

from __future__ import annotations

import os
import secrets
import shutil
from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from deltaworks.errors import TableError
from deltaworks.files import local_side, replace_file
from deltaworks.lakehouse import layout

_IDENTITY_BYTES, _HEADER_BYTES = 16, 4
_DRIVER, _HELD = "driver", "held"
_MIN_REWRITE_BYTES = 64 * 1024
_Held = tuple[str, int, list[tuple[int, int]]]


class PageList(msgspec.Struct):
    """The open pages of one task of a windowed table."""

    batch_id: int = -1
    """The last commit that concerned this task: the pages hold this batch and all before it."""
    closed_before_ms: int = -1
    """Windows that end before are final; -1: none is."""
    paths: list[str] = []
    """Sorted."""

    def change(self, change: PageChange) -> None:
        """Applies a commit."""
        self.batch_id, self.closed_before_ms = change.batch_id, change.closed_before_ms
        for path in change.removed:
            place = bisect_left(self.paths, path)
            if self.paths[place : place + 1] != [path]:
                raise TableError(
                    f"Batch {change.batch_id} replaces {path}, which is not among the open pages of its task.",
                    hint="nothing of the batch was lost; start the pipeline again, which reads them from the log",
                )
            del self.paths[place]
        for path in change.added:
            insort(self.paths, path)


class PageChange(msgspec.Struct, frozen=True, array_like=True):
    """The changes of one commit to the pages of one task."""

    batch_id: int
    closed_before_ms: int
    removed: list[str]
    added: list[str]


class PageListWriter:
    """The driver's side of one task's pages."""

    def __init__(self, control: Path, task: int, pages: PageList) -> None:
        self._path, self.pages = _path(control, task), pages
        self._base_bytes = self._bytes = 0
        self._rewrite()

    def change(self, change: PageChange) -> None:
        """Applies a commit and tells the task."""
        self.pages.change(change)
        if self._bytes > max(_MIN_REWRITE_BYTES, 2 * self._base_bytes):
            self._rewrite()
            return
        with self._path.open("ab") as file:
            self._bytes += file.write(_frame(msgspec.msgpack.encode(change)))

    def _rewrite(self) -> None:
        data = os.urandom(_IDENTITY_BYTES) + _frame(msgspec.msgpack.encode(self.pages))
        replace_file(self._path, data)
        self._base_bytes = self._bytes = len(data)


class PageListReader:
    """The task's side: continues where it stopped, as long as the file is the one it knows."""

    def __init__(self, task: int) -> None:
        self._task = task
        self._identity = b""
        self._position = 0
        self._pages: PageList | None = None

    def read(self, control: Path) -> PageList:
        """The pages as of the last commit; the caller must not change them.

        Args:
            control: the folder of the table's driver.
        """
        try:
            file = _path(control, self._task).open("rb")
        except FileNotFoundError:
            return PageList()
        with file:
            identity = file.read(_IDENTITY_BYTES)
            if identity != self._identity:
                self._position, self._identity, self._pages = _IDENTITY_BYTES, identity, None
            file.seek(self._position)
            frames = list(_frames(file.read()))
            self._position = file.tell()
        if self._pages is None:
            self._pages = msgspec.msgpack.decode(frames.pop(0), type=PageList)
        for frame in frames:
            self._pages.change(msgspec.msgpack.decode(frame, type=PageChange))
        return self._pages


@dataclass(frozen=True)
class Driver:
    """What tasks know of the driver that has opened a table."""

    tag: str
    """Of the query that writes the table."""
    control: Path
    """The folder with what it tells them."""


def open_for(table: Path, tag: str) -> Driver:
    """Makes the folder of a driver that opens a table, and drops those of earlier drivers."""
    root = local_side(table) / layout.CONTROL_FOLDER
    root.mkdir(parents=True, exist_ok=True)
    for path in root.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    driver = Driver(tag, root / secrets.token_hex(8))
    driver.control.mkdir()
    replace_file(root / _DRIVER, f"{tag} {driver.control.name}".encode())
    return driver


def driver_of(table: Path) -> Driver:
    """The driver that has opened a table.

    Raises:
        TableError: no driver has.
    """
    root = local_side(table) / layout.CONTROL_FOLDER
    try:
        tag, name = (root / _DRIVER).read_text().split()
        return Driver(tag, root / name)
    except FileNotFoundError:
        raise TableError(
            f"The Delta table at {table} was not opened by a driver.",
            hint="TableCommitter.open() comes before the first batch",
        ) from None


def files_for(table: Path, task: int) -> dict[str, bytes]:
    """The files that one task of a table reads, by their names: for `keep` on another machine. Last comes the one that
    says which the others are."""
    root = local_side(table) / layout.CONTROL_FOLDER
    try:
        said = (root / _DRIVER).read_bytes()
    except FileNotFoundError:
        return {}
    folder = said.decode().split()[1]
    found = {}
    for path in (_path(root / folder, task), root / folder / _HELD):
        with suppress(FileNotFoundError):
            found[f"{folder}/{path.name}"] = path.read_bytes()
    return {**found, _DRIVER: said}


def keep(table: Path, files: Mapping[str, bytes]) -> None:
    """Writes what the driver's machine has sent (`files_for`), so that tasks find it here as they do there."""
    root = local_side(table) / layout.CONTROL_FOLDER
    for name, content in files.items():
        path = root / name
        try:
            if path.read_bytes() == content:
                continue
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, content)


def publish_held(control: Path, held: Mapping[tuple[str, int], list[tuple[int, int]]]) -> None:
    """Records which offsets an archive holds: topic and partition -> `(start, stop)`."""
    rows = [(topic, partition, spans) for (topic, partition), spans in held.items()]
    replace_file(control / _HELD, msgspec.msgpack.encode(rows))


def read_held(control: Path) -> dict[tuple[str, int], list[tuple[int, int]]]:
    """Inverse of `publish_held`; empty if nothing was recorded."""
    try:
        rows = msgspec.msgpack.decode((control / _HELD).read_bytes(), type=list[_Held])
    except FileNotFoundError:
        return {}
    return {(topic, partition): spans for topic, partition, spans in rows}


def _frame(data: bytes) -> bytes:
    return len(data).to_bytes(_HEADER_BYTES, "big") + data


def _frames(data: bytes) -> Iterator[bytes]:
    position = 0
    while position < len(data):
        begin = position + _HEADER_BYTES
        position = begin + int.from_bytes(data[position:begin], "big")
        yield data[begin:position]


def _path(control: Path, task: int) -> Path:
    return control / f"pages-t{task:04d}"
