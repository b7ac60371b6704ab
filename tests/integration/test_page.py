"""The page of the streams in a real Chromium: what people see, light and dark, with the keyboard, as whom.

`PICTURES=folder python -m pytest tests/integration/test_page.py` keeps its pictures.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request

from tests.support.browser import chromium
from tests.support.page import SCENES, served

pytestmark = pytest.mark.slow
_TIMEOUT_MS = 60_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@contextmanager
def window(browser: Browser, url: str, *, theme: str = "light", width: int = 1440) -> Iterator[Page]:
    """A window; afterwards nothing was loaded from elsewhere, and the browser complained of nothing."""
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
        if message.type == "error" and "401" not in message.text and "409" not in message.text:
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


def test_a_wrong_token_is_asked_for_again(browser: Browser, tmp_path: Path) -> None:
    with served(tmp_path, "one") as (url, token), window(browser, url) as page:
        page.goto(f"{url}/#token=wrong")
        page.get_by_label("Token").fill(token)
        page.keyboard.press("Enter")
        page.get_by_role("table", name="Streams").wait_for()
        assert page.get_by_text("operator", exact=True).is_visible()


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
        page.get_by_text("There is no file").first.wait_for()  # of its code; all else is shown
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
