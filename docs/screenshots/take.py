# /// script
# requires-python = ">=3.11"
# dependencies = ["playwright==1.65.2"]
# ///
"""Takes the pictures of Airflow's pages that are in the documentation, with the Chromium of the system.

After `make demo`, while `orders` runs:

    uv run --no-project docs/screenshots/take.py http://127.0.0.1:19080 .deltaworks/airflow/passwords.json [NAME]...

Without names all; `replay_approval` needs a run of `orders__replay` that waits for its approval. Needs `chromium` on
the path. Writes the `.png` files beside this one. Shows what is there: it starts and stops nothing.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from playwright.sync_api import Page, sync_playwright

HERE = Path(__file__).parent
WIDTH = 1360
STREAM, RECONCILE = "orders__stream", "streams__reconcile"
REPLAY, QUALITY = "orders__replay", "orders__quality"
DIALOG = "[role=dialog][data-state=open]:visible"


def main(url: str, passwords: Path, names: Sequence[str]) -> None:
    """Logs in and takes them."""
    user, password = next(iter(json.loads(passwords.read_text()).items()))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox", "--disable-gpu", "--force-color-profile=srgb"],
        )
        page = browser.new_page(viewport={"width": WIDTH, "height": 720}, color_scheme="light", timezone_id="UTC")
        page.set_default_timeout(30_000)
        page.goto(url)
        page.fill("input[name=username]", user)
        page.fill("input[name=password]", password)
        page.click("button[type=submit]")
        page.wait_for_selector("[data-testid=nav-sidebar]")
        for name in names or PICTURES:
            PICTURES[name](page, url)
        browser.close()


def dag_list(page: Page, url: str) -> None:
    page.goto(f"{url}/dags")
    page.get_by_text(STREAM).first.wait_for()
    take(page, "dag-list", height=600)


def supervise(page: Page, url: str) -> None:
    page.goto(f"{url}/dags/{STREAM}/runs/{latest_run(page, url, STREAM, 'running')}/tasks/supervise")
    page.get_by_text("records/s").first.wait_for(timeout=120_000)  # said once a minute
    take(page, "supervise", height=640)


def reconcile(page: Page, url: str) -> None:
    page.goto(f"{url}/dags/{RECONCILE}/runs/{latest_run(page, url, RECONCILE, 'success')}/tasks/look")
    page.get_by_text("generation").first.wait_for()
    take(page, "reconcile", height=560)


def form(page: Page, url: str) -> None:
    page.goto(f"{url}/dags/{STREAM}")
    page.get_by_role("button", name="Trigger").first.click()
    page.get_by_text("Trigger interval in seconds").first.wait_for()
    take(page, "form", height=1120, only=DIALOG)


def replay_form(page: Page, url: str) -> None:
    page.goto(f"{url}/dags/{REPLAY}")
    page.get_by_role("button", name="Trigger").first.click()
    page.get_by_text("First UTC day to publish").first.wait_for()
    take(page, "replay-form", height=1240, only=DIALOG)


def replay_approval(page: Page, url: str) -> None:
    waiting = latest_run(page, url, REPLAY, "running")
    page.goto(f"{url}/dags/{REPLAY}/runs/{waiting}/tasks/approve/required_actions")
    page.get_by_text("What would change").first.wait_for()
    take(page, "replay-approval", height=1240)


def quality(page: Page, url: str) -> None:
    page.goto(f"{url}/dags/{QUALITY}")
    page.get_by_text("check").first.wait_for()
    take(page, "quality", height=600)


PICTURES = {
    shot.__name__: shot for shot in (dag_list, supervise, reconcile, form, replay_form, replay_approval, quality)
}


def latest_run(page: Page, url: str, dag_id: str, state: str) -> str:
    """The id of the newest run in that state, for an address."""
    answer = page.request.get(f"{url}/api/v2/dags/{dag_id}/dagRuns?state={state}&order_by=-run_after&limit=1")
    runs: list[dict[str, Any]] = answer.json()["dag_runs"]
    if not runs:
        sys.exit(f"No run of {dag_id} is in the state {state!r}: is the stack up, and the stream deployed?")
    return quote(str(runs[0]["dag_run_id"]), safe="")


def take(page: Page, name: str, *, height: int, only: str | None = None) -> None:
    """When the page has settled; the whole window, or one part of it."""
    page.set_viewport_size({"width": WIDTH, "height": height})
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(1500)  # fades and charts
    part = page.locator(only).last if only else page
    part.screenshot(path=HERE / f"{name}.png")
    print(f"{name}.png: {(HERE / f'{name}.png').stat().st_size // 1000} kB")


if __name__ == "__main__":
    main(sys.argv[1].rstrip("/"), Path(sys.argv[2]), sys.argv[3:])
