"""The Delta table `catalog`: a row per table of the home, itself among them, for readers of every engine.

It is written as a whole, in one commit, by `deltaworks catalog`, at the end of checks and of batch jobs, and by the DAG
of maintenance: never while a batch waits for it. `written_at` says how old the rows are. Anybody may write it at any
time: what they write is the same.

It is made anew where it is that of another version of deltaworks.
"""

from __future__ import annotations

import logging
import random
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from deltaworks import clock
from deltaworks.catalogue.entries import Entry, entries
from deltaworks.errors import DeltaworksError, TableError, TransientError
from deltaworks.files import alone, make_folder
from deltaworks.lakehouse import descriptions, layout
from deltaworks.lakehouse.columns import TIMESTAMP
from deltaworks.lakehouse.described import Definition, Meaning
from deltaworks.lakehouse.reading import dataset, delta_table
from deltaworks.lakehouse.schema import commented
from deltaworks.settings import Settings

NAME = "catalog"
KIND = "catalog"
"""The kind of the table, see `descriptions.KIND`."""
FORMAT = 1
QUARTER = timedelta(minutes=15)
"""How often those write it who write it on the way, while nothing but times and counts changes."""
_TEXTS = pa.list_(pa.string())
_COLUMN = pa.struct([("name", pa.string()), ("type", pa.string()), ("meaning", pa.string()), ("is_key", pa.bool_())])
_OFFSET = pa.struct([("topic", pa.string()), ("partition", pa.int32()), ("next_offset", pa.int64())])
_COLUMNS: dict[str, tuple[pa.DataType, str]] = {
    "name": (pa.string(), "Name of the table."),
    "path": (pa.string(), "Folder of the table, on the machine that has written this row."),
    "description": (pa.string(), "What the table is."),
    "kind": (
        pa.string(),
        "What kind of table: of a pipeline, a batch job (`batch`), or checks (`quality`); null: of somebody else.",
    ),
    "grain": (pa.string(), "What one row is."),
    "key": (_TEXTS, "Columns of the key, in order; empty: it has none."),
    "columns": (pa.list_(_COLUMN), "All columns in order, with their types in Delta's notation and what they mean."),
    "partitioned_by": (_TEXTS, "Columns by which the files are partitioned."),
    "note": (pa.string(), "Which rows may still change, what is_final says, and what to heed in a query."),
    "pipeline": (pa.string(), "The pipeline that writes the table; null: none does."),
    "code": (
        pa.string(),
        "Version of the code that the pipeline runs, as `deltaworks status` shows it; null: not known.",
    ),
    "as_of": (TIMESTAMP, "Time as of which readers see the table; null: no batch yet. See as_of_means."),
    "as_of_means": (pa.string(), "What as_of says about the rows of this table."),
    "batch_id": (pa.int64(), "The last micro-batch that readers see; null: none, or no pipeline writes the table."),
    "lag_records": (pa.int64(), "Records in the source topics that no committed batch has read; null: not known."),
    "offsets": (pa.list_(_OFFSET), "Next offset of each partition that the pipeline reads, after its last batch."),
    "rows": (pa.int64(), "Number of rows of the latest version."),
    "size_bytes": (pa.int64(), "Size of the files of the latest version; null: this table, which does not know it."),
    "verdict": (
        pa.string(),
        "Result of the last check: `passed`, `warning` or `failed` (or could not run); null: nobody has checked it.",
    ),
    "checked_at": (TIMESTAMP, "Time of the last check."),
    "example": (pa.string(), "A query in DuckDB's SQL to begin with: `deltaworks sql`."),
    "written_at": (TIMESTAMP, "Time when this row was written: what it says was so then."),
}
DEFINITION = Definition(
    name=NAME,
    description="All tables: what they hold, what their columns mean, how fresh they are, and whether they are right.",
    columns=commented(
        pa.schema([(name, kind) for name, (kind, _) in _COLUMNS.items()]),
        {name: text for name, (_, text) in _COLUMNS.items()},
    ),
    properties={
        **descriptions.properties(
            kind=KIND,
            grain="a table",
            key=["name"],
            note="All rows are replaced together: none is final.",
            as_of="When the rows were written, as written_at says. A table may have changed since.",
            example=f"SELECT name, grain, pipeline, rows, as_of, verdict, description FROM {NAME} ORDER BY name",
        ),
        "deltaworks.catalog-format": str(FORMAT),
    },
)
_MOVING = ("as_of", "batch_id", "lag_records", "offsets", "rows", "size_bytes", "checked_at", "written_at")
"""Columns that change all the time."""
_ATTEMPTS = 20
_PAUSE_S = 0.05
_TIDY = 20
"""Every so many commits, files are removed that no version of the last week needs."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Written:
    """What the table has after a refresh."""

    tables: int
    """Number of its rows."""
    version: int
    written_at: datetime
    is_new: bool
    """Whether this refresh has written it."""


def refresh(settings: Settings, every: timedelta = timedelta(0)) -> Written:
    """Brings the table up to date, in one commit; makes it if there is none.

    Args:
        settings: name the home.
        every: how old rows may be in which nothing but times and counts has changed; they then stay as they are.

    Raises:
        TableError: somebody else has made a table of this name.
        TransientError: other writers were first at every attempt.
    """
    path = settings.tables / NAME
    make_folder(path, durable=False)
    with alone(path):  # two that fill an empty table would not be in conflict for Delta: it would have all rows twice
        for attempt in range(_ATTEMPTS):
            try:
                return _refreshed(settings, every)
            except DeltaError as error:
                if attempt + 1 == _ATTEMPTS:
                    raise TransientError(
                        f"Delta table '{NAME}' at {path.parent} cannot be written: {error}",
                        hint="others keep writing to it; try again",
                    ) from error
                time.sleep(random.uniform(0, _PAUSE_S * (attempt + 1)))
    raise AssertionError


def refresh_on_the_way(settings: Settings) -> None:
    """Like `refresh`, a few times an hour at most, for those who do something else: an error is only logged."""
    try:
        refresh(settings, QUARTER)
    except (DeltaworksError, DeltaError, OSError) as error:
        _log.warning("the table '%s' stays as it was: %s", NAME, error)


def _refreshed(settings: Settings, every: timedelta) -> Written:
    table = _opened(settings.tables)
    before = dataset(table_path(settings), table).to_table().sort_by("name").to_pylist()
    now = clock.utc_now()
    after = rows(settings, now)
    since = max((row["written_at"] for row in before), default=None)
    if since is not None and timedelta(0) <= now - since < every and _lasting(before) == _lasting(after):
        return Written(len(before), table.version(), since, False)
    write_deltalake(table, pa.Table.from_pylist(after, schema=DEFINITION.columns), mode="overwrite")
    if table.version() % _TIDY == 0:
        table.vacuum(dry_run=False, full=True)  # also what a killed writer has left
    return Written(len(after), table.version(), now, True)


def table_path(settings: Settings) -> Path:
    """The folder of the table."""
    return settings.tables / NAME


def _opened(root: Path) -> DeltaTable:
    """The table, with the definition of this version."""
    path = root / NAME
    if not (path / layout.LOG_FOLDER).is_dir():
        DEFINITION.create(root)
    table = delta_table(path)
    if table.metadata().configuration.get(descriptions.KIND) != KIND:
        raise TableError(
            f"The Delta table '{NAME}' at {path} is not the catalog of all tables.",
            hint="its name is taken for the catalog: move the folder away, or give that table another name",
        )
    if not DEFINITION.is_that_of(table):
        DEFINITION.create(root, instead=True)
        table = delta_table(path)
    return table


def rows(settings: Settings, now: datetime) -> list[dict[str, Any]]:
    """A row per table, this one among them, in the order of their names."""
    others = [_row(each, now) for each in entries(settings) if each.table.name != NAME]
    ours = {
        **_empty(),
        **_of_meaning(DEFINITION.meaning),
        "path": str(table_path(settings)),
        "rows": len(others) + 1,
        "as_of": now,
        "written_at": now,
    }
    return sorted([*others, ours], key=lambda row: str(row["name"]))


def _row(entry: Entry, now: datetime) -> dict[str, Any]:
    table, beat, checked = entry.table, entry.beat, entry.checked
    return {
        **_empty(),
        **_of_meaning(table),
        "path": str(table.info.path),
        "code": entry.code,
        "as_of": entry.as_of,
        "batch_id": None if table.cut is None else table.cut.batch_id,
        "lag_records": None if beat is None else beat.lag_records,
        "offsets": [
            {"topic": topic, "partition": int(partition), "next_offset": offset}
            for topic, partitions in sorted((beat.next_offsets if beat is not None else {}).items())
            for partition, offset in sorted(partitions.items(), key=lambda each: int(each[0]))
        ],
        "rows": table.info.rows,
        "size_bytes": table.info.size_bytes,
        "verdict": None if checked is None else checked.verdict,
        "checked_at": None if checked is None else checked.at,
        "written_at": now,
    }


def _of_meaning(table: Meaning) -> dict[str, Any]:
    return {
        "name": table.name,
        "description": table.description,
        "kind": table.kind,
        "grain": table.grain,
        "key": list(table.key),
        "columns": [
            {"name": each.name, "type": each.type, "meaning": each.meaning, "is_key": each.is_key}
            for each in table.columns
        ],
        "partitioned_by": list(table.partitioned_by),
        "note": table.note,
        "pipeline": table.pipeline,
        "as_of_means": table.as_of,
        "example": table.example,
    }


def _empty() -> dict[str, Any]:
    return {**dict.fromkeys(_COLUMNS), "offsets": []}


def _lasting(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows without what changes all the time."""
    return [{name: cell for name, cell in row.items() if name not in _MOVING} for row in found]
