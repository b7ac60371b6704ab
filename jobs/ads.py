"""Clicks on ads: what the hours of a campaign cost, and who clicks more often than people do.
Sample data: `sample_data/ads.py`. Expected results: `recomputed/ads.sql`.

```
ads-impressions, by impression -+-> join within 30 minutes -> clicks, with the names of their campaign -> ads_clicks
ads-clicks, by impression ------+    |    ^
ads-campaigns -> campaigns, a global table: every task can look up any of them
                                     |-> by user -> on time? -> sliding minutes with 5 clicks or more -> ads_bursts
       impressions, clicks by campaign -> on time? -> cogroup per hour -> ads_hours (as they grow)
                                     |             '-> suppress -> topic ads-hours (each hour once, when it closes)
                                     '-> late clicks -> ads_late (they cost money, so none of them is silently lost)
```

A click may arrive before its impression, or a day late. What is delivered twice counts twice.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, TypeVar

import msgspec

from deltaworks import (
    BufferConfig,
    Column,
    DeadLetters,
    Doc,
    FixedKeyProcessor,
    FixedKeyRecord,
    JoinWindows,
    Pipeline,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Windowed,
)

MILLISECOND, MINUTE, HOUR = timedelta(milliseconds=1), timedelta(minutes=1), timedelta(hours=1)
GRACE = HOUR
Instant = Annotated[datetime, msgspec.Meta(tz=True)]


class Campaign(msgspec.Struct, frozen=True):
    """A row of `ads-campaigns`, keyed by campaign; a null value ends the campaign."""

    name: str
    advertiser: str
    hourly_budget: Decimal


class Impression(msgspec.Struct, frozen=True):
    """A JSON value in `ads-impressions`, keyed by impression: an ad that was shown."""

    campaign_id: Annotated[str, Doc("The campaign of the ad.")]
    user_id: Annotated[str | None, Doc("Who saw the ad; null: unknown, so the click is in no burst.")]
    price: Annotated[Decimal, Doc("What a click on the ad costs, in euros.")]
    shown_at: Annotated[Instant, Doc("When the ad was shown.")]

    def __post_init__(self) -> None:
        """Makes an invalid impression fail to decode, so that it becomes a dead letter at the source."""
        if not 0 <= self.price < 1_000 or self.price != round(self.price, 2):
            raise ValueError(f"price {self.price} is not between 0 and a thousand, in whole cents")


class Click(msgspec.Struct, frozen=True):
    """A JSON value in `ads-clicks`, keyed by impression."""

    click_id: str
    clicked_at: Instant


class AdClick(Impression, frozen=True):
    """A click on an ad, with what was shown."""

    impression_id: Annotated[str, Doc("The impression that was clicked.")]
    click_id: Annotated[str, Doc("Id of the click in the logs of the ad server.")]
    clicked_at: Annotated[Instant, Doc("When it was clicked.")]
    delay_ms: Annotated[int, Doc("Milliseconds from the impression to the click.")]
    campaign: Annotated[str | None, Doc("Name of the campaign at that time; null: there was none.")] = None
    advertiser: Annotated[str | None, Doc("Who pays; null: nobody, as there was no such campaign.")] = None


class Hour(msgspec.Struct, frozen=True):
    """What a campaign got for its money."""

    impressions: Annotated[int, Doc("How often its ads were shown.")] = 0
    clicks: Annotated[int, Doc("How often they were clicked.")] = 0
    spent: Annotated[Decimal, Doc("Sum of the prices of these clicks, in euros.")] = Decimal(0)


class ClosedHour(Hour, frozen=True, kw_only=True):
    """An hour that changes no more, with the campaign as it was when the hour closed; None: there was none."""

    hour: datetime
    campaign: str | None
    left: Decimal | None
    """What is left of the budget; negative: more was spent."""


Ad = TypeVar("Ad", bound=Impression)
CAMPAIGN_ID = Column("campaign_id", "The campaign.")
USER_ID = Column("user_id", "The user.")
CLICKS = Column("clicks", "Clicks of the user in this minute; both ends belong to it.")


class OnTime(FixedKeyProcessor[str, Ad, Ad]):
    """Passes on what is less than an hour behind the newest record that the task has seen, or all that is not."""

    def __init__(self, on_time: bool = True) -> None:
        self.on_time = on_time

    def process(self, record: FixedKeyRecord[str, Ad]) -> None:
        behind_ms = self.context.current_stream_time_ms - record.timestamp_ms
        if (behind_ms * MILLISECOND < GRACE) is self.on_time:
            self.context.forward(record)


def clicked(impression_id: str, shown: Impression, click: Click) -> AdClick:
    delay_ms = (click.clicked_at - shown.shown_at) // MILLISECOND
    fields = msgspec.structs.asdict(shown) | msgspec.structs.asdict(click)
    return AdClick(**fields, impression_id=impression_id, delay_ms=delay_ms)


def named(click: AdClick, campaign: Campaign | None) -> AdClick:
    if campaign is None:
        return click
    return msgspec.structs.replace(click, campaign=campaign.name, advertiser=campaign.advertiser)


def one_more(_: str, ad: Impression, hour: Hour) -> Hour:
    return msgspec.structs.replace(hour, impressions=hour.impressions + 1)


def one_click_more(_: str, click: AdClick, hour: Hour) -> Hour:
    return msgspec.structs.replace(hour, clicks=hour.clicks + 1, spent=hour.spent + click.price)


def closed(window: Windowed[str], hour: Hour, campaign: Campaign | None) -> ClosedHour:
    at, name = datetime.fromtimestamp(window.start_ms / 1000, UTC), campaign.name if campaign else None
    left = campaign.hourly_budget - hour.spent if campaign else None
    return ClosedHour(**msgspec.structs.asdict(hour), hour=at, campaign=name, left=left)


def topology(builder: StreamsBuilder) -> None:
    """Follows the picture above from top to bottom."""
    campaigns = builder.global_table("ads-campaigns", key=str, value=Campaign, store="ads-campaigns")
    impressions = builder.stream("ads-impressions", key=str, value=Impression, on_null="skip", name="impressions")
    clicks = builder.stream("ads-clicks", key=str, value=Click, on_null="skip", name="clicks")

    near = JoinWindows(before=timedelta(0), after=timedelta(minutes=30), grace=timedelta(days=1))
    ad_clicks = impressions.join_with_key(clicks, clicked, near, store="ads-impressions-and-clicks").left_join(
        campaigns, named, selector=lambda _, click: click.campaign_id, name="names"
    )
    ad_clicks.to_delta("ads_clicks", key="impression_id", doc="Clicks on ads, with what was shown and who pays")

    by_user = ad_clicks.select_key(lambda _, click: click.user_id or None, key=str).repartition(name="ads-by-user")
    minutes = SlidingWindows(difference=MINUTE, grace=GRACE)
    of_users = by_user.process_values(OnTime).group_by_key().windowed_by(minutes)
    of_users.count(store="ads-minutes").filter(lambda _, clicks: clicks >= 5).to_delta(
        "ads_bursts", key=USER_ID, value=CLICKS, doc="Minutes with five clicks of one user or more"
    )

    shown = impressions.select_key(lambda _, ad: ad.campaign_id, key=str).repartition(name="ads-impressions")
    paid = ad_clicks.select_key(lambda _, ad: ad.campaign_id, key=str).repartition(name="ads-clicks")
    late = paid.process_values(lambda: OnTime(on_time=False), value=AdClick)
    late.to_delta("ads_late", key="campaign_id", doc="Clicks that came too late for their hour")

    # Both have one clock, that of their task: no record is on time for an hour that has closed for the other stream.
    shown_on_time = shown.process_values(OnTime).group_by_key()
    paid_on_time = paid.process_values(OnTime).group_by_key()
    both = shown_on_time.cogroup(one_more).cogroup(paid_on_time, one_click_more)
    hours = both.windowed_by(TimeWindows(size=HOUR, grace=GRACE)).aggregate(Hour, store="ads-hours")
    hours.to_delta("ads_hours", key=CAMPAIGN_ID, doc="What a campaign got for its money per hour")
    (
        hours.suppress(Suppressed.until_window_closes(BufferConfig.unbounded()), store="ads-open-hours")
        .to_stream()
        .left_join_with_key(campaigns, closed, selector=lambda hour, _: hour.key, name="budget")
        .select_key(lambda hour, _: hour.key, key=str)
        .to("ads-hours")
    )


pipeline = Pipeline(
    name="ads",
    topology=topology,
    on_error="continue",
    dead_letters=DeadLetters(topic="ads-dead-letters", table="ads_dead_letters", keep_bytes=True),
    max_trigger_interval=timedelta(seconds=5),
    cores=1,
)
