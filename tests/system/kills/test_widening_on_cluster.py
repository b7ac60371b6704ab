"""The orders pipeline on a Spark cluster, with everything on S3, gets more cores; what spreads its state is killed."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from deltaworks.control.checkpoint import stored_plan
from deltaworks.control.paths import PipelinePaths
from deltaworks.settings import Settings
from tests.system.kills.cluster import check_alone, on_cluster
from tests.system.kills.machines import machines
from tests.system.kills.store_under_kills import stored
from tests.system.kills.stream_under_kills import StreamUnderKills
from tests.system.sample_data import flowing

POINTS = ("widening.read", "widening.made", "widening.switched")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_stream_on_a_cluster_gets_more_cores(orders_settings: Settings, tmp_path: Path) -> None:
    with machines() as cluster, stored(orders_settings, everything=True) as store:
        narrow = on_cluster(store.settings, cluster, tmp_path / "project", cores=1)
        orders, rng = StreamUnderKills(narrow, cluster.folder), random.Random(1)
        paths = PipelinePaths.of(narrow, "orders")
        with flowing(store.settings, rate=100.0):
            with orders.running():
                orders.at_work(rng)
            orders.catch_up()  # so that no batch is open
            orders.settings = replace(orders.settings, cores=3)
            for point in POINTS:
                orders.order(point, "kill")
                orders._start().wait()
                orders.await_order(point)
            with orders.running():
                orders.at_work(rng)
                orders.kill("driver", rng)
                orders.at_work(rng)
        plan = stored_plan(paths.current.plan)
        assert plan is not None and plan.shards == 3 and len(paths.switched) == 1
        outcome = check_alone(orders)
    assert [comparison for comparison in outcome.comparisons if not comparison.equal] == []
    assert (outcome.stores, outcome.rebuilt_stores) == ([], [])
