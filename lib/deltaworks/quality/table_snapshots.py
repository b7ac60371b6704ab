"""The tables of one pipeline below one root, all as of the same micro-batch.

The driver commits a batch one table after the other. So a reader that opens all tables while a stream runs may get some
with a batch and some without it, and find differences that do not last. The batch record says which batches every table
has; newer versions are ignored. Delta keeps the older ones long enough (`lakehouse.retention`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from deltaworks.lakehouse import layout
from deltaworks.lakehouse.layout import PageName
from deltaworks.lakehouse.log import QUERY_PROPERTY, DeltaLog
from deltaworks.lakehouse.reading import dataset, delta_table
from deltaworks.lakehouse.schema import Role, TableSchema


@dataclass(frozen=True)
class TableSnapshot:
    """One table at one version."""

    schema: TableSchema
    rows: Any
    """An Arrow dataset; nothing is read yet."""
    as_of_batch: int | None = None
    """For snapshots, the last batch that it shows; -1: none yet; None: unknown."""
    closed_before_ms: Mapping[int, int] = field(default_factory=dict)
    """For windowed tables, task -> its closed time: windows that ended before it are final."""
    pages: tuple[PageName, ...] = ()
    """For windowed tables, the files with windows that may still change."""


@dataclass(frozen=True)
class TableSnapshots:
    """The existing tables of a pipeline."""

    by_name: Mapping[str, TableSnapshot]
    missing: tuple[str, ...]

    @classmethod
    def below(cls, root: Path, schemas: Sequence[TableSchema], last_batch: int | None = None) -> TableSnapshots:
        """Opens the tables of a pipeline.

        Args:
            root: folder of all tables.
            schemas: the expected tables.
            last_batch: later batches are ignored; None: nobody writes.
        """
        there = [schema for schema in schemas if (root / schema.name / layout.LOG_FOLDER).is_dir()]
        opened = {schema.name: _open(root / schema.name, schema, last_batch) for schema in there}
        return cls(opened, tuple(schema.name for schema in schemas if schema.name not in opened))

    @property
    def sources(self) -> dict[str, Any]:
        """The tables for `validate`: name -> dataset."""
        return {name: table.rows for name, table in self.by_name.items()}


def _open(path: Path, schema: TableSchema, last_batch: int | None) -> TableSnapshot:
    log = DeltaLog(path)
    log.load()
    version = log.version if last_batch is None else _version_at(path, log.version, last_batch)
    table = delta_table(path, version)
    owner = table.metadata().configuration.get(QUERY_PROPERTY)
    known = {app: table.transaction_version(app) for app in log.transactions if layout.query_of(app) == owner}
    steps = [(layout.step_of(app), number) for app, number in known.items() if number is not None]
    as_of = [number for step, number in steps if step == layout.SNAPSHOT] or [-1]
    closed: dict[int, int] = {}
    for step, before_ms in steps:
        if (task := layout.closed_task(step)) is not None:
            closed[task] = max(before_ms, closed.get(task, before_ms))
    pages = tuple(PageName.of(name) for name in log.files if layout.is_page(name)) if version == log.version else ()
    return TableSnapshot(
        schema, dataset(path, table), max(as_of) if schema.role is Role.SNAPSHOT else None, closed, pages
    )


def _version_at(path: Path, version: int, last_batch: int) -> int:
    """The last version without a later batch; commits that the driver made between two batches may count to either."""
    found = version
    for number in range(version, 0, -1):
        try:
            lines = (path / layout.LOG_FOLDER / f"{number:020d}.json").read_bytes().splitlines()
        except FileNotFoundError:
            break  # a checkpoint covers it, so it is old
        batches = [batch for line in lines if (batch := _batch_in(msgspec.json.decode(line))) is not None]
        if batches and max(batches) <= last_batch:
            break
        if batches:
            found = number - 1
    return found


def _batch_in(action: Mapping[str, Any]) -> int | None:
    match action:
        case {"txn": {"appId": str(app), "version": int(version)}} if layout.step_of(app) in (
            layout.ROWS,
            layout.SNAPSHOT,
        ):
            return version
        case _:
            return None
