"""A process that runs the `jobs/` of another folder or git ref."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deltaworks.control import code
from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings


class Executed(Exception):
    """In place of the process that goes on."""


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    def execve(program: str, arguments: list[str], environment: dict[str, str]) -> None:
        raise Executed(environment["DELTAWORKS_CODE"], environment["DELTAWORKS_PROJECT"])

    monkeypatch.setattr(os, "execve", execve)
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "deltaworks.cli"])
    project = tmp_path / "project"
    write(project, "main")
    return Settings.from_environment({"DELTAWORKS_PROJECT": str(project), "DELTAWORKS_HOME": str(tmp_path / "home")})


def write(project: Path, text: str) -> None:
    (project / "jobs").mkdir(parents=True, exist_ok=True)
    (project / "jobs" / "one.py").write_text(f"# {text}\n")


def git(project: Path, *arguments: str) -> None:
    identity = {f"GIT_{who}_{what}": "t@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    subprocess.run(["git", "-C", str(project), *arguments], check=True, capture_output=True, env=os.environ | identity)


def run(settings: Settings, place: str) -> str:
    """The job in the archive from which the process goes on."""
    with pytest.raises(Executed) as executed:
        code.run_other_code(settings, place)
    archive, project = executed.value.args
    assert project == str(settings.project), "all other settings stay"
    return (Path(archive) / "jobs" / "one.py").read_text()


def test_a_folder(settings: Settings, tmp_path: Path) -> None:
    write(tmp_path / "other", "branch")
    assert run(settings, str(tmp_path / "other")) == "# branch\n"


def test_a_branch_of_the_project(settings: Settings, tmp_path: Path) -> None:
    git(settings.project, "init", "-b", "main")
    git(settings.project, "add", ".")
    git(settings.project, "commit", "-m", "main")
    git(settings.project, "checkout", "-b", "branch")
    write(settings.project, "branch")
    git(settings.project, "commit", "-am", "branch")
    git(settings.project, "checkout", "main")
    write(settings.project, "not committed")

    assert run(settings, "branch") == "# branch\n"
    assert run(settings, "HEAD") == "# main\n"


def test_a_process_that_already_runs_from_an_archive_goes_on(settings: Settings, tmp_path: Path) -> None:
    code.run_other_code(replace(settings, code=tmp_path), "whatever")


@pytest.mark.parametrize("place", ["nowhere", "--output=/tmp/x"])
def test_what_is_neither_is_refused(settings: Settings, place: str) -> None:
    git(settings.project, "init")
    with pytest.raises(ConfigurationError, match="neither a folder nor a commit with jobs/") as refused:
        code.run_other_code(settings, place)
    assert "fetch-depth: 0" in (refused.value.hint or "")


def test_a_folder_without_jobs_is_refused(settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="which has no jobs/"):
        code.run_other_code(settings, str(tmp_path))


def test_without_git_only_folders_can_be_named(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: Any, **__: Any) -> None:
        raise FileNotFoundError("git")

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(ConfigurationError, match="there is no git"):
        code.run_other_code(settings, "main")
