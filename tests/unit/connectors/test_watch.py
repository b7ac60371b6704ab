"""A look at the connectors of a project: what is recorded of it, and when there is nothing to look at."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from deltaworks.config import Values
from deltaworks.connectors import watch as watching
from deltaworks.connectors.watch import watch
from deltaworks.control.connector_book import ConnectorBook
from deltaworks.control.incident_book import IncidentBook
from deltaworks.control.incidents import OF_CONNECTORS, Finding, Incident, Kind
from deltaworks.errors import ConfigurationError, ConnectUnavailableError
from deltaworks.settings import Settings
from tests.support.connector_book import BookInMemory
from tests.support.fake_connect import FILE_SOURCE, FakeConnect, fake_connect

LINES = {"connector.class": FILE_SOURCE, "tasks.max": "1", "file": "/lines.txt", "topic": "lines"}


class Incidents:
    """Takes notes of what is recorded."""

    found: Sequence[Finding] = ()
    looked_at: Any
    how: Any

    def settle(self, found: Sequence[Finding], looked_at: Any, how: Any) -> None:
        self.found, self.looked_at, self.how = found, looked_at, how

    @property
    def open(self) -> list[tuple[str, str]]:
        return [(each.pipeline, each.kind) for each in self.found if each.opens]


class World:
    """A project with a connector, whose Kafka Connect is a fake one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, fake: FakeConnect) -> None:
        (folder / "jobs" / "connectors").mkdir(parents=True)
        self.file = folder / "jobs" / "connectors" / "lines.json"
        self.file.write_text(json.dumps({"name": "lines", "config": LINES}))
        values = Values({}, tables={("connect", ""): {"url": fake.url}})
        self.settings = replace(Settings.from_environment({}), project=folder, values=values)
        self.fake, self.book, self.incidents = fake, BookInMemory(), Incidents()
        monkeypatch.setattr(ConnectorBook, "of", lambda settings: self.book)
        monkeypatch.setattr(IncidentBook, "of", lambda settings: self.incidents)
        monkeypatch.setattr(watching, "_AGAIN_S", 0.01)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[World]:
    with fake_connect() as fake:
        yield World(monkeypatch, tmp_path, fake)


def incident(kind: Kind, name: str = "lines") -> Incident:
    return Incident(id=1, pipeline=name, kind=kind, what="so it is", opened_at=datetime(2026, 1, 1, tzinfo=UTC))


def test_what_is_found_is_recorded_and_what_is_over_ends(world: World) -> None:
    world.fake.add("lines", {**LINES, "name": "lines"})
    world.fake.fail("lines", 0, "java.io.IOException: no such file")

    (decision,) = watch(world.settings) or ()

    assert (decision.name, decision.action) == ("lines", "restart")
    assert world.incidents.open == [("lines", "connector_failed")]
    for kind in (*sorted(OF_CONNECTORS), "connect_away"):
        assert world.incidents.looked_at(incident(kind))
    assert not world.incidents.looked_at(incident("failed"))
    assert world.incidents.how(incident("connector_failed")) == "it has recovered"
    assert world.incidents.how(incident("connector_failed", "gone")) == "it was paused, stopped or deleted"


def test_a_worker_that_does_not_answer_is_an_incident_of_the_home_and_ends_no_other(world: World) -> None:
    world.fake.next = [(500, "down")] * 100

    with pytest.raises(ConnectUnavailableError):
        watch(world.settings, away_s=0.05)

    assert len(world.fake.requests) > 1, "it is asked again before that is an incident"
    assert world.incidents.open == [("", "connect_away")]
    assert "down" in world.incidents.found[0].what
    assert not world.incidents.looked_at(incident("connector_failed"))


def test_a_worker_that_restarts_is_no_incident(world: World) -> None:
    world.fake.add("lines", {**LINES, "name": "lines"})
    world.fake.next = [(500, "down")] * 2

    assert watch(world.settings, away_s=5.0) is not None
    assert world.incidents.found == ()


def test_a_project_without_connectors_asks_nobody(world: World) -> None:
    world.file.unlink()

    assert watch(world.settings) is None
    assert world.fake.requests == []
    assert world.incidents.looked_at(incident("connector_failed")), "what was open of them is over"


def test_a_project_that_does_not_say_where_kafka_connect_is_is_told(world: World) -> None:
    with pytest.raises(ConfigurationError, match="do not say where Kafka Connect is"):
        watch(replace(world.settings, values=Values({})))
