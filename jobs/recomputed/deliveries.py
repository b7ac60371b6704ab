"""The expected results of `jobs/deliveries.py`, recomputed in `deliveries.sql`, and its own (`deliveries_found.sql`).

DuckDB reads neither Avro records nor Protobuf, so they are decoded here: by fastavro with a schema of our own, and by
Google's Protobuf with a descriptor of our own. Only the registry is asked for what an id means.
"""

from __future__ import annotations

import io
import json
from datetime import UTC
from decimal import Decimal
from functools import cache
from typing import Any

import fastavro
import pyarrow as pa
from google.protobuf import timestamp_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

from deltaworks.errors import SerializationError
from deltaworks.serdes.schemas import Schemas, WriterSchema
from jobs.recomputed.results import Recomputation

_HEADER = 5
"""A zero, and the id of the schema."""
STATES = ("unknown", "accepted", "on_the_way", "delivered", "returned")
_WANTED: dict[str, Any] = {
    "type": "record",
    "name": "Scan",
    "fields": [
        {"name": "scan_id", "type": "string"},
        {"name": "carrier", "type": "string"},
        {"name": "status", "type": {"type": "enum", "name": "Status", "symbols": [*STATES], "default": "unknown"}},
        {"name": "scanned_at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {
            "name": "destination",
            "type": {
                "type": "record",
                "name": "Address",
                "fields": [{"name": "country", "type": "string"}, {"name": "city", "type": "string"}],
            },
        },
        {
            "name": "fee",
            "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}],
            "default": None,
        },
    ],
}
_PLACE = [("partition", pa.int32()), ("offset", pa.int64())]
_ADDRESS = pa.struct([("country", pa.string()), ("city", pa.string())])
_SCANS = pa.schema(
    [
        *_PLACE,
        ("scan_id", pa.string()),
        ("carrier", pa.string()),
        ("status", pa.string()),
        ("scanned_at", pa.timestamp("us", tz="UTC")),
        ("destination", _ADDRESS),
        ("fee", pa.decimal128(10, 2)),
    ]
)
_PARCELS = pa.schema(
    [
        *_PLACE,
        ("status", pa.string()),
        ("scanned_at", pa.timestamp("us", tz="UTC")),
        ("destination", _ADDRESS),
        ("scans", pa.int64()),
        ("fees", pa.decimal128(20, 2)),
    ]
)


def scans(records: pa.Table, schemas: Schemas) -> pa.Table:
    """The scans that can be read."""
    found = []
    for record in records.to_pylist():
        if record["value"] is not None and (scan := _scan(record["value"], schemas)) is not None:
            found.append({"partition": record["partition"], "offset": record["offset"]} | scan)
    return pa.Table.from_pylist(found, _SCANS)


def parcels(records: pa.Table, schemas: Schemas) -> pa.Table:
    """What the job has written of parcels."""
    found = []
    for record in records.to_pylist():
        if record["topic"] == "deliveries-parcels":
            parcel = _parcel(record["value"], schemas)
            found.append({"partition": record["partition"], "offset": record["offset"]} | parcel)
    return pa.Table.from_pylist(found, _PARCELS)


def _scan(data: bytes, schemas: Schemas) -> dict[str, Any] | None:
    """A scan; None: nobody can read it."""
    writer = _schema_of(data, schemas)
    if writer is None or writer.kind != "AVRO":
        return None
    body = io.BytesIO(data[_HEADER:])
    try:
        scan: Any = fastavro.schemaless_reader(body, _parsed(writer.text), _parsed(json.dumps(_WANTED)))
    except (EOFError, ValueError, IndexError, fastavro.read.SchemaResolutionError):
        return None
    return None if body.read() else dict(scan)


def _schema_of(data: bytes, schemas: Schemas) -> WriterSchema | None:
    """The schema that a record names; None: there is none."""
    if len(data) < _HEADER or data[0] != 0:
        return None
    try:
        return schemas.by_id(int.from_bytes(data[1:_HEADER], "big"))
    except SerializationError:
        return None


def _parcel(data: bytes, schemas: Schemas) -> dict[str, Any]:
    """A parcel.

    Raises:
        ValueError: it is none, or names no schema of one.
    """
    writer = _schema_of(data, schemas)
    if writer is None or writer.kind != "PROTOBUF" or "message Parcel" not in writer.text:
        raise ValueError(f"{data!r} does not name the schema of a parcel")
    # Behind the id is the message's place in its file: one step, to the second message. Both are varints in zigzag.
    if data[_HEADER : _HEADER + 2] != b"\x02\x02":
        raise ValueError(f"{data!r} is not the second message of its file")
    parcel = _message()()
    try:
        parcel.ParseFromString(data[_HEADER + 2 :])
    except DecodeError as error:
        raise ValueError(f"{data!r} is no parcel") from error
    if len(UnknownFieldSet(parcel)):
        raise ValueError(f"{data!r} has unknown fields")
    return {
        "status": STATES[parcel.status],
        "scanned_at": parcel.scanned_at.ToDatetime(tzinfo=UTC),
        "destination": {"country": parcel.destination.country, "city": parcel.destination.city},
        "scans": parcel.scans,
        "fees": Decimal(parcel.fees),
    }


@cache
def _parsed(text: str) -> Any:
    return fastavro.parse_schema(json.loads(text))


@cache
def _message() -> Any:
    """The class of a parcel's messages."""
    file = FileDescriptorProto(
        name="expected.proto", package="expected", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
    )
    states = file.enum_type.add(name="Status")
    for number, name in enumerate(STATES):
        states.value.add(name=name, number=number)
    address, parcel = file.message_type.add(name="Address"), file.message_type.add(name="Parcel")
    kind = FieldDescriptorProto
    one = kind.LABEL_OPTIONAL
    for number, name in enumerate(("country", "city"), 1):
        address.field.add(name=name, number=number, type=kind.TYPE_STRING, label=one)
    at = ".google.protobuf.Timestamp"
    parcel.field.add(name="status", number=1, type=kind.TYPE_ENUM, type_name=".expected.Status", label=one)
    parcel.field.add(name="scanned_at", number=2, type=kind.TYPE_MESSAGE, type_name=at, label=one)
    parcel.field.add(name="destination", number=3, type=kind.TYPE_MESSAGE, type_name=".expected.Address", label=one)
    parcel.field.add(name="scans", number=4, type=kind.TYPE_INT64, label=one)
    parcel.field.add(name="fees", number=5, type=kind.TYPE_STRING, label=one)
    pool = DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName("expected.Parcel"))


recomputation = Recomputation(
    job="deliveries",
    inputs=("deliveries-scans",),
    topics=("deliveries-parcels", "deliveries-dead-letters"),
    tables=("deliveries_scans", "deliveries_parcels", "deliveries_parcels_changelog", "deliveries_dead_letters"),
    decode_inputs=scans,
    decode_outputs=parcels,
)
