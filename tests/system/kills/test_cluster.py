"""The orders pipeline on a Spark cluster with everything on S3, under SIGKILLs of what a cluster consists of."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from deltaworks.settings import Settings
from tests.system.kills.machines import Machines, machines
from tests.system.kills.orders_under_kills import OrdersUnderKills
from tests.system.kills.store_under_kills import stored
from tests.system.sample_data import flowing


def on_cluster(settings: Settings, cluster: Machines, folder: Path) -> Settings:
    """Settings of a project whose streams run there."""
    shutil.copytree(settings.project / "jobs", folder / "jobs", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "deltaworks.toml").write_text(cluster.table())
    secret = folder / "secret"
    secret.touch(mode=0o600)
    secret.write_text(cluster.secret)
    return replace(settings, project=folder, cores=4)


@pytest.mark.timeout(900)
def test_a_stream_on_a_cluster_is_exact_after_kills_of_executors_workers_master_and_driver(
    orders_settings: Settings, tmp_path: Path
) -> None:
    with machines() as cluster, stored(orders_settings, everything=True) as store:
        orders = OrdersUnderKills(on_cluster(store.settings, cluster, tmp_path / "project"), cluster.folder)
        rng = random.Random(1)
        with flowing(store.settings, rate=100.0), orders.running():
            for number in (0, 1):
                orders.at_work(rng)
                assert cluster.kill_executor(number)
            orders.at_work(rng)
            cluster.kill_worker(0)
            orders.at_work(rng)
            cluster.kill_master()
            cluster.kill_executor(1)
            orders.kill("driver", rng)
            store.kill()
            orders.at_work(rng)
        store.await_back()
        orders.settings = replace(orders.settings, project=store.settings.project, cores=2)  # and on one machine again
        outcome = orders.check()
    assert [comparison for comparison in outcome.comparisons if not comparison.equal] == []
    assert (outcome.stores, outcome.rebuilt_stores) == ([], [])
