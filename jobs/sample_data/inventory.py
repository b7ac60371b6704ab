"""Sample data for `jobs/inventory.py`: seeded stock movements and orders, as untidy as real topics.

Time advances about two minutes per order, so a thousand orders span more than a day. Every eighth order is the next
`Kind` of trouble. The record timestamp is the event time; records are yielded in the order in which they reach Kafka,
which differs.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from enum import Enum
from itertools import accumulate, cycle, product
from types import EllipsisType
from typing import Any

from deltaworks.testing.sample_data import SampleRecord, as_iso, as_json
from jobs.sample_data.kafka import HOUR, MINUTE, SECOND, Outbox

MAIN_TOPIC = "inventory-orders"
MOVEMENTS_TOPIC = "inventory-movements"
START_MS = int(datetime(2026, 3, 1, 20, 0, tzinfo=UTC).timestamp() * 1000)

STORES = ("berlin", "lyon", "gdańsk", "大阪", "köln")
ITEMS = ("book", "lamp", "kettle", "chair", "radio", 'screen 24"', "tea / green", "żurek")


class Kind(Enum):
    """What a record is an example of; the value is its line in the census."""

    REGULAR = "orders, regular"
    SOLD_OUT = "orders, for more than is there"
    UNKNOWN_ITEM = "orders, of an item that no store has"
    WITHIN_GRACE = "orders, late but in time for their hour"
    BEYOND_GRACE = "orders, too late for their hour"
    DAYS_LATE = "orders, so late that their whole day is forgotten"
    BEFORE_COUNT = "orders, known only after a later count"
    DUPLICATE = "orders, delivered twice"
    AMOUNT_AS_NUMBER = "orders, amount a JSON number instead of text"
    UNKNOWN_FIELD = "orders, with a field nobody knows"
    NULL_KEY = "orders, key null"
    NULL_VALUE = "orders, value null"
    MALFORMED_KEY = "orders, key not UTF-8"
    EMPTY_VALUE = "orders, value empty"
    MALFORMED_BYTES = "orders, value arbitrary bytes"
    MALFORMED_JSON = "orders, JSON cut short"
    WRONG_TYPE = "orders, a field of the wrong type"
    MISSING_FIELD = "orders, a field missing"
    DELIVERY = "movements, deliveries"
    TILL = "movements, sales in the store itself"
    COUNT = "movements, counts"
    LOSS = "movements, counts that find less than should be there"
    COUNT_LATE = "movements, counts older than the last one"
    DELIVERY_LATE = "movements, deliveries known only after a later count"
    MOVEMENT_DUPLICATE = "movements, delivered twice"
    MOVEMENT_NULL_KEY = "movements, key null"
    MOVEMENT_NULL = "movements, value null"
    MOVEMENT_MALFORMED = "movements, value malformed or empty"


def records(count: int = 20_000, seed: int = 7) -> Iterator[SampleRecord]:
    """All records of `inventory-orders` up to that number, and the movements that came before the last of them."""
    left = count
    for record in _Stores(random.Random(seed)).deliveries():
        if record.topic == MAIN_TOPIC:
            left -= 1
            if left < 0:
                return
        yield record


_WRONG: tuple[tuple[str, Any], ...] = (
    ("amount", "12,50"),
    ("pieces", -1),
    ("pieces", "3"),
    ("pieces", 1.5),
    ("pieces", 10**30),
    ("shelf", "berlin/lamp"),
    ("ordered_at", "2026-03-01T12:00:00"),
    ("ordered_at", "soon"),
)
_TROUBLES = tuple(kind for kind in Kind if kind is not Kind.REGULAR)
_Shelf = tuple[str, str]


class _Stores:
    """The simulation. What was sent waits in `_outbox` until its moment of delivery."""

    def __init__(self, random: random.Random) -> None:
        self._random = random
        self._now = START_MS
        self._outbox = Outbox()
        self._orders = 0
        self._shelves = list(product(STORES, ITEMS))
        self._stock: Counter[_Shelf] = Counter()
        """The true stock of each shelf."""
        self._customers = [f"k-{n:03}" for n in range(150)]
        self._shares = list(accumulate(1 / (rank + 2) for rank in range(150)))
        """A few customers order most of the time: some partitions get far more than others."""

    def deliveries(self) -> Iterator[SampleRecord]:
        for shelf in self._shelves:
            self._move("delivery", shelf, 40, Kind.DELIVERY)
        for trouble in cycle(_TROUBLES):
            for _ in range(7):
                self._pass_time()
                self._order(self._anything())
            self._make(trouble)
            yield from self._outbox.due(self._now)

    def _pass_time(self) -> None:
        self._now += 1 + int(self._random.expovariate(1 / (2 * MINUTE)))
        shelf = self._anything()
        if self._stock[shelf] < 8:
            self._move("delivery", shelf, self._random.randrange(20, 60), Kind.DELIVERY)
        elif self._random.random() < 0.05:
            self._move("sale", shelf, self._random.randrange(1, 4), Kind.TILL)

    def _anything(self) -> _Shelf:
        return self._random.choice(self._shelves)

    def _make(self, trouble: Kind) -> None:
        shelf = self._anything()
        there = self._stock[shelf]
        match trouble:
            case Kind.SOLD_OUT:
                self._order(shelf, trouble, pieces=max(0, there) + self._random.randrange(1, 6))
            case Kind.UNKNOWN_ITEM:
                self._order((shelf[0], f"item {self._random.randrange(5)}"), trouble)
            case Kind.WITHIN_GRACE:
                self._order(shelf, trouble, delay=self._random.randrange(10 * MINUTE, 55 * MINUTE))
            case Kind.BEYOND_GRACE:
                self._order(shelf, trouble, delay=self._random.randrange(3 * HOUR, 5 * HOUR))
            case Kind.DAYS_LATE:
                self._order(shelf, trouble, delay=self._random.randrange(25 * HOUR, 30 * HOUR))
            case Kind.BEFORE_COUNT:
                self._order(shelf, trouble, delay=10 * MINUTE)
                self._move("count", shelf, self._stock[shelf], Kind.COUNT, at=self._now + 5 * MINUTE)
            case Kind.DUPLICATE:
                order = self._order(shelf)
                self._deliver(MAIN_TOPIC, order.key, order.value, order.timestamp_ms, trouble, 3 * SECOND)
            case Kind.AMOUNT_AS_NUMBER:
                self._order(shelf, trouble, amount=self._random.randrange(100, 20_000) / 100)
            case Kind.UNKNOWN_FIELD:
                self._order(shelf, trouble, coupon="SPRING")
            case Kind.NULL_KEY:
                self._order(shelf, trouble, key=None)
            case Kind.NULL_VALUE | Kind.EMPTY_VALUE:
                self._order(shelf, trouble, raw=lambda _: None if trouble is Kind.NULL_VALUE else b"")
            case Kind.MALFORMED_KEY:
                self._order(shelf, trouble, key=b"\xff\xfe" + str(self._orders).encode())
            case Kind.MALFORMED_BYTES:
                noise = b"\xff" + self._random.randbytes(self._random.randrange(1, 40))
                self._order(shelf, trouble, raw=lambda _: noise)
            case Kind.MALFORMED_JSON:
                self._order(shelf, trouble, raw=lambda whole: whole[: len(whole) // 2])
            case Kind.WRONG_TYPE:
                name, wrong = self._random.choice(_WRONG)
                self._order(shelf, trouble, **{name: wrong})
            case Kind.MISSING_FIELD:
                missing = self._random.choice(["order_id", "shelf", "pieces", "amount", "ordered_at"])
                self._order(shelf, trouble, without=missing)
            case Kind.DELIVERY:
                self._move("delivery", shelf, self._random.randrange(20, 60), trouble)
            case Kind.TILL:
                self._move("sale", shelf, self._random.randrange(1, 4), trouble)
            case Kind.COUNT:  # at the same moment as a sale, which arrives later
                self._move("sale", shelf, 2, Kind.TILL, delay=SECOND)
                self._move("count", shelf, max(0, there - 2), trouble)
            case Kind.LOSS:
                self._stock[shelf] = max(0, there) // 2
                self._move("count", shelf, self._stock[shelf], trouble)
            case Kind.COUNT_LATE:
                self._move("count", shelf, max(0, there), Kind.COUNT)
                self._move("count", shelf, max(0, there) + 7, trouble, at=self._now - HOUR, delay=MINUTE)
            case Kind.DELIVERY_LATE:
                self._move("delivery", shelf, 5, trouble, delay=10 * MINUTE)
                self._move("count", shelf, self._stock[shelf], Kind.COUNT, at=self._now + 5 * MINUTE)
            case Kind.MOVEMENT_DUPLICATE:
                move = self._move("delivery", shelf, 5, Kind.DELIVERY)
                self._deliver(MOVEMENTS_TOPIC, move.key, move.value, move.timestamp_ms, trouble, 3 * SECOND)
            case Kind.MOVEMENT_NULL_KEY:
                self._move("delivery", shelf, 5, trouble, key=None)
            case Kind.MOVEMENT_NULL:
                self._deliver(MOVEMENTS_TOPIC, shelf[0].encode(), None, self._now, trouble)
            case Kind.MOVEMENT_MALFORMED:
                theft = as_json(_movement("theft", shelf, 1, self._now))
                value = self._random.choice([b"", b"{", b'{"kind":"count"}', b"\x80", theft])
                self._deliver(MOVEMENTS_TOPIC, shelf[0].encode(), value, self._now, trouble)
            case Kind.REGULAR:
                raise AssertionError(f"{trouble} is not a trouble in turn")

    def _order(
        self,
        where: _Shelf,
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
        order: dict[str, Any] = {
            "order_id": f"i-{self._orders:07}",
            "shelf": {"store": where[0], "item": where[1]},
            "pieces": self._random.randrange(1, 5),
            "amount": f"{self._random.randrange(100, 20_000) / 100:.2f}",
            "ordered_at": as_iso(self._now),
        } | fields
        if kind in (Kind.REGULAR, Kind.SOLD_OUT, Kind.WITHIN_GRACE, Kind.BEFORE_COUNT):
            self._stock[where] -= order["pieces"]
        if without is not None:
            del order[without]
        if isinstance(key, EllipsisType):
            key = self._random.choices(self._customers, cum_weights=self._shares)[0].encode()
        delay = self._random.randrange(3 * SECOND) if delay is None else delay
        return self._deliver(MAIN_TOPIC, key, raw(as_json(order)), self._now, kind, delay)

    def _move(
        self,
        what: str,
        shelf: _Shelf,
        pieces: int,
        kind: Kind,
        *,
        at: int | None = None,
        delay: int | None = None,
        key: bytes | EllipsisType | None = ...,
    ) -> SampleRecord:
        """A movement at `at` (now), delivered after `delay` (at its time)."""
        pieces = max(0, pieces)
        if what != "count":
            self._stock[shelf] += pieces if what == "delivery" else -pieces
        at = self._now if at is None else at
        key = shelf[0].encode() if isinstance(key, EllipsisType) else key
        delay = max(0, at - self._now) if delay is None else delay
        return self._deliver(MOVEMENTS_TOPIC, key, as_json(_movement(what, shelf, pieces, at)), at, kind, delay)

    def _deliver(
        self, topic: str, key: bytes | None, value: bytes | None, timestamp_ms: int, kind: Kind, delay_ms: int = 0
    ) -> SampleRecord:
        return self._outbox.send(topic, key, value, timestamp_ms, kind, arrives_ms=self._now + delay_ms)


def _movement(what: str, shelf: _Shelf, pieces: int, at: int) -> dict[str, Any]:
    return {"kind": what, "shelf": {"store": shelf[0], "item": shelf[1]}, "pieces": pieces, "moved_at": as_iso(at)}
