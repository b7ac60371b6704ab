"""Sample data for `jobs/ads.py`: seeded impressions, clicks and campaigns, as untidy as real topics.

Time advances about three minutes per impression, so a thousand of them span almost two days. Every eighth impression is
the next `Kind` of trouble. The record timestamp is the event time; records are yielded in the order in which they reach
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
from jobs.sample_data.kafka import HOUR, MINUTE, SECOND, Outbox

MAIN_TOPIC = "ads-impressions"
CLICKS_TOPIC = "ads-clicks"
CAMPAIGNS_TOPIC = "ads-campaigns"
START_MS = int(datetime(2026, 3, 1, 20, 0, tzinfo=UTC).timestamp() * 1000)

ADVERTISERS = ("Nordwind", "Łódź Radio", "東京堂", "Café Zoë", "O'Hara & Sons")
BOT = "bot"


class Kind(Enum):
    """What a record is an example of; the value is its line in the census."""

    REGULAR = "impressions, regular"
    OF_BOT = "impressions, of a bot that clicks on all of them within a minute"
    WITHIN_GRACE = "impressions, out of order within grace"
    BEYOND_GRACE = "impressions, too late for their hour"
    UNKNOWN_CAMPAIGN = "impressions, of a campaign that nobody knows"
    UNKNOWN_USER = "impressions, user null"
    EMPTY_USER = "impressions, user empty"
    OTHER_SCRIPT = "impressions, user in another script"
    DUPLICATE = "impressions, delivered twice"
    SAME_MOMENT = "impressions, two of a user in the same millisecond, clicked in the same millisecond"
    FREE = "impressions, price zero"
    PRICE_AS_NUMBER = "impressions, price a JSON number instead of text"
    UNKNOWN_FIELD = "impressions, with a field nobody knows"
    NULL_KEY = "impressions, key null"
    NULL_VALUE = "impressions, value null"
    MALFORMED_KEY = "impressions, key not UTF-8"
    EMPTY_VALUE = "impressions, value empty"
    MALFORMED_BYTES = "impressions, value arbitrary bytes"
    MALFORMED_JSON = "impressions, JSON cut short"
    WRONG_TYPE = "impressions, a field of the wrong type"
    MISSING_FIELD = "impressions, a field missing"
    CLICK = "clicks, regular"
    CLICK_OF_BOT = "clicks, of the bot"
    CLICK_FORGOTTEN = "clicks, so late that their impression is forgotten"
    CLICK_LATE = "clicks, too late for their hour"
    CLICK_WITHIN_GRACE = "clicks, out of order within grace"
    CLICK_FIRST = "clicks, delivered before their impression"
    CLICK_LONG_BEFORE = "clicks, delivered an hour before their impression"
    CLICK_AT_THE_END = "clicks, exactly 30 minutes after their impression"
    CLICK_AFTER_THE_END = "clicks, 30 minutes and a millisecond after their impression"
    CLICK_AT_ONCE = "clicks, in the millisecond of their impression"
    CLICK_TOO_EARLY = "clicks, a millisecond before their impression"
    CLICK_AGAIN = "clicks, several on one impression"
    CLICK_OF_A_MINUTE = "clicks, the first and the fifth exactly a minute apart"
    CLICK_OF_MORE = "clicks, the first and the fifth a minute and a millisecond apart"
    CLICK_ALONE = "clicks, without an impression"
    CLICK_DUPLICATE = "clicks, delivered twice"
    CLICK_NULL_KEY = "clicks, key null"
    CLICK_NULL = "clicks, value null"
    CLICK_MALFORMED = "clicks, key or value malformed, or value empty"
    CAMPAIGN = "campaigns, that begin"
    CAMPAIGN_CHANGED = "campaigns, with another name or budget"
    CAMPAIGN_ENDED = "campaigns, that end"
    CAMPAIGN_BACK = "campaigns, that begin again"
    CAMPAIGN_UNKNOWN_FIELD = "campaigns, with a field nobody knows"
    CAMPAIGN_NULL_KEY = "campaigns, key null"
    CAMPAIGN_MALFORMED = "campaigns, value malformed or empty"


def records(count: int = 20_000, seed: int = 7) -> Iterator[SampleRecord]:
    """All records of `ads-impressions` up to that number, and the others that came before the last of them."""
    left = count
    for record in _Server(random.Random(seed)).deliveries():
        if record.topic == MAIN_TOPIC:
            left -= 1
            if left < 0:
                return
        yield record


_WRONG: tuple[tuple[str, Any], ...] = (
    ("price", "0,50"),
    ("price", "-0.01"),
    ("price", "0.125"),
    ("price", 1000),
    ("price", None),
    ("campaign_id", 7),
    ("user_id", ["u-001"]),
    ("shown_at", "2026-03-01T12:00:00"),
    ("shown_at", "soon"),
)
_NOT_IN_TURN = (Kind.REGULAR, Kind.CLICK, Kind.CLICK_OF_BOT, Kind.CAMPAIGN)
_TROUBLES = tuple(kind for kind in Kind if kind not in _NOT_IN_TURN)


class _Server:
    """The simulation. What was sent waits in `_outbox` until its moment of delivery."""

    def __init__(self, random: random.Random) -> None:
        self._random = random
        self._now = START_MS
        self._outbox = Outbox()
        self._shown = 0
        self._clicked = 0
        self._campaigns = [f"spring-{n:02}" for n in range(14)]
        self._shares = list(accumulate(1 / (rank + 2) for rank in range(14)))
        """A few campaigns have most of the impressions: some tasks get far more than others."""
        self._users = [f"u-{n:03}" for n in range(150)]

    def deliveries(self) -> Iterator[SampleRecord]:
        for campaign in self._campaigns[:12]:
            self._announce(campaign, Kind.CAMPAIGN)
        for trouble in cycle(_TROUBLES):
            for _ in range(7):
                self._now += 1 + int(self._random.expovariate(1 / (3 * MINUTE)))
                shown = self._show()
                if self._random.random() < 0.6:
                    self._click(shown, self._random.randrange(SECOND, 4 * MINUTE))
            self._make(trouble)
            yield from self._outbox.due(self._now)

    def _make(self, trouble: Kind) -> None:
        if trouble.value.startswith("campaigns"):
            self._make_campaign(trouble)
        elif trouble.value.startswith("clicks"):
            self._make_click(trouble)
        else:
            self._make_impression(trouble)

    def _make_impression(self, trouble: Kind) -> None:
        raw: Callable[[bytes], bytes | None] | None = None
        match trouble:
            case Kind.OF_BOT:
                for nth in range(self._random.randrange(6, 10)):
                    shown = self._show(trouble, at=self._now + nth * 7 * SECOND, user_id=BOT)
                    self._click(shown, self._random.randrange(200, 3 * SECOND), Kind.CLICK_OF_BOT)
            case Kind.WITHIN_GRACE:
                self._click(self._show(trouble, delay=self._random.randrange(2 * MINUTE, 50 * MINUTE)), 25 * MINUTE)
            case Kind.BEYOND_GRACE:
                self._show(trouble, delay=self._random.randrange(2 * HOUR, 5 * HOUR))
            case Kind.UNKNOWN_CAMPAIGN:
                self._click(self._show(trouble, campaign_id=f"summer-{self._random.randrange(4)}"), MINUTE)
            case Kind.UNKNOWN_USER:
                self._click(self._show(trouble, user_id=None), MINUTE)
            case Kind.EMPTY_USER:
                self._click(self._show(trouble, user_id=""), MINUTE)
            case Kind.OTHER_SCRIPT:
                self._click(self._show(trouble, user_id=self._random.choice(["Łucja", "愛子", "नीना"])), MINUTE)
            case Kind.DUPLICATE:
                shown = self._show()
                self._deliver(MAIN_TOPIC, shown.key, shown.value, shown.timestamp_ms, trouble, 3 * SECOND)
                self._click(shown, MINUTE)
            case Kind.SAME_MOMENT:
                user = self._random.choice(self._users)
                for _ in range(2):
                    self._click(self._show(trouble, user_id=user), 5 * SECOND)
            case Kind.FREE:
                self._click(self._show(trouble, price="0.00"), MINUTE)
            case Kind.PRICE_AS_NUMBER:
                self._click(self._show(trouble, price=self._random.randrange(10, 300) / 100), MINUTE)
            case Kind.UNKNOWN_FIELD:
                self._click(self._show(trouble, page="/straße"), MINUTE)
            case Kind.NULL_KEY:
                self._show(trouble, key=None)
            case Kind.MALFORMED_KEY:
                self._show(trouble, key=b"\xff\xfe" + str(self._shown).encode())
            case Kind.WRONG_TYPE:
                name, wrong = self._random.choice(_WRONG)
                self._click(self._show(trouble, **{name: wrong}), MINUTE)
            case Kind.MISSING_FIELD:
                self._show(trouble, without=self._random.choice(["campaign_id", "user_id", "price", "shown_at"]))
            case Kind.NULL_VALUE:
                raw = lambda _: None  # noqa: E731
            case Kind.EMPTY_VALUE:
                raw = lambda _: b""  # noqa: E731
            case Kind.MALFORMED_BYTES:
                noise = b"\xff" + self._random.randbytes(self._random.randrange(1, 40))
                raw = lambda _: noise  # noqa: E731
            case Kind.MALFORMED_JSON:
                raw = lambda whole: whole[: len(whole) // 2]  # noqa: E731
            case _:
                raise AssertionError(f"{trouble} is not an impression in turn")
        if raw is not None:
            self._click(self._show(trouble, raw=raw), MINUTE)

    def _make_click(self, trouble: Kind) -> None:
        match trouble:
            case Kind.CLICK_FORGOTTEN:
                self._click(self._show(), MINUTE, trouble, delay=self._random.randrange(25 * HOUR, 28 * HOUR))
            case Kind.CLICK_LATE:
                self._click(self._show(), MINUTE, trouble, delay=self._random.randrange(90 * MINUTE, 4 * HOUR))
            case Kind.CLICK_WITHIN_GRACE:
                self._click(self._show(), MINUTE, trouble, delay=self._random.randrange(2 * MINUTE, 50 * MINUTE))
            case Kind.CLICK_FIRST:
                self._click(self._show(delay=self._random.randrange(10 * SECOND, MINUTE)), 5 * SECOND, trouble)
            case Kind.CLICK_LONG_BEFORE:
                self._click(self._show(delay=HOUR + MINUTE), MINUTE, trouble)
            case Kind.CLICK_AT_THE_END:
                self._click(self._show(), 30 * MINUTE, trouble)
            case Kind.CLICK_AFTER_THE_END:
                self._click(self._show(), 30 * MINUTE + 1, trouble)
            case Kind.CLICK_AT_ONCE:
                self._click(self._show(), 0, trouble)
            case Kind.CLICK_TOO_EARLY:
                self._click(self._show(), -1, trouble)
            case Kind.CLICK_AGAIN:
                shown = self._show()
                for seconds in (2, 4, self._random.randrange(60, 600)):
                    self._click(shown, seconds * SECOND, trouble)
            case Kind.CLICK_OF_A_MINUTE | Kind.CLICK_OF_MORE:
                shown = self._show(user_id=f"{trouble.name.lower()}-{self._random.randrange(9)}")
                for ms in (0, 20_000, 20_001, 45_000, 60_000 if trouble is Kind.CLICK_OF_A_MINUTE else 60_001):
                    self._click(shown, SECOND + ms, trouble)
            case Kind.CLICK_ALONE:
                self._click(self._show(kind=None), MINUTE, trouble)
            case Kind.CLICK_DUPLICATE:
                click = self._click(self._show(), MINUTE)
                self._deliver(CLICKS_TOPIC, click.key, click.value, click.timestamp_ms, trouble, 3 * SECOND)
            case Kind.CLICK_NULL_KEY:
                self._click(self._show(), MINUTE, trouble, key=None)
            case Kind.CLICK_NULL:
                self._deliver(CLICKS_TOPIC, self._show().key, None, self._now, trouble)
            case Kind.CLICK_MALFORMED:
                wrong = self._random.choice([b"", b"\x80", b"{", b"[]", b'{"click_id":7}', b'{"click_id":"c-1"}'])
                key = self._random.choice([b"\xff" + str(self._shown).encode(), self._show().key])
                self._deliver(CLICKS_TOPIC, key, wrong, self._now, trouble)
            case _:
                raise AssertionError(f"{trouble} is not a click in turn")

    def _make_campaign(self, trouble: Kind) -> None:
        campaign = self._random.choice(self._campaigns[:12])
        match trouble:
            case Kind.CAMPAIGN_CHANGED:
                for _ in range(3):  # the last one before a task looks it up counts
                    self._announce(self._random.choice(self._campaigns[:12]), trouble)
            case Kind.CAMPAIGN_ENDED:
                self._deliver(CAMPAIGNS_TOPIC, self._campaigns[0].encode(), None, self._now, trouble)
                self._deliver(CAMPAIGNS_TOPIC, campaign.encode(), None, self._now, trouble)
            case Kind.CAMPAIGN_BACK:
                self._announce(self._campaigns[0], trouble)
            case Kind.CAMPAIGN_UNKNOWN_FIELD:
                self._announce(campaign, trouble, color="grün")
            case Kind.CAMPAIGN_NULL_KEY:
                self._announce(None, trouble)
            case Kind.CAMPAIGN_MALFORMED:
                value = self._random.choice([b"", b"{", b"\x80", b'{"name":"x"}', as_json(_campaign("x", 7, "1"))])
                self._deliver(CAMPAIGNS_TOPIC, campaign.encode(), value, self._now, trouble)
            case _:
                raise AssertionError(f"{trouble} is not a campaign in turn")

    def _show(
        self,
        kind: Kind | None = Kind.REGULAR,
        *,
        at: int | None = None,
        delay: int | None = None,
        key: bytes | EllipsisType | None = ...,
        raw: Callable[[bytes], bytes | None] = lambda whole: whole,
        without: str | None = None,
        **fields: Any,
    ) -> SampleRecord:
        """An impression of now, delivered after `delay` (within three seconds), or never, if of no kind."""
        self._shown += 1
        at = self._now if at is None else at
        shown: dict[str, Any] = {
            "campaign_id": self._random.choices(self._campaigns, cum_weights=self._shares)[0],
            "user_id": self._random.choice(self._users),
            "price": f"{self._random.randrange(10, 300) / 100:.2f}",
            "shown_at": as_iso(at),
        } | fields
        if without is not None:
            del shown[without]
        key = f"imp-{self._shown:07}".encode() if isinstance(key, EllipsisType) else key
        delay = self._random.randrange(3 * SECOND) if delay is None else delay
        if kind is None:
            return SampleRecord(MAIN_TOPIC, None, key, None, at, Kind.REGULAR)
        return self._deliver(MAIN_TOPIC, key, raw(as_json(shown)), at, kind, delay)

    def _click(
        self,
        shown: SampleRecord,
        after: int,
        kind: Kind = Kind.CLICK,
        *,
        delay: int | None = None,
        key: bytes | EllipsisType | None = ...,
    ) -> SampleRecord:
        """A click so many milliseconds after its impression, delivered after `delay` (within three seconds)."""
        self._clicked += 1
        at = shown.timestamp_ms + after
        click = {"click_id": f"c-{self._clicked:07}", "clicked_at": as_iso(at)}
        key = shown.key if isinstance(key, EllipsisType) else key
        delay = self._random.randrange(3 * SECOND) if delay is None else delay
        return self._deliver(CLICKS_TOPIC, key, as_json(click), at, kind, delay)

    def _announce(self, campaign: str | None, kind: Kind, **fields: Any) -> None:
        budget = f"{self._random.randrange(100, 2_000) / 100:.2f}"
        name = f"{campaign}, {self._random.choice(['banner', 'film', 'größer'])}"
        value = as_json(_campaign(name, self._random.choice(ADVERTISERS), budget) | fields)
        self._deliver(CAMPAIGNS_TOPIC, None if campaign is None else campaign.encode(), value, self._now, kind)

    def _deliver(
        self, topic: str, key: bytes | None, value: bytes | None, timestamp_ms: int, kind: Kind, delay_ms: int = 0
    ) -> SampleRecord:
        return self._outbox.send(topic, key, value, timestamp_ms, kind, arrives_ms=timestamp_ms + delay_ms)


def _campaign(name: str, advertiser: Any, budget: str) -> dict[str, Any]:
    return {"name": name, "advertiser": advertiser, "hourly_budget": budget}
