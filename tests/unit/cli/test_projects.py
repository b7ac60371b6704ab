"""`init` and `new pipeline`: what they write passes its own tests, lint and types, and nothing is overwritten."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from deltaworks.cli import app as cli
from deltaworks.settings import Settings


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


def test_a_new_project_passes_its_own_tests_lint_and_types(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    project = tmp_path / "My streams"

    assert deltaworks(monkeypatch, tmp_path, "init", str(project)) == 0
    assert deltaworks(monkeypatch, project, "new", "pipeline", "user_refunds", "--join") == 0

    assert files(project) == {
        *("README.md", "pyproject.toml", "deltaworks.toml", "docker-compose.yml", ".gitignore"),
        *("Dockerfile", ".dockerignore"),
        *(".github/workflows/ci.yml", "dags/streams.py"),
        *("jobs/payments.py", "jobs/sample_data/payments.py", "jobs/quality/payments.py", "tests/test_payments.py"),
        "jobs/user_refunds.py",
        "jobs/sample_data/user_refunds.py",
        "jobs/quality/user_refunds.py",
        "tests/test_user_refunds.py",
        "tests/test_payments_live.py",
        "tests/test_user_refunds_live.py",
    }
    assert 'name = "my-streams"' in (project / "pyproject.toml").read_text()
    assert deltaworks(monkeypatch, project, "test", "-q", "--ignore-glob", "*_live.py") == 0
    for command in (["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy"]):
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=project, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    settings = Settings.from_environment({}, cwd=project / "jobs")
    assert (settings.project, settings.cores, settings.values.environment) == (project, 2, "dev")


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


@pytest.mark.parametrize("name", ["class", "a-b", "../x", "1st", ""])
def test_a_name_that_is_no_module_is_refused(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "jobs").mkdir()

    assert deltaworks(monkeypatch, tmp_path, "new", "pipeline", name) == 78

    assert files(tmp_path) == set()
    assert "cannot be" in capsys.readouterr().err
