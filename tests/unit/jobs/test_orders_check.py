from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

import duckdb
import pytest

from jobs.recomputed.orders import recomputation
from jobs.recomputed.results import batches_table, clock_table, records_table
from jobs.sample_data.kafka import SampleRecord
from jobs.sample_data.orders import records
from tests.unit.jobs.orders_model import Model, Row, merge_heads, murmur2

Cuts = dict[tuple[str, int], list[int]]


def rows_of(sample: Iterable[SampleRecord], partitions: int = 4) -> list[Row]:
    """The records with the partitions and offsets that Kafka gives them."""
    offsets: dict[tuple[str, int], int] = defaultdict(int)
    rows = []
    for record in sample:
        by_key = murmur2(record.key) & 0x7FFFFFFF if record.key is not None else record.partition or 0
        partition = by_key % partitions
        rows.append(
            Row(
                record.topic,
                partition,
                offsets[record.topic, partition],
                record.timestamp_ms,
                record.key,
                record.value,
            )
        )
        offsets[record.topic, partition] += 1
    return rows


def random_cuts(rows: Sequence[Row], batches: int, rng: random.Random) -> Cuts:
    """Cuts every partition at its own random offsets."""
    ends: dict[tuple[str, int], int] = defaultdict(int)
    for row in rows:
        ends[row.topic, row.partition] += 1
    return {at: [0, *sorted(rng.randint(0, end) for _ in range(batches - 1)), end] for at, end in ends.items()}


def recomputed(rows: Sequence[Row], cuts: Cuts) -> duckdb.DuckDBPyConnection:
    records = records_table((r.topic, r.partition, r.offset, r.timestamp_ms, r.key, r.value, []) for r in rows)
    batches = [
        (batch, topic, partition, start, stop)
        for (topic, partition), bounds in cuts.items()
        for batch, (start, stop) in enumerate(pairwise(bounds))
    ]
    connection = duckdb.connect()
    recomputation.recompute(connection, records, batches_table(batches), clock_table([]))
    return connection


def modelled(rows: Sequence[Row], cuts: Cuts) -> Model:
    model = Model(partitions=4)
    for batch in range(max(map(len, cuts.values())) - 1):
        model.batch(
            [
                row
                for row in rows
                if cuts[row.topic, row.partition][batch] <= row.offset < cuts[row.topic, row.partition][batch + 1]
            ]
        )
    return model


@pytest.mark.parametrize("seed", range(6))
def test_sql_and_the_record_by_record_model_agree_for_any_cut_into_batches(seed: int) -> None:
    rng = random.Random(seed)
    rows = rows_of(records(1_500, seed))
    cuts = random_cuts(rows, batches=1 + seed * 4, rng=rng)
    model = modelled(rows, cuts)

    sql = recomputed(rows, cuts)

    verdicts = sql.sql('SELECT "partition", "offset", verdict FROM order_events').fetchall()
    assert {(p, o): verdict for p, o, verdict in verdicts} == model.verdicts
    malformed = sql.sql('SELECT "partition", "offset" FROM user_events WHERE malformed').fetchall()
    assert set(malformed) == model.user_dead_letters
    assert sorted(sql.sql("SELECT order_id, user_name, amount FROM enriched").fetchall()) == sorted(model.enriched)
    counts = sql.sql("SELECT key_text, start_ms, orders FROM order_count_windows").fetchall()
    assert {(key, start): count for key, start, count in counts} == model.counts
    revenue = sql.sql("SELECT key_text, start_ms, amount FROM revenue_windows").fetchall()
    assert {(key, start): amount for key, start, amount in revenue} == model.revenue
    sessions = sql.sql("SELECT user_id, start_ms, end_ms, orders FROM sessions").fetchall()
    assert {(u, s, e): n for u, s, e, n in sessions} == {
        (u, s, e): n for u, stored in model.sessions.items() for (s, e), n in stored.items()
    }


@pytest.mark.parametrize("seed", range(200))
def test_sorting_by_the_running_maximum_is_merging_heads(seed: int) -> None:
    rng = random.Random(seed)
    queues = [[(rng.randrange(6), queue, i) for i in range(rng.randrange(8))] for queue in range(3)]

    by_running_maximum = sorted(
        (max(time for time, _, _ in queue[: i + 1]), n, i) for n, queue in enumerate(queues) for i in range(len(queue))
    )

    assert [(n, i) for _, n, i in by_running_maximum] == [
        (n, i) for _, n, i in merge_heads(queues, lambda record: record[0])
    ]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_in_sql_is_kafkas(key: bytes, expected: int) -> None:
    connection = duckdb.connect()
    recomputation.recompute(connection, records_table([]), batches_table([]), clock_table([]))

    assert connection.execute("SELECT murmur2(hex(?::BLOB))", [key]).fetchone() == (expected & 0xFFFFFFFF,)
    assert murmur2(key) == expected & 0xFFFFFFFF


@pytest.fixture(scope="module")
def equal_results() -> duckdb.DuckDBPyConnection:
    """A connection in which every result is what the recomputation expects."""
    rows = rows_of(records(1_000))
    connection = recomputed(rows, random_cuts(rows, batches=5, rng=random.Random(0)))
    for name in recomputation.results:
        if "=" not in name:
            connection.execute(f'CREATE TABLE "found {name}" AS SELECT * FROM "expected {name}"')
    return connection


@pytest.mark.parametrize("name", [name for name in recomputation.results if "=" not in name])
def test_equal_results_compare_equal_and_hold_rows(equal_results: duckdb.DuckDBPyConnection, name: str) -> None:
    comparison = recomputation.compare(equal_results, name)

    assert comparison.equal
    assert comparison.found == comparison.expected > 0


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("enriched_orders", "UPDATE {} SET amount = amount + 0.000000000000000001 WHERE rowid = 3"),
        ("enriched_orders", "INSERT INTO {} SELECT * FROM {} LIMIT 1"),
        ("order_counts", "UPDATE {} SET value = value + 1 WHERE rowid = 3"),
        ("user_revenue", "DELETE FROM {} WHERE rowid = 3"),
        ("user_sessions", "UPDATE {} SET window_end = window_end + INTERVAL 1 MILLISECOND WHERE rowid = 3"),
        ("users", "UPDATE {} SET name = NULL WHERE rowid = 3"),
        ("dead_letters", "UPDATE {} SET value = value || '\\x00'::BLOB WHERE rowid = 3"),
        ("premium-orders", "UPDATE {} SET nth = nth + 1 WHERE rowid = 3"),
    ],
)
def test_a_single_altered_row_is_found(equal_results: duckdb.DuckDBPyConnection, name: str, damage: str) -> None:
    connection = equal_results
    connection.execute("BEGIN")
    connection.execute(damage.replace("{}", f'"found {name}"'))

    comparison = recomputation.compare(connection, name)
    connection.execute("ROLLBACK")

    assert not comparison.equal
    assert 1 <= comparison.different <= 2
    assert len(comparison.differences) == comparison.different


def test_input_that_no_batch_covers_is_refused() -> None:
    rows = rows_of(records(50))
    cuts = random_cuts(rows, batches=2, rng=random.Random(0))
    cuts["user-data", 0][-1] -= 1

    with pytest.raises(ValueError, match="wait until it has caught up"):
        recomputed(rows, cuts)


def test_input_that_compaction_removed_is_refused() -> None:
    rows = rows_of(records(50))
    cuts = random_cuts(rows, batches=2, rng=random.Random(0))

    with pytest.raises(ValueError, match="are left in Kafka"):
        recomputed(rows[1:], cuts)
