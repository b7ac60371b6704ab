"""The page of the streams in a real Chromium: what people see, light and dark, with the keyboard, as whom.

`PICTURES=folder python -m pytest tests/integration/test_page.py` keeps its pictures.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request
from starlette.requests import Request as StarletteRequest

from deltaworks.query_server.access import UnknownClientError
from deltaworks.query_server.client_files import NOBODY
from deltaworks.ui.access import Client
from tests.support.browser import chromium
from tests.support.homes import Stream, settings_of
from tests.support.page import ROOT, SCENES, Between, Spoiled, served

pytestmark = pytest.mark.slow
_TIMEOUT_MS = 60_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@contextmanager
def window(
    browser: Browser, url: str, *, theme: str = "light", width: int = 1440, fails: tuple[str, ...] = ()
) -> Iterator[Page]:
    """A window; afterwards nothing was loaded from elsewhere, and the browser complained of nothing.

    Args:
        browser: opens it.
        url: of the page.
        theme: of the system.
        width: in pixels.
        fails: parts of what it may say of answers that fail, besides those with 401 and 409.
    """
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme="dark" if theme == "dark" else "light"
    )
    page = context.new_page()
    page.set_default_timeout(_TIMEOUT_MS)
    foreign: list[str] = []
    complaints: list[str] = []

    def asked(request: Request) -> None:
        if not request.url.startswith((url, "data:")):
            foreign.append(request.url)

    def said(message: ConsoleMessage) -> None:
        if message.type == "error" and not any(text in message.text for text in ("401", "409", *fails)):
            complaints.append(message.text)

    page.on("request", asked)
    page.on("console", said)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page
    assert (foreign, complaints) == ([], [])
    context.close()


def picture(page: Page, folder: Path, name: str) -> None:
    """A picture of the whole page, when it has settled."""
    page.wait_for_timeout(600)
    kept = Path(os.environ.get("PICTURES", folder))
    kept.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=kept / f"page-{name}.png", full_page=True)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("scene", SCENES)
def test_each_scene_is_shown_light_and_dark(browser: Browser, tmp_path: Path, scene: str, theme: str) -> None:
    with served(tmp_path, scene) as (url, token), window(browser, url, theme=theme) as page:
        page.goto(f"{url}/#token={token}")
        if scene == "empty":
            page.get_by_text("No stream yet").wait_for()
            picture(page, tmp_path, f"{scene}-{theme}")
            return
        page.get_by_role("table", name="Streams").wait_for()
        assert page.url == f"{url}/#/", "the token is not left in the address"
        rows = page.get_by_role("table", name="Streams").get_by_role("row")
        assert rows.count() == 1 + {"one": 1, "forty": 40, "failing": 2}[scene]
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        dark = sum(map(int, re.findall(r"\d+", ground))) < 200
        assert dark == (theme == "dark")
        picture(page, tmp_path, f"{scene}-{theme}")
        if scene in ("one", "failing"):
            page.get_by_role("link", name="orders").click()
            page.get_by_role("heading", name="orders", exact=True).wait_for()
            page.locator("svg .box").first.wait_for()
            assert page.locator("svg .box.topic").count() >= 2
            assert page.locator(".chart canvas").count() == 4
            page.get_by_text("81204").first.wait_for()
            picture(page, tmp_path, f"{scene}-stream-{theme}")
        if scene == "failing":
            assert page.get_by_text("the amount '12,50' is no number").first.is_visible()


def test_a_viewer_sees_no_text_that_may_quote_a_record(browser: Browser, tmp_path: Path) -> None:
    with served(tmp_path, "failing") as (url, _), window(browser, url) as page:
        page.goto(url)
        page.get_by_role("link", name="orders").click()
        page.get_by_text("operators see it").wait_for()
        page.get_by_text("raw-orders-0@81204").wait_for()
        shown = page.content()
        assert "is no number" not in shown and "4711" not in shown and "airflow ada" not in shown


def test_a_wrong_token_is_forgotten_and_nothing_is_asked_until_somebody_does_something(
    browser: Browser, tmp_path: Path
) -> None:
    between = Between()
    with served(tmp_path, "one", between=between) as (url, token), window(browser, url) as page:
        page.goto(f"{url}/#token=wrong")
        page.get_by_text("does not know this token").wait_for()
        assert page.url == f"{url}/#/" and page.title() == "Log in · deltaworks"
        assert page.get_by_text("open the address that deltaworks ui has printed").is_visible()
        assert page.evaluate("sessionStorage.length") == 0
        picture(page, tmp_path, "token")
        page.wait_for_timeout(1_500)  # what is under way ends
        asked = len(between.asked)
        page.wait_for_timeout(4_000)  # the list is asked for every three seconds
        assert len(between.asked) == asked

        page.get_by_label("Token").fill("with a gap")
        page.keyboard.press("Enter")
        page.get_by_text("That is no token").wait_for()
        page.get_by_label("Token").fill(f" {url}/#token={token} ")
        page.keyboard.press("Enter")
        page.get_by_role("table", name="Streams").wait_for()
        assert page.get_by_text("operator", exact=True).is_visible()


def test_who_has_a_wrong_token_may_go_on_without_it(browser: Browser, tmp_path: Path) -> None:
    with served(tmp_path, "one") as (url, _), window(browser, url) as page:
        page.goto(f"{url}/#token=wrong")
        page.get_by_role("button", name="Go on without it").click()
        page.get_by_role("table", name="Streams").wait_for()
        assert page.get_by_text("viewer", exact=True).is_visible()


def test_a_token_in_the_address_of_an_open_tab_is_taken(browser: Browser, tmp_path: Path) -> None:
    with served(tmp_path, "failing") as (url, token), window(browser, url) as page:
        page.goto(f"{url}/#/streams/orders")
        page.get_by_text("operators see it").wait_for()
        loaded = page.evaluate("performance.timeOrigin")

        page.goto(f"{url}/#token={token}")
        page.get_by_text("operator", exact=True).wait_for()
        page.get_by_role("link", name="orders").wait_for()
        assert page.url == f"{url}/#/" and page.evaluate("performance.timeOrigin") == loaded, "the tab stays open"
        page.get_by_text("the amount '12,50' is no number").or_(page.get_by_text("ValueError")).first.wait_for()

        page.goto(f"{url}/#token=wrong")
        page.get_by_text("does not know this token").wait_for()
        assert "token=" not in page.url


def test_a_session_of_airflow_that_ends_is_said_and_resumed(browser: Browser, tmp_path: Path) -> None:
    logged_in, between = [True], Between()

    async def who(_: StarletteRequest) -> Client:
        if not logged_in[0]:
            raise UnknownClientError("Airflow knows nobody by this session (Token Expired).", hint="log in again")
        return Client(sha256=NOBODY, role="operator")

    with served(tmp_path, "one", who=who, between=between, airflow="/base") as (url, _), window(browser, url) as page:
        page.goto(url)
        page.get_by_role("link", name="orders").click()
        page.get_by_role("heading", name="Last hours").wait_for()
        logged_in[0] = False
        page.get_by_role("heading", name="Log in again").wait_for()
        assert page.get_by_text("Token Expired").is_visible() and page.get_by_label("Token").count() == 0
        link = page.get_by_role("link", name="Log in to Airflow again").get_attribute("href")
        assert link == f"/base/api/v2/auth/login?next={quote(f'{url}/#/streams/orders', safe='')}"
        assert page.evaluate("document.activeElement.tagName") == "H1"
        picture(page, tmp_path, "session")
        asked = len(between.asked)
        page.wait_for_timeout(6_000)  # a stream is asked for every five seconds
        assert len(between.asked) == asked

        button = page.get_by_role("button", name="I have logged in")
        with page.expect_response(lambda response: response.status == 401):
            button.click()
        button.wait_for()
        logged_in[0] = True
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")  # as when one comes back to the tab
        page.get_by_role("heading", name="Last hours").wait_for()
        assert page.title() == "orders · deltaworks"


SPOILED = {
    "HTML": (Spoiled(b"<!doctype html><h1>Log in</h1>", "text/html"), "The answer is a page, and no data."),
    "a part": (Spoiled(b'{"streams": [{"name": "ord'), "The answer of the server cannot be read."),
    "null": (Spoiled(b"null"), "The answer of the server has another form than this page knows."),
    "another document": (Spoiled(b'{"detail": []}'), "The answer of the server has another form than this page knows."),
    "a connection that ends": (
        Spoiled(b'{"streams": [', headers=((b"content-length", b"9000"),)), "The answer of the server was cut off.",
    ),
    "502": (Spoiled(b"<html>", "text/html", 502), "The answer is 502, without a reason."),
    "500": (Spoiled(b"null", status=500), "The answer is 500, without a reason."),
    "401": (Spoiled(b"<h1>Log in</h1>", "text/html", 401), "The answer is 401, without a reason."),
    "401 in JSON": (Spoiled(b'{"detail": "Unauthorized"}', status=401), "The answer is 401, without a reason."),
    "another place": (
        Spoiled(b"", status=302, headers=((b"location", b"/login"),)), "The answer leads to another page.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_answers_that_are_none_are_said_and_what_was_known_stays(browser: Browser, tmp_path: Path, theme: str) -> None:
    between = Between()
    fails = ("502", "500", "ERR_CONTENT_LENGTH_MISMATCH")
    with (
        served(tmp_path, "one", between=between) as (url, _),
        window(browser, url, theme=theme, fails=fails) as page,
    ):
        page.goto(url)
        page.get_by_role("link", name="orders").wait_for()
        assert page.locator(".stale").count() == 0
        said = page.locator("main > .wrong")  # of the list; that of connectors is in their section
        for number, (spoil, text) in enumerate(SPOILED.values()):
            between.spoil = spoil
            said.get_by_text(text).wait_for()
            assert said.get_by_text("What is shown is stale, as of").is_visible()
            assert page.get_by_role("link", name="orders").is_visible()
            assert page.locator(".stale a[href='#/streams/orders']").count() == 1
            if number == 0:
                picture(page, tmp_path, f"stale-{theme}")
            between.spoil = None
            said.get_by_role("button", name="Try again").click()
            said.wait_for(state="detached")
            assert page.locator("main > .stale").count() == 0


def test_a_proxy_that_wants_a_login_takes_nobody_s_token(browser: Browser, tmp_path: Path) -> None:
    between = Between()
    with served(tmp_path, "one", between=between) as (url, token), window(browser, url) as page:
        page.goto(f"{url}/#token={token}")
        page.get_by_role("link", name="orders").wait_for()
        between.spoil = SPOILED["401"][0]
        page.locator("main > .wrong").get_by_text("The answer is 401, without a reason.").wait_for()
        assert page.evaluate("sessionStorage.getItem('deltaworks-token')") == token
        between.spoil = None
        page.locator("main > .wrong").wait_for(state="detached")  # it is asked again without a click


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_stream_whose_answers_fail_is_shown_as_it_was(browser: Browser, tmp_path: Path, theme: str) -> None:
    between = Between()
    with served(tmp_path, "one", between=between) as (url, _), window(browser, url, theme=theme) as page:
        page.goto(f"{url}/#/streams/orders")
        page.locator("svg .box").first.wait_for()
        between.spoil = SPOILED["HTML"][0]
        page.locator(".stale svg .box").first.wait_for()
        page.locator(".stale canvas").first.wait_for()
        picture(page, tmp_path, f"stale-stream-{theme}")


def test_a_first_answer_that_is_none_is_said(browser: Browser, tmp_path: Path) -> None:
    between = Between()
    between.spoil = SPOILED["HTML"][0]
    with served(tmp_path, "one", between=between) as (url, _), window(browser, url) as page:
        for path in ("/", "/#/streams/orders"):
            page.goto(f"{url}{path}")
            page.get_by_text("The answer is a page, and no data.").wait_for()
            assert page.locator(".stale").count() == 0


def test_failures_are_asked_about_ever_later(browser: Browser, tmp_path: Path) -> None:
    between = Between()
    with served(tmp_path, "one", between=between) as (url, _), window(browser, url) as page:
        page.clock.install()
        page.goto(url)
        page.get_by_role("link", name="orders").wait_for()
        page.clock.pause_at(time.time() + 3_600)
        page.wait_for_timeout(2_000)  # what is under way ends
        between.spoil = SPOILED["a part"][0]

        def asks(seconds: float, times: int) -> None:
            before = between.asked.count("/api/streams")
            if times:
                with page.expect_response("**/api/streams"):
                    page.clock.run_for(int(1_000 * seconds))
            else:
                page.clock.run_for(int(1_000 * seconds))
            page.wait_for_timeout(1_000)
            assert between.asked.count("/api/streams") - before == times

        asks(3.0, 1)
        for shorter, rest in ((5.0, 2.0), (9.0, 6.0), (18.0, 12.0)):
            asks(shorter, 0)
            asks(rest, 1)
        between.spoil = None
        asks(60.0, 1)
        page.locator("main > .wrong").wait_for(state="detached")
        asks(3.0, 1)  # soon again, as before


def test_a_filter_and_a_name_may_have_capitals(browser: Browser, tmp_path: Path) -> None:
    Stream(settings_of(tmp_path / "home", ROOT), "Payments-Old").beats()
    with served(tmp_path, "one") as (url, _), window(browser, url) as page:
        page.goto(url)
        table = page.get_by_role("table", name="Streams")
        for wanted, found in (("Payments", 1), ("payments-o", 1), ("ORDERS", 1), ("Running", 2), ("Nobody", 0)):
            page.get_by_placeholder("Filter").fill(wanted)
            assert table.get_by_role("row").count() == 1 + found, wanted


def test_a_new_view_begins_at_its_heading_and_back_restores_the_old_one(browser: Browser, tmp_path: Path) -> None:
    with served(tmp_path, "forty") as (url, _), window(browser, url) as page:
        focused = "document.activeElement.tagName + ' ' + document.activeElement.textContent"
        page.goto(url)
        table = page.get_by_role("table", name="Streams")
        table.wait_for()
        assert page.title() == "Streams · deltaworks"
        assert page.evaluate("document.activeElement.tagName") == "BODY", "who has just come begins at the top"
        page.get_by_role("button", name="Stream", exact=True).click()
        page.get_by_placeholder("Filter").fill("S-")
        rows = table.get_by_role("row").count()
        assert 1 < rows < 41
        link = table.get_by_role("link").last
        name = link.inner_text()
        link.focus()
        page.wait_for_timeout(100)
        y = page.evaluate("scrollY")
        page.keyboard.press("Enter")

        page.get_by_role("heading", name="Last hours").wait_for()
        assert page.evaluate(focused) == f"H1 {name}"
        assert page.title() == f"{name} · deltaworks"
        assert page.evaluate("scrollY") == 0
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.closest('main') !== null"), "what follows the heading is next"

        page.go_back()
        table.wait_for()
        assert page.evaluate(focused) == f"A {name}"
        assert page.get_by_placeholder("Filter").input_value() == "S-" and table.get_by_role("row").count() == rows
        assert page.evaluate("scrollY") == y and page.title() == "Streams · deltaworks"
        assert page.get_by_role("columnheader", name="Stream", exact=True).get_attribute("aria-sort") == "ascending"

        page.go_forward()
        page.get_by_role("heading", name=name).wait_for()
        assert page.evaluate(focused) == f"H1 {name}"
        page.get_by_role("link", name="All streams").click()
        table.wait_for()
        assert page.evaluate(focused) == "H1 Streams"
        assert page.get_by_placeholder("Filter").input_value() == "", "a link leads to a new list"


def test_the_keyboard_is_enough(browser: Browser, tmp_path: Path) -> None:
    with served(tmp_path, "forty") as (url, _), window(browser, url) as page:
        page.goto(url)
        table = page.get_by_role("table", name="Streams")
        table.wait_for()
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        page.keyboard.press("/")
        page.keyboard.type("clicks-a")
        assert table.get_by_role("row").count() == 2
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.textContent") == "clicks-apac":
                break
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="clicks-apac").wait_for()
        page.get_by_text("cannot be described").first.wait_for()  # there is no file of its code; all else is shown
        assert page.get_by_role("heading", name="Last hours").is_visible()
        page.get_by_role("link", name="All streams").focus()
        page.keyboard.press("Enter")
        table.wait_for()


def test_the_theme_that_somebody_chooses_stays(browser: Browser, tmp_path: Path) -> None:
    with served(tmp_path, "one") as (url, _), window(browser, url) as page:
        page.goto(url)
        page.get_by_role("button", name="Dark colours").click()
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        page.reload()
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_what_was_known_stays_while_the_server_is_away(browser: Browser, tmp_path: Path) -> None:
    with served(tmp_path, "one") as (url, _):
        context = browser.new_context()
        page = context.new_page()
        page.goto(url)
        page.get_by_role("table", name="Streams").wait_for()
        context.set_offline(True)
        page.get_by_text("does not answer").wait_for()
        assert page.get_by_role("link", name="orders").is_visible()
        context.set_offline(False)
        page.get_by_text("does not answer").wait_for(state="detached")
        context.close()


def test_a_narrow_window_needs_no_scrolling_sideways(browser: Browser, tmp_path: Path) -> None:
    with served(tmp_path, "one") as (url, _), window(browser, url, width=420) as page:
        page.goto(f"{url}/#/streams/orders")
        page.locator("svg .box").first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 420
        picture(page, tmp_path, "narrow")
