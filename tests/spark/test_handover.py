"""On real Spark: a checkpoint takes over the stores of a replay, survives without them, and is undone."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from deltaworks import Pipeline, exits
from deltaworks.control import batches, heartbeat
from deltaworks.control.paths import PipelinePaths
from deltaworks.kafka import admin
from deltaworks.kernel.stores.state import StoreChanges
from deltaworks.runtime.state.local_store import LocalStore, stores_of
from deltaworks.runtime.state.recovery import local_path
from deltaworks.spark import handover
from tests.hosts.in_process import InProcessStream
from tests.spark.pipelines import miscounting, recounting
from tests.spark.test_streaming import send
from tests.support.live_stack import LiveStack
from tests.support.recorded_batches import compare_stores, replay

pytestmark = pytest.mark.timeout(1200)
Word = tuple[str, str, int]


def lasting(stream: InProcessStream, folder: Path) -> Path:
    """The stores of a stream as a replay keeps them, which nothing else holds."""
    for stage, task in stream.routes:
        stores = stores_of(stream.plan.stages[stage])
        with (
            closing(LocalStore(local_path(stream.paths.current.local, stage, task), stores)) as held,
            closing(LocalStore(local_path(folder, stage, task), stores, durable=True)) as kept,
            kept.transaction() as transaction,
        ):
            transaction.apply({name: StoreChanges([*held.reader(name).scan(b"", None)]) for name in stores})
            transaction.commit(held.version())
    return folder


class Counting:
    """The pipeline `recounting` in a home of its own."""

    def __init__(self, kafka: LiveStack, home: Path) -> None:
        self.kafka, self.settings = kafka, replace(kafka.settings, home=home)
        self.paths = PipelinePaths.of(self.settings, recounting.name)

    def run(self, code: str, words: Sequence[Word]) -> None:
        """Sends words, and lets the stream catch up with them, in several batches."""
        send(self.kafka.bootstrap, "recounted-words", words)
        path = ":".join(map(str, self.settings.python_path))
        options = {"DELTAWORKS_HOME": str(self.settings.home), "DELTAWORKS_MAX_RECORDS_PER_BATCH": "150"}
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark.pipelines", code, "--until-caught-up"],
            env=self.kafka.environment() | options | {"PYTHONPATH": path},
            capture_output=True, text=True, check=False, start_new_session=True,
        )  # fmt: skip
        assert done.returncode == exits.OK, done.stderr[-3000:]

    def replayed(self, home: Path) -> InProcessStream:
        """The recorded batches once more, with the corrected code."""
        stream = InProcessStream(recounting, replace(self.settings, home=home), query_id="corrected")
        for record in batches.read(self.paths.batches):
            end = {topic: dict(parts) for topic, parts in stream.offsets.items()}
            for topic, parts in record.offsets.items():
                end[topic] |= {partition: stop for partition, (_, stop) in parts.items()}
            stream.run(end, wall_ms=record.wall_clock_ms)
        stream.close()
        return stream

    def assert_right(self, pipeline: Pipeline) -> None:
        """Stores and tables are what all recorded batches give with that code, from the first one on."""
        assert compare_stores(self.settings, pipeline) == []
        tasks = replay(self.settings, pipeline).tasks.values()
        counts = {
            (r.key, r.start_ms): r.value for t in tasks for r in t.rows.get("word_counts", []) if r.kind == "window"
        }
        last = {row.key: row.value for task in tasks for row in task.rows.get("last_words", [])}
        found = DeltaTable(self.settings.tables / "word_counts").to_pyarrow_table().to_pylist()
        assert {(r["key"], int(r["window_start"].timestamp() * 1000)): r["value"] for r in found} == counts
        assert len(found) == len(counts) > 10
        found = DeltaTable(self.settings.tables / "last_words").to_pyarrow_table().to_pylist()
        assert {row["key"]: row["value"] for row in found} == last

    def batches(self) -> list[int]:
        return [record.batch for record in batches.read(self.paths.batches)]


def words(first: int, count: int) -> list[Word]:
    return [(f"k{i % 7}", "abcde"[i % 5], 1_000_000 + 40 * i) for i in range(first, first + count)]


@pytest.mark.slow
def test_a_checkpoint_goes_on_with_the_stores_of_a_replay_and_is_undone(kafka: LiveStack, tmp_path: Path) -> None:
    admin.create_topics(kafka.bootstrap, admin.topic_specs(recounting.topics))
    stream = Counting(kafka, tmp_path / "live")
    stream.run("miscounting", words(0, 600))
    last = stream.batches()[-1]
    assert last >= 3
    replayed = stream.replayed(tmp_path / "replay")
    partitions = {topic.name: topic.partitions for topic in recounting.topics}
    checkpoint = handover.make_checkpoint(
        stream.paths, recounting.plan(), tasks=replayed.tasks, shards=2, partitions=partitions, run_id="corrected",
        last_batch=last, offsets=handover.offsets_after(stream.paths, last),
        state=lasting(replayed, tmp_path / "stores"),
    )  # fmt: skip
    handover.switch(stream.paths, "corrected")
    shutil.move(stream.settings.tables, tmp_path / "old tables")
    shutil.move(replayed.settings.tables, stream.settings.tables)

    stream.run("recounting", [])  # a new query always runs a batch, if only of nothing
    empty = last + 1
    assert stream.batches() == list(range(last + 2))
    stream.run("recounting", words(600, 400))
    stream.assert_right(recounting)
    assert stream.paths.current.local == stream.paths.checkpoint_of("corrected").local
    assert stream.batches() == list(range(len(stream.batches()))) and stream.batches()[-1] > empty + 1

    # From here on Spark's checkpoint is all that it needs.
    shutil.rmtree(stream.paths.current.local)
    shutil.rmtree(stream.paths.current.initial_state)
    stream.run("recounting", words(1_000, 300))
    stream.assert_right(recounting)
    beat = heartbeat.read(stream.paths.heartbeat)
    assert beat is not None
    assert (beat.query_id, beat.batch_id) == (checkpoint.query_id, stream.batches()[-1])
    changes = DeltaTable(stream.settings.tables / "last_words_changelog").to_pyarrow_table()
    assert sorted({*changes["batch_id"].to_pylist(), empty}) == stream.batches()

    handover.undo(stream.paths)
    assert stream.batches() == list(range(last + 1))
    shutil.move(stream.settings.tables, tmp_path / "tables of the checkpoint")
    shutil.move(tmp_path / "old tables", stream.settings.tables)
    stream.run("miscounting", [])
    stream.assert_right(miscounting)
    assert stream.batches()[-1] > last
