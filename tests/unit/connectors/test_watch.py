"""A look at the connectors of a project: what is recorded of it, and when there is nothing to look at."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from deltaworks.config import Values
from deltaworks.connect.api import ConnectApi
from deltaworks.connectors import dead_letters
from deltaworks.connectors import watch as watching
from deltaworks.connectors.watch import watch
from deltaworks.control.connector_book import ConnectorBook
from deltaworks.control.incident_book import IncidentBook
from deltaworks.control.incidents import OF_CONNECTORS, Count, Finding, Incident, Kind, increase
from deltaworks.errors import ConfigurationError, ConnectUnavailableError, KafkaReadError
from deltaworks.kafka import admin
from deltaworks.settings import Settings
from tests.support.connector_book import BookInMemory
from tests.support.fake_connect import FILE_SOURCE, FakeConnect, fake_connect

LINES = {"connector.class": FILE_SOURCE, "tasks.max": "1", "file": "/lines.txt", "topic": "lines"}


class Incidents:
    """Takes notes of what is recorded."""

    found: Sequence[Finding] = ()
    looked_at: Any
    how: Any

    def dead_letters_of_sinks(self, counts: dict[str, Count], deployed_s: dict[str, float]) -> dict[str, int]:
        """As if it were the first look."""
        return {name: increase([each], None, deployed_s[name]) for name, each in counts.items()}

    def settle(self, found: Sequence[Finding], looked_at: Any, how: Any) -> None:
        self.found, self.looked_at, self.how = found, looked_at, how

    @property
    def open(self) -> list[tuple[str, str]]:
        return [(each.pipeline, each.kind) for each in self.found if each.opens]

    @property
    def kept(self) -> list[tuple[str, str]]:
        return [(each.pipeline, each.kind) for each in self.found if not each.opens]


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
        watch(world.settings, away_s=0.5)

    assert len(world.fake.requests) > 1, "it is asked again before that is an incident"
    assert world.incidents.open == [("", "connect_away")]
    assert "down" in world.incidents.found[0].what
    assert not world.incidents.looked_at(incident("connector_failed"))


def test_a_worker_that_restarts_is_no_incident(world: World) -> None:
    world.fake.add("lines", {**LINES, "name": "lines"})
    world.fake.next = [(500, "down")] * 2

    assert watch(world.settings, away_s=5.0) is not None
    assert not world.incidents.found


def test_a_project_without_connectors_asks_nobody(world: World) -> None:
    world.file.unlink()

    assert watch(world.settings) is None
    assert world.fake.requests == []
    assert world.incidents.looked_at(incident("connector_failed")), "what was open of them is over"


def test_a_project_that_does_not_say_where_kafka_connect_is_is_told(world: World) -> None:
    with pytest.raises(ConfigurationError, match="do not say where Kafka Connect is"):
        watch(replace(world.settings, values=Values({})))


SINK = {**LINES, "errors.deadletterqueue.topic.name": "failed"}


class Broker:
    """Has one topic, to which a sink writes what fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cluster: str) -> None:
        self.cluster, self.id, self.ends = cluster, "a", (0, 0)
        self.is_away = False
        monkeypatch.setattr(admin, "cluster_id", lambda kafka, timeout_s: self._cluster())
        monkeypatch.setattr(admin, "admin", lambda kafka: None)
        monkeypatch.setattr(admin, "topic_ids", lambda client, topics: {"failed": self.id} if self.id else {})
        monkeypatch.setattr(
            admin,
            "end_offsets",
            lambda kafka, topics: {(topic, n): end for topic in topics for n, end in enumerate(self.ends)},
        )

    def _cluster(self) -> str:
        if self.is_away:
            raise KafkaReadError("The broker does not answer.")
        return self.cluster


@pytest.fixture
def broker(world: World, monkeypatch: pytest.MonkeyPatch) -> Broker:
    world.file.write_text(json.dumps({"name": "lines", "config": SINK}))
    world.fake.add("lines", {**SINK, "name": "lines"})
    return Broker(monkeypatch, world.fake.cluster)


def test_dead_letters_of_a_sink_are_an_incident(world: World, broker: Broker) -> None:
    watch(world.settings)
    assert not world.incidents.found

    broker.ends = (2, 1)
    watch(world.settings)

    assert world.incidents.open == [("lines", "sink_dead_letters")]
    assert world.incidents.found[0].what == "3 records have become dead letters within an hour"


def test_it_is_one_from_the_number_on_that_the_file_says(
    world: World, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # of a file that is as long and of the same second
    module = (
        "from deltaworks.connect import Connector\n"
        "connector = Connector(name='lines', class_={!r}, config={!r}, dead_letters_alert={})\n"
    )
    config = {name: value for name, value in SINK.items() if name not in ("connector.class", "tasks.max")}
    world.file.unlink()
    broker.ends = (2, 1)
    for n, (limit, opens, keeps) in enumerate([("3", 1, 0), ("4", 0, 1), ("None", 0, 0)]):
        world.file.with_suffix(".py").write_text(module.format(FILE_SOURCE, config, limit))
        for name in [each for each in sys.modules if each.split(".")[0] == "jobs"]:
            del sys.modules[name]
        importlib.invalidate_caches()
        watch(world.settings)
        assert (n, len(world.incidents.open), len(world.incidents.kept)) == (n, opens, keeps)


@pytest.mark.parametrize("what", ["away", "another cluster"])
def test_while_they_cannot_be_counted_nothing_is_over(world: World, broker: Broker, what: str) -> None:
    broker.is_away, broker.cluster = what == "away", what

    watch(world.settings)

    assert (world.incidents.open, world.incidents.kept) == ([], [("lines", "sink_dead_letters")])


def test_those_of_a_sink_that_rests_are_none(world: World, broker: Broker) -> None:
    broker.ends = (2, 1)
    world.fake.connectors["lines"].state = "STOPPED"

    watch(world.settings)

    assert world.incidents.found == []
    assert world.incidents.how(incident("sink_dead_letters")) == "it was paused, stopped or deleted"


def test_a_topic_that_was_made_anew_is_another_one(world: World, broker: Broker) -> None:
    def counted() -> Count:
        with ConnectApi.of(world.settings) as api:
            return dead_letters.so_far(world.settings.cluster, api, {"lines": SINK})["lines"]

    broker.ends = (5, 1)
    first, broker.id = counted(), ""
    none, broker.id, broker.ends = counted(), "b", (2, 0)

    assert (first.dead_letters, none.dead_letters, counted().dead_letters) == (6, 0, 2)
    assert increase([counted()], first, 9e9) == 2
