"""Dead letters of a sink that are sent again: which, as what, and each once, whenever the sender is killed."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deltaworks.connect.api import ConnectApi
from deltaworks.connectors import dead_letters, resends
from deltaworks.connectors.dead_letters import Letter
from deltaworks.connectors.resends import NO_PLACE, TWICE, Group
from deltaworks.control import sending_again
from deltaworks.control.sending_again import SENT
from deltaworks.errors import ConfigurationError, KafkaTopicError
from deltaworks.kafka import admin
from deltaworks.settings import Settings
from deltaworks.topology.records import Coordinates
from deltaworks.topology.resend import HEADER, SentAgain
from tests.hosts.memory_kafka import MemoryKafka, MemorySink
from tests.support.fake_connect import JDBC, FakeConnect, fake_connect

SINK = {
    "name": "shop_sink",
    "connector.class": JDBC,
    "topics": "orders, returns",
    "errors.deadletterqueue.topic.name": "failed",
}


class Killed(BaseException):
    """The process ends here."""


class Desk:
    """A sink with its dead letters, and a broker in memory."""

    def __init__(self, folder: Path, fake: FakeConnect, monkeypatch: pytest.MonkeyPatch) -> None:
        self.settings = replace(Settings.from_environment({}), home=folder, project=folder)
        self.fake, self.letters = fake, list[Letter]()
        self.kafka = MemoryKafka(partitions={"orders": 2, "returns": 1})
        self.created: list[str] = []
        self.kill_at = ""
        fake.add("shop_sink", SINK)

        def sink(cluster: object, name: str, stage: int, task: int, place: Any) -> MemorySink:
            return MemorySink(self.kafka, (place.topic, stage, task))

        def every(kafka: object, name: str, topic: str, ends: object) -> Iterator[Letter]:
            assert (name, topic) == ("shop_sink", "failed")
            return iter(self.letters)

        monkeypatch.setattr(sending_again, "TransactionalSink", sink)
        monkeypatch.setattr(sending_again, "reach", self._reach)
        monkeypatch.setattr(admin, "admin", lambda cluster: None)
        monkeypatch.setattr(admin, "partition_counts_of", lambda client: self.kafka.partitions)
        monkeypatch.setattr(admin, "cluster_id", lambda kafka, timeout_s: fake.cluster)
        monkeypatch.setattr(admin, "create_topics", lambda _, topics: self.created.extend(each.name for each in topics))
        monkeypatch.setattr(dead_letters, "end_of", lambda kafka, topic: {})
        monkeypatch.setattr(dead_letters, "every", every)

    def _reach(self, point: str) -> None:
        if point == self.kill_at:
            raise Killed

    def fail(self, *letters: Letter) -> None:
        self.letters += letters

    def plan(self, only: Collection[Coordinates] | None = None) -> resends.Resend:
        with ConnectApi(self.fake.url) as api:
            return resends.plan(self.settings, api, "shop_sink", only)

    def send(self, planned: resends.Resend | None = None) -> int:
        return resends.send(self.settings, planned or self.plan(), by="ann")

    def records(self, topic: str = "orders") -> list[tuple[int, bytes | None, int, Any]]:
        """Partition, value, timestamp and headers of what is in a topic."""
        return [(part, each.value, each.timestamp_ms, each.headers) for part, _, each in self.kafka.read(topic)]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    with fake_connect() as fake:
        yield Desk(tmp_path, fake, monkeypatch)


def letter(at: int, offset: int, partition: int = 0, topic: str = "orders", **fields: Any) -> Letter:
    given = Letter(
        at=Coordinates("failed", 0, at),
        timestamp_ms=1_700_000_000_000 + offset,
        key=b"k",
        value=b"bad",
        headers=(("h", b"1"),),
        record=Coordinates(topic, partition, offset),
        connector="shop_sink",
        stage="VALUE_CONVERTER",
        error_class="DataException",
    )
    return replace(given, **fields)


def header(offset: int) -> tuple[str, bytes]:
    return HEADER, SentAgain(pipeline="connect.shop_sink", operator="shop_sink", offset=offset).encode()


def test_records_go_back_to_their_partition_as_they_were_with_one_header_more(desk: Desk) -> None:
    desk.fail(letter(0, 7, partition=1), letter(1, 3, headers=(("h", b"1"), header(2))), letter(2, 5, topic="returns"))

    planned = desk.plan()
    assert (planned.count, planned.topics) == (3, ["orders", "returns"])
    assert planned.groups == (
        Group(stage="VALUE_CONVERTER", error_class="DataException", count=3, again=1, stays=None),
    )
    assert desk.created == [] and not (desk.settings.connect / "sent-again").exists(), "a plan changes nothing"

    assert desk.send(planned) == 3
    assert desk.records() == [
        (0, b"bad", 1_700_000_000_003, (("h", b"1"), header(3))),
        (1, b"bad", 1_700_000_000_007, (("h", b"1"), header(7))),
    ]
    assert desk.records("returns") == [(0, b"bad", 1_700_000_000_005, (("h", b"1"), header(5)))]
    assert desk.created == ["__deltaworks-connect.shop_sink-resends"]
    (note,) = desk.settings.sent_again("shop_sink").glob("*.json")
    assert '"by":"ann"' in note.read_text()


def test_each_is_sent_once_though_it_is_a_letter_twice(desk: Desk) -> None:
    """A sink that is killed reads again what it had not committed, and what fails is a letter again."""
    desk.fail(letter(0, 3), letter(1, 3), letter(2, 4))
    planned = desk.plan()
    assert [(each.count, each.stays) for each in planned.groups] == [(2, None), (1, TWICE)]

    assert (desk.send(planned), desk.send(planned), desk.send()) == (2, 0, 0)
    assert [headers[-1] for *_, headers in desk.records()] == [header(3), header(4)]
    assert [(each.count, each.stays) for each in desk.plan().groups] == [(3, SENT)]


@pytest.mark.parametrize("point", ["resends.noted", "resends.before_commit", "resends.committed"])
def test_each_is_sent_once_though_the_sender_is_killed(desk: Desk, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    monkeypatch.setattr(sending_again, "PER_TRANSACTION", 2)
    desk.fail(*(letter(at, at) for at in range(5)))
    desk.kill_at = point
    with pytest.raises(Killed):
        desk.send()
    desk.kill_at = ""

    desk.send()

    assert [headers[-1] for *_, headers in desk.records()] == [header(at) for at in range(5)]
    assert desk.plan().count == 0


def test_only_those_that_are_meant(desk: Desk) -> None:
    desk.fail(letter(0, 3), letter(1, 4))

    assert desk.send(desk.plan([Coordinates("failed", 0, 1)])) == 1
    assert [headers[-1] for *_, headers in desk.records()] == [header(4)]
    with pytest.raises(ConfigurationError, match="failed-0@9 is no dead letter of shop_sink"):
        desk.plan([Coordinates("failed", 0, 9)])


def test_what_cannot_be_sent_says_why(desk: Desk) -> None:
    desk.fail(letter(0, 3, record=None), letter(1, 4, topic="others"))

    planned = desk.plan()

    assert {each.stays for each in planned.groups} == {NO_PLACE, "the connector does not read others"}
    assert (planned.count, desk.send(planned), desk.created) == (0, 0, [])


def test_a_pattern_of_topics_counts(desk: Desk) -> None:
    desk.fake.add("shop_sink", {**SINK, "topics": "", "topics.regex": "o.*"})
    desk.fail(letter(0, 3), letter(1, 4, topic="returns"))

    assert desk.plan().topics == ["orders"]


def test_nothing_is_sent_to_a_partition_that_is_gone(desk: Desk) -> None:
    desk.fail(letter(0, 3), letter(1, 4, partition=1))
    planned = desk.plan()
    desk.kafka.partitions["orders"] = 1

    with pytest.raises(KafkaTopicError, match="Partition 1 of topic 'orders' does not exist any more"):
        desk.send(planned)
    assert desk.records() == []


def test_a_home_that_does_not_know_what_was_sent_sends_nothing(desk: Desk, tmp_path: Path) -> None:
    desk.fail(letter(0, 3))
    assert desk.send() == 1

    desk.settings = replace(desk.settings, home=tmp_path / "another")
    assert desk.plan().count == 1
    with pytest.raises(ConfigurationError, match=r"were sent again before, and .* does not say which") as refused:
        desk.send()
    assert "delete the topic __deltaworks-connect.shop_sink-resends" in str(refused.value)
    assert len(desk.records()) == 1


def test_a_connector_without_a_topic_for_them_says_how_to_get_one(desk: Desk) -> None:
    desk.fake.add("shop_sink", {**SINK, "errors.deadletterqueue.topic.name": ""})

    with pytest.raises(ConfigurationError, match="keeps no dead letters") as refused:
        desk.plan()
    assert 'dead_letters="shop_sink_failed"' in str(refused.value)
