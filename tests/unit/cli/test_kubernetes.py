from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from deltaworks.cli.app import app
from deltaworks.errors import ConfigurationError

run = CliRunner().invoke
SOURCE = Path(__file__).parents[3] / "infra" / "kubernetes"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "shop" / "jobs").mkdir(parents=True)
    monkeypatch.setenv("DELTAWORKS_PROJECT", str(tmp_path / "shop"))
    return tmp_path / "shop"


def contents(folder: Path) -> dict[str, str]:
    return {str(file.relative_to(folder)): file.read_text() for file in folder.rglob("*") if file.is_file()}


def test_a_project_gets_a_base_and_an_example(project: Path, tmp_path: Path) -> None:
    assert run(app, ["kubernetes"]).exit_code == 0
    assert run(app, ["kubernetes", "--output", str(tmp_path / "there")]).exit_code == 0

    assert contents(project / "k8s") == contents(tmp_path / "there") == contents(SOURCE)
    assert {"base/kustomization.yaml", "overlays/example/kustomization.yaml"} <= contents(SOURCE).keys()


def test_overlays_of_ones_own_stay_and_edited_files_are_replaced_by_force_only(project: Path) -> None:
    assert run(app, ["kubernetes"]).exit_code == 0
    own, edited = (project / "k8s" / name for name in ("overlays/prod/kustomization.yaml", "base/registry.yaml"))
    own.parent.mkdir()
    own.write_text("mine\n")
    edited.write_text("mine\n")

    refused = run(app, ["kubernetes"])
    forced = run(app, ["kubernetes", "--force"])

    assert isinstance(refused.exception, ConfigurationError) and str(edited) in str(refused.exception)
    assert forced.exit_code == 0
    assert own.read_text() == "mine\n" and edited.read_text() == (SOURCE / "base/registry.yaml").read_text()
