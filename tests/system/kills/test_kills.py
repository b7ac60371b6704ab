"""The orders pipeline on real Spark under SIGKILLs, while records flow; `make check-kill` does it at full length."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from deltaworks.settings import Settings
from jobs.orders import pipeline
from tests.support.recorded_batches import compare_topics, replay
from tests.system.kills.stream_under_kills import StreamUnderKills
from tests.system.sample_data import flowing

VICTIMS = ("worker", "driver", "jvm")
POINTS = ("kafka.before_commit", "kafka.after_commit", "store.after_apply", "store.after_version")


@pytest.mark.timeout(900)
def test_orders_are_exact_after_kills_of_driver_jvm_and_workers(orders_settings: Settings, tmp_path: Path) -> None:
    orders = StreamUnderKills(orders_settings, tmp_path)
    with flowing(orders_settings, rate=100.0), orders.running():
        for victim in VICTIMS:
            orders.kill(victim, random.Random(victim))
        for point in POINTS:
            orders.inject(point, "kill")
        orders.inject("driver.after_tables", "raise")
    outcome = orders.check()
    assert [comparison for comparison in outcome.comparisons if not comparison.equal] == []
    assert (outcome.stores, outcome.rebuilt_stores) == ([], [])
    topics = compare_topics(orders_settings, pipeline, replay(orders_settings, pipeline))
    assert all(found == expected and not differ for found, expected, differ in topics.values()), topics
    assert [victim for victim, _ in outcome.kills] == list(VICTIMS)
    assert outcome.openings["rebuild"] and outcome.skipped_transactions
