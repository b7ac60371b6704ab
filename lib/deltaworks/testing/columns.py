"""Rows of tables as their Delta tables have them: column -> cell.

`lakehouse/schema.py` says which columns a table has. It needs Arrow, so it is imported when a test asks for columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from deltaworks.extras import missing
from deltaworks.serdes.windowed import Windowed
from deltaworks.testing.clocks import instant_at
from deltaworks.topology.columns import LAST_MS
from deltaworks.topology.nodes.sinks import DeltaSink

if TYPE_CHECKING:
    from deltaworks.lakehouse.schema import TableSchema
    from deltaworks.testing.memory_tables import Row

_NOT_IN_TESTS = "batch_id"
"""The one column that a test cannot fill: the driver has no batches."""


def appended(sink: DeltaSink, rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Records of a stream."""
    rows = list(rows)
    return _dicts(_schemas(sink)[0], [(row.key, row.value) for row in rows], map(_origin, rows))


def changed(sink: DeltaSink, rows: Iterable[Row]) -> list[dict[str, Any]]:
    """The changelog of a table."""
    rows = list(rows)
    ours = ({"op": "delete" if row.value is None else "upsert"} | _origin(row) for row in rows)
    return _dicts(_schemas(sink)[0], [(row.key, row.value) for row in rows], ours)


def latest(sink: DeltaSink, rows: Iterable[Row]) -> list[dict[str, Any]]:
    """The snapshot of a table, from the last update of each key."""
    rows = list(rows)
    return _dicts(_schemas(sink)[1], [(row.key, row.value) for row in rows], map(_origin, rows))


def windows(sink: DeltaSink, rows: Iterable[tuple[Windowed[Any], Any, int, bool]]) -> list[dict[str, Any]]:
    """Windows, each with its value, its timestamp in milliseconds and whether it is final."""
    rows = list(rows)
    ours = (
        {
            "window_start": _time(window.start_ms),
            "window_end": _time(window.end_ms),
            "timestamp": _time(timestamp_ms),
            "is_final": is_final,
            "window_date": _time(window.start_ms).date(),
        }
        for window, _, timestamp_ms, is_final in rows
    )
    return _dicts(_schemas(sink)[0], [(window.key, value) for window, value, _, _ in rows], ours)


def _schemas(sink: DeltaSink) -> Sequence[TableSchema]:
    try:
        from deltaworks.lakehouse.schema import schemas
    except ModuleNotFoundError as error:
        raise missing(error) or error from error
    return schemas(sink)


def _dicts(
    schema: TableSchema, objects: Sequence[tuple[Any, Any]], ours: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    cells = {column.name: column.array([key for key, _ in objects]).to_pylist() for column in schema.key}
    cells |= {column.name: column.array([value for _, value in objects]).to_pylist() for column in schema.value}
    names = [name for name in schema.arrow.names if name != _NOT_IN_TESTS]
    return [
        {name: cells[name][number] if name in cells else own[name] for name in names} for number, own in enumerate(ours)
    ]


def _origin(row: Row) -> dict[str, Any]:
    source = row.source
    return {
        "timestamp": _time(row.timestamp_ms),
        "source_topic": source.topic,
        "source_partition": source.partition,
        "source_offset": source.offset,
    }


def _time(time_ms: int) -> datetime:
    """Times after the year 9999 are shown as its end, as in the Delta table."""
    return instant_at(min(time_ms, LAST_MS))
