"""Takes rows out of a table in all of its versions, as if they had never been written.

An ordinary delete leaves the rows in older versions, in files that a publication or the trash keeps, and in the bounds
that the log has of each file. Here every file with such rows is written again without them, under another name, and a
new log is made which differs from the old one only in the names, sizes and bounds of these files. The two logs then
change places in one step, and the old files and the old log are deleted. In an object store the log changes version by
version instead (`rewriting_in_store`).

Only while its pipeline does not commit to the table. A reader that has opened it before loses its files. Called again
after a crash, it completes what was begun: the name of a file that is written again follows from that of the old one.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Collection, Container, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from deltaworks import files
from deltaworks.faults import reach
from deltaworks.lakehouse import checkpoints, layout, parquet, rewriting_in_store, row_origins, versions
from deltaworks.lakehouse.log import Commit, DeltaLog, FileEntry
from deltaworks.lakehouse.reading import parquet_file
from deltaworks.lakehouse.renamed_files import Renamed, only_count
from deltaworks.lakehouse.schema import TableSchema
from deltaworks.lakehouse.writes import NewFile
from deltaworks.object_path import ObjectPath

_ASIDE = "_rewritten-"
_NONCE = re.compile(r"-[0-9a-f]{12}\.parquet$")
_EXCHANGE = 2
"""`RENAME_EXCHANGE` of Linux's renameat2."""
_HERE = -100
"""`AT_FDCWD`"""


@dataclass(frozen=True)
class Unwanted:
    """What has to go.

    Args:
        rows: from rows of a file (its columns) to a mask of the unwanted ones; None: there are none.
        text: whether a text of the log, such as a bound, tells something unwanted.
    """

    rows: Callable[[pa.Table], pa.Array | None]
    text: Callable[[str], bool]


@dataclass(frozen=True)
class Taken:
    """What was taken out of a table."""

    rows: int = 0
    """Of its last version."""
    older: int = 0
    """Of files that only older versions, publications or the trash have; a row counts in each of its files."""
    files: int = 0
    """Written again, each once."""


@dataclass(frozen=True)
class _File:
    """A file with unwanted rows."""

    path: str
    """In the table."""
    places: list[Path]
    """Where it is: in the table, kept by publications, in the trash."""
    rows: pa.Table
    unwanted: pa.Array

    @property
    def count(self) -> int:
        """Of the unwanted rows."""
        return int(pc.sum(self.unwanted).as_py())


def find(table: Path, unwanted: Unwanted) -> Taken:
    """What `take` would take; changes nothing.

    Raises:
        TableError: the log is damaged.
    """
    return _taken(_current(table), {file.path: file.count for file in _files(table, unwanted)})


def take(
    table: Path,
    schema: TableSchema | None,
    unwanted: Unwanted,
    id: str,
    metadata: Mapping[str, Any] | None = None,
    *,
    generation: int | None = None,
) -> Taken:
    """Takes the unwanted rows out, durably.

    Args:
        table: folder of the table.
        schema: its schema; None: not one of a pipeline, and written in the common way.
        unwanted: what has to go.
        id: what the names of new files are made from; the same for each try.
        metadata: for the table's history.
        generation: of whoever asks, if the table has a pipeline; in an object store, no earlier one can commit then.

    Raises:
        FencedError: a newer generation has opened the table.
        TableError: the log is damaged.
        OSError: such as a full disk. Readers find the table as before; the next call completes it.
    """
    log = rewriting_in_store.opened(table, generation) if isinstance(table, ObjectPath) else None
    aside = table / f"{_ASIDE}{id}"
    if log is None:
        _settle(table, aside)
    current, counts = _current(table), dict[str, int]()
    renamed: dict[str, NewFile] = {}
    old: list[Path] = []
    for file in _files(table, unwanted):
        counts[file.path] = file.count
        renamed[file.path] = _write(table, schema, file, id)
        old += file.places
    reach(f"rewriting.files_written:{table.name}")
    told = Renamed(renamed, unwanted.text, id)
    if log is None:
        _exchange_logs(table, aside, told, None if schema is None else metadata or {})
    else:
        rewriting_in_store.rename(log, told, metadata or {})
    old += [place for place in _torn_versions(table) if unwanted.text(place.read_text(errors="replace"))]
    _delete(old)
    files.remove_tree(aside)
    files.sync_folder(table)
    begun = {path for path, new in renamed.items() if new.path in current}  # by a call that was cut off
    return _taken(current.keys() | begun, counts)


class Successors:
    """Files that `take` has put in the place of others, for documents outside the table that name files.

    Args:
        table: folder of the table.
        schema: its schema.
        unwanted: what had to go.
        id: as in `take`.
    """

    def __init__(self, table: Path, schema: TableSchema | None, unwanted: Unwanted, id: str) -> None:
        self._schema, self._unwanted, self._id = schema, unwanted, id
        self._places = _places(table) if table.is_dir() else {}
        self._by_nonce = {found[0]: path for path in self._places if (found := _NONCE.search(path)) is not None}

    def of(self, file: NewFile) -> NewFile:
        """What a document has to say in place of a file; the file itself if it was not rewritten."""
        path = self._by_nonce.get(f"-{_nonce(file.path, self._id)}.parquet")
        if path is not None and file.path not in self._places:
            place = self._places[path][0]
            with parquet_file(place) as opened:
                rows = opened.read(use_threads=False)
            return NewFile(path, place.stat().st_size, rows.num_rows, _statistics(rows, _fitting(self._schema, rows)))
        if self._unwanted.text(file.statistics):  # a file that is not there any more
            return msgspec.structs.replace(file, statistics=only_count(file.statistics))
        return file


def _taken(current: Container[str], counts: Mapping[str, int]) -> Taken:
    rows = sum(count for path, count in counts.items() if path in current)
    return Taken(rows, sum(counts.values()) - rows, len(counts))


def _current(table: Path) -> dict[str, FileEntry]:
    log = DeltaLog(table)
    log.load()
    return log.files


def _files(table: Path, unwanted: Unwanted) -> Iterator[_File]:
    found = sorted(_places(table).items())
    for (path, places), data in zip(found, files.contents(places[0] for _, places in found), strict=True):
        with pq.ParquetFile(pa.BufferReader(data)) as file:
            rows = file.read(use_threads=False)
        mask = unwanted.rows(rows)
        if mask is not None and pc.any(mask).as_py():
            yield _File(path, places, rows.replace_schema_metadata(None), mask)


def _places(table: Path) -> dict[str, list[Path]]:
    """Path in the table -> all places of that file; the name of a file is never used for another one."""
    found: dict[str, list[Path]] = {}
    for place, _ in files.walk(table, skip=(layout.LOG_FOLDER, layout.CONTROL_FOLDER)):
        if place.name.endswith(".parquet") and not place.name.startswith("."):
            parts = place.relative_to(table).parts
            kept = parts[0] in (layout.RETAINED_FOLDER, layout.TRASH_FOLDER)
            found.setdefault("/".join(parts[2:] if kept else parts), []).append(place)
    return {path: sorted(places, key=lambda place: (len(place.parts), place)) for path, places in found.items()}


def _torn_versions(table: Path) -> Iterator[Path]:
    """Versions that were not whole, in the trash."""
    return (table / layout.TRASH_FOLDER).glob(f"*/{layout.LOG_FOLDER}/*")


def _write(table: Path, schema: TableSchema | None, file: _File, id: str) -> NewFile:
    """Writes a file without its unwanted rows, wherever it is."""
    left = file.rows.filter(pc.invert(file.unwanted))
    if schema is not None and set(left.column_names) < set(schema.file.names):
        left = parquet.completed(left, schema)
    path = _renamed(file.path, left.num_rows, id)
    targets = [place.with_name(Path(path).name) for place in file.places]
    if (written := _written(targets[0])) is not None:
        left, size = written
    else:
        size = _write_first(table, _fitting(schema, left), file, left, targets[0])
    for target in targets[1:]:
        files.delete([target])
        files.link(targets[0], target)
    files.sync(targets)
    return NewFile(path, size, left.num_rows, _statistics(left, _fitting(schema, left)))


def _written(target: Path) -> tuple[pa.Table, int] | None:
    """Rows and size of a file that an earlier try has written; None: it has to be written.

    An object is whole if it is there, and a version may name it already.
    """
    if not isinstance(target, ObjectPath):
        target.unlink(missing_ok=True)
    elif target.exists():
        data = target.read_bytes()
        with pq.ParquetFile(pa.BufferReader(data)) as file:
            return file.read(use_threads=False).replace_schema_metadata(None), len(data)
    return None


def _write_first(table: Path, fitting: TableSchema | None, file: _File, left: pa.Table, target: Path) -> int:
    """Writes what is left of a file to the first of its places; returns the size."""
    if fitting is None:
        buffer = pa.BufferOutputStream()
        pq.write_table(left, buffer, compression="zstd")
        files.write_new(target, data := buffer.getvalue())
        return int(data.size)
    relative = [path.relative_to(table).as_posix() for path in (file.places[0], target)]
    origins = parquet.origins(table.parent, fitting, relative[0])
    origins = None if origins is None else list(row_origins.chosen(origins, pc.invert(file.unwanted)))
    return parquet.write(table.parent, fitting, relative[1], left, origins).size_bytes


def _delete(places: Collection[Path]) -> None:
    """Removes files durably."""
    files.delete(places)
    for folder in {place.parent for place in places}:
        files.sync_folder(folder)


def _renamed(path: str, rows: int, id: str) -> str:
    """A name of the same kind and place; the same for each try."""
    nonce = _nonce(path, id)
    path = layout.with_rows(path, rows)
    if _NONCE.search(path):
        return _NONCE.sub(f"-{nonce}.parquet", path)
    return f"{path.removesuffix('.parquet')}-{nonce}.parquet"


def _nonce(path: str, id: str) -> str:
    return hashlib.blake2b(f"{id}/{path}".encode(), digest_size=6).hexdigest()


def _fitting(schema: TableSchema | None, rows: pa.Table) -> TableSchema | None:
    """The schema, unless the rows are of columns that the table does not have any more."""
    return schema if schema is not None and rows.schema.names == schema.file.names else None


def _statistics(rows: pa.Table, fitting: TableSchema | None) -> str:
    if fitting is None:
        return json.dumps({"numRecords": rows.num_rows})
    return parquet.statistics(rows, fitting.statistics)


def _exchange_logs(table: Path, aside: Path, told: Renamed, metadata: Mapping[str, Any] | None) -> None:
    """Makes the new log and lets it change places with the old one, if it is another one.

    Args:
        table: folder of the table.
        aside: a folder for the new log, and then for the old one.
        told: what the new one says.
        metadata: for the table's history; None: it is not told.
    """
    if (log := _make_log(table, aside, told)) is None:
        return
    if metadata is not None:
        _commit(log, told.files, metadata)
    checkpoints.write(aside, log.state())
    reach(f"rewriting.log_made:{table.name}")
    _exchange(aside / layout.LOG_FOLDER, table / layout.LOG_FOLDER)
    _bring_later(aside / layout.LOG_FOLDER, table / layout.LOG_FOLDER)
    reach(f"rewriting.exchanged:{table.name}")


def _make_log(table: Path, aside: Path, told: Renamed) -> DeltaLog | None:
    """The log with other names; None: it names no such file and tells nothing unwanted."""
    source, target = table / layout.LOG_FOLDER, aside / layout.LOG_FOLDER
    files.make_folder(target)
    changed = False
    for number in versions.numbers(source):
        name = versions.file_name(number)
        data = told.commit((source / name).read_bytes())
        changed |= data is not None
        _put(source / name, target / name, data)
    for number, parts in versions.starts(source):
        log = DeltaLog(table)
        log.load(up_to=number)
        if (state := told.state(log.state())) is None:
            for part in parts:
                _put(part, target / part.name, None)
        else:
            changed = True
            made = checkpoints.write(aside, state)
            os.utime(made, ns=(parts[0].stat().st_atime_ns, parts[0].stat().st_mtime_ns))
    if not changed:
        return None
    (target / versions.LAST_CHECKPOINT).unlink(missing_ok=True)
    made_log = DeltaLog(aside)
    made_log.load()
    return made_log


def _put(source: Path, target: Path, data: bytes | None) -> None:
    """Writes a file of the log with the time of the old one; without data, the old one itself."""
    if data is None:
        files.link(source, target)
        return
    files.replace_file(target, data, durable=True)
    found = source.stat()
    os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))


def _commit(log: DeltaLog, renamed: Mapping[str, NewFile], metadata: Mapping[str, Any]) -> None:
    """Tells the history about it; files without rows go. So the driver finds the files that our last commit left."""
    empty = [new.path for new in renamed.values() if not new.rows and new.path in log.files]
    log.commit(Commit(removed=empty, data_change=False, operation="ERASE", metadata=metadata))


def _exchange(one: Path, other: Path) -> None:
    """Lets two folders of one file system change places, durably; in one step where the system can."""
    if not _exchanged(one, other):
        other.rename(_between(one))
        one.rename(other)
    files.sync_folder(one.parent)
    files.sync_folder(other.parent)


def _bring_later(old: Path, new: Path) -> None:
    """Brings versions that came while the new log was made: a table of no pipeline may have several writers."""
    known = versions.numbers(new)
    for number in versions.numbers(old):
        if number > max(known, default=-1):
            files.link(old / versions.file_name(number), new / versions.file_name(number))
            files.sync_folder(new)


def _between(log: Path) -> Path:
    """Where the old log is while the new one takes its place in several steps."""
    return log.with_name("old-log")


def _settle(table: Path, aside: Path) -> None:
    """Throws away what a call has left that was cut off; the old log comes back if the table has none."""
    if not (table / layout.LOG_FOLDER).exists() and _between(aside / layout.LOG_FOLDER).exists():
        _between(aside / layout.LOG_FOLDER).rename(table / layout.LOG_FOLDER)
        files.sync_folder(table)
    shutil.rmtree(aside, ignore_errors=True)


def _exchanged(one: Path, other: Path) -> bool:
    if (renameat2 := _renameat2()) is None:
        return False
    if renameat2(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0:
        return True
    error = ctypes.get_errno()
    if error in (errno.EINVAL, errno.ENOSYS):  # a file system that cannot
        return False
    raise OSError(error, os.strerror(error), str(one), None, str(other))


@cache
def _renameat2() -> Callable[[int, bytes, int, bytes, int], int] | None:
    """Linux's call, where there is one."""
    return getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
