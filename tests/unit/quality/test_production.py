"""The tables of a pipeline in production, checked while its stream runs: `production.check`, and the command."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from deltaworks.cli import app as cli
from deltaworks.errors import ConfigurationError
from deltaworks.quality import production
from deltaworks.settings import Settings
from tests.unit.quality.parcels import write

NO_NULL, BETWEEN = "ExpectColumnValuesToNotBeNull", "ExpectColumnValuesToBeBetween"


def outcomes(run_id: str = "run-1") -> list[tuple[str, str]]:
    verdicts = production.check(Settings.from_environment(), "parcels", run_id=run_id)
    return [(verdict.expectation, verdict.outcome.value) for verdict in verdicts]


def kept(project: Path, table: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(project / "home/tables" / table).to_pyarrow_table().to_pylist()
    return rows


def command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["deltaworks", "quality", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return int(end.value.code or 0)


def test_what_is_found_is_kept_run_by_run(project: Path) -> None:
    write(0, ["Lyon"], [5])
    assert outcomes("run-1") == [(NO_NULL, "passed"), (BETWEEN, "passed")]
    write(1, ["Boston", None], [5, 5])
    assert outcomes("run-2") == [(NO_NULL, "failed"), (BETWEEN, "passed")]

    results = kept(project, "quality_results")
    assert sorted((row["run_id"], row["expectation"], row["outcome"], row["rows"]) for row in results) == [
        ("run-1", BETWEEN, "passed", 1),
        ("run-1", NO_NULL, "passed", 1),
        ("run-2", BETWEEN, "passed", 3),
        ("run-2", NO_NULL, "failed", 3),
    ]
    (failure,) = kept(project, "quality_failures")
    assert failure["run_id"] == "run-2" and '"city":null' in failure["row"]


def test_a_check_brings_the_catalog_up_to_date(project: Path) -> None:
    write(0, ["Lyon"], [5])
    outcomes()
    assert {row["name"]: row["verdict"] for row in kept(project, "catalog")}["parcels"] == "passed"

    write(1, [None], [5])
    outcomes()
    assert {row["name"]: row["verdict"] for row in kept(project, "catalog")}["parcels"] == "failed"


def test_a_batch_that_is_being_committed_is_not_looked_at(project: Path) -> None:
    write(0, ["Lyon"], [5])
    write(1, [None], [5], recorded=False)

    assert outcomes() == [(NO_NULL, "passed"), (BETWEEN, "passed")]


def test_before_the_first_batch_there_is_nothing(project: Path) -> None:
    settings = Settings.from_environment()

    assert not production.is_there(settings, "parcels")
    write(0, ["Lyon"], [5])
    assert production.is_there(settings, "parcels")


def test_a_pipeline_without_a_suite_is_not_checked(project: Path) -> None:
    write(0, ["Lyon"], [5])
    (project / "jobs/quality/parcels.py").unlink()

    with pytest.raises(ConfigurationError, match=r"jobs/quality/parcels\.py"):
        outcomes()


def test_the_command_passes_on_good_tables(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(0, ["Lyon", "Boston"], [5, 6])

    assert command(monkeypatch, "parcels") == 0

    shown = capsys.readouterr().out
    assert "2 passed" in shown.splitlines()
    (run_id,) = {row["run_id"] for row in kept(project, "quality_results")}
    assert run_id.startswith("command__") and f"run {run_id}" in shown


def test_the_command_fails_and_shows_and_keeps_the_rows(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(0, ["Lyon", None], [5, 6])

    assert command(monkeypatch, "parcels") == 1

    shown = capsys.readouterr().out
    assert "failed parcels: city values must never be null.\n  A parcel goes somewhere.\n" in shown
    assert "city=, grams=6" in shown
    assert "1 failed, 1 passed" in shown
    assert [row["expectation"] for row in kept(project, "quality_failures")] == [NO_NULL]


def test_a_warning_is_shown_but_the_command_passes(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(0, ["Lyon"], [1_000])

    assert command(monkeypatch, "parcels") == 0

    assert "failed (warning) parcels: grams values must be less than or equal to 999" in capsys.readouterr().out


def test_the_command_fails_on_tables_that_are_not_there(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(monkeypatch, "parcels") == 1

    shown = capsys.readouterr().out
    assert "There is no table 'parcels'" in shown
    assert "3 error" in shown  # two of the suite, one of ours


def test_the_command_without_a_suite_is_an_error_of_its_own(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "jobs/quality/parcels.py").unlink()

    assert command(monkeypatch, "parcels") == 78

    assert "jobs/quality/parcels.py" in capsys.readouterr().err


READS_A_FILE = """
import great_expectations.expectations as gxe

query = "SELECT * FROM {{batch}} WHERE city NOT IN (SELECT city FROM read_csv('{cities}'))"
suites = {{"parcels": [gxe.UnexpectedRowsExpectation(unexpected_rows_query=query)]}}
"""


def test_a_rule_reads_a_file_only_if_the_command_says_so(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(0, ["Lyon"], [5])
    (project / "cities.csv").write_text("city\nLyon\n")
    (project / "jobs/quality/parcels.py").write_text(READS_A_FILE.format(cities=project / "cities.csv"))

    assert command(monkeypatch, "parcels") == 1
    assert "reaches outside its tables" in capsys.readouterr().out
    assert command(monkeypatch, "parcels", "--unrestricted") == 0
