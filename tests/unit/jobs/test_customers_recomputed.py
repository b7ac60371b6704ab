"""The kernel on four tasks per stage, for random cuts into micro-batches, against the recomputation in SQL."""

from __future__ import annotations

import random
from pathlib import Path

import duckdb
import pytest

from deltaworks.testing.recorded import run_recorded
from jobs.customers import pipeline
from jobs.recomputed.customers import recomputation
from jobs.sample_data.customers import records
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


@pytest.mark.parametrize(("seed", "batches"), [(1, 1), (2, 3), (3, 30)])
def test_every_result_is_what_the_recomputation_says_for_any_cut_and_any_restart(seed: int, batches: int) -> None:
    rng = random.Random(seed)
    rows = rows_of(records(1_200, seed))
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


def test_tables_and_topics_of_the_streaming_host_are_exact_through_failures(tmp_path: Path) -> None:
    connection = streamed(recomputation, pipeline, rows_of(records(800, 5)), tmp_path, random.Random(5))

    assert differences(recomputation, connection) == {}


@pytest.fixture(scope="module")
def results() -> duckdb.DuckDBPyConnection:
    rows = rows_of(records(700))
    return equal_results(recomputation, rows, random_cuts(rows, batches=5, rng=random.Random(0)))


@pytest.mark.parametrize("name", recomputation.results)
def test_equal_results_compare_equal_and_hold_rows(results: duckdb.DuckDBPyConnection, name: str) -> None:
    comparison = recomputation.compare(results, name)

    assert comparison.equal
    assert comparison.found == comparison.expected > 0


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("customers", "UPDATE {} SET since = since + 1 WHERE rowid = 3"),
        ("customers_changelog", "DELETE FROM {} WHERE rowid = 3"),
        ("customers_changelog", "INSERT INTO {} SELECT * FROM {} WHERE op = 'delete' LIMIT 1"),
        ("customers_orders", "UPDATE {} SET amount = amount + 0.01 WHERE rowid = 3"),
        ("customers_orders", "UPDATE {} SET city = NULL WHERE rowid = (SELECT min(rowid) FROM {} WHERE city <> '')"),
        ("customers_totals", "UPDATE {} SET orders = orders + 1 WHERE rowid = 3"),
        ("customers_dead_letters", "UPDATE {} SET operator = 'with-lines' WHERE rowid = 3"),
        ("customers-orders", "UPDATE {} SET lines = lines + 1 WHERE rowid = 3"),
        ("customers-dead-letters", "UPDATE {} SET value = NULL WHERE rowid = (SELECT max(rowid) FROM {})"),
    ],
)
def test_a_single_altered_row_is_found(results: duckdb.DuckDBPyConnection, name: str, damage: str) -> None:
    assert 1 <= noticed(recomputation, results, name, damage) <= 2
