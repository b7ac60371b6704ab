"""The connectors beside the streams: what they do, and that a Kafka Connect that is away is told soon."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from deltaworks.config import Values
from deltaworks.connect import project
from deltaworks.connect.api import ConnectApi, Patience
from deltaworks.connect.slots import Slot
from deltaworks.connectors import slots
from deltaworks.connectors.overview import PATIENCE, Connectors, ConnectorStatus, overview
from deltaworks.connectors.supervision import supervise
from deltaworks.control.connector_book import ConnectorBook
from deltaworks.control.incident_book import IncidentBook
from deltaworks.errors import ControlUnavailableError
from deltaworks.settings import Settings
from tests.support.connector_book import BookInMemory
from tests.support.fake_connect import FILE_SOURCE, POSTGRES, WORKER, FakeConnect, fake_connect

CDC = """\
from deltaworks.connect import DebeziumPostgres

connector = DebeziumPostgres(
    name="cdc", hostname="db", user="cdc", password={"env": "PW"}, dbname="shop", topic_prefix="shop"
)
"""
LINES = {"name": "lines", "connector.class": FILE_SOURCE, "tasks.max": "1", "file": "/lines.txt", "topic": "lines"}


class World:
    """A project with a connector, whose Kafka Connect is a fake one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, fake: FakeConnect) -> None:
        self.folder = folder / "jobs" / "connectors"
        self.folder.mkdir(parents=True)
        (self.folder / "lines.json").write_text(json.dumps(LINES))
        values = Values({}, tables={("connect", ""): {"url": fake.url}})
        self.settings = replace(Settings.from_environment({}), project=folder, values=values)
        self.fake, self.book = fake, BookInMemory()
        self.incidents: dict[str, int] = {}
        monkeypatch.setattr(ConnectorBook, "of", lambda settings: self.book)
        monkeypatch.setattr(IncidentBook, "of", lambda settings: self)

    def open_counts_of_connectors(self) -> dict[str, int]:
        return self.incidents

    @property
    def only(self) -> ConnectorStatus:
        (one,) = overview(self.settings).connectors
        return one


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[World]:
    with fake_connect() as fake:
        yield World(monkeypatch, tmp_path, fake)


def test_a_connector_that_runs(world: World) -> None:
    world.fake.add("lines", LINES, tasks=2)
    world.fake.add("theirs", LINES)
    world.book.deployed("lines", LINES, cluster="c", by="me")
    world.incidents = {"lines": 1, "theirs": 2}

    assert world.only == ConnectorStatus(
        name="lines", desired="running", state="RUNNING", tasks=2, running_tasks=2, differs=False, type="source",
        workers=(WORKER, WORKER), incidents=1, failed=False, gave_up=False, deployed_s=0.0, danger="none",
    )  # fmt: skip


def test_one_that_has_failed_says_why_in_one_line_without_secrets(world: World) -> None:
    world.fake.add("lines", LINES, tasks=2)
    world.fake.fail("lines", 1, "java.io.IOException: no, password=s3cret\n\tat x")

    found = world.only

    assert (found.tasks, found.running_tasks, found.failed_tasks) == (2, 1, 1)
    assert found.reason is not None and found.reason.startswith("java.io.IOException: no")
    assert "s3cret" not in found.reason and "\n" not in found.reason

    world.book.deployed("lines", LINES, cluster="c", by="me")
    world.book.rows["lines"].gave_up = "5 restarts in a row have not helped"
    assert world.only.reason == "nothing restarts it: 5 restarts in a row have not helped"
    assert (world.only.failed, world.only.gave_up) == (True, True)


def test_one_that_is_not_there_or_not_as_its_file_says(world: World) -> None:
    assert (world.only.state, world.only.reason) == ("MISSING", "it was not deployed yet")
    world.book.deployed("lines", LINES, cluster="c", by="me")
    assert (world.only.state, world.only.reason) == ("MISSING", "Kafka Connect does not have it")

    world.fake.add("lines", {**LINES, "topic": "by-hand"})
    assert (world.only.differs, world.only.reason) == (True, "it is not as its file says: topic")


def test_one_with_a_broken_file_keeps_no_other_from_being_shown(world: World) -> None:
    world.fake.add("lines", LINES)
    (world.folder / "broken.json").write_text("{")

    broken, lines = overview(world.settings).connectors

    assert (broken.name, broken.state) == ("broken", "MISSING")
    assert "jobs/connectors/broken.json cannot be read" in str(broken.reason)
    world.fake.add("broken", LINES)
    assert overview(world.settings, "broken").connectors[0].differs is None
    assert (lines.state, lines.reason) == ("RUNNING", None)


def test_one_that_was_deployed_and_has_no_file_any_more_is_shown(world: World) -> None:
    world.fake.add("lines", LINES)
    world.book.deployed("lines", LINES, cluster="c", by="me")
    (world.folder / "lines.json").unlink()

    assert world.only.reason == "it has no file in jobs/connectors"
    assert world.only.differs is False, "nothing says what it should be"


def test_only_one_is_asked_for(world: World) -> None:
    assert overview(world.settings, "orders") == Connectors()
    assert world.fake.requests == []
    assert len(overview(world.settings, "lines").connectors) == 1


def test_a_worker_that_hangs_is_told_soon(world: World) -> None:
    world.fake.hangs = True
    begun = time.monotonic()

    found = overview(world.settings, patience=Patience(connect_s=1.0, answer_s=0.2, rebalance_s=0.0))

    assert time.monotonic() - begun < 2
    assert "has not answered" in str(found.problem)
    assert [(each.name, each.state) for each in found.connectors] == [("lines", "UNKNOWN")]


@pytest.mark.parametrize("table", [{}, {"url": "http://127.0.0.1:9"}])
def test_no_worker_is_told_and_no_error(world: World, table: dict[str, str]) -> None:
    found = overview(replace(world.settings, values=Values({}, tables={("connect", ""): table})))

    assert found.problem is not None
    assert found.connectors[0].state == "UNKNOWN"


def test_without_the_registry_the_rest_is_shown(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def away() -> None:
        raise ControlUnavailableError("The registry does not answer")

    world.fake.add("lines", LINES)
    monkeypatch.setattr(world.book, "records", away)

    assert (world.only.state, world.only.desired) == ("RUNNING", None)
    assert world.only.gave_up is None


def test_a_slot_in_danger_is_the_reason_that_is_shown(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    (world.folder / "cdc.py").write_text(CDC)
    world.fake.add("cdc", {"connector.class": POSTGRES})
    monkeypatch.setattr(slots, "look", lambda *_: Slot(name="cdc", wal_status="lost"))

    found = {each.name: each for each in overview(world.settings).connectors}

    assert str(found["cdc"].reason).startswith("its replication slot 'cdc' is lost: no restart helps")
    assert (found["cdc"].danger, found["lines"].danger) == ("lost", "none")
    assert found["lines"].reason == "it was not deployed yet"


def test_a_source_is_behind_its_database_by_what_its_slot_says(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    (world.folder / "cdc.py").write_text(CDC)
    world.fake.add("cdc", {"connector.class": POSTGRES})
    slot = Slot(name="cdc", wal_status="reserved", behind_bytes=4_096)
    monkeypatch.setattr(slots, "look", lambda *_: slot)

    def shown() -> ConnectorStatus:
        return next(each for each in overview(world.settings).connectors if each.name == "cdc")

    assert (shown().lag_bytes, shown().danger) == (4_096, "none")
    slot = Slot(name="cdc", known=False)
    assert (shown().lag_bytes, shown().danger) == (None, None), "its database does not answer now"


def test_what_counts_as_failed_is_what_opens_an_incident(world: World) -> None:
    """The alerts are about `failed`, the notices about what `supervise` finds."""

    def found() -> tuple[bool | None, bool | None]:
        """Of the metrics, and of the notices; None: it is not known, so what is open stays open."""
        failed = world.only.failed
        with ConnectApi.of(world.settings, PATIENCE) as api:
            supervised = supervise(api, project.load_each(world.settings), world.book)
        opens = {each.kind: each.opens for each in supervised.findings}
        return failed, (opens["connector_failed"] or None) if "connector_failed" in opens else False

    world.fake.add("lines", LINES, tasks=2)
    assert found() == (False, False)
    world.fake.fail("lines", 1, "java.io.IOException: no")
    assert found() == (True, True)
    world.fake.fail("lines", 1, "java.io.IOException: no")
    world.fake.connectors["lines"].state = "PAUSED"
    assert found() == (False, False)
    world.fake.add("lines", LINES).state = "UNASSIGNED"
    assert found() == (None, None)
    world.book.deployed("lines", LINES, cluster=world.fake.cluster, by="me")
    del world.fake.connectors["lines"]
    assert found() == (True, True)
    del world.fake.connectors["lines"]
    world.book.desire("lines", "paused", by="me")
    assert found() == (False, False)
