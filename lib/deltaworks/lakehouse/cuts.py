"""Consistent cuts: the versions of all tables of a pipeline as of one batch, for readers of every engine.

The driver commits a batch one table after the other, and snapshots of KTables follow. So a reader that opens each table
at its latest version gets some with a batch and some without it. A cut names versions that belong together:

```
<tables>/_cuts/<pipeline>/latest.json     the newest cut, replaced atomically
<tables>/_cuts/<pipeline>/<hour>.jsonl    the cuts of a UTC hour, one per line
```

A cut is written after the commits that it names. The cuts of an hour are synced when it is over; until then a loss of
power may take some of them, and the newest one until the next batch. In an object store the file of an hour is replaced
every half a minute; a driver that is killed takes the cuts since then with it, but for the newest. A cut holds for the
tables of its query only, so tables that were made anew do not match it. How long cuts and their files stay:
`retention`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote

import msgspec
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from deltaworks.clock import ticks_s
from deltaworks.errors import ConfigurationError, ConflictError
from deltaworks.files import Stored, files_in, replace_file, swap, sync
from deltaworks.lakehouse.log import QUERY_PROPERTY
from deltaworks.lakehouse.reading import delta_table
from deltaworks.object_path import ObjectPath

FORMAT = 1
FOLDER = "_cuts"
_LATEST = "latest.json"
_HOUR = "%Y-%m-%dT%H.jsonl"
_EVERY_S = 30.0
_NO_VERSION = '"-"'


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """The tables of a pipeline as of one batch."""

    format: int = FORMAT
    pipeline: str
    query: str
    """Identity of the checkpoint that writes the tables; a table has it as property `deltaworks.query`."""
    batch_id: int
    """The tables hold this batch and all before it."""
    at_ms: int
    """When the tables were so, in Unix milliseconds."""
    tables: dict[str, int]
    """Table -> its version."""

    @property
    def at(self) -> datetime:
        return datetime.fromtimestamp(self.at_ms / 1000, UTC)


class CutWriter:
    """Writes the cuts of one pipeline; for the only committer of its tables.

    In an object store, a committer that was replaced may still try. It has read the newest cut when it began, and
    replaces only that one, so it writes nothing over a cut of its successor.

    Args:
        root: folder of all tables.
        pipeline: its name.
    """

    def __init__(self, root: Path, pipeline: str) -> None:
        self._folder = folder(root, pipeline)
        self._newest = files_in(self._folder).get(_LATEST) if isinstance(root, ObjectPath) else None
        self._hour = ""
        self._lines: list[bytes] = []
        """The cuts of the hour that are in an object store, which cannot append to a file, or will be there soon."""
        self._read: Stored | None = None
        """The file of the hour, as it was read or written last."""
        self._stored, self._stored_s = 0, 0.0
        """How many of them are there, and since when."""

    def write(self, cut: Cut) -> None:
        """Makes a cut the newest.

        Raises:
            ConflictError: another committer has written one meanwhile; nothing was written.
        """
        line = msgspec.json.encode(cut) + b"\n"
        self._replace_latest(line[:-1])
        hour = cut.at.strftime(_HOUR)
        if isinstance(self._folder, ObjectPath):
            self._keep(hour, line)
            return
        if hour != self._hour:
            if (over := self._folder / self._hour).is_file():
                sync([over])
            self._hour = hour
        with (self._folder / hour).open("ab") as file:
            file.write(line)

    def _replace_latest(self, data: bytes) -> None:
        if not isinstance(self._folder, ObjectPath):
            replace_file(self._folder / _LATEST, data)
            return
        if (written := _swapped(self._folder, _LATEST, data, self._newest)) is None:
            raise ConflictError(
                f"Another committer has written {self._folder / _LATEST} meanwhile.",
                hint="does another driver run this pipeline? See `deltaworks status`",
            )
        self._newest = written

    def close(self) -> None:
        """Makes sure that all cuts are where readers look for earlier ones."""
        if self._stored < len(self._lines):
            written = _swapped(self._folder, self._hour, b"".join(self._lines), self._read)
            self._read = written or self._read  # a successor has written it: it has more
            self._stored, self._stored_s = len(self._lines), ticks_s()

    def _keep(self, hour: str, line: bytes) -> None:
        if hour != self._hour:
            self.close()
            self._read = files_in(self._folder).get(hour)
            there = [] if self._read is None else self._read.data.splitlines(keepends=True)
            self._hour, self._lines, self._stored = hour, there, len(there)
        self._lines.append(line)
        if ticks_s() >= self._stored_s + _EVERY_S:
            self.close()


def _swapped(folder: Path, name: str, data: bytes, read: Stored | None) -> Stored | None:
    """What is written in place of what was read; None: somebody else has written meanwhile.

    If a successor has written since, it has a version that nothing has: only it may replace its own.
    """
    files = files_in(folder)
    if not swap(files, name, data, read):
        return None
    found = files.get(name)
    return found if found is not None and found.data == data else Stored(data, _NO_VERSION)


def folder(root: Path, pipeline: str) -> Path:
    """Where the cuts of a pipeline are."""
    return root / FOLDER / pipeline


def pipelines(root: Path) -> list[str]:
    """The pipelines below `root` that have cuts."""
    return sorted(path.name for path in (root / FOLDER).iterdir()) if (root / FOLDER).is_dir() else []


def latest(root: Path, pipeline: str) -> Cut | None:
    """The newest cut of a pipeline; None: it has none that can be read."""
    with suppress(FileNotFoundError):
        return _decoded((folder(root, pipeline) / _LATEST).read_bytes())
    return None


def as_of(root: Path, pipeline: str, time: datetime) -> Cut | None:
    """The last cut at a time or before; None: there is none from then, or none any more."""
    newest = latest(root, pipeline)
    if newest is not None and newest.at <= time:
        return newest
    until, until_ms = time.astimezone(UTC).strftime(_HOUR), time.timestamp() * 1000
    for file in sorted(folder(root, pipeline).glob("*.jsonl"), reverse=True):
        if file.name <= until:
            found = [cut for cut in _cuts_in(file) if cut.at_ms <= until_ms]
            if found:
                return max(found, key=lambda cut: cut.at_ms)
    return None


def required(root: Path, pipeline: str, at: datetime | None = None) -> Cut:
    """The newest cut of a pipeline, or the last one at a time or before.

    Raises:
        ConfigurationError: there is no such pipeline, or no cut from then; says since when there are some.
    """
    cut = latest(root, pipeline) if at is None else as_of(root, pipeline, at)
    if cut is None:
        begin = first(root, pipeline)
        known = f"they are known since {begin.at:%Y-%m-%d %H:%M:%S} UTC" if begin is not None else None
        raise ConfigurationError(
            f"The tables of the pipeline '{pipeline}' {'' if at is None else f'at {at} '}are not known.",
            hint=known or f"pipelines with tables: {', '.join(pipelines(root)) or 'none yet'}",
        )
    return cut


def first(root: Path, pipeline: str) -> Cut | None:
    """The oldest cut that is still known."""
    files = sorted(folder(root, pipeline).glob("*.jsonl"))
    return next((cut for file in files for cut in _cuts_in(file)), None)


def hour_of(file: Path) -> datetime:
    """The hour whose cuts a file has."""
    return datetime.strptime(file.name, _HOUR).replace(tzinfo=UTC)


def hour_file(root: Path, cut: Cut) -> Path:
    """The file of the hour of a cut."""
    return folder(root, cut.pipeline) / cut.at.strftime(_HOUR)


def last_in(file: Path) -> Cut | None:
    """The last cut of an hour that can be read; None: there is none."""
    try:
        lines = file.read_bytes().splitlines()
    except FileNotFoundError:
        return None
    return next((cut for line in reversed(lines) if (cut := _decoded(line)) is not None), None)


def opened(root: Path, cut: Cut, name: str) -> DeltaTable | None:
    """A table as the cut says; None: that version, or the whole table, is gone, or the table was made anew since."""
    with suppress(DeltaError):
        table = delta_table(root / name, version=cut.tables[name])
        if _is_of(table, cut):
            return table
    return None


def readable(root: Path, cut: Cut, name: str) -> DeltaTable:
    """A table as the cut says; all of its files are there.

    Raises:
        ConfigurationError: it was made anew since, or its log or files of then are gone.
    """
    table = opened(root, cut, name)
    gone = [] if table is None else missing(root / name, table)
    if table is None or gone:
        why = _why_not_opened(root, cut, name) if table is None else f"{len(gone)} of its files are gone"
        raise ConfigurationError(
            f"Table '{name}' as of batch {cut.batch_id}, {cut.at:%Y-%m-%d %H:%M:%S} UTC, cannot be read any more: "
            f"{why}.",
            hint="choose a later time; [retention] in deltaworks.toml says how long versions stay",
        )
    return table


def _why_not_opened(root: Path, cut: Cut, name: str) -> str:
    with suppress(DeltaError):
        if _is_of(delta_table(root / name), cut):
            return f"version {cut.tables[name]} is gone from its log"
        return "it was made anew since"
    return "it is not there any more"


def _is_of(table: DeltaTable, cut: Cut) -> bool:
    """Whether the table has been the pipeline's since before the cut."""
    return bool(table.metadata().configuration.get(QUERY_PROPERTY) == cut.query)


def missing(path: Path, table: DeltaTable) -> list[str]:
    """The files of a table in a folder that are not there any more."""
    if isinstance(path, ObjectPath):
        there = {file.key for file, _ in path.files()}
        return [file for file in table.file_uris() if ObjectPath(unquote(file)).key not in there]
    return [file for file in table.file_uris() if not Path(file.removeprefix("file://")).exists()]


def _cuts_in(file: Path) -> Iterator[Cut]:
    with suppress(FileNotFoundError):
        for line in file.read_bytes().splitlines():
            if (cut := _decoded(line)) is not None:
                yield cut


def _decoded(line: bytes) -> Cut | None:
    """None: the line was cut off, or another version of deltaworks wrote it."""
    with suppress(msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError):
        cut = msgspec.json.decode(line, type=Cut)
        return cut if cut.format == FORMAT else None
    return None
