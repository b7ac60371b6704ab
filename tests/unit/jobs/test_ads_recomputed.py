"""The kernel on four tasks per stage, for random cuts into micro-batches, against the recomputation in SQL."""

from __future__ import annotations

import random
from pathlib import Path

import duckdb
import pytest

from deltaworks.testing.recorded import run_recorded
from jobs.ads import pipeline
from jobs.recomputed.ads import recomputation
from jobs.sample_data.ads import records
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
        dict.fromkeys(recomputation.inputs, 4),
        micro_batches(rows, cuts),
        errors=pipeline.errors,
        restarts=lambda batch, task: rng.random() < 0.3,
    )
    put_beside(connection, recomputation, pipeline, recording, cuts)

    assert differences(recomputation, connection) == {}


@pytest.mark.parametrize("seed", [5, 6])
def test_tables_and_topics_of_the_streaming_host_are_exact_through_failures(seed: int, tmp_path: Path) -> None:
    connection = streamed(recomputation, pipeline, rows_of(records(2_000, seed)), tmp_path, random.Random(seed))

    assert differences(recomputation, connection) == {}


@pytest.fixture(scope="module")
def results() -> duckdb.DuckDBPyConnection:
    rows = rows_of(records(1_000))
    return equal_results(recomputation, rows, random_cuts(rows, batches=5, rng=random.Random(0)))


@pytest.mark.parametrize("name", (*recomputation.tables, *recomputation.topics))
def test_equal_results_compare_equal_and_hold_rows(results: duckdb.DuckDBPyConnection, name: str) -> None:
    comparison = recomputation.compare(results, name)

    assert comparison.equal
    assert comparison.found == comparison.expected > 0


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("ads_clicks", "UPDATE {} SET advertiser = 'nobody' WHERE rowid = 3"),
        ("ads_clicks", "INSERT INTO {} SELECT * FROM {} LIMIT 1"),
        ("ads_late", "UPDATE {} SET source_offset = source_offset + 1 WHERE rowid = 3"),
        ("ads_bursts", "UPDATE {} SET clicks = clicks + 1 WHERE rowid = 3"),
        ("ads_bursts", "UPDATE {} SET window_start = window_start + INTERVAL 1 MILLISECOND WHERE rowid = 3"),
        ("ads_hours", "UPDATE {} SET spent = spent + 0.01 WHERE rowid = 3"),
        ("ads_hours", "UPDATE {} SET is_final = NOT is_final WHERE rowid = 3"),
        ("ads_dead_letters", "UPDATE {} SET operator = 'names' WHERE rowid = 3"),
        (
            "ads-hours",
            'UPDATE {} SET "left" = NULL WHERE rowid = (SELECT min(rowid) FROM {} WHERE campaign IS NOT NULL)',
        ),
        ("ads-hours", "UPDATE {} SET nth = nth + 100 WHERE rowid = 3"),
        ("ads-dead-letters", "UPDATE {} SET value = value || '\\x00'::BLOB WHERE rowid = 3"),
    ],
)
def test_a_single_altered_row_is_found(results: duckdb.DuckDBPyConnection, name: str, damage: str) -> None:
    assert 1 <= noticed(recomputation, results, name, damage) <= 2
