"""What the job has to have written, computed from the bytes of its topic and the schemas of the registry alone.

No code of the product decodes here: fastavro reads Avro, Google's messages Protobuf.
"""

from __future__ import annotations

import io
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any

import fastavro
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from deltalake import DeltaTable
from google.protobuf.message_factory import GetMessageClass

from deltaworks.serdes.protobuf.descriptors import descriptors
from deltaworks.settings import Settings
from tests.system.formats import versions
from tests.system.formats.flow import TOPIC

_HEADER = 5
_POLL_S = 10.0
Row = dict[str, Any]
_ADDED: Mapping[str, tuple[int, Any]] = {"price": (2, Decimal("0.00")), "note": (2, ""), "tier": (3, "basic")}
"""Field of a parcel -> the first version of the job that has it, and its default."""


@dataclass(frozen=True)
class Switch:
    """From when on a version of the job runs."""

    version: int
    offsets: Mapping[int, int]
    """Of its first records, by partition."""


@dataclass
class Expected:
    """What has to be in topics and tables."""

    sent: list[tuple[int, Row]]
    """Each parcel, as the version (first) tells of it that has read it."""
    totals: dict[str, Row]
    unreadable: set[tuple[int, int]]
    """Partition and offset."""


def expected(settings: Settings, registry: SchemaRegistryClient, switches: Iterable[Switch]) -> Expected:
    """The results of all records that are in the topic.

    Args:
        settings: of Kafka.
        registry: knows all schemas.
        switches: which version of the job has read which records.
    """
    known: dict[int, Any] = {}

    def schema_of(number: int) -> Any:
        if number not in known:
            known[number] = fastavro.parse_schema(json.loads(registry.get_schema(number).schema_str or ""))
        return known[number]

    ordered = sorted(switches, key=lambda each: each.version)
    found = Expected([], defaultdict(_nothing), set())
    for message in read(settings, TOPIC):
        partition, offset = message.partition() or 0, message.offset() or 0
        version = max((each.version for each in ordered if each.offsets.get(partition, 0) <= offset), default=1)
        try:
            parcel = _parcel(message.value() or b"", schema_of)
        except Exception:  # whatever a library raises: nobody can read it
            found.unreadable.add((partition, offset))
            continue
        seen = {name: parcel[name] for name in ("parcel_id", "user", "grams")} | {
            name: parcel.get(name, default) for name, (first, default) in _ADDED.items() if first <= version
        }
        found.sent.append((version, seen))
        total = found.totals[seen["user"]]
        total["parcels"] += 1
        total["grams"] += seen["grams"]
        total["price"] += seen.get("price", 0)
        total["gold"] += seen.get("tier") == "gold"
    return found


def differences(
    settings: Settings, registry: SchemaRegistryClient, wanted: Expected, *, newest: int, tables: Mapping[str, str]
) -> list[str]:
    """What is wrong in topics and tables, in words.

    Args:
        settings: of the home.
        registry: knows all schemas.
        wanted: see `expected`.
        newest: the version of the job that runs.
        tables: name of a table -> its folder.
    """
    return [
        *_of_sent(settings, registry, wanted),
        *_of_totals(settings, registry, wanted),
        *of_tables(wanted, newest, tables),
    ]


def _of_sent(settings: Settings, registry: SchemaRegistryClient, wanted: Expected) -> Iterator[str]:
    found = Counter[tuple[Any, ...]]()
    for message in read(settings, "parcels-sent"):
        version, text = _written_by(message, registry, "Sent")
        found[(version, *_cells(text))] += 1
    right = Counter((version, *_cells(row)) for version, row in wanted.sent)
    if lost := right - found:
        yield f"parcels-sent: {lost.total()} of {right.total()} lost, such as {next(iter(lost))}"
    if twice := found - right:
        yield f"parcels-sent: {twice.total()} too many or wrong, such as {next(iter(twice))}"


def _of_totals(settings: Settings, registry: SchemaRegistryClient, wanted: Expected) -> Iterator[str]:
    last: dict[str, Row] = {}
    for message in read(settings, "parcel-totals"):
        user = (message.key() or b"").decode()
        _, row = _written_by(message, registry, "Total")
        if user in last and row["parcels"] <= last[user]["parcels"]:
            yield f"parcel-totals: {user} has {row['parcels']} parcels after {last[user]['parcels']}"
        last[user] = _complete({"parcels": 0, "grams": 0} | row)
    if last != wanted.totals:
        wrong = [user for user in wanted.totals if last.get(user) != wanted.totals[user]]
        yield f"parcel-totals: {len(wrong)} users differ: {[(last.get(u), wanted.totals[u]) for u in wrong[:1]]}"


def of_tables(wanted: Expected, newest: int, tables: Mapping[str, str]) -> Iterator[str]:
    rows = {row["user_id"]: row for row in DeltaTable(tables["parcel_totals"]).to_pyarrow_table().to_pylist()}
    totals = {
        user: {name: rows.get(user, {}).get(name) for name in ("parcels", "grams", "price", "gold")}
        for user in wanted.totals
    }
    wrong = [user for user, total in wanted.totals.items() if _complete(totals[user]) != total]
    if wrong:
        first = wrong[0]
        yield (
            f"table parcel_totals: {len(wrong)} of {len(totals)} users differ; "
            f"{first} has {totals[first]} instead of {wanted.totals[first]}"
        )
    for name, (since, _) in _ADDED.items():
        if newest >= since and name not in DeltaTable(tables["parcels_sent"]).schema().to_arrow().names:
            yield f"table parcels_sent has no column {name}"
    sent = Counter(
        _cells({name: value for name, value in row.items() if name in _NAMES and value is not None})
        for row in DeltaTable(tables["parcels_sent"]).to_pyarrow_table().to_pylist()
    )
    right = Counter(_cells(row) for _, row in wanted.sent)
    if sent != right:
        yield f"table parcels_sent: {(right - sent).total()} rows lost, {(sent - right).total()} too many or wrong"
    letters = DeltaTable(tables["parcels_unreadable"]).to_pyarrow_table().to_pylist()
    unreadable = Counter((row["partition"], row["offset"]) for row in letters)
    if unreadable != Counter(wanted.unreadable):
        too_many = unreadable - Counter(wanted.unreadable)
        examples = [row["message"] for row in letters if (row["partition"], row["offset"]) in too_many]
        yield (
            f"table parcels_unreadable: {(Counter(wanted.unreadable) - unreadable).total()} rows lost, "
            f"{too_many.total()} too many: {examples[:1]}"
        )


_NAMES = ("parcel_id", "user", "grams", *_ADDED)


def read(settings: Settings, topic: str) -> list[Message]:
    """All committed records of a topic, in the order of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": settings.bootstrap,
            "group.id": "check",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    found: list[Message] = []
    try:
        left = set(consumer.list_topics(topic, timeout=_POLL_S).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in left])
        while left:
            for message in consumer.consume(1000, timeout=_POLL_S):
                if (error := message.error()) is None:
                    found.append(message)
                else:
                    assert error.name() == "_PARTITION_EOF", error
                    left.discard(message.partition() or 0)
    finally:
        consumer.close()
    return found


def _nothing() -> Row:
    return {"parcels": 0, "grams": 0, "price": Decimal("0.00"), "gold": 0}


def _complete(row: Row) -> Row:
    """A total with what it lacks."""
    return {name: default if row.get(name) is None else row[name] for name, default in _nothing().items()}


def _cells(row: Row) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(row.items()))


def _parcel(data: bytes, schema_of: Any) -> Row:
    if data[:1] == b"\0":
        if len(data) < _HEADER:
            raise ValueError("cut off")
        body = io.BytesIO(data[_HEADER:])
        parcel: Any = fastavro.schemaless_reader(body, schema_of(int.from_bytes(data[1:_HEADER])), None)
        if body.read():
            raise ValueError("bytes behind it")
        return dict(parcel)
    document: Row = json.loads(data)
    return {name: document[name] for name in ("parcel_id", "user", "grams", "sent_at")}


def _written_by(message: Message, registry: SchemaRegistryClient, kind: str) -> tuple[int, Row]:
    """The version of the job whose schema a record names, and what is in it."""
    data = message.value() or b""
    assert data[0] == 0, data
    text = registry.get_schema(int.from_bytes(data[1:_HEADER])).schema_str or ""
    version = next(
        number
        for number in range(versions.NEWEST, 0, -1)
        if ("gold" in text, "price" in text) == ("gold" in versions.proto(number), "price" in versions.proto(number))
    )
    at = _HEADER + (1 if data[_HEADER] == 0 else 2)  # the first message of the file is one byte, the second two
    made = _message(version, kind)
    body = made()
    body.ParseFromString(data[at:])
    row = {field.name: getattr(body, field.name) for field in made.DESCRIPTOR.fields}
    if "price" in row:
        row["price"] = Decimal(row["price"] or "0.00")
    if "tier" in row:
        row["tier"] = ("basic", "gold")[row["tier"]]
    return version, row


@cache
def _message(version: int, kind: str) -> Any:
    return GetMessageClass(descriptors(versions.proto(version), f"parcels.{kind}").descriptor)
