"""Rows of a database are corrected after a publication, in transactions that no task of the stream writes beside.

Each transaction locks the rows of all tasks in the progress, as a task locks its own. So the table is as the stream has
left it after some batch; if that is not committed everywhere yet, nothing is changed. The progress has a row for
corrections, too, which says how many transactions are done, and of what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy import exc

from deltaworks.errors import SinkError
from deltaworks.sinks.jdbc import OpenJdbcTable, failed, lock_name, upsert
from deltaworks.sinks.row_changes import RowChanges
from deltaworks.sinks.rows import WINDOW
from deltaworks.topology.external import JdbcTable
from deltaworks.topology.nodes.sinks import DeltaSink
from deltaworks.topology.published_sinks import cell_names

_REFUSALS = (exc.IntegrityError, exc.DataError)
"""What a database says of a row that it will never take."""
_SHOWN = 300


class JdbcCorrections:
    """Corrects the table of one sink.

    Args:
        sink: its settings.
        table: the Delta table that has the rows.
        pipeline: of the stream.
        name: of the sink.
        checkpoint: with which the stream runs.
        tasks: how many write.

    Raises:
        ConfigurationError: a package is missing, or the table does not fit.
        SinkError: the database does not answer.
    """

    def __init__(
        self, sink: JdbcTable, table: DeltaSink, *, pipeline: str, name: str, checkpoint: str, tasks: int
    ) -> None:
        self._sink, self._open = sink, OpenJdbcTable(sink)
        self._names = cell_names(sink.rows, table)
        if self._open.rows.is_windowed:
            self._names |= {column: column for column in WINDOW}
        if sink.timestamp_column is not None:
            self._names[sink.timestamp_column] = "timestamp"
        self._locks = [lock_name(pipeline, name, task) for task in range(tasks)]
        self._of_tasks = [f"{lock}/{checkpoint}" for lock in self._locks]
        self._mine = f"{pipeline}/{name}/corrections"

    def correct(
        self,
        number: int,
        digest: str,
        parts: Callable[[], Iterable[RowChanges]],
        last_batch: Callable[[], int],
        note: Callable[[list[str]], None] = lambda _: None,
    ) -> list[str]:
        """Carries out a transaction, unless it was carried out; returns what the database says of refused rows.

        Args:
            number: of the transaction.
            digest: of all of them.
            parts: gives its rows, without those that the stream has updated since; asked once nobody else writes.
            last_batch: gives the last batch that is committed everywhere; likewise.
            note: keeps what is refused, if anything is; before the commit, as nobody is told of it again.

        Raises:
            SinkError: the stream has written a batch that is not committed yet, or the database does not answer.
        """
        progress = self._open.progress
        try:
            with self._open.engine.begin() as connection:  # one of its own: MySQL reads what was there when it began
                self._open.insert_missing(connection, (*self._locks, self._mine))
            with self._open.engine.begin() as connection:
                for name in (*self._locks, self._mine):
                    connection.execute(sa.select(progress.c.id).where(progress.c.id == name).with_for_update())
                done = connection.execute(
                    sa.select(progress.c.batch, progress.c.intent).where(progress.c.id == self._mine)
                ).one()
                if done.intent == digest and done.batch >= number:
                    return []
                self._require_committed(connection, last_batch())
                refused = [reason for part in parts() for reason in self._apply(connection, part)]
                if refused:
                    note(refused)
                connection.execute(
                    sa.update(progress).where(progress.c.id == self._mine).values(batch=number, intent=digest)
                )
        except exc.SQLAlchemyError as error:
            raise failed(self._sink, "takes no corrections", error) from error
        return refused

    def close(self) -> None:
        self._open.engine.dispose()

    def _require_committed(self, connection: sa.Connection, last_batch: int) -> None:
        progress = self._open.progress
        newest = connection.execute(
            sa.select(sa.func.max(progress.c.batch)).where(progress.c.id.in_(self._of_tasks))
        ).scalar_one()
        if newest is not None and newest > last_batch:
            raise SinkError(
                f"The stream has written batch {newest} to table '{self._sink.table}', and has not committed it "
                "everywhere yet.",
                hint="ask again; if the stream is stopped, it has to be started first, and finishes the batch",
            )

    def _apply(self, connection: sa.Connection, part: RowChanges) -> Iterator[str]:
        keys = self._open.rows.key_names
        gone = [{f"k_{name}": row[name] for name in keys} for row in self._cells(part.gone, keys)]
        now = self._cells(part.now, [column.name for column in self._open.table.c])
        insert = upsert(self._open.table, keys, is_mysql=self._open.is_mysql)
        statements = [(self._open.deletion(), gone), (insert, now)]
        try:
            with connection.begin_nested():
                for statement, rows in statements:
                    if rows:
                        connection.execute(statement, rows)
                self._open.check_at_once(connection)
        except _REFUSALS:
            for statement, rows in statements:
                yield from self._one_by_one(connection, statement, rows)

    def _one_by_one(self, connection: sa.Connection, statement: Any, rows: Sequence[dict[str, Any]]) -> Iterator[str]:
        for row in rows:
            try:
                with connection.begin_nested():
                    connection.execute(statement, row)
                    self._open.check_at_once(connection)
            except _REFUSALS as error:
                yield failed(self._sink, "refuses a row", error).message[:_SHOWN]

    def _cells(self, rows: pa.Table, names: Iterable[str]) -> list[dict[str, Any]]:
        columns = {name: self._open.written(rows[self._names[name]].combine_chunks()) for name in names}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
