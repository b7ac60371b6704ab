"""`init` and `new pipeline`: what they write passes its own tests, lint and types, and nothing is overwritten."""

from __future__ import annotations

import importlib
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from deltaworks.cli import app as cli
from deltaworks.cli.projects import TEMPLATES, Kind
from deltaworks.quality import validate
from deltaworks.settings import Settings
from deltaworks.testing.recorded import run_recorded
from jobs.sample_data.kafka import PARTITIONS
from tests.unit.jobs.recomputing import micro_batches, random_cuts, rows_of, tables_of

ROOT = Path(__file__).parents[3]
KINDS = list(get_args(Kind))


def deltaworks(monkeypatch: pytest.MonkeyPatch, folder: Path, *arguments: str) -> int:
    """The exit code of a command in a folder."""
    for variable in ("DELTAWORKS_PROJECT", "DELTAWORKS_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["deltaworks", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return int(end.value.code or 0)


def files(folder: Path) -> set[str]:
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}


def test_a_new_project_passes_its_own_tests(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    project = tmp_path / "My streams"

    assert deltaworks(monkeypatch, tmp_path, "init", str(project)) == 0
    assert deltaworks(monkeypatch, project, "new", "pipeline", "user_refunds", "--shows", "join") == 0

    assert files(project) == {
        *("README.md", "pyproject.toml", "deltaworks.toml", "docker-compose.yml", ".gitignore"),
        *("Dockerfile", ".dockerignore"),
        *(".github/workflows/ci.yml", ".github/workflows/replay.yml", "dags/streams.py"),
        *("jobs/payments.py", "jobs/sample_data/payments.py", "jobs/quality/payments.py", "tests/test_payments.py"),
        "jobs/user_refunds.py",
        "jobs/sample_data/user_refunds.py",
        "jobs/quality/user_refunds.py",
        "tests/test_user_refunds.py",
        "tests/test_payments_live.py",
        "tests/test_user_refunds_live.py",
    }
    assert 'name = "my-streams"' in (project / "pyproject.toml").read_text()
    workflows = sorted((project / ".github" / "workflows").iterdir())
    lint = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        "vendor.github-workflows",
        *map(str, workflows),
    ]
    linted = subprocess.run(lint, capture_output=True, text=True, check=False)
    assert (len(workflows), linted.returncode) == (2, 0), linted.stdout + linted.stderr
    assert deltaworks(monkeypatch, project, "test", "-q", "--ignore-glob", "*_live.py") == 0
    settings = Settings.from_environment({}, cwd=project / "jobs")
    assert (settings.project, settings.cores, settings.values.environment) == (project, 2, "dev")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a pipeline of each kind, which has the name of the kind, and a batch job."""
    project = tmp_path_factory.mktemp("shows")
    with pytest.MonkeyPatch.context() as monkeypatch:
        for number, kind in enumerate(KINDS):
            command = ("new", "pipeline", name_of(kind)) if number else ("init", "--pipeline", name_of(kind))
            assert deltaworks(monkeypatch, project, *command, "--shows", kind) == 0
        read = f"{name_of(KINDS[0])}_revenue"
        assert deltaworks(monkeypatch, project, "new", "batch", "daily_revenue", "--reads", read) == 0
    return project


def name_of(kind: str) -> str:
    return f"shows_{kind.replace('-', '_')}"


def test_each_kind_passes_its_own_tests_lint_and_types(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert deltaworks(monkeypatch, project, "test", "-q", "--ignore-glob", "*_live.py") == 0
    for command in (["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy"]):
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=project, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_kind_writes_passes_its_suite(kind: str, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(project))
    job, data, quality = (
        importlib.import_module(f"jobs.{folder}{name_of(kind)}") for folder in ("", "sample_data.", "quality.")
    )
    rows = rows_of(data.records(2_000))
    cuts = random_cuts(rows, 6, random.Random(1))
    topics = {row.topic: PARTITIONS for row in rows}
    recording = run_recorded(job.pipeline.plan(), topics, micro_batches(rows, cuts), errors=job.pipeline.errors)

    tables = tables_of(job.pipeline, recording, cuts)
    verdicts = validate(tables, quality.suites)

    assert [(v.table, v.expects, v.error, v.sample) for v in verdicts if not v.passed] == []
    assert quality.suites.keys() == tables.keys()
    assert [verdict.expects for verdict in verdicts if not verdict.why or not verdict.rows] == []


def test_each_kind_is_a_template_and_is_told_in_the_docs() -> None:
    page = (ROOT / "docs" / "how-to" / "own-project.md").read_text()

    assert {file.stem for file in (TEMPLATES / "shows").iterdir()} == set(KINDS)
    told = re.findall(r"^\| `([\w-]+)` \| [^|]+ \|$", page.partition("`--shows`")[2], re.MULTILINE)
    assert told[: len(KINDS)] == KINDS


def test_failing_tests_are_the_exit_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert deltaworks(monkeypatch, tmp_path, "init") == 0
    (tmp_path / "tests" / "test_wrong.py").write_text("def test_wrong() -> None:\n    assert 1 == 2\n")

    assert deltaworks(monkeypatch, tmp_path, "test", "-q", "tests/test_wrong.py") == 1


def test_nothing_is_overwritten(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "README.md").write_text("mine")

    assert deltaworks(monkeypatch, tmp_path, "init") == 78

    assert files(tmp_path) == {"README.md"}
    assert (tmp_path / "README.md").read_text() == "mine"
    assert f"{tmp_path} has already README.md." in capsys.readouterr().err


def test_a_new_batch_job_waits_for_the_table_that_it_reads(project: Path) -> None:
    settings = Settings.from_environment({"DELTAWORKS_PROJECT": str(project)})
    code = "from deltaworks.batch import jobs; from deltaworks.settings import Settings; "
    code += "job = jobs.load(Settings.from_environment(), 'daily_revenue'); print(job.waits_for, job.key)"

    said = subprocess.run(
        [sys.executable, "-c", code],
        cwd=project,
        env={**os.environ, **settings.process_environment(), "PYTHONPATH": str(ROOT / "lib")},
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    assert said.strip() == "['shows_windows_revenue'] ['day']"
    assert {"jobs/batch/daily_revenue.py", "tests/test_daily_revenue_live.py"} <= files(project)


@pytest.mark.parametrize(
    ("name", "reads", "message"),
    [
        ("a-b", "payments_revenue", "cannot be"),
        ("quality_results", "payments_revenue", "cannot be"),
        ("daily", "payments", "did you mean 'payments_revenue'"),
        ("payments_revenue", "payments_dead_letters", "writes a table 'payments_revenue' already"),
    ],
)
def test_a_batch_job_that_cannot_be_made_is_refused(
    name: str,
    reads: str,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for module in [each for each in sys.modules if each == "jobs" or each.startswith("jobs.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert deltaworks(monkeypatch, tmp_path, "init") == 0

    assert deltaworks(monkeypatch, tmp_path, "new", "batch", name, "--reads", reads) == 78

    assert message in capsys.readouterr().err
    assert not (tmp_path / "jobs" / "batch").exists()


@pytest.mark.parametrize("name", ["class", "a-b", "../x", "1st", ""])
def test_a_name_that_is_no_module_is_refused(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "jobs").mkdir()

    assert deltaworks(monkeypatch, tmp_path, "new", "pipeline", name) == 78

    assert files(tmp_path) == set()
    assert "cannot be" in capsys.readouterr().err
