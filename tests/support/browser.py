"""Airflow's pages in a real Chromium, as the people who use them see them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest
from playwright.sync_api import Browser, Locator, Page, TimeoutError, sync_playwright

WIDTH, HEIGHT = 1360, 900
DIALOG = "[role=dialog][data-state=open]:visible"
_TIMEOUT_MS = 120_000
_SETTLED_MS = 1500
"""Fades and charts."""
_QUIET = ("--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run")


@contextmanager
def chromium() -> Iterator[Browser]:
    """The Chromium of the system; a test without one fails."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.fail("There is no Chromium on the PATH. Debian, Ubuntu: apt install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu", "--force-color-profile=srgb", *_QUIET]
        )
        yield browser
        browser.close()


class Person:
    """Somebody who is logged in to Airflow, with a window of their own.

    Args:
        browser: where the window is opened.
        url: of Airflow.
        passwords: the file with everybody's password.
        name: of the person.
    """

    def __init__(self, browser: Browser, url: str, passwords: Path, name: str) -> None:
        self.url, self.name = url, name
        context = browser.new_context(
            viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light", timezone_id="UTC"
        )
        self.page: Page = context.new_page()
        self.page.set_default_timeout(_TIMEOUT_MS)
        self.page.goto(url)
        self.page.fill("input[name=username]", name)
        self.page.fill("input[name=password]", json.loads(passwords.read_text())[name])
        self.page.click("button[type=submit]")
        self.page.wait_for_selector("[data-testid=nav-sidebar]")

    def see(self, path: str, text: str) -> None:
        """Opens a page, and waits until a text is on it."""
        self.page.goto(path if path.startswith("http") else f"{self.url}{path}")
        try:
            self.page.get_by_text(text).filter(visible=True).first.wait_for()
        except TimeoutError as error:
            shown = self.page.locator("body").inner_text()
            raise AssertionError(f"{text!r} is not on {self.page.url}, which shows: {shown[:2_000]}") from error

    def stream(self, name: str, text: str) -> str:
        """Opens the page of a stream by Airflow's menu, and waits until a text is on it; all that it shows."""
        self.page.goto(self.url)
        self.page.get_by_text("Browse").first.click()
        self.page.get_by_text("Streams", exact=True).filter(visible=True).first.click()
        page = self.page.frame_locator("iframe")
        page.get_by_role("link", name=name, exact=True).click()
        page.get_by_text(text).filter(visible=True).first.wait_for()
        return page.locator("body").inner_text()

    def form(self, dag_id: str, fields: Mapping[str, str]) -> Locator:
        """Opens the form of a DAG and fills fields of it, lists by the text of an entry; the dialog."""
        self.page.goto(f"{self.url}/dags/{dag_id}")
        self.page.get_by_role("button", name="Trigger").first.click()
        dialog = self.page.locator(DIALOG).last
        dialog.get_by_test_id("trigger-dag-submit").wait_for()
        for name, value in fields.items():
            field = dialog.locator(f"[name=element_{name}]")
            field.wait_for(state="attached")
            choice = field.locator("xpath=..").locator("input[role=combobox]")
            if choice.count():
                choice.fill(value)
                choice.press("Enter")
            else:
                field.fill(value)
        return dialog

    def trigger(self, dag_id: str, fields: Mapping[str, str]) -> str:
        """Fills the form of a DAG and starts a run; its id, which is in the address of the page that opens."""
        self.form(dag_id, fields).get_by_test_id("trigger-dag-submit").click()
        self.page.wait_for_url(f"**/dags/{dag_id}/runs/**")
        return unquote(self.page.url.split("/runs/")[1].split("/")[0].split("?")[0])

    def is_refused(self, dag_id: str, fields: Mapping[str, str]) -> None:
        """Tries to start a run, and waits until the form says that this role may not."""
        dialog = self.form(dag_id, fields)
        dialog.get_by_test_id("trigger-dag-submit").click()
        dialog.get_by_text("403").first.wait_for()

    def question(self, dag_id: str, run: str, task: str = "approve") -> None:
        """Opens the page on which a task asks."""
        where = f"{self.url}/dags/{dag_id}/runs/{quote(run, safe='')}/tasks/{task}/required_actions"
        self.page.goto(where)
        self.page.get_by_role("button", name="Approve").first.wait_for()

    def answer(self, option: str) -> int:
        """Answers the question on the page; the status of the answer of the server."""
        button = self.page.get_by_role("button", name=option).first
        with self.page.expect_response(lambda response: "hitlDetails" in response.url and _changes(response)) as sent:
            button.click()
        return int(sent.value.status)

    def picture(self, file: Path, *, height: int = HEIGHT, only: str | None = None) -> None:
        """Writes a picture of the page, or of one part of it, when it has settled."""
        self.page.set_viewport_size({"width": WIDTH, "height": height})
        self.page.wait_for_load_state("networkidle")
        self.page.wait_for_timeout(_SETTLED_MS)
        part: Any = self.page.locator(only).last if only else self.page
        part.screenshot(path=file)


def _changes(response: Any) -> bool:
    return response.request.method in ("PATCH", "POST")
