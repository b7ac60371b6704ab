"""Rows that a new snapshot does not have: which are found, and what is refused before something is deleted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from deltaworks.connect import DebeziumPostgres
from deltaworks.connect.api import ConnectApi, Patience
from deltaworks.connectors import sweep
from deltaworks.connectors.sweep import Swept, begin_again, plan, send
from deltaworks.errors import (
    ConfigurationError,
    ConnectUnavailableError,
    IncompatibleCheckpointError,
    KafkaWriteError,
)
from deltaworks.kafka import admin
from deltaworks.kafka.admin import TopicState
from deltaworks.settings import Settings
from tests.support.fake_connect import FakeConnect, fake_connect

CDC = DebeziumPostgres(
    name="cdc", hostname="db", user="cdc", password={"env": "PW"}, dbname="shop", topic_prefix="shop"
)
Record = tuple[int, bytes | None, bytes | None]
"""Partition, key, value."""


@dataclass(frozen=True)
class Message:
    """As much of a record as is looked at."""

    at: int
    name: bytes | None
    content: bytes | None

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes | None:
        return self.name

    def value(self) -> bytes | None:
        return self.content


@dataclass
class World:
    """A source that is stopped, and a broker in memory with its topics."""

    fake: FakeConnect
    api: ConnectApi
    settings: Settings
    topics: dict[str, list[Record]] = field(default_factory=lambda: {"cdc.orders": [], "cdc.lines": []})
    ids: dict[str, str] = field(default_factory=lambda: {"cdc.orders": "1", "cdc.lines": "2"})
    compacted: frozenset[str] = frozenset({"cdc.orders", "cdc.lines"})
    begin: int = 0
    refuses: bool = False

    def write(self, *keys: bytes | None, value: bytes | None = b"{}", topic: str = "cdc.orders") -> None:
        self.topics[topic] += [(0 if key is None else key[0] % 2, key, value) for key in keys]

    def records(self, topic: str, partition: int) -> list[Message]:
        own = [each for each in self.topics[topic] if each[0] == partition]
        return [Message(at, key, value) for at, (_, key, value) in enumerate(own)]

    def reset(self) -> tuple[str, ...]:
        found = begin_again(self.settings, self.api, "cdc")
        self.fake.connectors["cdc"].offsets = [
            {"partition": {"server": "shop"}, "offset": {"lsn": 1, "snapshot": "INITIAL", "snapshot_completed": True}}
        ]
        return found

    def gone(self, *topics: str) -> list[bytes]:
        planned = plan(self.settings, self.api, "cdc", topics or ("cdc.orders",))
        return sorted(key for keys in planned.keys.values() for key in keys)


class Producer:
    """Writes into the world."""

    def __init__(self, world: World, on_delivery: Any) -> None:
        self.world, self.on_delivery = world, on_delivery

    def produce(self, topic: str, *, key: bytes, value: None, partition: int) -> None:
        if self.world.refuses:
            self.on_delivery(Refusal(), Place())
        else:
            self.world.topics[topic].append((partition, key, value))

    def flush(self, timeout_s: float) -> int:
        return 0


class Refusal:
    def str(self) -> str:
        return "topic authorization failed"


class Place:
    def topic(self) -> str:
        return "cdc.orders"

    def partition(self) -> int:
        return 1


class Consumer:
    """Reads from the world."""

    def __init__(self, world: World) -> None:
        self.world = world

    def assign(self, parts: Sequence[Any]) -> None:
        (self.part,) = parts

    def close(self) -> None:
        pass


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with fake_connect() as fake, ConnectApi(fake.url, patience=Patience(rebalance_s=0.0)) as api:
        fake.add("cdc", CDC.properties)
        fake.connectors["cdc"].state, fake.connectors["cdc"].tasks = "STOPPED", []
        fake.connectors["cdc"].topics = ["cdc.orders", "cdc.lines"]
        made = World(fake, api, replace(Settings.from_environment({}), home=tmp_path))

        def offsets(topics: Sequence[str], of: Any) -> dict[tuple[str, int], int]:
            return {(topic, partition): of(topic, partition) for topic in topics for partition in (0, 1)}

        def ends(_: object, topics: Sequence[str], committed: bool = True) -> dict[tuple[str, int], int]:
            return offsets(topics, lambda *at: len(made.records(*at)))

        def messages(consumer: Consumer, end: int, at: str) -> Iterator[Message]:
            return iter(made.records(consumer.part.topic, consumer.part.partition)[consumer.part.offset : end])

        def states(_: object, topics: Sequence[str]) -> dict[str, TopicState]:
            return {topic: TopicState(made.ids[topic], 2) for topic in topics if topic in made.ids}

        monkeypatch.setattr(admin, "admin", lambda cluster: None)
        monkeypatch.setattr(admin, "cluster_id", lambda kafka, timeout_s: fake.cluster)
        monkeypatch.setattr(admin, "topic_states", states)
        monkeypatch.setattr(admin, "begin_offsets", lambda _, topics: offsets(topics, lambda *at: made.begin))
        monkeypatch.setattr(admin, "end_offsets", ends)
        monkeypatch.setattr(admin, "compacted", lambda _, topics: made.compacted & frozenset(topics))
        monkeypatch.setattr(sweep, "reader", lambda kafka: Consumer(made))
        monkeypatch.setattr(sweep, "messages", messages)
        monkeypatch.setattr(sweep, "make", lambda kind, kafka, ours: Producer(made, ours["on_delivery"]))
        yield made


def test_a_key_that_the_snapshot_does_not_write_has_no_row(world: World) -> None:
    world.write(b"a", b"b", b"c", b"d", None)
    world.write(b"c", value=None)  # deleted while somebody read
    assert world.reset() == ("cdc.lines", "cdc.orders")
    world.write(b"a", b"e", None)  # the snapshot
    world.write(b"e", value=None)

    planned = plan(world.settings, world.api, "cdc", ["cdc.orders"])

    assert planned.topics == (Swept(topic="cdc.orders", rows=1, gone=2, whole=True),)
    assert world.gone() == [b"b", b"d"]


def test_each_gets_a_null_in_its_partition_once(world: World) -> None:
    world.write(b"a", b"b", b"c")
    world.reset()
    world.write(b"c")
    before = len(world.topics["cdc.orders"])

    assert send(world.settings, world.api, plan(world.settings, world.api, "cdc", ["cdc.orders"])) == 2

    assert world.topics["cdc.orders"][before:] == [(0, b"b", None), (1, b"a", None)]
    assert world.gone() == []


def test_what_a_killed_sweep_has_left_is_found_again(world: World) -> None:
    world.write(b"a", b"b")
    world.reset()
    world.write(b"a", value=None)

    assert world.gone() == [b"b"]


def test_a_deletion_that_is_refused_is_an_error_that_counts(world: World) -> None:
    world.write(b"a", b"b")
    world.reset()
    world.refuses = True

    with pytest.raises(KafkaWriteError, match=r"2 of 2 deletions were not written: cdc.orders-1: topic author"):
        send(world.settings, world.api, plan(world.settings, world.api, "cdc", ["cdc.orders"]))


def test_each_topic_has_its_own_boundary(world: World) -> None:
    world.write(b"a")
    world.write(b"x", b"y", topic="cdc.lines")
    world.reset()
    world.write(b"y", topic="cdc.lines")

    assert world.gone("cdc.lines") == [b"x"]
    assert world.gone("cdc.lines", "cdc.orders") == [b"a", b"x"]


def test_a_row_whose_key_is_in_another_partition_now_is_not_deleted(world: World) -> None:
    """The topic has got more partitions since: the record from before stays the last one of the key in its old one."""
    world.topics["cdc.orders"] += [(1, b"a", b"{}"), (1, b"c", b"{}")]
    world.reset()
    world.topics["cdc.orders"] += [(0, b"a", b"{}")]

    planned = plan(world.settings, world.api, "cdc", ["cdc.orders"])

    assert planned.topics == (Swept(topic="cdc.orders", rows=1, gone=1, whole=True),)
    assert world.gone() == [b"c"]


def test_a_partition_that_is_new_has_rows(world: World) -> None:
    world.write(b"a", b"b")
    world.reset()
    note = world.settings.begun_again("cdc")
    note.write_bytes(note.read_bytes().replace(b"[1,1]", b"[1]"))  # it had one partition then
    world.topics["cdc.orders"] += [(1, b"b", b"{}")]

    assert world.gone() == []


@pytest.mark.parametrize("compacted", [True, False])
def test_a_topic_whose_beginning_has_expired_is_not_whole(world: World, compacted: bool) -> None:
    world.write(b"a", b"c", b"e")
    world.reset()
    world.begin = 1
    world.compacted = frozenset({"cdc.orders"} if compacted else ())

    (found,) = plan(world.settings, world.api, "cdc", ["cdc.orders"]).topics

    assert found.whole is compacted


@pytest.mark.parametrize(
    "offset",
    [
        {},
        {"lsn": 1, "snapshot": "INITIAL", "snapshot_completed": False},
        {"lsn": 1, "last_snapshot_record": False},
        {"file": "binlog.1", "snapshot": "INITIAL"},
    ],
)
def test_a_snapshot_that_is_not_complete_is_not_compared(world: World, offset: dict[str, Any]) -> None:
    world.write(b"a")
    world.reset()
    world.fake.connectors["cdc"].offsets = [{"partition": {"server": "shop"}, "offset": offset}]

    with pytest.raises(ConfigurationError, match="is not complete: rows that are still to come would be deleted"):
        world.gone()


@pytest.mark.parametrize("offset", [{"lsn": 1}, {"lsn": 1, "last_snapshot_record": True, "snapshot": "INITIAL"}])
def test_a_source_that_has_gone_on_after_its_snapshot_is_compared(world: World, offset: dict[str, Any]) -> None:
    world.write(b"a")
    world.reset()
    world.fake.connectors["cdc"].offsets = [{"partition": {"server": "shop"}, "offset": offset}]

    assert world.gone() == [b"a"]


def test_while_the_connector_runs_nothing_is_compared_or_deleted(world: World) -> None:
    world.write(b"a")
    world.reset()
    planned = plan(world.settings, world.api, "cdc", ["cdc.orders"])
    world.fake.connectors["cdc"].state = "RUNNING"

    for act in (world.gone, lambda: send(world.settings, world.api, planned)):
        with pytest.raises(ConfigurationError, match="is RUNNING"):
            act()
    assert world.topics["cdc.orders"] == [(1, b"a", b"{}")]


def test_without_a_reset_from_here_nothing_is_compared(world: World) -> None:
    world.fake.connectors["cdc"].offsets = [{"partition": {}, "offset": {"lsn": 1}}]

    with pytest.raises(ConfigurationError, match="Nobody has reset the offsets of connector 'cdc' from this home"):
        world.gone()


@pytest.mark.parametrize(
    ("setting", "value"),
    [("snapshot.mode", "no_data"), ("snapshot.select.statement.overrides", "public.orders")],
)
def test_a_snapshot_without_all_rows_deletes_none(world: World, setting: str, value: str) -> None:
    world.write(b"a")
    world.reset()
    world.fake.connectors["cdc"].config[setting] = value

    with pytest.raises(ConfigurationError, match=f"does not have all rows, by {setting}"):
        world.gone()


def test_a_topic_of_others_or_one_that_was_made_anew_is_refused(world: World) -> None:
    world.reset()

    with pytest.raises(ConfigurationError, match=r"'cdc\.order' was no topic of connector 'cdc'") as refused:
        world.gone("cdc.order")
    assert refused.value.hint is not None and "cdc.orders" in refused.value.hint
    world.ids["cdc.orders"] = "3"
    with pytest.raises(ConfigurationError, match="was deleted, or made anew"):
        world.gone()


def test_a_topic_to_which_another_source_writes_is_refused(world: World) -> None:
    world.write(b"a")
    world.reset()
    for name, topics in (("sink", "cdc.orders"), ("other", "")):
        world.fake.add(name, CDC.properties | {"name": name} | ({"topics": topics} if topics else {}))
        world.fake.connectors[name].topics = ["cdc.orders"]

    with pytest.raises(ConfigurationError, match=r"'cdc\.orders' has rows of the source 'other', too"):
        world.gone()
    assert world.gone("cdc.lines") == []
    del world.fake.connectors["other"]
    assert world.gone() == [b"a"]


def test_a_sink_is_reset_without_a_note_and_cannot_be_swept(world: World) -> None:
    world.fake.connectors["cdc"].config["topics"] = "cdc.orders"

    assert world.reset() == ()
    assert not world.settings.begun_again("cdc").exists()
    with pytest.raises(ConfigurationError, match="is no source of Debezium"):
        world.gone()


def test_topics_of_another_cluster_are_not_noted_and_nothing_is_reset(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    offsets = world.fake.connectors["cdc"].offsets = [{"partition": {}, "offset": {"lsn": 1}}]
    monkeypatch.setattr(admin, "cluster_id", lambda kafka, timeout_s: "another")

    with pytest.raises(ConfigurationError, match="works with the cluster"):
        begin_again(world.settings, world.api, "cdc")

    assert world.fake.connectors["cdc"].offsets == offsets
    assert not world.settings.begun_again("cdc").exists()


def test_a_reset_that_fails_is_none_that_can_be_swept(world: World) -> None:
    world.write(b"a")
    connector = world.fake.connectors["cdc"]
    connector.offsets = [{"partition": {}, "offset": {"lsn": 1}}]  # it was reading changes, long after its snapshot

    class Refusing(ConnectApi):
        def reset_offsets(self, name: str) -> None:
            raise ConnectUnavailableError("The worker does not answer.")

    with Refusing(world.fake.url) as api, pytest.raises(ConnectUnavailableError):
        begin_again(world.settings, api, "cdc")

    with pytest.raises(ConfigurationError, match="Nobody has reset the offsets"):
        world.gone()


def test_a_note_of_another_version_is_refused(world: World) -> None:
    world.reset()
    world.settings.begun_again("cdc").write_bytes(b'{"format": 2}')

    with pytest.raises(IncompatibleCheckpointError, match="has format 2"):
        world.gone()
