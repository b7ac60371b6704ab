"""The page of the streams over homes that nobody runs, served in a thread: empty, one, forty, failing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread
from typing import Any
from unittest.mock import patch

import msgspec
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from deltaworks.control import seen as shared
from deltaworks.control.incidents import Incident
from deltaworks.control.model import Deployment, DeployOptions, Overview
from deltaworks.kernel.records import DeadLetter
from deltaworks.lakehouse.committer import TableCommitter
from deltaworks.lakehouse.task_tables import TaskTables
from deltaworks.settings import Settings
from deltaworks.topology.records import Coordinates
from deltaworks.ui import reading
from deltaworks.ui.access import Access
from deltaworks.ui.app import Place, Who, application, by_token
from deltaworks.ui.history import Watch
from deltaworks.ui.reading import Reader
from tests.support.homes import Stream, settings_of

ROOT = Path(__file__).parents[2]
REASON = (
    "ValueError: the amount '12,50' is no number\n  orders-0@81204 at join-user (jobs/orders.py:41)\n"
    "  Hint: set the record aside, or fix the code"
)
KINDS = ("clicks", "orders", "invoices", "ads", "deliveries", "fraud", "inventory", "payments")


def empty(settings: Settings, watch: Watch) -> None:
    """Nothing."""


def one(settings: Settings, watch: Watch) -> None:
    """A stream that runs, whose code is a job of this project, with six hours behind it."""
    stream = Stream(settings, "orders", rate=1_180.0, topics=("raw-orders", "user-data"), entries=412_000)
    for beat in stream.past(6.0, 15.0):
        watch.take("orders", beat)
    stream.beats()
    _dead_letters(settings)


def forty(settings: Settings, watch: Watch) -> None:
    """Forty streams: most run, some do not."""
    for number in range(40):
        name = f"{KINDS[number % len(KINDS)]}-{('eu', 'us', 'apac', 'test', 'old')[number // len(KINDS)]}"
        stream = Stream(
            settings, name, rate=7.0 * (number + 1) ** 1.4, lag_s=0.2 + 0.05 * number, entries=1_700 * number
        )
        stream.beats()
        if number % 13 == 9:
            stream.fails(REASON)


def failing(settings: Settings, watch: Watch) -> None:
    """One that has failed, beside one that runs."""
    one(settings, watch)
    Stream(settings, "clicks", rate=90.0).beats()
    Stream(settings, "orders", rate=1_180.0, topics=("raw-orders", "user-data")).fails(REASON)


SCENES: Mapping[str, Callable[[Settings, Watch], None]] = {
    "empty": empty,
    "one": one,
    "forty": forty,
    "failing": failing,
}


class Between:
    """Stands between a browser and the server, and spoils answers below `/api/` when it is told to."""

    def __init__(self) -> None:
        self.spoil: Spoiled | None = None
        self.asked: list[str] = []
        """The paths, in order."""
        self._app: ASGIApp | None = None

    def before(self, app: ASGIApp) -> Between:
        """Passes requests on to an application."""
        self._app = app
        return self

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert self._app is not None
        spoil = None
        if scope["type"] == "http" and scope["path"].startswith("/api/"):
            self.asked.append(scope["path"])
            spoil = self.spoil
        if spoil is None:
            await self._app(scope, receive, send)
            return
        headers = [(b"content-type", spoil.kind.encode()), *spoil.headers]
        await send({"type": "http.response.start", "status": spoil.status, "headers": headers})
        await send({"type": "http.response.body", "body": spoil.body})


@dataclass(frozen=True)
class Spoiled:
    """What comes instead of an answer."""

    body: bytes
    kind: str = "application/json"
    status: int = 200
    headers: tuple[tuple[bytes, bytes], ...] = ()


@contextmanager
def served(
    folder: Path, scene: str, *, who: Who | None = None, between: Between | None = None, **place: Any
) -> Iterator[tuple[str, str]]:
    """The address of the page, and the token of an operator.

    Args:
        folder: gets a home.
        scene: one of `SCENES`.
        who: says who asks; None: tokens do.
        between: stands before the server.
        place: what differs from a page on a machine of its own.
    """
    settings = settings_of(folder / "home", ROOT)
    watch = Watch(settings)
    SCENES[scene](settings, watch)
    access, token = Access.for_this_machine()
    at = Place(**{"airflow": "http://127.0.0.1:9/flow", **place})
    app: ASGIApp = application(Reader(settings, watch), watch, who or by_token(access), at)
    if between is not None:
        app = between.before(app)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical", access_log=False))
    thread = Thread(target=server.run, daemon=True)
    with patch.object(reading, "seen", _told), patch.object(reading, "IncidentBook", _Book):
        thread.start()
        while not server.started:
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        try:
            yield f"http://127.0.0.1:{port}", token
        finally:
            server.should_exit = True
            thread.join(10)


def _told(settings: Settings, name: str | None = None) -> Overview:
    """As if a registry had deployments and incidents."""
    found = shared.seen(settings, name)
    failed = [each.name for each in found.pipelines if each.seen.state == "failed"]
    pipelines = [
        msgspec.structs.replace(
            each, desired="running", incidents=int(each.name in failed), restarts=2 * int(each.name in failed)
        )
        for each in found.pipelines
    ]
    deployments = [] if name is None else [_deployment(name, number, name in failed) for number in (3, 2, 1)]
    return msgspec.structs.replace(found, pipelines=pipelines, deployments=deployments, registry_problem=None)


def _deployment(name: str, number: int, failed: bool) -> Deployment:
    at = datetime.now(UTC) - timedelta(hours=7 * (4 - number))
    last = number == 3
    return Deployment(
        pipeline=name, generation=number, requested_by="airflow ada", requested_at=at, options=DeployOptions(),
        state=("failed" if failed else "running") if last else "superseded", exit_code=65 if last and failed else None,
        reason=REASON if last and failed else None, log="driver.log",
    )  # fmt: skip


class _Book:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @classmethod
    def of(cls, settings: Settings) -> _Book:
        return cls(settings)

    def listed(self, name: str) -> list[Incident]:
        seen = shared.seen(self._settings, name).pipelines[0]
        if seen.seen.state != "failed":
            return []
        at = datetime.now(UTC) - timedelta(minutes=12)
        return [
            Incident(id=1, pipeline=name, kind="failed", what="it ended with exit code 65", cause=REASON, opened_at=at)
        ]


def _dead_letters(settings: Settings) -> None:
    """Some in the table that the job of this project has for them."""
    root, table = settings.tables, "dead_letters"
    root.mkdir(parents=True, exist_ok=True)
    committer = TableCommitter(root, "orders", "live", (), table)
    committer.open(1)
    task = TaskTables(root, (), table, stage=0, task=0)
    task.begin(0)
    task.step(0)
    at_ms = int(time.time() * 1_000) - 900_000
    for number in range(3):
        task.dead_letter(
            DeadLetter(
                b"c-4711", b"{", (), at_ms + number * 60_000, Coordinates("raw-orders", number % 2, 81_204 + number),
                "ValueError", f"the amount '{number},50' is no number", "join-user", "at jobs/orders.py:41",
            )
        )  # fmt: skip
    committer.commit(0, task.finish())
    committer.publish_cut()
    committer.close()
