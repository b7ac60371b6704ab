"""Replays of orders on a Spark cluster with everything on S3: killed, published, compared with those of one machine."""

from __future__ import annotations

import threading
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deltaworks import files
from deltaworks.config import SPARK_SECRET
from deltaworks.control.paths import PipelinePaths
from deltaworks.lakehouse.publish.comparison import Comparison
from deltaworks.object_path import ObjectPath
from deltaworks.replay import runs, work
from deltaworks.replay.model import Order, Phase, ReplayRequest
from deltaworks.replay.phases import ReplayRun
from deltaworks.runtime.replay.host import ReplayHost
from deltaworks.settings import Settings
from deltaworks.testing.sample_data import produce
from jobs.sample_data import orders as sample
from tests.spark.test_batch_in_store import own_jvm
from tests.support.fault_hooks import HOOK
from tests.system.kills.machines import Machines, machines
from tests.system.kills.store_under_kills import stored
from tests.system.kills.stream_under_kills import StreamUnderKills

RECORDS, BATCH = 3_000, 200
TABLES = ("enriched_orders", "order_counts", "user_revenue", "dead_letters", "users")
POINTS = ("replay.step", "replay.result_written", "replay.local_committed")
"""At each, a Python worker of an executor is killed."""


@dataclass
class Replays:
    """A stream that has ended, and where it may be replayed."""

    stream: StreamUnderKills
    cluster: Machines
    local: Settings
    """Without the cluster."""

    @property
    def there(self) -> Settings:
        """With it."""
        own = tomllib.loads(self.cluster.table())["spark"] | {SPARK_SECRET: self.cluster.secret}
        values = replace(self.local.values, tables={**self.local.values.tables, ("spark", ""): own})
        return replace(self.local, values=values, fault_hook=HOOK, cores=4)

    def start(self, settings: Settings, *tables: str, order: Order = "recorded") -> ReplayRun:
        request = ReplayRequest(pipeline="orders", tables=tables, order=order, requested_by="a test")
        return runs.start(settings, request)

    def staged(self, settings: Settings, order: Order) -> list[tuple[str, Any]]:
        """What a replay has made, table by table, as production sees it; it is thrown away."""
        run = self.start(settings, order=order)
        on_spark(run, "compare")
        found = msgspec.json.decode(run.paths.comparison.read_bytes(), type=Comparison)
        runs.discard(settings, run.plan.run_id)
        return [(table.table, table.rows) for table in found.tables]


@pytest.fixture
def replays(orders_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Replays]:
    """Records in many batches; each is a chunk of a replay."""
    monkeypatch.setenv("DELTAWORKS_MAX_RECORDS_PER_BATCH", str(BATCH))
    defaults: Any = ReplayHost.__init__.__kwdefaults__
    monkeypatch.setitem(defaults, "max_records", 1)
    with machines() as cluster, stored(orders_settings, everything=True) as store:
        produce(store.settings.cluster, sample.records(RECORDS))
        stream = StreamUnderKills(store.settings, cluster.folder)
        stream.catch_up()
        yield Replays(stream, cluster, store.settings)


def on_spark(run: ReplayRun, until: Phase) -> list[str]:
    """As `advance`, in a JVM of its own."""
    with own_jvm():
        return advance(run, until)


def advance(run: ReplayRun, until: Phase) -> list[str]:
    """Goes on with a replay; returns what it says of its progress."""
    said: list[str] = []
    with run.held():
        run.advance(until, lambda phase: said.append, work)
    return said


def shared(settings: Settings) -> list[Path]:
    """What is in the store of replays."""
    return [path for path, _ in files.walk(PipelinePaths.of(settings, "orders").shared_replays)]


@pytest.mark.slow  # three minutes
@pytest.mark.timeout(900)
def test_a_replay_on_a_cluster_publishes_what_is_right_although_executors_are_killed(replays: Replays) -> None:
    cluster, settings = replays.cluster, replays.there
    run = replays.start(settings, *TABLES)
    killer = threading.Thread(target=_kill, args=(replays,))
    killer.start()
    said = on_spark(run, "gate")
    killer.join()

    assert isinstance(run.paths.tables, ObjectPath) and shared(settings)
    assert len([line for line in said if "records, " in line]) > RECORDS // BATCH, "a chunk per batch"
    assert cluster.kills == ["executor", "executor"]
    assert replays.stream.outcome.injected == [*POINTS]
    assert run.paths.read_state().differences == 0 and run.paths.read_state().passed

    advance(run, "clean")
    replays.stream.compare()
    assert [each for each in replays.stream.outcome.comparisons if not each.equal] == []
    assert (run.paths.root.exists(), shared(settings)) == (False, [])


def _kill(replays: Replays) -> None:
    """Python workers at each point, then an executor of each worker, once it has run a task."""
    cluster = replays.cluster
    for point in POINTS:
        replays.stream.inject(point, "kill")
    for number in (0, 1):
        cluster.until(partial(cluster.has_run, number), f"worker {number} runs no task")
        cluster.kill_executor(number)


@pytest.mark.slow  # four minutes
@pytest.mark.timeout(900)
def test_a_replay_by_time_makes_there_what_it_makes_on_one_machine(replays: Replays) -> None:
    there = replays.staged(replays.there, "time")

    assert there == replays.staged(replays.local, "time")
    assert shared(replays.there) == []
    assert [*(replays.cluster.folder / "worker-0" / "work").glob("app-*")], "executors have run"
