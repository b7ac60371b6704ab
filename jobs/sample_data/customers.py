"""Sample data for `jobs/customers.py`: what Debezium 3.5 would write of a shop's database in PostgreSQL.

The simulation has the tables and changes rows; a connector that reads them first takes a snapshot. Time advances about
ten seconds per order. Every eighth step is the next `Kind` of what happens seldom or should not. Debezium puts the old
and the new key into headers when a key changes; the records here have none, and nothing reads them.
"""

from __future__ import annotations

import json
import random
from base64 import b64encode
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from enum import Enum
from itertools import cycle
from typing import Any

from deltaworks.testing.sample_data import SampleRecord
from jobs.sample_data.kafka import MINUTE, SECOND, Outbox

MAIN_TOPIC = "cdc.orders"
CUSTOMERS_TOPIC = "cdc.customers"
LINES_TOPIC = "cdc.order_lines"
START_MS = int(datetime(2026, 3, 1, 8, 0, tzinfo=UTC).timestamp() * 1000)
LEFT_OUT = "__debezium_unavailable_value"

NAMES = ("Ada", "Björn", "Chloé", "Дмитрий", "은지")
CITIES = ("Ulm", "Köln", "Łódź", "Nîmes")
ARTICLES = ("lamp", "chair", "table", "shelf", "rug")


class Kind(Enum):
    """What a record is an example of; the value is its line in the census."""

    SNAPSHOT = "rows of the snapshot"
    PLACED = "orders, placed"
    LINE = "lines of new orders"
    CHANGED = "orders, paid or shipped"
    LINE_CHANGED = "lines, with another quantity"
    LINE_DELETED = "lines, deleted (and the null after it)"
    DELETED = "orders, deleted with their lines (and the nulls after it)"
    MOVED = "orders, of another customer"
    RENUMBERED = "orders, with another key (deleted and created)"
    GUEST = "orders, without a customer"
    BEFORE_CUSTOMER = "orders, in Kafka before their customer"
    NOTE_KEPT = "orders, long note not sent, but in the row before"
    DELIVERED_TWICE = "orders, delivered twice"
    CUSTOMER_CREATED = "customers, created"
    CUSTOMER_CHANGED = "customers, in another city"
    CUSTOMER_DELETED = "customers, deleted (and the null after it)"
    CUSTOMER_AS_CHANGE = "customers, as changes, not as rows"
    COLUMN_ADDED = "customers, with a column nobody knows"
    NULL_FOR_NOTHING = "customers, null for one who never was"
    NOTE_LOST = "orders, long note not sent"
    TRUNCATED = "lines, table truncated"
    HEARTBEAT = "customers, a heartbeat of the connector"
    RETYPED = "orders, a column of another type"
    COLUMN_GONE = "orders, a column missing"
    MALFORMED = "orders, value cut short or empty"
    OTHER_KEY = "orders, key with a schema or without JSON"


def records(count: int = 20_000, seed: int = 7) -> Iterator[SampleRecord]:
    """All records of `cdc.orders` up to that number, and those of the other tables that came before the last."""
    left = count
    for record in _Shop(random.Random(seed)).deliveries():
        if record.topic == MAIN_TOPIC:
            left -= 1
            if left < 0:
                return
        yield record


_SELDOM = tuple(kind for kind in Kind if kind not in (Kind.SNAPSHOT, Kind.PLACED, Kind.LINE))
_PRICE = {
    "type": "bytes",
    "optional": False,
    "name": "org.apache.kafka.connect.data.Decimal",
    "version": 1,
    "parameters": {"scale": "2", "connect.decimal.precision": "10"},
    "field": "price",
}
_LINE = [
    {"type": "int64", "optional": False, "field": "order_id"},
    {"type": "int32", "optional": False, "field": "number"},
    {"type": "string", "optional": False, "field": "article"},
    {"type": "int32", "optional": False, "field": "quantity"},
    _PRICE,
]
_LINE_SCHEMA = {
    "type": "struct",
    "fields": [
        {
            "type": "struct",
            "fields": _LINE,
            "optional": True,
            "name": "shop.public.order_lines.Value",
            "field": name,
        }
        for name in ("before", "after")
    ],
    "optional": False,
    "name": "shop.public.order_lines.Envelope",
    "version": 2,
}
"""Without the columns of `source`, which no reader needs."""


class _Shop:
    """The database and its connector. What was written waits in `_outbox` until its moment of delivery."""

    def __init__(self, random: random.Random) -> None:
        self._random = random
        self._now = START_MS
        self._lsn = 26_857_744
        self._transaction = 700
        self._outbox = Outbox()
        self._customers: dict[int, dict[str, Any]] = {}
        self._gone: list[int] = []
        self._orders: dict[int, dict[str, Any]] = {}
        self._lines: dict[tuple[int, int], dict[str, Any]] = {}
        self._next_customer = 1
        self._next_order = 1001

    def deliveries(self) -> Iterator[SampleRecord]:
        for _ in range(150):
            self._customer(Kind.SNAPSHOT)
        for _ in range(30):
            self._order(Kind.SNAPSHOT)
        for kind in cycle(_SELDOM):
            for _ in range(7):
                self._pass_time()
                self._order(Kind.PLACED)
            self._make(kind)
            yield from self._outbox.due(self._now)

    def _pass_time(self) -> None:
        self._now += 1 + int(self._random.expovariate(1 / (10 * SECOND)))
        if len(self._orders) > 400:
            self._forget(next(iter(self._orders)))

    def _forget(self, order: int) -> None:
        """The shop deals with an order no more; its rows stay as they are."""
        del self._orders[order]
        for key in [key for key in self._lines if key[0] == order]:
            del self._lines[key]

    def _make(self, kind: Kind) -> None:
        match kind:
            case Kind.CHANGED:
                order = self._some_order()
                self._update(order, kind, status={"new": "paid"}.get(self._orders[order]["status"], "shipped"))
            case Kind.LINE_CHANGED:
                self._change_line(self._some_line(), kind)
            case Kind.LINE_DELETED:
                self._delete_line(self._some_line(), kind)
            case Kind.DELETED:
                self._delete(self._some_order(), kind)
            case Kind.MOVED:
                self._update(self._some_order(), kind, customer_id=self._anyone())
            case Kind.RENUMBERED:
                self._renumber(self._some_order(), kind)
            case Kind.GUEST:
                self._order(kind, customer=None)
            case Kind.BEFORE_CUSTOMER:
                self._order(kind, customer=self._next_customer)
                self._customer(Kind.CUSTOMER_CREATED, delay=MINUTE)
            case Kind.NOTE_KEPT:
                order = self._some_order()
                before = dict(self._orders[order], note="so long, " * 300)
                self._update(order, kind, note=before["note"])
                self._send_order("u", order, before, before | {"status": "shipped", "note": LEFT_OUT}, kind)
                self._orders[order]["status"] = "shipped"
            case Kind.DELIVERED_TWICE:
                order = self._some_order()
                for _ in range(2):
                    self._send_order("u", order, None, self._orders[order], kind)
            case Kind.CUSTOMER_CREATED:
                self._customer(kind, number=self._gone.pop(0) if self._gone else None)
            case Kind.CUSTOMER_CHANGED:
                self._move_customer(kind)
            case Kind.CUSTOMER_DELETED:
                self._delete_customer(kind)
            case Kind.CUSTOMER_AS_CHANGE:
                number = self._anyone()
                before = dict(self._customers[number])
                self._customers[number]["city"] = self._random.choice(CITIES)
                self._send_change(number, "u", before, self._customers[number], kind)
            case Kind.COLUMN_ADDED:
                self._send_customer("u", self._anyone(), kind, language="de")
            case Kind.NULL_FOR_NOTHING:
                self._deliver(CUSTOMERS_TOPIC, _packed({"id": 999_999}), None, kind)
            case Kind.NOTE_LOST:
                order = self._some_order()
                self._send_order("u", order, None, self._orders[order] | {"note": LEFT_OUT}, kind)
            case Kind.TRUNCATED:
                change = self._envelope("order_lines", "t", None, None)
                self._deliver(LINES_TOPIC, None, _packed({"schema": _LINE_SCHEMA, "payload": change}), kind)
            case Kind.HEARTBEAT:
                self._deliver(CUSTOMERS_TOPIC, _packed({"id": 0}), _packed({"ts_ms": self._now}), kind)
            case Kind.RETYPED:
                order = self._some_order()
                column, wrong = self._random.choice([("customer_id", "7"), ("status", "lost"), ("ordered_at", 1.5)])
                self._send_order("u", order, None, self._orders[order] | {column: wrong}, kind)
            case Kind.COLUMN_GONE:
                order = self._some_order()
                row = dict(self._orders[order])
                del row[self._random.choice(["customer_id", "status", "ordered_at"])]
                self._send_order("u", order, None, row, kind)
            case Kind.MALFORMED:
                order = self._some_order()
                whole = _packed(self._envelope("orders", "u", None, {"id": order, **self._orders[order]}))
                value = self._random.choice([b"", whole[: len(whole) // 2], b"\xff" + whole])
                self._deliver(MAIN_TOPIC, _packed({"id": order}), value, kind)
            case Kind.OTHER_KEY:
                order = self._some_order()
                schema = {"type": "struct", "fields": [], "optional": False, "name": "shop.public.orders.Key"}
                with_schema = _packed({"schema": schema, "payload": {"id": order}})
                key = self._random.choice([with_schema, str(order).encode(), b"\xff"])
                value = _packed(self._envelope("orders", "u", None, {"id": order, **self._orders[order]}))
                self._deliver(MAIN_TOPIC, key, value, kind)
            case Kind.SNAPSHOT | Kind.PLACED | Kind.LINE:
                raise AssertionError(f"{kind} is not one in turn")

    def _anyone(self) -> int:
        return self._random.choice(list(self._customers))

    def _some_order(self) -> int:
        return self._random.choice(list(self._orders))

    def _some_line(self) -> tuple[int, int]:
        return self._random.choice(list(self._lines))

    # Customers: rows, since the connector unwraps them; those of the snapshot are changes.

    def _customer(self, kind: Kind, number: int | None = None, delay: int = 0) -> None:
        if number is None:
            number, self._next_customer = self._next_customer, self._next_customer + 1
        self._customers[number] = {
            "name": f"{self._random.choice(NAMES)} {self._random.randrange(99)}",
            "city": self._random.choice(CITIES),
            "vip": self._random.random() < 0.1,
            "since": 20_000 + self._random.randrange(500),
        }
        if kind is Kind.SNAPSHOT:
            self._send_change(number, "r", None, self._customers[number], kind)
        else:
            self._send_customer("c", number, kind, delay)

    def _move_customer(self, kind: Kind) -> None:
        number = self._anyone()
        self._customers[number]["city"] = self._random.choice(CITIES)
        self._send_customer("u", number, kind)

    def _delete_customer(self, kind: Kind) -> None:
        number = self._anyone()
        self._gone.append(number)
        key = _packed({"id": number})
        added = self._added("d", deleted=True)
        # Without REPLICA IDENTITY FULL only the key of a deleted row is known, and Debezium makes up the rest.
        del self._customers[number]
        row = {"id": number, "name": "", "city": "", "vip": False, "since": 0, **added}
        self._deliver(CUSTOMERS_TOPIC, key, _packed(row), kind)
        self._deliver(CUSTOMERS_TOPIC, key, None, kind)

    def _send_customer(self, op: str, number: int, kind: Kind, delay: int = 0, **more: Any) -> None:
        row = {"id": number, **self._customers[number], **more, **self._added(op)}
        self._deliver(CUSTOMERS_TOPIC, _packed({"id": number}), _packed(row), kind, delay)

    def _send_change(
        self, number: int, op: str, before: Mapping[str, Any] | None, after: Mapping[str, Any], kind: Kind
    ) -> None:
        rows = [None if each is None else {"id": number, **each} for each in (before, after)]
        self._deliver(CUSTOMERS_TOPIC, _packed({"id": number}), _packed(self._envelope("customers", op, *rows)), kind)

    # Orders: changes without a schema, with the whole row before.

    def _order(self, kind: Kind, customer: Any = ...) -> None:
        order, self._next_order = self._next_order, self._next_order + 1
        self._orders[order] = row = {
            "customer_id": self._anyone() if customer is ... else customer,
            "status": "new",
            "ordered_at": self._now * 1000 + self._random.randrange(1000),
            "note": self._random.choice([None, None, "ring twice"]),
        }
        snapshot = kind is Kind.SNAPSHOT
        self._send_order("r" if snapshot else "c", order, None, row, kind)
        for number in range(1, self._random.randrange(1, 4)):
            self._lines[order, number] = {
                "article": self._random.choice(ARTICLES),
                "quantity": self._random.randrange(1, 5),
                "price": self._random.randrange(100, 60_000),
            }
            self._send_line("r" if snapshot else "c", (order, number), None, Kind.SNAPSHOT if snapshot else Kind.LINE)

    def _update(self, order: int, kind: Kind, **fields: Any) -> None:
        before = dict(self._orders[order])
        self._orders[order] |= fields
        self._send_order("u", order, before, self._orders[order], kind)

    def _delete(self, order: int, kind: Kind) -> None:
        for line in [key for key in self._lines if key[0] == order]:
            self._delete_line(line, kind)
        self._send_order("d", order, self._orders.pop(order), None, kind)
        self._deliver(MAIN_TOPIC, _packed({"id": order}), None, kind)

    def _renumber(self, order: int, kind: Kind) -> None:
        """An update of a primary key comes as a deletion and a creation."""
        new, self._next_order = self._next_order, self._next_order + 1
        row = self._orders.pop(order)
        self._send_order("d", order, row, None, kind)
        self._deliver(MAIN_TOPIC, _packed({"id": order}), None, kind)
        self._orders[new] = row
        self._send_order("c", new, None, row, kind)
        for line in [key for key in self._lines if key[0] == order]:
            del self._lines[line]

    def _send_order(
        self,
        op: str,
        order: int,
        before: Mapping[str, Any] | None,
        after: Mapping[str, Any] | None,
        kind: Kind,
    ) -> None:
        rows = [None if each is None else {"id": order, **each} for each in (before, after)]
        self._deliver(MAIN_TOPIC, _packed({"id": order}), _packed(self._envelope("orders", op, *rows)), kind)

    # Lines: changes with a schema, which says what the bytes of a price are.

    def _change_line(self, line: tuple[int, int], kind: Kind) -> None:
        before = dict(self._lines[line])
        self._lines[line]["quantity"] = self._random.randrange(1, 9)
        self._send_line("u", line, before, kind)

    def _delete_line(self, line: tuple[int, int], kind: Kind) -> None:
        before = self._lines.pop(line)
        self._send_line("d", line, before, kind)
        self._deliver(LINES_TOPIC, _line_key(line), None, kind)

    def _send_line(self, op: str, line: tuple[int, int], before: Mapping[str, Any] | None, kind: Kind) -> None:
        rows = [_line_row(line, before), _line_row(line, self._lines.get(line))]
        content = {"schema": _LINE_SCHEMA, "payload": self._envelope("order_lines", op, *rows)}
        self._deliver(LINES_TOPIC, _line_key(line), _packed(content), kind)

    def _envelope(
        self, table: str, op: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """A change as the converter writes it, field by field."""
        self._lsn += self._random.randrange(56, 400)
        self._transaction += 1
        source = {
            "version": "3.5.0.Final",
            "connector": "postgresql",
            "name": "shop",
            **_times(self._now, "ts_ms"),
            "snapshot": "true" if op == "r" else "false",
            "db": "shop",
            "sequence": f'["{self._lsn - 56}","{self._lsn}"]',
            **_times(self._now, "ts_us", "ts_ns"),
            "schema": "public",
            "table": table,
            "txId": self._transaction,
            "lsn": self._lsn,
            "xmin": None,
            "origin": None,
            "origin_lsn": None,
        }
        times = _times(self._now + 40, "ts_ms", "ts_us", "ts_ns")
        return {"before": before, "after": after, "source": source, "transaction": None, "op": op, **times}

    def _added(self, op: str, *, deleted: bool = False) -> dict[str, Any]:
        """What ExtractNewRecordState adds to a row."""
        times = {"__ts_ms": self._now + 40, "__source_ts_ms": self._now}
        return {"__deleted": "true" if deleted else "false", "__op": op, **times}

    def _deliver(self, topic: str, key: bytes | None, value: bytes | None, kind: Kind, delay_ms: int = 0) -> None:
        """The record has the time at which Connect writes it."""
        at = self._now + 50 + delay_ms
        self._outbox.send(topic, key, value, at, kind, arrives_ms=self._now + delay_ms)


def _packed(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _line_key(line: tuple[int, int]) -> bytes:
    return _packed({"order_id": line[0], "number": line[1]})


def _line_row(line: tuple[int, int], row: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if row is None:
        return None
    cents: int = row["price"]
    price = cents.to_bytes(cents.bit_length() // 8 + 1, "big", signed=True)
    return {"order_id": line[0], "number": line[1], **row, "price": b64encode(price).decode()}


def _times(now_ms: int, *units: str) -> dict[str, int]:
    factors = {"ts_ms": 1, "ts_us": 1_000, "ts_ns": 1_000_000}
    return {unit: now_ms * factors[unit] for unit in units}
