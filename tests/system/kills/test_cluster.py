"""The orders pipeline on a Spark cluster with everything on S3, under SIGKILLs of what a cluster consists of.

`make check-cluster` does it at full length.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from deltaworks.settings import Settings
from tests.system.kills.cluster import check_alone, kill, on_cluster
from tests.system.kills.machines import machines
from tests.system.kills.store_under_kills import stored
from tests.system.kills.stream_under_kills import StreamUnderKills
from tests.system.sample_data import flowing

VICTIMS = ("executor", "worker", "master", "driver", "store")


@pytest.mark.timeout(900)
def test_a_stream_on_a_cluster_is_exact_after_kills_of_executors_workers_master_and_driver(
    orders_settings: Settings, tmp_path: Path
) -> None:
    with machines() as cluster, stored(orders_settings, everything=True) as store:
        orders = StreamUnderKills(on_cluster(store.settings, cluster, tmp_path / "project"), cluster.folder)
        rng = random.Random(1)
        with flowing(store.settings, rate=100.0), orders.running():
            for victim in VICTIMS:
                kill(victim, orders, cluster, store, rng)
            orders.at_work(rng)
            shown = [*orders.words(), *cluster.words()]
        store.await_back()
        outcome = check_alone(orders)
    assert {*cluster.kills, *(victim for victim, _ in outcome.kills)} == {*VICTIMS} - {"store"}
    assert cluster.master in shown and not any(cluster.secret in word for word in shown)
    assert [comparison for comparison in outcome.comparisons if not comparison.equal] == []
    assert (outcome.stores, outcome.rebuilt_stores) == ([], [])
