"""Dead letters that are sent again: which, where, and each once, whenever the sender is killed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deltaworks import faults
from deltaworks.control import jobs, resends, sending_again
from deltaworks.control.paths import PipelinePaths
from deltaworks.control.resends import NO_BYTES, Group
from deltaworks.control.sending_again import SENT
from deltaworks.errors import ConfigurationError, IncompatibleCheckpointError, KafkaTopicError
from deltaworks.kafka import admin
from deltaworks.kafka.control_topic import Marker
from deltaworks.kernel.records import Coordinates, DeadLetter, Headers
from deltaworks.lakehouse.committer import TableCommitter
from deltaworks.lakehouse.dead_letters import Wanted
from deltaworks.lakehouse.task_tables import TaskTables
from deltaworks.settings import Settings
from deltaworks.topology.resend import HEADER, SentAgain
from tests.hosts.memory_kafka import MemoryKafka, MemorySink

NAME = "sent_again"
TOPOLOGY = """
from deltaworks import DeadLetters, Pipeline

def topology(builder):
    lines = builder.stream("{topic}", key=str, value=str, name="lines")
    lines.map_values(int, value=int, name="number").to("out")
    lines.flat_map_values(str.split, value=str, name="words").map_values(int, value=int, name="numbers").to("others")

pipeline = Pipeline(name="{name}", topology=topology, on_error="continue", dead_letters=DeadLetters(table="letters"))
"""


class Killed(BaseException):
    """The process ends here."""


class Desk:
    """A project with a pipeline, its dead letters, and a broker in memory."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        jobs = folder / "project" / "jobs"
        jobs.mkdir(parents=True)
        for name, topic in ((NAME, "in"), ("beside", "in"), ("elsewhere", "other")):
            (jobs / f"{name}.py").write_text(TOPOLOGY.format(name=name, topic=topic))
        monkeypatch.setenv("DELTAWORKS_HOME", str(folder / "home"))
        monkeypatch.setenv("DELTAWORKS_PROJECT", str(folder / "project"))
        self.settings = Settings.from_environment()
        self.notes = PipelinePaths.of(self.settings, NAME).resends
        self.kafka = MemoryKafka(partitions={"in": 2})
        self.created: list[str] = []

        def sink(cluster: object, name: str, stage: int, task: int, place: Any) -> Sink:
            return Sink(self.kafka, (place.topic, stage, task))

        def create(cluster: object, topics: list[admin.TopicSpec]) -> list[str]:
            self.created += [topic.name for topic in topics]
            return []

        monkeypatch.setattr(sending_again, "TransactionalSink", sink)
        monkeypatch.setattr(admin, "admin", lambda cluster: None)
        monkeypatch.setattr(admin, "partition_counts_of", lambda client: self.kafka.partitions)
        monkeypatch.setattr(admin, "create_topics", create)
        monkeypatch.setattr(faults, "reach", self._reach)
        monkeypatch.setattr(sending_again, "reach", self._reach)
        self.kill_at = ""

    def _reach(self, point: str) -> None:
        if point == self.kill_at:
            raise Killed

    def fail(self, batch: int, *letters: DeadLetter) -> None:
        """The stream commits a batch with dead letters."""
        committer = TableCommitter(self.settings.tables, NAME, "query", (), "letters")
        committer.open(1)
        tables = TaskTables(self.settings.tables, (), "letters", stage=0, task=0)
        tables.begin(batch)
        tables.step(batch)
        for letter in letters:
            tables.dead_letter(letter)
        committer.commit(batch, tables.finish())
        committer.publish_cut()

    def plan(self, **wanted: Any) -> resends.Resend:
        return resends.plan(self.settings, NAME, Wanted(**wanted))

    def send(self, planned: resends.Resend | None = None) -> int:
        return resends.send(self.settings, planned or self.plan(), by="ann")

    @property
    def records(self) -> list[tuple[int, bytes | None, int, Headers]]:
        """Partition, value, timestamp and headers of what is in the topic."""
        return [
            (partition, each.value, each.timestamp_ms, each.headers) for partition, _, each in self.kafka.read("in")
        ]


class Sink(MemorySink):
    def committed(self) -> Marker | None:
        return self._kafka.markers.get(self._task)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(tmp_path, monkeypatch)


def letter(offset: int, operator: str = "number", partition: int = 0, **fields: Any) -> DeadLetter:
    source = Coordinates("in", partition, offset)
    given = DeadLetter(
        b"k", b"bad", (("h", b"1"),), 1_700_000_000_123 + offset, source, "ValueError", "m", operator, "t"
    )
    return msgspec.structs.replace(given, **fields)


def header(offset: int, operator: str = "number") -> tuple[str, bytes]:
    return (HEADER, SentAgain(pipeline=NAME, operator=operator, offset=offset).encode())


def test_records_go_back_to_their_partition_with_bytes_and_time(desk: Desk) -> None:
    desk.fail(0, letter(7, partition=1), letter(3), letter(5, "lines"), letter(4, headers=(("h", b"1"), header(3))))

    planned = desk.plan()
    assert (planned.count, planned.topics, resends.readers(desk.settings, planned)) == (4, ["in"], ["beside"])
    assert planned.groups == (
        Group(operator="number", error_class="ValueError", count=3, again=1, stays=None),
        Group(operator="lines", error_class="ValueError", count=1, again=0, stays=None),
    )
    assert desk.records == [] and not desk.notes.exists(), "a plan changes nothing"

    assert desk.send(planned) == 4
    assert desk.records == [
        (0, b"bad", 1_700_000_000_126, (("h", b"1"), header(3))),
        (0, b"bad", 1_700_000_000_127, (("h", b"1"), header(4))),
        (0, b"bad", 1_700_000_000_128, (("h", b"1"), header(5, "lines"))),
        (1, b"bad", 1_700_000_000_130, (("h", b"1"), header(7))),
    ]
    assert desk.created == [f"__deltaworks-{NAME}-resends"]


def test_one_that_failed_before_its_operator_goes_there_again(desk: Desk) -> None:
    desk.fail(0, letter(9, "lines", headers=(header(3),)), letter(10, headers=((HEADER, b"?"),)))

    assert [each.stays is None for each in desk.plan().groups] == [True, False]
    assert "cannot be read" in str(desk.plan().groups[1].stays)
    assert desk.send() == 1
    assert [headers for _, _, _, headers in desk.records] == [(header(9),)]


def test_each_is_sent_once(desk: Desk) -> None:
    desk.fail(0, letter(1), letter(2))
    planned = desk.plan()

    assert (desk.send(planned), desk.send(planned), desk.send()) == (2, 0, 0)
    desk.fail(1, letter(3))
    assert desk.plan().groups == (
        Group(operator="number", error_class="ValueError", count=1, again=0, stays=None),
        Group(operator="number", error_class="ValueError", count=2, again=0, stays=SENT),
    )
    assert desk.send() == 1
    assert len(desk.records) == 3


@pytest.mark.parametrize("point", ["resends.noted", "resends.before_commit", "resends.committed"])
@pytest.mark.parametrize("survived", [0, 1])
def test_each_is_sent_once_though_the_sender_is_killed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, point: str, survived: int
) -> None:
    """In the first or the second of three transactions."""
    monkeypatch.setattr(sending_again, "PER_TRANSACTION", 2)
    desk.fail(0, *(letter(offset) for offset in range(5)))
    passed = []

    def kill(at: str) -> None:
        if at == point:
            passed.append(at)
            if len(passed) > survived:
                raise Killed

    monkeypatch.setattr(sending_again, "reach", kill)
    with pytest.raises(Killed):
        desk.send()
    monkeypatch.setattr(sending_again, "reach", lambda at: None)

    desk.send()

    assert [headers[-1] for _, _, _, headers in desk.records] == [header(offset) for offset in range(5)]
    assert desk.plan().count == 0


def test_what_cannot_be_exact_is_not_sent(desk: Desk) -> None:
    letters = {
        letter(1, "gone"): "the topology has no such operator",
        letter(2, "words"): "it may have forwarded results before it failed",
        letter(3, "numbers"): "words before it keeps what it makes of a record, or makes several of one",
        letter(4, key=None, value=None): NO_BYTES,
        letter(5, "lines", timestamp_ms=-1): "its timestamp is negative, which no record of Kafka can have",
        letter(6, source=Coordinates("another", 0, 6)): "no record of the topic another reaches it",
    }
    desk.fail(0, *letters)

    planned = desk.plan()

    assert sorted(each.stays or "" for each in planned.groups) == sorted(letters.values())
    assert (planned.count, resends.readers(desk.settings, planned), desk.send(planned)) == (0, [], 0)
    assert desk.created == []


def test_only_those_that_are_meant(desk: Desk) -> None:
    desk.fail(0, letter(1), letter(2, "lines"), letter(3, key=b"other"))

    assert desk.send(desk.plan(operator="number", key=b"k")) == 1
    assert [headers[-1] for _, _, _, headers in desk.records] == [header(1)]


def gone(desk: Desk) -> None:
    desk.kafka.partitions["in"] = 1


def small(desk: Desk) -> None:
    desk.kafka.limits["in"] = 60


def newer(desk: Desk) -> None:
    desk.notes.mkdir(parents=True)
    (desk.notes / "000000000000.json").write_text('{"format": 2}')
    desk.kafka.markers[f"__deltaworks-{NAME}-resends", 0, 0] = Marker(batch=0, intent="")


@pytest.mark.parametrize(
    ("spoil", "error", "said"),
    [
        (gone, KafkaTopicError, "Partition 1 of topic 'in' does not exist any more"),
        (small, ConfigurationError, "bytes when it is sent again; its topic takes 60"),
        (newer, IncompatibleCheckpointError, "lists dead letters that were sent again"),
    ],
)
def test_nothing_is_sent_if_not_everything_can_be(
    desk: Desk, spoil: Callable[[Desk], None], error: type[Exception], said: str
) -> None:
    desk.fail(0, letter(1), letter(2, partition=1))
    planned = desk.plan()
    spoil(desk)

    with pytest.raises(error, match=said):
        desk.send(planned)

    assert desk.records == []


def test_a_pipeline_without_a_table_has_none_to_send(desk: Desk) -> None:
    pipeline = jobs.load(desk.settings, NAME)
    with pytest.raises(ConfigurationError, match="has no table of dead letters: they go to the topic 'bad'"):
        resends.table_of(replace(pipeline, dead_letters=replace(pipeline.dead_letters, table=None, topic="bad")))
