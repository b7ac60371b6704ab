from __future__ import annotations

import base64
import json
from datetime import date
from decimal import Decimal
from typing import Any

from deltaworks.testing import TopologyTestDriver
from jobs.customers import Customer, CustomerOrder, Total, pipeline

SOURCE = {"version": "3.5.0.Final", "connector": "postgresql", "ts_ms": 1772524800000, "table": "x", "lsn": 1}
PRICE = {
    "type": "bytes",
    "name": "org.apache.kafka.connect.data.Decimal",
    "parameters": {"scale": "2"},
    "field": "price",
}
SCHEMA = {"type": "struct", "fields": [{"type": "struct", "field": "after", "fields": [PRICE]}]}


class Shop:
    """The pipeline, and rows of the database made from what matters."""

    def __init__(self) -> None:
        self.driver = TopologyTestDriver(pipeline)
        topics = ("cdc.customers", "cdc.orders", "cdc.order_lines")
        self._customers, self._orders, self._lines = (self.driver.create_input_topic(each) for each in topics)
        self.customer(7)

    def customer(self, id: int, deleted: bool = False, **fields: Any) -> None:
        row = {"id": id, "name": "Ann", "city": "Ulm", "vip": False, "since": 20_000} | fields
        row |= {"__deleted": str(deleted).lower(), "__op": "d" if deleted else "u"}
        self._customers.pipe_raw(_packed({"id": id}), _packed(row))
        if deleted:
            self._customers.pipe_raw(_packed({"id": id}), None)

    def order(self, id: int = 1, op: str = "c", **fields: Any) -> None:
        row = {"id": id, "customer_id": 7, "status": "new", "ordered_at": 1772524800000001, "note": None} | fields
        self._send(self._orders, {"id": id}, op, row)

    def line(self, order: int = 1, number: int = 1, op: str = "c", cents: int = 250, quantity: int = 2) -> None:
        price = base64.b64encode(cents.to_bytes(4, "big")).decode()
        row = {"order_id": order, "number": number, "article": "lamp", "quantity": quantity, "price": price}
        self._send(self._lines, {"order_id": order, "number": number}, op, row, SCHEMA)

    def _send(self, topic: Any, key: Any, op: str, row: Any, schema: Any = None) -> None:
        before, after = (row, None) if op == "d" else (None, row)
        change: Any = {"before": before, "after": after, "source": SOURCE, "transaction": None, "op": op, "ts_ms": 1}
        topic.pipe_raw(_packed(key), _packed(change if schema is None else {"schema": schema, "payload": change}))
        if op == "d":
            topic.pipe_raw(_packed(key), None)

    @property
    def orders(self) -> dict[int, CustomerOrder]:
        return dict(self.driver.table("customers_orders").rows)

    @property
    def totals(self) -> dict[int, Total]:
        return dict(self.driver.table("customers_totals").rows)


def _packed(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def test_an_order_has_its_lines_and_its_customer() -> None:
    shop = Shop()

    shop.order()
    shop.line(number=1)
    shop.line(number=2, cents=100, quantity=1)

    order = shop.orders[1]
    assert (order.lines, order.amount, order.customer_name, order.city) == (2, Decimal("6.00"), "Ann", "Ulm")
    assert order.ordered_at.microsecond == 1
    assert shop.totals == {7: Total(1, Decimal("6.00"))}


def test_a_customer_who_moves_changes_all_orders() -> None:
    shop = Shop()
    shop.order(1)
    shop.order(2)

    shop.customer(7, city="Köln")

    assert {order.city for order in shop.orders.values()} == {"Köln"}


def test_a_customer_who_is_deleted_leaves_orders_behind() -> None:
    shop = Shop()
    shop.order()

    shop.customer(7, deleted=True)

    assert (shop.orders[1].customer_id, shop.orders[1].customer_name) == (7, None)
    assert 7 not in dict(shop.driver.table("customers").rows)
    assert shop.totals == {7: Total(1, Decimal("0.00"))}


def test_what_is_deleted_in_the_database_is_deleted_here() -> None:
    shop = Shop()
    shop.order()
    shop.line(number=1)
    shop.line(number=2)

    shop.line(number=2, op="d")
    assert (shop.orders[1].lines, shop.totals[7].amount) == (1, Decimal("5.00"))
    shop.line(number=1, op="d")
    assert (shop.orders[1].lines, shop.orders[1].amount) == (0, Decimal("0.00"))
    shop.order(op="d")

    assert (shop.orders, shop.totals) == ({}, {})


def test_the_search_index_gets_a_null_for_an_order_that_is_gone() -> None:
    shop = Shop()
    shop.order()
    shop.order(op="d")

    topic = shop.driver.create_output_topic("customers-orders", key=str, value=CustomerOrder)
    found = topic.read_key_values_to_list()

    assert [(key, value and value.customer_name) for key, value in found] == [("1", "Ann"), ("1", None)]


def test_an_order_that_gets_another_number_is_deleted_and_created() -> None:
    shop = Shop()
    shop.order(1)

    shop.order(1, op="d")
    shop.order(8)

    assert list(shop.orders) == [8]
    assert shop.totals[7].orders == 1


def test_an_order_of_another_customer_is_in_another_total() -> None:
    shop = Shop()
    shop.customer(8, name="Bob")
    shop.order()
    shop.line()

    shop.order(op="u", customer_id=8)
    assert shop.totals == {8: Total(1, Decimal("5.00"))}
    shop.order(op="u", customer_id=None)

    assert shop.totals == {}
    assert shop.orders[1].customer_name is None


def test_a_note_that_was_not_sent_is_a_dead_letter() -> None:
    shop = Shop()
    shop.order(note="ring twice")

    shop.order(op="u", status="paid", note="__debezium_unavailable_value")

    (letter,) = shop.driver.dead_letters
    assert "field 'note' has not been sent" in letter.message
    assert (shop.orders[1].status, shop.orders[1].note) == ("new", "ring twice")


def test_a_customer_is_a_row_of_the_database() -> None:
    shop = Shop()

    assert dict(shop.driver.table("customers").rows)[7] == Customer("Ann", "Ulm", False, date(2024, 10, 4))
