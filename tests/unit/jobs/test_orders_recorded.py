"""The kernel on four tasks per stage, for random cuts into micro-batches, against the recomputation in SQL."""

from __future__ import annotations

import random

import pytest

from deltaworks.testing.recorded import run_recorded
from jobs.orders import pipeline
from jobs.recomputed.orders import recomputation
from jobs.sample_data.orders import records
from tests.unit.jobs.recomputing import differences, micro_batches, put_beside, random_cuts, recomputed, rows_of


@pytest.mark.parametrize(("seed", "batches"), [(1, 1), (2, 3), (3, 12), (4, 40)])
def test_every_result_is_what_the_recomputation_says_for_any_cut_and_any_restart(seed: int, batches: int) -> None:
    rng = random.Random(seed)
    rows = rows_of(records(2_000, seed))
    cuts = random_cuts(rows, batches, rng)
    connection = recomputed(recomputation, rows, cuts)

    recording = run_recorded(
        pipeline.plan(),
        {"raw-orders": 4, "user-data": 4},
        micro_batches(rows, cuts),
        errors=pipeline.errors,
        restarts=lambda batch, task: rng.random() < 0.3,
    )
    put_beside(connection, recomputation, pipeline, recording, cuts)

    assert differences(recomputation, connection) == {}
