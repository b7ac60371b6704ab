from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from deltaworks import Windowed
from deltaworks.testing import TopologyTestDriver
from jobs.clicks import Visit, pipeline

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000


class Site:
    """The pipeline, and clicks made from what matters."""

    def __init__(self) -> None:
        self.driver = TopologyTestDriver(pipeline)
        self.clicks = self.driver.create_input_topic("page-clicks")

    def click(self, user: str | None = "ann", page: str = "/", at: int = 0, **fields: Any) -> None:
        content = {"request_id": "r-1", "page": page, "user_id": user} | fields
        self.clicks.pipe_raw(page.encode(), json.dumps(content).encode(), timestamp_ms=at)

    @property
    def visits(self) -> dict[tuple[str, int, int], int]:
        """User, start and end in minutes -> clicks."""
        rows: dict[Windowed[str], Visit] = self.driver.table("clicks_visits").rows
        return {(w.key, w.start_ms // MINUTE, w.end_ms // MINUTE): visit.clicks for w, visit in rows.items()}

    @property
    def over(self) -> list[tuple[str | None, Visit | None]]:
        """What the topic of visits has got."""
        topic = self.driver.create_output_topic("clicks-visits", key=str, value=Visit)
        return topic.read_key_values_to_list()


def time_of(at_ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms)


def test_a_visit_has_its_clicks_its_first_and_last_page_and_its_length() -> None:
    site = Site()

    site.click(page="/", at=5 * MINUTE)
    site.click(page="/search", at=9 * MINUTE)
    site.click(page="/cart", at=30 * MINUTE)

    (visit,) = site.driver.table("clicks_visits").rows.values()
    assert visit == Visit(
        clicks=3,
        started=time_of(5 * MINUTE),
        ended=time_of(30 * MINUTE),
        first_page="/",
        last_page="/cart",
        duration_ms=25 * MINUTE,
    )


def test_a_pause_of_half_an_hour_goes_on_with_the_visit_and_a_longer_one_does_not() -> None:
    site = Site()

    site.click(at=0)
    site.click(at=30 * MINUTE)
    site.click(at=60 * MINUTE + 1)

    assert site.visits == {("ann", 0, 30): 2, ("ann", 60, 60): 1}


def test_a_click_that_comes_out_of_order_joins_two_visits() -> None:
    site = Site()

    site.click(page="/first", at=0)
    site.click(page="/last", at=40 * MINUTE)
    assert len(site.visits) == 2
    site.click(page="/between", at=20 * MINUTE)

    (visit,) = site.driver.table("clicks_visits").rows.values()
    assert (visit.clicks, visit.first_page, visit.last_page) == (3, "/first", "/last")


def test_visits_are_those_of_users_not_of_pages() -> None:
    site = Site()

    site.click("ann", "/", at=0)
    site.click("bob", "/", at=1 * MINUTE)
    site.click("ann", "/cart", at=2 * MINUTE)

    assert site.visits == {("ann", 0, 2): 2, ("bob", 1, 1): 1}


def test_a_bot_that_clicks_for_days_has_a_visit_a_day() -> None:
    site = Site()

    for at in range(0, 3 * DAY, 20 * MINUTE):
        site.click("bot", at=at)

    day = 24 * 60
    assert site.visits == {
        ("bot", 0, day): 73,  # exactly a day long: the last click is the one after 24 hours
        ("bot", day + 20, 2 * day + 20): 73,
        ("bot", 2 * day + 40, 3 * day - 20): 70,
    }


@pytest.mark.parametrize(("behind_ms", "is_late"), [(30 * MINUTE - 1, False), (30 * MINUTE, True)])
def test_a_click_half_an_hour_behind_is_late(behind_ms: int, is_late: bool) -> None:
    site = Site()

    site.click("bob", at=10 * HOUR)
    site.click("ann", at=10 * HOUR - behind_ms)

    late = site.driver.table("clicks_late").rows
    assert [(row.key, row.value.behind_ms) for row in late] == ([("ann", behind_ms)] if is_late else [])
    assert len(site.visits) == (1 if is_late else 2)


def test_a_late_click_changes_no_visit_even_if_one_is_open() -> None:
    site = Site()

    site.click(at=0)
    site.click(at=25 * MINUTE)
    site.click(at=50 * MINUTE)
    site.click(page="/late", at=10 * MINUTE)

    assert site.visits == {("ann", 0, 50): 3}
    assert [row.value.page for row in site.driver.table("clicks_late").rows] == ["/late"]


def test_every_click_of_a_user_is_in_a_visit_or_late() -> None:
    site = Site()

    times = [minute * MINUTE for minute in (0, 200, 20, 190, 171, 170, 400, 10)]
    for at in times:
        site.click(at=at)

    assert sum(site.visits.values()) + len(site.driver.table("clicks_late").rows) == len(times)


def test_a_visit_goes_to_the_topic_once_when_it_is_over() -> None:
    site = Site()

    site.click("ann", "/", at=0)
    site.click("ann", "/cart", at=10 * MINUTE)
    site.click("bob", at=70 * MINUTE)
    assert site.over == []  # a click in time may still be 30 minutes behind, after a pause of 30 minutes
    site.click("bob", at=70 * MINUTE + 1)

    ((user, visit),) = site.over
    assert (user, visit and visit.clicks, visit and visit.last_page) == ("ann", 2, "/cart")


def test_visits_that_are_over_are_told_after_days_of_silence() -> None:
    site = Site()

    site.click("ann", at=0)
    site.click("bob", at=6 * DAY)

    assert [user for user, _ in site.over] == ["ann"]


def test_what_the_topic_has_got_is_what_is_final_in_the_table() -> None:
    site = Site()

    for at in (0, 10, 100, 130, 300, 500):
        site.click(at=at * MINUTE)

    assert [visit for _, visit in site.over] == list(site.driver.table("clicks_visits").final_rows.values())


def test_clicks_are_counted_per_page_and_hour() -> None:
    site = Site()

    site.click("ann", "/", at=10 * MINUTE)
    site.click("bob", "/", at=50 * MINUTE)
    site.click("bob", "/cart", at=70 * MINUTE)
    site.click("ann", "/", at=59 * MINUTE)  # out of order, in time

    pages = site.driver.table("clicks_pages")
    assert pages.rows == {Windowed("/", 0, HOUR): 3, Windowed("/cart", HOUR, 2 * HOUR): 1}


@pytest.mark.parametrize("user", [None, ""])
def test_a_click_of_nobody_counts_for_its_page_only(user: str | None) -> None:
    site = Site()

    site.click(user)

    assert site.visits == {}
    assert site.driver.table("clicks_pages").rows == {Windowed("/", 0, HOUR): 1}
    assert site.driver.dead_letters == []


def test_a_click_without_key_counts_for_its_user_only() -> None:
    site = Site()

    site.clicks.pipe_raw(None, b'{"request_id":"r-1","page":"/","user_id":"ann"}', timestamp_ms=0)

    assert site.visits == {("ann", 0, 0): 1}
    assert site.driver.table("clicks_pages").rows == {}


def test_a_record_without_value_is_no_click() -> None:
    site = Site()

    site.clicks.pipe_raw(b"/", None)

    assert (site.visits, site.driver.table("clicks_pages").rows, site.driver.dead_letters) == ({}, {}, [])


@pytest.mark.parametrize(
    ("key", "content"),
    [
        (b"/", b""),
        (b"/", b"\xff\xfe"),
        (b"/", b'{"request_id":"r'),
        (b"/", b"[]"),
        (b"/", b'{"request_id":"r-1"}'),
        (b"/", b'{"request_id":"r-1","page":"/","user_id":7}'),
        (b"/\xff", b'{"request_id":"r-1","page":"/"}'),
    ],
    ids=["nothing", "bytes", "cut short", "no object", "no page", "a number as user", "a key not UTF-8"],
)
def test_a_click_that_does_not_decode_is_set_aside_as_it_was_read(key: bytes, content: bytes) -> None:
    site = Site()

    site.clicks.pipe_raw(key, content, timestamp_ms=7)

    (letter,) = site.driver.dead_letters
    assert (letter.key, letter.value, letter.timestamp_ms, letter.operator) == (key, content, 7, "clicks")
    assert letter.error_class == "deltaworks.errors.SerializationError"
