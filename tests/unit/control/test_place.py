"""A change of the settings is no new stream."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from deltaworks.control import place
from deltaworks.errors import IncompatibleCheckpointError
from deltaworks.settings import Settings

STORAGE = "s3://lake/streams"


@pytest.fixture
def at_home(tmp_path: Path) -> Settings:
    return replace(Settings.from_environment({}, cwd=tmp_path), storage_address=None)


def refused(settings: Settings, said: str) -> None:
    before = sorted(settings.home.rglob("*"))
    for act in (place.require_same, place.note):
        with pytest.raises(IncompatibleCheckpointError, match=said):
            act(settings, "orders")
    assert sorted(settings.home.rglob("*")) == before


def test_a_stream_that_runs_at_home_does_not_begin_anew_in_a_store(at_home: Settings) -> None:
    place.note(at_home, "orders")
    place.note(at_home, "orders")

    refused(replace(at_home, storage_address=STORAGE), f"has its state in the home, but .* at {STORAGE}")


def test_a_stream_that_has_run_at_home_before_anybody_noted_it_does_not_either(at_home: Settings) -> None:
    plan = at_home.pipeline("orders") / "plan.json"
    plan.parent.mkdir(parents=True)
    plan.write_text("{}")

    refused(replace(at_home, storage_address=STORAGE), "has its state in the home")


@pytest.mark.parametrize("now", [None, "s3://lake/others"])
def test_a_stream_in_a_store_does_not_begin_anew_elsewhere(at_home: Settings, now: str | None) -> None:
    place.note(replace(at_home, storage_address=STORAGE), "orders")

    refused(replace(at_home, storage_address=now), f"has its state at {STORAGE}, but")


def test_a_stream_that_has_not_run_here_goes_anywhere(at_home: Settings) -> None:
    place.require_same(replace(at_home, storage_address=STORAGE), "orders")

    assert not at_home.pipeline("orders").exists()
