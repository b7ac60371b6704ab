"""Rows that a new snapshot does not have: which are found, and what is refused before something is deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from deltaworks.connect import DebeziumPostgres
from deltaworks.connect.api import ConnectApi, Patience
from deltaworks.connectors import deletions, sweep
from deltaworks.connectors.sweep import Sweep, Swept, begin_again, plan, reset, send
from deltaworks.errors import (
    ConfigurationError,
    ConnectUnavailableError,
    IncompatibleCheckpointError,
    KafkaWriteError,
)
from deltaworks.kafka import admin
from deltaworks.kafka.admin import TopicState
from deltaworks.serdes import wire
from deltaworks.serdes.schemas import InMemory, NoRegistry, WriterSchema
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
    schemas: InMemory = field(default_factory=InMemory)
    before_null: Callable[[], object] = lambda: None

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
    """Writes into the world, in transactions whose end takes an offset, too."""

    def __init__(self, world: World, on_delivery: Any) -> None:
        self.world, self.on_delivery = world, on_delivery
        self.mine: list[Record] = []

    def init_transactions(self, timeout_s: float) -> None:
        pass

    def begin_transaction(self) -> None:
        self.mine = []

    def produce(self, topic: str, *, key: bytes, value: None, partition: int) -> None:
        if self.world.refuses:
            self.on_delivery(Refusal(), Place())
            return
        self.world.before_null()
        at = len(self.world.records(topic, partition))
        self.mine.append((partition, key, value))
        self.world.topics[topic].append(self.mine[-1])
        self.on_delivery(None, Place(topic, partition, at))

    def flush(self, timeout_s: float) -> int:
        return 0

    def commit_transaction(self, timeout_s: float) -> None:
        self.world.topics["cdc.orders"] += [(partition, None, None) for partition in sorted({m[0] for m in self.mine})]

    def abort_transaction(self, timeout_s: float) -> None:
        """The records keep their offsets, and readers see none of them."""
        written = self.world.topics["cdc.orders"]
        for each in self.mine:
            place = len(written) - 1 - written[::-1].index(each)
            written[place] = (each[0], None, None)


class Refusal:
    def str(self) -> str:
        return "topic authorization failed"


@dataclass
class Place:
    name: str = "cdc.orders"
    number: int = 1
    at: int = 0

    def topic(self) -> str:
        return self.name

    def partition(self) -> int:
        return self.number

    def offset(self) -> int:
        return self.at


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
        monkeypatch.setattr(admin, "transaction_timeout_ms", lambda _: 60_000)
        for module in (sweep, deletions):
            monkeypatch.setattr(module, "reader", lambda kafka: Consumer(made))
            monkeypatch.setattr(module, "messages", messages)
            monkeypatch.setattr(module, "registry_of", lambda _: made.schemas)
        monkeypatch.setattr(deletions, "make", lambda kind, kafka, ours: Producer(made, ours["on_delivery"]))
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

    nulls = [each for each in world.topics["cdc.orders"][before:] if each[1] is not None]
    assert nulls == [(0, b"b", None), (1, b"a", None)]
    assert world.gone() == []


def test_what_a_killed_sweep_has_left_is_found_again(world: World) -> None:
    world.write(b"a", b"b")
    world.reset()
    world.write(b"a", value=None)

    assert world.gone() == [b"b"]


def test_a_deletion_that_is_refused_is_an_error_that_counts(world: World) -> None:
    world.write(b"a", b"b", b"c")
    world.reset()
    world.write(b"c")
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
    world.write(b"c")
    planned = plan(world.settings, world.api, "cdc", ["cdc.orders"])
    world.fake.connectors["cdc"].state = "RUNNING"

    for act in (world.gone, lambda: send(world.settings, world.api, planned)):
        with pytest.raises(ConfigurationError, match="is RUNNING"):
            act()
    assert world.topics["cdc.orders"] == [(1, b"a", b"{}"), (1, b"c", b"{}")]


def test_without_a_reset_from_here_nothing_is_compared(world: World) -> None:
    world.fake.connectors["cdc"].offsets = [{"partition": {}, "offset": {"lsn": 1}}]

    with pytest.raises(ConfigurationError, match="Nobody has reset the offsets of connector 'cdc' from this home"):
        world.gone()


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("snapshot.mode", "no_data"),
        ("snapshot.select.statement.overrides", "public.orders"),
        ("errors.tolerance", "ALL"),
    ],
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


def test_a_reset_that_may_have_been_done_leaves_no_note_of_an_earlier_one(world: World) -> None:
    """Its answer was lost; what was written since the earlier one is no snapshot of this one."""
    world.reset()

    class Lost(ConnectApi):
        def reset_offsets(self, name: str) -> None:
            super().reset_offsets(name)
            raise ConnectUnavailableError("The worker does not answer.")

    with Lost(world.fake.url) as api, pytest.raises(ConnectUnavailableError):
        reset(world.settings, api, "cdc")
    world.fake.connectors["cdc"].offsets = [{"partition": {}, "offset": {"lsn": 1}}]

    with pytest.raises(ConfigurationError, match="Nobody has reset the offsets"):
        world.gone()


def test_a_source_whose_offsets_nobody_knows_is_refused(world: World) -> None:
    world.reset()
    world.fake.connectors["cdc"].config["connector.class"] = "io.debezium.connector.mongodb.MongoDbConnector"

    with pytest.raises(ConfigurationError, match="MongoDbConnector: what its offsets say of a snap"):
        world.gone()


def test_a_reset_without_kafka_forgets_the_note_of_an_earlier_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep would take what was written in between for rows of the new snapshot."""
    world.write(b"a")
    world.reset()
    monkeypatch.setattr(admin, "cluster_id", lambda kafka, timeout_s: "another")
    world.fake.connectors["cdc"].offsets = [{"partition": {}, "offset": {"lsn": 1}}]

    assert "`sweep` cannot find rows that are gone: " in (reset(world.settings, world.api, "cdc") or "")

    assert world.fake.connectors["cdc"].offsets == []
    assert not world.settings.begun_again("cdc").exists()


def test_what_a_reset_tells_of_a_sweep(world: World) -> None:
    assert reset(world.settings, world.api, "cdc") == (
        "`deltaworks connect sweep cdc` finds rows that its new snapshot does not have"
    )
    world.fake.connectors["cdc"].config["topics"] = "cdc.orders"
    assert reset(world.settings, world.api, "cdc") is None
    world.fake.connectors["cdc"].state = "RUNNING"
    with pytest.raises(ConfigurationError, match="is RUNNING"):
        reset(world.settings, world.api, "cdc")


def test_a_note_of_another_version_is_refused(world: World) -> None:
    world.reset()
    world.settings.begun_again("cdc").write_bytes(b'{"format": 2}')

    with pytest.raises(IncompatibleCheckpointError, match="has format 2"):
        world.gone()


def _schema(*columns: str, name: str = "shop.public.orders.Key", of: str = "long", more: str = "") -> WriterSchema:
    fields = ", ".join(f'{{"name": "{each}", "type": {{"type": "{of}"{more}}}}}' for each in columns)
    return WriterSchema(f'{{"type": "record", "name": "{name}", "fields": [{fields}]}}', "AVRO")


def _in_registry(world: World, schema: WriterSchema, *rows: bytes) -> list[bytes]:
    number = world.schemas.id_of("cdc.orders-key", schema)
    return [wire.header(number) + row for row in rows]


def _wrapped(payload: bytes, *fields: bytes) -> bytes:
    return b'{"schema":{"type":"struct","fields":[' + b",".join(fields) + b']},"payload":' + payload + b"}"


ID = b'{"type":"int64","optional":false,"field":"id"}'


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ([b'{"id":1}', b'{"id":2}'], [_wrapped(b'{"id":1}', ID)]),
        ([_wrapped(b'{"id":1}', ID), _wrapped(b'{"id":2}', ID)], [b'{"id":1}']),
        ([b'{"a":1,"b":"x"}', b'{"a":2,"b":"x"}'], [b'{"b":"x", "a":1}']),
        ([b'{"a":1,"b":null}', b'{"a":2,"b":null}'], [b'{"a":1,"b":null}', b'{"a":3,"b":"x"}']),
    ],
)
def test_json_keys_are_compared_by_what_they_say(world: World, old: list[bytes], new: list[bytes]) -> None:
    """Another converter or another order of columns writes the same row with other bytes."""
    world.topics["cdc.orders"] += [(0, key, b"{}") for key in old]
    world.reset()
    world.topics["cdc.orders"] += [(1, key, b"{}") for key in new]

    assert world.gone() == [old[1]]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (b'{"id":2}', b'{"id":"1"}', r"1 old keys of topic 'cdc.orders' are written as JSON \(id: integer\), and"),
        (b'{"id":2}', b'{"id":1,"part":1}', r"writes JSON \(id: integer, part: integer\): nothing says"),
        (b"Struct{id=2,part=1}", b"Struct{part=1,id=1}", "are written as a struct as text, Struct{id"),
        (b'{"id":2}', b"Struct{id=1}", "are written as JSON"),
        (b'{"id":2}', wire.header(1) + b"\x02", "writes of schema 1: nothing says"),
        (
            b'{"schema":{"type":"int64","name":"io.debezium.time.Timestamp"},"payload":2000}',
            b'{"schema":{"type":"int64","name":"io.debezium.time.MicroTimestamp"},"payload":1000000}',
            "JSON with a schema",
        ),
        (
            _wrapped(b'{"id":2000}', b'{"type":"int64","name":"io.debezium.time.Timestamp","field":"id"}'),
            _wrapped(b'{"id":1000000}', b'{"type":"int64","name":"io.debezium.time.MicroTimestamp","field":"id"}'),
            "JSON with a schema",
        ),
    ],
)
def test_keys_of_another_form_are_refused_and_nothing_is_deleted(
    world: World, old: bytes, new: bytes, told: str
) -> None:
    world.topics["cdc.orders"] += [(0, old, b"{}")]
    world.reset()
    world.topics["cdc.orders"] += [(0, new, b"{}")]

    with pytest.raises(ConfigurationError, match=told) as refused:
        world.gone()
    assert "2" not in refused.value.message.replace("cdc.orders", ""), "it shows a key"


def test_a_table_that_shares_its_topic_and_is_captured_no_more_keeps_its_rows(world: World) -> None:
    def key(table: str, number: int) -> bytes:
        return b'{"id":%d,"__dbz__physicalTableIdentifier":"%s"}' % (number, table.encode())

    world.topics["cdc.orders"] += [(0, key(table, number), b"{}") for table in ("one", "two") for number in (3, 4)]
    world.reset()
    world.topics["cdc.orders"] += [(0, key("one", 3), b"{}")]

    with pytest.raises(
        ConfigurationError, match=r"2 old keys of topic .* of table 'two', and the new .* of table 'one'"
    ):
        world.gone()
    world.topics["cdc.orders"] += [(0, key("two", 4), b"{}")]
    assert world.gone() == [key("two", 3), key("one", 4)]


def _envelope(table: str) -> bytes:
    return b'{"op":"r","after":{},"source":{"db":"shop","schema":"public","table":"%s"}}' % table.encode()


@pytest.mark.parametrize(
    ("router", "key", "values", "refused"),
    [
        ("RegexRouter", b'{"id":%d}', (b"{}", b"{}"), True),
        ("RegexRouter", b'{"id":%d}', (_envelope("two"), _envelope("one")), True),
        ("RegexRouter", b'{"id":%d}', (_envelope("one"), _envelope("one")), False),
        ("RegexRouter", b'{"id":%d}', (b'{"payload":%s}' % _envelope("one"), _envelope("one")), False),
        ("RegexRouter", wire.header(1) + b"%d", (b"{}", b"{}"), False),
        ("ByLogicalTableRouter", wire.header(1) + b"%d", (b"{}", b"{}"), True),
        ("ByLogicalTableRouter", b'{"id":%d,"__dbz__physicalTableIdentifier":"one"}', (b"{}", b"{}"), False),
        ("ExtractNewRecordState", b'{"id":%d}', (b"{}", b"{}"), False),
    ],
)
def test_rows_that_may_be_of_another_table_are_deleted_only_if_somebody_says_so(
    world: World, router: str, key: bytes, values: tuple[bytes, bytes], refused: bool
) -> None:
    world.topics["cdc.orders"] += [(0, key % 2, values[0])]
    world.reset()
    world.fake.connectors["cdc"].config["transforms.route.type"] = f"io.debezium.transforms.{router}"
    world.topics["cdc.orders"] += [(0, key % 1, values[1])]
    planned = plan(world.settings, world.api, "cdc", ["cdc.orders"])

    if refused:
        with pytest.raises(ConfigurationError, match=r"'cdc\.orders' may have rows of several tables"):
            send(world.settings, world.api, planned)
    assert send(world.settings, world.api, planned, force=refused) == 1


def test_keys_of_a_deleted_form_say_what_is_written_now(world: World) -> None:
    """The only row of the snapshot was deleted after it."""
    world.topics["cdc.orders"] += [(0, b'{"id":2}', b"{}")]
    world.reset()
    world.topics["cdc.orders"] += [(0, b'{"id":1}', b"{}"), (0, b'{"id":1}', None)]
    assert world.gone() == [b'{"id":2}']

    world.topics["cdc.orders"] += [(0, b'{"id":"1"}', b"{}"), (0, b'{"id":"1"}', None)]
    assert world.gone() == [b'{"id":2}']


@pytest.mark.parametrize(
    "other",
    [
        _schema("id", more=', "doc": "d"'),
        WriterSchema(_schema("id").text.replace('"name": "id"', '"doc": "d", "default": 0, "name": "id"'), "AVRO"),
    ],
)
def test_a_new_id_of_a_schema_that_says_the_same_is_none(world: World, other: WriterSchema) -> None:
    old = _in_registry(world, _schema("id"), b"\x02", b"\x04")
    world.topics["cdc.orders"] += [(0, key, b"{}") for key in old]
    world.reset()
    world.topics["cdc.orders"] += [(1, key, b"{}") for key in _in_registry(world, other, b"\x02")]

    assert world.gone() == [old[1]]


@pytest.mark.parametrize(
    "other",
    [
        _schema("id", "part"),
        _schema("part"),
        _schema("id", name="shop.public.lines.Key"),
        _schema("id", of="string"),
        _schema("id", more=', "connect.name": "io.debezium.time.MicroTimestamp"'),
        WriterSchema('syntax = "proto3"; message Key { int64 id = 1; }', "PROTOBUF"),
    ],
)
def test_a_new_schema_of_the_keys_is_refused(world: World, other: WriterSchema) -> None:
    world.topics["cdc.orders"] += [(0, key, b"{}") for key in _in_registry(world, _schema("id"), b"\x02")]
    world.reset()
    world.topics["cdc.orders"] += [(0, key, b"{}") for key in _in_registry(world, other, b"\x04")]

    with pytest.raises(ConfigurationError, match=r"are written as of schema 1, and .* writes of schema 2"):
        world.gone()


def test_only_different_schemas_are_looked_up_and_without_a_registry_they_are_refused(world: World) -> None:
    old = _in_registry(world, _schema("id"), b"\x02", b"\x04")
    world.topics["cdc.orders"] += [(0, key, b"{}") for key in old]
    world.reset()
    world.schemas = NoRegistry()  # type: ignore[assignment]
    world.topics["cdc.orders"] += [(0, old[0], b"{}")]
    assert world.gone() == [old[1]]

    world.topics["cdc.orders"][-1] = (0, wire.header(2) + b"\x02", b"{}")
    with pytest.raises(
        ConfigurationError, match=r"are gone \(a record names schema 1, and there is no schema registry"
    ):
        world.gone()


def test_a_topic_to_which_the_snapshot_has_written_nothing_is_deleted_only_if_somebody_says_so(world: World) -> None:
    """Its table is empty, or `table.include.list` has it no more: the topic looks the same."""
    world.write(b"a", b"c")
    world.write(b"x", b"y", topic="cdc.lines")
    world.reset()
    world.write(b"x", topic="cdc.lines")
    planned = plan(world.settings, world.api, "cdc", ["cdc.orders", "cdc.lines"])
    before = {topic: list(records) for topic, records in world.topics.items()}

    with pytest.raises(ConfigurationError, match=r"the new snapshot has written no row to 'cdc\.orders': ") as refused:
        send(world.settings, world.api, planned)
    assert "cdc.lines" not in refused.value.message
    assert world.topics == before

    assert send(world.settings, world.api, planned, force=True) == 3
    assert world.gone("cdc.orders", "cdc.lines") == []


def test_a_topic_of_an_empty_table_without_old_rows_is_nothing_to_doubt(world: World) -> None:
    world.write(b"a", topic="cdc.lines")
    world.reset()
    world.write(b"c", topic="cdc.lines")

    assert send(world.settings, world.api, plan(world.settings, world.api, "cdc", ["cdc.orders", "cdc.lines"])) == 1


@pytest.mark.parametrize(("gone", "there", "refused"), [(10, 9, True), (10, 10, False), (9, 1, False)])
def test_most_rows_of_a_topic_are_deleted_only_if_somebody_says_so(
    world: World, gone: int, there: int, refused: bool
) -> None:
    world.topics["cdc.orders"] += [(0, b"old-%d" % number, b"{}") for number in range(gone)]
    world.reset()
    world.topics["cdc.orders"] += [(0, b"new-%d" % number, b"{}") for number in range(there)]
    planned = plan(world.settings, world.api, "cdc", ["cdc.orders"])

    if refused:
        with pytest.raises(ConfigurationError, match=r"Nothing was deleted: 10 of 19 rows of 'cdc\.orders' would be"):
            send(world.settings, world.api, planned)
        assert len(world.gone()) == gone
    assert send(world.settings, world.api, planned, force=refused) == gone


def _planned(world: World) -> Sweep:
    """`a` and `c` are gone, `e` is there."""
    world.topics["cdc.orders"] += [(1, key, b"{}") for key in (b'{"id":1}', b'{"id":3}')]
    world.reset()
    world.topics["cdc.orders"] += [(1, b'{"id":5}', b"{}")]
    planned = plan(world.settings, world.api, "cdc", ["cdc.orders"])
    assert planned.count == 2
    return planned


@pytest.mark.parametrize("again", [(1, b'{"id":1}', b"{}"), (0, b'{"id": 1}', b"{}"), (1, b'{"id":1}', None)])
def test_a_row_that_was_written_after_the_plan_is_not_deleted(world: World, again: Record) -> None:
    planned = _planned(world)
    world.topics["cdc.orders"] += [again]
    before = len(world.topics["cdc.orders"])

    assert send(world.settings, world.api, planned) == 1

    assert world.topics["cdc.orders"][before:] == [(1, b'{"id":3}', None), (1, None, None)]


def test_a_row_that_is_written_while_nulls_are_is_not_deleted(world: World) -> None:
    """The transaction is taken back, and made again without it."""
    planned = _planned(world)

    def write() -> None:
        world.before_null = lambda: None
        world.topics["cdc.orders"] += [(1, b'{"id":1}', b'{"is": "new"}')]

    world.before_null = write

    assert send(world.settings, world.api, planned) == 1

    last = {key: value for _, key, value in world.topics["cdc.orders"]}
    assert last[b'{"id":1}'] == b'{"is": "new"}' and last[b'{"id":3}'] is None


def test_somebody_who_writes_all_the_time_is_an_error_and_nothing_is_deleted(world: World) -> None:
    planned = _planned(world)
    world.before_null = lambda: world.topics["cdc.orders"].append((1, b'{"id":9}', b"{}"))

    with pytest.raises(
        KafkaWriteError, match=r"2 of 2 deletions were not written: somebody else writes to cdc\.orders"
    ):
        send(world.settings, world.api, planned)
    world.before_null = lambda: None
    assert world.gone() == [b'{"id":1}', b'{"id":3}']


def test_a_connector_that_starts_while_nulls_are_written_keeps_its_rows(world: World) -> None:
    planned = _planned(world)

    def start() -> None:
        world.fake.connectors["cdc"].state = "RUNNING"

    world.before_null = start
    with pytest.raises(ConfigurationError, match="is RUNNING"):
        send(world.settings, world.api, planned)
    assert all(value is not None for _, key, value in world.topics["cdc.orders"] if key is not None)


def test_keys_of_another_form_that_came_after_the_plan_are_refused(world: World) -> None:
    planned = _planned(world)
    world.topics["cdc.orders"] += [(0, b'{"id":"1"}', b"{}")]

    with pytest.raises(ConfigurationError, match=r"since the plan are JSON \(id: text\), which cannot be compared"):
        send(world.settings, world.api, planned)


def test_many_deletions_are_several_transactions(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletions, "TRANSACTION_RECORDS", 2)
    world.topics["cdc.orders"] += [(number % 2, b"%d" % number, b"{}") for number in range(5)]
    world.reset()
    world.topics["cdc.orders"] += [(0, b"9", b"{}")]

    assert send(world.settings, world.api, plan(world.settings, world.api, "cdc", ["cdc.orders"])) == 5
    assert world.gone() == []
