"""Files of records: here, in an object store or in HDFS, one per task and batch.

**Exactly once.** A file is named after its task, its checkpoint and its batch, and is written if it is not there. The
same batch has the same rows, so a file that is there is the one that would be written. A batch whose rows are spread
over several folders (`partition_by`) has a file in each; they appear one after the other.
"""

from __future__ import annotations

import gzip
import io
import json
import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from deltaworks.config import Reference
from deltaworks.errors import ConfigurationError, IntentError
from deltaworks.files import LocalFiles, Stored
from deltaworks.sinks.given import needed
from deltaworks.sinks.rows import Rows, times
from deltaworks.topology.external import FileFolder, Given
from deltaworks.topology.nodes.sinks import TableKind
from deltaworks.topology.sinks import SinkBatch, SinkRecord, SinkTask

_INTENT = b"deltaworks.intent"
_NULL = "__HIVE_DEFAULT_PARTITION__"
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")


class NewFiles(Protocol):
    """What a sink needs of `Files`."""

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Writes a file that does not exist yet; False if it exists, and nothing was done."""

    def get(self, name: str) -> Stored | None:
        """The content of a file; None if it does not exist."""


class FolderWriter:
    """Writes the files of one task."""

    def __init__(self, sink: FileFolder, task: SinkTask) -> None:
        self._sink, self._task, self._rows = sink, task, Rows(sink.rows)
        self._files = files(sink)
        self._new: list[tuple[str, bytes]] = []
        self._batch = SinkBatch(-1, "")

    def committed(self) -> SinkBatch | None:
        """None: writing a batch again does no harm."""
        return None

    def write(self, batch: SinkBatch, records: Sequence[SinkRecord[Any, Any]]) -> None:
        """Makes the files in memory."""
        self._batch = batch
        task = self._task
        name = "-".join(
            (_UNSAFE.sub("_", task.pipeline), _UNSAFE.sub("_", task.sink), task.checkpoint, f"{task.task:05d}")
        )
        ending = {"parquet": "parquet", "jsonl": "jsonl.gz" if self._sink.compression == "gzip" else "jsonl"}
        for folder, table in self._parts(self._table(records)):
            file = f"{folder}{name}-{batch.batch:012d}.{ending[self._sink.format]}"
            self._new.append((file, self._encoded(table)))

    def prepare(self) -> None:
        """Nothing can be found out before."""

    def commit(self) -> None:
        """Writes the files that are not there.

        Raises:
            IntentError: one of them is there, with other rows.
        """
        for name, data in self._new:
            if not self._files.put_if_absent(name, data):
                self._require_same(name, data)
        self._new = []

    def abort(self) -> None:
        self._new = []

    def close(self) -> None:
        self.abort()

    def _table(self, records: Sequence[SinkRecord[Any, Any]]) -> pa.Table:
        columns = dict(self._rows.cells(records))
        if self._sink.rows.kind is not TableKind.APPEND:
            operations = ["delete" if record.value is None else "upsert" for record in records]
            columns["op"] = pa.array(operations, pa.string())
        columns["timestamp"] = times([record.timestamp_ms for record in records])
        return pa.table(columns)

    def _parts(self, table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        """Folders below that of the sink, as Hive names them, and their rows in order."""
        names = self._sink.partition_by
        if not names:
            yield "", table
            return
        found: dict[str, list[int]] = {}
        for number, row in enumerate(zip(*(table[name].to_pylist() for name in names), strict=True)):
            folder = "".join(f"{name}={_folder(cell)}/" for name, cell in zip(names, row, strict=True))
            found.setdefault(folder, []).append(number)
        rest = table.drop_columns(list(names))
        for folder, numbers in found.items():
            yield folder, rest.take(pa.array(numbers, pa.int64()))

    def _encoded(self, table: pa.Table) -> bytes:
        if self._sink.format == "parquet":
            sink = io.BytesIO()
            told = table.replace_schema_metadata({_INTENT: self._batch.intent.encode()})
            pq.write_table(told, sink, compression=self._sink.compression)
            return sink.getvalue()
        lines = "".join(json.dumps(row, default=_json, ensure_ascii=False) + "\n" for row in _plain(table)).encode()
        return gzip.compress(lines, mtime=0) if self._sink.compression == "gzip" else lines

    def _require_same(self, name: str, data: bytes) -> None:
        there: Stored | None = self._files.get(name)
        if there is None or there.data == data:
            return
        if self._sink.format == "parquet":
            same = pq.read_schema(pa.BufferReader(there.data)).metadata or {}
            if same.get(_INTENT) == self._batch.intent.encode():
                return
        elif self._sink.compression == "gzip" and gzip.decompress(there.data) == gzip.decompress(data):
            return
        raise IntentError(
            f"File '{name}' of sink '{self._task.sink}' is there, with other rows than batch {self._batch.batch} has.",
            hint="does a stream with a copy of this home write there? Give one of them another folder",
        )


def files(sink: FileFolder) -> NewFiles:
    """The folder of a sink, wherever it is.

    Raises:
        ConfigurationError: its address is of no kind that we know, or what it needs is not installed.
    """
    address = needed(sink.url)
    parts = urlsplit(address)
    match parts.scheme:
        case "" | "file":
            return LocalFiles(Path(parts.path))
        case "s3":
            return _in_store(sink, parts.netloc, parts.path.strip("/"))
        case "webhdfs":
            from deltaworks.sinks.hdfs import HdfsFiles

            return HdfsFiles(sink.url.what, parts)
        case other:
            raise ConfigurationError(
                f"{sink.url.what} is of '{other}'.",
                hint="a local path, s3://bucket/folder or webhdfs://host:port/folder",
            )


def _in_store(sink: FileFolder, bucket: str, prefix: str) -> NewFiles:
    try:
        from deltaworks.object_store import ObjectStoreAccess
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"{sink.url.what} needs the package '{error.name}', which is not installed here.",
            hint="pip install 'deltaworks[s3]', also where tasks run",
        ) from None
    from deltaworks.settings import Settings

    given: dict[str, Any] = {name: _followed(value) for name, value in sink.storage.items()}
    if not given:
        given = {**Settings.from_environment().values.table("s3")}
    ca_file, path_style = given.pop("ca_file", None), given.pop("path_style", False)
    access = ObjectStoreAccess(
        **given, path_style=path_style in (True, "true"), verify=True if ca_file is None else str(ca_file)
    )
    found: NewFiles = access.bucket(bucket).files(prefix)
    return found


def _followed(value: str | Given) -> str | Reference:
    if isinstance(value, str):
        return value
    return value.text or Reference(origin=value.what, env=value.env, file=value.file)


def _folder(cell: Any) -> str:
    """The name of a folder for a cell, as Hive escapes it."""
    if cell is None or cell == "":
        return _NULL
    shown = (
        cell.isoformat() if hasattr(cell, "isoformat") else str(cell).lower() if isinstance(cell, bool) else str(cell)
    )
    escaped = quote(shown, safe=" ()+,-@_~.")
    return escaped.replace(".", "%2E", 1) if escaped.startswith(".") else escaped


def _plain(table: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.to_pylist(maps_as_pydicts="strict")
    return rows


def _json(cell: Any) -> Any:
    if hasattr(cell, "isoformat"):
        return cell.isoformat()
    return b64encode(cell).decode() if isinstance(cell, bytes) else str(cell)
