"""Finds the row that somebody asks about, in its Delta table."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deltaworks.dsl.pipeline import Pipeline
from deltaworks.errors import ConfigurationError, TableError
from deltaworks.explain.masking import has_secrets
from deltaworks.lakehouse import catalog, cuts
from deltaworks.lakehouse.reading import dataset
from deltaworks.lakehouse.schema import Role, TableSchema, plan_schemas
from deltaworks.testing.cases import plain_cell
from deltaworks.topology.archives import Archives
from deltaworks.topology.nodes.sinks import DeltaSink
from deltaworks.topology.plan import Plan
from deltaworks.topology.records import Coordinates

SHOWN = 8
"""How many windows, records or keys an error names."""
_KEYS = 100_000
"""Rows among which similar keys are looked for."""
_ROWS = 10_000
"""Rows of one key that are looked at."""


@dataclass(frozen=True)
class Question:
    """A row of a table, as somebody asks for it."""

    table: str
    key: tuple[str, ...]
    """The cells of the key columns as text, in their order, or `COLUMN=TEXT`."""
    window: datetime | None = None
    """Start of the window."""
    source: Coordinates | None = None
    """The record that an appended row or an update comes from."""


@dataclass(frozen=True)
class FoundRow:
    """A row, and what is known of its table."""

    schema: TableSchema
    sink: DeltaSink
    row: dict[str, Any]
    identity: tuple[str, ...]
    """The columns that tell it from other rows."""
    last_batch: int | None
    """The last batch that the table holds as it was read; None: unknown."""


def pipeline_of(root: Path, table: str) -> str:
    """The pipeline that writes a table.

    Raises:
        TableError: there is no such table, or no pipeline writes it.
    """
    name = catalog.log_of(root, table).pipeline
    if name is None:
        raise TableError(
            f"No pipeline writes the table '{table}', so no batch says what went into its rows.",
            hint="a batch job makes its rows of other tables; explain a row of those",
        )
    return name


def find(root: Path, pipeline: Pipeline, plan: Plan, question: Question) -> FoundRow:
    """Reads the row.

    Raises:
        TableError: there is no such row, or several.
        ConfigurationError: the question does not fit the table.
    """
    schema, sink = _schema(pipeline, plan, question.table)
    wanted = _cells(schema, question.key)
    shown = catalog.Shown(root).table(question.table)
    data = dataset(root / question.table, shown)
    condition = None
    for name, cell in wanted.items():
        equal = pc.field(name).is_null() if cell is None else pc.field(name) == cell
        condition = equal if condition is None else condition & equal
    rows: list[dict[str, Any]] = data.head(_ROWS, filter=condition).to_pylist()
    if not rows:
        raise _no_key(data, schema, wanted, may_show=not has_secrets(pipeline, plan))
    row = _one(schema, rows, question)
    cut = None if shown is None else cuts.latest(root, pipeline.name)
    last = catalog.table(root, question.table).batch_id if cut is None else cut.batch_id
    return FoundRow(schema, sink, row, _identity(schema, plan, row), last)


def is_written(pipeline: Pipeline, plan: Plan, name: str) -> bool:
    """Whether the pipeline, with this code, writes a table."""
    return name in _schemas(pipeline, plan)


def _schemas(pipeline: Pipeline, plan: Plan) -> dict[str, TableSchema]:
    archives = Archives.of(plan).tables
    return {each.name: each for each in plan_schemas(plan.tables, pipeline.dead_letters.table, archives)}


def _schema(pipeline: Pipeline, plan: Plan, name: str) -> tuple[TableSchema, DeltaSink]:
    schemas = _schemas(pipeline, plan)
    if name not in schemas:
        raise TableError(
            f"The code of pipeline '{pipeline.name}' no longer writes the table '{name}'.",
            hint="--as-deployed runs the code that did; this one writes: " + (", ".join(sorted(schemas)) or "none"),
        )
    schema = schemas[name]
    if schema.sink is None:
        what = "dead letter" if schema.role is Role.DEAD_LETTERS else "record as it was read from Kafka"
        raise TableError(
            f"A row of '{name}' is a {what}: it comes from one record, which its columns topic, partition and offset "
            "name.",
            hint=f"tables to explain: {', '.join(name for name in schemas if schemas[name].sink) or 'none'}",
        )
    return schema, schema.sink


def _cells(schema: TableSchema, given: Sequence[str]) -> dict[str, Any]:
    """Column of the key -> the cell that is asked for."""
    columns = {column.name: column.type for column in schema.key}
    names = list(columns)
    texts: dict[str, str] = {}
    for position, text in enumerate(given):
        name, equals, value = text.partition("=")
        if len(names) > 1 and equals and name in columns:
            texts[name] = value
        elif position < len(names):
            texts[names[position]] = text
    if len(given) != len(names) or texts.keys() != columns.keys():
        each = " ".join(f"--key {name}=..." for name in names) if len(names) > 1 else f"--key {names[0].upper()}"
        raise ConfigurationError(
            f"The key of '{schema.name}' has {len(names)} column{'s' * (len(names) != 1)} ({', '.join(names)}), but "
            f"--key was given {len(given)} time{'s' * (len(given) != 1)}.",
            hint=each,
        )
    return {name: _cell(name, texts[name], columns[name]) for name in names}


def _cell(name: str, text: str, kind: pa.DataType) -> Any:
    try:
        return pa.array([text]).cast(kind)[0]
    except pa.ArrowInvalid as error:
        raise ConfigurationError(
            f"--key {text!r}: the column '{name}' is {kind}, and that is none.", hint=f"give a {kind}"
        ) from error


def _one(schema: TableSchema, rows: list[dict[str, Any]], question: Question) -> dict[str, Any]:
    """The row among those of the key."""
    _require_fitting(schema, question)
    if question.window is not None:
        start = question.window.replace(tzinfo=question.window.tzinfo or UTC)
        mine = [row for row in rows if row["window_start"] == start]
        if not mine:
            raise TableError(
                f"'{schema.name}' has no window of this key that begins at {_minute(start)}.",
                hint=f"its windows begin at {_some([_minute(row['window_start']) for row in rows])}",
            )
        rows = mine
    if question.source is not None:
        place = question.source
        mine = [row for row in rows if _source(row) == place]
        if not mine:
            raise TableError(
                f"'{schema.name}' has no row of this key that comes from {place.name}.",
                hint=f"its rows come from {_some([_source(row).name for row in rows])}",
            )
        rows = mine
    if len(rows) == 1:
        return rows[0]
    if schema.role is Role.WINDOWED:
        starts = [_minute(row["window_start"]) for row in rows]
        raise ConfigurationError(
            f"'{schema.name}' has {len(rows)} windows of this key.", hint=f"name one with --window: {_some(starts)}"
        )
    if question.source is None:
        sources = [_source(row).name for row in rows]
        raise ConfigurationError(
            f"'{schema.name}' has {len(rows)} rows of this key.",
            hint=f"name the record that the row comes from with --source: {_some(sources)}",
        )
    return max(rows, key=lambda row: row["timestamp"])


def _require_fitting(schema: TableSchema, question: Question) -> None:
    windowed = schema.role is Role.WINDOWED
    if question.window is not None and not windowed:
        raise ConfigurationError(f"'{schema.name}' has no windows.", hint="leave --window out")
    if question.source is not None and windowed:
        raise ConfigurationError(
            f"A row of '{schema.name}' comes from many records.", hint="name it with --window instead of --source"
        )


def _identity(schema: TableSchema, plan: Plan, row: dict[str, Any]) -> tuple[str, ...]:
    match schema.role:
        case Role.WINDOWED:
            return (*schema.key_names, "window_start", "window_end")
        case Role.SNAPSHOT:
            return schema.key_names
        case _ if comes_from_a_topic(plan, row):
            return (*schema.key_names, "timestamp", "source_topic", "source_partition", "source_offset")
        case _:
            return (*schema.key_names, "timestamp")


def comes_from_a_topic(plan: Plan, row: dict[str, Any]) -> bool:
    """Whether the source columns of a row name a record of a topic, not one behind an exchange."""
    topic = row.get("source_topic")
    return bool(topic) and plan.reads(str(topic))


def _no_key(data: Any, schema: TableSchema, wanted: dict[str, Any], *, may_show: bool) -> TableError:
    shown = ", ".join(f"{name} = {cell.as_py()!r}" for name, cell in wanted.items())
    first = schema.key_names[0]
    known = pc.unique(data.head(_KEYS, columns=[first])[first]).to_pylist() if may_show else []
    by_text = {str(plain_cell(cell)): cell for cell in known if cell is not None}
    near = difflib.get_close_matches(str(plain_cell(wanted[first].as_py())), by_text, n=5, cutoff=0.6)
    return TableError(
        f"'{schema.name}' has no row with {shown}.",
        hint=f"similar: {', '.join(near)}" if near else f'deltaworks sql "SELECT * FROM {schema.name} LIMIT 5"',
    )


def _source(row: dict[str, Any]) -> Coordinates:
    return Coordinates(row["source_topic"], row["source_partition"], row["source_offset"])


def _minute(time: datetime) -> str:
    return time.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="auto")


def _some(names: Sequence[str]) -> str:
    each = sorted(set(names))
    rest = f" and {len(each) - SHOWN} more" if len(each) > SHOWN else ""
    return ", ".join(each[-SHOWN:]) + rest
