"""What the DAG of maintenance removes, what it leaves alone, and what it writes."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from deltaworks import clock
from deltaworks.airflow.maintenance import WEEK, catalog, clean
from deltaworks.control import code, corrections
from deltaworks.control.retention import GRACE_S
from deltaworks.errors import KafkaWriteError
from deltaworks.replay.model import ReplayPaths, locked
from deltaworks.settings import Settings
from tests.unit.airflow.replays import planned, project_settings
from tests.unit.control.test_corrections import Home

NAME = "orders"


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    return project_settings(tmp_path, monkeypatch)


def left_alone(paths: ReplayPaths, since: timedelta) -> ReplayPaths:
    then = clock.wall_s() - since.total_seconds()
    os.utime(paths.state, (then, then))
    return paths


def test_a_replay_goes_a_week_after_its_last_phase(settings: Settings) -> None:
    old = left_alone(planned(settings, NAME, "old", "run"), timedelta(days=8))
    young = left_alone(planned(settings, NAME, "young", "run"), timedelta(days=6))

    assert clean()["replays"] == ["old"]
    assert (old.root.exists(), young.plan.exists()) == (False, True)
    assert clean(keep_replays=timedelta(days=5))["replays"] == ["young"]


def test_all_replays_stay_if_the_team_wants_so(settings: Settings) -> None:
    old = left_alone(planned(settings, NAME, "old", "run"), timedelta(days=400))

    assert clean(keep_replays=None) == {"sent": [], "corrected": [], "archives": [], "replays": [], "kept": {}}
    assert old.plan.exists()


def test_corrections_that_were_left_are_sent_or_wait_on(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: object) -> None:
        raise KafkaWriteError("no answer")

    home = Home(settings.home)
    home.release("run-1", 3)
    monkeypatch.setattr(corrections, "_sink", silent)
    assert clean()["sent"] == []

    monkeypatch.setattr(corrections, "_sink", home.sink)
    assert clean()["sent"] == ["run-1/publish-1"]
    assert len(home.rows()) == 3
    assert clean()["sent"] == []


def test_a_replay_on_which_somebody_works_stays_and_the_others_go(settings: Settings) -> None:
    busy = left_alone(planned(settings, NAME, "busy", "run"), WEEK * 2)
    left_alone(planned(settings, NAME, "old", "run"), WEEK * 2)

    with locked(busy.lock, wait=False):
        removed = clean()

    assert removed == {
        "sent": [],
        "corrected": [],
        "archives": [],
        "replays": ["old"],
        "kept": {"busy": "Another process works on the replay busy."},
    }
    assert busy.plan.exists()


@pytest.mark.thorough
def test_an_archive_that_nothing_names_goes_when_it_is_old(settings: Settings) -> None:
    archive = code.archive(settings)
    assert clean()["archives"] == []

    then = clock.wall_s() - 2 * GRACE_S
    os.utime(archive.path / "manifest.json", (then, then))

    assert clean()["archives"] == [archive.digest]
    assert not archive.path.exists()


def test_it_writes_the_table_catalog(settings: Settings) -> None:
    assert catalog() == 1

    assert DeltaTable(settings.tables / "catalog").count() == 1
