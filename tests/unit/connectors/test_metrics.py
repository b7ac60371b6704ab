"""What a scrape shows of connectors: the figures of `deltaworks status`, and how far sinks are behind."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from deltaworks.connect.api import ConnectApi
from deltaworks.connectors import lags, metrics
from deltaworks.connectors.dead_letters import SOON_S
from deltaworks.connectors.metrics import PREFIX, STATES, ConnectorMetrics, look
from deltaworks.connectors.overview import PATIENCE, Connectors, ConnectorStatus, overview
from deltaworks.errors import DeltaworksError, KafkaReadError, KafkaTopicError
from deltaworks.kafka import admin
from deltaworks.kafka.admin import Position
from tests.support.fake_connect import fake_connect
from tests.unit.connectors.test_overview import LINES, World

RUNS = ConnectorStatus(
    name="lines", desired="running", state="RUNNING", tasks=3, running_tasks=2, failed_tasks=1, restarts=4,
    differs=True, dead_letters=7, type="sink", workers=("a:1", "a:1", "b:1"), failed=True, gave_up=False,
    deployed_s=9.5, lag_records=11, lag_bytes=4_096, danger="none", dead_letters_ever=9, dead_letters_alert=2,
)  # fmt: skip


def samples(found: ConnectorMetrics) -> dict[str, float]:
    """Name without prefix, with the labels but the connector's name -> value."""
    return {
        sample.name.removeprefix(PREFIX)
        + "".join(v for k, v in sample.labels.items() if k != "connector"): sample.value
        for family in found.registry.collect()
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def test_a_scrape_shows_what_the_status_says() -> None:
    found = ConnectorMetrics()
    assert samples(found) == {}, "nobody has looked yet"

    found.take(Connectors(connectors=(RUNS,)))

    shown = samples(found)
    assert shown.pop("deltaworks_connect_looked_timestamp_seconds") > 1_700_000_000
    assert {name: value for name, value in shown.items() if not name.startswith("state")} == {
        "deltaworks_connect_up": 1, "tasks": 3, "running_tasks": 2, "failed_tasks": 1, "restarts": 4, "differs": 1,
        "dead_letters": 7, "lag_records": 11, "lag_bytes": 4_096, "moved_tasks_total": 0, "failed_records_total": 9,
        "failed": 1, "given_up": 0, "deployed_seconds": 9.5, "slot_endangered": 0, "slot_lost": 0,
        "alert_dead_letters": 2,
    }  # fmt: skip
    assert {name.removeprefix("state"): value for name, value in shown.items() if name.startswith("state")} == {
        state: float(state == "RUNNING") for state in STATES
    }


def test_tasks_that_are_found_elsewhere_have_moved() -> None:
    found = ConnectorMetrics()
    for workers in (("a", "a", "b"), (), ("a", "b", "b"), ("b", "b"), ("b", "b", "c")):
        found.take(Connectors(connectors=(replace(RUNS, workers=workers),)))

    assert samples(found)["moved_tasks_total"] == 2, "one while nothing was known; one that is new moves not"


def test_what_is_not_known_is_absent() -> None:
    found = ConnectorMetrics()
    away = ConnectorStatus(name="lines", desired="running", state="UNKNOWN", restarts=4, gave_up=True)
    found.take(Connectors(connectors=(away,), problem="it does not answer"))

    shown = samples(found)
    assert (shown["deltaworks_connect_up"], shown["stateUNKNOWN"]) == (0, 1)
    assert {name for name in shown if not name.startswith(("state", "deltaworks"))} == {
        "restarts", "given_up", "moved_tasks_total"
    }, "the registry knows some of it"  # fmt: skip

    found.take(Connectors(connectors=(replace(away, restarts=0, gave_up=None),), problem="it does not answer"))
    assert not {"restarts", "given_up"} & set(samples(found)), "neither does the registry answer"

    found.take(Connectors())
    assert "deltaworks_connect_up" not in samples(found), "a project without connectors needs no Kafka Connect"


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[World]:
    with fake_connect() as fake:
        yield World(monkeypatch, tmp_path, fake)


def test_a_look_asks_kafka_connect(world: World) -> None:
    found = ConnectorMetrics()
    world.fake.add("lines", LINES, tasks=2)
    world.fake.fail("lines", 1, "java.io.IOException: no")

    look(world.settings, found)

    shown, [status] = samples(found), overview(world.settings).connectors
    assert (shown["tasks"], shown["running_tasks"], shown["failed_tasks"]) == (2, 1, 1)
    assert (status.tasks, status.running_tasks, status.failed_tasks) == (2, 1, 1)


def offset(topic: str, partition: int, at: int | None) -> dict[str, object]:
    return {
        "partition": {"kafka_topic": topic, "kafka_partition": partition},
        "offset": None if at is None else {"kafka_offset": at},
    }


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lags, "require_cluster", lambda *_, **__: None)
    monkeypatch.setattr(admin, "admin", lambda _: None)
    monkeypatch.setattr(admin, "partition_counts_of", lambda *_, **__: {"orders": 2})

    def ends(kafka: object, topics: Sequence[str], *, timeout_s: float) -> dict[Position, int]:
        assert timeout_s == SOON_S, "a partition without a leader would let everybody wait"
        return {(topic, partition): 100 for topic in topics for partition in (0, 1)}

    monkeypatch.setattr(admin, "end_offsets", ends)


@pytest.mark.usefixtures("broker")
def test_the_lag_of_a_sink_is_what_it_has_not_committed(world: World) -> None:
    sink = world.fake.add("lines", LINES)
    sink.offsets = [offset("orders", 0, 90), offset("orders", 1, 100), offset("gone", 0, 5), offset("orders", 2, None)]
    found = ConnectorMetrics()

    look(world.settings, found)
    assert "lag_records" not in samples(found), "a source has none"

    sink.type = "sink"
    look(world.settings, found)
    assert samples(found)["lag_records"] == world.only.lag_records == 10


@pytest.mark.usefixtures("broker")
def test_sinks_that_would_take_too_long_are_not_asked(world: World) -> None:
    world.fake.add("lines", LINES).offsets = [offset("orders", 0, 90)]
    with ConnectApi.of(world.settings, PATIENCE) as api:
        assert lags.lags_soon(world.settings.cluster, api, ["lines"], within_s=-1.0) == {}


@pytest.mark.usefixtures("broker")
def test_sinks_that_were_not_asked_come_first_the_next_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("lines", "more", "rest"):
        (world.folder / f"{name}.json").write_text(json.dumps({**LINES, "name": name}))
        sink = world.fake.add(name, LINES)
        sink.type, sink.offsets = "sink", [offset("orders", 0, 90)]
    monkeypatch.setattr(lags, "clock", SimpleNamespace(ticks_s=count().__next__))  # each time, a second is over
    monkeypatch.setattr(metrics, "EVERY_S", 2.0)
    found = ConnectorMetrics()

    asked = [lagging(world, found) for _ in range(4)]

    assert asked == [{"lines", "more"}, {"rest", "lines"}, {"more", "rest"}, {"lines", "more"}]


def lagging(world: World, found: ConnectorMetrics) -> set[str]:
    """The sinks of which a look has found how far they are."""
    look(world.settings, found)
    families = {family.name: family for family in found.registry.collect()}
    return {sample.labels["connector"] for sample in families[f"{PREFIX}lag_records"].samples}


@pytest.mark.usefixtures("broker")
@pytest.mark.parametrize("error", [KafkaReadError("the broker does not answer"), KafkaTopicError("no topic 'orders'")])
def test_a_lag_that_is_not_known_is_left_out(
    world: World, monkeypatch: pytest.MonkeyPatch, error: DeltaworksError
) -> None:
    def away(*_: object, **__: object) -> None:
        raise error

    world.fake.add("lines", LINES).offsets = [offset("orders", 0, 90)]
    with ConnectApi.of(world.settings, PATIENCE) as api:
        assert lags.lags_soon(world.settings.cluster, api, ["lines", "nobody"], within_s=9) == {"lines": 10}
        monkeypatch.setattr(admin, "end_offsets", away)
        assert lags.lags_soon(world.settings.cluster, api, ["lines"], within_s=9) == {}
