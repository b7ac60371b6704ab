from __future__ import annotations

import random
from collections.abc import Sequence

import duckdb
import pytest

from jobs.recomputed.orders import recomputation
from jobs.recomputed.results import batches_table, clock_table, records_table
from jobs.sample_data.orders import records
from tests.unit.jobs.orders_model import Model, merge_heads
from tests.unit.jobs.recomputing import (
    Cuts,
    Row,
    equal_results,
    murmur2,
    noticed,
    random_cuts,
    recomputed,
    rows_of,
)


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

    sql = recomputed(recomputation, rows, cuts)

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
def equal() -> duckdb.DuckDBPyConnection:
    rows = rows_of(records(1_000))
    return equal_results(recomputation, rows, random_cuts(rows, batches=5, rng=random.Random(0)))


@pytest.mark.parametrize("name", (*recomputation.tables, *recomputation.topics))
def test_equal_results_compare_equal_and_hold_rows(equal: duckdb.DuckDBPyConnection, name: str) -> None:
    comparison = recomputation.compare(equal, name)

    assert comparison.equal
    assert comparison.found == comparison.expected > 0


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("enriched_orders", "UPDATE {} SET amount = amount + 0.000000000000000001 WHERE rowid = 3"),
        ("enriched_orders", "INSERT INTO {} SELECT * FROM {} LIMIT 1"),
        ("order_counts", "UPDATE {} SET orders = orders + 1 WHERE rowid = 3"),
        ("user_revenue", "DELETE FROM {} WHERE rowid = 3"),
        ("user_sessions", "UPDATE {} SET window_end = window_end + INTERVAL 1 MILLISECOND WHERE rowid = 3"),
        ("users", "UPDATE {} SET name = NULL WHERE rowid = 3"),
        ("dead_letters", "UPDATE {} SET value = value || '\\x00'::BLOB WHERE rowid = 3"),
        ("premium-orders", "UPDATE {} SET nth = nth + 1 WHERE rowid = 3"),
    ],
)
def test_a_single_altered_row_is_found(equal: duckdb.DuckDBPyConnection, name: str, damage: str) -> None:
    assert 1 <= noticed(recomputation, equal, name, damage) <= 2


def test_input_that_no_batch_covers_is_refused() -> None:
    rows = rows_of(records(50))
    cuts = random_cuts(rows, batches=2, rng=random.Random(0))
    cuts["user-data", 0][-1] -= 1

    with pytest.raises(ValueError, match="wait until it has caught up"):
        recomputed(recomputation, rows, cuts)


def test_input_that_compaction_removed_is_refused() -> None:
    rows = rows_of(records(50))
    cuts = random_cuts(rows, batches=2, rng=random.Random(0))

    with pytest.raises(ValueError, match="are left in Kafka"):
        recomputed(recomputation, rows[1:], cuts)
