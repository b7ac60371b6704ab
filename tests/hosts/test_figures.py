"""What tasks tell the driver of their batches, and what the heartbeat makes of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from deltaworks import Pipeline, StreamsBuilder, clock
from deltaworks.control import fence, heartbeat, restores
from deltaworks.control.heartbeat import Heartbeat, StoreSize
from deltaworks.control.intents import Intent
from deltaworks.control.reporter import SilentReporter
from deltaworks.control.restores import Restoring
from deltaworks.runtime.health import Health
from deltaworks.runtime.messages import TaskResult
from deltaworks.runtime.shard import PHASES
from deltaworks.runtime.state import recovery
from deltaworks.settings import Settings
from deltaworks.testing.topics import RawRecord
from deltaworks.traces.figures import BatchFigures
from deltaworks.traces.layout import batch_span
from tests.hosts.in_process import InProcessStream
from tests.hosts.memory_kafka import MemoryKafka

RECORDS, OLD_S = 400, 20.0


class Told(InProcessStream):
    """Keeps what tasks have told, and gives it to a driver's health."""

    def _commit(self, intent: Intent, results: list[TaskResult]) -> None:
        self.results = results
        if not hasattr(self, "health"):
            fence.advance(self.paths.fence, 1, self.pipeline.name)
            self.health = Health(self.paths, self.pipeline.name, 1, SilentReporter())
        super()._commit(intent, results)
        self.health.add(intent, results)
        self.health.write("running")


@pytest.fixture
def kafka() -> MemoryKafka:
    made = MemoryKafka({"words": 4, "counts": 4})
    now_ms = clock.wall_ms()
    for number in range(RECORDS):
        made.write("words", RawRecord(f"k{number}".encode(), b"v", now_ms - round(OLD_S * 1_000)))
    return made


@pytest.fixture
def stream(kafka: MemoryKafka, tmp_path: Path) -> Told:
    def topology(builder: StreamsBuilder) -> None:
        counts = builder.stream("words", key=str, value=str).group_by_key().count(store="counts")
        counts.to_stream().to("counts")

    settings = replace(Settings.from_environment({}), home=tmp_path)
    return Told(Pipeline(name="under-test", topology=topology), settings, kafka=kafka)


def test_a_task_tells_what_its_batch_took_and_when_its_records_came(stream: Told) -> None:
    stream.run(stream.end())

    assert len(stream.results) == 4
    for counts in (result.counts for result in stream.results):
        assert tuple(counts.phases) == PHASES
        assert all(seconds > 0 for seconds in counts.phases.values()), counts.phases
        assert sum(each.records for each in counts.arrivals) == counts.records_in > 0
        assert max(each.read_ms for each in counts.arrivals) <= counts.processed_ms <= counts.committed_ms
    stream.close()


def test_a_trace_of_real_tasks_nests_and_lasts_as_long_as_they_did(stream: Told) -> None:
    begun_s = clock.ticks_s()
    stream.run(stream.end())
    batch = BatchFigures(batch_id=0, generation=1, query_id="q", begun_s=begun_s)
    batch.processed(stream.results, clock.ticks_s())
    batch.end(clock.ticks_s(), clock.wall_ns())
    spans = list(batch_span(batch).all())

    for parent in spans:
        assert all(parent.begin_ns <= each.begin_ns <= each.end_ns <= parent.end_ns for each in parent.children)
    tasks = {span.name: span for span in spans if span.name.startswith("task ")}
    assert sorted(tasks) == [f"task 0-{task}" for task in range(4)]
    for result, task in zip(stream.results, tasks.values(), strict=True):
        assert "deltaworks.shifted_ms" not in task.attributes, "it is this machine's clock"
        names = ["open", "poll words", "process words", "commit", "keep"]
        assert [each.name for each in task.children] == names
        took = {name: (each.end_ns - each.begin_ns) / 1e9 for name, each in zip(PHASES, task.children, strict=True)}
        assert took == pytest.approx(result.counts.phases, abs=2e-3), "milliseconds of the wall clock, and no more"
        assert 0 < result.counts.transaction_s <= result.counts.phases["commit"]
        [transaction] = task.children[3].children
        assert transaction.attributes["messaging.batch.message_count"] == result.counts.sent > 0
    stream.close()


def test_the_heartbeat_has_them_and_the_sizes_of_stores(stream: Told, kafka: MemoryKafka) -> None:
    stream.run(stream.end())
    kafka.write("words", RawRecord(b"k1", b"v", clock.wall_ms()), 0)
    stream.run(stream.end())
    beat = beat_of(stream)

    assert beat.records_total == RECORDS + 1
    assert {name: each.count for name, each in beat.task_phases.items()} == dict.fromkeys(PHASES, 5), "4 tasks, then 1"
    ages = beat.latency
    assert {name: each.count for name, each in ages.items()} == dict.fromkeys(
        ("read", "processed", "committed", "visible"), RECORDS + 1
    )
    assert OLD_S * RECORDS < ages["read"].sum_s < (OLD_S + 60) * RECORDS
    sums = [ages[stage].sum_s for stage in ("read", "processed", "committed", "visible")]
    assert sums == sorted(sums)
    assert ages["read"].highest_s < OLD_S, "that of the last batch"
    stores = [stream.worker.task(0, task).local.sizes() for task in range(4)]
    assert beat.stores == {
        name: StoreSize(entries=sum(each[name][0] for each in stores), size_bytes=sum(each[name][1] for each in stores))
        for name in ("__task__", "counts")
    }
    assert beat.state_entries == sum(each.entries for each in beat.stores.values())
    stream.close()


def test_a_restore_that_takes_long_is_seen_while_it_goes_on(
    stream: Told, kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):  # a part of the changelog each
        kafka.write("words", RawRecord(b"k1", b"v", clock.wall_ms()), 0)
        stream.run(stream.end())
    seen: list[Restoring] = []
    note = restores.note

    def noted(folder: Path, task: str, restoring: Restoring) -> None:
        note(folder, task, restoring)
        stream.health.write("running")
        seen.append(beat_of(stream).restoring[task])
        if len(seen) == 2:  # the rest is done before it would say so again
            monkeypatch.setattr(recovery, "TELL_EVERY_S", 1e9)

    monkeypatch.setattr(recovery, "TELL_EVERY_S", 0.0)
    monkeypatch.setattr(restores, "note", noted)
    stream.lose_disk()
    kafka.write("words", RawRecord(b"k1", b"v", clock.wall_ms()), 0)
    stream.run(stream.end())

    assert len(seen) == 2
    assert [each.done for each in seen] == sorted({each.done for each in seen})
    assert len({each.total for each in seen}) == 1 and seen[-1].done < seen[-1].total
    assert beat_of(stream).restoring == {}, "it is done"
    assert beat_of(stream).restored_entries == seen[-1].total
    stream.close()


def beat_of(stream: Told) -> Heartbeat:
    beat = heartbeat.read(stream.paths.heartbeat)
    assert beat is not None
    return beat
