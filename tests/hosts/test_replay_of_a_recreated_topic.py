"""A topic was deleted and recreated: no replay, and no archive, gives its records for those of the one before it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from deltaworks import Pipeline, StreamsBuilder, Timestamps, TimeWindows, Topic
from deltaworks.cli import recovery
from deltaworks.control import accepted, batches, jobs, set_aside
from deltaworks.errors import ConfigurationError, DeltaworksError, KafkaTopicError, TableError
from deltaworks.kafka import admin
from deltaworks.lakehouse.archive_reader import ArchiveReader
from deltaworks.replay import runs, work
from deltaworks.replay.plan import DAY_MS
from deltaworks.runtime.history import HistoryReader
from deltaworks.settings import Settings
from deltaworks.testing.topics import RawRecord
from deltaworks.topology.archives import Archives
from deltaworks.topology.records import Coordinates
from tests.hosts.beside import Beside, stand_beside
from tests.hosts.in_process import InProcessStream
from tests.hosts.memory_kafka import MemoryKafka
from tests.hosts.replays import replay_host, steps_of, tables_of

FIRST_DAY = 20_513
LIMITED = (Topic("payments", timestamps=Timestamps(max_ahead=timedelta(days=1))),)


def day(number: int) -> int:
    return (FIRST_DAY + number) * DAY_MS


def hours(builder: StreamsBuilder) -> None:
    payments = builder.stream("payments", key=str, value=str)
    windows = TimeWindows(size=timedelta(hours=1), grace=timedelta(0))
    payments.group_by_key().windowed_by(windows).count(store="hours-store").to_delta("hours")


def with_names(builder: StreamsBuilder) -> None:
    names = builder.table("names", key=str, value=str, store="names-store")
    payments = builder.stream("payments", key=str, value=str)
    payments.join(names, lambda payment, name: f"{name}:{payment}", value=str).to_delta("hours")


def with_global_names(builder: StreamsBuilder) -> None:
    names = builder.global_table("names", key=str, value=str, store="names-store")
    payments = builder.stream("payments", key=str, value=str)
    payments.join(names, lambda payment, name: f"{name}:{payment}", selector=lambda key, _: key, value=str).to_delta(
        "hours"
    )


class Days:
    """A stream that reads a batch a day: of each topic two records."""

    def __init__(self, home: Path, topology: Callable[[StreamsBuilder], None] = hours, **options: Any) -> None:
        self.kafka = MemoryKafka({"payments": 2, "names": 2})
        self.settings = replace(Settings.from_environment({}), home=home)
        self.pipeline = Pipeline(name="payments", topology=topology, **({"topics": LIMITED} | options))
        self.stream = InProcessStream(self.pipeline, self.settings, kafka=self.kafka, clock=lambda batch: day(batch))

    def run(self, *partitions: int) -> None:
        """The next day; of payments only these partitions get records."""
        number = self.stream.batch_id
        for partition in partitions or (0, 1):
            made = self.kafka.made.get("payments", 0)
            value = f"{made} on {number}".encode()
            self.kafka.write("payments", RawRecord(b"k", value, day(number) - 1), partition)
        for partition in range(2):
            self.kafka.write("names", RawRecord(b"k", b"name %d" % number, day(number) - 1), partition)
        self.stream.run(self.stream.end())

    def beside(self, patch: pytest.MonkeyPatch) -> Beside:
        self.stream.committer.refresh_snapshots(force=True)
        return stand_beside(self.stream, patch)


def refused(beside: Beside, **options: Any) -> DeltaworksError:
    """Nothing has changed."""
    with pytest.raises(KafkaTopicError) as error:
        beside.start(**options)
    assert runs.all_unfinished(beside.settings) == []
    return error.value


def test_what_was_read_before_is_not_read_from_the_topic_of_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = Days(tmp_path)
    for _ in range(3):
        days.run()
    days.stream.recreate("payments")
    for _ in range(4):
        days.run()  # by now it holds more than the one before it
    beside = days.beside(monkeypatch)

    error = refused(beside)
    assert "'payments' was recreated before batch 3, and the replay needs what batch 0 has read" in str(error)
    assert "--from" in (error.hint or "") and "new checkpoint" in (error.hint or "")
    assert "new checkpoint" in (refused(beside, hand_over=True).hint or "")
    refused(beside, order="time")

    # Records of batch 2 are of up to a day after its clock.
    error = refused(beside, from_ms=day(2))
    assert error.hint == "days from 2026-03-05 on do not depend on them: --from 2026-03-05"
    run = beside.start(from_ms=day(4))
    assert run.plan.begin is not None and run.plan.begin.batch == 4
    assert run.plan.recreated.keys() == {"payments"} and run.plan.gone == ()
    beside.advance(run, "compare")
    assert run.paths.read_state().differences == 0


def test_where_nobody_knows_how_new_the_lost_records_were_no_day_can_be_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = Days(tmp_path, topics=())
    days.run()
    days.stream.recreate("payments")
    for _ in range(4):
        days.run()

    assert "timestamps=Timestamps" in (refused(days.beside(monkeypatch), from_ms=day(3)).hint or "")


@pytest.mark.parametrize(("topology", "says"), [(with_names, "its table has rows"), (with_global_names, "")])
def test_a_table_whose_topic_was_recreated_is_not_filled_from_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topology: Callable[[StreamsBuilder], None], says: str
) -> None:
    days = Days(tmp_path, topology)
    days.run()
    days.stream.recreate("names")
    for _ in range(4):
        days.run()

    error = refused(days.beside(monkeypatch), from_ms=day(4), tables=("hours",))
    assert "'names' was recreated before batch 1" in str(error) and says in (error.hint or "")


def test_a_partition_of_which_nothing_was_read_yet_and_a_topic_recreated_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = Days(tmp_path)
    days.run()
    days.run()
    days.stream.recreate("payments")
    days.run(0)
    read = batches.topics_read(batches.read(days.stream.batches))
    assert read.recreated["payments"] == batches.Recreated(2, day(1))
    days.stream.recreate("payments")
    days.run(1)  # no offset of partition 0 is read twice, and only the id tells
    for _ in range(2):
        days.kafka.write("payments", RawRecord(b"k", b"not read", 0), 0)
    beside = days.beside(monkeypatch)

    assert "before batch 3" in str(refused(beside))
    assert batches.topics_read(batches.read(days.stream.batches)).recreated["payments"] == batches.Recreated(3, day(2))
    plan = beside.start(from_ms=day(5)).plan
    assert plan.end_offsets["payments"] == {"0": 0, "1": 1}


def test_records_that_were_given_up_are_no_other_topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    days = Days(tmp_path)
    days.run()
    for partition in range(2):
        days.kafka.write("payments", RawRecord(b"k", b"removed", day(0)), partition)
        days.kafka.removed["payments", partition] = 2
        days.stream.offsets["payments"][str(partition)] = 2
    days.run()

    assert days.beside(monkeypatch).start().plan.recreated == {}


def test_a_topic_that_is_recreated_before_anybody_accepts_that_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = Days(tmp_path)
    days.run()
    beside = days.beside(monkeypatch)
    run = beside.start()
    days.kafka.recreate("payments")
    for partition in range(2):
        for number in range(3):
            days.kafka.write("payments", RawRecord(b"k", b"new %d" % number, day(0)), partition)

    with pytest.raises(KafkaTopicError, match=r"since the replay .* was planned"):
        beside.advance(run, "run")
    runs.discard(beside.settings, run.plan.run_id)
    assert "No archive has all of that" in str(refused(beside))


def test_what_is_recreated_while_it_is_replayed_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    days = Days(tmp_path)
    days.run()
    beside = days.beside(monkeypatch)
    run = beside.start()
    ids = iter([days.kafka.ids(["payments"]), {"payments": "another"}])
    monkeypatch.setattr(beside.broker, "topic_ids", lambda topics: next(ids), raising=False)

    with pytest.raises(KafkaTopicError, match="may be other records"):
        beside.advance(run, "run")


def test_an_archive_has_what_a_topic_held_that_was_recreated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    days = Days(tmp_path, archive=True)
    days.run()
    days.run()
    beside = days.beside(monkeypatch)
    days.kafka.recreate("payments")
    for partition in range(2):
        for number in range(3):
            days.kafka.write("payments", RawRecord(b"k", b"new %d" % number, day(0)), partition)

    assert "reads on where that topic has ended" in str(refused(beside, hand_over=True))
    plan = beside.start().plan
    assert plan.gone == ("payments",)
    reads, _ = work._recorded(days.settings, days.pipeline, plan)
    assert reads.gone == {"payments"} and reads.topics == {"payments": "payments-0"}

    def history() -> HistoryReader:
        archive = ArchiveReader(days.settings.tables, Archives.of(days.stream.plan), plan.topics.get)
        return HistoryReader(days.kafka.reader, archive, gone=plan.gone)

    replay_host(days.stream, tmp_path / "run", max_records=9, clients=history).run(steps_of(days.stream))
    assert tables_of(tmp_path / "run" / "tables", days.pipeline) == beside.rows()


def test_an_archive_never_holds_two_topics_of_one_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    days = Days(tmp_path, archive=True)
    days.run()
    held = ArchiveReader(days.settings.tables, Archives.of(days.stream.plan), lambda topic: "payments-0")
    assert held.spans("payments", 0) == [(0, 1)]
    set_aside.add(days.stream.paths, days.pipeline, [Coordinates("payments", 0, 1)], by="me", reason="")
    days.stream.recreate("payments")
    monkeypatch.setattr(jobs, "load", lambda settings, name: days.pipeline)
    monkeypatch.setattr(Settings, "from_environment", lambda: days.settings)
    monkeypatch.setattr(admin, "admin", lambda bootstrap: None)
    monkeypatch.setattr(admin, "topic_ids", lambda client, topics: days.kafka.ids(topics))

    # Not even without the command that refuses it.
    with pytest.raises(TableError, match="'payments' that was deleted"):
        days.run()
    days.stream.intents.remove_after(0)  # the planner had not written one
    of_now = ArchiveReader(days.settings.tables, Archives.of(days.stream.plan), lambda topic: "payments-1")
    assert of_now.spans("payments", 0) == []

    with pytest.raises(ConfigurationError, match="holds records of the earlier topic 'payments'") as no:
        recovery.accept("payments", new_topic=["payments"])
    move = (no.value.hint or "").partition(" (")[0].split()
    assert move[0] == "mv" and accepted.read(days.stream.paths.current.accepted).topics == {}
    Path(move[1]).rename(move[2])
    recovery.accept("payments", new_topic=["payments"])
    assert accepted.read(days.stream.paths.current.accepted).topics == {"payments": "payments-1"}
    assert set_aside.entries(days.stream.paths) == ()  # its offset is another record now

    days.stream.restart()
    days.stream.run(days.stream.end())
    of_now.refresh()
    (batch,) = of_now.read("payments", 0, 0, 9)
    assert batch.values == [b"1 on 1"]
    (before,) = ArchiveReader(Path(move[2]).parent, Archives({"payments": Path(move[2]).name})).read(
        "payments", 0, 0, 9
    )
    assert before.values == [b"0 on 0"]
