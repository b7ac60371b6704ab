"""Four tasks, for random cuts into micro-batches under a random clock, against the recomputation in SQL."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import duckdb
import pytest

from deltaworks import Json, String
from deltaworks.testing.recorded import Recording, run_recorded
from jobs.fraud import BURSTS, PROFILES, pipeline
from jobs.model.fraud import Profile
from jobs.recomputed.fraud import recomputation
from jobs.sample_data.fraud import MAIN_TOPIC, records
from jobs.sample_data.kafka import MINUTE, SECOND
from tests.unit.jobs.recomputing import (
    differences,
    micro_batches,
    noticed,
    put_beside,
    random_cuts,
    recomputed,
    rows_of,
)
from tests.unit.jobs.streamed import streamed

STEPS = (0, SECOND, 4 * SECOND, 10 * SECOND, 90 * MINUTE)


def random_clock(batches: int, rng: random.Random, steps: Sequence[int] = STEPS) -> list[int]:
    """Now and then it stands still, now and then it jumps by more than an hour, when the time to clean up has come."""
    steps = rng.choices(steps, k=batches)
    return list(accumulate(steps, initial=rng.randrange(10**12)))[:batches]


def random_ticks(batches: int, rng: random.Random) -> set[int]:
    return {batch for batch in range(batches) if rng.random() < 0.3}


@pytest.mark.parametrize(
    ("seed", "batches", "steps"),
    [(1, 1, STEPS), (2, 2, [90 * MINUTE]), (3, 6, STEPS), (4, 40, STEPS), (5, 150, STEPS)],
)
def test_every_result_is_what_the_recomputation_says_for_any_cut_any_clock_and_any_restart(
    seed: int, batches: int, steps: Sequence[int]
) -> None:
    rng = random.Random(seed)
    rows = rows_of(records(2_000, seed))
    cuts, clock, ticks = random_cuts(rows, batches, rng), random_clock(batches, rng, steps), random_ticks(batches, rng)
    connection = recomputed(recomputation, rows, cuts, clock, ticks)

    recording = run_recorded(
        pipeline.plan(),
        {MAIN_TOPIC: 4},
        micro_batches(rows, cuts, clock, ticks),
        errors=pipeline.errors,
        restarts=lambda batch, task: rng.random() < 0.3,
    )
    put_beside(connection, recomputation, pipeline, recording, cuts)

    assert differences(recomputation, connection) == {}
    assert profiles_in(recording) == {
        user: Profile(*profile) for user, *profile in connection.sql("SELECT * FROM profiles").fetchall()
    }
    waiting = connection.sql("SELECT count(*) FROM waiting_bursts").fetchall()[0][0]
    assert sum(len(stores.get(BURSTS.name, ())) for stores in recording.stores.values()) == waiting


def profiles_in(recording: Recording) -> dict[str, Profile]:
    return {
        String().deserialize(user): Json(Profile).deserialize(profile)
        for stores in recording.stores.values()
        for user, profile in stores.get(PROFILES.name, ())
    }


@pytest.mark.parametrize("seed", [1, 2])
def test_topics_and_delta_tables_of_the_streaming_host_are_exact_through_failures_and_ticks(
    tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    clock = random_clock(1_000, rng)

    connection = streamed(
        recomputation, pipeline, rows_of(records(2_000, seed)), tmp_path, rng, clock=clock.__getitem__
    )

    assert differences(recomputation, connection) == {}


@pytest.fixture(scope="module")
def equal() -> duckdb.DuckDBPyConnection:
    """A connection in which every result is what the recomputation expects, bursts among them."""
    rng = random.Random(0)
    rows = rows_of(records(1_000))
    connection = recomputed(recomputation, rows, random_cuts(rows, 5, rng), clock=[n * MINUTE for n in range(5)])
    for name in recomputation.results:
        connection.execute(f'CREATE TABLE "found {name}" AS SELECT * FROM "expected {name}"')
    return connection


@pytest.mark.parametrize("name", recomputation.results)
def test_equal_results_compare_equal_and_hold_rows(equal: duckdb.DuckDBPyConnection, name: str) -> None:
    comparison = recomputation.compare(equal, name)

    assert comparison.equal
    assert comparison.found == comparison.expected > 0


def test_every_rule_is_broken(equal: duckdb.DuckDBPyConnection) -> None:
    rules = equal.sql('SELECT DISTINCT rule FROM "expected fraud_alerts" ORDER BY rule').fetchall()

    assert rules == [("GEO_ANOMALY",), ("HIGH_AMOUNT",), ("HIGH_VELOCITY",)]


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("fraud_alerts", "UPDATE {} SET total = total + 0.000000000000000001 WHERE rowid = 3"),
        ("fraud_alerts", "UPDATE {} SET last_country = NULL WHERE rowid = 3"),
        ("fraud_alerts", "DELETE FROM {} WHERE rowid = (SELECT max(rowid) FROM {} WHERE rule = 'HIGH_VELOCITY')"),
        ("fraud_dead_letters", "UPDATE {} SET operator = 'watch' WHERE rowid = 3"),
        ("fraud-alerts", "UPDATE {} SET nth = nth + 1 WHERE rowid = 3"),
        ("fraud-alerts", "INSERT INTO {} SELECT * FROM {} LIMIT 1"),
        ("fraud-dead-letters", "UPDATE {} SET value = value || '\\x00'::BLOB WHERE rowid = 3"),
    ],
)
def test_a_single_altered_row_is_found(equal: duckdb.DuckDBPyConnection, name: str, damage: str) -> None:
    assert 1 <= noticed(recomputation, equal, name, damage) <= 2
