"""Batch jobs that are computed again behind a replay: once, also across kills, and again at a rollback."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from deltaworks.batch import jobs
from deltaworks.cascade import release
from deltaworks.errors import ConfigurationError, IncompatibleCheckpointError, TerminalError, TransientError
from deltaworks.replay.model import Narrowed, ReplayPlan, ReplayRequest, ReplayState, begin_of
from deltaworks.settings import Settings
from tests.unit.airflow.replays import plan_of

PLAN = plan_of(ReplayRequest(pipeline="shop", requested_by="ada", cascade=True), "r")
STATE = ReplayState(from_ms=begin_of("2026-11-22"), to_ms=begin_of("2026-11-24"))
COMPUTED = {dt.date(2026, 11, day) for day in (20, 21, 22, 23, 24)}
DAYS = [dt.date(2026, 11, 22), dt.date(2026, 11, 23)]


class Commands:
    """What runs instead of batch jobs."""

    def __init__(self) -> None:
        self.run: list[tuple[str, list[dt.date], str]] = []
        self.code = {"daily": "print('3 rows')", "weekly": "print('1 row')"}

    def command(self, name: str, days: Sequence[dt.date], run_id: str) -> list[str]:
        self.run.append((name, list(days), run_id))
        return [sys.executable, "-c", self.code[name]]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings.from_environment({"DELTAWORKS_PROJECT": str(tmp_path), "DELTAWORKS_HOME": str(tmp_path)})


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> Commands:
    commands = Commands()
    monkeypatch.setattr(release, "_command", commands.command)
    monkeypatch.setattr(release, "readers", lambda *_: SimpleNamespace(batch_jobs=["daily", "weekly", "never"]))
    monkeypatch.setattr(release, "computed_days", lambda root, job: COMPUTED if job == "daily" else set())
    monkeypatch.setattr(release, "days_in_table", lambda root, job: DAYS[:1] if job == "weekly" else [])
    return commands


def complete(
    settings: Settings, plan: ReplayPlan = PLAN, state: ReplayState = STATE
) -> tuple[release.Release, list[str]]:
    said: list[str] = []
    return release.complete(settings, plan, state, said.append), said


def test_the_days_that_a_job_has_and_that_were_published_are_computed_in_order(
    settings: Settings, commands: Commands
) -> None:
    done, said = complete(settings)
    assert commands.run == [("daily", DAYS, "r"), ("weekly", DAYS[:1], "r")]
    assert (done.state, done.days, done.done) == ("complete", {"daily": DAYS, "weekly": DAYS[:1]}, ("daily", "weekly"))
    assert said == ["daily: 3 rows", "weekly: 1 row"]

    complete(settings)
    assert len(commands.run) == 2, "nothing is computed twice"


def test_a_hand_over_changes_all_days_and_what_is_narrowed_only_its_own(settings: Settings, commands: Commands) -> None:
    whole = ReplayRequest(pipeline="shop", requested_by="ada", cascade=True, hand_over=True)
    assert complete(settings, plan_of(whole, "whole"), ReplayState())[0].days["daily"] == sorted(COMPUTED)
    one = Narrowed(tables=("sales",), from_ms=begin_of("2026-11-23"), to_ms=begin_of("2026-11-24"))
    narrowed = msgspec.structs.replace(PLAN, run_id="narrowed")
    assert complete(settings, narrowed, ReplayState(narrowed=one))[0].days == {"daily": DAYS[1:]}


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("raise SystemExit(1)", TerminalError),
        ("raise SystemExit(78)", TerminalError),
        ("import os; os.kill(os.getpid(), 9)", TransientError),
    ],
)
def test_a_job_that_fails_stops_those_behind_it_and_is_completed_later(
    settings: Settings, commands: Commands, code: str, error: type[Exception]
) -> None:
    commands.code["weekly"] = f"print('a key is there twice', flush=True); {code}"
    with pytest.raises(error, match=r"(?s)'weekly' has failed; days .*exit code .*a key is there twice"):
        complete(settings)
    record = release.record_of(settings, "r")
    assert record is not None
    kept = release.read(record)
    assert kept is not None and (kept.state, kept.done) == ("computing", ("daily",))

    commands.code["weekly"] = "pass"
    assert complete(settings)[0].state == "complete"
    assert [name for name, *_ in commands.run] == ["daily", "weekly", "weekly"]


def test_a_rollback_computes_the_same_days_once_more(settings: Settings, commands: Commands) -> None:
    assert release.days_of(settings, "r") == {}
    assert release.roll_back(settings, "r", print) == []
    complete(settings)
    commands.run.clear()

    assert release.roll_back(settings, "r", print) == ["daily", "weekly"]
    assert commands.run == [("daily", DAYS, "r__rollback"), ("weekly", DAYS[:1], "r__rollback")]
    assert release.roll_back(settings, "r", print) == [], "it is done"


def test_before_a_rollback_the_jobs_have_to_be_there(
    settings: Settings, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    release.require_jobs(settings, "r")
    complete(settings)
    with pytest.raises(ConfigurationError, match="There is no batch job 'daily'"):
        release.require_jobs(settings, "r")
    loaded: list[Any] = []
    monkeypatch.setattr(jobs, "load", lambda settings, name: loaded.append(name))
    release.require_jobs(settings, "r")
    assert loaded == ["daily", "weekly"]


def test_a_record_of_another_version_is_refused(settings: Settings, commands: Commands) -> None:
    complete(settings)
    record = release.record_of(settings, "r")
    assert record is not None
    record.write_text('{"format": 2}')
    with pytest.raises(IncompatibleCheckpointError, match="has format 2"):
        complete(settings)
