"""Parcels as they are now: reads Avro and writes Protobuf, both with a schema registry, while the schemas change.
Sample data: `sample_data/deliveries.py`. Expected results: `recomputed/deliveries.sql`.

```
deliveries-scans, by parcel |-> deliveries_scans                              (every scan)
                            '-> parcel -> deliveries_parcels, deliveries-parcels    (after its newest scan)
```

A record of either topic begins with the id of its schema, so the job needs a registry: `[schema_registry]` in
`deltaworks.toml`, or `deltaworks up schema-registry`.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Annotated, Literal

import msgspec

from deltaworks import (
    Avro,
    Column,
    DeadLetters,
    DecimalDigits,
    Doc,
    Materialized,
    Pipeline,
    Protobuf,
    StreamsBuilder,
)

AVRO = """
{
  "type": "record",
  "name": "Scan",
  "fields": [
    {"name": "scan_id", "type": "string"},
    {"name": "carrier", "type": "string"},
    {"name": "status", "type": {
      "type": "enum",
      "name": "Status",
      "symbols": ["unknown", "accepted", "on_the_way", "delivered", "returned"],
      "default": "unknown"
    }},
    {"name": "scanned_at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "destination", "type": {"type": "record", "name": "Address", "fields": [
      {"name": "country", "type": "string"},
      {"name": "city", "type": "string"}
    ]}},
    {
      "name": "fee",
      "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
      "default": "\\u0000"
    }
  ]
}
"""
"""With a default for the status: a producer may then have one that the job does not know."""
PROTO = """
syntax = "proto3";
package deliveries;
import "google/protobuf/timestamp.proto";

enum Status { unknown = 0; accepted = 1; on_the_way = 2; delivered = 3; returned = 4; }
message Address { string country = 1; string city = 2; }
message Parcel {
  Status status = 1;
  google.protobuf.Timestamp scanned_at = 2;
  Address destination = 3;
  int64 scans = 4;
  string fees = 5;
}
"""

Status = Literal["unknown", "accepted", "on_the_way", "delivered", "returned"]


class Address(msgspec.Struct, frozen=True):
    country: Annotated[str, Doc("The country, as ISO 3166 has it.")]
    city: Annotated[str, Doc("The city.")]


class Scan(msgspec.Struct, frozen=True):
    """An Avro value in `deliveries-scans`, keyed by parcel; producers have older and newer versions of its schema."""

    scan_id: Annotated[str, Doc("Number of the scan.")]
    carrier: Annotated[str, Doc("Who scanned the parcel.")]
    status: Annotated[Status, Doc("What became of the parcel; `unknown`: what this job does not know.")]
    scanned_at: Annotated[datetime, Doc("When it was scanned.")]
    destination: Annotated[Address, Doc("Where the parcel goes.")]
    fee: Annotated[Decimal, DecimalDigits(10, 2), Doc("Fee for this step in euros; old scanners know none.")] = Decimal(
        "0.00"
    )


class Parcel(msgspec.Struct, frozen=True):
    """A Protobuf value in `deliveries-parcels`. A single scan is a parcel, and `joined` adds another one."""

    status: Annotated[Status, Doc("What became of the parcel, by its newest scan.")]
    scanned_at: Annotated[datetime, Doc("When it was last scanned.")]
    destination: Annotated[Address, Doc("Where it goes, by its newest scan.")]
    scans: Annotated[int, Doc("Number of scans.")]
    fees: Annotated[Decimal, DecimalDigits(20, 2), Doc("Sum of its fees in euros.")]


SCAN = Avro(Scan, AVRO, registry=True)
PARCEL = Protobuf(Parcel, PROTO, "deliveries.Parcel", registry=True)
PARCEL_ID = Column("parcel_id", "Number of the parcel.")


def parcel_of(scan: Scan) -> Parcel:
    """A parcel of one scan."""
    return Parcel(status=scan.status, scanned_at=scan.scanned_at, destination=scan.destination, scans=1, fees=scan.fee)


def joined(known: Parcel, scan: Parcel) -> Parcel:
    """A parcel after one more scan, which may have been on its way for longer than a newer one."""
    newest = known if known.scanned_at > scan.scanned_at else scan
    return msgspec.structs.replace(newest, scans=known.scans + scan.scans, fees=known.fees + scan.fees)


def topology(builder: StreamsBuilder) -> None:
    """Follows the picture above from top to bottom."""
    scans = builder.stream("deliveries-scans", key=str, value=SCAN, on_null="skip", name="scans")
    scans.to_delta("deliveries_scans", key=PARCEL_ID, doc="Every scan of a parcel")
    parcels = (
        scans.map_values(parcel_of, value=PARCEL, name="parcel-of")
        .group_by_key()
        .reduce(joined, store=Materialized("deliveries-parcels"))
    )
    parcels.to_delta("deliveries_parcels", key=PARCEL_ID, doc="The parcels as they are now")
    parcels.to_stream().to("deliveries-parcels")


pipeline = Pipeline(
    name="deliveries",
    topology=topology,
    on_error="continue",  # a scan that its schema does not fit, or whose schema cannot be read, becomes a dead letter
    dead_letters=DeadLetters(topic="deliveries-dead-letters", table="deliveries_dead_letters"),
    max_trigger_interval=timedelta(seconds=5),
    cores=1,
)
