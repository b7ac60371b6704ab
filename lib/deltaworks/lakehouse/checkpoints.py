"""Checkpoints of a table's log: a version as one Parquet file, from which readers start.

We write them ourselves. One of any version is made from the log on disk or from the state in memory, so that versions
worth keeping outlive the commits before them (`retention`). And it names only removed files that are still there for
readers: delta-rs would name all that were removed within the table's retention, which is months.

Written for Delta's protocol (1, 2).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from deltaworks import files
from deltaworks.faults import reach
from deltaworks.lakehouse import layout, versions
from deltaworks.lakehouse.reading import parquet_file

if TYPE_CHECKING:
    from deltaworks.lakehouse.log import FileEntry

_TEXTS = pa.map_(pa.string(), pa.string())
_ADD = pa.struct(
    {
        "path": pa.string(),
        "partitionValues": _TEXTS,
        "size": pa.int64(),
        "modificationTime": pa.int64(),
        "dataChange": pa.bool_(),
        "stats": pa.string(),
    }
)
_REMOVE = pa.struct({"path": pa.string(), "deletionTimestamp": pa.int64(), "dataChange": pa.bool_()})
_SCHEMA = pa.schema(
    {
        "protocol": pa.struct({"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32()}),
        "metaData": pa.struct(
            {
                "id": pa.string(),
                "name": pa.string(),
                "description": pa.string(),
                "format": pa.struct({"provider": pa.string(), "options": _TEXTS}),
                "schemaString": pa.string(),
                "partitionColumns": pa.list_(pa.string()),
                "configuration": _TEXTS,
                "createdTime": pa.int64(),
            }
        ),
        "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
        "add": _ADD,
        "remove": _REMOVE,
    }
)
_RARE = ("protocol", "metaData", "txn")
_MANY = {
    "add": ("path", "size", "stats", "modificationTime", "partitionValues"),
    "remove": ("path", "deletionTimestamp"),
}
"""Actions that a log has many of, and what we need of them."""


@dataclass(frozen=True, kw_only=True)
class State:
    """A table at one version."""

    version: int
    protocol: Mapping[str, Any]
    definition: Mapping[str, Any]
    """Delta's `metaData`."""
    transactions: Mapping[str, int]
    """With the one that stands for the files."""
    files: Mapping[str, FileEntry]
    removed: Sequence[tuple[int, str]]
    """Time (ms) of removal and path of files that are still on disk."""


def write(table: Path, state: State) -> Path:
    """Writes the checkpoint of a version, durably and readable to its end; readers start from the newest one.

    Args:
        table: folder of the table.
        state: what the table was at that version.

    Returns:
        The file.
    """
    folder = table / layout.LOG_FOLDER
    path = folder / versions.checkpoint_name(state.version)
    data = _encoded(state)
    files.replace_file(path, data, durable=True)
    reach(f"delta.checkpoint_written:{table.name}")
    versions.check_checkpoint([path])
    hint = versions.last_checkpoint(folder)
    if hint is None or hint < state.version:
        actions = 2 + len(state.transactions) + len(state.files) + len(state.removed)
        found = {"version": state.version, "size": actions, "sizeInBytes": len(data), "numOfAddFiles": len(state.files)}
        files.replace_file(folder / versions.LAST_CHECKPOINT, json.dumps(found).encode(), durable=True)
    return path


def read(parts: Iterable[Path]) -> Iterator[dict[str, Any]]:
    """The actions of a checkpoint, as in a commit; whoever wrote it."""
    for part in parts:
        with parquet_file(part) as file:
            names = set(file.schema_arrow.names)
            wanted = [*(k for k in _RARE if k in names), *(f"{k}.{f}" for k in _MANY if k in names for f in _MANY[k])]
            table = file.read(columns=wanted)
        for kind in _RARE:
            for action in _there(table, kind).to_pylist():
                yield {kind: _definition(action) if kind == "metaData" else action}
        for kind, fields in _MANY.items():
            actions = _there(table, kind)
            known = [name for name in fields if isinstance(actions.type, pa.StructType) and name in actions.type.names]
            for values in zip(*(actions.field(name).to_pylist() for name in known), strict=True):
                yield {kind: dict(zip(known, values, strict=True))}


def paths(parts: Iterable[Path]) -> set[str]:
    """The files of the table at a checkpoint's version."""
    found = (_there(_read(part, "add.path"), "add") for part in parts)
    return {unquote(path) for actions in found for path in (actions.field("path").to_pylist() if len(actions) else ())}


def has_removed(parts: Iterable[Path]) -> bool:
    """Whether a checkpoint names files that the table had before its version."""
    return any(len(_there(_read(part, "remove.path"), "remove")) for part in parts)


def _read(part: Path, column: str) -> pa.Table:
    with parquet_file(part) as file:
        return file.read(columns=[column])


def _encoded(state: State) -> bytes:
    meta = {name: value for name, value in state.definition.items() if name in _SCHEMA.field("metaData").type.names}
    form = meta.get("format") or {"provider": "parquet"}
    meta |= {
        "format": {**form, "options": list((form.get("options") or {}).items())},
        "configuration": list(state.definition["configuration"].items()),
    }
    transactions = [{"appId": app, "version": version} for app, version in state.transactions.items()]
    parts = {
        "protocol": pa.array([dict(state.protocol)], _SCHEMA.field("protocol").type),
        "metaData": pa.array([meta], _SCHEMA.field("metaData").type),
        "txn": pa.array(transactions, _SCHEMA.field("txn").type),
        "add": _added(state.files),
        "remove": _removed(state.removed),
    }
    sink = BytesIO()
    with pq.ParquetWriter(sink, _SCHEMA) as writer:
        for kind, values in parts.items():
            if len(values):
                columns = [values if f.name == kind else pa.nulls(len(values), f.type) for f in _SCHEMA]
                writer.write_table(pa.Table.from_arrays(columns, schema=_SCHEMA))
    return sink.getvalue()


def _added(found: Mapping[str, FileEntry]) -> pa.Array:
    entries = found.values()
    columns = [
        pa.array([layout.quoted(path) for path in found], pa.string()),
        pa.array([list(entry.partition_of(path).items()) for path, entry in found.items()], _TEXTS),
        pa.array([entry.size_bytes for entry in entries], pa.int64()),
        pa.array([entry.added_ms for entry in entries], pa.int64()),
        pa.repeat(pa.scalar(False), len(found)),
        pa.array([entry.statistics for entry in entries], pa.string()),
    ]
    return pa.StructArray.from_arrays(columns, fields=list(_ADD))


def _removed(removed: Sequence[tuple[int, str]]) -> pa.Array:
    columns = [
        pa.array([layout.quoted(path) for _, path in removed], pa.string()),
        pa.array([time_ms for time_ms, _ in removed], pa.int64()),
        pa.repeat(pa.scalar(False), len(removed)),
    ]
    return pa.StructArray.from_arrays(columns, fields=list(_REMOVE))


def _there(table: pa.Table, kind: str) -> pa.Array:
    """The actions of a kind; Arrow's null type if the checkpoint has no such column."""
    if kind not in table.column_names:
        return pa.nulls(0)
    return table.column(kind).combine_chunks().drop_null()


def _definition(read: Mapping[str, Any]) -> dict[str, Any]:
    """`metaData` as in a commit; Parquet reads maps as lists of pairs, and missing fields as None."""
    known = {name: value for name, value in read.items() if value is not None}
    form = known["format"]
    return {
        **known,
        "format": {**form, "options": dict(form.get("options") or {})},
        "configuration": dict(known["configuration"]),
    }
