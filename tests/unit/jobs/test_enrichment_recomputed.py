"""The kernel on four tasks per stage, for random cuts into micro-batches, against the recomputation in SQL."""

from __future__ import annotations

import random
from pathlib import Path

import duckdb
import pytest

from deltaworks.testing.recorded import run_recorded
from jobs.enrichment import pipeline
from jobs.recomputed.enrichment import recomputation
from jobs.sample_data.enrichment import records
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


@pytest.mark.parametrize("name", recomputation.results)
def test_equal_results_compare_equal_and_hold_rows(results: duckdb.DuckDBPyConnection, name: str) -> None:
    comparison = recomputation.compare(results, name)

    assert comparison.equal
    assert comparison.found == comparison.expected > 0


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        (
            "enrichment_checked",
            "UPDATE {} SET credit = 'approved' WHERE rowid = (SELECT min(rowid) FROM {} WHERE credit = 'rejected')",
        ),
        ("enrichment_checked", "INSERT INTO {} SELECT * FROM {} LIMIT 1"),
        ("enrichment_customers", "UPDATE {} SET credit_limit = credit_limit + 0.01 WHERE rowid = 3"),
        ("enrichment_customers_changelog", "DELETE FROM {} WHERE rowid = 3"),
        ("enrichment_current", "UPDATE {} SET customer_name = NULL WHERE rowid = 3"),
        ("enrichment_tiers", "UPDATE {} SET customers = customers + 1 WHERE tier = 'gold'"),
        ("enrichment_dead_letters", "UPDATE {} SET operator = 'by-customer' WHERE rowid = 3"),
        ("enrichment-checked", "UPDATE {} SET nth = nth + 1 WHERE rowid = 3"),
        ("enrichment-dead-letters", "UPDATE {} SET value = NULL WHERE rowid = 3"),
    ],
)
def test_a_single_altered_row_is_found(results: duckdb.DuckDBPyConnection, name: str, damage: str) -> None:
    assert 1 <= noticed(recomputation, results, name, damage) <= 2
