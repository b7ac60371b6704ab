"""What a dead letter of a sink says, and what is counted of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from deltaworks.connect.api import ConnectApi
from deltaworks.connectors import dead_letters
from deltaworks.connectors.dead_letters import PREFIX, SOON_S, Count, counts_soon, decoded, topic_of
from deltaworks.errors import ConfigurationError, KafkaReadError, KafkaTopicError
from deltaworks.kafka import admin
from deltaworks.topology.records import Coordinates
from deltaworks.topology.resend import HEADER, SentAgain
from tests.support.fake_connect import JDBC, FakeConnect, fake_connect

SINK = {"connector.class": JDBC, "topics": "orders", "errors.deadletterqueue.topic.name": "failed"}


class Message:
    """A record of a topic of dead letters, as librdkafka gives it."""

    def __init__(self, *headers: tuple[str, str | bytes | None]) -> None:
        self._headers = list(headers)

    def topic(self) -> str:
        return "failed"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 12

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_700_000_000_123

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes:
        return b"\xff{"

    def headers(self) -> list[tuple[str, Any]] | None:
        return self._headers or None


def said(topic: str = "orders", **others: str) -> list[tuple[str, bytes]]:
    """The headers that Connect appends."""
    given = {
        "topic": topic,
        "partition": "3",
        "offset": "41",
        "connector.name": "orders_sink",
        "task.id": "0",
        "stage": "VALUE_CONVERTER",
        "class.name": "org.apache.kafka.connect.json.JsonConverter",
        "exception.class.name": "org.apache.kafka.connect.errors.DataException",
        "exception.message": "no JSON",
        "exception.stacktrace": "org.apache.kafka.connect.errors.DataException: no JSON\n\tat x",
        **others,
    }
    return [(PREFIX + name, value.encode()) for name, value in given.items()]


def test_a_letter_has_the_place_of_its_record_the_error_and_the_record_as_it_was() -> None:
    letter = decoded(Message(("h", b"1"), ("h", None), *said()))  # type: ignore[arg-type]

    assert (letter.at.name, letter.timestamp_ms, letter.key, letter.value) == (
        "failed-0@12",
        1_700_000_000_123,
        b"k",
        b"\xff{",
    )
    assert letter.record == Coordinates("orders", 3, 41)
    assert (letter.connector, letter.stage, letter.executor) == (
        "orders_sink",
        "VALUE_CONVERTER",
        "org.apache.kafka.connect.json.JsonConverter",
    )
    assert (letter.error_class, letter.message) == ("org.apache.kafka.connect.errors.DataException", "no JSON")
    assert letter.headers == (("h", b"1"), ("h", None))
    assert not letter.again


def test_a_sink_that_reads_dead_letters_leaves_the_headers_of_the_first_failure_alone() -> None:
    first = said(stage="TASK_PUT")
    letter = decoded(Message(*first, *said("failed")))  # type: ignore[arg-type]

    assert letter.record == Coordinates("failed", 3, 41)
    assert letter.stage == "VALUE_CONVERTER"
    assert letter.headers == tuple(first)


@pytest.mark.parametrize("headers", [[], [(f"{PREFIX}topic", b"orders"), (f"{PREFIX}partition", b"?")]])
def test_one_without_headers_or_with_foreign_ones_names_no_record(headers: list[tuple[str, bytes]]) -> None:
    letter = decoded(Message(*headers))  # type: ignore[arg-type]

    assert (letter.record, letter.connector, letter.error_class) == (None, None, "")


def test_a_message_shows_no_password_and_one_that_failed_again_says_so() -> None:
    again = (HEADER, SentAgain(pipeline="connect.orders_sink", operator="orders_sink", offset=1).encode())
    letter = decoded(Message(again, *said(**{"exception.message": "jdbc:x://u:s3cret@db failed, password=s3cret"})))  # type: ignore[arg-type]

    assert "s3cret" not in letter.message and "failed" in letter.message
    assert letter.again


def test_why_it_failed_is_the_message_and_what_is_behind_it() -> None:
    trace = "x.DataException: no JSON:\n\tat x\nCaused by: y.A: a\n\tat y\nCaused by: z.B: line 1, column 5\n\tat z\n"
    behind = decoded(Message(*said(**{"exception.message": "no JSON:\nat all", "exception.stacktrace": trace})))  # type: ignore[arg-type]

    assert behind.why == "no JSON: z.B: line 1, column 5"
    assert decoded(Message(*said())).why == "no JSON"  # type: ignore[arg-type]


def test_a_time_that_no_calendar_has_is_none() -> None:
    letter = decoded(Message())  # type: ignore[arg-type]

    assert [replace(letter, timestamp_ms=each).timestamp for each in (-1, 10**18)] == [None, None]


def test_topics_of_dead_letters() -> None:
    assert [topic_of(each) for each in (SINK, {}, {**SINK, "errors.deadletterqueue.topic.name": " "})] == [
        "failed",
        None,
        None,
    ]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeConnect]:
    asked: list[float] = []

    def counted(kafka: object, topics: object, *, since_ms: int, timeout_s: float) -> dict[str, tuple[int, int, int]]:
        asked.append(timeout_s)
        return {"failed": (7, 2, 9)}

    with fake_connect() as made:
        monkeypatch.setattr(admin, "cluster_id", lambda kafka, timeout_s: made.cluster)
        monkeypatch.setattr(admin, "record_counts", counted)
        yield made


def test_counts_are_those_of_topics_also_of_one_that_is_not_there_yet(fake: FakeConnect) -> None:
    other = {**SINK, "errors.deadletterqueue.topic.name": "later"}

    found = dead_letters.counts("kafka:9092", {"b": SINK, "a": other, "none": {}})

    assert found == (
        Count(connector="a", topic="later", total=0, recent=0, ever=0, exists=False),
        Count(connector="b", topic="failed", total=7, recent=2, ever=9),
    )


def test_counts_for_a_listing_come_soon_or_not_at_all(fake: FakeConnect, monkeypatch: pytest.MonkeyPatch) -> None:
    with ConnectApi(fake.url) as api:
        found = counts_soon("kafka:9092", api, {"b": SINK})
        assert found is not None and {name: (each.total, each.ever) for name, each in found.items()} == {"b": (7, 9)}

        def away(*_: object, timeout_s: float, **__: object) -> str:
            assert timeout_s == SOON_S
            raise KafkaReadError("The broker does not answer.")

        monkeypatch.setattr(admin, "cluster_id", away)
        assert counts_soon("kafka:9092", api, {"b": SINK}) is None
        assert counts_soon("kafka:9092", api, {"b": {}}) == {}, "nobody is asked"


def test_another_cluster_than_that_of_connect_is_refused(fake: FakeConnect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "cluster_id", lambda kafka, timeout_s: "ours")
    with ConnectApi(fake.url) as api:
        with pytest.raises(ConfigurationError, match=f"works with the cluster {fake.cluster}; .* leads to ours"):
            dead_letters.require_cluster("kafka:9092", api)
        assert counts_soon("kafka:9092", api, {"b": SINK}) is None


class Reader:
    """A consumer of a topic of dead letters, which begins at offset 4."""

    def __init__(self, owners: list[str]) -> None:
        self._owners, self._at = owners, 0
        self.read = 0

    def assign(self, places: list[TopicPartition]) -> None:
        (place,) = places
        self._at = place.offset

    def poll(self, timeout: float) -> Any:
        self.read += 1
        offset, self._at = self._at, self._at + 1
        message = Message(*said(**{"connector.name": self._owners[offset - 4], "offset": str(offset)}))
        return SimpleNamespace(
            error=lambda: None,
            **{each: getattr(message, each) for each in ("topic", "partition", "timestamp", "key", "value", "headers")},
            offset=lambda: offset,
        )

    def close(self) -> None:
        """Nothing is open."""


def test_the_newest_of_a_connector_are_found_behind_those_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    owners = ["orders_sink", "other", "orders_sink", *["other"] * 20]
    made: list[Reader] = []

    def reader(kafka: object) -> Reader:
        made.append(Reader(owners))
        return made[-1]

    monkeypatch.setattr(dead_letters, "reader", reader)
    monkeypatch.setattr(admin, "begin_offsets", lambda *_: {("failed", 0): 4})
    monkeypatch.setattr(admin, "end_offsets", lambda *_: {("failed", 0): 4 + len(owners)})

    def found(limit: int) -> list[int]:
        newest = dead_letters.newest("kafka:9092", "orders_sink", "failed", limit)
        return [each.record.offset for each in newest if each.record is not None]

    assert (found(1), [each.read for each in made]) == ([6], [1, 8, 23]), "it reads no more than it has to"
    assert found(5) == [6, 4]
    every = dead_letters.every("kafka:9092", "orders_sink", "failed", {("failed", 0): 6})
    assert [each.at.offset for each in every] == [4]


def test_a_topic_that_is_not_there_yet_says_who_makes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> object:
        raise KafkaTopicError("There is no topic 'failed' at kafka:9092.")

    monkeypatch.setattr(admin, "begin_offsets", missing)
    with pytest.raises(KafkaTopicError, match="no topic 'failed' of dead letters yet"):
        dead_letters.end_of("kafka:9092", "failed")
