"""Sample data for `jobs/enrichment.py`: seeded orders and their customers, as untidy as real topics.

Time advances about ten seconds per order. Every eighth order is the next `Kind` of trouble. The record timestamp is the
event time; records are yielded in the order in which they reach Kafka, which differs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from enum import Enum
from itertools import accumulate, cycle
from types import EllipsisType
from typing import Any

from deltaworks.testing.sample_data import SampleRecord, as_iso, as_json
from jobs.sample_data.kafka import MINUTE, SECOND, Outbox

MAIN_TOPIC = "enrichment-orders"
CUSTOMERS_TOPIC = "enrichment-customers"
START_MS = int(datetime(2026, 3, 1, 8, 0, tzinfo=UTC).timestamp() * 1000)

NAMES = ("Ada", "Björn", "Chloé", "Дмитрий", "은지")
TIERS = {"gold": 100_000, "silver": 40_000, "basic": 15_000}
"""Tier -> the highest limit, in cents."""


class Kind(Enum):
    """What a record is an example of; the value is its line in the census."""

    REGULAR = "orders, regular"
    AT_LIMIT = "orders, exactly at the customer's limit"
    ABOVE_LIMIT = "orders, a cent above the customer's limit"
    GUEST = "orders, without a customer"
    UNKNOWN_CUSTOMER = "orders, customer unknown"
    DELETED_CUSTOMER = "orders, customer deleted"
    BEFORE_CUSTOMER = "orders, in Kafka before their customer"
    CORRECTED = "orders, sent again with another amount"
    MOVED = "orders, sent again with another customer"
    CANCELLED = "orders, cancelled (value null)"
    DUPLICATE = "orders, delivered twice"
    LATE = "orders, out of order"
    AMOUNT_AS_NUMBER = "orders, amount a JSON number instead of text"
    UNKNOWN_FIELD = "orders, with a field nobody knows"
    OTHER_KEY = "orders, keyed by another order than they say"
    NULL_KEY = "orders, key null"
    NOT_POSITIVE = "orders, amount zero or negative"
    TOO_LARGE = "orders, amount of a million and more"
    MALFORMED_KEY = "orders, key not UTF-8"
    EMPTY_VALUE = "orders, value empty"
    MALFORMED_BYTES = "orders, value arbitrary bytes"
    MALFORMED_JSON = "orders, JSON cut short"
    WRONG_TYPE = "orders, a field of the wrong type"
    MISSING_FIELD = "orders, a field missing"
    CUSTOMER_CREATED = "customers, created"
    CUSTOMER_CHANGED = "customers, with another tier and limit"
    CUSTOMER_DELETED = "customers, deleted"
    CUSTOMER_LATE = "customers, changed with an older timestamp"
    CUSTOMER_UNKNOWN_DELETED = "customers, deleted without having existed"
    CUSTOMER_NULL_KEY = "customers, key null"
    CUSTOMER_MALFORMED = "customers, value malformed or empty"


def records(count: int = 20_000, seed: int = 7) -> Iterator[SampleRecord]:
    """All records of `enrichment-orders` up to that number, and those of the customers that came before the last."""
    left = count
    for record in _Shop(random.Random(seed)).deliveries():
        if record.topic == MAIN_TOPIC:
            left -= 1
            if left < 0:
                return
        yield record


_WRONG: tuple[tuple[str, Any], ...] = (
    ("amount", "12,50"),
    ("amount", "12.345"),
    ("amount", True),
    ("customer_id", 7),
    ("ordered_at", "soon"),
    ("order_id", None),
)
_TROUBLES = tuple(kind for kind in Kind if kind is not Kind.REGULAR)


class _Shop:
    """The simulation. What was sent waits in `_outbox` until its moment of delivery."""

    def __init__(self, random: random.Random) -> None:
        self._random = random
        self._now = START_MS
        self._outbox = Outbox()
        self._orders = 0
        self._customers = [f"c-{n:03}" for n in range(200)]
        self._limits: dict[str, int] = {}
        """Limits in cents; deleted customers have none."""
        self._gone = ["c-gone"]
        self._newcomers = 0
        self._shares = list(accumulate(1 / (rank + 2) for rank in range(200)))
        """A few customers order most of the time: some partitions get far more than others."""

    def deliveries(self) -> Iterator[SampleRecord]:
        for customer in [*self._customers, *self._gone]:
            self._customer(customer, Kind.CUSTOMER_CREATED)
        self._delete(self._gone[0], Kind.CUSTOMER_DELETED)
        for trouble in cycle(_TROUBLES):
            for _ in range(7):
                self._pass_time()
                self._order(self._anyone())
            self._make(trouble)
            yield from self._outbox.due(self._now)

    def _pass_time(self) -> None:
        self._now += 1 + int(self._random.expovariate(1 / (10 * SECOND)))
        if self._random.random() < 0.02:
            self._customer(self._anyone(), Kind.CUSTOMER_CHANGED)

    def _anyone(self) -> str:
        while (customer := self._random.choices(self._customers, cum_weights=self._shares)[0]) in self._gone:
            pass
        return customer

    def _make(self, trouble: Kind) -> None:
        customer = self._anyone()
        match trouble:
            case Kind.AT_LIMIT:
                self._order(customer, trouble, amount=_money(self._limits[customer]))
            case Kind.ABOVE_LIMIT:
                self._order(customer, trouble, amount=_money(self._limits[customer] + 1))
            case Kind.GUEST:
                self._order(None, trouble)
            case Kind.UNKNOWN_CUSTOMER:
                self._order(f"c-{self._random.randrange(900, 999)}", trouble)
            case Kind.DELETED_CUSTOMER:
                self._order(self._gone[-1], trouble)
            case Kind.BEFORE_CUSTOMER:
                self._newcomers += 1
                newcomer = f"n-{self._newcomers:05}"
                self._order(newcomer, trouble)
                self._customer(newcomer, Kind.CUSTOMER_CREATED, delay=MINUTE)
            case Kind.CORRECTED:
                self._again(self._order(customer), trouble, customer)
            case Kind.MOVED:
                self._again(self._order(customer), trouble, self._anyone())
            case Kind.CANCELLED:
                order = self._order(customer)
                self._deliver(MAIN_TOPIC, order.key, None, self._now + MINUTE, trouble, MINUTE)
            case Kind.DUPLICATE:
                order = self._order(customer)
                self._deliver(MAIN_TOPIC, order.key, order.value, order.timestamp_ms, trouble, 3 * SECOND)
            case Kind.LATE:
                self._order(customer, trouble, delay=self._random.randrange(MINUTE, 20 * MINUTE))
            case Kind.AMOUNT_AS_NUMBER:
                self._order(customer, trouble, amount=self._random.randrange(100, 50_000) / 100)
            case Kind.UNKNOWN_FIELD:
                self._order(customer, trouble, coupon="SPRING")
            case Kind.OTHER_KEY:
                self._order(customer, trouble, key=f"e-{self._random.randrange(max(1, self._orders)):07}".encode())
            case Kind.NULL_KEY:
                self._order(customer, trouble, key=None)
            case Kind.NOT_POSITIVE:
                self._order(customer, trouble, amount=self._random.choice(["0", "0.00", "-12.50"]))
            case Kind.TOO_LARGE:
                self._order(customer, trouble, amount=self._random.choice(["1000000", "1e30", "Infinity"]))
            case Kind.MALFORMED_KEY:
                self._order(customer, trouble, key=b"\xff\xfe" + customer.encode())
            case Kind.EMPTY_VALUE:
                self._order(customer, trouble, raw=lambda _: b"")
            case Kind.MALFORMED_BYTES:
                noise = b"\xff" + self._random.randbytes(self._random.randrange(1, 40))
                self._order(customer, trouble, raw=lambda _: noise)
            case Kind.MALFORMED_JSON:
                self._order(customer, trouble, raw=lambda whole: whole[: len(whole) // 2])
            case Kind.WRONG_TYPE:
                name, wrong = self._random.choice(_WRONG)
                self._order(customer, trouble, **{name: wrong})
            case Kind.MISSING_FIELD:
                missing = self._random.choice(["order_id", "customer_id", "amount", "ordered_at"])
                self._order(customer, trouble, without=missing)
            case Kind.CUSTOMER_CREATED:
                self._customer(self._gone.pop(0), trouble)
            case Kind.CUSTOMER_CHANGED:
                self._customer(customer, trouble)
            case Kind.CUSTOMER_DELETED:
                gone = self._random.choice([each for each in self._customers[20:] if each not in self._gone])
                self._gone.append(gone)
                self._delete(gone, trouble)
            case Kind.CUSTOMER_LATE:
                self._customer(customer, Kind.CUSTOMER_CHANGED)
                self._customer(customer, trouble, at=self._now - 10 * MINUTE)
            case Kind.CUSTOMER_UNKNOWN_DELETED:
                self._deliver(CUSTOMERS_TOPIC, b"c-never", None, self._now, trouble)
            case Kind.CUSTOMER_NULL_KEY:
                self._customer(None, trouble)
            case Kind.CUSTOMER_MALFORMED:
                limit = self._random.choice(["", "much", "-1", "1e30", "0.001"])
                wrong_limit = as_json({"name": "Eve", "tier": "gold", "credit_limit": limit})
                value = self._random.choice([b"", b"{", b'{"name": 1}', b"\x80", wrong_limit])
                self._deliver(CUSTOMERS_TOPIC, customer.encode(), value, self._now, trouble)
            case Kind.REGULAR:
                raise AssertionError(f"{trouble} is not a trouble in turn")

    def _order(
        self,
        customer: str | None,
        kind: Kind = Kind.REGULAR,
        *,
        delay: int | None = None,
        key: bytes | EllipsisType | None = ...,
        raw: Callable[[bytes], bytes | None] = lambda whole: whole,
        without: str | None = None,
        **fields: Any,
    ) -> SampleRecord:
        """An order of now, delivered after `delay` (within three seconds)."""
        self._orders += 1
        order_id = f"e-{self._orders:07}"
        order = {
            "order_id": order_id,
            "customer_id": customer,
            "amount": _money(self._random.randrange(100, 60_000)),
            "ordered_at": as_iso(self._now),
        } | fields
        if without is not None:
            del order[without]
        key = order_id.encode() if isinstance(key, EllipsisType) else key
        delay = self._random.randrange(3 * SECOND) if delay is None else delay
        return self._deliver(MAIN_TOPIC, key, raw(as_json(order)), self._now, kind, delay)

    def _again(self, order: SampleRecord, kind: Kind, customer: str) -> None:
        """Repeats the last order a minute later, with `customer` and another amount."""
        assert order.key is not None
        fields = {
            "order_id": order.key.decode(),
            "customer_id": customer,
            "amount": _money(self._random.randrange(100, 60_000)),
            "ordered_at": as_iso(order.timestamp_ms),
        }
        self._deliver(MAIN_TOPIC, order.key, as_json(fields), self._now + MINUTE, kind, MINUTE)

    def _customer(self, customer: str | None, kind: Kind, *, at: int | None = None, delay: int = 0) -> None:
        tier, most = self._random.choice(list(TIERS.items()))
        cents = self._random.randrange(1_000, most)
        profile = {
            "name": f"{self._random.choice(NAMES)} {self._random.randrange(99)}",
            "tier": tier,
            "credit_limit": _money(cents),
        }
        if customer is not None:
            self._limits[customer] = cents
        key = None if customer is None else customer.encode()
        at = self._now + delay if at is None else at
        self._deliver(CUSTOMERS_TOPIC, key, as_json(profile), at, kind, delay)

    def _delete(self, customer: str, kind: Kind) -> None:
        del self._limits[customer]
        self._deliver(CUSTOMERS_TOPIC, customer.encode(), None, self._now, kind)

    def _deliver(
        self, topic: str, key: bytes | None, value: bytes | None, timestamp_ms: int, kind: Kind, delay_ms: int = 0
    ) -> SampleRecord:
        return self._outbox.send(topic, key, value, timestamp_ms, kind, arrives_ms=self._now + delay_ms)


def _money(cents: int) -> str:
    return f"{cents / 100:.2f}"
