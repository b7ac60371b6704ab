"""The DAG files come and go with the files in `jobs/`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deltaworks.airflow.bundle import PipelineBundle
from deltaworks.settings import Settings


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DELTAWORKS_PROJECT", str(tmp_path))
    monkeypatch.setenv("DELTAWORKS_HOME", str(tmp_path / "home"))
    (tmp_path / "jobs").mkdir()
    return tmp_path


def job(project: Path, name: str) -> Path:
    file = project / "jobs" / f"{name}.py"
    file.write_text("pipeline = ...\n")
    return file


def files() -> list[str]:
    bundle = PipelineBundle(name="pipelines")
    bundle.initialize()
    return sorted(str(file.relative_to(bundle.path)) for file in bundle.path.rglob("*") if file.is_file())


def test_a_new_job_is_a_new_dag_file_and_a_removed_one_takes_its_file_along(project: Path) -> None:
    job(project, "orders")
    (project / "jobs" / "orders_data.py").write_text("nothing = 'a pipeline'\n")
    assert files() == ["jobs/orders.py"]

    job(project, "other")
    (project / "jobs" / "orders.py").unlink()

    assert files() == ["jobs/other.py"]


def test_its_dags_have_the_options_of_the_bundle(project: Path) -> None:
    job(project, "orders")
    bundle = PipelineBundle(name="pipelines", roles="shop", approval="other person", approvers=["bob"])
    bundle.initialize()

    call = "pipeline_dags('orders', roles='shop', approval='other person', approvers=['bob'])"
    assert call in (bundle.path / "jobs" / "orders.py").read_text()


def test_a_batch_job_has_a_dag_file_of_its_own(project: Path) -> None:
    (folder := project / "jobs" / "batch").mkdir()
    (folder / "sales.py").write_text("job = ...\n")
    job(project, "sales")
    assert files() == ["jobs/batch/sales.py", "jobs/sales.py"]

    (folder / "sales.py").unlink()

    assert files() == ["jobs/sales.py"]


def test_a_connector_has_a_dag_file_of_its_own_whatever_its_file_is_of(project: Path) -> None:
    (folder := project / "jobs" / "connectors").mkdir()
    (folder / "lines.json").write_text("{}")
    (folder / "cdc.py").write_text("connector = ...\n")
    (folder / "_common.py").write_text("shared = 1\n")
    os.utime(folder / "lines.json", (2e9, 2e9))

    assert files() == ["jobs/connectors/cdc.py", "jobs/connectors/lines.py"]
    written = project / "home" / "airflow" / "pipelines" / "jobs" / "connectors" / "lines.py"
    assert written.stat().st_mtime == 2e9
    assert "Airflow's entry to jobs/connectors/lines.json" in written.read_text()
    assert "connector_dags(['lines'])" in written.read_text()
    (folder / "lines.json").unlink()

    assert files() == ["jobs/connectors/cdc.py"]


def test_a_dag_file_is_as_new_as_its_job_so_that_airflow_parses_it_again(project: Path) -> None:
    file = job(project, "orders")
    files()
    written = project / "home" / "airflow" / "pipelines" / "jobs" / "orders.py"
    before = written.stat()

    files()
    assert written.stat().st_ino == before.st_ino
    os.utime(file, (2e9, 2e9))
    files()

    assert written.stat().st_mtime == 2e9


def test_a_dag_file_is_as_new_as_the_suite_too(project: Path) -> None:
    job(project, "orders")
    (project / "jobs" / "quality").mkdir()
    suite = project / "jobs" / "quality" / "orders.py"
    suite.write_text("suites = {}\n")
    os.utime(suite, (2e9, 2e9))

    files()

    assert (project / "home" / "airflow" / "pipelines" / "jobs" / "orders.py").stat().st_mtime == 2e9


def test_a_bundle_may_name_project_and_connection(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job(project, "orders")
    monkeypatch.setenv("DELTAWORKS_PROJECT", "/nowhere")

    bundle = PipelineBundle(name="pipelines", project=str(project), conn_id="shop")
    bundle.initialize()

    text = (bundle.path / "jobs" / "orders.py").read_text()
    assert f"pipeline_dags('orders', conn_id='shop', project={str(project)!r})" in text


def test_a_dag_file_passes_the_search_for_files_that_may_hold_dags(project: Path) -> None:
    job(project, "orders")
    files()

    text = (Settings.from_environment().airflow / "pipelines" / "jobs" / "orders.py").read_text().lower()

    assert "dag" in text
    assert "airflow" in text
