"""The kernel on four tasks, for random cuts into micro-batches under a random clock, against the recomputation."""

from __future__ import annotations

import random
from decimal import Decimal
from itertools import accumulate

import duckdb
import pytest

from deltaworks import Json, String
from deltaworks.testing.recorded import Recording, run_recorded
from jobs.fraud import PROFILES, pipeline
from jobs.recomputed.fraud import recomputation
from jobs.rules.fraud import Profile
from jobs.sample_data.fraud import records
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


def random_clock(batches: int, rng: random.Random) -> list[int]:
    """Now and then it stands still, now and then it jumps by an hour and more."""
    steps = rng.choices([0, SECOND, 4 * SECOND, 10 * SECOND, 90 * MINUTE], weights=[1, 4, 4, 4, 2], k=batches)
    return list(accumulate(steps, initial=rng.randrange(10**12)))[:batches]


@pytest.mark.parametrize(("seed", "batches"), [(1, 1), (2, 3), (3, 12), (4, 40), (5, 150)])
def test_every_result_is_what_the_recomputation_says_for_any_cut_any_clock_and_any_restart(
    seed: int, batches: int
) -> None:
    rng = random.Random(seed)
    rows = rows_of(records(2_000, seed))
    cuts = random_cuts(rows, batches, rng)
    clock = random_clock(batches, rng)
    ticks = {batch for batch in range(batches) if rng.random() < 0.3}
    connection = recomputed(recomputation, rows, cuts, clock, ticks)

    recording = run_recorded(
        pipeline.plan(),
        {"payments": 4},
        micro_batches(rows, cuts, clock, ticks),
        errors=pipeline.errors,
        restarts=lambda batch, task: rng.random() < 0.3,
    )

    put_beside(connection, recomputation, pipeline, recording, cuts)
    assert differences(recomputation, connection) == {}
    assert profiles_of(recording) == {
        user: Profile(*profile) for user, *profile in connection.sql("SELECT * FROM profiles").fetchall()
    }
    waiting = connection.sql("SELECT count(*) FROM waiting_bursts").fetchall()[0][0]
    assert entries(recording, "fraud-bursts") == waiting


def profiles_of(recording: Recording) -> dict[str, Profile]:
    return {
        String().deserialize(user): Json(Profile).deserialize(profile)
        for stores in recording.stores.values()
        for user, profile in stores.get(PROFILES.name, ())
    }


def entries(recording: Recording, store: str) -> int:
    return sum(len(stores.get(store, ())) for stores in recording.stores.values())
