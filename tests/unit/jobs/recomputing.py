"""What the tests of all recomputations share: from sample data to batches, and from what tasks produced to tables.

```python
rows = rows_of(records(2_000))                                  # with the partitions and offsets that Kafka gives them
cuts = random_cuts(rows, batches=12, rng=rng)                   # which of them each micro-batch has
connection = recomputed(recomputation, rows, cuts)              # "expected <result>" by SQL
recording = run_recorded(plan, {topic: 4, ...}, micro_batches(rows, cuts), errors=pipeline.errors)
put_beside(connection, recomputation, pipeline, recording, cuts)    # "found <result>"
assert differences(recomputation, connection) == {}
```

`streamed.py` does the same with the streaming host's own tasks, failures and Delta tables.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, assert_never

import duckdb
import pyarrow as pa

from deltaworks import Pipeline
from deltaworks.kernel.errors import dead_letter_record
from deltaworks.kernel.partitioning import partition_of
from deltaworks.kernel.records import Coordinates, RecordBatch
from deltaworks.lakehouse.schema import TableSchema, dead_letter_schema, schemas
from deltaworks.testing.recorded import MicroBatch, Recording, TableRow
from deltaworks.testing.sample_data import SampleRecord
from deltaworks.topology.nodes.sinks import TableKind
from jobs.recomputed.results import Recomputation, batches_table, clock_table, records_table
from jobs.sample_data.kafka import PARTITIONS

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Cuts = dict[tuple[str, int], list[int]]
"""`(topic, partition)` -> the first offset of every micro-batch, and after them the end."""


@dataclass(frozen=True)
class Row:
    """A record as a consumer sees it."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


def murmur2(data: bytes) -> int:
    """Kafka's hash, after `org.apache.kafka.common.utils.Utils.murmur2`, as an unsigned number."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(data)
    whole = len(data) // 4 * 4
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * m & mask
        h = (h * m & mask) ^ ((k ^ k >> 24) * m & mask)
    if rest := data[whole:]:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


# Input ---------------------------------------------------------------------------------------------------------------


def rows_of(sample: Iterable[SampleRecord], partitions: int = PARTITIONS) -> list[Row]:
    """The records with the partitions and offsets that Kafka gives them."""
    offsets: dict[tuple[str, int], int] = defaultdict(int)
    rows = []
    for record in sample:
        by_key = murmur2(record.key) & 0x7FFFFFFF if record.key is not None else record.partition or 0
        at = record.topic, by_key % partitions
        rows.append(Row(*at, offsets[at], record.timestamp_ms, record.key, record.value))
        offsets[at] += 1
    return rows


def random_cuts(rows: Sequence[Row], batches: int, rng: random.Random) -> Cuts:
    """Cuts every partition at its own random offsets."""
    ends: dict[tuple[str, int], int] = defaultdict(int)
    for row in rows:
        ends[row.topic, row.partition] += 1
    return {at: [0, *sorted(rng.randint(0, end) for _ in range(batches - 1)), end] for at, end in ends.items()}


def micro_batches(
    rows: Sequence[Row], cuts: Cuts, clock: Sequence[int] | None = None, ticks: Collection[int] = ()
) -> Iterator[MicroBatch]:
    """What a stream would have recorded.

    Args:
        rows: the records of all topics.
        cuts: which of them each batch has.
        clock: wall clock of each batch in ms; None: the number of the batch.
        ticks: batches in which tasks that depend on the wall clock run without records too.
    """
    by_partition: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in rows:
        by_partition[row.topic, row.partition].append(row)
    for batch in range(_number_of_batches(cuts)):
        parts = {at: part[cuts[at][batch] : cuts[at][batch + 1]] for at, part in by_partition.items()}
        now_ms = batch if clock is None else clock[batch]
        yield MicroBatch(now_ms, tuple(_record_batch(at, part) for at, part in parts.items() if part), batch in ticks)


def _record_batch(at: tuple[str, int], rows: Sequence[Row]) -> RecordBatch:
    return RecordBatch(
        *at,
        [row.offset for row in rows],
        [row.timestamp_ms for row in rows],
        [row.key for row in rows],
        [row.value for row in rows],
    )


def _number_of_batches(cuts: Cuts) -> int:
    return max(map(len, cuts.values())) - 1


# Results -------------------------------------------------------------------------------------------------------------


def recomputed(
    recomputation: Recomputation,
    rows: Sequence[Row],
    cuts: Cuts,
    clock: Sequence[int] | None = None,
    ticks: Collection[int] = (),
) -> duckdb.DuckDBPyConnection:
    """A connection with the views "expected <result>"; arguments as of `micro_batches`."""
    records = records_table((r.topic, r.partition, r.offset, r.timestamp_ms, r.key, r.value, []) for r in rows)
    batches = [
        (batch, topic, partition, start, stop)
        for (topic, partition), bounds in cuts.items()
        for batch, (start, stop) in enumerate(pairwise(bounds))
    ]
    times = [
        (batch, batch if clock is None else clock[batch], batch in ticks) for batch in range(_number_of_batches(cuts))
    ]
    connection = duckdb.connect()
    recomputation.recompute(connection, records, batches_table(batches), clock_table(times))
    return connection


def put_beside(
    connection: duckdb.DuckDBPyConnection,
    recomputation: Recomputation,
    pipeline: Pipeline,
    recording: Recording,
    cuts: Cuts,
) -> None:
    """Makes the views "found <result>" from what the tasks produced."""
    recomputation.put_beside(connection, outputs_of(pipeline, recording), tables_of(pipeline, recording, cuts))


def differences(recomputation: Recomputation, connection: duckdb.DuckDBPyConnection) -> dict[str, tuple[str, ...]]:
    """Result -> its first rows that are missing (-) or should not be there (+); empty if all are equal."""
    return {c.name: c.differences for c in recomputation.compare_all(connection) if not c.equal}


def equal_results(recomputation: Recomputation, rows: Sequence[Row], cuts: Cuts) -> duckdb.DuckDBPyConnection:
    """A connection in which every table and topic is exactly what the recomputation expects."""
    connection = recomputed(recomputation, rows, cuts)
    for name in (*recomputation.tables, *recomputation.topics):
        connection.execute(f'CREATE TABLE "found {name}" AS SELECT * FROM "expected {name}"')
    return connection


def noticed(recomputation: Recomputation, connection: duckdb.DuckDBPyConnection, name: str, damage: str) -> int:
    """How many rows differ after a statement in which `{}` stands for the result; the damage is undone."""
    connection.execute("BEGIN")
    connection.execute(damage.replace("{}", f'"found {name}"'))
    comparison = recomputation.compare(connection, name)
    connection.execute("ROLLBACK")
    return comparison.different


def outputs_of(pipeline: Pipeline, recording: Recording) -> pa.Table:
    """Every record of the output topics, dead letters included, as `records_table` makes it.

    Records without a key are put into partition 0: their producer would take any.
    """
    rows: list[tuple[Any, ...]] = []
    offsets: dict[tuple[str, int], int] = defaultdict(int)

    def send(at: tuple[str, int], time_ms: int, key: bytes | None, value: bytes | None, headers: Any) -> None:
        rows.append((*at, offsets[at], time_ms, key, value, list(headers)))
        offsets[at] += 1

    for output in recording.tasks.values():
        chosen = {topic for topic, _ in output.placed}
        for at, records in output.placed.items():
            for record in records:
                send(at, record.timestamp_ms, record.key, record.value, record.headers)
        for topic in output.topics.keys() - chosen:
            for record in output.topics[topic]:
                at = topic, 0 if record.key is None else partition_of(record.key, PARTITIONS)
                send(at, record.timestamp_ms, record.key, record.value, record.headers)
        if pipeline.dead_letters.topic is not None:
            for letter in output.dead_letters:
                key, value, headers = dead_letter_record(letter)
                at = pipeline.dead_letters.topic, 0 if key is None else partition_of(key, PARTITIONS)
                send(at, letter.timestamp_ms, key, value, headers)
    return records_table(rows)


def tables_of(pipeline: Pipeline, recording: Recording, cuts: Cuts) -> dict[str, pa.Table]:
    """Every Delta table, in its own columns, with the rows that it would hold at the end."""
    tables: dict[str, pa.Table] = {}
    for sink in pipeline.plan().tables:
        by_task = [output.rows.get(sink.table, []) for output in recording.tasks.values()]
        match sink.kind:
            case TableKind.APPEND:
                (schema,) = schemas(sink)
                tables[schema.name] = _table(schema, [row for rows in by_task for row in rows], cuts)
            case TableKind.WINDOWED:
                (schema,) = schemas(sink)
                windows = [window for rows in by_task for window in _windows(rows)]
                final = [is_final for _, is_final in windows]
                tables[schema.name] = _table(schema, [row for row, _ in windows], cuts, final)
            case TableKind.CHANGELOG:
                changelog, snapshot = schemas(sink)
                changes = [row for rows in by_task for row in rows]
                last = {row.key: row for row in changes}
                tables[changelog.name] = _table(changelog, changes, cuts)
                tables[snapshot.name] = _table(snapshot, [r for r in last.values() if r.value is not None], cuts)
            case _:
                assert_never(sink.kind)
    if pipeline.dead_letters.table is not None:
        tables[pipeline.dead_letters.table] = _dead_letters(pipeline.dead_letters.table, recording)
    return tables


def damaged(tables: dict[str, pa.Table], name: str, statement: str) -> dict[str, pa.Table]:
    """The tables after a statement in which `{}` stands for one of them, and the others have their names."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for table, content in tables.items():
        connection.register(table, content)
    connection.execute(f"CREATE TABLE damaged AS SELECT * FROM {name}")
    before = connection.table("damaged").to_arrow_table()
    connection.execute(statement.replace("{}", "damaged"))
    after = connection.table("damaged").to_arrow_table()
    assert not after.equals(before), "the statement changes nothing"
    return tables | {name: after}


def _windows(rows: Sequence[TableRow]) -> list[tuple[TableRow, bool]]:
    """The last row per window of one task, and whether it is final."""
    closed_before_ms = max((row.end_ms for row in rows if row.kind == "close"), default=0)
    last = {(row.key, row.start_ms, row.end_ms): row for row in rows if row.kind == "window"}
    return [(row, row.end_ms < closed_before_ms) for row in last.values() if row.value is not None]


def _table(schema: TableSchema, rows: Sequence[TableRow], cuts: Cuts, final: Sequence[bool] = ()) -> pa.Table:
    columns: dict[str, Any] = {column.name: column.array([row.key for row in rows]) for column in schema.key}
    columns |= {column.name: column.array([row.value for row in rows]) for column in schema.value}
    sources = [row.source for row in rows if row.source is not None]
    ours = {
        "timestamp": [instant(row.timestamp_ms) for row in rows],
        "op": ["delete" if row.value is None else "upsert" for row in rows],
        "source_topic": [source.topic for source in sources],
        "source_partition": [source.partition for source in sources],
        "source_offset": [source.offset for source in sources],
        "batch_id": [_batch_of(source, cuts) for source in sources],
        "window_start": [instant(row.start_ms) for row in rows],
        "window_end": [instant(row.end_ms) for row in rows],
        "window_date": [instant(row.start_ms).date() for row in rows],
        "is_final": final,
    }
    arrow = schema.arrow
    for field in arrow:
        if field.name not in columns:
            columns[field.name] = pa.array(ours[field.name], field.type)
    return pa.table({name: columns[name] for name in arrow.names}, schema=arrow)


def _batch_of(source: Coordinates, cuts: Cuts) -> int:
    """The micro-batch of a record: by its offset in an input topic, or as exchanges write it into theirs."""
    bounds = cuts.get((source.topic, source.partition))
    return source.offset >> 32 if bounds is None else bisect_right(bounds, source.offset) - 1


def _dead_letters(table: str, recording: Recording) -> pa.Table:
    letters = [letter for output in recording.tasks.values() for letter in output.dead_letters]
    columns: dict[str, Sequence[Any]] = {
        "key": [letter.key for letter in letters],
        "value": [letter.value for letter in letters],
        "headers": [[{"name": name, "value": value} for name, value in letter.headers] for letter in letters],
        "topic": [letter.source.topic for letter in letters],
        "partition": [letter.source.partition for letter in letters],
        "offset": [letter.source.offset for letter in letters],
        "timestamp": [instant(letter.timestamp_ms) for letter in letters],
        "error_class": [letter.error_class for letter in letters],
        "message": [letter.message for letter in letters],
        "operator": [letter.operator for letter in letters],
        "stacktrace": [letter.stacktrace for letter in letters],
    }
    return pa.table(columns, schema=dead_letter_schema(table).arrow)


def instant(time_ms: int) -> datetime:
    """Milliseconds since 1970 as a time in UTC."""
    return EPOCH + timedelta(milliseconds=time_ms)
