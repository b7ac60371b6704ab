from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from deltaworks.cli import app as cli
from deltaworks.errors import ConfigurationError
from deltaworks.quality import suites
from deltaworks.settings import Settings

SUITE = """
import great_expectations.expectations as gxe
from great_expectations.expectations.metadata_types import FailureSeverity

suites = {"parcels": [
    gxe.ExpectColumnValuesToNotBeNull(column="city", meta={"why": "A parcel goes somewhere."}),
    gxe.ExpectColumnValuesToBeBetween(column="grams", max_value=999, severity=FailureSeverity.WARNING),
]}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project with a suite of its own, whose modules are forgotten afterwards."""
    (tmp_path / "jobs/quality").mkdir(parents=True)
    (tmp_path / "jobs/quality/parcels.py").write_text(SUITE)
    monkeypatch.setenv("DELTAWORKS_PROJECT", str(tmp_path))
    monkeypatch.setenv("DELTAWORKS_HOME", str(tmp_path / "home"))
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name == "jobs" or name.startswith("jobs.")]:
        monkeypatch.delitem(sys.modules, name)
    yield tmp_path
    for name in [name for name in sys.modules if name == "jobs" or name.startswith("jobs.")]:
        del sys.modules[name]


def command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["deltaworks", "quality", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return int(end.value.code or 0)


def write(project: Path, cities: list[str | None], grams: list[int]) -> None:
    table = pa.table({"city": pa.array(cities, pa.string()), "grams": pa.array(grams, pa.int64())})
    write_deltalake(project / "home/tables/parcels", table)


def test_a_suite_is_a_module_of_the_project(project: Path) -> None:
    settings = replace(Settings.from_environment({}), project=project)

    assert {table: len(suite) for table, suite in suites.load(settings, "parcels").items()} == {"parcels": 2}


def test_a_module_without_suites_says_what_is_missing(project: Path) -> None:
    (project / "jobs/quality/letters.py").write_text("suite = 1\n")

    with pytest.raises(ConfigurationError, match="defines no suites"):
        suites.load(replace(Settings.from_environment({}), project=project), "letters")


def test_the_command_passes_on_good_tables(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(project, ["Lyon", "Boston"], [5, 6])

    assert command(monkeypatch, "parcels") == 0

    assert "2 passed" in capsys.readouterr().out.splitlines()


def test_the_command_fails_and_shows_the_rows(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(project, ["Lyon", None], [5, 6])

    assert command(monkeypatch, "parcels") == 1

    shown = capsys.readouterr().out
    assert "failed parcels: city values must never be null.\n  A parcel goes somewhere.\n  city=, grams=6\n" in shown
    assert "1 failed, 1 passed" in shown


def test_a_warning_is_shown_but_the_command_passes(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(project, ["Lyon"], [1_000])

    assert command(monkeypatch, "parcels") == 0

    assert "failed (warning) parcels: grams values must be less than or equal to 999" in capsys.readouterr().out


def test_the_command_fails_on_tables_that_are_not_there(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(monkeypatch, "parcels") == 1

    shown = capsys.readouterr().out
    assert "There is no table 'parcels'; tables: none" in shown
    assert "2 error" in shown


def test_a_pipeline_without_a_suite_is_an_error_of_its_own(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(monkeypatch, "letters") == 78

    assert "jobs/quality/letters.py" in capsys.readouterr().err
