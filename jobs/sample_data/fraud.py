"""Sample data for `jobs/fraud.py`: seeded payments, some of them suspicious, and as untidy as a real topic.

Time advances more than four minutes per payment. Every eighth payment is the next `Kind` of trouble, which may take
several payments, so a thousand payments contain every kind. The record timestamp is the event time; records are
yielded in the order in which they reach Kafka, which differs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from enum import Enum
from itertools import accumulate, count, cycle
from types import EllipsisType
from typing import Any

from deltaworks.testing.sample_data import SampleRecord, as_json
from jobs.sample_data.kafka import DAY, HOUR, MINUTE, SECOND, Outbox

MAIN_TOPIC = "payments"
START_MS = int(datetime(2026, 3, 1, 22, 30, tzinfo=UTC).timestamp() * 1000)

COUNTRIES = ("DE", "FR", "ES", "PL", "JP", "US")


class Kind(Enum):
    """What a payment is an example of; the value is its line in the census."""

    REGULAR = "payments, regular"
    AMOUNT_AS_NUMBER = "payments, amount a JSON number instead of text"
    UNKNOWN_FIELD = "payments, with a field nobody knows"
    UNICODE_KEY = "payments, of a user with a name beyond ASCII"
    HIGH_AMOUNT = "payments, far above the user's average"
    THREE_TIMES = "payments, exactly three times the user's average"
    BELOW_THREE_TIMES = "payments, a cent below three times the user's average"
    HIGH_BUT_NEW = "payments, high but the second one of its user"
    ABROAD_WITHIN_THE_HOUR = "payments, abroad within the hour"
    ABROAD_AFTER_AN_HOUR = "payments, abroad exactly an hour later"
    ABROAD_LATE = "payments, abroad before the last one at home, but arriving after it"
    ABROAD_LONG_BEFORE = "payments, abroad hours before the last one at home, but arriving after it"
    ABROAD_AT_ONCE = "payments, abroad in the same millisecond"
    BURST = "payments, the fifth in five minutes"
    BURST_TOO_SLOW = "payments, the fifth in a little more than five minutes"
    LATE_BURST = "payments, five in a minute two hours ago, just seen or just forgotten"
    BUSY = "payments, as many in five minutes as others' bursts, but usual for the user"
    BUSY_BURST = "payments, many even for a busy user"
    COMES_BACK = "payments, high, the first after more than a day"
    DUPLICATE = "payments, delivered twice"
    OUT_OF_ORDER = "payments, minutes late"
    LATE = "payments, hours late"
    NOT_POSITIVE = "payments, amount zero or negative"
    NO_NUMBER = "payments, amount infinite, no number or absurd"
    NULL_KEY = "payments, key null or empty"
    NULL_VALUE = "payments, value null"
    EMPTY_VALUE = "payments, value empty"
    MALFORMED_KEY = "payments, key not UTF-8 and clock days ahead"
    MALFORMED_BYTES = "payments, value arbitrary bytes"
    MALFORMED_JSON = "payments, JSON cut short"
    WRONG_TYPE = "payments, a field of the wrong type"
    MISSING_FIELD = "payments, a field missing"


def records(count: int = 20_000, seed: int = 7) -> Iterator[SampleRecord]:
    """The first `count` payments."""
    for number, record in enumerate(_Payments(random.Random(seed)).deliveries(), start=1):
        if number > count:
            return
        yield record


_WRONG: tuple[tuple[str, Any], ...] = (
    ("amount", "12,50"),
    ("amount", True),
    ("amount", None),
    ("country", 49),
    ("payment_id", None),
)
_MADE_BY_OTHERS = (Kind.REGULAR, Kind.BUSY, Kind.BELOW_THREE_TIMES)
_TROUBLES = tuple(kind for kind in Kind if kind not in _MADE_BY_OTHERS)


class _Payments:
    """The simulation. What was sent waits in `_outbox` until its moment of delivery."""

    def __init__(self, random: random.Random) -> None:
        self._random = random
        self._now = START_MS
        self._outbox = Outbox()
        self._users = [f"u-{n:03}" for n in range(240)]
        self._shares = list(accumulate(1 / (rank + 2) for rank in range(240)))
        """A few users pay most of the time: some partitions get far more than others."""
        self._new = (f"n-{n:05}" for n in count())
        """Users without a history."""
        self._back: dict[str, int] = {}
        """Users who come back -> when they last paid."""

    def deliveries(self) -> Iterator[SampleRecord]:
        for trouble in cycle(_TROUBLES):
            for _ in range(7):
                self._now += 1 + int(self._random.expovariate(1 / (260 * SECOND)))
                self._pay(self._anyone())
            self._make(trouble)
            yield from self._outbox.due(self._now)

    def _anyone(self) -> str:
        return self._random.choices(self._users, cum_weights=self._shares)[0]

    def _regular(self) -> str:
        """A user who pays often enough to have an average."""
        return self._random.choice(self._users[:8])

    def _home(self, user: str) -> str:
        return COUNTRIES[sum(user.encode()) % len(COUNTRIES)]

    def _abroad(self, user: str) -> str:
        return self._random.choice([country for country in COUNTRIES if country != self._home(user)])

    def _make(self, trouble: Kind) -> None:
        user, now = self._anyone(), self._now
        match trouble:
            case Kind.AMOUNT_AS_NUMBER:
                self._pay(user, trouble, amount=self._random.randrange(4_000, 12_000) / 100)
            case Kind.UNKNOWN_FIELD:
                self._pay(user, trouble, merchant="Käse & Brot")
            case Kind.UNICODE_KEY:
                self._pay(self._random.choice(["zoë", "дмитрий", "小林"]), trouble)
            case Kind.HIGH_AMOUNT:
                self._pay(self._regular(), trouble, amount=f"{self._random.randrange(90_000, 200_000) / 100:.2f}")
            case Kind.THREE_TIMES:
                user = next(self._new)
                for amount in ("10.00", "20.00", "30.00", "20.00", "20.01"):
                    self._pay(user, amount=amount, delivered=now)
                self._pay(user, Kind.BELOW_THREE_TIMES, amount="60.00", delivered=now)  # of 60.006
                user = next(self._new)
                for amount in ("10.00", "20.00", "30.00", "20.00", "20.00"):
                    self._pay(user, amount=amount, delivered=now)
                self._pay(user, trouble, amount="60.00", delivered=now)
            case Kind.HIGH_BUT_NEW:
                user = next(self._new)
                self._pay(user, amount="5.00", delivered=now)
                self._pay(user, trouble, amount="999.00", delivered=now)
            case Kind.ABROAD_WITHIN_THE_HOUR | Kind.ABROAD_AFTER_AN_HOUR:
                user = next(self._new)
                later = HOUR if trouble is Kind.ABROAD_AFTER_AN_HOUR else self._random.randrange(MINUTE, HOUR)
                self._pay(user, delivered=now)
                self._pay(user, trouble, at=now + later, delivered=now + later, country=self._abroad(user))
            case Kind.ABROAD_LATE:
                user = next(self._new)
                self._pay(user, delivered=now)
                self._pay(user, trouble, at=now - 10 * MINUTE, delivered=now + 1, country=self._abroad(user))
                self._pay(user, at=now + MINUTE, delivered=now + MINUTE)
            case Kind.ABROAD_LONG_BEFORE:
                user = next(self._new)
                self._pay(user, delivered=now)
                self._pay(user, trouble, at=now - 2 * HOUR, delivered=now, country=self._abroad(user))
            case Kind.ABROAD_AT_ONCE:
                user = next(self._new)
                self._pay(user, delivered=now)
                for minutes, kind in ((0, trouble), (1, Kind.REGULAR)):
                    at = now + minutes * MINUTE
                    self._pay(user, kind, at=at, delivered=at, country="AT")
            case Kind.BURST:
                self._burst(self._random.choice(self._users[40:]), now, self._random.randrange(5, 10), trouble)
            case Kind.BURST_TOO_SLOW:
                user, first = next(self._new), now - now % MINUTE
                for minute in (0, 1, 2, 3, 5):
                    at = first + minute * MINUTE
                    self._pay(user, trouble if minute == 5 else Kind.REGULAR, at=at, delivered=at)
            case Kind.LATE_BURST:
                user, at = next(self._new), now - now % MINUTE - self._random.choice([119, 120]) * MINUTE
                self._pay(user, delivered=now)
                for _ in range(5):
                    self._pay(user, trouble, at=at, delivered=now)
            case Kind.BUSY_BURST:
                user = next(self._new)
                for minutes in range(0, 60, 3):
                    self._pay(user, at=now + minutes * MINUTE, delivered=now + minutes * MINUTE)
                self._burst(user, now + HOUR + 5 * MINUTE, 7, Kind.BUSY)
                self._burst(user, now + HOUR + 7 * MINUTE, 4, trouble)
            case Kind.COMES_BACK:
                self._come_back()
            case Kind.DUPLICATE:
                payment = self._pay(user)
                self._deliver(payment.key, payment.value, payment.timestamp_ms, trouble, 3 * SECOND)
            case Kind.OUT_OF_ORDER:
                self._pay(user, trouble, delivered=now + self._random.randrange(5 * MINUTE, 30 * MINUTE))
            case Kind.LATE:
                self._pay(user, trouble, delivered=now + self._random.randrange(3 * HOUR, 12 * HOUR))
            case Kind.NOT_POSITIVE:
                self._pay(user, trouble, amount=self._random.choice(["0", "0.00", "-12.50", -3]))
            case Kind.NO_NUMBER:
                self._pay(user, trouble, amount=self._random.choice(["NaN", "Infinity", "-Infinity", "1000000.00"]))
            case Kind.NULL_KEY:
                self._pay(user, trouble, key=self._random.choice([None, b""]))
            case Kind.NULL_VALUE | Kind.EMPTY_VALUE:
                self._pay(user, trouble, raw=lambda _: None if trouble is Kind.NULL_VALUE else b"")
            case Kind.MALFORMED_KEY:
                self._pay(user, trouble, key=b"\xff\xfe" + user.encode(), at=now + 2 * DAY, delivered=now)
            case Kind.MALFORMED_BYTES:
                noise = b"\xff" + self._random.randbytes(self._random.randrange(1, 40))
                self._pay(user, trouble, raw=lambda _: noise)
            case Kind.MALFORMED_JSON:
                self._pay(user, trouble, raw=lambda whole: whole[: len(whole) // 2])
            case Kind.WRONG_TYPE:
                name, wrong = self._random.choice(_WRONG)
                self._pay(user, trouble, **{name: wrong})
            case Kind.MISSING_FIELD:
                self._pay(user, trouble, without=self._random.choice(["payment_id", "amount", "country"]))
            case Kind.REGULAR | Kind.BUSY | Kind.BELOW_THREE_TIMES:
                raise AssertionError(f"{trouble} is not a trouble in turn")

    def _burst(self, user: str, at: int, payments: int, kind: Kind) -> None:
        """A number of payments within two minutes; from the fifth on, they have the kind, if it is a plain burst."""
        for n in range(payments):
            regular = kind is Kind.BURST and n < 4
            moment = at + n * 12 * SECOND
            self._pay(user, Kind.REGULAR if regular else kind, at=moment, delivered=moment)

    def _come_back(self) -> None:
        """A user whose average is forgotten, so that a high payment is not; afterwards the user is known again."""
        gone = [user for user, last in self._back.items() if self._now - last > 25 * HOUR]
        user = gone[0] if gone else next(self._new)
        if gone:
            self._pay(user, Kind.COMES_BACK, amount="900.00", delivered=self._now)
        for _ in range(5):
            self._pay(user, amount="20.00", delivered=self._now)
        self._back[user] = self._now

    def _pay(
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
        """A payment of `user` with an event time of `at` (now), sent at `delivered` (within three seconds)."""
        payment = {
            "payment_id": f"p-{self._outbox.sent:07}",
            "amount": f"{self._random.randrange(4_000, 12_000) / 100:.2f}",
            "country": self._home(user),
        } | fields
        if without is not None:
            del payment[without]
        delay = self._random.randrange(3 * SECOND) if delivered is None else delivered - self._now
        key = user.encode() if isinstance(key, EllipsisType) else key
        return self._deliver(key, raw(as_json(payment)), self._now if at is None else at, kind, delay)

    def _deliver(
        self, key: bytes | None, value: bytes | None, timestamp_ms: int, kind: Kind, delay_ms: int = 0
    ) -> SampleRecord:
        return self._outbox.send(MAIN_TOPIC, key, value, timestamp_ms, kind, arrives_ms=self._now + delay_ms)
