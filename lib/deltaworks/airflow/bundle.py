"""The DAG bundle of a project: a small DAG file per pipeline, batch job and connector, kept in step with `jobs/`.

Airflow parses each DAG file in its own process, with its own time limit and its own import error. So a pipeline that
cannot be imported does not affect the DAGs of the others, and its error appears under its own name (`jobs/orders.py`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from airflow.dag_processing.bundles.base import BaseDagBundle

from deltaworks.airflow.access import Access
from deltaworks.airflow.quality import SUITES
from deltaworks.batch import jobs as batch_jobs
from deltaworks.connect import project as connectors
from deltaworks.control import jobs
from deltaworks.settings import Settings

_FILE = '''"""Airflow's entry to {job}. Written by deltaworks.airflow.bundle; changes here are lost."""

from deltaworks.airflow.dags import {factory}

globals().update({factory}({arguments}))
'''


class PipelineBundle(BaseDagBundle):
    """The pipelines, batch jobs and connectors of a project.

    Args:
        project: folder of the project; None: DELTAWORKS_PROJECT.
        conn_id: a connection of the type `deltaworks` for the tasks; None: the environment.
        roles: begin of the names of the roles in Airflow, see `options.DagOptions`; None: none.
        approval: who approves, see `options.PipelineOptions`; None: as the setting `approval` says.
        approvers: ids of the users who may answer; None: all whom the auth manager lets.
        kwargs: of every bundle.
    """

    supports_versioning = False

    def __init__(
        self,
        *,
        project: str | None = None,
        conn_id: str | None = None,
        roles: str | None = None,
        approval: str | None = None,
        approvers: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._access = Access(conn_id=conn_id, project=project)
        given = {"conn_id": conn_id, "project": project, "roles": roles, "approval": approval, "approvers": approvers}
        self._options = {name: value for name, value in given.items() if value is not None}

    def initialize(self) -> None:
        """Called by the dag-processor and before every task."""
        self.refresh()
        super().initialize()

    def refresh(self) -> None:
        """Called by the dag-processor every few seconds."""
        write_dag_files(self._access.parsed(), self._options)

    @property
    def path(self) -> Path:
        return dag_files(self._access.parsed()).parent

    def get_current_version(self) -> None:
        """None: the bundle has no versions; it always uses the current files in `jobs/`."""


def dag_files(settings: Settings) -> Path:
    """The folder of the DAG files; it is also called `jobs`, because Airflow shows its name with every error."""
    return settings.airflow / "pipelines" / "jobs"


def write_dag_files(settings: Settings, given: Mapping[str, Any]) -> None:
    """Makes the folder hold exactly the DAG files of the project; several processes may do this at once.

    A file gets the modification time of its job, or of its suite if that is newer, so Airflow parses it again as soon
    as either changes.

    Args:
        settings: name the folder.
        given: options of the DAGs.
    """
    options = "".join(f", {key}={value!r}" for key, value in given.items())
    pipelines = {name: ("pipeline_dags", f"{name!r}{options}") for name in jobs.names(settings)}
    _write_folder(settings, Path(), pipelines)
    batch = {name: ("batch_dags", f"[{name!r}]{options}") for name in batch_jobs.names(settings)}
    _write_folder(settings, Path(batch_jobs.FOLDER), batch)
    written = connectors.written(settings)
    connect = {name: ("connector_dags", f"[{name!r}]{options}") for name in written}
    _write_folder(settings, Path(connectors.FOLDER), connect, {name: found[0] for name, found in written.items()})


def _write_folder(
    settings: Settings, below: Path, calls: Mapping[str, tuple[str, str]], files: Mapping[str, Path] | None = None
) -> None:
    """Writes a DAG file per job.

    Args:
        settings: name the folder.
        below: `jobs/`, and that folder.
        calls: name of each job -> the function that makes its DAGs, and the arguments.
        files: name -> its file, if that is not `NAME.py`.
    """
    folder = dag_files(settings) / below
    folder.mkdir(parents=True, exist_ok=True)
    for file in folder.glob("*.py"):
        if file.stem not in calls:
            file.unlink(missing_ok=True)
    for name, (factory, arguments) in calls.items():
        source = settings.jobs / below / f"{name}.py" if files is None else files[name]
        try:
            changed_ns = source.stat().st_mtime_ns
        except FileNotFoundError:
            continue  # deleted meanwhile; the next call removes its DAG file
        with suppress(FileNotFoundError):
            changed_ns = max(changed_ns, (settings.jobs / SUITES / f"{name}.py").stat().st_mtime_ns)
        job = (Path("jobs") / below / source.name).as_posix()
        _write(folder / f"{name}.py", _FILE.format(job=job, factory=factory, arguments=arguments), changed_ns)


def _write(file: Path, text: str, changed_ns: int) -> None:
    if file.is_file() and file.stat().st_mtime_ns == changed_ns and file.read_text() == text:
        return
    temporary = file.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(text)
    os.utime(temporary, ns=(changed_ns, changed_ns))
    temporary.replace(file)
