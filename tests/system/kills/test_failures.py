"""The orders pipeline under failures at every point is exact; with a mutation of a safeguard it is not.

Real Kafka, LMDB and Delta, Spark played by `tests.hosts.in_process`. The same on real processes: `test_kills.py`.
"""

from __future__ import annotations

import random

import pytest

from deltaworks.settings import Settings
from deltaworks.testing.sample_data import produce
from jobs.orders import pipeline
from jobs.recomputed.orders import recomputation
from jobs.sample_data import orders as sample
from tests import mutation
from tests.hosts.in_process import InProcessStream
from tests.support.fault_points import DRIVER, WORKER
from tests.support.recorded_batches import compare_stores, compare_topics, replay

ORDERS = 2_500
BATCH = 40


def run_under_failures(settings: Settings, seed: int) -> InProcessStream:
    """Random batches, each with up to three failures at random points; workers and disks are lost between batches."""
    rng = random.Random(seed)
    produce(settings.cluster, sample.records(ORDERS))
    stream = InProcessStream(pipeline, settings)
    points = {*WORKER, *DRIVER}

    def failures(batch_id: int) -> list[str]:
        if batch_id % 4 == 1:
            stream.lose_worker()
        if batch_id % 5 == 4:
            stream.lose_disk(rng.choice(list(stream.routes)))
        candidates = sorted(points - stream.failed_at or points)
        return rng.sample(candidates, min(2, len(candidates)))

    stream.run_to_the_end(rng, BATCH, failures)
    stream.close()
    assert stream.failed_at == points
    return stream


def differences(settings: Settings) -> dict[str, int]:
    """Table, topic or `stores` -> how much of it is not as recomputed."""
    found = {
        comparison.name: comparison.different
        for comparison in recomputation.check(
            settings.cluster, settings.tables, settings.pipeline(pipeline.name) / "batches"
        )
    }
    found["stores"] = len(compare_stores(settings, pipeline))
    return {name: count for name, count in found.items() if count}


def test_failures_at_every_point_change_nothing(orders_settings: Settings) -> None:
    stream = run_under_failures(orders_settings, seed=1)
    assert differences(orders_settings) == {}
    topics = compare_topics(orders_settings, pipeline, replay(orders_settings, pipeline))
    assert all(found == expected and not differ for found, expected, differ in topics.values()), topics
    assert {"caught up", "rebuild", "same"} <= set(stream.openings)
    assert stream.skipped_transactions > 0


OF_ORDERS = (
    "nonce not compared",
    "local store written before the batch is committed",
    "transaction marker not read",
    "marker outside the transaction",
    "Delta transaction id ignored",
    "one row altered",
)
"""Mutations of safeguards that a whole pipeline shows, by the check of the demo."""


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_ORDERS)
def test_without_a_safeguard_the_check_turns_red(
    orders_settings: Settings, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    mutation.apply(name, monkeypatch.setattr)
    try:
        run_under_failures(orders_settings, seed=1)
    except Exception as error:  # a store that is wrong may also be noticed while the stream runs
        assert not isinstance(error, AssertionError) or name != "one row altered"
        return
    finally:
        monkeypatch.undo()
    assert differences(orders_settings) != {}
