"""How a stream is, seen from its files, while the registry is away and the wall clock is set."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deltaworks import clock
from deltaworks.clock import Sign
from deltaworks.control import fence, heartbeat, outcome
from deltaworks.control.heartbeat import Heartbeat, State
from deltaworks.control.launchers import ExternalId, Life
from deltaworks.control.observation import observe
from deltaworks.control.paths import PipelinePaths
from deltaworks.control.registry import Registry
from deltaworks.errors import ControlUnavailableError
from deltaworks.settings import Settings

STEPS_S = pytest.mark.parametrize("step_s", [0, -7_200, 7_200])


class Away:
    """A registry that does not answer."""

    def __getattr__(self, name: str) -> Any:
        raise ControlUnavailableError("away")


class OneDriver:
    """A launcher that knows one driver."""

    def __init__(self, life: Life, launched: Sign) -> None:
        self._life: Life = life
        self._driver: ExternalId = {"launched": msgspec.to_builtins(launched)}

    def drivers(self, pipeline: str) -> dict[int, ExternalId]:
        return {1: self._driver}

    def status(self, driver: ExternalId) -> Life:
        return self._life

    def log_lines(self, driver: ExternalId) -> list[str]:
        return []

    def __call__(self, settings: Settings, name: str) -> Any:
        return self


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    monkeypatch.setattr(Registry, "of", lambda settings: Away())
    settings = replace(Settings.from_environment({}), home=tmp_path)
    fence.advance(PipelinePaths.of(settings, "p").fence, 1, "p")
    yield settings
    clock.arm(None)


def ago(seconds: float) -> Sign:
    now = Sign.now()
    return Sign(now.wall_s - seconds, now.ticks_s - seconds, now.boot)


def set_clock(step_s: int) -> None:
    clock.arm(lambda: step_s * 1_000_000_000)


def beat(settings: Settings, state: State, sign: Sign) -> None:
    beat = Heartbeat(pipeline="p", generation=1, query_id="", state=state, pid=1, at=sign.wall_s, sign=sign)
    heartbeat.write(PipelinePaths.of(settings, "p").heartbeat, beat)


@STEPS_S
def test_a_driver_that_beats_runs_whatever_the_wall_clock_says(settings: Settings, step_s: int) -> None:
    beat(settings, "running", ago(5))
    set_clock(step_s)

    assert observe(settings, "p", 1, launchers=OneDriver("alive", ago(900))).state == "running"


@STEPS_S
def test_a_driver_that_hangs_is_seen_whatever_the_wall_clock_says(settings: Settings, step_s: int) -> None:
    beat(settings, "running", ago(100))
    set_clock(step_s)

    seen = observe(settings, "p", 1, launchers=OneDriver("alive", ago(900)))

    assert (seen.state, seen.reason) == ("stalled", "no heartbeat for 100 s, and its process still exists")


@STEPS_S
@pytest.mark.parametrize(("launched_s", "state"), [(30, "launching"), (300, "dead")])
def test_a_launch_takes_as_long_as_it_takes(settings: Settings, step_s: int, launched_s: int, state: str) -> None:
    launched = ago(launched_s)
    set_clock(step_s)

    assert observe(settings, "p", 1, launchers=OneDriver("alive", launched)).state == state


@STEPS_S
def test_how_long_ago_it_ended_counts_ticks(settings: Settings, step_s: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = ago(40)
    monkeypatch.setattr(Sign, "now", lambda: ended)
    outcome.write(PipelinePaths.of(settings, "p").outcome(1), 1, 70, "it broke")
    set_clock(step_s)

    seen = observe(settings, "p", 1, launchers=OneDriver("ended", ago(900)))

    assert (seen.state, seen.reason) == ("failed", "it broke")
    assert seen.ended_ago_s == pytest.approx(40, abs=5)
