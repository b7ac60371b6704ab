"""Streams read and write these formats, and their tables have the columns of the types."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any

import msgspec
import pytest

from deltaworks import Avro, DecimalDigits, JsonSchema, Protobuf, StreamsBuilder
from deltaworks.testing import TopologyTestDriver

PROTO = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Order { string item = 1; string amount = 2; google.protobuf.Timestamp at = 3; }
"""


class Order(msgspec.Struct, frozen=True):
    item: str
    amount: Annotated[Decimal, DecimalDigits(10, 2)]
    at: datetime


ORDERS = [
    Order("a", Decimal("1.50"), datetime(2026, 3, 1, tzinfo=UTC)),
    Order("b", Decimal(0), datetime(2026, 3, 2, tzinfo=UTC)),
]


@pytest.mark.parametrize(
    "serde",
    [
        Avro(Order),
        Avro(Order, registry=True),
        Avro(Order, registry=True).stored(),
        Protobuf(Order, PROTO, registry=True),
        JsonSchema(Order, registry=True),
    ],
    ids=lambda each: repr(each),
)
def test_a_stream_reads_and_writes_it_and_keeps_it_in_tables(serde: Any) -> None:
    builder = StreamsBuilder()
    orders = builder.table("orders", key=str, value=serde, store="orders")
    orders.to_delta("order_rows", key="order_id")
    orders.to_stream().filter(lambda _, order: order.amount > 0).to("paid")
    driver = TopologyTestDriver(builder.build())
    topic = driver.create_input_topic("orders", key=str, value=serde)
    for number, order in enumerate(ORDERS):
        topic.pipe_input(str(number), order)

    assert driver.create_output_topic("paid", key=str, value=serde).read_values_to_list() == ORDERS[:1]
    rows = driver.table("order_rows").to_dicts("order_id", "item", "amount", "at")
    assert [(row["item"], row["amount"], row["at"]) for row in rows] == [
        (each.item, each.amount.quantize(Decimal("0.01")), each.at) for each in ORDERS
    ]
