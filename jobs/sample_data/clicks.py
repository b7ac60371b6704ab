"""Sample data for `jobs/clicks.py`: seeded clicks on the pages of a site, as untidy as a real topic.

Every twelve minutes somebody visits the site, and the next `Kind` of trouble happens, so a thousand clicks contain
several of each; a bot never stops. The record timestamp is the event time; records are yielded in the order in which
they reach Kafka, which differs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from enum import Enum
from itertools import accumulate, cycle, islice
from types import EllipsisType
from typing import Any

from deltaworks.testing.sample_data import SampleRecord, as_json
from jobs.sample_data.kafka import DAY, MINUTE, SECOND, Outbox

MAIN_TOPIC = "page-clicks"
START_MS = int(datetime(2026, 3, 1, 22, 30, tzinfo=UTC).timestamp() * 1000)

PAGES = ("/", "/search", "/cart", "/help", "/login", "/straße/größe", "/東京/地図", *(f"/item/{n}" for n in range(60)))


class Kind(Enum):
    """What a click is an example of; the value is its line in the census."""

    REGULAR = "clicks, regular"
    BOT = "clicks, of a bot that never pauses"
    MIDNIGHT = "clicks, in a visit across midnight"
    BETWEEN_DAYS = "clicks, of the bot, out of order where one visit of it ends and the next one begins"
    BOT_OUT_OF_ORDER = "clicks, of the bot, out of order"
    UNKNOWN_FIELD = "clicks, with a field nobody knows"
    OTHER_SCRIPT = "clicks, user in another script"
    OTHER_KEY = "clicks, keyed by another page than they name"
    ANONYMOUS = "clicks, user null"
    WITHOUT_USER = "clicks, user not given"
    EMPTY_USER = "clicks, user empty"
    DUPLICATE = "clicks, delivered twice"
    SAME_MOMENT = "clicks, two pages in the same millisecond"
    PAUSE = "clicks, after a pause of exactly 30 minutes"
    LONGER_PAUSE = "clicks, after a pause of 30 minutes and a millisecond"
    WITHIN_GRACE = "clicks, out of order within grace"
    JOINING = "clicks, joining two visits into one"
    LATE = "clicks, late beyond every grace"
    NULL_KEY = "clicks, key null"
    NULL_VALUE = "clicks, value null"
    EMPTY_VALUE = "clicks, value empty"
    MALFORMED_KEY = "clicks, key not UTF-8"
    MALFORMED_BYTES = "clicks, value arbitrary bytes"
    MALFORMED_JSON = "clicks, JSON cut short"
    WRONG_TYPE = "clicks, a field of the wrong type"
    MISSING_FIELD = "clicks, a field missing"


def records(count: int = 20_000, seed: int = 7) -> Iterator[SampleRecord]:
    """The first `count` clicks that arrive."""
    return islice(_Site(random.Random(seed)).deliveries(), count)


_WRONG: tuple[tuple[str, Any], ...] = (("user_id", 7), ("user_id", ["u-001"]), ("page", None), ("request_id", 12))
_NOT_IN_TURN = (Kind.REGULAR, Kind.BOT, Kind.MIDNIGHT, Kind.BETWEEN_DAYS)
_TROUBLES = tuple(kind for kind in Kind if kind not in _NOT_IN_TURN)
BOT = "bot"


class _Site:
    """The simulation. What was sent waits in `_outbox` until its moment of delivery."""

    def __init__(self, random: random.Random) -> None:
        self._random = random
        self._now = START_MS
        self._outbox = Outbox()
        self._turn = 0
        self._users = [f"u-{n:03}" for n in range(240)]
        self._shares = list(accumulate(1 / (rank + 2) for rank in range(240)))
        """A few users come most of the time: some tasks get far more than others."""
        self._popular = list(accumulate(1 / (rank + 1) for rank in range(len(PAGES))))

    def deliveries(self) -> Iterator[SampleRecord]:
        midnight, bot_goes_on = START_MS - START_MS % DAY + DAY, START_MS
        for trouble in cycle(_TROUBLES):
            self._turn += 1
            self._now += self._random.randrange(6 * MINUTE, 18 * MINUTE)
            self._visit(self._anyone())
            self._make(trouble)
            if bot_goes_on < self._now:
                bot_goes_on = self._two_days_of_the_bot(bot_goes_on)
            if self._now > midnight - 20 * MINUTE:
                for minutes in (-9, 4, 17):
                    self._click(f"m-{midnight // DAY % 3}", Kind.MIDNIGHT, at=midnight + minutes * MINUTE)
                midnight += DAY
            yield from self._outbox.due(self._now)

    def _anyone(self) -> str:
        return self._random.choices(self._users, cum_weights=self._shares)[0]

    def _visit(self, user: str) -> None:
        at = self._now
        for _ in range(self._random.randrange(1, 8)):
            self._click(user, at=at)
            at += 1 + int(self._random.expovariate(1 / (3 * MINUTE)))

    def _two_days_of_the_bot(self, start: int) -> int:
        """Two visits of the bot: out-of-order clicks end the first one, and the second one is exactly 24 hours long.

        Returns:
            When the bot goes on.
        """
        for minutes in (*range(0, 1_401, 20), *range(1_475, 2_876, 20)):
            self._click(BOT, Kind.BOT, at=start + minutes * MINUTE)
        for minutes, delivered in ((1_445, 1_445), (1_452, 1_452), (1_435, 1_453), (1_428, 1_454), (1_437, 1_455)):
            kind = Kind.BOT if minutes == delivered else Kind.BETWEEN_DAYS
            at = start + minutes * MINUTE
            self._click(BOT, kind, at=at, delay_ms=(delivered - minutes) * MINUTE, page="/")
        return start + 2_895 * MINUTE

    def _make(self, trouble: Kind) -> None:
        user, now = self._anyone(), self._now
        seldom = f"{trouble.name.lower()}-{self._turn // len(_TROUBLES) % 9}"
        match trouble:
            case Kind.BOT_OUT_OF_ORDER:
                self._click(BOT, trouble, delay_ms=self._random.randrange(2 * MINUTE, 20 * MINUTE))
            case Kind.UNKNOWN_FIELD:
                self._click(user, trouble, referrer="https://example.org/?q=größe")
            case Kind.OTHER_SCRIPT:
                self._click(self._random.choice(["Łucja", "愛子", "नीना", "Ὀδυσσεύς"]), trouble)
            case Kind.OTHER_KEY:
                self._click(user, trouble, key=b"/old-address")
            case Kind.ANONYMOUS:
                self._click(user, trouble, user_id=None)
            case Kind.WITHOUT_USER:
                self._click(user, trouble, without="user_id")
            case Kind.EMPTY_USER:
                self._click("", trouble)
            case Kind.DUPLICATE:
                click = self._click(user)
                self._deliver(click.key, click.value, click.timestamp_ms, trouble, 3 * SECOND)
            case Kind.SAME_MOMENT:
                for page in self._random.sample(PAGES, 2):
                    self._click(user, trouble, page=page)
            case Kind.PAUSE:
                self._click(seldom)
                self._click(seldom, trouble, at=now + 30 * MINUTE)
            case Kind.LONGER_PAUSE:
                self._click(seldom)
                self._click(seldom, trouble, at=now + 30 * MINUTE + 1)
            case Kind.WITHIN_GRACE:
                self._click(user, trouble, delay_ms=self._random.randrange(MINUTE, 25 * MINUTE))
            case Kind.JOINING:
                self._click(seldom)
                self._click(seldom, at=now + 40 * MINUTE)
                self._click(seldom, trouble, at=now + 20 * MINUTE, delay_ms=22 * MINUTE)
            case Kind.LATE:
                self._click(user, trouble, delay_ms=self._random.randrange(150 * MINUTE, 300 * MINUTE))
            case Kind.NULL_KEY:
                self._click(user, trouble, key=None)
            case Kind.NULL_VALUE | Kind.EMPTY_VALUE:
                self._click(user, trouble, raw=lambda _: None if trouble is Kind.NULL_VALUE else b"")
            case Kind.MALFORMED_KEY:
                self._click(user, trouble, key=b"/\xff\xfe" + user.encode())
            case Kind.MALFORMED_BYTES:
                noise = b"\xff" + self._random.randbytes(self._random.randrange(1, 40))
                self._click(user, trouble, raw=lambda _: noise)
            case Kind.MALFORMED_JSON:
                self._click(user, trouble, raw=lambda whole: whole[: len(whole) // 2])
            case Kind.WRONG_TYPE:
                name, wrong = self._random.choice(_WRONG)
                self._click(user, trouble, **{name: wrong})
            case Kind.MISSING_FIELD:
                self._click(user, trouble, without=self._random.choice(["request_id", "page"]))
            case Kind.REGULAR | Kind.BOT | Kind.MIDNIGHT | Kind.BETWEEN_DAYS:
                raise AssertionError(f"{trouble} is not a trouble in turn")

    def _click(
        self,
        user: str,
        kind: Kind = Kind.REGULAR,
        /,
        *,
        at: int | None = None,
        delay_ms: int | None = None,
        key: bytes | EllipsisType | None = ...,
        raw: Callable[[bytes], bytes | None] = lambda whole: whole,
        without: str | None = None,
        **fields: Any,
    ) -> SampleRecord:
        """A click with an event time of `at` (now), delivered `delay_ms` after it (within three seconds)."""
        page = self._random.choices(PAGES, cum_weights=self._popular)[0]
        click = {"request_id": f"r-{self._outbox.sent:07}", "page": page, "user_id": user} | fields
        key = str(click["page"] or page).encode() if isinstance(key, EllipsisType) else key
        if without is not None:
            del click[without]
        delay_ms = self._random.randrange(3 * SECOND) if delay_ms is None else delay_ms
        return self._deliver(key, raw(as_json(click)), self._now if at is None else at, kind, delay_ms)

    def _deliver(
        self, key: bytes | None, value: bytes | None, timestamp_ms: int, kind: Kind, delay_ms: int
    ) -> SampleRecord:
        return self._outbox.send(MAIN_TOPIC, key, value, timestamp_ms, kind, arrives_ms=timestamp_ms + delay_ms)
