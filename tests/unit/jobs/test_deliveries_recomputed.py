"""The kernel on four tasks per stage, for random cuts into micro-batches, against the recomputation in SQL."""

from __future__ import annotations

import random
from pathlib import Path

import duckdb
import pytest

from deltaworks.testing.recorded import run_recorded
from jobs.deliveries import pipeline
from jobs.recomputed.deliveries import recomputation
from jobs.sample_data.deliveries import MAIN_TOPIC, records
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
    rows = rows_of(records(1_500, seed))
    cuts = random_cuts(rows, batches, rng)
    connection = recomputed(recomputation, rows, cuts)

    recording = run_recorded(
        pipeline.plan(),
        {MAIN_TOPIC: 4},
        micro_batches(rows, cuts),
        errors=pipeline.errors,
        restarts=lambda batch, task: rng.random() < 0.3,
    )
    put_beside(connection, recomputation, pipeline, recording, cuts)

    assert differences(recomputation, connection) == {}


@pytest.mark.parametrize("seed", [1, 2])
def test_the_streaming_host_gives_the_same_under_failures(tmp_path: Path, seed: int) -> None:
    rows = rows_of(records(600, seed))

    connection = streamed(recomputation, pipeline, rows, tmp_path, random.Random(seed))

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
        ("deliveries_scans", "UPDATE {} SET fee = fee + 0.01 WHERE rowid = 3"),
        ("deliveries_parcels", "UPDATE {} SET status = 'lost' WHERE rowid = 3"),
        ("deliveries_parcels_changelog", "DELETE FROM {} WHERE rowid = 3"),
        ("deliveries_dead_letters", "UPDATE {} SET value = value || '\\x00'::BLOB WHERE rowid = 3"),
        ("deliveries-parcels", "UPDATE {} SET destination = {'country': 'NL', 'city': 'Gouda'} WHERE rowid = 3"),
        ("deliveries-dead-letters", "INSERT INTO {} SELECT * FROM {} LIMIT 1"),
    ],
)
def test_a_single_altered_row_is_found(equal: duckdb.DuckDBPyConnection, name: str, damage: str) -> None:
    assert 1 <= noticed(recomputation, equal, name, damage) <= 2
