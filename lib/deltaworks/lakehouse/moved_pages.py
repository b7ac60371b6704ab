"""Open windows that other tasks go on with: each row moves to a page of the task that has its key now.

The new pages are written beside the old ones (`move`), and noted in a document of the new checkpoint (`note`). Once the
stream has switched to it, whoever opens the tables next commits them, before anything else is written (`settle`): one
version of a table with the same rows. Who is killed in between is followed by another one that does the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from deltaworks import files, formats
from deltaworks.errors import TableError
from deltaworks.faults import reach
from deltaworks.lakehouse import layout, pages, parquet
from deltaworks.lakehouse.layout import PageName
from deltaworks.lakehouse.log import Commit, DeltaLog
from deltaworks.lakehouse.pages import ChangedRows, PageWriter
from deltaworks.lakehouse.schema import TableSchema
from deltaworks.lakehouse.writes import NewFile

FORMAT = 1
_BATCH = 4096
Heirs = Callable[[int], Iterable[int]]
"""From an old task to the new ones that may get its rows."""


class MovedTable(msgspec.Struct, frozen=True, kw_only=True):
    """What moves in one table."""

    added: list[NewFile]
    removed: list[str]
    closed_ms: dict[str, int]
    """Number of a new task -> the time before which its windows are final."""


class MovedPages(msgspec.Struct, frozen=True, kw_only=True):
    """What moves in all tables of a pipeline."""

    format: int = FORMAT
    name: str
    """Of the checkpoint whose tasks go on with them."""
    tables: dict[str, MovedTable]
    complete: bool = False
    """Whether the tables have them."""


class RowTasks:
    """The new tasks of the rows of a windowed table, by their keys.

    Args:
        root: folder of all tables.
        schema: of the table.
    """

    def __init__(self, root: Path, schema: TableSchema) -> None:
        self._root, self._schema = root, schema
        self.log = DeltaLog(root / schema.name)
        if self.log.path.is_dir():
            self.log.load()
        self.pages = sorted(filter(layout.is_page, self.log.files))
        self._tasks: dict[tuple[Any, ...], int | None] = {
            cells: None for page in self.pages for cells in self._cells_of(self._read(page))
        }
        """The keys that have open windows."""
        self._waiting: list[tuple[Any, int]] = []

    def note(self, key: Any, task: int) -> None:
        """A key belongs to a task."""
        self._waiting.append((key, task))
        if len(self._waiting) >= _BATCH:
            self._take()

    def move(self, heirs: Heirs, *, batch_id: int, tag: str) -> MovedTable:
        """Writes the pages of the new tasks, durably; the table stays as it is.

        Args:
            heirs: the new tasks of an old one.
            batch_id: the last batch of the old tasks.
            tag: of the query, for names.

        Raises:
            TableError: nothing says which task has the key of an open window.
        """
        self._take()
        added: list[NewFile] = []
        for day, of_day in groupby(self.pages, key=layout.page_day):
            parts: dict[int, list[pa.Table]] = defaultdict(list)
            for page in of_day:
                for task, rows in self._parted(page, heirs).items():
                    parts[task].append(rows)
            for task, tables in sorted(parts.items()):
                writer = PageWriter(self._root, self._schema, task=task, batch_id=batch_id, tag=tag)
                added += writer.apply([], self._in_order(pa.concat_tables(tables)), None).added
            reach(f"moved_pages.day:{day}")
        files.sync([self.log.path / new.path for new in added])
        closed: dict[str, int] = {}
        for task, before_ms in self.log.closed_ms.items():
            for heir in map(str, heirs(task)):
                closed[heir] = max(before_ms, closed.get(heir, before_ms))
        return MovedTable(added=added, removed=self.pages, closed_ms=closed)

    def _take(self) -> None:
        if not self._waiting:
            return
        keys, tasks = zip(*self._waiting, strict=True)
        columns = [column.array(keys).to_pylist() for column in self._schema.key]
        for cells, task in zip(zip(*columns, strict=True), tasks, strict=True):
            if cells in self._tasks:
                if self._tasks[cells] not in (None, task):
                    raise TableError(
                        f"Two keys of table '{self._schema.name}' look alike in it, and belong to different tasks.",
                        hint="nothing has been changed; the pipeline can only start over",
                    )
                self._tasks[cells] = task
        self._waiting = []

    def _read(self, page: str) -> pa.Table:
        return parquet.read(self._root, self._schema, page)

    def _cells_of(self, rows: pa.Table) -> list[tuple[Any, ...]]:
        return list(zip(*(rows.column(name).to_pylist() for name in self._schema.key_names), strict=True))

    def _parted(self, page: str, heirs: Heirs) -> dict[int, pa.Table]:
        """The rows of a page by their new tasks."""
        rows, old = self._read(page), PageName.of(page).task
        places: dict[int, list[int]] = defaultdict(list)
        final = rows.column("is_final").to_pylist()
        for place, cells in enumerate(self._cells_of(rows)):
            task = self._tasks[cells]
            if task is None:
                if not final[place]:
                    raise TableError(
                        f"Table '{self._schema.name}' has an open window of a key that no store of task {old} has, so "
                        "nothing says which task goes on with it.",
                        hint="nothing has been changed; please report this",
                    )
                task = next(iter(heirs(old)))  # nobody changes it any more
            places[task].append(place)
        return {task: rows.take(pa.array(numbers, pa.int64())) for task, numbers in places.items()}

    def _in_order(self, rows: pa.Table) -> ChangedRows:
        found = pages.identities(rows, self._schema)
        positions = [pages.position_of(identity) for identity in found]
        order = sorted(range(len(found)), key=positions.__getitem__)
        return ChangedRows(
            rows.take(pa.array(order, pa.int64())).combine_chunks(),
            [positions[place] for place in order],
            [found[place] for place in order],
            [],
        )


def note(file: Path, moved: MovedPages) -> None:
    """Writes the document durably."""
    files.replace_file(file, msgspec.json.encode(moved), durable=True)


def is_waiting(file: Path) -> bool:
    """Whether something has moved that tables do not have yet.

    Raises:
        IncompatibleCheckpointError: the document has another format.
    """
    moved = _read(file)
    return moved is not None and not moved.complete


def settle(
    root: Path,
    application: str,
    query_id: str,
    schemas: Iterable[TableSchema],
    file: Path,
    *,
    generation: int,
    properties: Mapping[str, str],
) -> bool:
    """Commits what has moved, if it is not committed yet; for the only committer of the tables, before it opens them.

    Args:
        root: folder of all tables.
        application: the pipeline.
        query_id: whose tables they are.
        schemas: of all tables.
        file: the document; if there is none, nothing has moved.
        generation: of the committer, which the fence admits.
        properties: of the tables.

    Returns:
        Whether something was committed.

    Raises:
        FencedError, TableError: see `DeltaLog`.
        IncompatibleCheckpointError: the document has another format.
    """
    moved = _read(file)
    if moved is None or moved.complete:
        return False
    for schema in schemas:
        if (table := moved.tables.get(schema.name)) is not None:
            _commit(root, application, query_id, schema, moved.name, table, generation, properties)
    reach("moved_pages.committed")
    note(file, msgspec.structs.replace(moved, complete=True))
    return True


def _read(file: Path) -> MovedPages | None:
    return formats.read(file, MovedPages, FORMAT, f"The pages of a rescaled stream {file}")


def _commit(
    root: Path,
    application: str,
    query_id: str,
    schema: TableSchema,
    name: str,
    table: MovedTable,
    generation: int,
    properties: Mapping[str, str],
) -> None:
    def app(step: str, query: str = query_id) -> str:
        return layout.app_id(application, schema.name, step, query)

    log = DeltaLog.create_or_open(root, schema, query_id=query_id, properties=properties)
    log.fence(app(layout.GENERATION), generation)
    if log.transaction_version(app(layout.RESCALED, name)) is not None:
        return
    log.commit(
        Commit(
            added=table.added,
            removed=table.removed,
            transactions={
                app(layout.RESCALED, name): 1,
                **{app(layout.closed_step(int(task))): before_ms for task, before_ms in table.closed_ms.items()},
            },
            data_change=False,
            operation="RESCALE",
            parameters={"queryId": query_id},
            metadata={"pipeline": application, "rescaled": name},
        )
    )
    reach(f"moved_pages.table:{schema.name}")
