"""A recorded case: a few records of a stream, in the order in which it processed them, and the row that they give.

`deltaworks explain TABLE ... --write-test FILE` writes one, with a test beside it.
"""

from __future__ import annotations

import base64
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from deltaworks import formats
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.errors import ConfigurationError
from deltaworks.extras import missing
from deltaworks.kernel.records import RecordBatch
from deltaworks.testing.clocks import instant_at
from deltaworks.testing.driver import TopologyTestDriver
from deltaworks.testing.memory_tables import KeyedTable, WindowTable
from deltaworks.testing.recorded import MicroBatch, Recording, run_recorded
from deltaworks.topology.nodes.sinks import DeltaSink
from deltaworks.topology.plan import Plan

if TYPE_CHECKING:
    from deltaworks.lakehouse.schema import TableSchema

FORMAT = 1
Bytes = str | dict[str, str] | None
"""Bytes in JSON: their text, or `{"base64": ...}` if they are none."""
Host = Literal["driver", "recorded"]
Clock = Literal["still", "before", "after"]
"""The wall clock stands still, or reaches the time of a micro-batch before its records, or after them: a stream
processes records at that time, and runs what is due at that time after them."""
_SOURCE = ("source_topic", "source_partition", "source_offset")
_NOT_COMPARED = "batch_id"


class CaseRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A record as it was in its topic."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    batch: int
    """The micro-batch that processed it."""
    wall_clock_ms: int
    """The time of that micro-batch."""
    key: Bytes
    value: Bytes
    headers: tuple[tuple[str, Bytes], ...] = ()


class RecordedCase(msgspec.Struct, frozen=True, kw_only=True):
    """Records in the order of processing, and the row of a table that they give.

    ```python
    case = RecordedCase.load(Path("test_revenue.json"))
    assert case.found(pipeline) == case.row
    ```
    """

    format: int = FORMAT
    pipeline: str
    table: str
    identity: dict[str, Any]
    """The columns that say which row it is."""
    row: dict[str, Any]
    """Column -> cell, in the form of `plain_cell`."""
    host: Host = "driver"
    """What runs the records. The test driver commits after each record. Where a result depends on the record cache, on
    partitions or on micro-batches, `recorded` runs them in the micro-batches and on the tasks of the stream."""
    partitions: dict[str, int] = {}
    """Partitions of the source topics, for `recorded`."""
    clock: Clock = "still"
    """What the wall clock of the driver does."""
    since_ms: int = 0
    """Where the wall clock begins."""
    until_ms: int = 0
    """Where the wall clock ends, unless it stands still."""
    records: tuple[CaseRecord, ...]

    @classmethod
    def load(cls, path: Path) -> RecordedCase:
        """Reads a case.

        Raises:
            ConfigurationError: another version of deltaworks wrote it, or it is damaged.
        """
        return formats.decode(
            path.read_bytes(),
            cls,
            FORMAT,
            f"The recorded case {path}",
            other="write it again with `deltaworks explain`",
            damaged="write it again with `deltaworks explain`",
            error=ConfigurationError,
        )

    def encoded(self) -> bytes:
        """The case as a file has it."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"

    def found(self, pipeline: Pipeline, plan: Plan | None = None) -> dict[str, Any] | None:
        """The row that the host makes of the records; None: it makes none.

        Args:
            pipeline: with the code to test; its hooks are not called.
            plan: of the pipeline, for callers that have it.

        Raises:
            StreamsError: a record failed, and the pipeline says fail.
            KeyError: the pipeline does not read one of the topics, or writes no such table.
        """
        plan = pipeline.plan() if plan is None else plan
        if self.host == "recorded":
            return self._recorded(pipeline, plan)
        with self._driver(pipeline, plan) as driver:
            places = self._pipe(driver)
            table = table_of(plan, self.table)
            return self._row(driver.table(table.sink.table), table, places)

    def _recorded(self, pipeline: Pipeline, plan: Plan) -> dict[str, Any] | None:
        """The micro-batches of the stream, with these records only."""
        ticks = any(stage.ticks(idle_timeout=pipeline.idle_timeout is not None) for stage in plan.stages)
        in_order = groupby(sorted(self.records, key=lambda each: each.batch), key=lambda each: each.batch)
        groups = [list(records) for _, records in in_order]
        batches = [MicroBatch(each[0].wall_clock_ms, _by_partition(each), tick=ticks) for each in groups]
        if ticks and batches and batches[-1].wall_clock_ms < self.until_ms:
            batches.append(MicroBatch(self.until_ms, (), tick=True))
        table = table_of(plan, self.table)
        recording = run_recorded(
            plan,
            self.partitions,
            [MicroBatch(self.since_ms, (), tick=ticks), *batches],
            errors=pipeline.errors,
            idle_timeout=pipeline.idle_timeout,
        )
        content = recording.tables.by_name[table.sink.table]
        if isinstance(content, WindowTable):
            content.final_before_ms = self._final_before_ms(recording, table)
        return self._row(content, table, {})

    def _final_before_ms(self, recording: Recording, table: CaseTable) -> int:
        """Windows are final by task: that of the row decides."""
        found = 0
        for output in recording.tasks.values():
            rows = output.rows.get(table.sink.table, [])
            cells = table.schema.key
            if any(
                all(plain_cell(cell.array([row.key])[0].as_py()) == self.identity[cell.name] for cell in cells)
                for row in rows
                if row.kind == "window"
            ):
                found = max((row.end_ms for row in rows if row.kind == "close"), default=found)
        return found

    def _driver(self, pipeline: Pipeline, plan: Plan) -> TopologyTestDriver:
        """Records are in the order of processing, so none waits for another (`max_task_idle`)."""
        return TopologyTestDriver(
            plan,
            initial_wall_clock=instant_at(self.since_ms),
            errors=replace(pipeline.errors, set_aside=frozenset()),  # they name offsets in Kafka
            idle_timeout=pipeline.idle_timeout,
        )

    def _pipe(self, driver: TopologyTestDriver) -> dict[str, list[CaseRecord]]:
        """Topic -> its records by their offset in the driver."""
        places: dict[str, list[CaseRecord]] = defaultdict(list)
        inputs = {topic: driver.create_input_topic(topic) for topic in {each.topic for each in self.records}}
        now_ms = self.since_ms

        def move_to(time_ms: int) -> None:
            nonlocal now_ms
            if self.clock != "still" and time_ms > now_ms:
                driver.advance_wall_clock_time(timedelta(milliseconds=time_ms - now_ms))
                now_ms = time_ms

        for wall_ms, batch in groupby(self.records, key=lambda each: each.wall_clock_ms):
            if self.clock == "before":
                move_to(wall_ms)
            for each in batch:
                places[each.topic].append(each)
                headers = tuple((name, raw(value)) for name, value in each.headers)
                key, value = raw(each.key), raw(each.value)
                inputs[each.topic].pipe_raw(key, value, timestamp_ms=each.timestamp_ms, headers=headers)
            move_to(wall_ms)
        move_to(self.until_ms)
        return places

    def _row(self, content: Any, table: CaseTable, places: Mapping[str, Sequence[CaseRecord]]) -> dict[str, Any] | None:
        rows = content.changes_to_dicts() if table.is_changelog and isinstance(content, KeyedTable) else None
        rows = content.to_dicts() if rows is None else rows
        mine = [plain_row(_placed(row, places), self.row) for row in rows if self._may_be(row)]
        mine = [row for row in mine if all(row.get(name) == cell for name, cell in self.identity.items())]
        return next((row for row in mine if row == self.row), mine[-1] if mine else None)

    def _may_be(self, row: Mapping[str, Any]) -> bool:
        names = (name for name in self.identity if name not in _SOURCE)
        return all(plain_cell(row[name]) == self.identity[name] for name in names)


@dataclass(frozen=True)
class CaseTable:
    """A physical table and what writes it."""

    sink: DeltaSink
    schema: TableSchema
    is_changelog: bool


def table_of(plan: Plan, name: str) -> CaseTable:
    """The table of a name.

    Raises:
        KeyError: the plan writes no such table.
    """
    try:
        from deltaworks.lakehouse.schema import Role, schemas
    except ModuleNotFoundError as error:
        raise missing(error) or error from error
    tables = [(sink, schema) for sink in plan.tables for schema in schemas(sink)]
    for sink, schema in tables:
        if schema.name == name:
            return CaseTable(sink, schema, schema.role is Role.CHANGELOG)
    known = ", ".join(sorted(schema.name for _, schema in tables))
    raise KeyError(f"pipeline '{plan.name}' writes no table '{name}'; it writes: {known or 'none'}")


def plain_row(row: Mapping[str, Any], columns: Iterable[str]) -> dict[str, Any]:
    """Some cells of a row, in the form of `plain_cell`."""
    return {name: plain_cell(row.get(name)) for name in columns}


def compared_columns(schema: TableSchema, *, with_source: bool) -> list[str]:
    """The columns of a row that a case compares.

    Args:
        schema: of the table.
        with_source: whether the rows come from records of topics; behind an exchange, a test has other offsets.
    """
    left_out = {_NOT_COMPARED} if with_source else {_NOT_COMPARED, *_SOURCE}
    return [name for name in schema.arrow.names if name not in left_out]


def plain_cell(cell: Any) -> Any:
    """A cell as JSON has it: times in ISO 8601, decimals and NaN as text, bytes as text or base64."""
    match cell:
        case bytes():
            return written(cell)
        case datetime() | date():
            return cell.isoformat()
        case Decimal():
            return f"{cell.normalize() + 0:f}" if cell.is_finite() else str(cell)
        case float() if not math.isfinite(cell):
            return str(cell)
        case dict():
            return {str(name): plain_cell(each) for name, each in cell.items()}
        case list() | tuple():
            return [plain_cell(each) for each in cell]
        case _:
            return cell


def written(data: bytes | None) -> Bytes:
    """Bytes in JSON."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def raw(text: Bytes) -> bytes | None:
    """The bytes that `written` has written."""
    if text is None or isinstance(text, str):
        return None if text is None else text.encode()
    return base64.b64decode(text["base64"])


def _by_partition(records: Sequence[CaseRecord]) -> tuple[RecordBatch, ...]:
    """The records of a micro-batch, per topic-partition in offset order."""
    parts: dict[tuple[str, int], list[CaseRecord]] = defaultdict(list)
    for each in sorted(records, key=lambda each: (each.topic, each.partition, each.offset)):
        parts[each.topic, each.partition].append(each)
    return tuple(
        RecordBatch(
            topic,
            partition,
            [each.offset for each in mine],
            [each.timestamp_ms for each in mine],
            [raw(each.key) for each in mine],
            [raw(each.value) for each in mine],
            [tuple((name, raw(value)) for name, value in each.headers) for each in mine],
        )
        for (topic, partition), mine in parts.items()
    )


def _placed(row: Mapping[str, Any], places: Mapping[str, Sequence[CaseRecord]]) -> Mapping[str, Any]:
    """The row with the place of its record in Kafka, instead of that in the driver."""
    records = places.get(row.get("source_topic", ""), ())
    if row.get("source_offset", -1) not in range(len(records)):
        return row
    origin = records[row["source_offset"]]
    return {**row, "source_partition": origin.partition, "source_offset": origin.offset}
