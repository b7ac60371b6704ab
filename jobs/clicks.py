"""Page clicks as visits: clicks of a user with pauses of at most 30 minutes; a bot that never pauses has one every day.
Sample data: `sample_data/clicks.py`. Expected results: `recomputed/clicks.sql`.

```
page-clicks -> clicks_pages           (by page: clicks per hour)
  '-> exchange to the task of the user -> how late?
        |-> clicks_late               (half an hour or more: kept here, so that nothing is silently lost)
        '-> visits |-> clicks_visits  (as they grow; is_final marks those that have ended)
                   '-> clicks-visits  (each once, when it has ended)
```
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from deltaworks import (
    Column,
    DeadLetters,
    EmitStrategy,
    FixedKeyProcessor,
    FixedKeyRecord,
    Pipeline,
    SessionWindows,
    StreamsBuilder,
    TimeWindows,
)

HOUR, PAUSE, GRACE = timedelta(hours=1), timedelta(minutes=30), timedelta(minutes=30)
MILLISECOND = timedelta(milliseconds=1)


class Click(msgspec.Struct, frozen=True):
    """A JSON value in `page-clicks`, keyed by page; unknown fields are ignored. Its time is that of the record."""

    request_id: str
    """Id of the request in the logs of the site."""
    page: str
    """Path of the page on the site."""
    user_id: str | None = None
    """The user; None: unknown. Such clicks count only for their page."""


class Arrival(Click, frozen=True, kw_only=True):
    """A click, its time, and how far time had advanced before it arrived."""

    at: datetime
    """When the user clicked."""
    behind_ms: int
    """Milliseconds from this click to the latest one that had arrived before it."""


class Visit(msgspec.Struct, frozen=True):
    """Consecutive clicks of one user. A single click is a visit, and `joined` merges two visits."""

    clicks: int
    """Number of clicks."""
    started: datetime
    """Time of the first click."""
    ended: datetime
    """Time of the last click."""
    first_page: str
    """Page of the first click."""
    last_page: str
    """Page of the last click."""
    duration_ms: int
    """Milliseconds from the first click to the last."""


PAGE = Column("page", "Path of the page on the site.")
USER_ID = Column("user_id", "The user.")
CLICKS = Column("clicks", "Number of clicks.")


class Watch(FixedKeyProcessor[str, Click, Arrival]):
    """Compares clicks with the latest click that this task has seen, of any of its users."""

    def process(self, record: FixedKeyRecord[str, Click]) -> None:
        """Adds both times to a click."""
        at = datetime.fromtimestamp(record.timestamp_ms / 1000, UTC)
        behind_ms = self.context.current_stream_time_ms - record.timestamp_ms
        fields = msgspec.structs.asdict(record.value)
        self.context.forward(record.with_value(Arrival(**fields, at=at, behind_ms=behind_ms)))


def visit_of(click: Arrival) -> Visit:
    """A visit of one click."""
    return Visit(1, click.at, click.at, click.page, click.page, 0)


def joined(one: Visit, other: Visit) -> Visit:
    """Merges two visits, whichever was first."""
    first, last = min(one, other, key=lambda visit: visit.started), max(one, other, key=lambda visit: visit.ended)
    length_ms = (last.ended - first.started) // MILLISECOND
    return Visit(one.clicks + other.clicks, first.started, last.ended, first.first_page, last.last_page, length_ms)


def topology(builder: StreamsBuilder) -> None:
    """Follows the picture above from top to bottom."""
    clicks = builder.stream("page-clicks", key=str, value=Click, on_null="skip", name="clicks")
    hours = TimeWindows(size=HOUR, grace=GRACE)
    clicks.group_by_key().windowed_by(hours).count(store="clicks-per-page").to_delta(
        "clicks_pages", key=PAGE, value=CLICKS, doc="Clicks on a page per hour"
    )

    arrivals = (  # A click without a user then has no key and ends at the exchange.
        clicks.select_key(lambda _, click: click.user_id or None, key=str, name="by-user")
        .repartition(name="clicks-by-user")
        .process_values(Watch, name="watch")
        .split("arrival")
        .branch(lambda _, click: click.behind_ms * MILLISECOND >= GRACE, name="late")
        .default_branch(name="in-time")
    )
    arrivals["late"].to_delta("clicks_late", key=USER_ID, doc="Clicks that came too late to be part of a visit")

    sessions = SessionWindows(gap=PAUSE, grace=GRACE, max_duration=timedelta(hours=24))
    visits = arrivals["in-time"].map_values(visit_of).group_by_key().windowed_by(sessions)
    visits.reduce(joined, store="clicks-visits").to_delta(
        "clicks_visits", key=USER_ID, doc="Visits: clicks of a user with pauses of at most 30 minutes"
    )
    (  # Visits that have ended wait for the next click of any user, at most a week.
        visits.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
        .reduce(joined, store="clicks-visits-over", retention=timedelta(days=7))
        .to_stream()
        .select_key(lambda visit, _: visit.key, key=str)
        .to("clicks-visits")
    )


pipeline = Pipeline(
    name="clicks",
    topology=topology,
    on_error="continue",
    dead_letters=DeadLetters(topic="clicks-dead-letters", table="clicks_dead_letters"),
    max_trigger_interval=timedelta(seconds=5),
    cores=1,
)
