"""`replay --code`, `--report` and `--fail-on`: what is refused, what fails, what the report says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer

from deltaworks import ChangeLimit, Reprocess
from deltaworks.cli import replay as commands
from deltaworks.control import checkpoint, code, jobs, preflight
from deltaworks.errors import ConfigurationError, IncompatibleCheckpointError
from deltaworks.replay import runs
from deltaworks.replay.model import ReplayPaths
from deltaworks.replay.phases import ReplayRun
from deltaworks.settings import Settings
from tests.unit.airflow.replays import Notes, planned, project_settings, take_notes, write_findings

NAME = "wordcount"


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    settings = project_settings(tmp_path, monkeypatch)
    monkeypatch.setenv("DELTAWORKS_RUN_FROM", "source")
    monkeypatch.setattr(code, "run_other_code", lambda settings, place: None)
    monkeypatch.setattr(preflight, "fit", lambda *_: None)
    monkeypatch.setattr(checkpoint, "stored_plan", lambda path: path)
    return settings


@pytest.fixture
def notes(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Notes:
    return take_notes(monkeypatch)


@pytest.fixture
def paths(settings: Settings, notes: Notes) -> ReplayPaths:
    """A run that has passed the gate; twelve rows differ."""
    paths = planned(settings, NAME, "r", "run", "compare", "gate", passed=True)
    write_findings(paths)
    return paths


def replay(**options: Any) -> None:
    commands.replay(NAME, **{"resume": "r", "until": "gate", "from_": None, "to": None, "tables": None, **options})


def limited(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    load = jobs.load
    policy = Reprocess("@daily", limit=ChangeLimit(rows=rows))
    monkeypatch.setattr(jobs, "load", lambda settings, name: replace(load(settings, name), reprocess=policy))


def test_the_report_says_where_the_code_is_from_what_differs_and_whether_the_state_fits(
    paths: ReplayPaths, tmp_path: Path
) -> None:
    replay(report_to=tmp_path / "report.md")

    text = (tmp_path / "report.md").read_text()
    for part in (
        "## `wordcount` on recorded history", "12 rows differ", "| `order_counts` |", "`amount` in 9 rows",
        "1 of 1 expectations and invariants hold", "the stream can go on with its state", "12,345 records in",
    ):  # fmt: skip
        assert part in text, part
    assert "Approve" not in text


@pytest.mark.parametrize(("fail_on", "fails"), [([], False), (["different"], True), (["incompatible"], False)])
def test_it_fails_on_what_it_is_told_to(
    paths: ReplayPaths, capsys: pytest.CaptureFixture[str], fail_on: list[Any], fails: bool
) -> None:
    if not fails:
        return replay(fail_on=fail_on)
    with pytest.raises(typer.Exit) as ended:
        replay(fail_on=fail_on)
    assert ended.value.exit_code == 1
    assert "Failed on different: 12 rows differ" in capsys.readouterr().out


@pytest.mark.parametrize("rows", [11, 12])
def test_the_limit_is_that_of_the_pipeline(
    paths: ReplayPaths, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], rows: int
) -> None:
    limited(monkeypatch, rows)
    if rows == 12:
        return replay(fail_on=["limit"])
    with pytest.raises(typer.Exit):
        replay(fail_on=["limit"])
    assert (
        "Failed on limit: 12 rows differ, and that is over the limit: 12 rows of at most 11" in capsys.readouterr().out
    )


def test_state_that_does_not_fit_is_told_and_can_fail(
    paths: ReplayPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fit(*_: Any) -> None:
        raise IncompatibleCheckpointError("the store 'counts' is gone")

    monkeypatch.setattr(preflight, "fit", fit)
    replay(report_to=tmp_path / "report.md")
    assert "the store 'counts' is gone" in (tmp_path / "report.md").read_text()
    with pytest.raises(typer.Exit):
        replay(fail_on=["incompatible"])
    assert "Failed on incompatible: the store 'counts' is gone" in capsys.readouterr().out


def test_a_run_of_other_code_ends_after_the_gate_and_is_removed(
    settings: Settings, notes: Notes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def judged(self: Any, engines: object, state: Any, report: object) -> None:
        notes.note("gate")
        state.passed = notes.passes
        write_findings(self.paths)

    monkeypatch.setattr(ReplayRun, "_gate", judged)
    replay(resume=None, until="clean", code_of="branch", report_to=tmp_path / "report.md")

    assert notes.done == ["plan", "run", "compare", "gate"]
    assert notes.requests[0].dry_run
    assert "| Code from | branch |" in (tmp_path / "report.md").read_text()
    assert runs.all_unfinished(settings) == []

    notes.passes = False
    with pytest.raises(typer.Exit):
        replay(resume=None, until="clean", code_of="branch")
    assert runs.all_unfinished(settings) == [], "though the gate was not passed"


def test_a_pipeline_that_is_new_has_nothing_to_replay(
    notes: Notes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(checkpoint, "stored_plan", lambda path: None)
    replay(resume=None, until="clean", code_of="branch", report_to=tmp_path / "report.md", fail_on=["different"])

    assert "wordcount has not run here yet" in capsys.readouterr().out
    assert "## `wordcount` has not run yet" in (tmp_path / "report.md").read_text()
    assert notes.done == []
    with pytest.raises(ConfigurationError, match="wordcuont"):
        commands.replay("wordcuont", code_of="branch", from_=None, to=None, tables=None)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"code_of": "x", "resume": "r"}, "--resume: with --code, nothing is published"),
        ({"code_of": "x", "resume": None, "yes": True, "hand_over": True}, "--hand-over, --yes: with --code"),
        ({"code_of": "x", "resume": None, "cascade": True}, "--cascade: with --code"),
        ({"report_to": Path("r.md"), "until": "run"}, "--until ends before it"),
        ({"report_to": Path("/nowhere/r.md")}, "There is no folder /nowhere for --report"),
        ({"fail_on": ["limit", "everything"]}, "--fail-on everything: there is no such reason"),
        ({"fail_on": ["limit"]}, "jobs/wordcount.py has no reprocess= with a limit"),
        ({"days": 1, "from_": "2026-11-01"}, "--days counts back from the newest complete day"),
    ],
)
def test_what_contradicts_itself_is_refused_before_anything_is_done(
    paths: ReplayPaths, notes: Notes, options: dict[str, Any], says: str
) -> None:
    state = msgspec.json.encode(paths.read_state())
    with pytest.raises(ConfigurationError, match=says):
        replay(**options)
    assert notes.done == []
    assert msgspec.json.encode(paths.read_state()) == state
