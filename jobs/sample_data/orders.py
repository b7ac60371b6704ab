"""Sample data for `jobs/orders.py`: seeded orders and users of a shop, as untidy as a real topic.

Time advances about ten seconds per order. Every eighth order is the next `Kind` of trouble, so a thousand orders
contain several of each. The record timestamp is the event time; records are yielded in the order in which they reach
Kafka, which differs.
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
from jobs.sample_data.kafka import DAY, MINUTE, SECOND, Outbox

MAIN_TOPIC = "raw-orders"
USERS_TOPIC = "user-data"
START_MS = int(datetime(2026, 3, 1, 22, 30, tzinfo=UTC).timestamp() * 1000)

ITEMS = ("book", "lamp", "kettle", "bicycle", "chair", "radio", "gift card")
CITIES = ("DE/Berlin", "FR/Lyon", "ES/Sevilla", "PL/Gdańsk", "JP/大阪", "US/Boston")
NAMES = ("Ada", "Björn", "Chloé", "Dmitri", "Eun-ji")


class Kind(Enum):
    """What a record is an example of; the value is its line in the census."""

    REGULAR = "orders, regular"
    AMOUNT_AS_NUMBER = "orders, amount a JSON number instead of text"
    UNKNOWN_FIELD = "orders, with a field nobody knows"
    OTHER_KEY = "orders, keyed by another user than they name"
    UNKNOWN_USER = "orders, user unknown"
    DELETED_USER = "orders, user deleted"
    NOT_POSITIVE = "orders, amount zero or negative"
    DUPLICATE = "orders, delivered twice"
    WITHIN_GRACE = "orders, out of order within grace"
    PARTLY_LATE = "orders, late for some of their windows"
    BEYOND_GRACE = "orders, late beyond every grace"
    SESSION_MERGE = "orders, joining two sessions into one"
    SESSION_MIDNIGHT = "orders, in a session across midnight"
    NULL_KEY = "orders, key null"
    NULL_VALUE = "orders, value null"
    EMPTY_VALUE = "orders, value empty"
    MALFORMED_KEY = "orders, key not UTF-8"
    MALFORMED_BYTES = "orders, value arbitrary bytes"
    MALFORMED_JSON = "orders, JSON cut short"
    WRONG_TYPE = "orders, a field of the wrong type"
    MISSING_FIELD = "orders, a field missing"
    BAD_LOCATION = "orders, location on which a function raises"
    GIFT_CARD = "orders, discount on which a function raises"
    USER_CREATED = "users, created"
    USER_CHANGED = "users, changed"
    USER_DELETED = "users, deleted"
    USER_OUT_OF_ORDER = "users, changed with an older timestamp"
    USER_UNKNOWN_DELETED = "users, deleted without having existed"
    USER_NULL_KEY = "users, key null"
    USER_MALFORMED = "users, value malformed or empty"


def records(count: int = 20_000, seed: int = 7) -> Iterator[SampleRecord]:
    """All records of `raw-orders` up to that number, and those of `user-data` that came before the last of them."""
    left = count
    for record in _Shop(random.Random(seed)).deliveries():
        if record.topic == MAIN_TOPIC:
            left -= 1
            if left < 0:
                return
        yield record


_WRONG: tuple[tuple[str, Any], ...] = (
    ("amount", "12,50"),
    ("amount", True),
    ("type", "GOLD"),
    ("event_time", "soon"),
    ("item", 7),
)
_TROUBLES = tuple(kind for kind in Kind if kind not in (Kind.REGULAR, Kind.SESSION_MIDNIGHT))


class _Shop:
    """The simulation. What was sent waits in `_outbox` until its moment of delivery."""

    def __init__(self, random: random.Random) -> None:
        self._random = random
        self._now = START_MS
        self._outbox = Outbox()
        self._orders = 0
        self._turn = 0
        self._users = [f"u-{n:03}" for n in range(240)]
        self._deleted = ["u-gone"]
        self._shares = list(accumulate(1 / (rank + 2) for rank in range(240)))
        """A few users order most of the time: some partitions get far more than others."""

    def deliveries(self) -> Iterator[SampleRecord]:
        for user in [*self._users, *(f"s-{n:02}" for n in range(12)), *(f"m-{n}" for n in range(3))]:
            self._user(user, Kind.USER_CREATED)
        self._user(self._deleted[0], Kind.USER_CREATED)
        self._deliver(USERS_TOPIC, self._deleted[0].encode(), None, self._now, Kind.USER_DELETED)
        midnight = START_MS - START_MS % DAY + DAY
        for trouble in cycle(_TROUBLES):
            self._turn += 1
            for _ in range(7):
                self._pass_time()
                self._order(self._anyone())
            self._make(trouble)
            if self._now > midnight - 20 * MINUTE:
                for minutes in (-9, 4, 17):
                    at = midnight + minutes * MINUTE
                    self._order(f"m-{midnight // DAY % 3}", Kind.SESSION_MIDNIGHT, at=at, delivered=at)
                midnight += DAY
            yield from self._outbox.due(self._now)

    def _pass_time(self) -> None:
        self._now += 1 + int(self._random.expovariate(1 / (10 * SECOND)))
        if self._random.random() < 0.02:
            self._user(self._anyone(), Kind.USER_CHANGED)

    def _anyone(self) -> str:
        while (user := self._random.choices(self._users, cum_weights=self._shares)[0]) in self._deleted:
            pass
        return user

    def _make(self, trouble: Kind) -> None:
        user = self._anyone()
        match trouble:
            case Kind.AMOUNT_AS_NUMBER:
                self._order(user, trouble, amount=self._random.randrange(100, 50_000) / 100)
            case Kind.UNKNOWN_FIELD:
                self._order(user, trouble, coupon="SPRING")
            case Kind.OTHER_KEY:
                self._order(user, trouble, key=self._anyone().encode())
            case Kind.UNKNOWN_USER:
                self._order(f"u-{self._random.randrange(900, 999)}", trouble)
            case Kind.DELETED_USER:
                self._order(self._deleted[-1], trouble)
            case Kind.NOT_POSITIVE:
                self._order(user, trouble, amount=self._random.choice(["0", "0.00", "-12.50"]))
            case Kind.DUPLICATE:
                order = self._order(user)
                self._deliver(MAIN_TOPIC, order.key, order.value, order.timestamp_ms, trouble, 3 * SECOND)
            case Kind.WITHIN_GRACE:
                self._order(user, trouble, delivered=self._now + self._random.randrange(MINUTE, 3 * MINUTE))
            case Kind.PARTLY_LATE:
                self._order(user, trouble, delivered=self._now + self._random.randrange(7 * MINUTE, 9 * MINUTE))
            case Kind.BEYOND_GRACE:
                self._order(user, trouble, delivered=self._now + self._random.randrange(70 * MINUTE, 95 * MINUTE))
            case Kind.SESSION_MERGE:
                user = f"s-{self._turn // len(_TROUBLES) % 12:02}"
                self._order(user)
                for minutes, kind in ((40, Kind.REGULAR), (20, trouble)):
                    self._order(user, kind, at=self._now + minutes * MINUTE, delivered=self._now + 41 * MINUTE)
            case Kind.NULL_KEY:
                self._order(user, trouble, key=None)
            case Kind.NULL_VALUE | Kind.EMPTY_VALUE:
                self._order(user, trouble, raw=lambda _: None if trouble is Kind.NULL_VALUE else b"")
            case Kind.MALFORMED_KEY:
                self._order(user, trouble, key=b"\xff\xfe" + user.encode())
            case Kind.MALFORMED_BYTES:
                noise = b"\xff" + self._random.randbytes(self._random.randrange(1, 40))
                self._order(user, trouble, raw=lambda _: noise)
            case Kind.MALFORMED_JSON:
                self._order(user, trouble, raw=lambda whole: whole[: len(whole) // 2])
            case Kind.WRONG_TYPE:
                name, wrong = self._random.choice(_WRONG)
                self._order(user, trouble, **{name: wrong})
            case Kind.MISSING_FIELD:
                self._order(user, trouble, without=self._random.choice(["order_id", "amount", "type", "location"]))
            case Kind.BAD_LOCATION:
                self._order(user, trouble, location=self._random.choice(["somewhere", "Berlin", ""]))
            case Kind.GIFT_CARD:
                self._order(user, trouble, type="PREMIUM", item="gift card")
            case Kind.USER_CREATED:
                self._user(self._deleted.pop(0), trouble)
            case Kind.USER_CHANGED:
                self._user(user, trouble)
            case Kind.USER_DELETED:
                gone = self._random.choice(self._users[20:])
                self._deleted.append(gone)
                self._deliver(USERS_TOPIC, gone.encode(), None, self._now, trouble)
            case Kind.USER_OUT_OF_ORDER:
                self._user(user, Kind.USER_CHANGED)
                self._user(user, trouble, at=self._now - 10 * MINUTE)
            case Kind.USER_UNKNOWN_DELETED:
                self._deliver(USERS_TOPIC, b"u-never", None, self._now, trouble)
            case Kind.USER_NULL_KEY:
                self._user(None, trouble)
            case Kind.USER_MALFORMED:
                value = self._random.choice([b"", b"{", b'{"user_id": 1}', b"\x80"])
                self._deliver(USERS_TOPIC, user.encode(), value, self._now, trouble)
            case Kind.REGULAR | Kind.SESSION_MIDNIGHT:
                raise AssertionError(f"{trouble} is not a trouble in turn")

    def _order(
        self,
        user: str,
        kind: Kind = Kind.REGULAR,
        *,
        at: int | None = None,
        delivered: int | None = None,
        key: bytes | EllipsisType | None = ...,
        raw: Callable[[bytes], bytes | None] = lambda whole: whole,
        without: str | None = None,
        **fields: Any,
    ) -> SampleRecord:
        """An order of `user` with an event time of `at` (now), sent at `delivered` (within three seconds)."""
        timestamp_ms = self._now if at is None else at
        self._orders += 1
        tier = self._random.choices(["PREMIUM", "STANDARD"], [3, 7])[0]
        order = {
            "order_id": f"o-{self._orders:07}",
            "user_id": user,
            "amount": f"{self._random.randrange(100, 50_000) / 100:.2f}",
            "type": tier,
            "item": self._random.choice(ITEMS if tier == "STANDARD" else ITEMS[:-1]),
            "location": self._random.choice(CITIES),
            "event_time": as_iso(timestamp_ms),
        } | fields
        if without is not None:
            del order[without]
        delay = self._random.randrange(3 * SECOND) if delivered is None else delivered - self._now
        key = user.encode() if isinstance(key, EllipsisType) else key
        return self._deliver(MAIN_TOPIC, key, raw(as_json(order)), timestamp_ms, kind, delay)

    def _user(self, user: str | None, kind: Kind, *, at: int | None = None) -> None:
        profile = {
            "user_id": user or "u-null",
            "name": f"{self._random.choice(NAMES)} {self._random.randrange(99)}",
            "country": self._random.choice(CITIES)[:2],
        }
        key = None if user is None else user.encode()
        self._deliver(USERS_TOPIC, key, as_json(profile), self._now if at is None else at, kind)

    def _deliver(
        self, topic: str, key: bytes | None, value: bytes | None, timestamp_ms: int, kind: Kind, delay_ms: int = 0
    ) -> SampleRecord:
        return self._outbox.send(topic, key, value, timestamp_ms, kind, arrives_ms=self._now + delay_ms)
