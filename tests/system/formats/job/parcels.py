"""Parcels per user: reads Avro and older JSON, writes Protobuf. `versions.of` makes the older versions of this file.

A line with `since N` is not in versions before N.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Annotated, Literal

import msgspec

from deltaworks import Avro, DeadLetters, DecimalDigits, Json, Pipeline, Protobuf, StreamsBuilder, Topic

PROTO = """
syntax = "proto3";
package parcels;
message Sent {
  string parcel_id = 1;
  string user = 2;
  int64 grams = 3;
  string price = 4; // since 2
  string note = 5; // since 2
  Tier tier = 6; // since 3
}
enum Tier { basic = 0; gold = 1; } // since 3
message Total {
  int64 parcels = 1;
  int64 grams = 2;
  string price = 3; // since 2
  int64 gold = 4; // since 3
}
"""


class Parcel(msgspec.Struct, frozen=True):
    parcel_id: str
    user: str
    grams: int
    sent_at: datetime
    price: Annotated[Decimal, DecimalDigits(10, 2)] = Decimal("0.00")  # since 2
    note: str = ""  # since 2
    tier: Literal["basic", "gold"] = "basic"  # since 3


class Sent(msgspec.Struct, frozen=True):
    parcel_id: str
    user: str
    grams: int
    price: Annotated[Decimal, DecimalDigits(10, 2)] = Decimal("0.00")  # since 2
    note: str = ""  # since 2
    tier: Literal["basic", "gold"] = "basic"  # since 3


class Total(msgspec.Struct, frozen=True):
    parcels: int = 0
    grams: int = 0
    price: Annotated[Decimal, DecimalDigits(20, 2)] = Decimal("0.00")  # since 2
    gold: int = 0  # since 3


PARCELS = Avro(Parcel, registry=True, otherwise=Json(Parcel))
SENT = Protobuf(Sent, PROTO, "parcels.Sent", registry=True)
TOTAL = Protobuf(Total, PROTO, "parcels.Total", registry=True)


def sent(parcel: Parcel) -> Sent:
    """What is told of a parcel."""
    return Sent(
        parcel_id=parcel.parcel_id,
        user=parcel.user,
        grams=parcel.grams,
        price=parcel.price,  # since 2
        note=parcel.note,  # since 2
        tier=parcel.tier,  # since 3
    )


def added(total: Total, parcel: Parcel) -> Total:
    """The total of a user with one more parcel."""
    return Total(
        parcels=total.parcels + 1,
        grams=total.grams + parcel.grams,
        price=total.price + parcel.price,  # since 2
        gold=total.gold + (parcel.tier == "gold"),  # since 3
    )


def topology(builder: StreamsBuilder) -> None:
    parcels = builder.stream("parcels", key=str, value=PARCELS)
    told = parcels.map_values(sent, value=SENT)
    told.to("parcels-sent")
    told.to_delta("parcels_sent", key="parcel_id")
    by_user = parcels.group_by(lambda _, parcel: parcel.user, key=str, name="by-user")
    totals = by_user.aggregate(Total, lambda _, parcel, total: added(total, parcel), store="totals")
    totals.to_delta("parcel_totals", key="user_id")
    totals.to_stream().to("parcel-totals", value=TOTAL)


pipeline = Pipeline(
    name="parcels",
    topology=topology,
    topics=(Topic("parcels", partitions=2),),
    on_error="continue",
    dead_letters=DeadLetters(table="parcels_unreadable"),
    trigger_interval=timedelta(milliseconds=300),
    cores=2,
)
