"""The kernel on four tasks per stage, for random cuts into micro-batches, against the recomputation in SQL."""

from __future__ import annotations

import random
import zlib
from pathlib import Path

import duckdb
import pytest

from deltaworks.testing.recorded import run_recorded
from jobs.invoices import pipeline
from jobs.recomputed.invoices import recomputation
from jobs.recomputed.results import batches_table, clock_table, records_table
from jobs.sample_data.invoices import records
from tests.unit.jobs.recomputing import (
    differences,
    equal_results,
    micro_batches,
    noticed,
    put_beside,
    random_cuts,
    recomputed,
    rows_of,
)
from tests.unit.jobs.streamed import streamed


@pytest.mark.parametrize(("seed", "batches"), [(1, 1), (2, 3), (3, 12), (4, 40)])
def test_every_result_is_what_the_recomputation_says_for_any_cut_and_any_restart(seed: int, batches: int) -> None:
    rng = random.Random(seed)
    rows = rows_of(records(2_000, seed))
    cuts = random_cuts(rows, batches, rng)
    connection = recomputed(recomputation, rows, cuts)

    recording = run_recorded(
        pipeline.plan(),
        {"pos": 4},
        micro_batches(rows, cuts),
        errors=pipeline.errors,
        restarts=lambda batch, task: rng.random() < 0.3,
        sink_partitions={"notification": 4},
    )
    put_beside(connection, recomputation, pipeline, recording, cuts)

    assert differences(recomputation, connection) == {}


@pytest.mark.parametrize("seed", [5, 6])
def test_tables_and_topics_of_the_streaming_host_are_exact_through_failures(seed: int, tmp_path: Path) -> None:
    connection = streamed(recomputation, pipeline, rows_of(records(2_000, seed)), tmp_path, random.Random(seed))

    assert differences(recomputation, connection) == {}


@pytest.fixture(scope="module")
def equal() -> duckdb.DuckDBPyConnection:
    rows = rows_of(records(1_000))
    return equal_results(recomputation, rows, random_cuts(rows, batches=5, rng=random.Random(0)))


@pytest.mark.parametrize("name", recomputation.results)
def test_equal_results_compare_equal_and_hold_rows(equal: duckdb.DuckDBPyConnection, name: str) -> None:
    comparison = recomputation.compare(equal, name)

    assert comparison.equal
    assert comparison.found == comparison.expected > 0


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("shipment", "UPDATE {} SET line_items = line_items[:0] WHERE rowid = 3"),
        ("shipment", "UPDATE {} SET nth = nth + 1 WHERE rowid = 3"),
        ("notification", "UPDATE {} SET total_loyalty_points = total_loyalty_points + 0.0001 WHERE rowid = 3"),
        ("notification", 'UPDATE {} SET "partition" = ("partition" + 1) % 4 WHERE rowid = 3'),
        ("hadoop-sink", "DELETE FROM {} WHERE rowid = 3"),
        ("invoices-dead-letters", "UPDATE {} SET error_class = 'TypeError' WHERE rowid = 3"),
        ("invoices_line_items", "INSERT INTO {} SELECT * FROM {} LIMIT 1"),
        ("invoices_line_items", "UPDATE {} SET item_qty = -item_qty WHERE rowid = 3"),
        ("invoices_loyalty_points", "UPDATE {} SET earned_loyalty_points = 0 WHERE rowid = 3"),
        ("invoices_dead_letters", "UPDATE {} SET value = NULL WHERE rowid = 3"),
    ],
)
def test_a_single_altered_row_is_found(equal: duckdb.DuckDBPyConnection, name: str, damage: str) -> None:
    assert 1 <= noticed(recomputation, equal, name, damage) <= 2


@pytest.mark.parametrize("card", ["", "20000000", "客-0042"])
def test_crc32_in_sql_is_that_of_zlib(card: str) -> None:
    connection = duckdb.connect()
    recomputation.recompute(connection, records_table([]), batches_table([]), clock_table([]))

    assert connection.execute("SELECT crc32(hex(encode(?)))", [card]).fetchone() == (zlib.crc32(card.encode()),)
