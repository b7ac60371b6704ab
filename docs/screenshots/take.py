"""Takes the pictures of Airflow's pages that are in the documentation, with the Chromium of the system.

After `make demo`, while `orders` runs: `make screenshots`, or `make screenshots PICTURES="form supervise"` for some.
Writes the `.png` files beside this one. Shows what is there: it starts and stops nothing. The pictures of questions are
from `make check-operators PICTURES=docs/screenshots`, where somebody asks them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from deltaworks.settings import Settings
from deltaworks.stack.airflow import credentials
from deltaworks.stack.airflow_api import AirflowApi
from tests.support.browser import DIALOG, Person, chromium

HERE = Path(__file__).parent
STREAM, RECONCILE = "orders__stream", "streams__reconcile"
REPLAY, LETTERS = "orders__replay", "streams__dead_letters"


def main(names: Sequence[str]) -> None:
    """Logs in and takes them."""
    login = credentials(Settings.from_environment())
    with chromium() as browser:
        admin = Person(browser, login.url, login.file, login.user)
        for name in names or PICTURES:
            PICTURES[name](admin)
            file = HERE / f"{name.replace('_', '-')}.png"
            print(f"{file.name}: {file.stat().st_size // 1000} kB")


def dag_list(admin: Person) -> None:
    admin.see("/dags", STREAM)
    take(admin, "dag-list", height=760)


def supervise(admin: Person) -> None:
    run = latest_run(STREAM, "running")
    admin.see(f"/dags/{STREAM}/runs/{run}/tasks/supervise", "records/s")  # said once a minute
    take(admin, "supervise", height=640)


def reconcile(admin: Person) -> None:
    admin.see(f"/dags/{RECONCILE}/runs/{latest_run(RECONCILE, 'success')}/tasks/look", "generation")
    take(admin, "reconcile", height=560)


def form(admin: Person) -> None:
    admin.form(STREAM, {})
    take(admin, "form", height=1120, only=DIALOG)


def replay_form(admin: Person) -> None:
    admin.form(REPLAY, {"reason": "amounts counted twice"})
    take(admin, "replay-form", height=1700, only=DIALOG)


def dead_letters_form(admin: Person) -> None:
    admin.form(LETTERS, {"pipeline": "orders", "action": "send"})
    take(admin, "dead-letters-form", height=1240, only=DIALOG)


PICTURES = {shot.__name__: shot for shot in (dag_list, supervise, reconcile, form, replay_form, dead_letters_form)}


def latest_run(dag_id: str, state: str) -> str:
    """The id of the newest run in that state, for an address."""
    with AirflowApi.of(Settings.from_environment()) as airflow:
        found = next((run.dag_run_id for run in airflow.runs(dag_id) if run.state == state), None)
    if found is None:
        sys.exit(f"No run of {dag_id} is in the state {state!r}: is the stack up, and the stream deployed?")
    return quote(found, safe="")


def take(admin: Person, name: str, **how: Any) -> None:
    """The whole window, or one part of it."""
    admin.picture(HERE / f"{name}.png", **how)


if __name__ == "__main__":
    main(sys.argv[1:])
