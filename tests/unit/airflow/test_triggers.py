"""What the supervision of a stream sees, notes and says; with observations made up."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from deltaworks.airflow.access import Access
from deltaworks.airflow.triggers import StreamTrigger, progress
from deltaworks.control import actions, registry
from deltaworks.control.heartbeat import Heartbeat
from deltaworks.control.model import Observation, StreamState
from deltaworks.errors import ConfigurationError, ControlUnavailableError
from deltaworks.settings import Settings
from tests.unit.airflow.since import AIRFLOW_3_3


def seen(state: StreamState, reason: str | None = None, **more: Any) -> Observation:
    return Observation(pipeline="orders", generation=3, state=state, reason=reason, **more)


class World:
    """Answers the trigger's questions, in order; the last answer stays."""

    def __init__(self) -> None:
        self.answers: Iterator[Observation | Exception] = iter(())
        self.looks = 0
        self.notes: list[tuple[str, int, str]] = []
        self.registry_away = False
        self.registry_error: Exception | None = None

    def observe(self, settings: object, name: str, generation: int) -> Observation:
        self.looks += 1
        answer = next(self.answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def supervised(self, settings: object, name: str, generation: int, by: str) -> bool:
        if self.registry_error is not None:
            raise self.registry_error
        if not self.registry_away:
            self.notes.append((name, generation, by))
        return not self.registry_away


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    monkeypatch.setattr(actions, "observe", world.observe)
    monkeypatch.setattr(registry, "supervised", world.supervised)
    return world


def end_of(world: World, answers: Iterable[Observation | Exception]) -> dict[str, Any]:
    """Runs a trigger until it fires."""
    world.answers = iter(answers)
    trigger = StreamTrigger(pipeline="orders", generation=3, supervisor="run 7", poll_s=0.0)

    async def fire() -> dict[str, Any]:
        events = [event async for event in trigger.run()]
        assert len(events) == 1
        return dict(events[0].payload)

    return asyncio.run(fire())


@pytest.mark.parametrize("state", ["stopped", "superseded", "failed", "dead", "stalled"])
def test_it_fires_when_the_generation_has_ended(world: World, state: StreamState) -> None:
    event = end_of(world, [seen("running"), seen(state, "so it is", exit_code=65, log_lines=["a", "b"])])

    assert event == {"state": state, "reason": "so it is", "exit_code": 65, "log_lines": ["a", "b"]}


def test_it_goes_on_while_the_stream_is_alive_or_nothing_is_known(world: World) -> None:
    end_of(world, [seen("launching"), seen("unknown"), seen("running"), seen("draining"), seen("stopped")])

    assert world.looks == 5


def test_a_look_that_fails_does_not_end_the_supervision(world: World) -> None:
    event = end_of(world, [ControlUnavailableError("PostgreSQL is away"), OSError("disk"), seen("stopped")])

    assert event["state"] == "stopped"


def test_it_notes_that_it_watches_once_in_a_while(world: World) -> None:
    end_of(world, [*[seen("running")] * 20, seen("stopped")])

    assert world.notes == [("orders", 3, "run 7")]


@pytest.mark.parametrize("away", [None, RuntimeError("what is this")])
def test_a_registry_that_is_away_is_told_later(
    world: World, monkeypatch: pytest.MonkeyPatch, away: Exception | None
) -> None:
    monkeypatch.setattr("deltaworks.airflow.triggers._RECORD_S", 0.0)

    def answers() -> Iterator[Observation]:
        world.registry_away, world.registry_error = True, away
        yield seen("running")
        world.registry_away, world.registry_error = False, None
        yield seen("running")
        yield seen("stopped")

    end_of(world, answers())

    assert world.notes == [("orders", 3, "run 7")]


def test_its_log_has_a_line_for_each_change_not_for_each_look(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    end_of(world, [*[seen("launching")] * 3, *[seen("running")] * 5, seen("failed", "it broke")])

    said = re.findall(r"generation 3: (.*?) +\[", capsys.readouterr().out)
    assert said == ["launching", "running", "failed (it broke)"]


def test_a_line_of_progress_has_batch_lag_and_rate() -> None:
    beat = Heartbeat(
        pipeline="orders",
        generation=3,
        query_id="q",
        state="running",
        pid=1,
        at=0.0,
        batch_id=12,
        lag_records=3400,
        lag_seconds=12.4,
        records_per_second=1234.5,
        records_total=99000,
        dead_letters=7,
    )

    assert progress(seen("running", heartbeat=beat)) == (
        "generation 3: running, batch 12, lag 3,400 (12 s), 1,234 records/s; so far 99,000 records, 7 dead letters"
    )


def test_settings_that_cannot_be_read_for_a_while_do_not_end_the_supervision(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = iter([ConfigurationError("There is no connection 'shop'."), None, ValueError("must not be asked again")])

    async def settings(access: Access) -> Settings:
        if (failure := next(failures)) is not None:
            raise failure
        return Settings.from_environment({})

    monkeypatch.setattr(Access, "settings_async", settings)

    assert end_of(world, [seen("running"), seen("stopped")])["state"] == "stopped"
    assert world.looks == 2


def test_it_observes_with_the_settings_of_the_connection(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Access] = []

    async def settings(access: Access) -> Settings:
        asked.append(access)
        return Settings.from_environment({})

    monkeypatch.setattr(Access, "settings_async", settings)
    world.answers = iter([seen("stopped")])
    trigger = StreamTrigger(pipeline="p", generation=3, supervisor="s", conn_id="shop", project="/srv/shop")

    async def fire() -> int:
        return len([event async for event in trigger.run()])

    assert asyncio.run(fire()) == 1
    assert asked == [Access(conn_id="shop", project="/srv/shop")]


def test_it_survives_a_restart_of_the_triggerer() -> None:
    first = StreamTrigger(pipeline="orders", generation=3, supervisor="run 7", poll_s=0.5, conn_id="shop", project="/p")
    path, arguments = first.serialize()

    module, _, name = path.rpartition(".")
    again = getattr(__import__(module, fromlist=[name]), name)(**arguments)

    assert again.serialize() == (path, arguments)


def test_whoever_ends_the_trigger_does_not_touch_the_stream(world: World) -> None:
    """What Airflow calls when a task is marked or cleared, and when the triggerer ends, does nothing."""
    trigger = StreamTrigger(pipeline="orders", generation=3, supervisor="run 7")

    if AIRFLOW_3_3:
        asyncio.run(trigger.on_kill())
    asyncio.run(trigger.cleanup())

    assert (world.looks, world.notes) == (0, [])
