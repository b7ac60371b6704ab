"""Sample data for `jobs/deliveries.py`: seeded scans of parcels in Avro, as untidy as a real topic.

Carriers have scanners of three generations, each with its own version of the schema. Every second scan is the next
`Kind` of trouble, so a thousand scans contain several of each. The record timestamp is the event time; records are
yielded in the order in which they reach Kafka, which differs.

A scan begins with the id of its schema, which a registry gives. `records(schemas=...)` registers the three versions and
two other schemas there, as their producers would: `deltaworks produce` hands over the registry of the pipeline. Without
it they go into the registry in the memory of the process, which serdes without another one use: in the test driver, and
in hosts that run in one process. The same registry gives the same bytes.
"""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from itertools import accumulate, cycle, islice
from types import EllipsisType
from typing import Any

import fastavro

from deltaworks.serdes.schemas import OF_THIS_PROCESS, Schemas, WriterSchema
from deltaworks.serdes.schemas import Kind as Format
from deltaworks.testing.sample_data import SampleRecord, as_json
from jobs.sample_data.kafka import HOUR, MINUTE, SECOND, Outbox

MAIN_TOPIC = "deliveries-scans"
SUBJECT = f"{MAIN_TOPIC}-value"
START_MS = int(datetime(2026, 3, 1, 22, 30, tzinfo=UTC).timestamp() * 1000)

CARRIERS = tuple(f"carrier-{number}" for number in range(12))
CITIES = (("NL", "Delft"), ("DE", "Köln"), ("FR", "Besançon"), ("JP", "大阪"), ("IN", "मुंबई"), ("PL", "Łódź"))


def _record(name: str, *columns: tuple[Any, ...]) -> dict[str, Any]:
    """A record of Avro: its fields are (name, type) or (name, type, default)."""
    return {
        "type": "record",
        "name": name,
        "fields": [dict(zip(("name", "type", "default"), column, strict=False)) for column in columns],
    }


STATES = ("accepted", "on_the_way", "delivered", "returned")
_MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
_MICROS = {"type": "long", "logicalType": "timestamp-micros"}
_EUROS = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
_PLACE = (("country", "string"), ("city", "string"))


def _status(*more: str) -> dict[str, Any]:
    return {"type": "enum", "name": "Status", "symbols": [*STATES, *more]}


_FIRST = (
    ("scan_id", "string"),
    ("carrier", "string"),
    ("status", _status()),
    ("scanned_at", _MILLIS),
    ("destination", _record("Address", *_PLACE)),
)
OLD = _record("Scan", *_FIRST)
"""The first version: nobody had thought of fees."""
CURRENT = _record("Scan", *_FIRST, ("fee", _EUROS, "\u0000"))
"""The version that the job was made for."""
NEWER = _record(
    "Scan",
    ("scan_id", "string"),
    ("signed_by", ["null", "string"], None),
    ("fee", _EUROS, "\u0000"),
    ("destination", _record("Address", ("postcode", "string", ""), *_PLACE)),
    ("scanned_at", _MICROS),
    ("status", _status("lost")),
    ("carrier", "string"),
)
"""A version with fields and a status that the job does not know, and in another order."""
INCOMPATIBLE = _record("Scan", ("scan_id", "string"), ("carrier", "string"), ("status", _status()), ("depot", "string"))
"""Of a producer who has not asked: it lacks what the job needs."""
OTHER_FORMAT = 'syntax = "proto3"; package deliveries; message Scan { string scan_id = 1; }'
UNKNOWN_ID = 0x7FFF_FFFF
"""In no registry."""


class Kind(Enum):
    """What a scan is an example of; the value is its line in the census."""

    OLD = "scans, of the oldest schema, without a fee"
    CURRENT = "scans, of the job's schema"
    NEWER = "scans, of a newer schema, with fields nobody knows"
    REFUND = "scans, fee negative"
    LARGEST_FEE = "scans, fee with all digits"
    OTHER_SCRIPT = "scans, parcel in another script"
    EMPTY_TEXT = "scans, texts empty"
    DUPLICATE = "scans, delivered twice"
    SAME_MOMENT = "scans, two of a parcel in the same millisecond"
    OUT_OF_ORDER = "scans, after a newer one of the parcel"
    MUCH_LATER = "scans, hours after a newer one of the parcel"
    SAME_ID = "scans, two schemas for one parcel"
    NEW_STATUS = "scans, a status nobody knows"
    INCOMPATIBLE = "scans, of a schema that cannot be read"
    UNKNOWN_ID = "scans, of a schema that nobody has"
    OTHER_FORMAT = "scans, of a schema of another format"
    WITHOUT_ID = "scans, Avro without an id"
    JSON = "scans, JSON"
    CUT_SHORT = "scans, cut short"
    CUT_IN_ID = "scans, cut short in the id"
    TOO_LONG = "scans, bytes behind the value"
    MALFORMED_BYTES = "scans, value arbitrary bytes"
    EMPTY_VALUE = "scans, value empty"
    NULL_VALUE = "scans, value null"
    NULL_KEY = "scans, key null"
    MALFORMED_KEY = "scans, key not UTF-8"


def records(count: int = 20_000, seed: int = 7, schemas: Schemas = OF_THIS_PROCESS) -> Iterator[SampleRecord]:
    """The first `count` scans that arrive.

    Args:
        count: how many.
        seed: of the simulation.
        schemas: the registry that gives ids to the schemas of the scans.
    """
    ids = Ids(schemas)
    for schema in (OLD, CURRENT, NEWER):  # in this order a registry takes them as versions of one subject
        ids.number(json.dumps(schema))
    return islice(_Depot(random.Random(seed), ids).deliveries(), count)


class Ids:
    """The schemas of all producers in a registry, and Avro that begins with their ids. It shares no code with the job.

    Args:
        schemas: the registry.
    """

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas
        self._parsed: dict[str, Any] = {}
        self._numbers: dict[str, int] = {}

    def number(self, text: str, kind: Format = "AVRO", subject: str = SUBJECT) -> int:
        """The id of a schema, registered if it is not yet."""
        if text not in self._numbers:
            self._numbers[text] = self._schemas.id_of(subject, WriterSchema(text, kind))
        return self._numbers[text]

    def written(self, schema: Mapping[str, Any], scan: Mapping[str, Any], subject: str = SUBJECT) -> bytes:
        """A scan as a producer with this schema writes it; fields that the schema does not have are left out."""
        text = json.dumps(schema)
        if text not in self._parsed:
            self._parsed[text] = fastavro.parse_schema(json.loads(text))
        body = io.BytesIO()
        fastavro.schemaless_writer(body, self._parsed[text], dict(scan))
        return header(self.number(text, subject=subject)) + body.getvalue()


def header(number: int) -> bytes:
    """What is in front of a record, as Confluent's serializers write it."""
    return b"\0" + number.to_bytes(4, "big")


_GENERATIONS = ((Kind.OLD, OLD), (Kind.CURRENT, CURRENT), (Kind.NEWER, NEWER))
_TROUBLES = tuple(kind for kind in Kind if kind not in (Kind.OLD, Kind.CURRENT, Kind.NEWER))
_UNTIDY, _OTHER = f"{MAIN_TOPIC}-untidy", f"{MAIN_TOPIC}-protobuf"
"""The subjects of what does not fit: a registry would refuse it beside the versions, and two formats in one subject."""


class _Depot:
    """The simulation. What was sent waits in `_outbox` until its moment of delivery."""

    def __init__(self, random: random.Random, ids: Ids) -> None:
        self._random = random
        self._ids = ids
        self._now = START_MS
        self._outbox = Outbox()
        self._shares = list(accumulate(1 / (rank + 1) for rank in range(400)))
        """Some parcels are scanned again and again: some tasks get far more than others."""

    def deliveries(self) -> Iterator[SampleRecord]:
        for trouble in cycle(_TROUBLES):
            for _ in range(3):
                self._now += 1 + int(self._random.expovariate(1 / (20 * SECOND)))
                self._scan()
            self._make(trouble)
            yield from self._outbox.due(self._now)

    def _parcel(self) -> bytes:
        return b"p-%05d" % self._random.choices(range(400), cum_weights=self._shares)[0]

    def _make(self, trouble: Kind) -> None:
        parcel = self._parcel()
        match trouble:
            case Kind.REFUND:
                self._scan(trouble, CURRENT, fee=Decimal("-4.95"))
            case Kind.LARGEST_FEE:
                self._scan(trouble, CURRENT, fee=self._random.choice([Decimal("99999999.99"), Decimal("-99999999.99")]))
            case Kind.OTHER_SCRIPT:
                self._scan(trouble, key=self._random.choice(["посылка-1", "荷物-2", "पार्सल-3"]).encode())
            case Kind.EMPTY_TEXT:
                self._scan(trouble, key=b"", carrier="", destination={"country": "", "city": ""})
            case Kind.DUPLICATE:
                twin = self._scan()
                self._deliver(twin.key, twin.value, twin.timestamp_ms, trouble, 3 * SECOND)
            case Kind.SAME_MOMENT:
                for status in self._random.sample(STATES, 2):
                    self._scan(trouble, key=parcel, status=status)
            case Kind.OUT_OF_ORDER:
                self._late(trouble, parcel, self._random.randrange(MINUTE, 20 * MINUTE))
            case Kind.MUCH_LATER:
                self._late(trouble, parcel, self._random.randrange(2 * HOUR, 5 * HOUR))
            case Kind.SAME_ID:
                for _, schema in self._random.sample(_GENERATIONS, 2):
                    self._scan(trouble, schema, key=parcel)
            case Kind.NEW_STATUS:
                self._scan(trouble, NEWER, status="lost")
            case Kind.INCOMPATIBLE:
                self._scan(trouble, INCOMPATIBLE, depot="Delft-2")
            case Kind.UNKNOWN_ID:
                self._scan(trouble, raw=lambda whole: header(UNKNOWN_ID) + whole[5:])
            case Kind.OTHER_FORMAT:
                number = self._ids.number(OTHER_FORMAT, "PROTOBUF", _OTHER)
                self._scan(trouble, raw=lambda whole: header(number) + b"\0" + whole[5:])
            case Kind.WITHOUT_ID:
                self._scan(trouble, raw=lambda whole: whole[5:])
            case Kind.JSON:
                self._scan(
                    trouble, raw=lambda _: as_json({"scan_id": f"s-{self._outbox.sent:07}", "status": "delivered"})
                )
            case Kind.CUT_SHORT:
                self._scan(trouble, raw=lambda whole: whole[: self._random.randrange(5, len(whole))])
            case Kind.CUT_IN_ID:
                self._scan(trouble, raw=lambda whole: whole[: self._random.randrange(1, 5)])
            case Kind.TOO_LONG:
                self._scan(trouble, raw=lambda whole: whole + b"\0")
            case Kind.MALFORMED_BYTES:
                noise = b"\xff" + self._random.randbytes(self._random.randrange(1, 40))
                self._scan(trouble, raw=lambda _: noise)
            case Kind.EMPTY_VALUE | Kind.NULL_VALUE:
                self._scan(trouble, raw=lambda _: None if trouble is Kind.NULL_VALUE else b"")
            case Kind.NULL_KEY:
                self._scan(trouble, key=None)
            case Kind.MALFORMED_KEY:
                self._scan(trouble, key=b"p-\xff\xfe")
            case Kind.OLD | Kind.CURRENT | Kind.NEWER:
                raise AssertionError(f"{trouble} is not a trouble in turn")

    def _late(self, trouble: Kind, parcel: bytes, delay_ms: int) -> None:
        """Two scans of a parcel, of which the first one arrives last."""
        self._scan(trouble, key=parcel, delay_ms=delay_ms)
        self._scan(key=parcel, at=self._now + MINUTE // 2, delay_ms=0)

    def _scan(
        self,
        kind: Kind | None = None,
        schema: Mapping[str, Any] | None = None,
        /,
        *,
        at: int | None = None,
        delay_ms: int | None = None,
        key: bytes | EllipsisType | None = ...,
        raw: Callable[[bytes], bytes | None] = lambda whole: whole,
        **columns: Any,
    ) -> SampleRecord:
        """A scan at `at` (now), delivered `delay_ms` after it (within three seconds).

        Args:
            kind: what it is an example of; None: the generation of its scanner.
            schema: the producer's; None: that of the carrier's scanners.
            at: when it was scanned.
            delay_ms: how long it takes.
            key: of the record; left out: some parcel.
            raw: makes the value from what the producer has written.
            columns: other fields.
        """
        carrier = self._random.randrange(len(CARRIERS))
        generation, its_schema = _GENERATIONS[carrier % 3]
        at = self._now if at is None else at
        country, city = self._random.choice(CITIES)
        scan = {
            "scan_id": f"s-{self._outbox.sent:07}",
            "carrier": CARRIERS[carrier],
            "status": self._random.choices(STATES, [3, 5, 4, 1])[0],
            "scanned_at": datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at),
            "destination": {"country": country, "city": city},
            "fee": Decimal(self._random.randrange(2_000)) / 100,
            "signed_by": self._random.choice([None, "愛子", "Zoë"]),
        }
        subject = _UNTIDY if schema is INCOMPATIBLE else SUBJECT
        value = raw(self._ids.written(schema or its_schema, scan | columns, subject))
        delay_ms = self._random.randrange(3 * SECOND) if delay_ms is None else delay_ms
        return self._deliver(
            self._parcel() if isinstance(key, EllipsisType) else key, value, at, kind or generation, delay_ms
        )

    def _deliver(
        self, key: bytes | None, value: bytes | None, timestamp_ms: int, kind: Kind, delay_ms: int
    ) -> SampleRecord:
        return self._outbox.send(MAIN_TOPIC, key, value, timestamp_ms, kind, arrives_ms=timestamp_ms + delay_ms)
