from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from deltaworks import Windowed
from deltaworks.testing import TopologyTestDriver
from jobs.ads import AdClick, ClosedHour, Hour, pipeline

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000


def time_of(at: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at)


class AdServer:
    """The pipeline, and ads made from what matters."""

    def __init__(self) -> None:
        self.driver = TopologyTestDriver(pipeline)
        self.impressions = self.driver.create_input_topic("ads-impressions")
        self.clicks = self.driver.create_input_topic("ads-clicks")
        self.campaigns = self.driver.create_input_topic("ads-campaigns")
        self.closed_hours = self.driver.create_output_topic("ads-hours", key=str, value=ClosedHour)

    def announce(self, campaign: str = "spring", name: str | None = "Spring", budget: str = "10.00") -> None:
        content = {"name": name, "advertiser": "Nordwind", "hourly_budget": budget}
        value = None if name is None else json.dumps(content).encode()
        self.campaigns.pipe_raw(campaign.encode(), value, timestamp_ms=0)

    def show(self, impression: str | None = "i", at: int = 0, user: str | None = "ann", **fields: Any) -> None:
        shown = {
            "campaign_id": "spring",
            "user_id": user,
            "price": "0.50",
            "shown_at": time_of(at).isoformat(),
        } | fields
        key = None if impression is None else impression.encode()
        self.impressions.pipe_raw(key, json.dumps(shown).encode(), timestamp_ms=at)

    def click(self, impression: str | None = "i", at: int = 0, **fields: Any) -> None:
        click = {"click_id": f"{impression}-{at}", "clicked_at": time_of(at).isoformat()} | fields
        key = None if impression is None else impression.encode()
        self.clicks.pipe_raw(key, json.dumps(click).encode(), timestamp_ms=at)

    def clicked(self, at: int, user: str = "ann", campaign: str = "spring") -> None:
        """An impression that is clicked at once."""
        self.show(f"{user}-{at}", at, user, campaign_id=campaign)
        self.click(f"{user}-{at}", at)

    @property
    def found(self) -> list[AdClick]:
        return [row.value for row in self.driver.table("ads_clicks").rows]

    @property
    def late(self) -> list[int]:
        """Times of the late clicks, in minutes."""
        return [row.timestamp_ms // MINUTE for row in self.driver.table("ads_late").rows]

    @property
    def bursts(self) -> dict[tuple[str, int, int], int]:
        """User, start and end in ms -> clicks."""
        rows = self.driver.table("ads_bursts").rows
        return {(window.key, window.start_ms, window.end_ms): clicks for window, clicks in rows.items()}

    @property
    def hours(self) -> dict[tuple[str, int], Hour]:
        """Campaign and number of the hour -> what it got."""
        rows: dict[Windowed[str], Hour] = self.driver.table("ads_hours").rows
        return {(window.key, window.start_ms // HOUR): hour for window, hour in rows.items()}

    def closed(self) -> list[tuple[str | None, ClosedHour | None]]:
        """What the topic of hours has got since the last time."""
        return self.closed_hours.read_key_values_to_list()


def test_a_click_has_what_was_shown_and_the_names_of_its_campaign() -> None:
    ads = AdServer()
    ads.announce()

    ads.show("i-1", at=5 * MINUTE)
    ads.click("i-1", at=6 * MINUTE, click_id="c-1")

    assert ads.found == [
        AdClick(
            impression_id="i-1",
            click_id="c-1",
            campaign_id="spring",
            user_id="ann",
            price=Decimal("0.50"),
            shown_at=time_of(5 * MINUTE),
            clicked_at=time_of(6 * MINUTE),
            delay_ms=MINUTE,
            campaign="Spring",
            advertiser="Nordwind",
        )
    ]


@pytest.mark.parametrize(("after", "joins"), [(-1, False), (0, True), (30 * MINUTE, True), (30 * MINUTE + 1, False)])
def test_a_click_belongs_to_its_impression_for_half_an_hour(after: int, joins: bool) -> None:
    ads = AdServer()

    ads.show(at=HOUR)
    ads.click(at=HOUR + after)

    assert [click.delay_ms for click in ads.found] == ([after] if joins else [])


def test_a_click_may_arrive_before_its_impression() -> None:
    ads = AdServer()

    ads.click(at=7 * SECOND)
    ads.show(at=5 * SECOND)

    assert [click.delay_ms for click in ads.found] == [2 * SECOND]
    assert ads.hours == {("spring", 0): Hour(1, 1, Decimal("0.50"))}


@pytest.mark.parametrize(("later", "joins"), [(DAY + 30 * MINUTE - 1, True), (DAY + 30 * MINUTE, False)])
def test_impressions_are_remembered_for_a_day(later: int, joins: bool) -> None:
    ads = AdServer()

    ads.show("i", at=0)
    ads.show("another", at=later)
    ads.click("i", at=MINUTE)

    assert len(ads.found) == joins


@pytest.mark.parametrize(("later", "joins"), [(DAY + 30 * MINUTE - 1, True), (DAY + 30 * MINUTE, False)])
def test_clicks_are_remembered_for_a_day_too(later: int, joins: bool) -> None:
    ads = AdServer()

    ads.click("i", at=MINUTE)
    ads.click("another", at=MINUTE + later)
    ads.show("i", at=0)

    assert len(ads.found) == joins


def test_every_click_on_an_impression_is_paid_and_so_is_one_that_is_delivered_twice() -> None:
    ads = AdServer()

    ads.show(at=0)
    for at in (SECOND, 2 * SECOND, 2 * SECOND):
        ads.click(at=at)

    assert ads.hours == {("spring", 0): Hour(1, 3, Decimal("1.50"))}


@pytest.mark.parametrize("side", ["impression", "click"])
def test_without_a_key_there_is_no_pair(side: str) -> None:
    ads = AdServer()

    ads.show(None if side == "impression" else "i")
    ads.click(None if side == "click" else "i")

    assert ads.found == []
    assert ads.hours == {("spring", 0): Hour(1)}  # what was shown counts all the same


def test_a_click_meets_its_campaign_as_it_is_when_both_have_come() -> None:
    ads = AdServer()

    ads.show()
    ads.click(at=1)
    ads.announce(name="Spring")
    ads.click(at=2)
    ads.announce(name="Spring!")
    ads.click(at=3)
    ads.announce(name=None)
    ads.click(at=4)

    assert [(click.campaign, click.advertiser) for click in ads.found] == [
        (None, None),
        ("Spring", "Nordwind"),
        ("Spring!", "Nordwind"),
        (None, None),
    ]


def test_a_campaign_that_does_not_decode_changes_nothing() -> None:
    ads = AdServer()
    ads.announce()

    ads.campaigns.pipe_raw(b"spring", b"{")
    ads.clicked(at=0)

    assert [click.campaign for click in ads.found] == ["Spring"]


@pytest.mark.parametrize(("span", "is_burst"), [(MINUTE, True), (MINUTE + 1, False)])
def test_five_clicks_within_a_minute_are_a_burst(span: int, is_burst: bool) -> None:
    ads = AdServer()

    for at in (0, 10 * SECOND, 20 * SECOND, 30 * SECOND, span):
        ads.clicked(at=HOUR + at)

    assert ads.bursts == ({("ann", HOUR, HOUR + MINUTE): 5} if is_burst else {})


def test_minutes_slide_with_the_clicks() -> None:
    ads = AdServer()

    for at in (0, 10, 20, 30, 40, 65):
        ads.clicked(at=HOUR + at * SECOND)

    assert ads.bursts == {
        ("ann", HOUR - 20 * SECOND, HOUR + 40 * SECOND): 5,
        ("ann", HOUR + 5 * SECOND, HOUR + 65 * SECOND): 5,
    }


def test_a_minute_begins_right_after_a_click_if_others_follow() -> None:
    ads = AdServer()

    for at in (0, 10, 20, 30, 40, 50):
        ads.clicked(at=HOUR + at * SECOND)

    assert ads.bursts == {
        ("ann", HOUR - 20 * SECOND, HOUR + 40 * SECOND): 5,
        ("ann", HOUR - 10 * SECOND, HOUR + 50 * SECOND): 6,
        ("ann", HOUR + 1, HOUR + MINUTE + 1): 5,
    }


def test_bursts_are_those_of_one_user() -> None:
    ads = AdServer()

    for at in range(8):
        ads.clicked(at=HOUR + at, user="ann" if at % 2 else "bob")

    assert ads.bursts == {}


@pytest.mark.parametrize("user", [None, ""])
def test_clicks_of_nobody_are_paid_but_are_no_burst(user: str | None) -> None:
    ads = AdServer()

    ads.show(user=user)
    for at in range(6):
        ads.click(at=at)

    assert len(ads.found) == 6
    assert ads.bursts == {}


@pytest.mark.parametrize(("behind", "on_time"), [(HOUR - 1, True), (HOUR, False)])
def test_clicks_an_hour_behind_are_too_late_for_a_burst(behind: int, on_time: bool) -> None:
    ads = AdServer()
    ads.clicked(at=DAY, user="bob")

    for nth in range(5):
        ads.show(f"i-{nth}", at=DAY - behind)
        ads.click(f"i-{nth}", at=DAY - behind)

    assert set(ads.bursts.values()) == ({5} if on_time else set())


def test_hours_have_impressions_and_clicks_each_in_the_hour_of_its_own_time() -> None:
    ads = AdServer()

    ads.show("i-1", at=HOUR - 1)
    ads.click("i-1", at=HOUR)
    ads.show("i-2", at=HOUR, campaign_id="summer", price="1.25")
    ads.click("i-2", at=HOUR + 1)

    assert ads.hours == {
        ("spring", 0): Hour(impressions=1),
        ("spring", 1): Hour(clicks=1, spent=Decimal("0.50")),
        ("summer", 1): Hour(1, 1, Decimal("1.25")),
    }


@pytest.mark.parametrize(("behind", "is_late"), [(HOUR - 1, False), (HOUR, True)])
def test_a_click_an_hour_behind_is_set_aside_as_late(behind: int, is_late: bool) -> None:
    ads = AdServer()

    ads.show("i", at=10 * HOUR - behind)
    ads.show("another", at=10 * HOUR, campaign_id="summer")  # the clock of a task is that of all its campaigns
    ads.click("i", at=10 * HOUR - behind)

    hours = ads.hours
    assert sum(hour.clicks for hour in hours.values()) == (not is_late)
    assert ads.late == ([(10 * HOUR - behind) // MINUTE] if is_late else [])
    assert len(ads.found) == 1


def test_an_impression_an_hour_behind_is_not_counted() -> None:
    ads = AdServer()

    ads.show("i", at=10 * HOUR)
    ads.show("late", at=9 * HOUR)

    assert ads.hours == {("spring", 10): Hour(1)}
    assert ads.late == []


def test_an_hour_goes_to_the_topic_once_when_it_has_closed() -> None:
    ads = AdServer()
    ads.announce(budget="0.75")

    ads.clicked(at=10 * MINUTE)
    ads.clicked(at=20 * MINUTE)
    ads.show("two", at=2 * HOUR - 1)
    assert ads.closed() == []
    ads.show("three", at=2 * HOUR)

    hour = ClosedHour(
        impressions=2, clicks=2, spent=Decimal("1.00"), hour=time_of(0), campaign="Spring", left=Decimal("-0.25")
    )
    assert ads.closed() == [("spring", hour)]
    ads.clicked(at=2 * HOUR + 1)
    ads.click("ann-600000", at=11 * MINUTE)
    assert ads.closed() == []
    assert ads.late == [11]


def test_hours_close_for_all_campaigns_of_a_task_by_clicks_and_by_impressions() -> None:
    ads = AdServer()

    ads.show("i", at=0)
    ads.show("j", at=HOUR + 50 * MINUTE, campaign_id="summer")
    ads.click("j", at=2 * HOUR)  # no impression has come as late

    assert [campaign for campaign, _ in ads.closed()] == ["spring"]


def test_a_jump_of_days_loses_no_hour() -> None:
    ads = AdServer()

    ads.show("i", at=0)
    ads.show("j", at=HOUR)
    ads.show("k", at=30 * DAY)

    assert [hour and hour.hour for _, hour in ads.closed()] == [time_of(0), time_of(HOUR)]


def test_an_hour_closes_with_the_campaign_as_it_is_then() -> None:
    ads = AdServer()
    ads.announce(name="Spring", budget="5.00")

    ads.clicked(at=0)
    ads.announce(name="Spring!", budget="6.00")
    ads.clicked(at=3 * HOUR)
    ads.announce(name=None)
    ads.clicked(at=6 * HOUR)

    closed = [hour for _, hour in ads.closed() if hour is not None]
    assert [(hour.campaign, hour.left) for hour in closed] == [("Spring!", Decimal("5.50")), (None, None)]


def test_final_in_the_table_is_an_hour_that_has_closed_for_impressions_and_for_clicks() -> None:
    ads = AdServer()
    hour = Windowed("spring", 0, HOUR)

    ads.clicked(at=0)
    ads.show("i", at=2 * HOUR - MINUTE)
    ads.click("i", at=2 * HOUR)  # closed by clicks only
    assert hour not in ads.driver.table("ads_hours").final_rows
    ads.show("j", at=2 * HOUR)
    assert hour in ads.driver.table("ads_hours").final_rows

    ads.show("k", at=5 * HOUR)  # closed by impressions only
    assert list(ads.driver.table("ads_hours").final_rows) == [hour]


def test_a_minute_is_final_when_the_next_click_is_more_than_an_hour_after_its_end() -> None:
    ads = AdServer()

    for at in range(5):
        ads.clicked(at=DAY + at)
    ads.clicked(at=DAY + 4 + HOUR, user="bob")
    assert ads.driver.table("ads_bursts").final_rows == {}
    ads.clicked(at=DAY + 5 + HOUR, user="bob")

    assert list(ads.driver.table("ads_bursts").final_rows) == [Windowed("ann", DAY + 4 - MINUTE, DAY + 4)]


def test_a_record_without_value_is_neither_an_impression_nor_a_click() -> None:
    ads = AdServer()

    ads.impressions.pipe_raw(b"i", None)
    ads.clicks.pipe_raw(b"i", None)

    assert (ads.found, ads.hours, ads.driver.dead_letters) == ([], {}, [])


@pytest.mark.parametrize(
    "field",
    [
        {"price": "0,50"},
        {"price": "-0.01"},
        {"price": "0.125"},
        {"price": 1_000},
        {"price": None},
        {"campaign_id": 7},
        {"user_id": ["ann"]},
        {"shown_at": "2026-03-01T12:00:00"},
    ],
)
def test_an_impression_with_a_field_that_does_not_fit_is_set_aside(field: dict[str, Any]) -> None:
    ads = AdServer()

    ads.show(**field)

    (letter,) = ads.driver.dead_letters
    assert (letter.operator, letter.error_class) == ("impressions", "deltaworks.errors.SerializationError")
    assert ads.hours == {}


@pytest.mark.parametrize("content", [b"", b"\x80", b"{", b"[]", b'{"click_id":7}', b'{"click_id":"c-1"}'])
def test_a_click_that_does_not_decode_is_set_aside_as_it_was_read(content: bytes) -> None:
    ads = AdServer()

    ads.clicks.pipe_raw(b"i", content, timestamp_ms=7)

    (letter,) = ads.driver.dead_letters
    assert (letter.key, letter.value, letter.timestamp_ms, letter.operator) == (b"i", content, 7, "clicks")


def test_a_price_may_be_a_number() -> None:
    ads = AdServer()

    ads.show(price=0.25, page="/unknown/field")
    ads.click(at=1)

    assert ads.hours == {("spring", 0): Hour(1, 1, Decimal("0.25"))}
