"""Runs that a cluster processes: what is in the object store of them, and when it goes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from deltaworks import clock, config, object_path
from deltaworks.airflow.maintenance import WEEK
from deltaworks.control.paths import PipelinePaths
from deltaworks.files import write_new
from deltaworks.object_path import ObjectPath
from deltaworks.replay import runs
from deltaworks.replay.maintenance import maintain
from deltaworks.replay.model import ReplayPaths
from deltaworks.settings import Settings
from tests.support.object_stores import BUCKET, moto
from tests.unit.airflow.replays import planned, project_settings

NAME = "orders"


@pytest.fixture(scope="module", autouse=True)
def store() -> Iterator[str]:
    before = dict(object_path._known)
    with moto() as endpoint:
        yield endpoint
    object_path._known.clear()
    object_path._known.update(before)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str) -> Settings:
    """Of a home whose state is in a place of its own in the store."""
    found = project_settings(tmp_path, monkeypatch)
    access = Settings.s3_access_in(found.home)
    access.parent.mkdir(parents=True)
    access.write_text(
        f'[s3]\nendpoint = "{store}"\nregion = "us-east-1"\npath_style = true\n'
        'access_key = { env = "TESTS_KEY" }\nsecret_key = { env = "TESTS_KEY" }\n'
    )
    monkeypatch.setenv("TESTS_KEY", "tests")
    address = f"s3://{BUCKET}/{tmp_path.name}"
    values = config.with_own_server(found.values, access, "s3")
    return replace(found, storage_address=address, tables_address=f"{address}/tables", values=values)


def shared(settings: Settings, run_id: str) -> ReplayPaths:
    """A run with something in the store."""
    paths = planned(settings, NAME, run_id, "run")
    paths.share(PipelinePaths.of(settings, NAME).shared_replays / run_id)
    write_new(paths.tables / "order_counts" / "a.parquet", b"rows")
    return paths


def in_store(settings: Settings) -> set[str]:
    """The runs that are in the store."""
    folder = PipelinePaths.of(settings, NAME).shared_replays
    return {each.name for each in folder.iterdir()} if folder.is_dir() else set()


def test_what_is_shared_is_in_the_store_for_whoever_looks(settings: Settings) -> None:
    paths = shared(settings, "r")
    alone = planned(settings, NAME, "alone", "run")

    found, _ = runs.find(settings, "r")
    assert isinstance(found.tables, ObjectPath) and (found.tables / "order_counts" / "a.parquet").exists()
    assert str(found.shared) == f"{settings.storage_address}/pipelines/{NAME}/replays/r"
    assert found.sorted.parent == found.tables.parent == paths.shared
    assert found.state.parent == found.plan.parent == paths.root
    assert (alone.shared, alone.tables) == (alone.root, alone.root / "tables")


def test_it_goes_with_the_run(settings: Settings) -> None:
    paths = shared(settings, "r")
    shared(settings, "other")

    runs.discard(settings, "r")

    assert (paths.root.exists(), in_store(settings)) == (False, {"other"})


def test_what_a_killed_process_has_left_goes_before_the_next_run(settings: Settings) -> None:
    shared(settings, "r").plan.unlink()
    shared(settings, "other")

    runs._sweep(PipelinePaths.of(settings, NAME))

    assert in_store(settings) == {"other"}


def test_what_a_lost_machine_has_left_goes_when_it_is_old(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    own = PipelinePaths.of(settings, NAME)
    shared(settings, "known")
    write_new(own.shared_replays / "lost" / "progress.json", b"{}")
    assert maintain(settings, WEEK).replays == []

    later_s = clock.wall_s() + 8 * 86_400
    monkeypatch.setattr(clock, "wall_s", lambda: later_s)
    os.utime(own.replays / "known" / "phases.json", (later_s, later_s))
    assert maintain(settings, None).replays == []
    assert maintain(settings, WEEK).replays == ["lost"]
    assert in_store(settings) == {"known"}


def test_a_home_without_a_store_has_nothing_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = project_settings(tmp_path, monkeypatch)
    planned(settings, NAME, "r", "run").plan.unlink()

    assert runs.abandoned(settings, clock.wall_s() + 1) == []
