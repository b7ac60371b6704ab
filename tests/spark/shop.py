"""A job that reads Avro and older JSON, and writes Protobuf; `test_formats` copies it into a project."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated

import msgspec

from deltaworks import Avro, DeadLetters, DecimalDigits, Json, Pipeline, Protobuf, StreamsBuilder, Topic

PROTO = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Order { string user = 1; string amount = 2; google.protobuf.Timestamp at = 3; }
"""


class Order(msgspec.Struct, frozen=True):
    user: str
    amount: Annotated[Decimal, DecimalDigits(10, 2)]
    at: datetime


ORDERS = Avro(Order, registry=True, otherwise=Json(Order))
LARGEST = Protobuf(Order, PROTO, registry=True)


def topology(builder: StreamsBuilder) -> None:
    orders = builder.stream("orders-in-avro", key=str, value=ORDERS)
    by_user = orders.group_by(lambda _, order: order.user, key=str, name="by-user")
    largest = by_user.reduce(lambda one, other: max(one, other, key=lambda order: order.amount), store="largest")
    largest.to_delta("largest", key="user_id")
    largest.to_stream().to("largest", value=LARGEST)


pipeline = Pipeline(
    name="shop",
    topology=topology,
    topics=(Topic("orders-in-avro", partitions=2),),
    on_error="continue",
    dead_letters=DeadLetters(table="unreadable"),
)
