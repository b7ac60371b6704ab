"""The tools of `docs/tables/query.md`, each as a function from tables and columns to what is in them.

A reader opens all tables as of one batch, and reads when it is told to: right away, or hours later. To try another
tool, write such a function and add it to `READERS`; nothing else has to know of it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Literal

import duckdb
import polars as pl
import pyarrow as pa
from pyhive import hive
from pyspark import SparkContext
from pyspark.sql import SparkSession

from deltaworks import tables
from deltaworks.batch import delta_tables
from deltaworks.lakehouse import reading
from deltaworks.settings import Settings
from deltaworks.stack.credentials import Credentials
from deltaworks.stack.lifecycle import up
from deltaworks.stack.sql.server import credentials

Kind = Literal["time", "decimal", "bytes", "truth", "other"]
Wanted = Mapping[str, Mapping[str, Kind]]
"""Table -> column -> what it has."""
Row = tuple[str, ...]
Rows = Mapping[str, Counter[Row]]
"""Table -> its rows, as text that is the same whatever has read them."""


@dataclass(frozen=True)
class Place:
    """Where the tables of a pipeline are."""

    settings: Settings
    pipeline: str

    @property
    def folder(self) -> Path:
        return self.settings.tables

    def cut(self, at: str | None = None) -> dict[str, Any]:
        """The file of the newest cut, or that of a pin, as whoever does not have deltaworks reads it."""
        cuts = self.folder / "_cuts" / self.pipeline
        if at is None:
            return dict(json.loads((cuts / "latest.json").read_text()))
        return dict(json.loads((cuts / "pins" / f"{at}.json").read_text())["cut"])


@dataclass(frozen=True)
class Opened:
    """Tables as of one batch."""

    batches: range
    """The batch; or some, if the tool does not say which it was."""
    read: Callable[[], Rows]


Reader = Callable[[Place, Wanted, str | None], Opened]
"""Opens the tables as they are now, or at a pin."""


def command_line(place: Place, wanted: Wanted, at: str | None) -> Opened:
    """`deltaworks sql`, which reads at once: all tables in one query."""
    first = place.cut(at)["batch_id"]
    cells = {table: ", ".join(map(_as_text, columns, columns.values())) for table, columns in wanted.items()}
    query = " UNION ALL ".join(
        f'SELECT \'{table}\' AS "table", to_json([{cells[table]}]) AS "row" FROM "{table}"' for table in wanted
    )
    command = [sys.executable, "-m", "deltaworks.cli", "sql", query, "--format", "json"]
    done = subprocess.run(
        command if at is None else [*command, "--at", at],
        capture_output=True, text=True, check=False, cwd=place.settings.project,
        env={**os.environ, **place.settings.process_environment()},
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"deltaworks sql ended with {done.returncode}: {done.stderr[-2000:]}")
    found: dict[str, list[Sequence[Any]]] = {table: [] for table in wanted}
    for row in json.loads(done.stdout):
        found[row["table"]].append(json.loads(row["row"]) if isinstance(row["row"], str) else row["row"])
    rows = {table: counted(wanted[table].values(), each) for table, each in found.items()}
    return Opened(range(first, place.cut(at)["batch_id"] + 1), lambda: rows)


def arrow(place: Place, wanted: Wanted, at: str | None) -> Opened:
    """`deltaworks.tables`, into tables of Arrow."""
    opened = tables.open(place.pipeline, at, settings=place.settings)
    datasets = {table: opened[table].rows for table in wanted}

    def read() -> Rows:
        return {
            table: _of_arrow(columns, datasets[table].to_table(columns=list(columns)))
            for table, columns in wanted.items()
        }

    return Opened(_one(opened.batch_id), read)


def pandas(place: Place, wanted: Wanted, at: str | None) -> Opened:
    """`deltaworks.tables`, into data frames of pandas."""
    opened = tables.open(place.pipeline, at, settings=place.settings)
    datasets = {table: opened[table].rows for table in wanted}

    def read() -> Rows:
        found = {}
        for table, columns in wanted.items():
            frame = datasets[table].to_table(columns=list(columns)).to_pandas()
            found[table] = counted(columns.values(), frame.itertuples(index=False, name=None))
        return found

    return Opened(_one(opened.batch_id), read)


def duck(place: Place, wanted: Wanted, at: str | None) -> Opened:
    """DuckDB with the datasets of `deltaworks.tables`."""
    opened = tables.open(place.pipeline, at, settings=place.settings)
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for table in wanted:
        connection.register(table, opened[table].rows)

    def read() -> Rows:
        return {
            table: counted(columns.values(), connection.execute(f"SELECT {_names(columns)} FROM {table}").fetchall())
            for table, columns in wanted.items()
        }

    return Opened(_one(opened.batch_id), read)


def polars(place: Place, wanted: Wanted, at: str | None) -> Opened:
    """polars with the versions in the file of the cut."""
    cut = place.cut(at)
    frames = {
        table: pl.scan_delta(str(path), version=cut["tables"][table], storage_options=reading.options(path))
        for table, path in ((table, place.folder / table) for table in wanted)
    }

    def read() -> Rows:
        context = pl.SQLContext(frames)
        return {
            table: counted(columns.values(), context.execute(f"SELECT {_names(columns)} FROM {table}").collect().rows())
            for table, columns in wanted.items()
        }

    return Opened(_one(cut["batch_id"]), read)


def spark_sql(spark: SparkSession, place: Place, wanted: Wanted, at: str | None) -> Opened:
    """Spark SQL with the versions in the file of the cut."""
    cut = place.cut(at)
    frames = {
        table: spark.sql(
            f"SELECT {_names(columns, '`')} FROM delta.`{place.folder / table}` VERSION AS OF {cut['tables'][table]}"
        )
        for table, columns in wanted.items()
    }

    def read() -> Rows:
        return {table: _of_arrow(columns, frames[table].toArrow()) for table, columns in wanted.items()}

    return Opened(_one(cut["batch_id"]), read)


@contextmanager
def _spark(settings: Settings, scratch: Path) -> Iterator[Reader]:
    """A session with Delta's jars in a JVM of its own."""
    earlier = SparkContext._gateway, SparkContext._jvm
    SparkContext._gateway = SparkContext._jvm = None
    try:
        with delta_tables.opened(settings, "analysts", scratch) as session:
            yield partial(spark_sql, session)
    finally:
        gateway: Any = SparkContext._gateway
        if gateway is not None:
            gateway.shutdown()
            gateway.proc.stdin.close()
            gateway.proc.wait(60)
        SparkContext._gateway, SparkContext._jvm = earlier


@contextmanager
def _sql_server(settings: Settings, scratch: Path) -> Iterator[Reader]:
    """The SQL server of the stack, and a client with a connection for each query."""
    up(settings, lambda line: None, only=("sql",), tethered=True)
    yield partial(over_the_wire, credentials(settings))


def over_the_wire(login: Credentials, place: Place, wanted: Wanted, at: str | None) -> Opened:
    """SQL over the wire: a statement sees all tables as of one batch, the newest one."""
    assert at is None, "the server shows what is now"
    first = place.cut()["batch_id"]
    cells = {table: ", ".join(map(_as_spark_text, columns, columns.values())) for table, columns in wanted.items()}
    query = " UNION ALL ".join(f"SELECT '{table}', to_json(array({cells[table]})) FROM `{table}`" for table in wanted)
    connection = hive.connect(
        host="127.0.0.1", port=place.settings.sql_port, username=login.user, password=login.password, auth="CUSTOM"
    )
    with closing(connection), closing(connection.cursor()) as cursor:
        cursor.execute(query)
        answered = cursor.fetchall()
    found: dict[str, list[Sequence[Any]]] = {table: [] for table in wanted}
    for table, row in answered:
        found[table].append(json.loads(row))
    rows = {table: counted(wanted[table].values(), each) for table, each in found.items()}
    return Opened(range(first, place.cut()["batch_id"] + 1), lambda: rows)


def _plain(reader: Reader) -> Callable[[Settings, Path], AbstractContextManager[Reader]]:
    return lambda settings, scratch: nullcontext(reader)


ONLY_NOW = ("SQL server",)
"""Readers that need a stack, and see only the newest cut."""
READERS: dict[str, Callable[[Settings, Path], AbstractContextManager[Reader]]] = {
    "deltaworks sql": _plain(command_line),
    "pyarrow": _plain(arrow),
    "pandas": _plain(pandas),
    "DuckDB": _plain(duck),
    "polars": _plain(polars),
    "Spark SQL": _spark,
    "SQL server": _sql_server,
}
"""Each is asked in every part that reads. Settings and an empty folder -> the reader, as long as the block lasts."""


def kinds(schema: pa.Schema) -> dict[str, Kind]:
    """Column -> what it has."""
    return {field.name: _kind(field.type) for field in schema}


def counted(kinds: Iterable[Kind], rows: Iterable[Sequence[Any]]) -> Counter[Row]:
    """Rows as text."""
    known = tuple(kinds)
    return Counter(tuple(map(_text, known, row)) for row in rows)


def _of_arrow(columns: Mapping[str, Kind], table: pa.Table) -> Counter[Row]:
    return counted(columns.values(), zip(*(table[name].to_pylist() for name in columns), strict=True))


def _one(batch_id: int) -> range:
    return range(batch_id, batch_id + 1)


def _names(columns: Iterable[str], quote: str = '"') -> str:
    return ", ".join(f"{quote}{name}{quote}" for name in columns)


def _kind(type: pa.DataType) -> Kind:
    if pa.types.is_timestamp(type):
        return "time"
    if pa.types.is_decimal(type):
        return "decimal"
    if pa.types.is_boolean(type):
        return "truth"
    return "bytes" if pa.types.is_binary(type) or pa.types.is_large_binary(type) else "other"


def _text(kind: Kind, value: Any) -> str:
    if value is None or value != value:
        return "NULL"
    match kind:
        case "time" if isinstance(value, datetime):
            return str(round(value.timestamp() * 1_000_000))
        case "decimal":
            return f"{Decimal(value).normalize():f}"
        case "bytes" if isinstance(value, bytes):
            return value.hex().upper()
        case "truth":
            return str(value).lower()
        case _:
            return str(value)


_DUCKDB: dict[Kind, str] = {"time": 'CAST(epoch_us("{0}") AS VARCHAR)', "bytes": 'hex("{0}")'}
_SPARK: dict[Kind, str] = {"time": "CAST(unix_micros(`{0}`) AS STRING)", "bytes": "hex(`{0}`)"}


def _as_text(column: str, kind: Kind) -> str:
    """A column in DuckDB, as `_text` has it."""
    return _DUCKDB.get(kind, 'CAST("{0}" AS VARCHAR)').format(column)


def _as_spark_text(column: str, kind: Kind) -> str:
    """A column in Spark SQL, likewise."""
    return _SPARK.get(kind, "CAST(`{0}` AS STRING)").format(column)
