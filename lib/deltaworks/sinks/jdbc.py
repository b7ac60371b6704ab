"""Rows of PostgreSQL, MariaDB and MySQL, in the transactions of SQLAlchemy.

**Exactly once.** The table `deltaworks_sink_progress` has a row per task with the last batch, which changes in the same
transaction as the rows. Each task locks a row of its own there before it looks, so a worker that was believed dead
either commits first, and its batch is recognised, or finds that its connection was ended. That row also has the
generation of the driver: a worker of an earlier one is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, assert_never

import msgspec
import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.dialects import mysql, postgresql

from deltaworks.errors import ConfigurationError, FencedError, SinkError
from deltaworks.sinks.given import needed, text
from deltaworks.sinks.rows import WINDOW, Rows, times
from deltaworks.topology.columns import (
    ColumnType,
    DecimalDigits,
    JsonText,
    Listed,
    Mapped,
    Member,
    Nested,
    Plain,
    Written,
)
from deltaworks.topology.external import JdbcTable
from deltaworks.topology.sinks import SinkBatch, SinkRecord, SinkTask

PROGRESS = "deltaworks_sink_progress"
IDLE_S = 120
"""After so long without a statement the server ends a transaction, and with it the lock of a worker that hangs."""
KEY_CHARACTERS = 255
"""Of a text in the key, in MySQL, whose indices take no unlimited ones."""
NONE_YET = -1
_DRIVERS = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql", "mariadb": "mariadb+pymysql"}
_PACKAGES = {"psycopg": "deltaworks[control]", "pymysql": "pymysql"}


class OpenJdbcTable:
    """The table of a sink as it is written, and the progress beside it.

    Raises:
        ConfigurationError: a package is missing, or the table does not fit.
        SinkError: the database does not answer.
    """

    def __init__(self, sink: JdbcTable) -> None:
        self.sink, self.rows = sink, Rows(sink.rows)
        self.engine = engine(sink)
        self.is_mysql = self.engine.dialect.name in ("mysql", "mariadb")
        self.progress = _progress(sink.schema)
        try:
            self.table = self._prepared_table()
            _create(self.engine, self.progress)
        except exc.SQLAlchemyError as error:
            self.engine.dispose()
            raise failed(sink, "cannot be opened", error) from error
        except BaseException:
            self.engine.dispose()
            raise

    def insert_missing(self, connection: sa.Connection, names: Sequence[str]) -> None:
        """Gives the progress rows of these names, unless it has them.

        None is inserted where one is: MySQL would share a lock of it among all who try, and those who then want it for
        themselves would wait for each other.
        """
        asked = sa.select(self.progress.c.id).where(self.progress.c.id.in_(names))
        there = set(connection.execute(asked).scalars())
        for name in names:
            if name not in there:
                connection.execute(self._insert_once(name))

    def _insert_once(self, name: str) -> Any:
        row = {"id": name, "generation": 0, "batch": NONE_YET, "intent": ""}
        if self.is_mysql:
            return mysql.insert(self.progress).values(row).prefix_with("IGNORE")
        return postgresql.insert(self.progress).values(row).on_conflict_do_nothing()

    def check_at_once(self, connection: sa.Connection) -> None:
        """Has the database check constraints now, and from now on, that it would check at the commit."""
        if self.engine.dialect.name == "postgresql":
            connection.execute(sa.text("SET CONSTRAINTS ALL IMMEDIATE"))

    def deletion(self) -> Any:
        """A statement that deletes the row of a key, whose cells are `k_<column>`."""
        where = sa.and_(*(self.table.c[name] == sa.bindparam(f"k_{name}") for name in self.rows.key_names))
        return sa.delete(self.table).where(where)

    def written(self, array: pa.Array) -> list[Any]:
        """Cells as the database takes them."""
        cells: list[Any] = (
            array.to_pylist(maps_as_pydicts="strict") if pa.types.is_nested(array.type) else (array.to_pylist())
        )
        if pa.types.is_timestamp(array.type) and self.is_mysql:  # DATETIME has no zone
            return [None if cell is None else cell.replace(tzinfo=None) for cell in cells]
        return cells

    def _prepared_table(self) -> sa.Table:
        """The table as we write it, made if the author says so, and compared with the one that is there."""
        wanted = self._wanted()
        there = sa.inspect(self.engine)
        if not there.has_table(self.sink.table, schema=self.sink.schema):
            if not self.sink.create_table:
                columns = ", ".join(f"{column.name} {_sql(column.type, there)}" for column in wanted.c)
                raise ConfigurationError(
                    f"There is no table '{_shown(self.sink)}' to write to.",
                    hint=f"create_table=True makes it: {columns}",
                )
            _create(self.engine, wanted)
            there = sa.inspect(self.engine)
        check(self.sink, wanted, there, self.rows.key_names)
        return wanted

    def _wanted(self) -> sa.Table:
        named = self.rows.columns
        is_upsert = self.sink.mode == "upsert"
        columns = [
            sa.Column(column.name, self._type(column.type, in_key=is_upsert), primary_key=is_upsert, nullable=False)
            if is_upsert
            else sa.Column(column.name, self._type(column.type))
            for column in named.key
        ]
        if self.rows.is_windowed:
            columns += [sa.Column(name, self._instant(), primary_key=is_upsert) for name in WINDOW]
        columns += [sa.Column(column.name, self._type(column.type)) for column in named.value]
        if self.sink.timestamp_column is not None:
            columns.append(sa.Column(self.sink.timestamp_column, self._instant()))
        for column in columns:
            column.autoincrement = False
        return sa.Table(self.sink.table, sa.MetaData(), *columns, schema=self.sink.schema)

    def _type(self, column: ColumnType, *, in_key: bool = False) -> sa.types.TypeEngine[Any]:
        """The type of a column in the dialect of this database."""
        match column:
            case Plain.TEXT | Written() | JsonText():
                return sa.String(KEY_CHARACTERS) if in_key and self.is_mysql else sa.Text()
            case Plain.INTEGER:
                return sa.BigInteger()
            case Plain.FLOAT:
                return sa.Double()
            case Plain.BOOLEAN:
                return sa.Boolean()
            case Plain.BINARY:
                return mysql.VARBINARY(KEY_CHARACTERS) if in_key and self.is_mysql else sa.LargeBinary()
            case Plain.INSTANT:
                return self._instant()
            case Plain.DATE:
                return sa.Date()
            case DecimalDigits(precision, scale):
                return sa.Numeric(precision, scale)
            case Member(value):
                return self._type(value, in_key=in_key)
            case Listed() | Mapped() | Nested():
                return mysql.JSON(none_as_null=True) if self.is_mysql else postgresql.JSONB(none_as_null=True)
            case _:
                assert_never(column)

    def _instant(self) -> sa.types.TypeEngine[Any]:
        return mysql.DATETIME(fsp=6) if self.is_mysql else postgresql.TIMESTAMP(timezone=True)


class JdbcWriter:
    """Writes the rows of one task, in one transaction per batch."""

    def __init__(self, sink: JdbcTable, task: SinkTask) -> None:
        self._sink, self._task = sink, task
        self._open = OpenJdbcTable(sink)
        self._rows, self._table, self._progress = self._open.rows, self._open.table, self._open.progress
        self._connection: sa.Connection | None = None

    def committed(self) -> SinkBatch | None:
        """The last batch of this task; its lock keeps other writers of the task out until the end of the batch.

        Raises:
            FencedError: a newer generation of the stream has written.
            SinkError: the database does not answer.
        """
        self.abort()
        try:
            connection = self._connection = self._open.engine.connect()
            lock = lock_name(self._task.pipeline, self._task.sink, self._task.task)
            self._open.insert_missing(connection, (lock, self._task.id))
            mine = self._progress.c.id == lock
            generation = connection.execute(
                sa.select(self._progress.c.generation).where(mine).with_for_update()
            ).scalar_one()
            if generation > self._task.generation:
                raise FencedError(
                    f"Generation {generation} of the stream has written to table '{self._sink.table}'; this is "
                    f"generation {self._task.generation}.",
                    hint=f"if the other stream is gone for good, delete its rows in {PROGRESS}: id '{lock}'",
                )
            connection.execute(sa.update(self._progress).where(mine).values(generation=self._task.generation))
            found = connection.execute(
                sa.select(self._progress.c.batch, self._progress.c.intent)
                .where(self._progress.c.id == self._task.id)
                .with_for_update()
            ).one()
        except exc.SQLAlchemyError as error:
            raise failed(self._sink, "cannot be asked what is committed", error) from error
        return None if found.batch == NONE_YET else SinkBatch(found.batch, found.intent)

    def write(self, batch: SinkBatch, records: Sequence[SinkRecord[Any, Any]]) -> None:
        """Writes rows and progress.

        Raises:
            SinkError: the database refuses them.
        """
        assert self._connection is not None, "committed() is asked first"
        upserts, deletes = records, list[SinkRecord[Any, Any]]()
        if self._sink.mode == "upsert":
            newest = dict(zip(self._keys(records), records, strict=True))
            upserts = [record for record in newest.values() if record.value is not None]
            deletes = [record for record in newest.values() if record.value is None]
        try:
            if deletes:
                keys = [
                    {f"k_{name}": cell for name, cell in zip(self._rows.key_names, key, strict=True)}
                    for key in self._keys(deletes)
                ]
                self._connection.execute(self._open.deletion(), keys)
            if upserts:
                insert = sa.insert(self._table)
                if self._sink.mode == "upsert":
                    insert = upsert(self._table, self._rows.key_names, is_mysql=self._open.is_mysql)
                self._connection.execute(insert, self._cells(upserts))
            self._connection.execute(
                sa.update(self._progress)
                .where(self._progress.c.id == self._task.id)
                .values(batch=batch.batch, intent=batch.intent, generation=self._task.generation)
            )
        except exc.SQLAlchemyError as error:
            raise failed(self._sink, f"refuses the rows of batch {batch.batch}", error) from error

    def prepare(self) -> None:
        """Has the database check constraints that it would check at the commit."""
        if self._connection is not None:
            self._open.check_at_once(self._connection)

    def commit(self) -> None:
        """Commits rows and progress together."""
        assert self._connection is not None
        self._connection.commit()
        self._connection.close()
        self._connection = None

    def abort(self) -> None:
        """Ends the transaction; a connection that is broken is thrown away."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(exc.SQLAlchemyError):
                connection.rollback()
            with suppress(exc.SQLAlchemyError):
                connection.close()

    def close(self) -> None:
        self.abort()
        self._open.engine.dispose()

    def _keys(self, records: Sequence[SinkRecord[Any, Any]]) -> list[tuple[Any, ...]]:
        """The cells that identify the rows of records."""
        cells = dict(self._rows.cells(records))
        columns = [self._open.written(cells[name]) for name in self._rows.key_names]
        return list(zip(*columns, strict=True))

    def _cells(self, records: Sequence[SinkRecord[Any, Any]]) -> list[dict[str, Any]]:
        columns = {name: self._open.written(array) for name, array in self._rows.cells(records)}
        if self._sink.timestamp_column is not None:
            of_records = times([record.timestamp_ms for record in records])
            columns[self._sink.timestamp_column] = self._open.written(of_records)
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def lock_name(pipeline: str, sink: str, task: int) -> str:
    """The row of the progress that a task locks, whatever its checkpoint."""
    return "/".join((pipeline, sink, str(task)))


def upsert(table: sa.Table, keys: Sequence[str], *, is_mysql: bool) -> Any:
    """A statement that inserts a row, or gives the row of the key its values."""
    rest = [column.name for column in table.c if column.name not in keys]
    if is_mysql:
        into = mysql.insert(table)
        return into.on_duplicate_key_update({name: into.inserted[name] for name in rest or keys[:1]})
    insert = postgresql.insert(table)
    if not rest:
        return insert.on_conflict_do_nothing(index_elements=list(keys))
    return insert.on_conflict_do_update(index_elements=list(keys), set_={name: insert.excluded[name] for name in rest})


def engine(sink: JdbcTable) -> sa.Engine:
    """A pool of one connection to the database of a sink.

    Raises:
        ConfigurationError: the address cannot be used, or the package for it is not there.
    """
    try:
        url = sa.make_url(needed(sink.url))
    except exc.ArgumentError:
        raise ConfigurationError(
            f"{sink.url.what} is no address.", hint="such as postgresql://db.example.com:5432/shop"
        ) from None
    backend = url.get_backend_name()
    if backend not in _DRIVERS:
        raise ConfigurationError(
            f"{sink.url.what} is of '{backend}'.", hint=f"databases that this sink knows: {', '.join(_DRIVERS)}"
        )
    url = url.set(drivername=_DRIVERS[backend])
    if sink.username is not None:
        url = url.set(username=text(sink.username), password=text(sink.password))
    options = {}
    if backend == "postgresql":
        options = {"options": f"-c idle_in_transaction_session_timeout={IDLE_S * 1000}", "connect_timeout": 10}
    try:
        made = sa.create_engine(
            url,
            pool_size=1,
            max_overflow=0,
            pool_pre_ping=True,
            connect_args=options,
            hide_parameters=True,
            json_serializer=lambda cell: msgspec.json.encode(cell).decode(),
        )
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"{sink.url.what} needs the package '{error.name}', which is not installed here.",
            hint=f"pip install '{_PACKAGES.get(str(error.name), str(error.name))}', also where tasks run",
        ) from None
    if backend != "postgresql":
        sa.event.listen(made, "connect", _with_timeout)
    return made


def _with_timeout(connection: Any, _: Any) -> None:
    """MySQL ends a session that says nothing for so long."""
    with connection.cursor() as cursor:
        cursor.execute(f"SET SESSION wait_timeout = {IDLE_S}, SESSION time_zone = '+00:00'")


def check(sink: JdbcTable, wanted: sa.Table, there: sa.Inspector, keys: Sequence[str]) -> None:
    """Compares the table that is there with the one that the sink writes.

    Raises:
        ConfigurationError: a column is missing, is of another type, or needs what the sink does not write; or nothing
            makes the key unique.
    """
    found = {column["name"]: column for column in there.get_columns(sink.table, schema=sink.schema)}
    problems = []
    for column in wanted.c:
        if (other := found.get(column.name)) is None:
            problems.append(f"it has no column '{column.name}' ({_sql(column.type, there)})")
        elif not _fits(column.type, other["type"]):
            problems.append(f"column '{column.name}' is {_sql(other['type'], there)}, not {_sql(column.type, there)}")
    for name, other in found.items():
        if name not in wanted.c and not _fills_itself(other):
            problems.append(
                f"column '{name}' ({_sql(other['type'], there)}) is NOT NULL without a default, and nothing fills it"
            )
    if sink.mode == "upsert" and not _is_unique(sink, there, keys):
        problems.append(f"({', '.join(keys)}) is neither its primary key nor unique")
    if problems:
        raise ConfigurationError(
            f"Table '{_shown(sink)}' does not fit its sink: {'; '.join(problems)}.",
            hint="change the table, or the type of key or value; columns are named as those of to_delta",
        )


def _is_unique(sink: JdbcTable, there: sa.Inspector, keys: Sequence[str]) -> bool:
    primary: Any = there.get_pk_constraint(sink.table, schema=sink.schema)["constrained_columns"]
    unique: list[Any] = [each["column_names"] for each in there.get_unique_constraints(sink.table, schema=sink.schema)]
    indexes: list[Any] = [
        each["column_names"] for each in there.get_indexes(sink.table, schema=sink.schema) if each["unique"]
    ]
    return any(set(each) == set(keys) for each in (primary, *unique, *indexes))


def _fills_itself(column: Mapping[str, Any]) -> bool:
    return bool(
        column["nullable"]
        or column.get("default") is not None
        or column.get("autoincrement") is True
        or column.get("identity")
        or column.get("computed")
    )


_KINDS: tuple[tuple[type[sa.types.TypeEngine[Any]], ...], ...] = (
    (sa.Boolean, mysql.TINYINT),
    (sa.Integer,),
    (sa.Double, mysql.DOUBLE),
    (sa.DateTime,),
    (sa.Date,),
    (sa.JSON, mysql.LONGTEXT),  # MariaDB has no JSON of its own
    (sa.LargeBinary, sa.BINARY, sa.VARBINARY),
    (sa.String,),
)
"""Types of one kind. A text or an integer may be shorter than ours: that is the author's own limit."""


def _fits(ours: sa.types.TypeEngine[Any], there: sa.types.TypeEngine[Any]) -> bool:
    """Whether a column takes the values that we write."""
    if isinstance(ours, sa.Numeric) and not isinstance(ours, sa.Float):
        if not isinstance(there, sa.Numeric) or isinstance(there, sa.Float):
            return False
        if there.precision is None:
            return True
        whole = (there.precision - (there.scale or 0)) >= (ours.precision or 0) - (ours.scale or 0)
        return whole and (there.scale or 0) >= (ours.scale or 0)
    if isinstance(there, sa.DateTime) and isinstance(ours, sa.DateTime):
        return bool(there.timezone) == bool(ours.timezone)
    if isinstance(there, sa.Numeric) and not isinstance(there, sa.Float) and isinstance(ours, sa.Integer):
        return there.precision is None or there.precision - (there.scale or 0) >= 19
    for kinds in _KINDS:
        if isinstance(ours, kinds):
            return isinstance(there, kinds)
    return False


def _create(engine: sa.Engine, table: sa.Table) -> None:
    """Creates a table unless it is there; several tasks may do it at the same time."""
    if sa.inspect(engine).has_table(table.name, schema=table.schema):
        return
    try:
        table.create(engine, checkfirst=True)
    except exc.DBAPIError:
        if not sa.inspect(engine).has_table(table.name, schema=table.schema):
            raise


def _progress(schema: str | None) -> sa.Table:
    return sa.Table(
        PROGRESS,
        sa.MetaData(),
        sa.Column("id", sa.String(500), primary_key=True),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.Column("batch", sa.BigInteger, nullable=False),
        sa.Column("intent", sa.String(200), nullable=False),
        schema=schema,
    )


def _sql(kind: sa.types.TypeEngine[Any], there: sa.Inspector) -> str:
    """A type as the database writes it."""
    return str(kind.compile(dialect=there.dialect))


def _shown(sink: JdbcTable) -> str:
    return sink.table if sink.schema is None else f"{sink.schema}.{sink.table}"


def failed(sink: JdbcTable, what: str, error: exc.SQLAlchemyError) -> SinkError:
    """The database's own words; SQLAlchemy's have the statement in them."""
    cause = getattr(error, "orig", None) or error
    return SinkError(f"Table '{_shown(sink)}' {what}: {type(cause).__name__}: {cause}")
