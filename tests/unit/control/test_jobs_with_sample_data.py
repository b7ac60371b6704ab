"""Jobs that need a schema registry run with their sample data if there is one, and get their ids there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from deltaworks.control import jobs
from deltaworks.errors import ConfigurationError
from deltaworks.serdes.schemas import InMemory
from deltaworks.settings import Settings
from deltaworks.testing.sample_data import records_of
from jobs.sample_data import deliveries, wordcount

ROOT = Path(__file__).parents[3]
REGISTRY = '[schema_registry]\nurl = "http://127.0.0.1:9"\n'


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DELTAWORKS_PROJECT", str(ROOT))
    monkeypatch.setenv("DELTAWORKS_HOME", str(tmp_path))
    return tmp_path


def test_a_job_that_needs_a_registry_is_left_out_without_one(home: Path) -> None:
    settings = Settings.from_environment()

    left_out = set(jobs.names_with(settings, "sample_data")) - set(jobs.with_sample_data(settings))

    assert left_out == {"deliveries"}


def test_a_registry_of_the_home_is_one(home: Path) -> None:
    access = Settings.schema_registry_access_in(home)
    access.parent.mkdir()
    access.write_text(REGISTRY)
    settings = Settings.from_environment()

    assert jobs.with_sample_data(settings) == jobs.names_with(settings, "sample_data")
    assert "deliveries" in jobs.with_sample_data(settings)


def test_sample_data_gets_the_registry_if_it_asks_for_one() -> None:
    registry = InMemory()

    scans = list(records_of(deliveries, 100, 3, registry))
    lines = list(records_of(wordcount, 100, 3, registry))

    assert scans == list(deliveries.records(100, 3, registry))
    assert lines == list(wordcount.records(100, 3))
    assert registry.subjects()


def test_without_a_registry_its_sample_data_is_refused(home: Path) -> None:
    settings = replace(Settings.from_environment(), home=home)

    with pytest.raises(ConfigurationError, match="there is no schema registry"):
        list(records_of(deliveries, 100, 3, jobs.schemas_of(settings, "deliveries")))
