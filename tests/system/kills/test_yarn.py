"""The orders pipeline on YARN with everything on S3, under SIGKILLs of what runs there."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from deltaworks.settings import Settings
from tests.system.kills.cluster import check_alone, project
from tests.system.kills.store_under_kills import stored
from tests.system.kills.stream_under_kills import StreamUnderKills
from tests.system.kills.yarn import yarn
from tests.system.sample_data import flowing


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_stream_on_yarn_is_exact_after_kills_of_executors_application_master_and_driver(
    orders_settings: Settings, tmp_path: Path
) -> None:
    with yarn() as cluster, stored(orders_settings, everything=True) as store:
        settings = project(store.settings, cluster.table(), tmp_path / "project", cores=4)
        orders = StreamUnderKills(settings, cluster.folder)
        rng = random.Random(1)
        with flowing(store.settings, rate=100.0), orders.running():
            for kill in (cluster.kill_executor, cluster.kill_executor, cluster.kill_master):
                orders.at_work(rng)
                kill()
            orders.kill("driver", rng)
            orders.at_work(rng)
            shown = [*orders.words(), *cluster.words()]
            cluster.until(lambda: bool(cluster.stores()), "there is no local store")
            cluster.until(lambda: cluster.stores() <= cluster.executors(), "stores of killed executors are left")
        cluster.until(lambda: not cluster.executors(), "executors are left")
        cluster.until(lambda: not cluster.stores(), "stores are left")
        outcome = check_alone(orders)
    assert cluster.kills == ["executor", "executor", "application master"]
    assert not any("spark.authenticate.secret" in word for word in shown)
    assert [comparison for comparison in outcome.comparisons if not comparison.equal] == []
    assert (outcome.stores, outcome.rebuilt_stores) == ([], [])
