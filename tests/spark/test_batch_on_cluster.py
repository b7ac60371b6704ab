"""Batch jobs whose tasks run on a Spark cluster: they compute what they compute on one machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from deltalake import DeltaTable

from deltaworks import files
from deltaworks.batch import jobs, running
from deltaworks.config import SPARK_SECRET
from deltaworks.errors import StackError
from deltaworks.settings import Settings
from tests.spark.test_batch import FIRST, SECOND, job
from tests.spark.test_batch_in_store import InStore, in_order, own_jvm, stored  # noqa: F401  # a fixture
from tests.support.object_stores import BUCKET
from tests.system.kills.machines import Machines, machines

pytestmark = pytest.mark.slow  # two minutes, most of them until there is a cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Machines]:
    with machines(1) as found:
        yield found


def on(cluster: Machines, settings: Settings) -> Settings:
    """Settings whose batch jobs run there."""
    own = {
        "spark.master": cluster.master,
        "spark.pyspark.python": f"{cluster.python}/bin/python",
        "spark.executor.memory": "600m",
        SPARK_SECRET: cluster.secret,
    }
    values = replace(settings.values, tables={**settings.values.tables, ("spark", ""): own})
    return replace(settings, storage_address=f"s3://{BUCKET}/state", values=values)


def test_a_job_computes_there_what_it_computes_on_one_machine(
    cluster: Machines,
    stored: InStore,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jobs, "load", lambda settings, name: job())
    settings = on(cluster, stored.settings)

    with own_jvm():
        found = running.run(settings, "items", [FIRST, SECOND], run_id="test")
    rows = stored.rows()
    running.run(stored.local, "items", [FIRST, SECOND], run_id="test")

    assert [each.version for each in found] == [1, 2]
    assert rows == in_order(DeltaTable(stored.local.tables / "items"))
    assert settings.storage is not None
    assert not [*files.walk(settings.storage.path / "batch")], "nothing of it stays"
    assert [*(cluster.folder / "worker-0" / "work").glob("app-*")], "executors have run"


def test_a_cluster_that_is_away_is_said(
    stored: InStore,  # noqa: F811
    cluster: Machines,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jobs, "load", lambda settings, name: job())
    settings = on(cluster, stored.settings)
    gone = {**settings.values.tables["spark", ""], "spark.master": "spark://127.0.0.1:1"}
    values = replace(settings.values, tables={**settings.values.tables, ("spark", ""): gone})

    with pytest.raises(StackError, match="does not answer"):
        running.run(replace(settings, values=values), "items", [FIRST], run_id="test")
