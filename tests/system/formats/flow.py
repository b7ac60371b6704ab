"""Parcels as Confluent's own serializers write them, while something is killed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.support.repeated import repeated
from tests.system.formats.versions import SCHEMAS

TOPIC = "parcels"
USERS = tuple(f"user-{number:02}" for number in range(20))
_CONTEXT = SerializationContext(TOPIC, MessageField.VALUE)
_BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
_BROKEN = (b"\0\0\0\0", b"\0\0\x7f\xff\xff\2\2", b"", b"\xff\xfe", b'{"parcel_id": "x"}')
"""Cut off; of a schema that nobody has; empty; neither Avro nor JSON; JSON that lacks fields."""


@dataclass
class Flow:
    """Writes parcels until it is told to end.

    Args:
        bootstrap: Kafka.
        registry: a client of the registry.
        rate: records per second.
        rng: decides what comes.
    """

    bootstrap: str
    registry: SchemaRegistryClient
    rate: float
    rng: random.Random
    versions: list[int] = field(default_factory=lambda: [1])
    """Of the Avro schemas in use."""
    json: float = 0.0
    """The share of JSON."""
    written: int = 0

    def __post_init__(self) -> None:
        conf = {"subject.name.strategy.type": "TOPIC"}
        self._serializers = {
            version: AvroSerializer(self.registry, schema, conf=conf) for version, schema in SCHEMAS.items()
        }

    def running(self) -> AbstractContextManager[None]:
        """In the background, until the end of the block; raises what has ended it before."""
        return repeated(self._writing(), 1 / self.rate)

    @contextmanager
    def _writing(self) -> Iterator[Callable[[], object]]:
        """Writes a record at each call."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0, "linger.ms": 5})

        def write() -> None:
            producer.produce(TOPIC, *self._record())
            producer.poll(0)

        try:
            yield write
        finally:
            producer.flush()

    def register(self, version: int) -> None:
        """A schema is in the registry, and the serializer knows its id."""
        self.registry.register_schema(f"{TOPIC}-value", self._serializers[version]._schema)

    def _record(self) -> tuple[bytes, bytes]:
        """Value and key."""
        self.written += 1
        key = f"p-{self.written:07}".encode()
        if self.rng.random() < 0.01:
            return self.rng.choice(_BROKEN), key
        parcel = self._parcel()
        if self.rng.random() < self.json:
            return json.dumps(parcel | {"sent_at": parcel["sent_at"].isoformat()}).encode(), key
        version = self.rng.choice(self.versions)
        if version > 1:
            parcel["price"] = Decimal(self.rng.randrange(100_000)) / 100
        if version == 2:
            parcel["note"] = self.rng.choice(["", "fragile", "大阪"])
        if version > 2:
            parcel["tier"] = self.rng.choice(["basic", "gold"])
        return self._serializers[version](parcel, _CONTEXT), key

    def _parcel(self) -> dict[str, Any]:
        """The fields of version 1; of a price, JSON knows nothing."""
        return {
            "parcel_id": f"p-{self.written:07}",
            "user": self.rng.choice(USERS),
            "grams": self.rng.randrange(1, 30_000),
            "sent_at": _BEGIN + timedelta(seconds=self.written),
        }
