from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from deltaworks.cli.app import app
from deltaworks.errors import ConfigurationError

run = CliRunner().invoke
FILES = ("docker-compose.yml", "Dockerfile", ".dockerignore")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the file of a new project is written."""
    (tmp_path / "shop" / "jobs").mkdir(parents=True)
    monkeypatch.setenv("DELTAWORKS_PROJECT", str(tmp_path / "shop"))
    return tmp_path / "shop" / "docker-compose.yml"


def test_a_new_project_gets_its_file(file: Path) -> None:
    assert run(app, ["compose"]).exit_code == 0

    assert yaml.safe_load(file.read_text())["name"] == "shop"
    assert {path.name for path in file.parent.iterdir()} == {"jobs", *FILES}
    assert run(app, ["compose"]).exit_code == 0, "the same files again"


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_says_something_else_is_replaced_by_force_only(file: Path, name: str) -> None:
    mine = file.parent / name
    mine.write_text("mine\n")

    refused = run(app, ["compose"])

    assert isinstance(refused.exception, ConfigurationError) and "--force" in str(refused.exception)
    assert str(mine) in str(refused.exception)
    assert {path.name for path in file.parent.iterdir()} == {"jobs", name} and mine.read_text() == "mine\n"
    assert run(app, ["compose", "--force"]).exit_code == 0
    assert "deltaworks compose" in mine.read_text()


def test_the_file_can_be_elsewhere(file: Path, tmp_path: Path) -> None:
    assert run(app, ["compose", "--output", str(tmp_path / "there" / "other.yml")]).exit_code == 0

    assert {path.name for path in (tmp_path / "there").iterdir()} == {"other.yml", *FILES} - {"docker-compose.yml"}
    assert not file.exists()


def test_the_image_may_have_a_wheel_of_the_project(file: Path) -> None:
    (file.parent / "deltaworks-9.whl").touch()

    assert run(app, ["compose", "--wheel", "deltaworks-9.whl"]).exit_code == 0
    assert "COPY --chown=50000:0 deltaworks-9.whl" in (file.parent / "Dockerfile").read_text()


def test_secrets_are_printed_and_nothing_is_written(file: Path) -> None:
    printed = run(app, ["compose", "--secrets"]).stdout

    assert re.fullmatch(r"([A-Z_]+=[\w=-]+\n){10}", printed)
    assert not file.exists()
