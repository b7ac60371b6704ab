from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from deltaworks.cli.app import app
from deltaworks.errors import ConfigurationError

run = CliRunner().invoke


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the file of a new project is written."""
    (tmp_path / "shop" / "jobs").mkdir(parents=True)
    monkeypatch.setenv("DELTAWORKS_PROJECT", str(tmp_path / "shop"))
    return tmp_path / "shop" / "docker-compose.yml"


def test_a_new_project_gets_its_file(file: Path) -> None:
    assert run(app, ["compose"]).exit_code == 0

    assert yaml.safe_load(file.read_text())["name"] == "shop"
    assert run(app, ["compose"]).exit_code == 0, "the same file again"


def test_a_file_that_says_something_else_is_replaced_by_force_only(file: Path) -> None:
    file.write_text("name: mine\n")

    refused = run(app, ["compose"])

    assert isinstance(refused.exception, ConfigurationError) and "--force" in str(refused.exception)
    assert file.read_text() == "name: mine\n"
    assert run(app, ["compose", "--force"]).exit_code == 0
    assert "kafka:29092" in file.read_text()


def test_the_file_can_be_elsewhere(file: Path, tmp_path: Path) -> None:
    assert run(app, ["compose", "--output", str(tmp_path / "other.yml")]).exit_code == 0

    assert (tmp_path / "other.yml").is_file() and not file.exists()


def test_secrets_are_printed_and_nothing_is_written(file: Path) -> None:
    printed = run(app, ["compose", "--secrets"]).stdout

    assert re.fullmatch(r"([A-Z_]+=[\w=-]+\n){7}", printed)
    assert not file.exists()
